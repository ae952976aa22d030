// Softmax over a context in blocks: see flash.h.
#include "schedule/flash.h"
#include <float.h>
#include <math.h>
#include "graph/symbolic.h"

// of s {tokens, heads of keys, queries of each, 1, n}, and of the sums {tokens, heads of keys, queries of each, n, dv}
enum { HEAD_AXES = 3 };

typedef struct softmax { uop *out, *s, *v, *sink; uop *blocks; int64_t block; } softmax;

static uop *unmoved(uop *u) {
  while (u->op == OP_RESHAPE || u->op == OP_EXPAND) u = u->src[0];
  return u;
}

static bool is_reduce(const uop *u, enum op op, int axis) {
  return u->op == OP_REDUCE_AXIS && u->a == op && u->b == 1 << axis;
}

// u = exp(x - most): x.
static uop *exp_of_difference(uop *u, uop **most) {
  if (u->op != OP_EXP2 || u->src[0]->op != OP_MUL) return NULL;
  uop *p = u->src[0], *d = p->src[0]->op == OP_SUB ? p->src[0] : p->src[1];
  if (d->op != OP_SUB) return NULL;
  *most = unmoved(d->src[1]);
  return d->src[0];
}

static bool is_most(uop *most, const uop *s, const uop *sink) {
  if (!sink) return is_reduce(most, OP_MAX, HEAD_AXES + 1) && most->src[0] == s;
  if (most->op != OP_MAX) return false;
  int i = is_reduce(unmoved(most->src[0]), OP_MAX, HEAD_AXES + 1) ? 0 : 1;
  uop *of = unmoved(most->src[i]);
  return is_reduce(of, OP_MAX, HEAD_AXES + 1) && of->src[0] == s &&
         unmoved(most->src[1 - i]) == unmoved((uop *)(uintptr_t)sink);
}

// How long an axis is, as blocks x block: block divides it whatever its variables are. A constant length is one block.
static bool in_blocks(graph *g, uop *n, softmax *f) {
  idx_sum s;
  if (!idx_sum_of(n, &s)) return false;
  f->block = s.constant;
  for (int i = 0; i < s.n; i++) f->block = gcd_i64(f->block, s.coeff[i]);
  f->blocks = f->block > 0 ? idx_div(g, n, uop_idx(g, f->block)) : NULL;
  return f->block > 1 && idx_mul(g, f->blocks, uop_idx(g, f->block)) == n;
}

static bool match_softmax(graph *g, uop *u, softmax *f) {
  *f = (softmax){.out = u};
  if (u->op != OP_FDIV) return false;
  uop *o = unmoved(u->src[0]), *total = unmoved(u->src[1]), *most, *other;
  if (!is_reduce(o, OP_ADD, HEAD_AXES) || o->src[0]->op != OP_MUL) return false;
  uop *x = o->src[0]->src[0], *e = unmoved(x);
  f->v = o->src[0]->src[1];
  if (e->op != OP_EXP2) { x = f->v; e = unmoved(x); f->v = o->src[0]->src[0]; }
  if (!(f->s = exp_of_difference(e, &most))) return false;
  if (total->op == OP_ADD) {                                       // one more term: the sink's
    int i = is_reduce(unmoved(total->src[0]), OP_ADD, HEAD_AXES + 1) ? 0 : 1;
    uop *rest = unmoved(total->src[1 - i]);
    f->sink = exp_of_difference(rest, &other);
    if (!f->sink || other != most) return false;
    total = unmoved(total->src[i]);
  }
  if (!is_reduce(total, OP_ADD, HEAD_AXES + 1) || total->src[0] != e || !is_most(most, f->s, f->sink)) return false;
  const shape *s = f->s->shape, *v = f->v->shape;
  if (s->n != HEAD_AXES + 2 || v->n != HEAD_AXES + 2 || !uop_is_int(s->dim[HEAD_AXES], 1) ||
      s->dim[HEAD_AXES + 1] != v->dim[HEAD_AXES])
    return false;
  return in_blocks(g, s->dim[HEAD_AXES + 1], f);
}

// {.., n, rest} to {blocks, .., block, rest}: axis `at` is n.
static tensor *by_blocks(graph *g, tensor *x, int at, const softmax *f) {
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

static uop *rewrite_one(graph *g, const softmax *f) {
  const shape *old = f->out->shape;
  uop *one = uop_idx(g, 1), *const *h = f->s->shape->dim, *dv = f->v->shape->dim[HEAD_AXES + 1];
  tensor *s = t_reshape(g, f->s, HEAD_AXES + 1, (uop *[]){h[0], h[1], h[2], h[HEAD_AXES + 1]});
  s = t_stage(g, by_blocks(g, s, HEAD_AXES, f), false);            // {blocks, tokens, kv, per, block}
  tensor *m = t_stage(g, t_op2(g, OP_MAX, t_reduce(g, s, OP_MAX, 1 + HEAD_AXES), t_float(g, -FLT_MAX)), true);
  tensor *e = t_stage(g, t_exp(g, t_sub(g, s, m)), false);
  tensor *l = t_stage(g, t_reduce(g, e, OP_ADD, 1 + HEAD_AXES), true);
  uop *in[] = {f->blocks, h[0], h[1], h[2], uop_idx(g, f->block), one}, *part[] = {f->blocks, h[0], h[1], h[2], dv};
  tensor *o = t_reduce(g, t_mul(g, t_reshape(g, e, 6, in), by_blocks(g, f->v, HEAD_AXES, f)), OP_ADD, 1 + HEAD_AXES);
  o = t_contiguous(g, t_op2(g, OP_FDIV, t_reshape(g, o, 5, part), t_op2(g, OP_MAX, l, t_float(g, FLT_MIN))));
  tensor *most = t_reduce(g, m, OP_MAX, 0),
         *sink = f->sink ? t_reshape(g, unmoved(f->sink), 5, (uop *[]){one, one, h[1], h[2], one}) : NULL;
  if (sink) most = t_op2(g, OP_MAX, most, sink);
  tensor *w = t_mul(g, l, t_exp(g, t_sub(g, m, most))), *total = t_reduce(g, w, OP_ADD, 0);
  if (sink) total = t_add(g, total, t_exp(g, t_sub(g, sink, most)));
  return t_reshape(g, t_contiguous(g, t_op2(g, OP_FDIV, t_reduce(g, t_mul(g, o, w), OP_ADD, 0), total)), old->n,
                   old->dim);
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
