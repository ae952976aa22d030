// Changes to the head of a model file that know what a head is: keys with types and values, tensors with names,
// dimensions, types and offsets.  A head is taken apart, one or a few of its parts are changed, and it is written
// again; most results are still read as GGUF files, and what is wrong with them is for the checks behind the reader to
// find.  fuzz_model.c and tools/mutate_tool.c use it.
#ifndef WEFT_FUZZ_MODEL_CHANGE_H
#define WEFT_FUZZ_MODEL_CHANGE_H
#include <stdlib.h>
#include <string.h>
#include "model/format.h"
#include "model/gguf_impl.h"
#include "model/model_impl.h"

enum { HEAD_KEYS = 256, HEAD_TENSORS = 2048, HEAD_DIMS = 8, HEAD_SCRATCH = 1 << 20 };
typedef struct head_text {
  const unsigned char *at;
  uint64_t n;
} head_text;
typedef struct head_key {
  head_text name, value;
  uint32_t type;
} head_key;  // value: as it is in the file
typedef struct head_tensor {
  head_text name;
  uint32_t n_dims, type;
  uint64_t ne[HEAD_DIMS], offset;
} head_tensor;
typedef struct head {
  uint32_t version;
  size_t n_keys, n_tensors;
  head_key keys[HEAD_KEYS];
  head_tensor tensors[HEAD_TENSORS];
  unsigned char scratch[HEAD_SCRATCH];  // of new values and names
  size_t used;
  uint64_t random;
} head;

// ---- numbers and bytes ----------------------------------------------------------------------------------------------

static inline uint64_t head_draw(head *h, uint64_t below) {
  h->random = h->random * 6364136223846793005u + 1442695040888963407u;
  return (h->random >> 33) % below;
}

static inline uint64_t head_number(head *h) {
  static const uint64_t odd[] = {
    0,         1,          2,          3,          4,          7,          8,         16,         31,
    32,        33,         63,         64,         65,         127,        128,       255,        256,
    257,       512,        1024,       65535,      4096,       8192,       32768,     65536,      1u << 20,
    INT32_MAX, 1ull << 31, UINT32_MAX, 1ull << 32, 1ull << 40, 1ull << 62, INT64_MAX, 1ull << 63, UINT64_MAX};
  return odd[head_draw(h, COUNT(odd))];
}

// A number near another one, or any.
static inline uint64_t head_near(head *h, uint64_t n) {
  switch (head_draw(h, 8)) {
  case 0: return n * 2;
  case 1: return n / 2;
  case 2: return n + 1;
  case 3: return n - 1;
  case 4: return n + 32;
  case 5: return n - 32;
  case 6: return n * (1 + head_draw(h, 5));
  default: return head_number(h);
  }
}

static inline unsigned char *head_room(head *h, size_t n) {
  if (n > sizeof h->scratch - h->used) return NULL;
  h->used += n;
  return h->scratch + h->used - n;
}

static inline uint64_t head_load(const unsigned char *at, size_t n) {
  uint64_t v = 0;
  for (size_t i = 0; i < n; i++) v |= (uint64_t)at[i] << 8 * i;
  return v;
}

static inline void head_store(unsigned char *at, uint64_t v, size_t n) {
  for (size_t i = 0; i < n; i++) at[i] = (unsigned char)(v >> 8 * i);
}

// ---- reading and writing --------------------------------------------------------------------------------------------

typedef struct head_cursor {
  const unsigned char *at, *end;
  bool bad;
} head_cursor;

static inline const unsigned char *head_take(head_cursor *c, uint64_t n) {
  if (c->bad || n > (uint64_t)(c->end - c->at)) {
    c->bad = true;
    return NULL;
  }
  c->at += n;
  return c->at - n;
}

static inline uint64_t head_take_number(head_cursor *c, size_t n) {
  const unsigned char *at = head_take(c, n);
  return at ? head_load(at, n) : 0;
}

static inline head_text head_take_text(head_cursor *c) {
  uint64_t n = head_take_number(c, 8);
  const unsigned char *at = head_take(c, n);
  return (head_text){at, at ? n : 0};
}

