// Mixture of experts: a router scores all experts for every token, the best few are evaluated, and their weighted
// outputs are added.
//
// An expert is an index. The numbers of the chosen experts are a small integer tensor, and `w[chosen[t, k], row,
// column]` is an expression in which that number is part of the address: no weight is copied and no expert has a kernel
// of its own. Choosing is counting: the rank of an expert is the number of experts that beat it (the lower index wins a
// tie), and the expert of rank k is choice k.
//
// A single token reads its own experts. A chunk of a prompt is sorted by expert, so that an expert's weights are read
// once for all of its tokens: the pairs (token, choice) of one expert are contiguous, in tiles (model_shape.tile) that
// belong to one expert each. The place of a pair is a sum of comparisons again: the first place of its expert, plus the
// number of earlier pairs of the same expert. A product then runs over {tile, place, row}, with one expert per tile.
// The number of tiles in use depends on the data; there is memory for the most that a chunk can need, and values at
// places without a pair are never read.
//
// The output of each pair is stored, and those of a token are added, weighted, in the order of its choices: the same
// sum for one token and for many.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <string.h>
#include "model/dequant.h"
#include "model/model_impl.h"
#include "model/stored.h"

enum { MAX_EXPERTS = 4096 };

// --- loading --------------------------------------------------------------------------------------------------------

static int load_gating(loader *l, layer *y) {
  experts *e = &y->moe;
  int gating;
  bool biased = y->w[W_EXP_PROBS_B].bias;
  // some files with a bias do not say sigmoid
  enum gating usual = e->gating ? e->gating : biased ? GATING_SIGMOID : GATING_SOFTMAX;
  if (key_count_or(l, "expert_gating_func", 0, 0, GATING_COUNT - 1, &gating)) return -1;
  e->gating = gating ? (enum gating)gating : usual;
  if (gguf_bool_opt(l->f, key(l, "expert_weights_norm"), e->norm, &e->norm, l->err) ||
      key_number_or(l, "expert_weights_scale", 1, 0, 1e6, &e->scale) ||
      key_number_or(l, "router_logit_softcapping", 0, 0, 1e6, &e->cap))
    return -1;
  if (e->scale == 0) e->scale = 1;
  if (key_count_or(l, "expert_group_count", 1, 0, MAX_EXPERTS, &e->groups) ||
      key_count_or(l, "expert_group_used_count", (uint32_t)e->groups, 0, MAX_EXPERTS, &e->groups_used))
    return -1;
  if (e->groups < 1) e->groups = 1;
  if (e->n % e->groups)
    return gguf_fail(l->f, key(l, "expert_group_count"), l->err, "%d does not divide expert_count = %d", e->groups,
                     e->n);
  if (e->groups_used < 1 || e->groups_used > e->groups) e->groups_used = e->groups;
  if (e->used > e->n / e->groups * e->groups_used)
    return gguf_fail(l->f, key(l, "expert_used_count"), l->err, "%d experts of %d groups of %d", e->used,
                     e->groups_used, e->n / e->groups);
  return 0;
}

// The bias that is added to experts' probabilities for the choice only. Some files lack ".bias" after its name.
static int want_probs_bias(loader *l, layer *y, int n) {
  tensor_ref *r = &y->w[W_EXP_PROBS_B];
  unsigned flags = y->ff == &part_moe_by_token ? 0 : bias_if(l, HAS_PROBS_BIAS);
  char name[64];
  snprintf(name, sizeof name, "blk.%d.exp_probs_b", y->block);
  if (!gguf_tensor_find(l->f, name))
    return want_vector(l, y, W_EXP_PROBS_B, n, WANT_OPTIONAL | flags);
  if (want_vector(l, y, W_EXP_PROBS_B, n, WANT_BARE)) return -1;
  *r = (tensor_ref){.bias = r->weight, .bias_is_vector = true};
  return 0;
}

