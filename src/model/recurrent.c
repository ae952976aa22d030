// Recurrences of which a state of fixed size is all that is left of the past, and the state's memory.
//
// A run takes its tokens at once: token t sees the state as it was, faded by the decays up to t, and each token s <= t of the run, faded by the
// decays between them. Decays are sums of logarithms, so that nothing is divided; what is added to the state is faded the same way.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/model_impl.h"

tensor *state_rows(build *b, const layer *y, int i, int n, const int64_t *dims) {
  graph *g = b->g;
  return t_where(g, t_op2(g, OP_CMPLT, b->pos, n_(b, 1)), t_float(g, 0), t_reshape_i(g, state_buffer(b, y, i), n, dims));
}

void state_store(build *b, const layer *y, int i, tensor *value) {
  tensor *view = t_reshape(b->g, state_buffer(b, y, i), value->shape->n, value->shape->dim);
  vec_push(&b->effects, t_assign(b->g, view, value));
}

static tensor *softplus(graph *g, tensor *x) {         // log(1 + exp x), of which nothing overflows
  tensor *far = t_exp(g, t_op2(g, OP_MIN, x, t_op1(g, OP_NEG, x)));
  return t_add(g, t_op2(g, OP_MAX, x, t_float(g, 0)), t_scale(g, t_op1(g, OP_LOG2, t_add(g, far, t_float(g, 1))), M_LN2));
}

// Whether token s of this run comes before token t, or is t: {T (t), T (s), 1}
static tensor *not_later(build *b, bool itself) {
  graph *g = b->g;
  tensor *t = t_reshape(g, t_iota(g, b->T), DIMS(b->T, n_(b, 1), n_(b, 1))), *s = t_reshape(g, t_iota(g, b->T), DIMS(n_(b, 1), b->T, n_(b, 1)));
  return t_op2(g, OP_CMPLT, s, itself ? t_add(g, t, n_(b, 1)) : t);
}

// Logarithms of decays {T, H}, added up from the run's first token on.
static tensor *added_up(build *b, tensor *log_decay) {
  graph *g = b->g;
  uop *h = log_decay->shape->dim[1];
  tensor *each = t_reshape(g, t_contiguous(g, log_decay), DIMS(n_(b, 1), b->T, h));
  return t_contiguous(g, t_reshape(g, t_reduce(g, t_where(g, not_later(b, true), each, t_float(g, 0)), OP_ADD, 1), DIMS(b->T, h)));
}

// What of token s is left at token t: {T (t), T (s), H}, 0 where s is later (and, unless itself, at t).
static tensor *left_at(build *b, tensor *sum, bool itself) {
  graph *g = b->g;
  uop *h = sum->shape->dim[1];
  tensor *d = t_sub(g, t_reshape(g, sum, DIMS(b->T, n_(b, 1), h)), t_reshape(g, sum, DIMS(n_(b, 1), b->T, h)));
  return t_exp(g, t_where(g, not_later(b, itself), d, t_float(g, -INFINITY)));
}

// The last row of {T, H}: {1, H}
static tensor *last_row(build *b, tensor *x) { return t_slice(b->g, x, 0, idx_sub(b->g, b->T, n_(b, 1)), n_(b, 1)); }

// --- keys of both kinds ---------------------------------------------------------------------------------------------------