static inline size_t head_size_of(uint32_t type) {  // 0: a string, an array, or unknown
  const struct gguf_type_info *info = gguf_type_info(type);
  return info && type != GGUF_STRING && type != GGUF_ARRAY ? info->bytes : 0;
}

static inline void head_skip_value(head_cursor *c, uint32_t type) {
  uint32_t elem = type == GGUF_ARRAY ? (uint32_t)head_take_number(c, 4) : type;
  uint64_t n = type == GGUF_ARRAY ? head_take_number(c, 8) : 1;
  size_t each = head_size_of(elem);
  if (each) {
    if (n > (uint64_t)(c->end - c->at) / each) c->bad = true;
    else head_take(c, n * each);
    return;
  }
  if (elem != GGUF_STRING) c->bad = true;
  for (uint64_t i = 0; i < n && !c->bad; i++) head_take_text(c);
}

// Takes apart what begins at data.  The bytes of it; 0: it is no head, or has too many parts.
static inline size_t head_read(head *h, const unsigned char *data, size_t n) {
  head_cursor c = {data, data + n, false};
  const unsigned char *magic = head_take(&c, 4);
  if (!magic || memcmp(magic, "GGUF", 4)) return 0;
  h->version = (uint32_t)head_take_number(&c, 4);
  uint64_t tensors = head_take_number(&c, 8), keys = head_take_number(&c, 8);
  if (keys > HEAD_KEYS || tensors > HEAD_TENSORS) return 0;
  h->used = 0;
  for (h->n_keys = 0; h->n_keys < keys && !c.bad; h->n_keys++) {
    head_key *k = &h->keys[h->n_keys];
    k->name = head_take_text(&c);
    k->type = (uint32_t)head_take_number(&c, 4);
    k->value.at = c.at;
    head_skip_value(&c, k->type);
    k->value.n = (uint64_t)(c.at - k->value.at);
  }
  for (h->n_tensors = 0; h->n_tensors < tensors && !c.bad; h->n_tensors++) {
    head_tensor *t = &h->tensors[h->n_tensors];
    t->name = head_take_text(&c);
    t->n_dims = (uint32_t)head_take_number(&c, 4);
    if (t->n_dims > HEAD_DIMS) return 0;
    for (uint32_t d = 0; d < HEAD_DIMS; d++) t->ne[d] = d < t->n_dims ? head_take_number(&c, 8) : 1;
    t->type = (uint32_t)head_take_number(&c, 4);
    t->offset = head_take_number(&c, 8);
  }
  return c.bad ? 0 : (size_t)(c.at - data);
}

typedef struct head_out {
  unsigned char *at;
  size_t n, cap;
} head_out;

static inline void head_put(head_out *o, const void *at, size_t n) {
  if (n > o->cap - o->n) {
    o->n = o->cap;
    return;
  }
  if (n) memcpy(o->at + o->n, at, n);
  o->n += n;
}

static inline void head_put_number(head_out *o, uint64_t v, size_t n) {
  unsigned char bytes[8];
  head_store(bytes, v, n);
  head_put(o, bytes, n);
}

static inline void head_put_text(head_out *o, head_text t) {
  head_put_number(o, t.n, 8);
  head_put(o, t.at, t.n);
}

