// literal: converts a value as models write it to JSON, one character at a time. JSON is copied digit by digit. Python
// (True, None, 'text', tuples, trailing commas, keyword arguments), JSON with bare keys and strings between <|"|>
// become JSON. There is no recursion: depth costs one byte per level.
//
// Invariant: `out` is always a prefix of the final text, and never ends within an escape.
#ifndef WEFT_BASE_LITERAL_H
#define WEFT_BASE_LITERAL_H
#include "base/str.h"

typedef struct literal {
  str *out;                            // borrowed; gets the JSON
  str frames;                          // the closing bracket of each open bracket; 'k': keyword arguments
  enum { LIT_VALUE, LIT_KEY, LIT_SEPARATOR, LIT_AFTER, LIT_MARK, LIT_STRING, LIT_ESCAPE, LIT_WORD, LIT_DONE, LIT_BAD,
  } state;
  char quote;                          // of the open string; 'q': <|"|>
  bool key;                            // the string or word is a key
  bool member;                         // a first member, or the end, has been seen
  str word;                            // a bare word, an escape, or a possible <|"|>
  str pair;                            // the first half of a surrogate pair
  str gap;                             // white space and a comma, which is dropped before a closing bracket
  size_t before;                       // length of `out` after the last complete member
} literal;

// WHOLE: c is the last character of the value. BEFORE: the value ended before c.
enum literal_status { LITERAL_MORE, LITERAL_WHOLE, LITERAL_BEFORE, LITERAL_BAD };
void literal_begin(literal *l, str *out);              // frees what it has; {0} is fine
void literal_begin_keywords(literal *l, str *out);     // after NAME(
enum literal_status literal_push(literal *l, char c);
bool literal_end(literal *l);                          // at the end of the text: whether the value is complete
void literal_free(literal *l);
// A whole text. False: it is not a value; the contents of `out` are undefined.
bool literal_read(const char *text, size_t n, str *out);
// Adds the known part of an incomplete object, closed. Anything else: {}.
void literal_complete(const char *text, size_t n, str *out);
void literal_put(str *out, char c);                    // a character of a string, as in JSON between quotes
#endif
