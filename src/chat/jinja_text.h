// jinja_text: string operations of methods and filters: spaces, lines, letters, replacing, padding.
#ifndef WEFT_JINJA_TEXT_H
#define WEFT_JINJA_TEXT_H
#include "chat/jinja_impl.h"

// In the bytes [from, to) of valid UTF-8: the first position that is no space (is a space); the end without trailing
// spaces.
size_t j_skip_space(const char *at, size_t from, size_t to);
size_t j_skip_word(const char *at, size_t from, size_t to);
size_t j_back_space(const char *at, size_t from, size_t to);
size_t j_back_word(const char *at, size_t from, size_t to);

// The first (last) position of k bytes within n, or NULL.
const char *j_search(const char *at, size_t n, const char *what, size_t k);
const char *j_search_back(jrun *r, const char *at, size_t n, const char *what, size_t k);

jval j_strip(jrun *r, jval v, jval chars, int sides);       // 1: left, 2: right; chars absent or None: white space
jlist *j_split_lines(jrun *r, jval v, bool keep_ends);
jval j_replace(jrun *r, jval v, jval old, jval new, int64_t most);   // most < 0: all
// Pads to width code points, with `left` of the missing ones in front.
jval j_pad(jrun *r, jval v, int64_t width, jval fill, int64_t left);

jval j_wordwrap(jrun *r, jval text, int64_t width, bool cut, bool hyphens, jval between);   // jinja_wrap.c
// most: maximum characters of an address that are shown, NULL: all; attributes: of each link; schemes: absent, None or
// a list of additional ones.
jval j_urlize(jrun *r, jval text, const int64_t *most, jval attributes, jval schemes);       // jinja_urlize.c

typedef enum jcase { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP, CASE_FOLD } jcase;
jval j_case(jrun *r, jval v, jcase how);
bool j_str_isalnum(jrun *r, const jstr *s), j_str_isalpha(jrun *r, const jstr *s),
  j_str_isascii(jrun *r, const jstr *s);
bool j_str_isdecimal(jrun *r, const jstr *s), j_str_isdigit(jrun *r, const jstr *s),
  j_str_isidentifier(jrun *r, const jstr *s);
bool j_str_islower(jrun *r, const jstr *s), j_str_isnumeric(jrun *r, const jstr *s),
  j_str_isprintable(jrun *r, const jstr *s);
bool j_str_isspace(jrun *r, const jstr *s), j_str_istitle(jrun *r, const jstr *s),
  j_str_isupper(jrun *r, const jstr *s);
bool j_is_word(uint32_t cp);                                // \w
#endif
