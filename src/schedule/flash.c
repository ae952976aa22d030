// Computes softmax over a context in blocks: see flash.h.
#include "schedule/flash.h"
#include <float.h>
#include <math.h>
#include "graph/symbolic.h"

// axes of s {tokens, KV heads, queries per KV head, 1, n} and of the sums {tokens, KV heads, queries per KV head, n,
// dv}
enum { HEAD_AXES = 3 };

// A softmax runs over one pair of s and v, or over several.
enum { MAX_AXES = 2 };
typedef struct span { uop *s, *v, *blocks; int64_t block; } span;
typedef struct softmax { uop *out, *sink; span of[MAX_AXES]; int n; } softmax;

static uop *unmoved(uop *u) {
  while (u->op == OP_RESHAPE || u->op == OP_EXPAND) u = u->src[0];
  return u;
}

static bool is_reduce(const uop *u, enum op op, int axis) {
  return u->op == OP_REDUCE_AXIS && u->a == op && u->b == 1 << axis;
}

// Returns x if u = exp(x - most).
static uop *exp_of_difference(uop *u, uop **most) {
  if (u->op != OP_EXP2 || u->src[0]->op != OP_MUL) return NULL;
  uop *p = u->src[0], *d = p->src[0]->op == OP_SUB ? p->src[0] : p->src[1];
  if (d->op != OP_SUB) return NULL;
  *most = unmoved(d->src[1]);
  return d->src[0];
}

// Collects the terms of u, joined by op. Returns their number, at most MAX_AXES + 1; -1 if there are more.
static int terms(uop *u, enum op op, uop *out[MAX_AXES + 1], int n) {
  u = unmoved(u);
  if (u->op == op) {
    n = terms(u->src[0], op, out, n);
    return n < 0 ? n : terms(u->src[1], op, out, n);
  }
  if (n == MAX_AXES + 1) return -1;
  out[n] = u;
  return n + 1;
}

static int axis_of(const softmax *f, const uop *s) {
  for (int i = 0; i < f->n; i++) if (f->of[i].s == s) return i;
  return -1;
}

// Is `most` the maximum over all s and the sink?
static bool is_most(uop *most, const softmax *f) {
  uop *of[MAX_AXES + 1];
  int n = terms(most, OP_MAX, of, 0);
  unsigned found = 0;
  for (int i = 0; i < n; i++) {
    int at = is_reduce(of[i], OP_MAX, HEAD_AXES + 1) ? axis_of(f, of[i]->src[0]) : -1;
    if (at < 0 && (!f->sink || of[i] != unmoved(f->sink))) return false;
    found |= 1u << (at < 0 ? MAX_AXES : at);
  }
  return n == f->n + !!f->sink && found == ((1u << f->n) - 1) + (f->sink ? 1u << MAX_AXES : 0);
}

// Writes the axis length as blocks x block, where block divides it for all values of its variables. A constant length
// is one block.
static bool in_blocks(graph *g, uop *n, span *f) {
  idx_sum s;
  if (!idx_sum_of(n, &s)) return false;
  f->block = s.constant;
  for (int i = 0; i < s.n; i++) f->block = gcd_i64(f->block, s.coeff[i]);
  f->blocks = f->block > 0 ? idx_div(g, n, uop_idx(g, f->block)) : NULL;
  return f->block > 0 && idx_mul(g, f->blocks, uop_idx(g, f->block)) == n;
}

// Matches o = sum(exp(s - most) v) and returns s and v.
static bool match_sum(uop *o, span *to, uop **e, uop **most) {
  if (!is_reduce(o, OP_ADD, HEAD_AXES) || o->src[0]->op != OP_MUL) return false;
  uop *x = o->src[0]->src[0];
  *e = unmoved(x);
  to->v = o->src[0]->src[1];
  if ((*e)->op != OP_EXP2) { x = to->v; *e = unmoved(x); to->v = o->src[0]->src[0]; }
  if (!(to->s = exp_of_difference(*e, most))) return false;
  const shape *s = to->s->shape, *v = to->v->shape;
  return s->n == HEAD_AXES + 2 && v->n == HEAD_AXES + 2 && uop_is_int(s->dim[HEAD_AXES], 1) &&
         s->dim[HEAD_AXES + 1] == v->dim[HEAD_AXES];
}

static bool match_softmax(graph *g, uop *u, softmax *f) {
  *f = (softmax){.out = u};
  if (u->op != OP_FDIV) return false;
  uop *sums[MAX_AXES + 1], *totals[MAX_AXES + 1], *e[MAX_AXES], *most = NULL, *other;
  int n = terms(u->src[0], OP_ADD, sums, 0), n_totals;
  if (n < 1 || n > MAX_AXES) return false;
  for (; f->n < n; f->n++) {
    if (!match_sum(sums[f->n], &f->of[f->n], &e[f->n], &other) || (most && other != most)) return false;
    most = other;
  }
  n_totals = terms(u->src[1], OP_ADD, totals, 0);
  unsigned found = 0;
  for (int i = 0; i < n_totals; i++) {
    int at = -1;
    for (int j = 0; j < n; j++) if (is_reduce(totals[i], OP_ADD, HEAD_AXES + 1) && totals[i]->src[0] == e[j]) at = j;
    if (at < 0) {                                                  // the remaining term is the sink
      if (f->sink || !(f->sink = exp_of_difference(totals[i], &other)) || other != most) return false;
    } else {
      found |= 1u << at;
    }
  }
  if (n_totals != n + !!f->sink || found != (1u << n) - 1 || !is_most(most, f)) return false;
  for (int i = 0; i < n; i++) if (!in_blocks(g, f->of[i].s->shape->dim[HEAD_AXES + 1], &f->of[i])) return false;
  return n > 1 || f->of[0].block > 1;
}

