// Adapters (LoRA): what is added to products of a model's weights. An adapter's file has, for a weight {in, out} of the
// model, tensors NAME.lora_a {in, rank} and NAME.lora_b {rank, out}, and the product W x becomes W x + scale alpha /
// rank B (A x). Here they are held as floats, the factor in B; those of several adapters lie side by side, as one of
// all their ranks.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model/model_impl.h"
#include "model/stored.h"

enum { MAX_RANK = 1 << 14 };

// --- floats ----------------------------------------------------------------------------------------------------------

static float of_half(uint16_t h) {
  int e = h >> 10 & 31, m = h & 1023;
  double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
  return (float)(h >> 15 ? -v : v);
}

static float of_bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

static float float_at(const gguf_tensor *t, size_t i) {
  uint16_t h;
  float v;
  const unsigned char *data = t->data;
  switch (t->format->id) {
  case FORMAT_F32: memcpy(&v, data + 4 * i, sizeof v); return v;
  case FORMAT_F16: memcpy(&h, data + 2 * i, sizeof h); return of_half(h);
  case FORMAT_BF16: memcpy(&h, data + 2 * i, sizeof h); return of_bf16(h);
  default:                                                       // Q8_0: a half, and 32 codes
    data += i / 32 * 34;
    memcpy(&h, data, sizeof h);
    return of_half(h) * (float)(signed char)data[2 + i % 32];
  }
}

static bool is_readable(const gguf_tensor *t) {
  uint32_t id = t->format->id;
  return id == FORMAT_F32 || id == FORMAT_F16 || id == FORMAT_BF16 || id == FORMAT_Q8_0;
}

// --- a file ----------------------------------------------------------------------------------------------------------

static int must_be(const gguf *f, const char *key, const char *what, error *err) {
  gguf_string s;
  char text[64];
  if (gguf_str(f, key, &s, err)) return -1;
  if (s.n == strlen(what) && !memcmp(s.at, what, s.n)) return 0;
  return gguf_fail(f, key, err, "'%s', expected '%s'", gguf_quote(text, sizeof text, s.at, s.n), what);
}

static int check_pair(const gguf *f, const gguf_tensor *of, const gguf_tensor *a, const gguf_tensor *b, error *err) {
  const gguf_tensor *both[] = {a, b};
  for (int i = 0; i < 2; i++) {
    const gguf_tensor *t = both[i];
    if (!is_readable(t))
      return gguf_fail(f, NULL, err, "tensor '%s' has type %s; adapters are read in F32, F16, BF16 and Q8_0", t->name,
                       t->format->name);
    if (t->ne[2] != 1 || t->ne[3] != 1 || of->ne[2] != 1 || of->ne[3] != 1)
      return gguf_fail(
        f, NULL, err,
        "tensor '%s': it is no matrix, or '%s' of the model is none: adapters of experts are not supported", t->name,
        of->name);
  }
  int64_t rank = a->ne[1];
  if (rank > MAX_RANK)
    return gguf_fail(f, NULL, err, "tensor '%s' has rank %lld, at most %d is taken", a->name, (long long)rank,
                     MAX_RANK);
  if (a->ne[0] != of->ne[0])
    return gguf_fail(f, NULL, err, "tensor '%s' has %lld columns, and '%s' of the model has %lld", a->name,
                     (long long)a->ne[0], of->name, (long long)of->ne[0]);
  if (b->ne[1] != of->ne[1])
    return gguf_fail(f, NULL, err, "tensor '%s' has %lld rows, and '%s' of the model has %lld", b->name,
                     (long long)b->ne[1], of->name, (long long)of->ne[1]);
  if (b->ne[0] != rank)
    return gguf_fail(f, NULL, err, "tensor '%s' has rank %lld, and '%s' has %lld", b->name, (long long)b->ne[0],
                     a->name, (long long)rank);
  return 0;
}

static int add_pair(const gguf *f, adapted *to, const gguf_tensor *of, const gguf_tensor *a, const gguf_tensor *b,
                    double scale, double alpha, error *err) {
  if (check_pair(f, of, a, b, err)) return -1;
  size_t in = (size_t)of->ne[0], out = (size_t)of->ne[1], rank = (size_t)a->ne[1], before = (size_t)to->rank,
         all = before + rank;
  if (all > MAX_RANK)
    return gguf_fail(f, NULL, err, "tensor '%s': adapters have rank %zu together, at most %d is taken", a->name, all,
                     MAX_RANK);
  double by = alpha != 0 ? scale * alpha / (double)rank : scale;
  float *A = xmalloc((all * in + 64) * sizeof *A), *B = xmalloc((all * out + 64) * sizeof *B);
  if (before) memcpy(A, to->a, before * in * sizeof *A);
  for (size_t i = 0; i < rank * in; i++) A[before * in + i] = float_at(a, i);
  for (size_t row = 0; row < out; row++) {
    for (size_t k = 0; k < before; k++) B[row * all + k] = to->b[row * before + k];
    for (size_t k = 0; k < rank; k++) B[row * all + before + k] = (float)(by * float_at(b, row * rank + k));
  }
  free(to->a);
  free(to->b);
  *to = (adapted){.rank = (int)all, .a = A, .b = B};
  return 0;
}

static bool name_ends_with(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n > m && !strcmp(name + n - m, end);
}