static int load_moe(loader *l, layer *y) {
  experts *e = &y->moe;
  int64_t d = l->m->n_embd;
  int shared;
  bool gated = !(l->m->arch->flags & ARCH_PLAIN_FFN);
  e->ff = y->n_ff;
  if (key_count(l, "expert_count", 1, MAX_EXPERTS, &e->n) ||
      key_count_at(l, "expert_used_count", y->index, 1, (uint32_t)e->n, &e->used) ||
      (has_key(l, "expert_feed_forward_length") &&
       key_count_at(l, "expert_feed_forward_length", y->index, 1, 1 << 24, &e->ff)) ||
      key_count_or(l, "expert_shared_count", (uint32_t)e->shared, 0, 1 << 10, &shared) ||
      key_count_or(l, e->latent_normed ? "expert_latent_length" : "moe_latent_size", 0, 0, 1 << 20, &e->latent) ||
      key_count_or(l, "expert_shared_feed_forward_length",
                   (uint32_t)(shared * (int64_t)e->ff < 1 << 24 ? shared * e->ff : 1 << 24), 0, 1 << 24, &e->shared_ff))
    return -1;
  int64_t in = e->latent ? e->latent : d;
  enum tensor_id down = e->latent_normed ? W_FFN_ROUTED_DOWN : W_FFN_LATENT_DOWN, up = down + 1;
  if (e->latent && (want_matrix(l, y, down, d, in, 0) || want_matrix(l, y, up, in, d, 0))) return -1;
  if (e->latent && e->latent_normed && want_vector(l, y, W_FFN_ROUTED_NORM, in, WANT_OPTIONAL)) return -1;
  unsigned bias = bias_if(l, HAS_EXPERT_BIAS);
  unsigned scale = l->m->arch->has & HAS_ROUTER_SCALE ? WANT_SCALE : 0;
  if (want_matrix(l, y, W_FFN_GATE_INP, d, e->n, bias | scale) ||
      want_probs_bias(l, y, e->n) || load_gating(l, y) ||
      (gated && want(l, y, W_FFN_GATE_UP_EXPS, in, 2 * (int64_t)e->ff, e->n, WANT_OPTIONAL)))
    return -1;
  if (!y->w[W_FFN_GATE_UP_EXPS].weight && ((gated && want(l, y, W_FFN_GATE_EXPS, in, e->ff, e->n, bias)) ||
                                           want(l, y, W_FFN_UP_EXPS, in, e->ff, e->n, bias)))
    return -1;
  if (want(l, y, W_FFN_DOWN_EXPS, e->ff, in, e->n, bias)) return -1;
  if (want_vector(l, y, W_FFN_EXPS_BIAS, in, WANT_BARE | WANT_OPTIONAL)) return -1;
  if (!e->shared_ff) return 0;
  if (gated && want_matrix(l, y, W_FFN_GATE_SHEXP, d, e->shared_ff, WANT_OPTIONAL)) return -1;
  // gate and up as one tensor, gate first
  int64_t rows = gated && !y->w[W_FFN_GATE_SHEXP].weight ? 2 * (int64_t)e->shared_ff : e->shared_ff;
  return want_matrix(l, y, W_FFN_UP_SHEXP, d, rows, 0) || want_matrix(l, y, W_FFN_DOWN_SHEXP, e->shared_ff, d, 0) ||
             want_vector(l, y, W_FFN_GATE_INP_SHEXP, d, l->m->arch->has & HAS_SHARED_GATE ? 0 : WANT_OPTIONAL)
           ? -1
           : 0;
}

// --- integers -------------------------------------------------------------------------------------------------------

