// The typed getters: a key's value as the caller needs it, or an error that names file, key, the expected and the found
// value. A number may be stored in any type of its kind as long as the value fits.
#include "model/gguf_impl.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Conversions: false if the kind is wrong or the value does not fit ----

bool gguf_value_int(const gguf_value *v, bool *negative, uint64_t *magnitude) {
  switch (v->type) {
  case GGUF_UINT8: case GGUF_UINT16: case GGUF_UINT32: case GGUF_UINT64:
    *negative = false;
    *magnitude = v->u;
    return true;
  case GGUF_INT8: case GGUF_INT16: case GGUF_INT32: case GGUF_INT64:
    *negative = v->i < 0;
    *magnitude = *negative ? 0 - (uint64_t)v->i : (uint64_t)v->i;
    return true;
  default: return false;
  }
}

static bool to_unsigned(const gguf_value *v, uint64_t most, uint64_t *out) {
  bool negative;
  return gguf_value_int(v, &negative, out) && !negative && *out <= most;
}

static bool to_signed(const gguf_value *v, int64_t most, int64_t *out) {
  bool negative;
  uint64_t m;
  if (!gguf_value_int(v, &negative, &m) || m > (uint64_t)most + negative) return false;
  *out = negative ? (int64_t)(0 - m) : (int64_t)m;
  return true;
}

static bool as_u32(const gguf_value *v, uint32_t *out) {
  uint64_t x;
  if (!to_unsigned(v, UINT32_MAX, &x)) return false;
  *out = (uint32_t)x;
  return true;
}
static bool as_u64(const gguf_value *v, uint64_t *out) {
  uint64_t x;
  if (!to_unsigned(v, UINT64_MAX, &x)) return false;
  *out = x;
  return true;
}
static bool as_i32(const gguf_value *v, int32_t *out) {
  int64_t x;
  if (!to_signed(v, INT32_MAX, &x)) return false;
  *out = (int32_t)x;
  return true;
}
static bool as_i64(const gguf_value *v, int64_t *out) {
  int64_t x;
  if (!to_signed(v, INT64_MAX, &x)) return false;
  *out = x;
  return true;
}
static bool as_f64(const gguf_value *v, double *out) {
  if (v->type != GGUF_FLOAT32 && v->type != GGUF_FLOAT64) return false;
  *out = v->f;
  return true;
}
static bool as_bool(const gguf_value *v, bool *out) {
  if (v->type != GGUF_BOOL) return false;
  *out = v->b;
  return true;
}
static bool as_str(const gguf_value *v, gguf_string *out) {
  if (v->type != GGUF_STRING) return false;
  *out = v->s;
  return true;
}

static bool as_f32(const gguf_value *v, float *out) {
  double x;
  // Infinity is accepted as it is, but a finite number must not become infinity.
  if (!as_f64(v, &x) || (isfinite(x) && fabs(x) > FLT_MAX)) return false;
  *out = (float)x;
  return true;
}

// ---- Errors ----

static int missing_key(const gguf *g, const char *key, const char *want, error *err) {
  return gguf_fail(g, key, err, "is missing (expected %s)", want);
}

// "expected ..., found UINT32 70000"; where: "" or "element 5: ".
static int mismatch(const gguf *g, const char *key, const char *where, const char *want, const gguf_value *v,
                    error *err) {
  str found = {0};
  gguf_type_print(&found, v);
  if (v->type != GGUF_ARRAY) { str_addc(&found, ' '); gguf_value_print(&found, v, 2); }
  gguf_fail(g, key, err, "%sexpected %s, found %s", where, want, str_c(&found));
  str_free(&found);
  return -1;
}

// ---- One value ----

#define WANT_u32 "an integer from 0 to 4294967295"
#define WANT_u64 "an integer that is not negative"
#define WANT_i32 "an integer from -2147483648 to 2147483647"
#define WANT_i64 "an integer below 2^63"
#define WANT_f32 "a FLOAT32 number"
#define WANT_f64 "a floating-point number"
#define WANT_bool "a BOOL"
#define WANT_str "a STRING"

#define GETTER(name, T) \
  int gguf_##name(const gguf *g, const char *key, T *out, error *err) { \
    const gguf_value *v = gguf_find(g, key); \
    if (!v) return missing_key(g, key, WANT_##name, err); \
    return as_##name(v, out) ? 0 : mismatch(g, key, "", WANT_##name, v, err); \
  }
#define GETTER_OPT(name, T) \
  int gguf_##name##_opt(const gguf *g, const char *key, T fallback, T *out, error *err) { \
    if (gguf_find(g, key)) return gguf_##name(g, key, out, err); \
    *out = fallback; \
    return 0; \
  }
