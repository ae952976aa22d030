// From a validated GGUF file to a checked model description: see model.h. Every number that later sizes a tensor or a loop is
// looked at here, once; what passes is consistent.
#include "model/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct loader { const gguf *f; model *m; error *err; char key[160]; } loader;

static const char *key(loader *l, const char *rest) {
  snprintf(l->key, sizeof l->key, "%s.%s", l->m->arch->name, rest);
  return l->key;
}

// A required count within limits.
static int count(loader *l, const char *rest, uint32_t lo, uint32_t hi, int *out) {
  uint32_t v;
  if (gguf_u32(l->f, key(l, rest), &v, l->err)) return -1;
  if (v < lo || v > hi) return gguf_fail(l->f, l->key, l->err, "%u is not in %u..%u", v, lo, hi);
  *out = (int)v;
  return 0;
}

static int count_or(loader *l, const char *rest, uint32_t fallback, uint32_t lo, uint32_t hi, int *out) {
  if (gguf_find(l->f, key(l, rest))) return count(l, rest, lo, hi, out);
  *out = (int)fallback;
  return 0;
}

// The same number for every layer (files may give an array of it).
static int count_all(loader *l, const char *rest, uint32_t lo, uint32_t hi, int *out) {
  uint32_t each[MODEL_MAX_LAYERS];
  if (gguf_u32_each(l->f, key(l, rest), (size_t)l->m->n_layer, each, l->err)) return -1;
  for (int i = 0; i < l->m->n_layer; i++) {
    if (each[i] < lo || each[i] > hi) return gguf_fail(l->f, l->key, l->err, "%u is not in %u..%u", each[i], lo, hi);
    if (each[i] != each[0]) return gguf_fail(l->f, l->key, l->err, "differs between layers (%u in layer 0, %u in layer %d), which %s does not support", each[0], each[i], i, l->m->arch->name);
  }
  *out = (int)each[0];
  return 0;
}

static int number(loader *l, const char *rest, double lo, double hi, double *out) {
  if (gguf_f64(l->f, key(l, rest), out, l->err)) return -1;
  if (!(*out >= lo && *out <= hi)) return gguf_fail(l->f, l->key, l->err, "%g is not in %g..%g", *out, lo, hi);
  return 0;
}

static int rope(loader *l) {
  model *m = l->m;
  if (count_or(l, "rope.dimension_count", (uint32_t)m->head_dim, 2, (uint32_t)m->head_dim, &m->rope_dim)) return -1;
  if (m->rope_dim % 2) return gguf_fail(l->f, key(l, "rope.dimension_count"), l->err, "%d is odd", m->rope_dim);
  m->rope_base = 10000;
  if (gguf_find(l->f, key(l, "rope.freq_base")) && number(l, "rope.freq_base", 1e-3, 1e12, &m->rope_base)) return -1;
  gguf_string type;
  if (gguf_str_opt(l->f, key(l, "rope.scaling.type"), "none", &type, l->err)) return -1;
  m->rope_scale = 1;
  if (type.n == 6 && !memcmp(type.at, "linear", 6)) return number(l, "rope.scaling.factor", 1e-3, 1e6, &m->rope_scale);
  if (type.n == 4 && !memcmp(type.at, "none", 4)) return 0;
  char text[64];
  return gguf_fail(l->f, l->key, l->err, "'%s' is not supported yet (known: none, linear)", gguf_quote(text, sizeof text, type.at, type.n));
}

static int hyper_parameters(loader *l) {
  model *m = l->m;
  if (count(l, "block_count", 1, MODEL_MAX_LAYERS, &m->n_layer) || count(l, "embedding_length", 1, 1 << 20, &m->n_embd) ||
      count_all(l, "attention.head_count", 1, 1 << 14, &m->n_head) || count_all(l, "feed_forward_length", 1, 1 << 24, &m->n_ff)) return -1;
  m->n_kv = m->n_head;
  if (gguf_find(l->f, key(l, "attention.head_count_kv")) && count_all(l, "attention.head_count_kv", 1, 1 << 14, &m->n_kv)) return -1;
  if (m->n_kv > m->n_head || m->n_head % m->n_kv)
    return gguf_fail(l->f, key(l, "attention.head_count_kv"), l->err, "%d does not divide attention.head_count = %d", m->n_kv, m->n_head);
  if (!gguf_find(l->f, key(l, "attention.key_length")) && m->n_embd % m->n_head)
    return gguf_fail(l->f, key(l, "attention.head_count"), l->err, "%d does not divide embedding_length = %d", m->n_head, m->n_embd);
  int value;
  if (count_or(l, "attention.key_length", (uint32_t)(m->n_embd / m->n_head), 2, 1 << 14, &m->head_dim) ||
      count_or(l, "attention.value_length", (uint32_t)m->head_dim, 1, 1 << 14, &value)) return -1;
  if (value != m->head_dim) return gguf_fail(l->f, l->key, l->err, "%d differs from attention.key_length = %d, which %s does not support", value, m->head_dim, m->arch->name);
  if (m->head_dim % 2) return gguf_fail(l->f, key(l, "attention.key_length"), l->err, "%d is odd", m->head_dim);
  if (count_or(l, "context_length", 2048, 1, 1u << 30, &m->n_ctx_train)) return -1;
  if (number(l, "attention.layer_norm_rms_epsilon", 1e-12, 1, &m->eps)) return -1;
  return rope(l);
}

