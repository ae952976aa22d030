// json: reads untrusted JSON with jansson, within bounds.
//
// jansson takes 20 to 100 times the memory of a text with many small values. json_fits computes from the text, before
// it is read, how much that will be. A caller that reads many texts for one purpose uses one budget for all of them.
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H
#include <jansson.h>
#include "base/base.h"

#define JSON_ROOM ((size_t)56 << 20)     // bytes for values, besides JSON_PER_BYTE for each byte of their text
enum { JSON_PER_BYTE = 3 };

// About the bytes that the values of a text will take; for a text that is not JSON, at least what reading it takes.
size_t json_cost(const char *text, size_t n);
// Whether the values of n bytes fit. *left: the rest of a budget, initially JSON_ROOM, which comes on top of
// JSON_PER_BYTE for each byte; the values' size is subtracted. left NULL: a budget for this text alone. false and a
// sentence; then *left is unchanged.
bool json_fits(const char *text, size_t n, size_t *left, error *err);
// Integers beyond 64 bits become reals; nesting deeper than the stack allows is refused. flags: as for json_loadb. NULL
// and "line 1, column 2: reason".
json_t *json_parse(const char *text, size_t n, size_t flags, error *err);
json_t *json_read(const char *text, size_t n, size_t flags, size_t *left, error *err);   // json_fits and json_parse
// Python writes numbers that are not finite as bare words: NaN, Infinity, -Infinity. The same text with an object for
// each, {"__float__":"Infinity"}, as transformers writes them since version 5. Empty: the text has none.
struct str;
struct str json_from_python(const char *text, size_t n);
// json_loadb, but nesting deeper than the stack allows is refused. For texts whose digits matter, such as those that a
// model wrote: large integers are an error.
json_t *json_load(const char *text, size_t n, size_t flags, json_error_t *e);
// json_dumps, with "." in numbers whatever the program's locale is.
char *json_as_text(const json_t *o, size_t flags);
// Walks over the elements of an array, with one in memory at a time, as if read with JSON_ALLOW_NUL. each: takes the
// element, which takes `cost` bytes by json_cost; a result other than 0 ends the walk and is returned. -1 and a reason
// as from json_read.
typedef int json_element(void *ctx, size_t i, json_t *element, size_t cost);
int json_each(const char *text, size_t n, json_element *each, void *ctx, error *err);
#endif