GETTER(u32, uint32_t)
GETTER(u64, uint64_t)
GETTER(i32, int32_t)
GETTER(i64, int64_t)
GETTER(f32, float)
GETTER(f64, double)
GETTER(bool, bool)
GETTER(str, gguf_string)
GETTER_OPT(u32, uint32_t)
GETTER_OPT(u64, uint64_t)
GETTER_OPT(i32, int32_t)
GETTER_OPT(i64, int64_t)
GETTER_OPT(f32, float)
GETTER_OPT(f64, double)
GETTER_OPT(bool, bool)

int gguf_str_opt(const gguf *g, const char *key, const char *fallback, gguf_string *out, error *err) {
  if (gguf_find(g, key)) return gguf_str(g, key, out, err);
  *out = (gguf_string){fallback, fallback ? strlen(fallback) : 0};
  return 0;
}

// ---- Arrays ----

gguf_string gguf_elem_str(const gguf_value *v, size_t i) {
  if (v->type != GGUF_ARRAY || v->elem != GGUF_STRING || i >= v->a.n)
    die("gguf: string %zu of an array that has none such", i);
  size_t begin = v->a.start[i] + (size_t)8;  // past the length, which was read and checked when the file was opened
  return (gguf_string){(const char *)v->a.data + begin, v->a.start[i + 1] - begin};
}

gguf_value gguf_elem(const gguf_value *v, size_t i) {
  if (v->type != GGUF_ARRAY || i >= v->a.n) die("gguf: element %zu of an array that has none such", i);
  if (v->elem == GGUF_STRING) return (gguf_value){.type = GGUF_STRING, .elem = GGUF_STRING, .s = gguf_elem_str(v, i)};
  return gguf_decode(v->elem, v->a.data + i * gguf_type_info((uint32_t)v->elem)->bytes);
}

// Converts a whole array into memory of the arena. The kind is checked for each element: that costs little.
#define ARRAY_GETTER(name, T) \
  int gguf_##name##s(const gguf *g, const char *key, arena *a, const T **out, size_t *n, error *err) { \
    const gguf_value *v = gguf_find(g, key); \
    if (!v) return missing_key(g, key, "an ARRAY, each " WANT_##name, err); \
    if (v->type != GGUF_ARRAY || v->elem == GGUF_STRING) return \
    mismatch(g, key, "", "an ARRAY, each " WANT_##name, v, err); \
    T *to = ARENA_ARRAY(a, T, v->a.n); \
    for (size_t i = 0; i < v->a.n; i++) { \
      gguf_value e = gguf_elem(v, i); \
      if (!as_##name(&e, &to[i])) return bad_element(g, key, i, WANT_##name, &e, err); \
    } \
    *out = to; \
    *n = v->a.n; \
    return 0; \
  } \
  int gguf_##name##s_opt(const gguf *g, const char *key, arena *a, const T **out, size_t *n, error *err) { \
    if (gguf_find(g, key)) return gguf_##name##s(g, key, a, out, n, err); \
    *out = NULL; \
    *n = 0; \
    return 0; \
  }

static int bad_element(const gguf *g, const char *key, size_t i, const char *want, const gguf_value *v, error *err) {
  char where[40];
  snprintf(where, sizeof where, "element %zu: ", i);
  return mismatch(g, key, where, want, v, err);
}

ARRAY_GETTER(u32, uint32_t)
ARRAY_GETTER(i32, int32_t)
ARRAY_GETTER(f32, float)

int gguf_u32_each(const gguf *g, const char *key, size_t n, uint32_t *out, error *err) {
  const gguf_value *v = gguf_find(g, key);
  uint32_t one;
  if (!v || v->type != GGUF_ARRAY) {
    if (gguf_u32(g, key, &one, err)) return -1;
    for (size_t i = 0; i < n; i++) out[i] = one;
    return 0;
  }
  if (v->a.n != n) return gguf_fail(g, key, err, "expected %zu elements, found %zu", n, v->a.n);
  for (size_t i = 0; i < n; i++) {
    gguf_value e = gguf_elem(v, i);
    if (!as_u32(&e, &out[i])) return bad_element(g, key, i, WANT_u32, &e, err);
  }
  return 0;
}

int gguf_strs(const gguf *g, const char *key, const gguf_value **out, error *err) {
  const gguf_value *v = gguf_find(g, key);
  if (!v) return missing_key(g, key, "an ARRAY of STRING", err);
  if (v->type != GGUF_ARRAY || v->elem != GGUF_STRING) return mismatch(g, key, "", "an ARRAY of STRING", v, err);
  *out = v;
  return 0;
}

int gguf_strs_opt(const gguf *g, const char *key, const gguf_value **out, error *err) {
  *out = NULL;
  return gguf_find(g, key) ? gguf_strs(g, key, out, err) : 0;
}