static tensor *i32(graph *g, int64_t v) { return uop_int(g, DT_I32, v); }
static tensor *iota(const build *b, uop *n) { return t_cast(b->g, t_iota(b->g, n), DT_I32); }
static tensor *equal(graph *g, tensor *x, tensor *y) { return t_op2(g, OP_CMPEQ, x, y); }
static tensor *less_than(graph *g, tensor *x, tensor *y) { return t_op2(g, OP_CMPLT, x, y); }
static tensor *drop_axis(graph *g, tensor *x, int axis) {      // an axis of size 1
  uop *d[MAX_DIMS];
  int n = 0;
  for (int i = 0; i < x->shape->n; i++) if (i != axis) d[n++] = x->shape->dim[i];
  return t_reshape(g, x, n, d);
}
// The sum along an axis of `value` where cond holds.
static tensor *sum_where(graph *g, tensor *cond, tensor *value, int axis) {
  return drop_axis(g, t_reduce(g, t_where(g, cond, value, uop_const_like(g, value, 0)), OP_ADD, axis), axis);
}

// --- the router -----------------------------------------------------------------------------------------------------

tensor *sigmoid(graph *g, tensor *x) {
  return t_op1(g, OP_RECIP, t_add(g, t_exp(g, t_op1(g, OP_NEG, x)), t_float(g, 1)));
}

// The rank of each element of the last axis: how many others beat it.
static tensor *rank_in_last(graph *g, tensor *s) {
  int n = s->shape->n;
  uop *col[MAX_DIMS], *row[MAX_DIMS];
  for (int i = 0; i < n; i++) col[i] = row[i] = s->shape->dim[i];
  col[n] = row[n - 1] = uop_idx(g, 1);
  row[n] = s->shape->dim[n - 1];
  tensor *one = t_reshape(g, s, n + 1, col), *other = t_reshape(g, s, n + 1, row), *i = t_iota(g, s->shape->dim[n - 1]);
  tensor *before = less_than(g, i, t_reshape(g, i, 2, (uop *[]){s->shape->dim[n - 1], uop_idx(g, 1)}));
  tensor *beats = t_op2(g, OP_OR, less_than(g, one, other), t_op2(g, OP_AND, equal(g, one, other), before));
  return sum_where(g, beats, i32(g, 1), n);
}

// Scores of experts outside the best groups become -infinity; the score of a group is the sum of its two best.
static tensor *best_groups(const build *b, const experts *e, tensor *s) {
  graph *g = b->g;
  int64_t per = e->n / e->groups;
  tensor *in = t_reshape(g, s, DIMS(b->T, n_(b, e->groups), n_(b, per)));
  tensor *group = sum_where(g, less_than(g, rank_in_last(g, in), i32(g, 2)), in, 2);
  tensor *keep =
    t_reshape(g, less_than(g, rank_in_last(g, group), i32(g, e->groups_used)), DIMS(b->T, n_(b, e->groups), n_(b, 1)));
  return t_reshape(g, t_where(g, keep, in, t_float(g, -INFINITY)), DIMS(b->T, n_(b, e->n)));
}

static tensor *apply_gating(const build *b, const experts *e, tensor *logits) {
  graph *g = b->g;
  switch (e->gating) {
  case GATING_SOFTMAX: return t_softmax(g, logits, 1);
  case GATING_SIGMOID: return sigmoid(g, logits);
  case GATING_SQRT_SOFTPLUS: return t_op1(g, OP_SQRT, softplus(g, logits));
  default: return logits;
  }
}

static tensor *router(const build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  if (!(b->m->arch->has & HAS_ROUTER_SCALE)) return linear(b, y, W_FFN_GATE_INP, x);
  x = t_mul(g, t_rmsnorm(g, x, NULL, b->m->eps), t_scale(g, scale(b, y, W_FFN_GATE_INP), 1 / sqrt(b->m->n_embd)));
  return t_matmul(g, x, weight(b, y, W_FFN_GATE_INP));
}

