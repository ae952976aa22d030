// Writes the heads of GGUF files: see gguf_write.h, and gguf_parse.c for the layout.
#include "model/gguf_write.h"
#include <stdlib.h>
#include <string.h>

typedef struct entry { char *key; str value; } entry;      // value: its type, then its bytes

struct gguf_head {
  uint32_t alignment;
  VEC(entry) keys;
  str tensors;
  uint64_t n_tensors, data;
};

gguf_head *gguf_head_new(uint32_t alignment) {
  gguf_head *h = xcalloc(1, sizeof *h);
  h->alignment = alignment;
  return h;
}

static void free_entry(entry *e) {
  free(e->key);
  str_free(&e->value);
}

void gguf_head_free(gguf_head *h) {
  if (!h) return;
  for (size_t i = 0; i < h->keys.n; i++) free_entry(&h->keys.at[i]);
  vec_free(&h->keys);
  str_free(&h->tensors);
  free(h);
}

// ---- numbers and texts as bytes -------------------------------------------------------------------------------------

static void add_u32(str *s, uint32_t v) { str_addn(s, &v, sizeof v); }
static void add_u64le(str *s, uint64_t v) { str_addn(s, &v, sizeof v); }
static void add_gguf_text(str *s, const char *text, size_t n) {
  add_u64le(s, n);
  str_addn(s, text, n);
}

static const uint8_t sizes[GGUF_TYPE_COUNT] = {
#define T(id, name, bytes) [id] = bytes,
  GGUF_TYPES(T)
#undef T
};

static void add_value(str *s, const gguf_value *v) {
  const struct gguf_array *a = &v->a;
  float f;
  add_u32(s, v->type);
  switch (v->type) {
  case GGUF_STRING: add_gguf_text(s, v->s.at, v->s.n); break;
  case GGUF_ARRAY:
    add_u32(s, v->elem);
    add_u64le(s, a->n);
    str_addn(s, a->data, a->start ? a->start[a->n] : a->n * sizes[v->elem]);
    break;
  case GGUF_BOOL: str_addc(s, v->b); break;
  case GGUF_FLOAT32: f = (float)v->f; str_addn(s, &f, sizeof f); break;
  default: str_addn(s, &v->u, sizes[v->type]);             // integers and doubles: the low bytes
  }
}

// ---- keys -----------------------------------------------------------------------------------------------------------

void gguf_head_remove(gguf_head *h, const char *key) {
  for (size_t i = 0; i < h->keys.n; i++) {
    if (strcmp(h->keys.at[i].key, key)) continue;
    free_entry(&h->keys.at[i]);
    memmove(h->keys.at + i, h->keys.at + i + 1, (--h->keys.n - i) * sizeof *h->keys.at);
    return;
  }
}

// Memory for the value of a key.
static str *new_value(gguf_head *h, const char *key) {
  gguf_head_remove(h, key);
  vec_push(&h->keys, ((entry){.key = xstrdup(key)}));
  return &h->keys.at[h->keys.n - 1].value;
}

static void set_value(gguf_head *h, const char *key, gguf_value v) { add_value(new_value(h, key), &v); }
void gguf_head_copy(gguf_head *h, const gguf_kv *kv) { set_value(h, kv->key, kv->value); }
void gguf_head_u16(gguf_head *h, const char *key, uint16_t v) {
  set_value(h, key, (gguf_value){.type = GGUF_UINT16, .u = v});
}
void gguf_head_u32(gguf_head *h, const char *key, uint32_t v) {
  set_value(h, key, (gguf_value){.type = GGUF_UINT32, .u = v});
}
void gguf_head_i32(gguf_head *h, const char *key, int32_t v) {
  set_value(h, key, (gguf_value){.type = GGUF_INT32, .i = v});
}
void gguf_head_f32(gguf_head *h, const char *key, float v) {
  set_value(h, key, (gguf_value){.type = GGUF_FLOAT32, .f = v});
}
void gguf_head_bool(gguf_head *h, const char *key, bool v) {
  set_value(h, key, (gguf_value){.type = GGUF_BOOL, .b = v});
}
void gguf_head_str(gguf_head *h, const char *key, const char *v, size_t n) {
  set_value(h, key, (gguf_value){.type = GGUF_STRING, .s = {v, n}});
}

