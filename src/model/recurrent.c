// Recurrences, which keep only a state of fixed size of the past, and the memory for that state.
//
// Positions are processed in blocks of fixed length, counted from position 0, and the state advances when a block is
// complete: it holds its value at the block's first position. Later rows, at most a block, are kept row by row, as
// attention keeps keys and values. Token t reads the state, multiplied by the decays from the block's beginning to t,
// and each token s <= t of the block, multiplied by the decays between them. So a token reads the same values and adds
// them in the same order, whichever run it is in: results do not depend on how a sequence is split into runs. A run
// stays within a block (model_block). Decays are sums of logarithms, so nothing is divided; what is added to the state
// decays in the same way.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/recurrent.h"
#include "model/stored.h"

void state_store(build *b, const layer *y, int i, tensor *value) {
  tensor *own = state_slot(b, y, i, state_buffer(b, y, i)),
         *view = t_reshape(b->g, own, value->shape->n, value->shape->dim);
  vec_push(b->effects, t_assign(b->g, view, value));
}

tensor *softplus(graph *g, tensor *x) {         // log(1 + exp x) without overflow
  tensor *far = t_exp(g, t_op2(g, OP_MIN, x, t_op1(g, OP_NEG, x)));
  return t_add(g, t_op2(g, OP_MAX, x, t_float(g, 0)),
               t_scale(g, t_op1(g, OP_LOG2, t_add(g, far, t_float(g, 1))), M_LN2));
}

// --- rows of a block -------------------------------------------------------------------------------------------------

// RUN_ROOM: the most tokens of a run for the interval analysis
enum { MAMBA1_BLOCK = 16, SOLVED_AT_ONCE = 8, RUN_ROOM = 64 };

block block_of(build *b, int64_t size) {
  uop *from = idx_mod(b->g, b->pos, n_(b, size)), *end = idx_add(b->g, from, b->T);
  return (block){size, from, end, t_op2(b->g, OP_CMPLT, n_(b, size - 1), end)};
}

static int64_t block_rows(int64_t size) { return size + RUN_ROOM; }

int rows_state(loader *l, layer *y, int64_t size, int64_t width) {
  return state(l, y, DT_F32, 0, block_rows(size) * width);
}

tensor *keep_rows(build *b, const layer *y, int i, const block *k, tensor *x, bool all) {
  graph *g = b->g;
  const shape *s = x->shape;
  uop *dims[MAX_DIMS];
  for (int j = 0; j < s->n; j++) dims[j] = j ? s->dim[j] : n_(b, block_rows(k->size));
  tensor *own = t_reshape(g, state_slot(b, y, i, state_buffer(b, y, i)), s->n, dims);
  tensor *next = t_assign(g, t_slice(g, own, 0, k->from, b->T), x);
  vec_push(b->effects, next);
  return t_slice(g, t_reshape(g, state_slot(b, y, i, next), s->n, dims), 0, n_(b, 0), all ? n_(b, k->size) : k->end);
}

// The state at the block's first position: zeros at position 0.
tensor *state_before(build *b, const layer *y, int i, const block *k, int n, const int64_t *dims) {
  graph *g = b->g;
  return t_where(g, t_op2(g, OP_CMPLT, b->pos, n_(b, k->size)), t_float(g, 0),
                 t_reshape_i(g, state_slot(b, y, i, state_buffer(b, y, i)), n, dims));
}

// Whether row s of the block, of `rows`, is before token t of this run, or (itself) is t: {T, rows}
tensor *not_later(build *b, const block *k, uop *rows, bool itself) {
  graph *g = b->g;
  tensor *t =
      t_add(g, t_reshape(g, t_iota(g, b->T), DIMS(b->T, n_(b, 1))), itself ? idx_add(g, k->from, n_(b, 1)) : k->from);
  return t_op2(g, OP_CMPLT, t_reshape(g, t_iota(g, rows), DIMS(n_(b, 1), rows)), t);
}

// The sums of the logarithms of decays of the block's rows {end, H} up to each token of this run: {T, H}
tensor *added_up(build *b, const block *k, tensor *log_decay) {
  graph *g = b->g;
  uop *h = log_decay->shape->dim[1], *one = n_(b, 1);
  tensor *seen = t_where(g, t_reshape(g, not_later(b, k, k->end, true), DIMS(b->T, k->end, one)),
                         t_reshape(g, log_decay, DIMS(one, k->end, h)), t_float(g, 0));
  return read_by_many(g, t_reshape(g, t_reduce(g, seen, OP_ADD, 1), DIMS(b->T, h)));
}

// The factor that is left of row s at token t: {T, rows, H}, 0 if s is later (and, unless itself, at t). sum {T, H},
// sums {rows, H}
static tensor *left_at(build *b, const block *k, tensor *sum, tensor *sums, bool itself) {
  graph *g = b->g;
  uop *h = sum->shape->dim[1], *rows = sums->shape->dim[0], *one = n_(b, 1);
  tensor *d = t_sub(g, t_reshape(g, sum, DIMS(b->T, one, h)), t_reshape(g, sums, DIMS(one, rows, h)));
  return t_exp(
      g, t_where(g, t_reshape(g, not_later(b, k, rows, itself), DIMS(b->T, rows, one)), d, t_float(g, -INFINITY)));
}