// The weight of choice k with logit m (Phi's sparse mixer): its softmax among the experts that are not chosen before it
// and whose logits are below m by at most a fiftieth of their own size, or of m. ranks {T, 1, n}, logits {T, n}, best
// {T, used}: logits of the chosen
static tensor *near(const build *b, const experts *e, tensor *ranks, tensor *logits, tensor *best) {
  graph *g = b->g;
  uop *used = n_(b, e->used), *one = n_(b, 1), *n = n_(b, e->n);
  tensor *s = t_reshape(g, logits, DIMS(b->T, one, n)), *m = t_reshape(g, best, DIMS(b->T, used, one)),
         *below = t_sub(g, m, s);
  tensor *size = t_op2(g, OP_MAX, t_op2(g, OP_MAX, s, t_op1(g, OP_NEG, s)), m);
  tensor *far = less_than(g, t_scale(g, size, 0.02), below),
         *gone = less_than(g, ranks, t_reshape(g, iota(b, used), DIMS(one, used, one)));
  tensor *left = t_where(g, t_op2(g, OP_OR, far, gone), t_float(g, 0), t_exp(g, t_op1(g, OP_NEG, below)));
  return t_op1(g, OP_RECIP, drop_axis(g, t_reduce(g, left, OP_ADD, 2), 2));
}

// The experts with the best scores: {T, used}. p: the output of the gating function
static tensor *best_experts(const build *b, const layer *y, tensor *logits, tensor *p, tensor **ranks) {
  graph *g = b->g;
  const experts *e = &y->moe;
  uop *T = b->T, *n = n_(b, e->n), *used = n_(b, e->used), *one = n_(b, 1);
  tensor *s = p;
  bool biased = y->w[W_EXP_PROBS_B].bias;
  if (biased) s = t_add(g, p, bias(b, y, W_EXP_PROBS_B));
  else if (e->groups == 1) s = logits;                         // the gating function keeps the order
  if (e->groups_used < e->groups) s = best_groups(b, e, s);
  tensor *k = t_reshape(g, iota(b, used), DIMS(one, used, one)), *r = rank_in_last(g, s);
  if (e->gating == GATING_NEAR) r = one_form(g, r);            // a sum of floats depends on them
  *ranks = t_reshape(g, r, DIMS(T, one, n));
  return sum_where(g, equal(g, *ranks, k), iota(b, n), 2);
}

// The experts that a table names for the token: {T, used}
static tensor *experts_of_token(const build *b, const layer *y) {
  graph *g = b->g;
  tensor *of = t_cast(g, t_gather(g, weight(b, y, W_FFN_GATE_TID2EID), token_ids(b)), DT_I32);
  return t_op2(g, OP_MIN, t_op2(g, OP_MAX, of, i32(g, 0)), i32(g, y->moe.n - 1));
}

// chosen {T, used}, I32 in 0..n-1, and their weights {T, used}
static void route(const build *b, const layer *y, tensor *x, tensor **chosen, tensor **weights) {
  graph *g = b->g;
  const experts *e = &y->moe;
  uop *T = b->T, *n = n_(b, e->n), *one = n_(b, 1);
  tensor *logits = makes_several(g, soft_cap(b, router(b, y, x), e->cap)), *p = apply_gating(b, e, logits), *r = NULL;
  *chosen = y->w[W_FFN_GATE_TID2EID].weight ? experts_of_token(b, y) : best_experts(b, y, logits, p, &r);
  tensor *row = t_op2(g, OP_MUL, t_reshape(g, t_iota(g, T), DIMS(T, one)), n);
  tensor *w = t_gather(g, t_reshape(g, p, DIMS(idx_mul(g, T, n))), t_add(g, row, t_cast(g, *chosen, DT_IDX)));
  if (e->gating == GATING_SOFTMAX_CHOSEN) w = t_softmax(g, w, 1);
  if (e->gating == GATING_NEAR) w = near(b, e, r, logits, w);
  if (e->norm) w = t_op2(g, OP_FDIV, w, t_op2(g, OP_MAX, t_reduce(g, w, OP_ADD, 1), t_float(g, 6.103515625e-5)));
  *weights = ahead(g, t_scale(g, w, e->scale));
}

// --- products with chosen experts -----------------------------------------------------------------------------------

