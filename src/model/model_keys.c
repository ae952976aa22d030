// Values of keys within limits: every number that later sizes a tensor or a loop passes here, once.
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

int key_count(loader *l, const char *rest, uint32_t lo, uint32_t hi, int *out) {
  uint32_t v;
  if (gguf_u32(l->f, key(l, rest), &v, l->err)) return -1;
  if (v < lo || v > hi) return gguf_fail(l->f, l->key, l->err, "%u is not in %u..%u", v, lo, hi);
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
  for (int i = 0; i < model_n_blocks(l->m); i++)
    if (each[i] < lo || each[i] > hi) return gguf_fail(l->f, l->key, l->err, "%u is not in %u..%u", each[i], lo, hi);
  return 0;
}

int key_flags(loader *l, const char *rest, uint32_t each[MODEL_MAX_LAYERS]) {
  const gguf_value *v = gguf_find(l->f, key(l, rest));
  bool array = v && v->type == GGUF_ARRAY;
  size_t n = (size_t)(array && v->a.n == (size_t)l->m->n_layer ? l->m->n_layer : l->m->n_block);
  if (!array || v->elem != GGUF_BOOL) return gguf_u32_each(l->f, l->key, n, each, l->err);
  if (v->a.n != n) return gguf_fail(l->f, l->key, l->err, "expected %zu elements, found %zu", n, v->a.n);
  for (size_t i = 0; i < n; i++) each[i] = v->a.data[i] != 0;
  return 0;
}

int key_number(loader *l, const char *rest, double lo, double hi, double *out) {
  if (gguf_f64(l->f, key(l, rest), out, l->err)) return -1;
  if (!(*out >= lo && *out <= hi)) return gguf_fail(l->f, l->key, l->err, "%g is not in %g..%g", *out, lo, hi);
  return 0;
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
  return *out >= lo && *out <= hi ? 0 : gguf_fail(l->f, name, l->err, "%g is not in %g..%g", *out, lo, hi);
}

enum { MANY_SIZES = 64 };
typedef struct size_key { const char *name; int64_t v; } size_key;

// Whole numbers of the file under the architecture's name.
static int find_sizes(const loader *l, size_key at[MANY_SIZES]) {
  size_t prefix = strlen(l->m->arch->name);
  int n = 0;
  for (size_t i = 0; i < gguf_n_kv(l->f) && n < MANY_SIZES; i++) {
    const gguf_kv *kv = gguf_kv_at(l->f, i);
    uint32_t v;
    if (strncmp(kv->key, l->m->arch->name, prefix) || kv->key[prefix] != '.' || kv->value.type == GGUF_ARRAY ||
        kv->value.type == GGUF_STRING)
      continue;
    if (!gguf_u32(l->f, kv->key, &v, NULL) && v > 1) at[n++] = (size_key){kv->key, v};
  }
  return n;
}

void keys_behind(const loader *l, int64_t size, str *out) {
  size_key at[MANY_SIZES];
  int n = find_sizes(l, at), found = 0;
  int64_t both;
  for (int i = 0; i < n; i++)
    if (at[i].v == size) str_addf(out, "%s%s = %lld", found++ ? ", " : "", at[i].name, (long long)size);
  for (int sum = 0; sum < 2; sum++)
    for (int i = 0; i < n; i++)
      for (int j = 0; j < i && !found; j++) {
        found = (sum ? add_i64(at[i].v, at[j].v, &both) : mul_i64(at[i].v, at[j].v, &both)) && both == size;
        if (found)
          str_addf(out, "%s = %lld, %s = %lld", at[j].name, (long long)at[j].v, at[i].name, (long long)at[i].v);
      }
}