// Rows that enter the state: all rows of a block that ends with this run; otherwise one row, which counts nothing.
uop *rows_done(build *b, const block *k) {
  graph *g = b->g;
  uop *full = idx_min(g, idx_div(g, k->end, n_(b, k->size)), n_(b, 1));
  return idx_max(g, idx_mul(g, k->end, full), n_(b, 1));
}

// The factor that is left of each such row at the end of the block {rows, H}, and of the state before it {1, H}
tensor *left_at_end(build *b, const block *k, tensor *sum, tensor *sums, uop *rows, tensor **of_state) {
  graph *g = b->g;
  tensor *last = t_slice(g, sum, 0, idx_sub(g, b->T, n_(b, 1)), n_(b, 1));
  *of_state = t_where(g, k->full, t_exp(g, last), t_float(g, 1));
  return t_where(g, k->full, t_exp(g, t_sub(g, last, t_slice(g, sums, 0, n_(b, 0), rows))), t_float(g, 0));
}

// --- keys of both Mamba kinds ----------------------------------------------------------------------------------------

static int load_ssm(loader *l, layer *y) {
  ssm *s = &y->ssm;
  if (key_count(l, "ssm.conv_kernel", 2, 64, &y->taps) || key_count(l, "ssm.inner_size", 1, 1 << 20, &s->inner) ||
      key_count(l, "ssm.state_size", 1, 1 << 12, &s->state) ||
      key_count(l, "ssm.time_step_rank", 1, 1 << 12, &s->heads) ||
      key_count(l, "ssm.group_count", 1, 1 << 12, &s->groups))
    return -1;
  if (s->inner % s->heads)
    return gguf_fail(l->f, key(l, "ssm.time_step_rank"), l->err, "%d does not divide ssm.inner_size = %d", s->heads,
                     s->inner);
  if (s->heads % s->groups)
    return gguf_fail(l->f, key(l, "ssm.group_count"), l->err, "%d does not divide ssm.time_step_rank = %d", s->groups,
                     s->heads);
  int64_t channels = s->inner + 2 * (int64_t)s->groups * s->state;
  if (want_matrix(l, y, W_SSM_CONV1D, y->taps, channels, bias_if(l, HAS_CONV_BIAS)) ||
      want_vector(l, y, W_SSM_DT, s->heads, WANT_OPTIONAL | WANT_BIAS) ||
      want_matrix(l, y, W_SSM_OUT, s->inner, l->m->n_embd, 0))
    return -1;
  ring_state(l, y, y->taps - 1, channels);
  state(l, y, DT_F32, 0, (int64_t)s->inner * s->state);
  return 0;
}

// Adds memory for the rows of blocks of this size, and limits the length of a run.
static void load_rows(loader *l, layer *y, int64_t size, int64_t keys) {
  model *m = l->m;
  rows_state(l, y, size, y->ssm.heads);
  rows_state(l, y, size, y->ssm.heads);
  rows_state(l, y, size, keys);
  rows_state(l, y, size, y->ssm.inner);
  if (!m->block || m->block > size) m->block = (int)size;
}

// --- Mamba -----------------------------------------------------------------------------------------------------------
// Each inner channel has a state of n elements, and each element decays at its own rate: by exp(A dt). The time step
// dt, the addition (dt x B) and the read vector (C) are made from the input; some models norm these three. Blocks are
// short, since every row that is not in the state yet is decayed again for every token.

static int mamba_load(loader *l, layer *y) {
  ssm *s = &y->ssm;
  int rank;
  bool named = l->m->arch->has & HAS_SSM_NORMS;
  if (key_count(l, "ssm.conv_kernel", 2, 64, &y->taps) || key_count(l, "ssm.inner_size", 1, 1 << 20, &s->inner) ||
      key_count(l, "ssm.state_size", 1, 1 << 12, &s->state) || key_count(l, "ssm.time_step_rank", 1, 1 << 14, &rank) ||
      (!named && gguf_bool_opt(l->f, key(l, "ssm.dt_b_c_rms"), false, &s->normed, l->err)))
    return -1;
  s->normed |= named;
  s->heads = rank;
  int64_t inner = s->inner, n = s->state, d = l->m->n_embd;
  if (want_matrix(l, y, W_SSM_IN, d, 2 * inner, 0) || want_matrix(l, y, W_SSM_CONV1D, y->taps, inner, WANT_BIAS) ||
      want_matrix(l, y, W_SSM_X, inner, rank + 2 * n, 0) || want_matrix(l, y, W_SSM_DT, rank, inner, WANT_BIAS) ||
      want(l, y, W_SSM_A, n, inner, 1, WANT_BARE) || want(l, y, W_SSM_D, inner, 1, 1, WANT_BARE) ||
      want_matrix(l, y, W_SSM_OUT, inner, d, 0))
    return -1;
  if (named && (want_vector(l, y, W_SSM_DT_NORM, rank, 0) || want_vector(l, y, W_SSM_B_NORM, n, 0) ||
                want_vector(l, y, W_SSM_C_NORM, n, 0)))
    return -1;
  ring_state(l, y, y->taps - 1, inner);
  state(l, y, DT_F32, 0, inner * n);
  for (int64_t each = 0; each < 2; each++) rows_state(l, y, MAMBA1_BLOCK, inner);
  rows_state(l, y, MAMBA1_BLOCK, n);
  rows_state(l, y, MAMBA1_BLOCK, inner);
  if (!l->m->block || l->m->block > MAMBA1_BLOCK) l->m->block = MAMBA1_BLOCK;
  return 0;
}