// For each expert, over the tokens that chose it.
static void store_expert_sums(const build *b, int weight, int64_t n, const choice *c, tensor *x) {
  graph *g = b->g;
  uop *pairs = idx_mul(g, c->a, c->b), *one = n_(b, 1), *in = x->shape->dim[2];
  tensor *all = t_expand(g, x, 3, (uop *[]){c->a, c->b, in}),
         *square = t_reshape(g, t_mul(g, all, all), DIMS(one, pairs, in));
  tensor *chosen =
    equal(g, t_reshape(g, c->which, DIMS(one, pairs)), t_reshape(g, iota(b, n_(b, n)), DIMS(n_(b, n), one)));
  store_sums(b, weight, 0, sum_where(g, t_reshape(g, chosen, DIMS(n_(b, n), pairs, one)), square, 1));
  store_sums(b, weight, 1, sum_where(g, chosen, t_float(g, 1), 1));
}

static tensor *expert_product(const build *b, const layer *y, enum tensor_id id, const choice *c, tensor *x) {
  graph *g = b->g;
  const tensor_ref *r = &y->w[id];
  const gguf_tensor *t = gguf_tensor_at(b->m->file, (size_t)r->weight - 1);
  if (b->s->sums) store_expert_sums(b, r->weight, t->ne[2], c, x);
  uop *in = n_(b, t->ne[0]), *rows = n_(b, t->ne[1]), *one = n_(b, 1), *each = c->which->shape->n == 1 ? one : c->b;
  tensor *w = t_reshape(g, dequant_chosen(g, t->format, r->weight - 1, t->ne[2], t->ne[1], t->ne[0], c->which),
                        DIMS(c->a, each, rows, in));
  x = t_reshape(g, x, DIMS(c->a, x->shape->dim[1], one, in));
  tensor *out = t_reshape(g, t_reduce(g, t_mul(g, x, w), OP_ADD, 3), DIMS(c->a, c->b, rows));
  if (r->scale) out = t_mul(g, out, t_reshape(g, t_gather(g, scale(b, y, id), c->which), DIMS(c->a, each, one)));
  out = adapt_experts(b, r->weight, c, x, out);
  if (r->bias) out = t_add(g, out, t_reshape(g, t_gather(g, bias(b, y, id), c->which), DIMS(c->a, each, rows)));
  return out;
}

// Clamped: g sigmoid(1.702 g) (u + 1) with g = min(gate, 7), u = up within -7..7
tensor *gated(const build *b, const layer *y, tensor *gate_, tensor *up, double limit) {
  graph *g = b->g;
  bool clamped = y->moe.clamped;
  if (limit > 0 && y->moe.limit_first) gate_ = t_op2(g, OP_MIN, gate_, t_float(g, limit));
  if (!clamped) gate_ = activate(b, y, gate_);
  if (b->m->act == ACT_SITU) up = soft_cap(b, up, b->m->situ_up);
  if (clamped) limit = 7;
  if (limit > 0) {
    if (!y->moe.limit_first) gate_ = t_op2(g, OP_MIN, gate_, t_float(g, limit));
    up = t_op2(g, OP_MAX, t_op2(g, OP_MIN, up, t_float(g, limit)), t_float(g, -limit));
  }
  if (!clamped) return t_mul(g, gate_, up);
  tensor *out = t_op2(g, OP_FDIV, gate_, t_add(g, t_exp(g, t_scale(g, gate_, -1.702)), t_float(g, 1)));
  return t_mul(g, out, t_add(g, up, t_float(g, 1)));
}


// x {A, 1 or B, n} through the chosen experts: {A, B, n}, stored
static tensor *eval_experts(const build *b, const layer *y, const choice *c, tensor *x) {
  graph *g = b->g;
  tensor *gate_, *up, *h;
  if (b->m->arch->flags & ARCH_PLAIN_FFN) {
    h = activate(b, y, expert_product(b, y, W_FFN_UP_EXPS, c, x));
  } else if (y->w[W_FFN_GATE_UP_EXPS].weight) {
    tensor *both = expert_product(b, y, W_FFN_GATE_UP_EXPS, c, x);
    gate_ = t_slice_i(g, both, 2, 0, y->moe.ff);
    up = t_slice_i(g, both, 2, y->moe.ff, y->moe.ff);
    h = gated(b, y, gate_, up, y->moe.limit);
  } else {
    gate_ = expert_product(b, y, W_FFN_GATE_EXPS, c, x);
    up = expert_product(b, y, W_FFN_UP_EXPS, c, x);
    h = gated(b, y, gate_, up, y->moe.limit);
  }
  return one_form(g, expert_product(b, y, W_FFN_DOWN_EXPS, c, h));
}