static int load_ssm(loader *l, layer *y) {
  ssm *s = &y->ssm;
  if (key_count(l, "ssm.conv_kernel", 2, 64, &y->taps) || key_count(l, "ssm.inner_size", 1, 1 << 20, &s->inner) || key_count(l, "ssm.state_size", 1, 1 << 12, &s->state) ||
      key_count(l, "ssm.time_step_rank", 1, 1 << 12, &s->heads) || key_count(l, "ssm.group_count", 1, 1 << 12, &s->groups)) return -1;
  if (s->inner % s->heads) return gguf_fail(l->f, key(l, "ssm.time_step_rank"), l->err, "%d does not divide ssm.inner_size = %d", s->heads, s->inner);
  if (s->heads % s->groups) return gguf_fail(l->f, key(l, "ssm.group_count"), l->err, "%d does not divide ssm.time_step_rank = %d", s->groups, s->heads);
  int64_t channels = s->inner + 2 * (int64_t)s->groups * s->state;
  if (want_matrix(l, y, W_SSM_CONV1D, y->taps, channels, bias_if(l, HAS_CONV_BIAS)) || want_vector(l, y, W_SSM_DT, s->heads, WANT_OPTIONAL | WANT_BIAS) ||
      want_matrix(l, y, W_SSM_OUT, s->inner, l->m->n_embd, 0)) return -1;
  state(l, y, DT_F32, 0, (y->taps - 1) * channels);
  state(l, y, DT_F32, 0, (int64_t)s->inner * s->state);
  return 0;
}
enum { STATE_CONV, STATE_SSM };

// --- Mamba 2 --------------------------------------------------------------------------------------------------------------
// Head h has a state of {p, n}; each token adds dt x B to it and reads it with C. B and C are shared by the heads of a group.

static int mamba2_load(loader *l, layer *y) {
  const ssm *s = &y->ssm;
  if (load_ssm(l, y)) return -1;
  int64_t inner = s->inner, in = 2 * inner + 2 * (int64_t)s->groups * s->state + s->heads;
  if (inner % s->groups) return gguf_fail(l->f, key(l, "ssm.group_count"), l->err, "%d does not divide ssm.inner_size = %d", s->groups, s->inner);
  return want_matrix(l, y, W_SSM_IN, l->m->n_embd, in, 0) || want(l, y, W_SSM_A, 1, s->heads, 1, WANT_BARE) || want(l, y, W_SSM_D, 1, s->heads, 1, WANT_BARE) ||
         want_matrix(l, y, W_SSM_NORM, inner / s->groups, s->groups, 0) ? -1 : 0;
}

static tensor *mamba2(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const ssm *s = &y->ssm;
  int64_t inner = s->inner, n = s->state, groups = s->groups, h = s->heads, per = h / groups, p = inner / h, bc = groups * n;
  tensor *all = t_contiguous(g, linear(b, y, W_SSM_IN, x));
  tensor *z = t_slice_i(g, all, 1, 0, inner), *dt = t_slice_i(g, all, 1, 2 * inner + 2 * bc, h);
  tensor *xbc = t_contiguous(g, t_silu(g, causal_conv(b, y, STATE_CONV, W_SSM_CONV1D, y->taps, t_slice_i(g, all, 1, inner, inner + 2 * bc))));
  uop *one = n_(b, 1), *G = n_(b, groups), *P = n_(b, per), *D = n_(b, p), *N = n_(b, n), *H = n_(b, h);
  tensor *v = t_slice_i(g, xbc, 1, 0, inner), *B = t_slice_i(g, xbc, 1, inner, bc), *C = t_slice_i(g, xbc, 1, inner + bc, bc);
  dt = t_contiguous(g, softplus(g, t_add(g, dt, bias(b, y, W_SSM_DT))));
  tensor *sum = added_up(b, t_mul(g, dt, t_reshape(g, weight(b, y, W_SSM_A), DIMS(one, H))));
  // within the run: tokens t and s meet by C(t) B(s)
  tensor *meet = t_reduce(g, t_mul(g, t_reshape(g, C, DIMS(b->T, one, G, N)), t_reshape(g, B, DIMS(one, b->T, G, N))), OP_ADD, 3);
  tensor *factor = t_mul(g, left_at(b, sum, true), t_reshape(g, dt, DIMS(one, b->T, H)));
  factor = t_mul(g, t_reshape(g, t_contiguous(g, meet), DIMS(b->T, b->T, G, one)), t_reshape(g, factor, DIMS(b->T, b->T, G, P)));
  factor = t_reshape(g, t_contiguous(g, factor), DIMS(b->T, b->T, H, one));
  tensor *out = t_reshape(g, t_reduce(g, t_mul(g, factor, t_reshape(g, v, DIMS(one, b->T, H, D))), OP_ADD, 1), DIMS(b->T, H, D));
  // and what the state still has
  tensor *S = state_rows(b, y, STATE_SSM, 4, (int64_t[]){groups, per, p, n});
  tensor *read = t_reduce(g, t_mul(g, t_reshape(g, C, DIMS(b->T, G, one, one, N)), t_reshape(g, S, DIMS(one, G, P, D, N))), OP_ADD, 4);
  out = t_add(g, out, t_mul(g, t_reshape(g, read, DIMS(b->T, H, D)), t_reshape(g, t_exp(g, sum), DIMS(b->T, H, one))));
  out = t_add(g, out, t_mul(g, t_reshape(g, v, DIMS(b->T, H, D)), t_reshape(g, weight(b, y, W_SSM_D), DIMS(one, H, one))));
  tensor *last = last_row(b, sum), *keep = t_contiguous(g, t_mul(g, t_exp(g, t_sub(g, last, sum)), dt));
  tensor *add = t_mul(g, t_mul(g, t_reshape(g, keep, DIMS(b->T, G, P, one, one)), t_reshape(g, v, DIMS(b->T, G, P, D, one))), t_reshape(g, B, DIMS(b->T, G, one, one, N)));
  add = t_reshape(g, t_reduce(g, add, OP_ADD, 0), DIMS(G, P, D, N));
  state_store(b, y, STATE_SSM, t_add(g, t_mul(g, S, t_reshape(g, t_exp(g, last), DIMS(G, P, one, one))), add));
  out = t_contiguous(g, t_mul(g, t_reshape(g, out, DIMS(b->T, n_(b, inner))), t_silu(g, z)));
  out = norm(b, y, W_SSM_NORM, t_reshape(g, out, DIMS(b->T, G, n_(b, inner / groups))));
  return linear(b, y, W_SSM_OUT, t_reshape(g, out, DIMS(b->T, n_(b, inner))));
}