static tensor *mamba(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const ssm *s = &y->ssm;
  int64_t inner = s->inner, n = s->state, rank = s->heads;
  uop *one = n_(b, 1), *N = n_(b, n), *D = n_(b, inner);
  tensor *all = linear(b, y, W_SSM_IN, x), *z = t_slice_i(g, all, 1, inner, inner);
  x = t_silu(g, causal_conv(b, y, STATE_CONV, W_SSM_CONV1D, y->taps, t_slice_i(g, all, 1, 0, inner)));
  tensor *made = linear(b, y, W_SSM_X, x), *dt = t_slice_i(g, made, 1, 0, rank),
         *B = t_slice_i(g, made, 1, rank, n), *C = t_slice_i(g, made, 1, rank + n, n);
  if (s->normed) {
    dt = norm(b, y, W_SSM_DT_NORM, dt);
    B = norm(b, y, W_SSM_B_NORM, B);
    C = norm(b, y, W_SSM_C_NORM, C);
  }
  dt = softplus(g, linear(b, y, W_SSM_DT, dt));
  block k = block_of(b, MAMBA1_BLOCK);
  tensor *A = t_reshape(g, weight(b, y, W_SSM_A), DIMS(one, D, N));
  tensor *sum = added_up(b, &k, keep_rows(b, y, STATE_DECAY, &k, dt, false)),
         *sums = keep_rows(b, y, STATE_SUM, &k, sum, false);
  tensor *keys = keep_rows(b, y, STATE_KEY, &k, B, false),
         *values = keep_rows(b, y, STATE_VALUE, &k, t_mul(g, dt, x), false);
  // what token t reads of row s of the block
  tensor *since = t_sub(g, t_reshape(g, sum, DIMS(b->T, one, D)), t_reshape(g, sums, DIMS(one, k.end, D)));
  tensor *meet =
    t_mul(g, t_reshape(g, C, DIMS(b->T, one, N)), t_reshape(g, keys, DIMS(one, k.end, N)));
  tensor *left =
    t_exp(g, t_mul(g, t_reshape(g, since, DIMS(b->T, k.end, D, one)), t_reshape(g, A, DIMS(one, one, D, N))));
  tensor *read = t_reshape(g, t_reduce(g, t_mul(g, left, t_reshape(g, meet, DIMS(b->T, k.end, one, N))), OP_ADD, 3),
                           DIMS(b->T, k.end, D));
  read = t_where(g, t_reshape(g, not_later(b, &k, k.end, true), DIMS(b->T, k.end, one)),
                 t_mul(g, read, t_reshape(g, values, DIMS(one, k.end, D))), t_float(g, 0));
  tensor *out = t_reshape(g, t_reduce(g, read, OP_ADD, 1), DIMS(b->T, D));
  // and of the state
  tensor *S = state_before(b, y, STATE_SSM, &k, 2, (int64_t[]){inner, n}),
         *fade = t_exp(g, t_mul(g, t_reshape(g, sum, DIMS(b->T, D, one)), A));
  tensor *old = t_reduce(
    g, t_mul(g, t_mul(g, fade, t_reshape(g, S, DIMS(one, D, N))), t_reshape(g, C, DIMS(b->T, one, N))), OP_ADD, 2);
  out = t_add(g, t_add(g, out, t_reshape(g, old, DIMS(b->T, D))),
              t_mul(g, x, t_reshape(g, weight(b, y, W_SSM_D), DIMS(one, D))));
  // the next state
  uop *rows = rows_done(b, &k);
  tensor *last = t_slice(g, sum, 0, idx_sub(g, b->T, one), one);
  tensor *kept = t_where(g, k.full, t_exp(g, t_mul(g, t_reshape(g, last, DIMS(D, one)), t_reshape(g, A, DIMS(D, N)))),
                         t_float(g, 1));
  since = t_sub(g, last, t_slice(g, sums, 0, n_(b, 0), rows));
  left = t_where(g, k.full, t_exp(g, t_mul(g, t_reshape(g, since, DIMS(rows, D, one)), A)), t_float(g, 0));
  tensor *add = t_mul(g, t_mul(g, left, t_reshape(g, t_slice(g, values, 0, n_(b, 0), rows), DIMS(rows, D, one))),
                      t_reshape(g, t_slice(g, keys, 0, n_(b, 0), rows), DIMS(rows, one, N)));
  add = t_reshape(g, t_reduce(g, add, OP_ADD, 0), DIMS(D, N));
  state_store(b, y, STATE_SSM, t_add(g, t_mul(g, S, kept), add));
  return linear(b, y, W_SSM_OUT, t_mul(g, out, t_silu(g, z)));
}

const part part_mamba = {mamba_load, mamba};

// --- Mamba 2 ---------------------------------------------------------------------------------------------------------
// Head h has a state of {p, n}; each token adds dt x B to it and reads it with C. The heads of a group share B and C.

static int mamba2_load(loader *l, layer *y) {
  const ssm *s = &y->ssm;
  if (load_ssm(l, y)) return -1;
  int64_t inner = s->inner, in = 2 * inner + 2 * (int64_t)s->groups * s->state + s->heads;
  if (inner % s->groups)
    return gguf_fail(l->f, key(l, "ssm.group_count"), l->err, "%d does not divide ssm.inner_size = %d", s->groups,
                     s->inner);
  load_rows(l, y, MAMBA_BLOCK, (int64_t)s->groups * s->state);
  return want_matrix(l, y, W_SSM_IN, l->m->n_embd, in, 0) || want(l, y, W_SSM_A, 1, s->heads, 1, WANT_BARE) ||
             want(l, y, W_SSM_D, 1, s->heads, 1, WANT_BARE) ||
             want_matrix(l, y, W_SSM_NORM, inner / s->groups, s->groups, y->mixer == &part_mamba2 ? 0 : WANT_OPTIONAL)
           ? -1
           : 0;
}

