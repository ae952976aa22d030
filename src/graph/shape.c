// Shapes of tensor ops, and their checks: a malformed tensor op fails here, when it is made.
#include "graph/shape.h"
#include "graph/symbolic.h"

static const shape *dims_from_sources(graph *g, const uop *u) { return shape_new(g, (int)u->nsrc - 1, u->src + 1); }

static const shape *need_shape(const uop *u) {
  const shape *s = u->src[0]->shape;
  die_if(!s, "%s of a scalar", op_name((enum op)u->op));
  return s;
}

static const shape *shape_of_sources(const uop *u) {
  const shape *s = NULL;
  for (size_t i = 0; i < u->nsrc; i++) {
    const shape *t = u->src[i]->shape;
    die_if(t && s && t != s, "%s of tensors of different shapes", op_name((enum op)u->op));
    if (t) s = t;
  }
  return s;
}

static const shape *permuted(graph *g, const uop *u) {
  const shape *s = need_shape(u);
  uop *d[MAX_DIMS];
  unsigned seen = 0;
  die_if(u->b != s->n, "PERMUTE of %lld axes over %d", (long long)u->b, s->n);
  for (int i = 0; i < s->n; i++) {
    int from = (int)(u->a >> 4 * i & 15);
    die_if(from >= s->n || (seen >> from & 1), "PERMUTE names an axis twice, or one that is not there");
    seen |= 1u << from;
    d[i] = s->dim[from];
  }
  return shape_new(g, s->n, d);
}

static const shape *padded(graph *g, const uop *u) {
  const shape *s = need_shape(u);
  uop *d[MAX_DIMS];
  die_if(u->nsrc != 1 + 2 * (size_t)s->n, "PAD of %u sources over %d axes", u->nsrc, s->n);
  for (int i = 0; i < s->n; i++) d[i] = idx_add(g, idx_add(g, s->dim[i], u->src[1 + 2 * i]), u->src[2 + 2 * i]);
  return shape_new(g, s->n, d);
}

static const shape *shrunk(graph *g, const uop *u) {
  const shape *s = need_shape(u);
  uop *d[MAX_DIMS];
  die_if(u->nsrc != 1 + 2 * (size_t)s->n, "SHRINK of %u sources over %d axes", u->nsrc, s->n);
  for (int i = 0; i < s->n; i++) d[i] = u->src[2 + 2 * i];
  return shape_new(g, s->n, d);
}

static const shape *gathered(graph *g, const uop *u) {
  const shape *x = need_shape(u), *ids = u->src[1]->shape;
  uop *d[2 * MAX_DIMS];
  int n = 0;
  for (int i = 0; ids && i < ids->n; i++) d[n++] = ids->dim[i];
  for (int i = 1; i < x->n; i++) d[n++] = x->dim[i];
  return shape_new(g, n, d);
}

static const shape *stacked(graph *g, const uop *u) {
  const shape *s = shape_of_sources(u);
  if (!s) return NULL;
  uop *d[MAX_DIMS + 1];
  for (int i = 0; i < s->n; i++) d[i] = s->dim[i];
  d[s->n] = uop_idx(g, u->nsrc);
  return shape_new(g, s->n + 1, d);
}

static const shape *recast(graph *g, const uop *u) {
  const shape *s = u->src[0]->shape;
  int from = dtype_size((enum dtype)u->src[0]->dt), to = dtype_size((enum dtype)u->dt);
  if (!s || from == to) return s;
  uop *d[MAX_DIMS];
  for (int i = 0; i < s->n; i++) d[i] = s->dim[i];
  uop *bytes = idx_mul(g, d[s->n - 1], uop_idx(g, from));
  die_if(bytes->op != OP_CONST || bytes->a % to, "BITCAST of a last axis that does not fit");
  d[s->n - 1] = uop_idx(g, bytes->a / to);
  return shape_new(g, s->n, d);
}

const shape *shape_derive(graph *g, const uop *u) {
  switch (u->op) {
  case OP_BUFFER: { uop *n = uop_idx(g, u->b); return shape_new(g, 1, &n); }
  case OP_RESHAPE: need_shape(u); return dims_from_sources(g, u);
  case OP_EXPAND:
    die_if(need_shape(u)->n != (int)u->nsrc - 1, "EXPAND of another number of axes");
    return dims_from_sources(g, u);
  case OP_PERMUTE: return permuted(g, u);
  case OP_PAD: return padded(g, u);
  case OP_SHRINK: return shrunk(g, u);
  case OP_FLIP: case OP_CONTIGUOUS: case OP_STAGE: case OP_AFTER: return u->src[0]->shape;
  case OP_IOTA: return shape_new(g, 1, u->src);
  case OP_GATHER: return gathered(g, u);
  case OP_REDUCE_AXIS: {
    const shape *s = need_shape(u);
    uop *d[MAX_DIMS];
    for (int i = 0; i < s->n; i++) d[i] = u->b >> i & 1 ? uop_idx(g, 1) : s->dim[i];
    return shape_new(g, s->n, d);
  }
  case OP_ASSIGN: return shape_of_sources(u);
  case OP_STACK: return stacked(g, u);
  case OP_BITCAST: return recast(g, u);
  case OP_SINK: return NULL;
  default: return op_flags((enum op)u->op) & OPF_ELEMENTWISE ? shape_of_sources(u) : NULL;
  }
}

int64_t shape_max_elems(const shape *s) {
  int64_t n = 1;
  for (int i = 0; s && i < s->n; i++)
    die_if(!mul_i64(n, s->dim[i]->vmax, &n), "a tensor of more than 2^63 elements");
  return n;
}
