// json: output of JSON by commands.
#ifndef WEFT_APP_JSON_H
#define WEFT_APP_JSON_H
#include <jansson.h>
#include "app/out.h"

// Prints `value` and a newline, and frees it. flags: of json_dumps.
void out_json(struct out *o, json_t *value, size_t flags);
// A JSON string of any bytes: bytes that are not UTF-8 become U+FFFD.
json_t *json_text(const char *text, size_t n);
#endif
