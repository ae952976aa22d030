// signs: what people see as one character (a grapheme cluster of Unicode), and how many columns it takes.
#ifndef WEFT_SIGNS_H
#define WEFT_SIGNS_H
#include "base/str.h"

enum { TAB_COLUMNS = 4 };
// Decodes the character at a byte, U+FFFD if it is invalid; returns its length in bytes.
size_t sign_character(const char *text, size_t n, size_t at, int32_t *out);
// The end of the sign that begins at `at`, and its maximum width: some terminals show its characters one after the
// other.
size_t sign_end(const char *text, size_t n, size_t at, int *width);
int sign_columns(const char *text, size_t n);        // the maximum width of the text
// Adds a text in lines of at most `columns` columns, broken at spaces; a longer word stays whole, so that a path can be
// copied. Continuation lines are indented by `indent` spaces. Newlines are kept.
void sign_wrap(str *out, const char *text, int columns, int indent);
#endif