// --- a chunk, sorted by expert --------------------------------------------------------------------------------------

// chosen {T, used} and x {T, n}, whose rows are multiplied by weights {T, used} (NULL: unweighted): the outputs {T,
// used, n}
static tensor *evaluate_sorted(const build *b, const layer *y, tensor *chosen, tensor *x, tensor *weights) {
  graph *g = b->g;
  const experts *e = &y->moe;
  uop *one = n_(b, 1), *n = n_(b, e->n), *pairs = idx_mul(g, b->T, n_(b, e->used)), *tile = n_(b, b->s->tile);
  uop *tiles = idx_div(g, idx_add(g, pairs, n_(b, e->n * (b->s->tile - 1))), tile),
      *places = idx_mul(g, tiles, tile);
  tensor *pair = t_reshape(g, chosen, DIMS(pairs)), *expert = iota(b, n);
  // the tiles of each expert, and its first one
  tensor *count =
    sum_where(g, equal(g, t_reshape(g, pair, DIMS(one, pairs)), t_reshape(g, expert, DIMS(n, one))), i32(g, 1), 1);
  tensor *needs = t_op2(g, OP_IDIV, t_add(g, count, i32(g, b->s->tile - 1)), i32(g, b->s->tile));
  tensor *first =
    sum_where(g, less_than(g, expert, t_reshape(g, expert, DIMS(n, one))), t_reshape(g, needs, DIMS(one, n)), 1);
  // the expert of a tile: the number of experts whose last tile is before it
  tensor *ends = t_reshape(g, t_add(g, first, needs), DIMS(one, n)),
         *number = t_reshape(g, iota(b, tiles), DIMS(tiles, one));
  tensor *which =
    sum_where(g, t_op2(g, OP_CMPEQ, less_than(g, number, ends), uop_int(g, DT_BOOL, 0)), i32(g, 1), 1);
  // the place of a pair, and the token at a place
  tensor *i = t_iota(g, pairs),
         *earlier =
           t_op2(g, OP_AND, equal(g, t_reshape(g, pair, DIMS(one, pairs)), t_reshape(g, pair, DIMS(pairs, one))),
                 less_than(g, i, t_reshape(g, i, DIMS(pairs, one))));
  tensor *place = t_op2(g, OP_MUL, t_gather(g, first, pair), i32(g, b->s->tile));
  place = t_add(g, place, sum_where(g, earlier, i32(g, 1), 1));
  tensor *here = equal(g, t_reshape(g, place, DIMS(one, pairs)), t_reshape(g, iota(b, places), DIMS(places, one)));
  tensor *token = t_cast(g, t_op2(g, OP_IDIV, i, n_(b, e->used)), DT_I32);
  tensor *from =
    t_reshape(g, sum_where(g, here, t_reshape(g, token, DIMS(one, pairs)), 1), DIMS(tiles, tile));
  tensor *in = t_gather(g, x, from);
  if (weights) {
    tensor *by = sum_where(g, here, t_reshape(g, weights, DIMS(one, pairs)), 1);
    in = t_mul(g, in, t_reshape(g, by, DIMS(tiles, tile, one)));
  }
  tensor *out = eval_experts(b, y, &(choice){which, from, tiles, tile}, in);
  return t_gather(g, t_reshape(g, out, DIMS(places, x->shape->dim[1])),
                  t_reshape(g, place, DIMS(b->T, n_(b, e->used))));
}

// --- all of it ------------------------------------------------------------------------------------------------------

