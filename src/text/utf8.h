// utf8: what tokenizers need of UTF-8, and a stream that returns only whole characters.
//
// "Valid" is the Unicode standard's: no overlong forms, no surrogates, nothing above U+10FFFF.
#ifndef WEFT_UTF8_H
#define WEFT_UTF8_H
#include "base/base.h"
#include "base/str.h"

// How the bytes at p (n >= 1 of them) begin: the length 1..4 of the valid character there, 0 if no character begins so,
// or -k if they are a valid prefix that lacks k more bytes (k >= 1; fewer than n bytes were examined).
int utf8_next(const char *p, size_t n);
// length of the longest valid prefix; n: all of it is valid
size_t utf8_valid_prefix(const char *p, size_t n);
// bytes at the end that begin an incomplete character: 0..3
size_t utf8_unfinished(const char *p, size_t n);
uint32_t utf8_code_point(const char *p, int len);          // of a valid character of len bytes
int utf8_put(uint32_t cp, char out[4]);                    // writes cp <= 0x10FFFF as 1..4 bytes, returns how many

// Tokens can end in the middle of a character. A stream takes bytes as they come and returns complete characters; bytes
// that can no longer become one turn into U+FFFD, one for each maximal broken piece, as the standard recommends. {0} is
// an empty stream; it owns nothing.
typedef struct utf8_stream { char held[4]; unsigned n; } utf8_stream;
void utf8_stream_add(utf8_stream *s, const char *bytes, size_t n, str *out);   // appends the characters now complete
// appends U+FFFD if an unfinished character is held; s is empty again
void utf8_stream_end(utf8_stream *s, str *out);
#endif