tensor *read_fading(build *b, const layer *y, const block *k, const fading *f) {
  graph *g = b->g;
  const ssm *s = &y->ssm;
  int64_t inner = s->inner, n = s->state, groups = s->groups, h = s->heads, per = h / groups, p = inner / h;
  uop *one = n_(b, 1), *G = n_(b, groups), *P = n_(b, per), *D = n_(b, p), *N = n_(b, n), *H = n_(b, h);
  tensor *keys = keep_rows(b, y, f->keys, k, f->B, false), *values = keep_rows(b, y, f->values, k, f->v, false);
  // within the block: the weight of row s at token t is C(t) B(s)
  tensor *meet = t_reduce(
      g, t_mul(g, t_reshape(g, f->C, DIMS(b->T, one, G, N)), t_reshape(g, keys, DIMS(one, k->end, G, N))), OP_ADD, 3);
  tensor *factor = left_at(b, k, f->sum, f->sums, true);
  if (f->dt) factor = t_mul(g, factor, t_reshape(g, f->dt, DIMS(one, k->end, H)));
  factor = t_mul(g, t_reshape(g, meet, DIMS(b->T, k->end, G, one)),
                 t_reshape(g, factor, DIMS(b->T, k->end, G, P)));
  factor = t_reshape(g, factor, DIMS(b->T, k->end, H, one));
  tensor *out = t_reduce(g, t_mul(g, factor, t_reshape(g, values, DIMS(one, k->end, H, D))), OP_ADD, 1);
  // and from the state
  tensor *S = state_before(b, y, f->memory, k, 4, (int64_t[]){groups, per, p, n});
  tensor *read = read_by_many(
      g, t_reduce(g, t_mul(g, t_reshape(g, f->C, DIMS(b->T, G, one, one, N)), t_reshape(g, S, DIMS(one, G, P, D, N))),
                  OP_ADD, 4));
  out = t_add(g, t_reshape(g, out, DIMS(b->T, H, D)),
              t_mul(g, t_reshape(g, read, DIMS(b->T, H, D)), t_reshape(g, t_exp(g, f->sum), DIMS(b->T, H, one))));
  uop *rows = rows_done(b, k);
  tensor *fades, *left = left_at_end(b, k, f->sum, f->sums, rows, &fades);
  if (f->dt) left = t_mul(g, left, t_slice(g, f->dt, 0, n_(b, 0), rows));
  keys = t_slice(g, keys, 0, n_(b, 0), rows);
  values = t_slice(g, values, 0, n_(b, 0), rows);
  tensor *add =
      t_mul(g, t_mul(g, t_reshape(g, left, DIMS(rows, G, P, one, one)), t_reshape(g, values, DIMS(rows, G, P, D, one))),
            t_reshape(g, keys, DIMS(rows, G, one, one, N)));
  add = t_reshape(g, t_reduce(g, add, OP_ADD, 0), DIMS(G, P, D, N));
  state_store(b, y, f->memory, t_add(g, t_mul(g, S, t_reshape(g, fades, DIMS(G, P, one, one))), add));
  return out;
}

// The logarithms of decays, from the tokens' dt; f->dt becomes that of all rows
static void fade(build *b, const layer *y, const block *k, tensor *dt, fading *f) {
  graph *g = b->g;
  f->dt = keep_rows(b, y, STATE_DECAY, k, softplus(g, dt), false);
  tensor *A = t_reshape(g, weight(b, y, W_SSM_A), DIMS(n_(b, 1), n_(b, y->ssm.heads)));
  f->sum = added_up(b, k, t_mul(g, f->dt, A));
  f->sums = keep_rows(b, y, STATE_SUM, k, f->sum, false);
}

// The output plus the token's own input, times a factor per head
static tensor *with_own(build *b, const layer *y, tensor *out, tensor *v) {
  graph *g = b->g;
  const ssm *s = &y->ssm;
  uop *H = n_(b, s->heads), *one = n_(b, 1);
  return t_add(g, out, t_mul(g, t_reshape(g, v, DIMS(b->T, H, n_(b, s->inner / s->heads))),
                             t_reshape(g, weight(b, y, W_SSM_D), DIMS(one, H, one))));
}

static tensor *mamba2(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const ssm *s = &y->ssm;
  int64_t inner = s->inner, n = s->state, groups = s->groups, h = s->heads, bc = groups * n;
  tensor *all = linear(b, y, W_SSM_IN, x);
  tensor *z = t_slice_i(g, all, 1, 0, inner), *dt = t_slice_i(g, all, 1, 2 * inner + 2 * bc, h);
  tensor *xbc = read_in_parts(
    g, t_silu(g, causal_conv(b, y, STATE_CONV, W_SSM_CONV1D, y->taps, t_slice_i(g, all, 1, inner, inner + 2 * bc))));
  fading f = {.v = t_slice_i(g, xbc, 1, 0, inner),
              .B = t_slice_i(g, xbc, 1, inner, bc),
              .C = t_slice_i(g, xbc, 1, inner + bc, bc),
              .memory = STATE_SSM,
              .keys = STATE_KEY,
              .values = STATE_VALUE};
  block k = block_of(b, MAMBA_BLOCK);
  fade(b, y, &k, t_add(g, dt, bias(b, y, W_SSM_DT)), &f);
  tensor *out = with_own(b, y, read_fading(b, y, &k, &f), f.v);
  out = makes_several(g, t_mul(g, t_reshape(g, out, DIMS(b->T, n_(b, inner))), t_silu(g, z)));
  if (y->w[W_SSM_NORM].weight)
    out = norm(b, y, W_SSM_NORM, t_reshape(g, out, DIMS(b->T, n_(b, groups), n_(b, inner / groups))));
  return linear(b, y, W_SSM_OUT, t_reshape(g, out, DIMS(b->T, n_(b, inner))));
}