static tensor *shared_expert(const build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  tensor *up = linear(b, y, W_FFN_UP_SHEXP, x), *h;
  int64_t f = y->moe.shared_ff;
  if (b->m->arch->flags & ARCH_PLAIN_FFN) {
    h = activate(b, y, up);
  } else if (y->w[W_FFN_GATE_SHEXP].weight) {
    h = gated(b, y, linear(b, y, W_FFN_GATE_SHEXP, x), up, y->moe.shared_limit);
  } else {
    h = gated(b, y, t_slice_i(g, up, 1, 0, f), t_slice_i(g, up, 1, f, f), y->moe.shared_limit);
  }
  tensor *out = linear(b, y, W_FFN_DOWN_SHEXP, h);
  if (!y->w[W_FFN_GATE_INP_SHEXP].weight) return ahead(g, out);
  tensor *open = sigmoid(g, makes_several(g, t_reduce(g, t_mul(g, x, weight(b, y, W_FFN_GATE_INP_SHEXP)), OP_ADD, 1)));
  return ahead(g, t_mul(g, out, open));
}

// The weighted output of the chosen experts for x {T, n}: {T, n}
static tensor *weighed_experts(build *b, const layer *y, tensor *chosen, tensor *w, tensor *in) {
  graph *g = b->g;
  const experts *e = &y->moe;
  uop *used = n_(b, e->used), *one = n_(b, 1);
  tensor *out, *by = t_reshape(g, w, DIMS(b->T, used, one));
  if (b->s->chunk > 1 && !b->s->sums) {
    out = evaluate_sorted(b, y, chosen, in, e->weighted_in ? w : NULL);
  } else {
    in = t_reshape(g, in, DIMS(b->T, one, in->shape->dim[1]));
    out = eval_experts(b, y, &(choice){chosen, NULL, b->T, used}, e->weighted_in ? t_mul(g, in, by) : in);
  }
  return drop_axis(g, t_reduce(g, e->weighted_in ? out : t_mul(g, out, by), OP_ADD, 1), 1);
}

// The sum over the small experts that chosen experts share with their neighbours; one that several chosen experts share
// counts several times.
static tensor *small_experts(build *b, const layer *y, tensor *chosen, tensor *w, tensor *in) {
  layer small = *y;
  small.moe.n /= y->moe.in_group;
  small.moe.ff = y->moe.group_ff;
  small.w[W_FFN_GATE_UP_EXPS] = (tensor_ref){0};
  small.w[W_FFN_GATE_EXPS] = y->w[W_FFN_GATE_CHEXPS];
  small.w[W_FFN_UP_EXPS] = y->w[W_FFN_UP_CHEXPS];
  small.w[W_FFN_DOWN_EXPS] = y->w[W_FFN_DOWN_CHEXPS];
  tensor *of = t_op2(b->g, OP_IDIV, chosen, i32(b->g, y->moe.in_group));
  return t_scale(b->g, weighed_experts(b, &small, of, w, in), y->moe.group_scale);
}

static tensor *mixture(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  const experts *e = &y->moe;
  tensor *chosen, *w, *in = x;
  enum tensor_id down = e->latent_normed ? W_FFN_ROUTED_DOWN : W_FFN_LATENT_DOWN;
  if (e->latent) in = linear(b, y, down, x);
  route(b, y, b->router_in ? b->router_in : x, &chosen, &w);
  tensor *out = weighed_experts(b, y, chosen, w, in);
  if (e->in_group) out = t_add(g, out, small_experts(b, y, chosen, w, in));
  if (y->w[W_FFN_EXPS_BIAS].weight) out = t_add(g, out, weight(b, y, W_FFN_EXPS_BIAS));
  if (y->w[W_FFN_ROUTED_NORM].weight) out = norm(b, y, W_FFN_ROUTED_NORM, out);
  if (e->latent) out = linear(b, y, down + 1, out);
  if (!e->shared_ff) return out;
  out = t_add(g, out, shared_expert(b, y, x));
  return e->averaged ? t_scale(g, out, 0.5) : out;
}

const part part_moe = {load_moe, mixture};