void gguf_head_strs(gguf_head *h, const char *key, const char *const *v, size_t n) {
  str *s = new_value(h, key);
  add_u32(s, GGUF_ARRAY);
  add_u32(s, GGUF_STRING);
  add_u64le(s, n);
  for (size_t i = 0; i < n; i++) add_gguf_text(s, v[i], strlen(v[i]));
}

static void set_numbers(gguf_head *h, const char *key, enum gguf_type elem, const void *v, size_t n) {
  set_value(h, key, (gguf_value){.type = GGUF_ARRAY, .elem = elem, .a = {.n = n, .data = v}});
}
void gguf_head_i32s(gguf_head *h, const char *key, const int32_t *v, size_t n) {
  set_numbers(h, key, GGUF_INT32, v, n);
}
void gguf_head_u64s(gguf_head *h, const char *key, const uint64_t *v, size_t n) {
  set_numbers(h, key, GGUF_UINT64, v, n);
}
void gguf_head_u8s(gguf_head *h, const char *key, const unsigned char *v, size_t n) {
  set_numbers(h, key, GGUF_UINT8, v, n);
}
void gguf_head_f32s(gguf_head *h, const char *key, const float *v, size_t n) {
  set_numbers(h, key, GGUF_FLOAT32, v, n);
}
void gguf_head_bools(gguf_head *h, const char *key, const bool *v, size_t n) {
  set_numbers(h, key, GGUF_BOOL, v, n);
}

// ---- tensors --------------------------------------------------------------------------------------------------------

uint64_t gguf_head_padding(const gguf_head *h, uint64_t nbytes) {
  return (h->alignment - nbytes % h->alignment) % h->alignment;
}
uint64_t gguf_head_data(const gguf_head *h) { return h->data; }

int gguf_head_tensor(gguf_head *h, const char *name, uint32_t n_dims, const int64_t *ne, const struct format *f,
                     uint64_t *nbytes, error *err) {
  uint64_t bytes, end;
  bool fits = format_row_bytes(f, (uint64_t)ne[0], &bytes);
  for (uint32_t i = 1; i < n_dims && fits; i++) fits = mul_u64(bytes, (uint64_t)ne[i], &bytes);
  if (!fits || !add_u64(h->data, bytes, &end) || !add_u64(end, gguf_head_padding(h, bytes), &end))
    return error_set(err, "tensor '%s' cannot be %s", name, f->name);
  add_gguf_text(&h->tensors, name, strlen(name));
  add_u32(&h->tensors, n_dims);
  for (uint32_t i = 0; i < n_dims; i++) add_u64le(&h->tensors, (uint64_t)ne[i]);
  add_u32(&h->tensors, f->id);
  add_u64le(&h->tensors, h->data);
  h->data = end;
  h->n_tensors++;
  *nbytes = bytes;
  return 0;
}

void gguf_head_bytes(const gguf_head *h, str *out) {
  str_add(out, "GGUF");
  add_u32(out, 3);
  add_u64le(out, h->n_tensors);
  add_u64le(out, h->keys.n);
  for (size_t i = 0; i < h->keys.n; i++) {
    add_gguf_text(out, h->keys.at[i].key, strlen(h->keys.at[i].key));
    str_addn(out, h->keys.at[i].value.at, h->keys.at[i].value.n);
  }
  str_addn(out, h->tensors.at, h->tensors.n);
  for (uint64_t n = gguf_head_padding(h, out->n); n; n--) str_addc(out, 0);
}