const part part_mamba2 = {mamba2_load, mamba2};

// --- gated delta net ------------------------------------------------------------------------------------------------------
// Head h has a state of {k, v}, a memory that returns values for keys. A token first lets it fade, then writes the difference between its value and
// what the memory has for its key: d(t) = beta (v(t) - S k(t)). Within a run that makes a triangular system (1 + A) d = r, A the fading products of
// keys. A^32 is 0 for 32 tokens, and (1 + A)^-1 = (1 - A)(1 + A^2)(1 + A^4)(1 + A^8)(1 + A^16) exactly. Powers grow like binomial
// coefficients where keys resemble each other, and cancel: 32 tokens in f64 keep what f32 has.

static int delta_load(loader *l, layer *y) {
  const ssm *s = &y->ssm;
  if (load_ssm(l, y)) return -1;
  int64_t d = l->m->n_embd, keys = (int64_t)s->groups * s->state, h = s->heads, v = s->inner / s->heads;
  l->m->max_chunk = DELTA_CHUNK;
  if (want_matrix(l, y, W_SSM_IN, d, 2 * keys + 2 * (int64_t)s->inner, WANT_OPTIONAL)) return -1;
  if (!y->w[W_SSM_IN].weight && (want_matrix(l, y, W_ATTN_QKV, d, 2 * keys + s->inner, 0) || want_matrix(l, y, W_ATTN_GATE, d, s->inner, 0))) return -1;
  if (want_matrix(l, y, W_SSM_BA, d, 2 * h, WANT_OPTIONAL)) return -1;
  if (!y->w[W_SSM_BA].weight && (want_matrix(l, y, W_SSM_BETA, d, h, 0) || want_matrix(l, y, W_SSM_ALPHA, d, h, 0))) return -1;
  return want(l, y, W_SSM_A, h, 1, 1, WANT_BARE) || want_vector(l, y, W_SSM_NORM, v, 0) ? -1 : 0;
}

