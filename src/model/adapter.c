// Adapters (LoRA): low-rank additions to products with the model's weights. For a weight {in, out} of the model the
// adapter file has the tensors NAME.lora_a {in, rank} and NAME.lora_b {rank, out}. The product W x becomes W x + B
// (scale A x), where scale belongs to the token and the adapter (BUF_SCALES). For token_embd {embd, vocab}, lora_a is
// {rank, vocab}: a token's row of it takes the place of A x. For expert weights {in, out, n} both tensors have n
// matrices, one per expert. The matrices are held here as floats, with alpha / rank multiplied into B. An adapter with
// activation tokens (aLoRA) has a scale of 0 before their last occurrence in a prompt (engine/caches.c).
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model/model_impl.h"
#include "model/stored.h"

enum { MAX_RANK = 1 << 14 };
static const float MOST = 1e18f;             // largest value: A x is finite, so that tokens with a scale of 0 add 0

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

static bool is_small_all(const float *at, size_t n) {
  bool all = true;
  for (size_t i = 0; i < n; i++) all &= fabsf(at[i]) <= MOST;
  return all;
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

static bool is_looked_up(const gguf_tensor *of) { return !strcmp(of->name, "token_embd.weight"); }
static int64_t rank_of(const gguf_tensor *of, const gguf_tensor *a) { return a->ne[!is_looked_up(of)]; }

static int check_pair(const gguf *f, const gguf_tensor *of, const gguf_tensor *a, const gguf_tensor *b, error *err) {
  const gguf_tensor *both[] = {a, b};
  for (int i = 0; i < 2; i++) {
    const gguf_tensor *t = both[i];
    if (!is_readable(t))
      return gguf_fail(f, NULL, err, "tensor '%s' has type %s; adapters are read in F32, F16, BF16 and Q8_0", t->name,
                       t->format->name);
    if (t->ne[2] != of->ne[2] || t->ne[3] != 1 || of->ne[3] != 1)
      return gguf_fail(f, NULL, err, "tensor '%s' has %lld matrices, and '%s' of the model has %lld", t->name,
                       (long long)(t->ne[2] * t->ne[3]), of->name, (long long)(of->ne[2] * of->ne[3]));
  }
  int64_t rank = rank_of(of, a);
  // then A has one row per row of the weight, and the output has the weight's columns
  int looked_up = is_looked_up(of);
  if (rank > MAX_RANK)
    return gguf_fail(f, NULL, err, "tensor '%s' has rank %lld, at most %d is taken", a->name, (long long)rank,
                     MAX_RANK);
  if (a->ne[looked_up] != of->ne[looked_up])
    return gguf_fail(f, NULL, err, "tensor '%s' has %lld %s, and '%s' of the model has %lld", a->name,
                     (long long)a->ne[looked_up], looked_up ? "rows" : "columns", of->name,
                     (long long)of->ne[looked_up]);
  if (b->ne[1] != of->ne[!looked_up])
    return gguf_fail(f, NULL, err, "tensor '%s' has %lld rows, and '%s' of the model has %lld %s", b->name,
                     (long long)b->ne[1], of->name, (long long)of->ne[!looked_up], looked_up ? "columns" : "rows");
  if (b->ne[0] != rank)
    return gguf_fail(f, NULL, err, "tensor '%s' has rank %lld, and '%s' has %lld", b->name, (long long)b->ne[0],
                     a->name, (long long)rank);
  return 0;
}

static int add_pair(const gguf *f, adapted *to, const gguf_tensor *of, const gguf_tensor *a, const gguf_tensor *b,
                    double alpha, error *err) {
  if (check_pair(f, of, a, b, err)) return -1;
  size_t rank = (size_t)rank_of(of, a), n_a = (size_t)(a->ne[0] * a->ne[1] * a->ne[2]),
         n_b = (size_t)(b->ne[0] * b->ne[1] * b->ne[2]);
  double by = alpha != 0 ? alpha / (double)rank : 1;
  float *A = xmalloc((n_a + 64) * sizeof *A), *B = xmalloc((n_b + 64) * sizeof *B);
  for (size_t i = 0; i < n_a; i++) A[i] = float_at(a, i);
  for (size_t i = 0; i < n_b; i++) B[i] = (float)(by * float_at(b, i));
  const gguf_tensor *wrong = !is_small_all(A, n_a) ? a : !is_small_all(B, n_b) ? b : NULL;
  if (wrong) {
    free(A);
    free(B);
    return gguf_fail(f, NULL, err, "tensor '%s' has a value that is no number up to %g", wrong->name, (double)MOST);
  }
  *to = (adapted){.rank = (int)rank, .a = A, .b = B, .n_a = (int64_t)n_a, .n_b = (int64_t)n_b,
                  .matrices = of->ne[2]};
  return 0;
}

static bool name_ends_with(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n > m && !strcmp(name + n - m, end);
}

// to: one entry per tensor of the model
static int add_tensors(const model *m, const gguf *f, adapted *to, double alpha, error *err) {
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
    if (add_pair(f, &to[gguf_tensor_index(m->file, of)], of, a, b, alpha, err)) return -1;
  }
  return gguf_n_tensors(f) ? 0 : gguf_fail(f, NULL, err, "an adapter without tensors");
}

