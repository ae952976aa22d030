// signs: what people see as one character (a grapheme cluster of Unicode), and how many columns it takes.
#ifndef WEFT_SIGNS_H
#define WEFT_SIGNS_H
#include "base/str.h"

enum { TAB_COLUMNS = 4 };
// The character at a byte, U+FFFD where it is none; returns how many bytes it has.
size_t sign_character(const char *text, size_t n, size_t at, int32_t *out);
// Where the sign that begins at `at` ends, and how wide it is at most: some terminals show its characters one after the
// other.
size_t sign_end(const char *text, size_t n, size_t at, int *width);
int sign_columns(const char *text, size_t n);        // of all of it, at most
// Text in lines of at most so many columns, broken at spaces; a longer word stays whole, so that a path can be copied.
// All lines that this begins have `indent` spaces first. Newlines stay.
void sign_wrap(str *out, const char *text, int columns, int indent);
#endif