// {.., n, rest} to {blocks, .., block, rest}; `at` is the axis of size n.
static tensor *by_blocks(graph *g, tensor *x, int at, const span *f) {
  uop *d[MAX_DIMS] = {0};
  int order[MAX_DIMS], n = 0;
  for (int i = 0; i < x->shape->n; i++) {
    d[n++] = i == at ? f->blocks : x->shape->dim[i];
    if (i == at) d[n++] = uop_idx(g, f->block);
  }
  x = t_reshape(g, x, n, d);
  order[0] = at;
  for (int i = 0, k = 1; i < n; i++) if (i != at) order[k++] = i;
  return t_permute(g, x, order);
}

// Results of each block: its maximum of s, its sum of exponentials, its weighted mean of v
typedef struct part { tensor *m, *l, *o; } part;

static part blocks_of(graph *g, const span *f) {
  uop *one = uop_idx(g, 1), *const *h = f->s->shape->dim, *dv = f->v->shape->dim[HEAD_AXES + 1];
  tensor *s = t_reshape(g, f->s, HEAD_AXES + 1, (uop *[]){h[0], h[1], h[2], h[HEAD_AXES + 1]});
  s = t_stage(g, by_blocks(g, s, HEAD_AXES, f), false);            // {blocks, tokens, kv, per, block}
  tensor *m = t_stage(g, t_op2(g, OP_MAX, t_reduce(g, s, OP_MAX, 1 + HEAD_AXES), t_float(g, -FLT_MAX)), true);
  tensor *e = t_stage(g, t_exp(g, t_sub(g, s, m)), false);
  tensor *l = t_stage(g, t_reduce(g, e, OP_ADD, 1 + HEAD_AXES), true);
  uop *in[] = {f->blocks, h[0], h[1], h[2], uop_idx(g, f->block), one}, *out[] = {f->blocks, h[0], h[1], h[2], dv};
  tensor *o = t_reduce(g, t_mul(g, t_reshape(g, e, 6, in), by_blocks(g, f->v, HEAD_AXES, f)), OP_ADD, 1 + HEAD_AXES);
  o = t_contiguous(g, t_op2(g, OP_FDIV, t_reshape(g, o, 5, out), t_op2(g, OP_MAX, l, t_float(g, FLT_MIN))));
  return (part){m, l, o};
}

static uop *rewrite_one(graph *g, const softmax *f) {
  const shape *old = f->out->shape;
  uop *one = uop_idx(g, 1), *const *h = f->of[0].s->shape->dim;
  part of[MAX_AXES];
  tensor *most = NULL, *total = NULL, *sum = NULL;
  tensor *sink = f->sink ? t_reshape(g, unmoved(f->sink), 5, (uop *[]){one, one, h[1], h[2], one}) : NULL;
  for (int i = 0; i < f->n; i++) {
    of[i] = blocks_of(g, &f->of[i]);
    tensor *m = t_reduce(g, of[i].m, OP_MAX, 0);
    most = most ? t_op2(g, OP_MAX, most, m) : m;
  }
  if (sink) most = t_op2(g, OP_MAX, most, sink);
  for (int i = 0; i < f->n; i++) {
    tensor *w = t_mul(g, of[i].l, t_exp(g, t_sub(g, of[i].m, most))), *l = t_reduce(g, w, OP_ADD, 0),
           *o = t_reduce(g, t_mul(g, of[i].o, w), OP_ADD, 0);
    total = total ? t_add(g, total, l) : l;
    sum = sum ? t_add(g, sum, o) : o;
  }
  if (sink) total = t_add(g, total, t_exp(g, t_sub(g, sink, most)));
  return t_reshape(g, t_contiguous(g, t_op2(g, OP_FDIV, sum, total)), old->n, old->dim);
}

uop *flash_attention(graph *g, uop *sink) {
  arena *mem = arena_new();
  uop_list order = uop_toposort(mem, &sink, 1);
  map done = {0};
  for (size_t i = 0; i < order.n; i++) {
    uop *u = order.at[i], **src = ARENA_ARRAY(mem, uop *, u->nsrc + 1);
    for (size_t j = 0; j < u->nsrc; j++) src[j] = map_ptr(&done, u->src[j]);
    uop *to = uop_with_src(g, u, src);
    softmax f;
    if (match_softmax(g, to, &f)) to = rewrite_one(g, &f);
    map_put(&done, u, to);
  }
  uop *r = map_ptr(&done, sink);
  map_free(&done);
  arena_free(mem);
  return r;
}