// Reads the activation tokens of an adapter that counts from their last occurrence on (aLoRA).
static int read_invocation(const model *m, const gguf *f, struct invocation *to, error *err) {
  static const char name[] = "adapter.alora.invocation_tokens";
  enum { CALL_MOST = 4096 };
  const gguf_value *v = gguf_find(f, name);
  if (!v) return 0;
  if (v->type != GGUF_ARRAY || (v->elem != GGUF_UINT32 && v->elem != GGUF_INT32) || !v->a.n || v->a.n > CALL_MOST)
    return gguf_fail(f, name, err, "is not a list of 1 to %d tokens", CALL_MOST);
  to->ids = xcalloc(v->a.n, sizeof *to->ids);
  to->n = v->a.n;
  for (size_t i = 0; i < to->n; i++) {
    gguf_value e = gguf_elem(v, i);
    int64_t id = v->elem == GGUF_INT32 ? e.i : (int64_t)e.u;
    if (id < 0 || id >= m->n_vocab) return gguf_fail(f, name, err, "element %zu is no token of the model", i);
    to->ids[i] = (int32_t)id;
  }
  return 0;
}

static int add_adapter(const model *m, const gguf *f, adapted *to, error *err) {
  float alpha;
  if (must_be(f, "general.type", "adapter", err) || must_be(f, "adapter.type", "lora", err) ||
      must_be(f, "general.architecture", m->arch->name, err) || gguf_f32_opt(f, "adapter.lora.alpha", 0, &alpha, err))
    return -1;
  if (!isfinite(alpha)) return gguf_fail(f, "adapter.lora.alpha", err, "%g is no number", (double)alpha);
  if (read_invocation(m, f, &m->invocations[m->n_adapters - 1], err)) return -1;
  return add_tensors(m, f, to, alpha, err) || gguf_check_size(f, err) ? -1 : 0;
}

int model_adapt(model *m, const char *path, double scale, error *err) {
  gguf *f;
  size_t n = gguf_n_tensors(m->file), k = (size_t)m->n_adapters;
  if (m->n_encoder) return error_set(err, "%s: a model with an encoder and a decoder takes no adapters yet", path);
  if (gguf_open(path, &f, err)) return -1;
  m->adapted = xrealloc(m->adapted, (k + 1) * n * sizeof *m->adapted);
  m->adapter_scales = xrealloc(m->adapter_scales, (k + 1) * sizeof *m->adapter_scales);
  memset(m->adapted + k * n, 0, n * sizeof *m->adapted);
  m->adapter_scales[k] = (float)scale;
  m->invocations = xrealloc(m->invocations, (k + 1) * sizeof *m->invocations);
  m->invocations[k] = (struct invocation){0};
  m->n_adapters++;
  int status = add_adapter(m, f, m->adapted + k * n, err);
  gguf_close(f);
  return status;
}

