// Readable printing of values, types, and untrusted bytes. The output never carries control characters or broken UTF-8
// from a file to a terminal or a log.
#include "model/gguf_impl.h"
#include "base/plain.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *gguf_type_name(enum gguf_type t) {
  const struct gguf_type_info *info = gguf_type_info((uint32_t)t);
  return info ? info->name : "unknown";
}

// One character of text in printable form, at most 8 bytes; returns how many of the n > 0 bytes at p it took.
static size_t shown_char(const char *p, size_t n, char out[9]) {
  unsigned char c = (unsigned char)*p;
  size_t len = gguf_utf8_char(p, n);
  bool control = c < 0x20 || c == 0x7f || str_format_control(p, n);
  if (c == '\n') { memcpy(out, "\\n", 3); return 1; }
  if (c == '\t') { memcpy(out, "\\t", 3); return 1; }
  if (c == '"' || c == '\\') { out[0] = '\\'; out[1] = (char)c; out[2] = 0; return 1; }
  // invalid or control characters: one byte as \xNN
  if (!len || control) { snprintf(out, 9, "\\x%02x", (unsigned)c); return 1; }
  memcpy(out, p, len);
  out[len] = 0;
  return len;
}

const char *gguf_quote(char *out, size_t cap, const char *bytes, size_t n) {
  if (cap < 16) die("gguf_quote: %zu bytes of room", cap);
  size_t used = 0, room = 0;                          // room: the last place where "..." still fits
  for (size_t i = 0; i < n;) {
    char c[9];
    i += shown_char(bytes + i, n - i, c);
    size_t len = strlen(c);
    if (used + len >= cap) { memcpy(out + room, "...", 3); used = room + 3; break; }
    memcpy(out + used, c, len);
    used += len;
    if (used + 3 < cap) room = used;
  }
  out[used] = 0;
  return out;
}

// The shortest of the usual notations of f that reads back as the same number; with `single`, as the same float.
static void print_float(str *s, double f, bool single) {
  char text[40];
  if (!isfinite(f)) { str_add(s, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf"); return; }
  for (int digits = 6; digits <= 17; digits++) {
    plain_snprintf(text, sizeof text, "%.*g", digits, f);
    double back = plain_strtod(text, NULL);
    if (single ? (float)back == (float)f : back == f) break;
  }
  str_add(s, text);
}

static void print_string(str *s, gguf_string v, size_t max_items) {
  size_t show = max_items && v.n / 20 >= max_items ? 20 * max_items : v.n, i = 0;
  str_addc(s, '"');
  while (i < show) {
    char c[9];
    i += shown_char(v.at + i, v.n - i, c);
    str_add(s, c);
  }
  str_addc(s, '"');
  if (i < v.n) str_addf(s, "... (%zu bytes)", v.n);
}

static void print_array(str *s, const gguf_value *v, size_t max_items) {
  size_t show = max_items && max_items < v->a.n ? max_items : v->a.n;
  str_addc(s, '[');
  for (size_t i = 0; i < show; i++) {
    gguf_value e = gguf_elem(v, i);
    if (i) str_add(s, ", ");
    gguf_value_print(s, &e, max_items);
  }
  if (show < v->a.n) str_addf(s, "%s... (%zu elements)", show ? ", " : "", v->a.n);
  str_addc(s, ']');
}

void gguf_value_print(str *s, const gguf_value *v, size_t max_items) {
  switch (v->type) {
  case GGUF_UINT8: case GGUF_UINT16: case GGUF_UINT32: case GGUF_UINT64: str_addf(s, "%" PRIu64, v->u); break;
  case GGUF_INT8: case GGUF_INT16: case GGUF_INT32: case GGUF_INT64: str_addf(s, "%" PRId64, v->i); break;
  case GGUF_FLOAT32: case GGUF_FLOAT64: print_float(s, v->f, v->type == GGUF_FLOAT32); break;
  case GGUF_BOOL: str_add(s, v->b ? "true" : "false"); break;
  case GGUF_STRING: print_string(s, v->s, max_items); break;
  case GGUF_ARRAY: print_array(s, v, max_items); break;
  case GGUF_TYPE_COUNT: die("gguf: printing a value of no type");
  }
}

void gguf_type_print(str *s, const gguf_value *v) {
  if (v->type == GGUF_ARRAY) str_addf(s, "ARRAY of %zu %s", v->a.n, gguf_type_name(v->elem));
  else str_add(s, gguf_type_name(v->type));
}