// Its bytes, up to where data begins; 0: there is not so much room.
static inline size_t head_write(const head *h, unsigned char *out, size_t cap) {
  head_out o = {out, 0, cap};
  head_put(&o, "GGUF", 4);
  head_put_number(&o, h->version, 4);
  head_put_number(&o, h->n_tensors, 8);
  head_put_number(&o, h->n_keys, 8);
  for (size_t i = 0; i < h->n_keys; i++) {
    head_put_text(&o, h->keys[i].name);
    head_put_number(&o, h->keys[i].type, 4);
    head_put(&o, h->keys[i].value.at, h->keys[i].value.n);
  }
  for (size_t i = 0; i < h->n_tensors; i++) {
    const head_tensor *t = &h->tensors[i];
    head_put_text(&o, t->name);
    head_put_number(&o, t->n_dims, 4);
    for (uint32_t d = 0; d < t->n_dims; d++) head_put_number(&o, t->ne[d], 8);
    head_put_number(&o, t->type, 4);
    head_put_number(&o, t->offset, 8);
  }
  while (o.n % 32 && o.n < cap) o.at[o.n++] = 0;
  return o.n < cap ? o.n : 0;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

static inline void head_swap(uint64_t *ne, uint64_t a, uint64_t b) {
  uint64_t n = ne[a];
  ne[a] = ne[b], ne[b] = n;
}

// As many elements in other dimensions, or others.
static inline void head_change_dims(head *h, head_tensor *t) {
  uint64_t d = head_draw(h, t->n_dims ? t->n_dims : 1);
  switch (head_draw(h, 9)) {
  case 0: head_swap(t->ne, d, head_draw(h, t->n_dims ? t->n_dims : 1)); break;
  case 1: t->ne[d] = head_near(h, t->ne[d]); break;
  case 2:
    if (t->n_dims < 4) t->ne[t->n_dims++] = 1;
    break;
  case 3:
    if (t->n_dims > 1) t->n_dims--;
    break;
  case 4:  // a one put in
    if (t->n_dims >= 4) break;
    memmove(t->ne + d + 1, t->ne + d, (t->n_dims++ - d) * sizeof *t->ne);
    t->ne[d] = 1;
    break;
  case 5:  // split
    if (t->n_dims >= 4 || t->ne[d] % 2) break;
    memmove(t->ne + d + 1, t->ne + d, (t->n_dims++ - d) * sizeof *t->ne);
    t->ne[d] = 2, t->ne[d + 1] /= 2;
    break;
  case 6:  // joined
    if (t->n_dims < 2) break;
    t->ne[t->n_dims - 2] *= t->ne[t->n_dims - 1];
    t->n_dims--;
    break;
  case 7: {
    const head_tensor *o = &h->tensors[head_draw(h, h->n_tensors)];
    memcpy(t->ne, o->ne, sizeof t->ne);
    t->n_dims = o->n_dims;
    break;
  }
  default: t->n_dims = (uint32_t)head_draw(h, 6); break;
  }
}

static inline void head_remove_tensor(head *h, size_t i) {
  memmove(h->tensors + i, h->tensors + i + 1, (--h->n_tensors - i) * sizeof *h->tensors);
}

static inline void head_rename(head *h, head_text *name) {
  unsigned char *at = head_room(h, name->n + 1);
  if (!at || !name->n) return;
  memcpy(at, name->at, name->n);
  uint64_t i = head_draw(h, name->n);
  for (uint64_t k = 0; k < name->n && head_draw(h, 2); k++)
    if (at[k] >= '0' && at[k] <= '9') i = k;
  at[i] = (unsigned char)(at[i] >= '0' && at[i] <= '9' ? '0' + head_draw(h, 10) : ' ' + head_draw(h, 95));
  name->at = at;
}

static inline void head_change_tensor(head *h) {
  if (!h->n_tensors) return;
  size_t i = head_draw(h, h->n_tensors);
  head_tensor *t = &h->tensors[i], *o = &h->tensors[head_draw(h, h->n_tensors)];
  static const uint32_t types[] = {
#define F(id, name, block, bytes, head, rows, computes) id,
    FORMAT_TABLE(F)
#undef F
  };
  switch (head_draw(h, 12)) {
  case 0: t->type = types[head_draw(h, COUNT(types))]; break;
  case 1: t->type = (uint32_t)head_number(h); break;
  case 2: t->offset = head_draw(h, 2) ? o->offset : head_near(h, t->offset); break;
  case 3: {
    head_text name = t->name;
    t->name = o->name, o->name = name;
    break;
  }
  case 4: head_rename(h, &t->name); break;
  case 5: head_remove_tensor(h, i); break;
  case 6:
    if (h->n_tensors < HEAD_TENSORS) {
      h->tensors[h->n_tensors] = *t;
      head_rename(h, &h->tensors[h->n_tensors++].name);
    }
    break;
  default: head_change_dims(h, t); break;
  }
}

// Each at its place behind the one before, as the reader wants it; sizes that are beyond reason stay what they are.
static inline void head_lay_out(head *h) {
  uint64_t at = 0;
  for (size_t i = 0; i < h->n_tensors; i++) {
    head_tensor *t = &h->tensors[i];
    const struct format *f = format_by_id(t->type);
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) n = t->ne[d] < 1u << 24 ? n * t->ne[d] : 0;
    t->offset = at;
    if (f && n < 1u << 28) at += (n / f->block * f->bytes + 31) / 32 * 32;
  }
}

