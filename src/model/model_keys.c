// Reads values of keys within limits: every number that later sizes a tensor or a loop is checked here, once.
#include <math.h>
#include <string.h>
#include "model/model_impl.h"

const char *file_key(loader *l, const char *name) {
  snprintf(l->key, sizeof l->key, "%s", name);
  const gguf_value *v = gguf_find(l->f, l->key);
  if (v) l->uses[gguf_kv_index(l->f, v)] = MODEL_KEY_READ;
  return l->key;
}

const char *key(loader *l, const char *rest) {
  char name[sizeof l->key];
  snprintf(name, sizeof name, "%s.%s", l->m->arch->name, rest);
  return file_key(l, name);
}

bool has_key(loader *l, const char *rest) { return gguf_find(l->f, key(l, rest)); }

bool equals_text(gguf_string s, const char *text) { return s.n == strlen(text) && !memcmp(s.at, text, s.n); }

// The file's value of l->key, or a trial value in its place.
static int64_t value_tried(const loader *l, uint32_t v) {
  return l->trial && !strcmp(l->trial->key, l->key) ? v + l->trial->more : v;
}

int key_count(loader *l, const char *rest, uint32_t lo, uint32_t hi, int *out) {
  uint32_t said;
  if (gguf_u32(l->f, key(l, rest), &said, l->err)) return -1;
  int64_t v = value_tried(l, said);
  if (v < lo || v > hi) return gguf_fail(l->f, l->key, l->err, "%lld is not in %u..%u", (long long)v, lo, hi);
  *out = (int)v;
  return 0;
}

int key_count_or(loader *l, const char *rest, uint32_t fallback, uint32_t lo, uint32_t hi, int *out) {
  if (has_key(l, rest)) return key_count(l, rest, lo, hi, out);
  *out = (int)fallback;
  return 0;
}

int key_counts(loader *l, const char *rest, uint32_t lo, uint32_t hi, uint32_t each[MODEL_MAX_LAYERS]) {
  if (gguf_u32_each(l->f, key(l, rest), (size_t)l->m->n_block, each, l->err)) return -1;
  for (int i = 0; i < model_n_blocks(l->m) && i < l->m->n_block; i++) {
    int64_t v = value_tried(l, each[i]);
    if (v < lo || v > hi) return gguf_fail(l->f, l->key, l->err, "%lld is not in %u..%u", (long long)v, lo, hi);
    each[i] = (uint32_t)v;
  }
  return 0;
}

int key_count_at(loader *l, const char *rest, int i, uint32_t lo, uint32_t hi, int *out) {
  uint32_t each[MODEL_MAX_LAYERS];
  if (key_counts(l, rest, 0, hi, each)) return -1;
  *out = (int)each[i];
  return each[i] >= lo ? 0 : gguf_fail(l->f, l->key, l->err, "%u of layer %d is not in %u..%u", each[i], i, lo, hi);
}

int key_flags(loader *l, const char *rest, uint32_t each[MODEL_MAX_LAYERS]) {
  const gguf_value *v = gguf_find(l->f, key(l, rest));
  bool array = v && v->type == GGUF_ARRAY;
  size_t n = (size_t)(array && v->a.n == (size_t)l->m->n_layer ? l->m->n_layer : l->m->n_block);
  memset(each, 0, MODEL_MAX_LAYERS * sizeof *each);        // of blocks that the list leaves out
  if (!array || v->elem != GGUF_BOOL) return gguf_u32_each(l->f, l->key, n, each, l->err);
  if (v->a.n != n) return gguf_fail(l->f, l->key, l->err, "expected %zu elements, found %zu", n, v->a.n);
  for (size_t i = 0; i < n; i++) each[i] = v->a.data[i] != 0;
  return 0;
}

// Files store numbers as 32-bit floats, which cannot represent 1e-12, 1e-6 or 0.001 exactly: a value reaches the file
// as the nearest float, which may be on the other side of a limit. So limits are rounded as the value was.
static int within_limits(const loader *l, const char *name, double x, double lo, double hi) {
  const gguf_value *v = gguf_find(l->f, name);
  bool single = v && (v->type == GGUF_FLOAT32 || (v->type == GGUF_ARRAY && v->elem == GGUF_FLOAT32));
  if (single) { lo = (float)lo; hi = (float)hi; }
  return x >= lo && x <= hi ? 0 : gguf_fail(l->f, name, l->err, "%.9g is not in %g..%g", x, lo, hi);
}

int key_number(loader *l, const char *rest, double lo, double hi, double *out) {
  return gguf_f64(l->f, key(l, rest), out, l->err) || within_limits(l, l->key, *out, lo, hi) ? -1 : 0;
}

int key_number_or(loader *l, const char *rest, double fallback, double lo, double hi, double *out) {
  if (has_key(l, rest)) return key_number(l, rest, lo, hi, out);
  *out = fallback;
  return 0;
}

int number_at(loader *l, const char *name, int i, double lo, double hi, double *out) {
  const gguf_value *v = gguf_find(l->f, name);
  if (v && v->type == GGUF_ARRAY) {
    int n = model_n_blocks(l->m);
    if (v->a.n < (size_t)n) return gguf_fail(l->f, name, l->err, "expected %d elements, found %zu", n, v->a.n);
    if (v->elem != GGUF_FLOAT32 && v->elem != GGUF_FLOAT64)
      return gguf_fail(l->f, name, l->err, "is not an array of floats");
    *out = gguf_elem(v, (size_t)i).f;
  } else if (gguf_f64(l->f, name, out, l->err)) {
    return -1;
  }
  return within_limits(l, name, *out, lo, hi);
}