const part part_mamba2 = {mamba2_load, mamba2};

// --- PLaMo 2: x and z of a head are adjacent; dt, B and C of all heads are made of the convolution's output ----------

static int plamo_steps(const model *m) { return m->n_embd / 16 > 64 ? m->n_embd / 16 : 64; }

// Files have these norms without ".weight" after their names.
static int want_norm_of(loader *l, layer *y, enum tensor_id id, const char *name, int64_t n) {
  char full[64];
  snprintf(full, sizeof full, "blk.%d.%s", y->block, name);
  return want_vector(l, y, id, n, gguf_tensor_find(l->f, full) ? WANT_BARE : 0);
}

static int plamo_load(loader *l, layer *y) {
  ssm *s = &y->ssm;
  int groups;
  if (key_count(l, "ssm.conv_kernel", 2, 64, &y->taps) || key_count(l, "ssm.inner_size", 1, 1 << 20, &s->inner) ||
      key_count(l, "ssm.state_size", 1, 1 << 12, &s->state) ||
      key_count(l, "ssm.time_step_rank", 1, 1 << 12, &s->heads) || key_count_or(l, "ssm.group_count", 0, 0, 1, &groups))
    return -1;
  s->groups = 1;
  if (s->inner % s->heads)
    return gguf_fail(l->f, key(l, "ssm.time_step_rank"), l->err, "%d does not divide ssm.inner_size = %d", s->heads,
                     s->inner);
  int64_t d = l->m->n_embd, steps = plamo_steps(l->m);
  if (want_matrix(l, y, W_SSM_IN, d, 2 * (int64_t)s->inner, 0) ||
      want_matrix(l, y, W_SSM_CONV1D, y->taps, s->inner, 0) ||
      want_matrix(l, y, W_SSM_X, s->inner, steps + 2 * s->state, 0) ||
      want_matrix(l, y, W_SSM_DT, steps, s->heads, WANT_BIAS) || want(l, y, W_SSM_A, s->heads, 1, 1, WANT_BARE) ||
      want(l, y, W_SSM_D, s->heads, 1, 1, WANT_BARE) || want_norm_of(l, y, W_SSM_DT_NORM, "ssm_dt_norm", steps) ||
      want_norm_of(l, y, W_SSM_B_NORM, "ssm_b_norm", s->state) ||
      want_norm_of(l, y, W_SSM_C_NORM, "ssm_c_norm", s->state) || want_matrix(l, y, W_SSM_OUT, s->inner, d, 0))
    return -1;
  ring_state(l, y, y->taps - 1, s->inner);
  state(l, y, DT_F32, 0, (int64_t)s->inner * s->state);
  load_rows(l, y, MAMBA_BLOCK, s->state);
  return 0;
}

static tensor *plamo_mamba(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const ssm *s = &y->ssm;
  int64_t p = s->inner / s->heads, n = s->state, steps = plamo_steps(b->m);
  uop *inner = n_(b, s->inner);
  tensor *all = t_reshape(g, linear(b, y, W_SSM_IN, x), DIMS(b->T, n_(b, s->heads), n_(b, 2 * p)));
  tensor *z = t_reshape(g, t_slice_i(g, all, 2, 0, p), DIMS(b->T, inner));
  tensor *v = t_reshape(g, t_slice_i(g, all, 2, p, p), DIMS(b->T, inner));
  v = t_silu(g, causal_conv(b, y, STATE_CONV, W_SSM_CONV1D, y->taps, v));
  tensor *made = linear(b, y, W_SSM_X, v);
  fading f = {.v = v,
              .B = norm(b, y, W_SSM_B_NORM, t_slice_i(g, made, 1, 0, n)),
              .C = norm(b, y, W_SSM_C_NORM, t_slice_i(g, made, 1, n, n)),
              .memory = STATE_SSM,
              .keys = STATE_KEY,
              .values = STATE_VALUE};
  block k = block_of(b, MAMBA_BLOCK);
  fade(b, y, &k, linear(b, y, W_SSM_DT, norm(b, y, W_SSM_DT_NORM, t_slice_i(g, made, 1, 2 * n, steps))), &f);
  tensor *out = t_reshape(g, with_own(b, y, read_fading(b, y, &k, &f), v), DIMS(b->T, inner));
  return linear(b, y, W_SSM_OUT, t_mul(g, out, t_silu(g, z)));
}

const part part_plamo_mamba = {plamo_load, plamo_mamba};