int model_n_adapters(const model *m) { return m->n_adapters; }
const float *model_adapter_scales(const model *m) { return m->adapter_scales; }
const int32_t *model_invocation(const model *m, int k, size_t *n) {
  *n = m->invocations[k].n;
  return m->invocations[k].ids;
}
static size_t n_adapted(const model *m) { return (size_t)m->n_adapters * gguf_n_tensors(m->file); }

void model_digest_adapters(const model *m, sha256 *s) {
  size_t n = gguf_n_tensors(m->file);
  for (int k = 0; k < m->n_adapters; k++) {
    sha256_add(s, &m->invocations[k].n, sizeof m->invocations[k].n);
    sha256_add(s, m->invocations[k].ids, m->invocations[k].n * sizeof *m->invocations[k].ids);
  }
  for (size_t i = 0; i < n_adapted(m); i++) {
    const adapted *x = &m->adapted[i];
    const gguf_tensor *t = gguf_tensor_at(m->file, i % n);
    if (!x->rank) continue;
    sha256_add(s, t->name, strlen(t->name) + 1);
    sha256_add(s, &m->adapter_scales[i / n], sizeof *m->adapter_scales);
    sha256_add(s, &x->rank, sizeof x->rank);
    sha256_add(s, x->a, (size_t)x->n_a * sizeof *x->a);
    sha256_add(s, x->b, (size_t)x->n_b * sizeof *x->b);
  }
}

void *model_adapter_data(const model *m, int64_t i) { return i % 2 ? m->adapted[i / 2].b : m->adapted[i / 2].a; }

void adapters_free(model *m) {
  for (size_t i = 0; i < n_adapted(m); i++) {
    free(m->adapted[i].a);
    free(m->adapted[i].b);
  }
  free(m->adapted);
  for (int k = 0; k < m->n_adapters; k++) free(m->invocations[k].ids);
  free(m->invocations);
  free(m->adapter_scales);
}

// --- in the graph ----------------------------------------------------------------------------------------------------

// {T, 1, ...}: each token's factor for adapter k, as a tensor of n dimensions, tokens first
static tensor *scale_of(const build *b, int k, int n) {
  uop *dims[8] = {b->scales->shape->dim[0]};
  for (int i = 1; i < n; i++) dims[i] = uop_idx(b->g, 1);
  return t_reshape(b->g, t_slice_i(b->g, b->scales, 1, k, 1), n, dims);
}

// One of the two matrices of adapter k, with this number of columns.
static tensor *matrix_of(const build *b, int64_t at, bool is_b, int64_t columns) {
  const adapted *of = &b->m->adapted[at];
  int64_t n = is_b ? of->n_b : of->n_a, id = model_buffer_id(b->m->file, BUF_ADAPTER) + 2 * at + is_b;
  return t_reshape_i(b->g, t_buffer(b->g, id, DT_F32, n), 2, (int64_t[]){n / columns, columns});
}

// ids: the tokens whose rows were looked up, with x NULL; or x: the input of the product, tokens first
static tensor *add_adapter_to(const build *b, int64_t at, tensor *x, tensor *ids, tensor *out) {
  graph *g = b->g;
  adapted *of = &b->m->adapted[at];
  int64_t n = (int64_t)gguf_n_tensors(b->m->file);
  tensor *low = ids ? t_gather(g, matrix_of(b, at, false, of->rank), ids)
                    : t_matmul(g, x, matrix_of(b, at, false, of->n_a / of->rank));
  low = t_mul(g, low, scale_of(b, (int)(at / n), low->shape->n));
  of->used = true;
  return t_add(g, out, one_form(g, t_matmul(g, read_by_many(g, low), matrix_of(b, at, true, of->rank))));
}