// The tensor of this name must be there (unless optional), with this shape and a type that has an expression.
static int check(loader *l, const char *name, int64_t ne0, int64_t ne1, bool optional) {
  const gguf_tensor *t = gguf_tensor_find(l->f, name);
  if (!t) return optional ? 0 : gguf_fail(l->f, NULL, l->err, "tensor '%s' is missing", name);
  if (t->ne[0] != ne0 || t->ne[1] != ne1 || t->ne[2] != 1 || t->ne[3] != 1)
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' has shape {%lld, %lld, %lld, %lld}, expected {%lld, %lld}", name, (long long)t->ne[0],
                     (long long)t->ne[1], (long long)t->ne[2], (long long)t->ne[3], (long long)ne0, (long long)ne1);
  if (!t->format->computes) return gguf_fail(l->f, NULL, l->err, "tensor '%s' has type %s, which cannot be computed with yet", name, t->format->name);
  return 0;
}

// The tensors of a matrix product, <name>.weight and what may go with it: a bias, and a factor of the whole (files with NVFP4 have those).
static int check_linear(loader *l, const char *name, int64_t ne0, int64_t ne1, bool optional, bool bias_too) {
  char full[96];
  snprintf(full, sizeof full, "%s.weight", name);
  if (check(l, full, ne0, ne1, optional)) return -1;
  snprintf(full, sizeof full, "%s.bias", name);
  if (check(l, full, ne1, 1, !bias_too)) return -1;
  snprintf(full, sizeof full, "%s.scale", name);
  return check(l, full, 1, 1, true);
}

static int check_vocabulary(loader *l) {
  model *m = l->m;
  const gguf_tensor *e = gguf_tensor_find(l->f, "token_embd.weight");
  if (!e) return gguf_fail(l->f, NULL, l->err, "tensor 'token_embd.weight' is missing");
  if (e->ne[1] > INT32_MAX) return gguf_fail(l->f, NULL, l->err, "tensor 'token_embd.weight' has %lld rows", (long long)e->ne[1]);
  m->n_vocab = (int)e->ne[1];
  const gguf_value *tokens = gguf_find(l->f, "tokenizer.ggml.tokens");
  if (tokens && tokens->type == GGUF_ARRAY && tokens->a.n != (size_t)m->n_vocab)
    return gguf_fail(l->f, "tokenizer.ggml.tokens", l->err, "%zu tokens, but tensor 'token_embd.weight' has %d rows", tokens->a.n, m->n_vocab);
  m->tied = !gguf_tensor_find(l->f, "output.weight");
  return check_linear(l, "token_embd", m->n_embd, m->n_vocab, false, false) || check_linear(l, "output", m->n_embd, m->n_vocab, true, false) ||
         check(l, "output_norm.weight", m->n_embd, 1, false) || check(l, "rope_freqs.weight", m->rope_dim / 2, 1, true) ? -1 : 0;
}

static int check_layer(loader *l, int i) {
  model *m = l->m;
  int64_t q = (int64_t)m->n_head * m->head_dim, kv = (int64_t)m->n_kv * m->head_dim, d = m->n_embd;
  unsigned f = m->arch->flags;
  const struct { const char *name; int64_t ne0, ne1; bool bias; } products[] = {
    {"attn_q", d, q, f & ARCH_QKV_BIAS}, {"attn_k", d, kv, f & ARCH_QKV_BIAS}, {"attn_v", d, kv, f & ARCH_QKV_BIAS}, {"attn_output", q, d, false},
    {"ffn_gate", d, m->n_ff, false}, {"ffn_up", d, m->n_ff, false}, {"ffn_down", m->n_ff, d, false},
  };
  const struct { const char *name; int64_t n; bool optional; } vectors[] = {
    {"attn_norm.weight", d, false}, {"ffn_norm.weight", d, false},
    {"attn_q_norm.weight", m->head_dim, !(f & ARCH_QK_NORM)}, {"attn_k_norm.weight", m->head_dim, !(f & ARCH_QK_NORM)},
  };
  char name[64];
  for (size_t j = 0; j < COUNT(products); j++) {
    snprintf(name, sizeof name, "blk.%d.%s", i, products[j].name);
    if (check_linear(l, name, products[j].ne0, products[j].ne1, false, products[j].bias)) return -1;
  }
  for (size_t j = 0; j < COUNT(vectors); j++) {
    snprintf(name, sizeof name, "blk.%d.%s", i, vectors[j].name);
    if (check(l, name, vectors[j].n, 1, vectors[j].optional)) return -1;
  }
  return 0;
}

static int load(loader *l) {
  gguf_string a;
  char text[96];
  if (gguf_str(l->f, "general.architecture", &a, l->err)) return -1;
  l->m->arch = arch_find(a.at, a.n);
  if (!l->m->arch) {
    str known = {0};
    for (size_t i = 0; arch_at(i); i++) str_addf(&known, "%s%s", i ? ", " : "", arch_at(i)->name);
    gguf_fail(l->f, "general.architecture", l->err, "'%s' is not known (known: %s)", gguf_quote(text, sizeof text, a.at, a.n), str_c(&known));
    str_free(&known);
    return -1;
  }
  if (hyper_parameters(l) || check_vocabulary(l)) return -1;
  for (int i = 0; i < l->m->n_layer; i++) if (check_layer(l, i)) return -1;
  return 0;
}

int model_open(const gguf *file, model **out, error *err) {
  model *m = xcalloc(1, sizeof *m);
  m->file = file;
  loader l = {.f = file, .m = m, .err = err};
  if (load(&l)) { free(m); return -1; }
  *out = m;
  return 0;
}

void model_close(model *m) { free(m); }
int64_t model_kv_elements(const model *m, int64_t ctx) { return ctx * m->n_kv * m->head_dim; }