// --- gated delta net -------------------------------------------------------------------------------------------------
// Head h has a state of {k, v}, a memory that returns values for keys. A token first lets it decay, then writes the
// difference between its value and what the memory returns for its key: d(t) = beta (v(t) - S k(t)). Within a block
// that is a triangular system, d(t) = r(t) - sum over s < t of A(t, s) d(s), where A has the products of keys with
// their decays. A few rows are solved at once, one after the other in one expression; the contribution of all earlier
// rows is one sum for each such group. A run of one token uses the known rows; a longer run solves the whole block,
// whose known rows stay as they are.

static int delta_load(loader *l, layer *y) {
  const ssm *s = &y->ssm;
  if (load_ssm(l, y)) return -1;
  int64_t d = l->m->n_embd, keys = (int64_t)s->groups * s->state, h = s->heads, v = s->inner / s->heads;
  load_rows(l, y, DELTA_BLOCK, keys);
  if (want_matrix(l, y, W_SSM_IN, d, 2 * keys + 2 * (int64_t)s->inner, WANT_OPTIONAL)) return -1;
  if (!y->w[W_SSM_IN].weight &&
      (want_matrix(l, y, W_ATTN_QKV, d, 2 * keys + s->inner, 0) || want_matrix(l, y, W_ATTN_GATE, d, s->inner, 0)))
    return -1;
  if (want_matrix(l, y, W_SSM_BA, d, 2 * h, WANT_OPTIONAL)) return -1;
  if (!y->w[W_SSM_BA].weight && (want_matrix(l, y, W_SSM_BETA, d, h, 0) || want_matrix(l, y, W_SSM_ALPHA, d, h, 0)))
    return -1;
  return want(l, y, W_SSM_A, h, 1, 1, WANT_BARE) || want_vector(l, y, W_SSM_NORM, v, 0) ? -1 : 0;
}

// Part `from .. from + size` of each group of {T, groups * width}: {T, groups * size}
static tensor *of_groups(build *b, tensor *x, int64_t groups, int64_t from, int64_t size) {
  graph *g = b->g;
  tensor *r = t_reshape(g, x, DIMS(b->T, n_(b, groups), n_(b, x->shape->dim[1]->a / groups)));
  return t_reshape(g, t_slice_i(g, r, 2, from, size), DIMS(b->T, n_(b, groups * size)));
}

// Rows {T, groups, k} scaled to length `by`
static tensor *unit_rows(build *b, const layer *y, tensor *x, double by) {
  graph *g = b->g;
  x = t_reshape(g, x, DIMS(b->T, n_(b, y->ssm.groups), n_(b, y->ssm.state)));
  tensor *length = t_op2(g, OP_MAX, t_op1(g, OP_SQRT, t_reduce(g, t_mul(g, x, x), OP_ADD, 2)), t_float(g, b->m->eps));
  return t_scale(g, t_op2(g, OP_FDIV, x, length), by);
}

// {.., groups, n}, repeated for the heads that share them: {.., H, n}
static tensor *of_heads(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  int64_t groups = y->ssm.groups, per = y->ssm.heads / groups;
  bool neighbours = b->m->arch->flags & ARCH_DELTA_NEIGHBOURS;
  int last = x->shape->n - 1;
  uop *dims[MAX_DIMS], *wide[MAX_DIMS], *flat[MAX_DIMS];
  for (int i = 0; i < last - 1; i++) dims[i] = wide[i] = flat[i] = x->shape->dim[i];
  dims[last - 1] = n_(b, neighbours ? groups : 1);
  dims[last] = n_(b, neighbours ? 1 : groups);
  wide[last - 1] = n_(b, neighbours ? groups : per);
  wide[last] = n_(b, neighbours ? per : groups);
  dims[last + 1] = wide[last + 1] = flat[last] = x->shape->dim[last];
  flat[last - 1] = n_(b, y->ssm.heads);
  return t_reshape(g, t_expand(g, t_reshape(g, x, last + 2, dims), last + 2, wide), last + 1, flat);
}

// Products of queries or keys x {T, groups, k} with rows of keys {rows, groups, k}: {T, rows, H}
static tensor *products(build *b, const layer *y, tensor *x, tensor *keys) {
  graph *g = b->g;
  uop *t = x->shape->dim[0], *rows = keys->shape->dim[0], *G = x->shape->dim[1], *K = x->shape->dim[2], *one = n_(b, 1);
  tensor *p =
      t_reduce(g, t_mul(g, t_reshape(g, x, DIMS(t, one, G, K)), t_reshape(g, keys, DIMS(one, rows, G, K))), OP_ADD, 3);
  return t_reshape(g, of_heads(b, y, p), DIMS(t, rows, n_(b, y->ssm.heads)));
}

static tensor *one_row(build *b, tensor *x, uop *t) {
  return t_reshape(b->g, t_slice(b->g, x, 0, t, n_(b, 1)), DIMS(x->shape->dim[1], x->shape->dim[2]));
}

// The contribution of rows from .. from + SOLVED_AT_ONCE, which are d {SOLVED_AT_ONCE, H, v}, to each row of A {n,
// block, H}: {n, H, v}
static tensor *taken_from_rows(build *b, tensor *A, tensor *d, int64_t from) {
  graph *g = b->g;
  uop *n = A->shape->dim[0], *H = A->shape->dim[2], *V = d->shape->dim[2], *one = n_(b, 1),
      *some = n_(b, SOLVED_AT_ONCE);
  tensor *by = t_reshape(g, t_slice_i(g, A, 1, from, SOLVED_AT_ONCE), DIMS(n, some, H, one));
  return t_reshape(g, t_reduce(g, t_mul(g, by, t_reshape(g, d, DIMS(one, some, H, V))), OP_ADD, 1),
                   DIMS(n, H, V));
}