static tensor *add_adapters(const build *b, int weight, tensor *x, tensor *ids, tensor *out) {
  int64_t n = (int64_t)gguf_n_tensors(b->m->file);
  bool looked_up = is_looked_up(gguf_tensor_at(b->m->file, (size_t)weight - 1));
  for (int64_t at = weight - 1; b->scales && at < (int64_t)n_adapted(b->m); at += n)
    if (b->m->adapted[at].rank && looked_up == !!ids) out = add_adapter_to(b, at, x, ids, out);
  return out;
}

tensor *adapt(const build *b, int weight, tensor *x, tensor *out) { return add_adapters(b, weight, x, NULL, out); }

// Matrix A or B of the chosen experts: {which.., 1, rows, columns}
static tensor *expert_matrices(const build *b, int64_t at, bool is_b, int64_t columns, const choice *c) {
  graph *g = b->g;
  const adapted *of = &b->m->adapted[at];
  int64_t n = is_b ? of->n_b : of->n_a, rows = n / of->matrices / columns;
  tensor *all = t_buffer(g, model_buffer_id(b->m->file, BUF_ADAPTER) + 2 * at + is_b, DT_F32, n),
         *some = t_gather(g, t_reshape_i(g, all, 3, (int64_t[]){of->matrices, rows, columns}), c->which);
  uop *each = c->which->shape->n == 1 ? uop_idx(g, 1) : c->b;
  return t_reshape(g, some, DIMS(c->a, each, uop_idx(g, rows), uop_idx(g, columns)));
}

// {A, 1 or B, 1}: each row's factor for adapter k
static tensor *scale_of_rows(const build *b, int k, const choice *c) {
  tensor *all = scale_of(b, k, 1);
  uop *one = uop_idx(b->g, 1);
  if (!c->token) return t_reshape(b->g, all, DIMS(c->a, one, one));
  return t_reshape(b->g, t_gather(b->g, all, c->token), DIMS(c->a, c->b, one));
}

static tensor *add_to_experts(const build *b, int64_t at, const choice *c, tensor *x, tensor *out) {
  graph *g = b->g;
  adapted *of = &b->m->adapted[at];
  int64_t in = of->n_a / of->matrices / of->rank, rows = of->n_b / of->matrices / of->rank;
  uop *one = uop_idx(g, 1), *rank = uop_idx(g, of->rank);
  tensor *low = t_reduce(g, t_mul(g, x, expert_matrices(b, at, false, in, c)), OP_ADD, 3);
  low = t_mul(g, t_reshape(g, low, DIMS(c->a, c->b, rank)),
              scale_of_rows(b, (int)(at / (int64_t)gguf_n_tensors(b->m->file)), c));
  low = t_reshape(g, read_by_many(g, low), DIMS(c->a, c->b, one, rank));
  of->used = true;
  tensor *more = t_reduce(g, t_mul(g, low, expert_matrices(b, at, true, of->rank, c)), OP_ADD, 3);
  return t_add(g, out, one_form(g, t_reshape(g, more, DIMS(c->a, c->b, uop_idx(g, rows)))));
}

tensor *adapt_experts(const build *b, int weight, const choice *c, tensor *x, tensor *out) {
  int64_t n = (int64_t)gguf_n_tensors(b->m->file);
  for (int64_t at = weight - 1; b->scales && at < (int64_t)n_adapted(b->m); at += n)
    if (b->m->adapted[at].rank) out = add_to_experts(b, at, c, x, out);
  return out;
}

tensor *adapt_rows(const build *b, int weight, tensor *ids, tensor *out) {
  return add_adapters(b, weight, NULL, ids, out);
}

// Called after a graph of all layers and the head has been built.
int model_adapters_used(const model *m, error *err) {
  for (size_t i = 0; i < n_adapted(m); i++)
    if (m->adapted[i].rank && !m->adapted[i].used)
      return gguf_fail(m->file, NULL, err, "tensor '%s' is not one that an adapter can change here",
                       gguf_tensor_at(m->file, i % gguf_n_tensors(m->file))->name);
  return 0;
}
