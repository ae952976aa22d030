// json: what commands print as JSON.
#ifndef WEFT_APP_JSON_H
#define WEFT_APP_JSON_H
#include <jansson.h>
#include "app/out.h"

// Prints `value` and a newline, and gives it up. flags: of json_dumps.
void out_json(struct out *o, json_t *value, size_t flags);
// A string of any bytes: what is not UTF-8 becomes U+FFFD.
json_t *json_text(const char *text, size_t n);
#endif