// One token's d {1, H, v}: r minus the sum over the earlier rows {block, H, v}, which are known, by A {1, block, H}.
static tensor *solve_one(build *b, const block *k, tensor *A, tensor *r, tensor *known) {
  graph *g = b->g;
  uop *H = r->shape->dim[1], *own = idx_mul(g, idx_div(g, k->from, n_(b, SOLVED_AT_ONCE)), n_(b, SOLVED_AT_ONCE));
  tensor *d = r, *row = t_reshape(g, t_iota(g, n_(b, k->size)), DIMS(n_(b, 1), n_(b, k->size), n_(b, 1)));
  tensor *of_others = t_where(g, t_op2(g, OP_CMPLT, row, own), A, t_float(g, 0));
  for (int64_t s = 0; s < k->size - SOLVED_AT_ONCE; s += SOLVED_AT_ONCE)
    d = t_sub(g, d, taken_from_rows(b, of_others, t_slice_i(g, known, 0, s, SOLVED_AT_ONCE), s));
  d = t_reshape(g, d, DIMS(H, r->shape->dim[2]));
  for (int64_t s = 0; s < SOLVED_AT_ONCE - 1; s++) {
    uop *at = idx_add(g, own, n_(b, s));
    d = t_sub(g, d, t_mul(g, t_reshape(g, t_slice(g, A, 1, at, n_(b, 1)), DIMS(H, n_(b, 1))), one_row(b, known, at)));
  }
  return t_reshape(g, d, r->shape->n, r->shape->dim);
}

// The same for rows from .. from + SOLVED_AT_ONCE of the block. x {block, H, v}: r, or d if that is known; before: the
// solved rows before these.
static tensor *solve_some(build *b, tensor *A, tensor *x, tensor *const *before, int64_t from) {
  graph *g = b->g;
  uop *H = x->shape->dim[1];
  tensor *d[SOLVED_AT_ONCE], *rows = t_slice_i(g, x, 0, from, SOLVED_AT_ONCE),
                             *own = t_slice_i(g, A, 0, from, SOLVED_AT_ONCE);
  for (int64_t s = 0; s < from; s += SOLVED_AT_ONCE)
    rows = t_sub(g, rows, taken_from_rows(b, own, before[s / SOLVED_AT_ONCE], s));
  for (int64_t t = 0; t < SOLVED_AT_ONCE; t++) {
    d[t] = one_row(b, rows, n_(b, t));
    for (int64_t s = 0; s < t; s++)
      d[t] = t_sub(
          g, d[t],
          t_mul(g, t_reshape(g, t_slice_i(g, t_slice_i(g, own, 0, t, 1), 1, from + s, 1), DIMS(H, n_(b, 1))), d[s]));
  }
  return t_permute(g, t_stack_last(g, d, SOLVED_AT_ONCE), (int[]){2, 0, 1});
}

// x {T, ..} as rows of the block {block, ..}. The rows before the run are those of `earlier`, or zeros if it is NULL;
// the rows after it are zeros.
static tensor *rows_of_block(build *b, const block *k, tensor *x, tensor *earlier) {
  graph *g = b->g;
  uop *size = n_(b, k->size), *dims[MAX_DIMS];
  int n = x->shape->n;
  for (int i = 0; i < n; i++) dims[i] = i ? n_(b, 1) : size;
  tensor *zero = t_float(g, 0), *row = t_iota(g, size), *at = t_reshape(g, row, n, dims);
  tensor *own =
      t_where(g, t_op2(g, OP_CMPLT, at, k->end), t_gather(g, x, t_sub(g, row, k->from)), zero);
  return t_where(g, t_op2(g, OP_CMPLT, at, k->from), earlier ? earlier : zero, own);
}

// d for r {T, H, v} and A {T, block, H}, stored as rows of the layer's state; returns all rows of the block so far
// {end, H, v}
tensor *solve(build *b, const layer *y, const block *k, tensor *A, tensor *r) {
  graph *g = b->g;
  uop *H = r->shape->dim[1], *V = r->shape->dim[2], *rows = n_(b, block_rows(k->size));
  tensor *next = state_buffer(b, y, STATE_VALUE),
         *own = t_reshape(g, state_slot(b, y, STATE_VALUE, next), DIMS(rows, H, V)),
         *known = t_slice_i(g, own, 0, 0, k->size), *d[DELTA_BLOCK / SOLVED_AT_ONCE];
  if (uop_is_int(b->T, 1)) return keep_rows(b, y, STATE_VALUE, k, solve_one(b, k, A, r, known), false);
  r = rows_of_block(b, k, r, known);
  A = rows_of_block(b, k, A, NULL);
  for (int64_t from = 0; from < k->size; from += SOLVED_AT_ONCE) {
    tensor *some = d[from / SOLVED_AT_ONCE] = solve_some(b, A, r, d, from);
    next = t_assign(g, t_slice_i(g, own, 0, from, SOLVED_AT_ONCE), some);
    vec_push(b->effects, next);
    own = t_reshape(g, state_slot(b, y, STATE_VALUE, next), DIMS(rows, H, V));
  }
  return t_slice(g, own, 0, n_(b, 0), k->end);
}