// ---- keys -----------------------------------------------------------------------------------------------------------

static inline bool head_is_number(const head_key *k) {
  return head_size_of(k->type) && k->type != GGUF_FLOAT32 && k->type != GGUF_FLOAT64;
}

static inline void head_set(head *h, head_key *k, uint32_t type, uint64_t v, size_t n) {
  unsigned char *at = head_room(h, 8);
  if (!at) return;
  head_store(at, v, 8);
  k->type = type;
  k->value = (head_text){at, n};
}

static inline void head_set_text(head *h, head_key *k, const char *text, size_t n) {
  unsigned char *at = head_room(h, 8 + n);
  if (!at) return;
  head_store(at, n, 8);
  memcpy(at + 8, text, n);
  k->type = GGUF_STRING;
  k->value = (head_text){at, 8 + n};
}

static inline uint64_t head_float(head *h, bool wide) {
  static const double odd[] = {0,      -0.0,  1,         -1,         0.5,       1e-45,  1e-6, 1e6,  1e30,
                               3.4e38, 1e300, 1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0, 1e-300, 2,    255.5};
  double d = odd[head_draw(h, COUNT(odd))];
  float f = (float)d;
  uint64_t v = 0;
  memcpy(&v, wide ? (void *)&d : (void *)&f, wide ? sizeof d : sizeof f);
  return v;
}

// A number as an array of as many as there may be layers, or an array's elements changed, doubled, cut.
static inline void head_change_array(head *h, head_key *k) {
  bool array = k->type == GGUF_ARRAY && k->value.n >= 12;
  uint32_t elem = array ? (uint32_t)head_load(k->value.at, 4) : k->type;
  size_t each = head_size_of(elem);
  if (!each) return;
  uint64_t n = array ? (k->value.n - 12) / each : 1 + head_draw(h, 6),
           to = head_draw(h, 3) && array ? n : head_near(h, n) % 600;
  unsigned char *at = head_room(h, 12 + to * each);
  if (!at) return;
  head_store(at, elem, 4);
  head_store(at + 4, to, 8);
  for (uint64_t i = 0; i < to; i++)
    memcpy(at + 12 + i * each, k->value.at + (array ? 12 + (n ? i % n : 0) * each : 0), array && !n ? 0 : each);
  for (uint64_t c = 1 + head_draw(h, 2); to && c; c--) {
    unsigned char *e = at + 12 + head_draw(h, to) * each;
    bool real = elem == GGUF_FLOAT32 || elem == GGUF_FLOAT64;
    head_store(e, real ? head_float(h, each == 8) : head_near(h, head_load(e, each)), each);
  }
  k->type = GGUF_ARRAY;
  k->value = (head_text){at, 12 + to * each};
}

static inline void head_change_value(head *h, head_key *k) {
  static const char *const texts[] = {
    "",         "none",    "linear", "yarn",    "longrope", "llama3",      "gpt2",           "llama",
    "bert",     "t5",      "rwkv",   "default", "qwen2",    "deepseek-v3", "{{ messages }}", "{% for x in y %}",
    "\xFF\xFE", "adapter", "model",  "%n%s",    "../../x",  "cls",         "mean",           "gelu",
    "silu"};
  size_t each = head_size_of(k->type);
  uint64_t old = each ? head_load(k->value.at, each) : 0;
  switch (head_draw(h, 8)) {
  case 0: head_set(h, k, GGUF_UINT64, old, 8); break;
  case 1: head_set(h, k, GGUF_FLOAT32, head_float(h, false), 4); break;
  case 2: head_change_array(h, k); break;
  case 3: {
    const char *s = texts[head_draw(h, COUNT(texts))];
    head_set_text(h, k, s, strlen(s));
    break;
  }
  default:
    if (k->type == GGUF_ARRAY) head_change_array(h, k);
    else if (k->type == GGUF_STRING) {
      const char *s = texts[head_draw(h, COUNT(texts))];
      head_set_text(h, k, s, strlen(s));
    } else if (head_is_number(k)) head_set(h, k, k->type, head_near(h, old), each);
    else if (each) head_set(h, k, k->type, head_float(h, each == 8), each);
    break;
  }
}

