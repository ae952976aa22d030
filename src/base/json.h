// json: JSON from strangers, read by jansson within bounds.
//
// jansson takes 20 to 100 times a text of many small values.  What it will take is told from the text, before it is
// read: json_fits.  Whoever reads many texts for one purpose has one budget for all of them.
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H
#include <jansson.h>
#include "base/base.h"

#define JSON_ROOM ((size_t)56 << 20)     // bytes that values may take, besides those for each byte of their text
enum { JSON_PER_BYTE = 3 };

// Nearly the bytes that the values of a text will take; of a text that is no JSON, at least what reading it takes.
size_t json_cost(const char *text, size_t n);
// Whether the values of n bytes fit.  *left: what a budget, JSON_ROOM at first, has beside JSON_PER_BYTE for each; what
// they take is taken off.  left NULL: a budget for this text alone.  false and a sentence; then *left is as it was.
bool json_fits(const char *text, size_t n, size_t *left, error *err);
// Integers beyond 64 bits become reals; what is nested deeper than the stack has room for is refused.  flags: of
// json_loadb.  NULL and "line 1, column 2: reason".
json_t *json_parse(const char *text, size_t n, size_t flags, error *err);
json_t *json_read(const char *text, size_t n, size_t flags, size_t *left, error *err);   // both
// json_loadb, but what is nested deeper than the stack has room for is refused.  For texts whose digits count, as those
// that a model wrote: large integers are an error.
json_t *json_load(const char *text, size_t n, size_t flags, json_error_t *e);
// The elements of an array, one in memory at a time, as if read with JSON_ALLOW_NUL.  each: takes the element, which
// json_cost says to take `cost` bytes; not 0 ends the walk with that.  -1 and a reason as json_read gives it.
typedef int json_element(void *ctx, size_t i, json_t *element, size_t cost);
int json_each(const char *text, size_t n, json_element *each, void *ctx, error *err);
#endif