// Part `from .. from + size` of each group of {T, groups * width}: {T, groups * size}
static tensor *of_groups(build *b, tensor *x, int64_t groups, int64_t from, int64_t size) {
  graph *g = b->g;
  tensor *r = t_reshape(g, x, DIMS(b->T, n_(b, groups), n_(b, x->shape->dim[1]->a / groups)));
  return t_reshape(g, t_slice_i(g, r, 2, from, size), DIMS(b->T, n_(b, groups * size)));
}

// Rows of keys: {T, groups, k} of length 1, given to the heads that share them: {T, H, k}
static tensor *unit_rows(build *b, const layer *y, tensor *x, double by) {
  graph *g = b->g;
  const ssm *s = &y->ssm;
  uop *K = n_(b, s->state), *G = n_(b, s->groups), *P = n_(b, s->heads / s->groups), *one = n_(b, 1);
  x = t_reshape(g, x, DIMS(b->T, G, K));
  tensor *length = t_op2(g, OP_MAX, t_op1(g, OP_SQRT, t_reduce(g, t_mul(g, x, x), OP_ADD, 2)), t_float(g, b->m->eps));
  x = t_contiguous(g, t_scale(g, t_op2(g, OP_FDIV, x, length), by));
  bool neighbours = b->m->arch->flags & ARCH_DELTA_NEIGHBOURS;
  x = neighbours ? t_expand(g, t_reshape(g, x, DIMS(b->T, G, one, K)), DIMS(b->T, G, P, K)) : t_expand(g, t_reshape(g, x, DIMS(b->T, one, G, K)), DIMS(b->T, P, G, K));
  return t_reshape(g, x, DIMS(b->T, n_(b, s->heads), K));
}

// x {T (t), T (s), H} times r {T (s), H, v}, both in f64: {T, H, v}
static tensor *applied(build *b, tensor *x, tensor *r) {
  graph *g = b->g;
  uop *h = r->shape->dim[1], *v = r->shape->dim[2];
  tensor *product = t_mul(g, t_reshape(g, x, DIMS(b->T, b->T, h, n_(b, 1))), t_reshape(g, r, DIMS(n_(b, 1), b->T, h, v)));
  return t_reshape(g, t_reduce(g, product, OP_ADD, 1), DIMS(b->T, h, v));
}

static tensor *solved(build *b, tensor *A, tensor *r) {
  graph *g = b->g;
  if (uop_is_int(b->T, 1)) return r;
  tensor *power = t_contiguous(g, t_cast(g, A, DT_F64)), *x = t_contiguous(g, t_cast(g, r, DT_F64));
  x = t_contiguous(g, t_sub(g, x, applied(b, power, x)));
  for (int n = 2; n < DELTA_CHUNK; n *= 2) {
    uop *h = A->shape->dim[2];
    tensor *product = t_mul(g, t_reshape(g, power, DIMS(b->T, b->T, n_(b, 1), h)), t_reshape(g, power, DIMS(n_(b, 1), b->T, b->T, h)));
    power = t_contiguous(g, t_reshape(g, t_reduce(g, product, OP_ADD, 1), DIMS(b->T, b->T, h)));
    x = t_contiguous(g, t_add(g, x, applied(b, power, x)));
  }
  return t_cast(g, x, DT_F32);
}