static tensor *delta_net(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const ssm *s = &y->ssm;
  int64_t inner = s->inner, k = s->state, groups = s->groups, h = s->heads, per = h / groups, v = inner / h,
          keys = groups * k;
  uop *one = n_(b, 1), *H = n_(b, h), *K = n_(b, k), *V = n_(b, v);
  tensor *mixed, *z, *beta, *alpha;
  if (y->w[W_SSM_IN].weight) {              // per group: its query, its key, its heads' values and gates
    tensor *all = linear(b, y, W_SSM_IN, x);
    mixed = t_cat_last(g, t_cat_last(g, of_groups(b, all, groups, 0, k), of_groups(b, all, groups, k, k)),
                       of_groups(b, all, groups, 2 * k, per * v));
    z = of_groups(b, all, groups, 2 * k + per * v, per * v);
  } else {
    mixed = linear(b, y, W_ATTN_QKV, x);
    z = linear(b, y, W_ATTN_GATE, x);
  }
  if (y->w[W_SSM_BA].weight) {
    tensor *ba = linear(b, y, W_SSM_BA, x);
    beta = of_groups(b, ba, groups, 0, per);
    alpha = of_groups(b, ba, groups, per, per);
  } else {
    beta = linear(b, y, W_SSM_BETA, x);
    alpha = linear(b, y, W_SSM_ALPHA, x);
  }
  beta = sigmoid(g, beta);
  block blk = block_of(b, DELTA_BLOCK);
  tensor *decay =
      t_mul(g, softplus(g, t_add(g, alpha, bias(b, y, W_SSM_DT))), t_reshape(g, weight(b, y, W_SSM_A), DIMS(one, H)));
  tensor *sum = added_up(b, &blk, keep_rows(b, y, STATE_DECAY, &blk, decay, false)),
         *sums = keep_rows(b, y, STATE_SUM, &blk, sum, true);
  tensor *conv = one_form(g, t_silu(g, causal_conv(b, y, STATE_CONV, W_SSM_CONV1D, y->taps, mixed)));
  tensor *q = unit_rows(b, y, t_slice_i(g, conv, 1, 0, keys), 1 / sqrt((double)k)),
         *key = unit_rows(b, y, t_slice_i(g, conv, 1, keys, keys), 1);
  tensor *value = t_reshape(g, t_slice_i(g, conv, 1, 2 * keys, inner), DIMS(b->T, H, V)),
         *S = state_before(b, y, STATE_SSM, &blk, 3, (int64_t[]){h, k, v});
  tensor *faded = t_reshape(g, t_exp(g, sum), DIMS(b->T, H, one)), *s4 = t_reshape(g, S, DIMS(one, H, K, V));
  tensor *known =
      t_reduce(g, t_mul(g, s4, t_reshape(g, of_heads(b, y, key), DIMS(b->T, H, K, one))), OP_ADD, 2);
  tensor *r = t_mul(g, t_sub(g, value, t_mul(g, t_reshape(g, known, DIMS(b->T, H, V)), faded)),
                      t_reshape(g, beta, DIMS(b->T, H, one)));
  // products of each key with the earlier keys
  tensor *all_keys = keep_rows(b, y, STATE_KEY, &blk, key, true);
  tensor *A = t_mul(g, t_mul(g, products(b, y, key, all_keys), left_at(b, &blk, sum, sums, false)),
                    t_reshape(g, beta, DIMS(b->T, one, H)));
  tensor *values = solve(b, y, &blk, A, r);
  // what each query reads of the block and of the state
  sums = t_slice(g, sums, 0, n_(b, 0), blk.end);
  all_keys = t_slice(g, all_keys, 0, n_(b, 0), blk.end);
  tensor *weights = t_mul(g, products(b, y, q, all_keys), left_at(b, &blk, sum, sums, true));
  tensor *out = t_reduce(g,
                         t_mul(g, t_reshape(g, weights, DIMS(b->T, blk.end, H, one)),
                               t_reshape(g, values, DIMS(one, blk.end, H, V))),
                         OP_ADD, 1);
  tensor *read = t_reduce(g, t_mul(g, s4, t_reshape(g, of_heads(b, y, q), DIMS(b->T, H, K, one))), OP_ADD, 2);
  out = t_add(g, t_reshape(g, out, DIMS(b->T, H, V)), t_mul(g, t_reshape(g, read, DIMS(b->T, H, V)), faded));
  uop *rows = rows_done(b, &blk);
  tensor *fades, *left = left_at_end(b, &blk, sum, sums, rows, &fades);
  key = of_heads(b, y, t_slice(g, all_keys, 0, n_(b, 0), rows));
  tensor *add =
      t_mul(g, t_mul(g, t_reshape(g, key, DIMS(rows, H, K, one)), t_reshape(g, left, DIMS(rows, H, one, one))),
            t_reshape(g, t_slice(g, values, 0, n_(b, 0), rows), DIMS(rows, H, one, V)));
  add = t_reshape(g, t_reduce(g, add, OP_ADD, 0), DIMS(H, K, V));
  state_store(b, y, STATE_SSM, t_add(g, t_mul(g, S, t_reshape(g, fades, DIMS(H, one, one))), add));
  z = t_reshape(g, z, DIMS(b->T, H, V));
  out = t_mul(g, norm(b, y, W_SSM_NORM, out), s->sigmoid_gate ? sigmoid(g, z) : t_silu(g, z));
  return linear(b, y, W_SSM_OUT, t_reshape(g, out, DIMS(b->T, n_(b, inner))));
}

const part part_delta_net = {delta_load, delta_net};
