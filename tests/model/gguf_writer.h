// A small GGUF writer for tests: it writes what it is told, right or wrong.  Fields are little-endian, one call each;
// w_header, then w_key + value for each key, then w_tensor for each tensor, w_pad, and the data.
#ifndef WEFT_TESTS_GGUF_WRITER_H
#define WEFT_TESTS_GGUF_WRITER_H
#include "base/str.h"
#include "model/gguf.h"
#include <string.h>

static inline void w_int(str *s, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) str_addc(s, (char)(v >> 8 * i));
}
static inline void w_u8(str *s, uint64_t v) { w_int(s, v, 1); }
static inline void w_u32(str *s, uint64_t v) { w_int(s, v, 4); }
static inline void w_u64(str *s, uint64_t v) { w_int(s, v, 8); }
static inline void w_f32(str *s, float f) { uint32_t u; memcpy(&u, &f, 4); w_int(s, u, 4); }
static inline void w_f64(str *s, double f) { uint64_t u; memcpy(&u, &f, 8); w_int(s, u, 8); }
static inline void w_strn(str *s, const char *text, size_t n) { w_u64(s, n); str_addn(s, text, n); }
static inline void w_str(str *s, const char *text) { w_strn(s, text, strlen(text)); }

static inline void w_header(str *s, uint64_t n_tensors, uint64_t n_kv) {
  str_add(s, "GGUF");
  w_u32(s, 3);
  w_u64(s, n_tensors);
  w_u64(s, n_kv);
}
static inline void w_key(str *s, const char *key, uint32_t type) { w_str(s, key); w_u32(s, type); }
static inline void w_key_int(str *s, const char *key, enum gguf_type type, uint64_t v) {
  static const int bytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  w_key(s, key, type);
  w_int(s, v, bytes[type]);
}
static inline void w_key_str(str *s, const char *key, const char *v) { w_key(s, key, GGUF_STRING); w_str(s, v); }
static inline void w_key_array(str *s, const char *key, uint32_t elem, uint64_t n) {
  w_key(s, key, GGUF_ARRAY);
  w_u32(s, elem);
  w_u64(s, n);
}

static inline void w_tensor(str *s, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type,
                            uint64_t offset) {
  w_str(s, name);
  w_u32(s, n_dims);
  for (uint32_t i = 0; i < n_dims && i < 8; i++) w_u64(s, ne[i]);
  w_u32(s, type);
  w_u64(s, offset);
}
#define W_NE(...) (const uint64_t[]){__VA_ARGS__}
static inline void w_pad(str *s, size_t to) { while (s->n % to) str_addc(s, 0); }
static inline void w_fill(str *s, size_t n) { for (size_t i = 0; i < n; i++) str_addc(s, (char)(i * 37 + 11)); }
#endif
