// JSON on stdout: see json.h.
#include "app/json.h"
#include "weft.h"

static int add_to_out(const char *text, size_t n, void *out) {
  out_add(out, text, n);
  return 0;
}

void out_json(struct out *o, json_t *value, size_t flags) {
  json_dump_callback(value, add_to_out, o, flags);
  out_add(o, "\n", 1);
  json_decref(value);
}

json_t *json_text(const char *text, size_t n) {
  size_t n_valid;
  char *valid = weft_utf8(text, n, &n_valid);
  json_t *s = json_stringn(valid, n_valid);
  weft_free(valid);
  return s;
}