// --- variant: neighbours share a small expert as well (Grove MoE) ----------------------------------------------------

static int load_groups(loader *l, layer *y) {
  experts *e = &y->moe;
  int64_t d = l->m->n_embd;
  if (load_moe(l, y) || key_count(l, "experts_per_group", 1, (uint32_t)e->n, &e->in_group) ||
      key_count_or(l, "expert_chunk_feed_forward_length", (uint32_t)y->head_dim, 1, 1 << 24, &e->group_ff) ||
      key_number(l, "expert_group_scale", -1e6, 1e6, &e->group_scale))
    return -1;
  if (e->n % e->in_group)
    return gguf_fail(l->f, key(l, "experts_per_group"), l->err, "%d does not divide expert_count = %d", e->in_group,
                     e->n);
  int64_t n = e->n / e->in_group;
  return want(l, y, W_FFN_GATE_CHEXPS, d, e->group_ff, n, 0) || want(l, y, W_FFN_UP_CHEXPS, d, e->group_ff, n, 0) ||
             want(l, y, W_FFN_DOWN_CHEXPS, e->group_ff, d, n, 0)
           ? -1
           : 0;
}

const part part_moe_in_groups = {load_groups, mixture};

// --- variant: a table names the experts of each token, and the router weighs them (DeepSeek V4) ----------------------

static int load_by_token(loader *l, layer *y) {
  return load_moe(l, y) || want_matrix(l, y, W_FFN_GATE_TID2EID, y->moe.used, l->m->n_vocab, WANT_INTEGERS) ? -1 : 0;
}

const part part_moe_by_token = {load_by_token, mixture};

// --- variant: a dense feed-forward in parallel, both with norms of their own and both reading the stream (Gemma 4) ---

static int load_both(loader *l, layer *y) {
  if (want_norm(l, y, W_FFN_NORM) || part_dense.load(l, y) || want_norm(l, y, W_POST_FFW_NORM_1) ||
      want_norm(l, y, W_PRE_FFW_NORM_2) || load_moe(l, y) || want_norm(l, y, W_POST_FFW_NORM_2))
    return -1;
  return want_scale(l, y, W_FFN_DOWN_EXPS);
}

static tensor *dense_and_mixture(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  tensor *dense = norm(b, y, W_POST_FFW_NORM_1, part_dense.graph(b, y, norm(b, y, W_FFN_NORM, x)));
  b->router_in = x;
  tensor *chosen = norm(b, y, W_POST_FFW_NORM_2, mixture(b, y, norm(b, y, W_PRE_FFW_NORM_2, x)));
  return t_add(g, dense, chosen);
}

const part part_dense_and_moe = {load_both, dense_and_mixture};

// --- variant: dense and experts are added and divided by the root of 2 (Grok) ----------------------------------------

static int load_with(loader *l, layer *y) { return part_dense.load(l, y) || load_moe(l, y) ? -1 : 0; }
static tensor *dense_with_mixture(build *b, const layer *y, tensor *x) {
  return t_scale(b->g, t_add(b->g, part_dense.graph(b, y, x), mixture(b, y, x)), M_SQRT1_2);
}

const part part_dense_with_moe = {load_with, dense_with_mixture};

// --- variant: the experts read the stream before attention, through a norm of their own (Arctic) ---------------------

static int load_early(loader *l, layer *y) {
  layer dense = *y;
  dense.n_ff = l->m->n_embd;                                   // fixed: no key
  if (part_dense.load(l, &dense)) return -1;
  memcpy(y->w, dense.w, sizeof y->w);
  return want_norm(l, y, W_FFN_NORM_EXPS) || load_moe(l, y) ? -1 : 0;
}

static tensor *dense_and_early(build *b, const layer *y, tensor *x) {
  layer dense = *y;
  dense.n_ff = b->m->n_embd;
  return t_add(b->g, part_dense.graph(b, &dense, x), mixture(b, y, norm(b, y, W_FFN_NORM_EXPS, b->entered)));
}

const part part_dense_and_early_moe = {load_early, dense_and_early};
