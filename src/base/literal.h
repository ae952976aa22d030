// literal: a value as models write it, made into JSON one character at a time.  JSON comes out as it went in, digit by
// digit.  Python (True, None, 'text', tuples, trailing commas, keyword arguments), JSON with bare keys and strings
// between <|"|> become JSON.  Nothing recurses: depth costs one byte a level.
//
// Promise: what is in `out` is always the beginning of what will be there in the end, and never ends within an escape.
#ifndef WEFT_BASE_LITERAL_H
#define WEFT_BASE_LITERAL_H
#include "base/str.h"

typedef struct literal {
  str *out;                            // borrowed; gets the JSON
  str frames;                          // what closes each open bracket; 'k': keyword arguments
  enum { LIT_VALUE, LIT_KEY, LIT_SEPARATOR, LIT_AFTER, LIT_MARK, LIT_STRING, LIT_ESCAPE, LIT_WORD, LIT_DONE, LIT_BAD,
  } state;
  char quote;                          // of the open string; 'q': <|"|>
  bool key;                            // the string or word is a key
  bool member;                         // a first member, or the end, has been seen
  str word;                            // a bare word, an escape, or what may be <|"|>
  str pair;                            // the first half of a surrogate pair
  str gap;                             // white space and a comma, which is dropped before a bracket closes
  size_t before;                       // length of `out` where the last whole member ends
} literal;

// WHOLE: c ends the value and belongs to it.  BEFORE: the value ended before c.
enum literal_status { LITERAL_MORE, LITERAL_WHOLE, LITERAL_BEFORE, LITERAL_BAD };
void literal_begin(literal *l, str *out);              // what it has is freed; {0} is fine
void literal_begin_keywords(literal *l, str *out);     // behind NAME(
enum literal_status literal_push(literal *l, char c);
bool literal_end(literal *l);                          // the text has ended: whether the value is whole
void literal_free(literal *l);
// A whole text.  False: it is no value; what `out` got is undefined.
bool literal_read(const char *text, size_t n, str *out);
// An object of which only the beginning is there: adds what is known of it, closed.  Anything else: {}.
void literal_complete(const char *text, size_t n, str *out);
void literal_put(str *out, char c);                    // a character of a string, as JSON has it between quotes
#endif