static inline void head_change_key(head *h) {
  if (!h->n_keys) return;
  size_t i = head_draw(h, h->n_keys);
  head_key *k = &h->keys[i], *o = &h->keys[head_draw(h, h->n_keys)];
  switch (head_draw(h, 10)) {
  case 0: memmove(k, k + 1, (--h->n_keys - i) * sizeof *k); break;
  case 1:
    if (h->n_keys < HEAD_KEYS) {
      h->keys[h->n_keys] = *k;
      head_rename(h, &h->keys[h->n_keys++].name);
    }
    break;
  case 2: k->type = o->type, k->value = o->value; break;
  case 3: {
    head_text name = k->name;
    k->name = o->name, o->name = name;
    break;
  }
  default: head_change_value(h, k); break;
  }
}

// ---- several at once ------------------------------------------------------------------------------------------------

// A size of the model, everywhere: in dimensions of tensors and in keys, so that they still fit.
static inline void head_change_size(head *h) {
  if (!h->n_tensors) return;
  const head_tensor *t = &h->tensors[head_draw(h, h->n_tensors)];
  uint64_t from = t->ne[head_draw(h, t->n_dims ? t->n_dims : 1)], to = head_near(h, from);
  bool keys = head_draw(h, 4), rows = head_draw(h, 2);
  for (size_t i = 0; i < h->n_tensors; i++)
    for (uint32_t d = rows; d < h->tensors[i].n_dims; d++)
      if (h->tensors[i].ne[d] == from) h->tensors[i].ne[d] = to;
  for (size_t i = 0; i < h->n_keys && keys; i++) {
    head_key *k = &h->keys[i];
    size_t each = head_size_of(k->type);
    if (head_is_number(k) && head_load(k->value.at, each) == from) head_set(h, k, k->type, to, each);
  }
}

// Another architecture's name, and the keys under it.
static inline void head_change_arch(head *h) {
  size_t n = 0;
  while (arch_at(n)) n++;
  const char *to = arch_at(head_draw(h, n))->name;
  size_t n_to = strlen(to), n_from = 0;
  const unsigned char *from = NULL;
  for (size_t i = 0; i < h->n_keys; i++)
    if (h->keys[i].name.n == 20 && !memcmp(h->keys[i].name.at, "general.architecture", 20) &&
        h->keys[i].type == GGUF_STRING && h->keys[i].value.n > 8) {
      from = h->keys[i].value.at + 8, n_from = h->keys[i].value.n - 8;
      head_set_text(h, &h->keys[i], to, n_to);
    }
  for (size_t i = 0; i < h->n_keys && from; i++) {
    head_text *name = &h->keys[i].name;
    if (name->n <= n_from || memcmp(name->at, from, n_from) || name->at[n_from] != '.') continue;
    unsigned char *at = head_room(h, n_to + name->n - n_from);
    if (!at) return;
    memcpy(at, to, n_to);
    memcpy(at + n_to, name->at + n_from, name->n - n_from);
    *name = (head_text){at, n_to + name->n - n_from};
  }
}

static inline void head_change(head *h, uint64_t seed) {
  h->random = (seed + 1) * 0x9E3779B97F4A7C15u;
  for (uint64_t i = 1 + head_draw(h, 3); i; i--) {
    uint64_t what = head_draw(h, 16);
    if (what < 6) head_change_tensor(h);
    else if (what < 12) head_change_key(h);
    else if (what < 15) head_change_size(h);
    else if (!head_draw(h, 4)) head_change_arch(h);
    else h->version = head_draw(h, 4) ? 3 : (uint32_t)head_number(h);
  }
  if (head_draw(h, 8)) head_lay_out(h);
}
#endif