static int add_tensors(model *m, const gguf *f, double scale, double alpha, error *err) {
  for (size_t i = 0; i < gguf_n_tensors(f); i++) {
    const gguf_tensor *a = gguf_tensor_at(f, i);
    bool is_a = name_ends_with(a->name, ".lora_a");
    char name[GGUF_MAX_NAME + 8];
    if (!is_a && !name_ends_with(a->name, ".lora_b"))
      return gguf_fail(f, NULL, err, "tensor '%s' is no part of an adapter: names end in .lora_a or .lora_b", a->name);
    int stem = (int)(strlen(a->name) - strlen(".lora_a"));
    snprintf(name, sizeof name, "%.*s%s", stem, a->name, is_a ? ".lora_b" : ".lora_a");
    const gguf_tensor *b = gguf_tensor_find(f, name);
    if (!b) return gguf_fail(f, NULL, err, "tensor '%s' is missing, which belongs to '%s'", name, a->name);
    if (!is_a) continue;
    snprintf(name, sizeof name, "%.*s", stem, a->name);
    const gguf_tensor *of = gguf_tensor_find(m->file, name);
    if (!of) return gguf_fail(f, NULL, err, "tensor '%s': the model has no '%s'", a->name, name);
    if (!strcmp(name, "token_embd.weight"))
      return gguf_fail(f, NULL, err, "tensor '%s': adapters of what tokens become are not supported", a->name);
    if (add_pair(f, &m->adapted[gguf_tensor_index(m->file, of)], of, a, b, scale, alpha, err)) return -1;
  }
  return gguf_n_tensors(f) ? 0 : gguf_fail(f, NULL, err, "an adapter without tensors");
}

static int add_adapter(model *m, const gguf *f, double scale, error *err) {
  float alpha;
  if (must_be(f, "general.type", "adapter", err) || must_be(f, "adapter.type", "lora", err) ||
      must_be(f, "general.architecture", m->arch->name, err) || gguf_f32_opt(f, "adapter.lora.alpha", 0, &alpha, err))
    return -1;
  if (!isfinite(alpha)) return gguf_fail(f, "adapter.lora.alpha", err, "%g is no number", (double)alpha);
  if (gguf_find(f, "adapter.alora.invocation_tokens"))
    return gguf_fail(f, "adapter.alora.invocation_tokens", err,
                     "adapters that begin in the middle of a text are not supported");
  return add_tensors(m, f, scale, alpha, err) || gguf_check_size(f, err) ? -1 : 0;
}

int model_adapt(model *m, const char *path, double scale, error *err) {
  gguf *f;
  if (gguf_open(path, &f, err)) return -1;
  if (!m->adapted) m->adapted = xcalloc(gguf_n_tensors(m->file), sizeof *m->adapted);
  int status = add_adapter(m, f, scale, err);
  gguf_close(f);
  return status;
}

void model_digest_adapters(const model *m, sha256 *s) {
  for (size_t i = 0; m->adapted && i < gguf_n_tensors(m->file); i++) {
    const adapted *x = &m->adapted[i];
    const gguf_tensor *t = gguf_tensor_at(m->file, i);
    if (!x->rank) continue;
    sha256_add(s, t->name, strlen(t->name) + 1);
    sha256_add(s, &x->rank, sizeof x->rank);
    sha256_add(s, x->a, (size_t)(x->rank * t->ne[0]) * sizeof *x->a);
    sha256_add(s, x->b, (size_t)(x->rank * t->ne[1]) * sizeof *x->b);
  }
}

void *model_adapter_data(const model *m, int64_t i) { return i % 2 ? m->adapted[i / 2].b : m->adapted[i / 2].a; }

void adapters_free(model *m) {
  for (size_t i = 0; m->adapted && i < gguf_n_tensors(m->file); i++) {
    free(m->adapted[i].a);
    free(m->adapted[i].b);
  }
  free(m->adapted);
}

// --- in the graph ----------------------------------------------------------------------------------------------------

tensor *adapt(const build *b, int weight, tensor *x, tensor *out) {
  graph *g = b->g;
  if (!b->m->adapted || !b->m->adapted[weight - 1].rank) return out;
  const gguf_tensor *t = gguf_tensor_at(b->m->file, (size_t)weight - 1);
  int64_t rank = b->m->adapted[weight - 1].rank,
          id = model_buffer_id(b->m->file, BUF_ADAPTER) + 2 * (int64_t)(weight - 1);
  tensor *A = t_reshape_i(g, t_buffer(g, id, DT_F32, rank * t->ne[0]), 2, (int64_t[]){rank, t->ne[0]});
  tensor *B = t_reshape_i(g, t_buffer(g, id + 1, DT_F32, rank * t->ne[1]), 2, (int64_t[]){t->ne[1], rank});
  b->m->adapted[weight - 1].used = true;
  return t_add(g, out, one_form(g, t_matmul(g, read_by_many(g, t_matmul(g, x, A)), B)));
}

// After a graph of all layers and the head was made.
int model_adapters_used(const model *m, error *err) {
  for (size_t i = 0; m->adapted && i < gguf_n_tensors(m->file); i++)
    if (m->adapted[i].rank && !m->adapted[i].used)
      return gguf_fail(m->file, NULL, err, "tensor '%s' is not one that an adapter can change here",
                       gguf_tensor_at(m->file, i)->name);
  return 0;
}