static tensor *delta_net(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const ssm *s = &y->ssm;
  int64_t inner = s->inner, k = s->state, groups = s->groups, h = s->heads, per = h / groups, v = inner / h, keys = groups * k;
  uop *one = n_(b, 1), *H = n_(b, h), *K = n_(b, k), *V = n_(b, v);
  tensor *mixed, *z, *beta, *alpha;
  if (y->w[W_SSM_IN].weight) {              // of each group: its query, its key, its heads' values and gates
    tensor *all = t_contiguous(g, linear(b, y, W_SSM_IN, x));
    mixed = t_cat_last(g, t_cat_last(g, of_groups(b, all, groups, 0, k), of_groups(b, all, groups, k, k)), of_groups(b, all, groups, 2 * k, per * v));
    z = of_groups(b, all, groups, 2 * k + per * v, per * v);
  } else {
    mixed = linear(b, y, W_ATTN_QKV, x);
    z = linear(b, y, W_ATTN_GATE, x);
  }
  if (y->w[W_SSM_BA].weight) {
    tensor *ba = t_contiguous(g, linear(b, y, W_SSM_BA, x));
    beta = of_groups(b, ba, groups, 0, per);
    alpha = of_groups(b, ba, groups, per, per);
  } else {
    beta = linear(b, y, W_SSM_BETA, x);
    alpha = linear(b, y, W_SSM_ALPHA, x);
  }
  beta = t_contiguous(g, sigmoid(g, beta));
  tensor *sum = added_up(b, t_mul(g, softplus(g, t_add(g, alpha, bias(b, y, W_SSM_DT))), t_reshape(g, weight(b, y, W_SSM_A), DIMS(one, H))));
  tensor *conv = t_contiguous(g, t_silu(g, causal_conv(b, y, STATE_CONV, W_SSM_CONV1D, y->taps, mixed)));
  tensor *q = unit_rows(b, y, t_slice_i(g, conv, 1, 0, keys), 1 / sqrt((double)k)), *key = unit_rows(b, y, t_slice_i(g, conv, 1, keys, keys), 1);
  tensor *value = t_reshape(g, t_slice_i(g, conv, 1, 2 * keys, inner), DIMS(b->T, H, V)), *S = state_rows(b, y, STATE_SSM, 3, (int64_t[]){h, k, v});
  tensor *faded = t_reshape(g, t_exp(g, sum), DIMS(b->T, H, one)), *s4 = t_reshape(g, S, DIMS(one, H, K, V));
  tensor *known = t_reshape(g, t_reduce(g, t_mul(g, s4, t_reshape(g, key, DIMS(b->T, H, K, one))), OP_ADD, 2), DIMS(b->T, H, V));
  tensor *r = t_mul(g, t_sub(g, value, t_mul(g, known, faded)), t_reshape(g, beta, DIMS(b->T, H, one)));
  tensor *s_key = t_reshape(g, key, DIMS(one, b->T, H, K));
  tensor *kk = t_reshape(g, t_reduce(g, t_mul(g, t_reshape(g, key, DIMS(b->T, one, H, K)), s_key), OP_ADD, 3), DIMS(b->T, b->T, H));
  tensor *qk = t_reshape(g, t_reduce(g, t_mul(g, t_reshape(g, q, DIMS(b->T, one, H, K)), s_key), OP_ADD, 3), DIMS(b->T, b->T, H));
  tensor *A = t_mul(g, t_mul(g, kk, left_at(b, sum, false)), t_reshape(g, beta, DIMS(b->T, one, H)));
  tensor *d = t_contiguous(g, solved(b, A, r));
  tensor *out = applied(b, t_contiguous(g, t_mul(g, qk, left_at(b, sum, true))), d);
  tensor *read = t_reshape(g, t_reduce(g, t_mul(g, s4, t_reshape(g, q, DIMS(b->T, H, K, one))), OP_ADD, 2), DIMS(b->T, H, V));
  out = t_contiguous(g, t_add(g, out, t_mul(g, read, faded)));
  tensor *last = last_row(b, sum), *keep = t_contiguous(g, t_exp(g, t_sub(g, last, sum)));
  tensor *add = t_mul(g, t_mul(g, t_reshape(g, key, DIMS(b->T, H, K, one)), t_reshape(g, keep, DIMS(b->T, H, one, one))), t_reshape(g, d, DIMS(b->T, H, one, V)));
  add = t_reshape(g, t_reduce(g, add, OP_ADD, 0), DIMS(H, K, V));
  state_store(b, y, STATE_SSM, t_add(g, t_mul(g, S, t_reshape(g, t_exp(g, last), DIMS(H, one, one))), add));
  out = t_mul(g, norm(b, y, W_SSM_NORM, out), t_silu(g, t_reshape(g, z, DIMS(b->T, H, V))));
  return linear(b, y, W_SSM_OUT, t_reshape(g, out, DIMS(b->T, n_(b, inner))));
}

const part part_delta_net = {delta_load, delta_net};
