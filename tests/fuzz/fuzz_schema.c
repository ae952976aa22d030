// Fuzzes JSON schemas: the input is one.  Compiling ends with a message or with a grammar; its masks and its steps must
// agree, and a text that it calls complete must be JSON.
#define _GNU_SOURCE
#include "grammar_common.h"
#include "grammar/schema.h"
#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  grammar *g = NULL;
  error err = {0};
  str notes = {0};
  int failed_to_open = grammar_from_schema((const char *)data, size, size % 4 == 0, &notes, &g, &err);
  str_free(&notes);
  if (failed_to_open) {
    if (!err.text[0]) die("an error without a message");
    return 0;
  }
  common_walk(g, hash_bytes(data, size, 0), 12);
  // Byte by byte to an end, if it comes soon.
  matcher *m = NULL;
  str text = {0};
  bool failed = matcher_new(g, NULL, &m, &err);
  for (int step = 0; !failed && step < 60 && !matcher_complete(m); step++) {
    static const char order[] = "\"}]0,:1-aetrufnls{[ \\T.Z@/5";
    bool ok = false;
    for (size_t i = 0; order[i] && !ok && !failed; i++) {
      failed =
        matcher_bytes(m, &order[(i + (size_t)step * 7 * (step > 8 && i > 4)) % (sizeof order - 1)], 1, &ok, &err);
      if (ok) str_addc(&text, order[(i + (size_t)step * 7 * (step > 8 && i > 4)) % (sizeof order - 1)]);
    }
    if (!ok) break;
  }
  if (!failed && matcher_complete(m)) {
    json_error_t why;
    json_t *value = json_loadb(str_c(&text), text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!value) die("'%s' is not JSON: %s", str_c(&text), why.text);
    json_decref(value);
  }
  matcher_free(m);
  str_free(&text);
  grammar_free(g);
  return 0;
}
