// The lazy tensor API: see graph.h. Everything is composed of the nodes of ops.h; derived operations (softmax, norm)
// are plain compositions, which the scheduler does not recognise by name.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "graph/graph.h"
#include <math.h>
#include <string.h>

tensor *t_buffer(graph *g, int64_t id, enum dtype dt, int64_t elems) {
  return uop_new(g, OP_BUFFER, dt, 1, NULL, 0, (uarg){.a = id, .b = elems});
}
tensor *t_weight(graph *g, int64_t id, enum dtype dt, int64_t elems) {
  return uop_new(g, OP_BUFFER, dt, 1, NULL, 0, (uarg){.a = id, .b = elems, .memory = MEMORY_WEIGHT});
}
tensor *t_float(graph *g, double v) { return uop_float(g, DT_F32, v); }
tensor *t_iota(graph *g, uop *n) { return uop_new(g, OP_IOTA, DT_IDX, 1, &n, 1, (uarg){0}); }

static tensor *tensor_node(graph *g, enum op op, tensor *x, int n, uop *const *more, uarg arg) {
  uop *s[1 + 2 * MAX_DIMS];
  s[0] = x;
  for (int i = 0; i < n; i++) s[1 + i] = more[i];
  return uop_new(g, op, (enum dtype)x->dt, 1, s, 1 + (size_t)n, arg);
}

tensor *t_reshape(graph *g, tensor *x, int n, uop *const *dims) {
  uop *p = uop_idx(g, 1), *q = p;
  int m = x->shape ? x->shape->n : 0, from = 0, until = 0;        // unchanged axes are in neither product
  while (from < m && from < n && x->shape->dim[from] == dims[from]) from++;
  while (until < m - from && until < n - from && x->shape->dim[m - 1 - until] == dims[n - 1 - until]) until++;
  for (int i = from; i < m - until; i++) p = idx_mul(g, p, x->shape->dim[i]);
  for (int i = from; i < n - until; i++) q = idx_mul(g, q, dims[i]);
  die_if(p != q, "reshape to another number of elements (%lld, %lld)", (long long)p->vmax, (long long)q->vmax);
  if (x->shape && x->shape->n == n && !memcmp(x->shape->dim, dims, (size_t)n * sizeof *dims)) return x;
  return tensor_node(g, OP_RESHAPE, x, n, dims, (uarg){0});
}

tensor *t_reshape_i(graph *g, tensor *x, int n, const int64_t *dims) {
  uop *d[MAX_DIMS];
  for (int i = 0; i < n; i++) d[i] = uop_idx(g, dims[i]);
  return t_reshape(g, x, n, d);
}

tensor *t_expand(graph *g, tensor *x, int n, uop *const *dims) {
  if (x->shape->n == n && !memcmp(x->shape->dim, dims, (size_t)n * sizeof *dims)) return x;
  for (int i = 0; i < n; i++)
    die_if(x->shape->dim[i] != dims[i] && !uop_is_int(x->shape->dim[i], 1), "expand of an axis that is not 1");
  return tensor_node(g, OP_EXPAND, x, n, dims, (uarg){0});
}

tensor *t_broadcast(graph *g, tensor *x, const shape *s) {
  if (!x->shape || x->shape == s) return x;
  uop *d[MAX_DIMS];
  int lead = s->n - x->shape->n;
  for (int i = 0; i < s->n; i++) d[i] = i < lead ? uop_idx(g, 1) : x->shape->dim[i - lead];
  return t_expand(g, t_reshape(g, x, s->n, d), s->n, s->dim);
}

tensor *t_permute(graph *g, tensor *x, const int *order) {
  int64_t a = 0;
  bool same = true;
  for (int i = 0; i < x->shape->n; i++) { a |= (int64_t)order[i] << 4 * i; same &= order[i] == i; }
  return same ? x : tensor_node(g, OP_PERMUTE, x, 0, NULL, (uarg){.a = a, .b = x->shape->n});
}

tensor *t_swap(graph *g, tensor *x, int i, int j) {
  int order[MAX_DIMS];
  for (int k = 0; k < x->shape->n; k++) order[k] = k == i ? j : k == j ? i : k;
  return t_permute(g, x, order);
}

tensor *t_pad(graph *g, tensor *x, int axis, int64_t before, int64_t after) {
  uop *d[2 * MAX_DIMS];
  for (int i = 0; i < x->shape->n; i++) {
    d[2 * i] = uop_idx(g, i == axis ? before : 0);
    d[2 * i + 1] = uop_idx(g, i == axis ? after : 0);
  }
  return before || after ? tensor_node(g, OP_PAD, x, 2 * x->shape->n, d, (uarg){0}) : x;
}

tensor *t_slice(graph *g, tensor *x, int axis, uop *offset, uop *size) {
  uop *d[2 * MAX_DIMS], *all = x->shape->dim[axis];
  bool known = offset->op == OP_CONST && size->op == OP_CONST && all->op == OP_CONST;
  die_if(known && (offset->a < 0 || size->a < 0 || offset->a > all->a || size->a > all->a - offset->a),
         "slice of an axis beyond its end (axis %d: %lld and %lld of %lld)", axis, (long long)offset->a,
         (long long)size->a, (long long)all->a);
  if (uop_is_int(offset, 0) && size == x->shape->dim[axis]) return x;
  for (int i = 0; i < x->shape->n; i++) {
    d[2 * i] = i == axis ? offset : uop_idx(g, 0);
    d[2 * i + 1] = i == axis ? size : x->shape->dim[i];
  }
  return tensor_node(g, OP_SHRINK, x, 2 * x->shape->n, d, (uarg){0});
}

tensor *t_slice_i(graph *g, tensor *x, int axis, int64_t offset, int64_t size) {
  return t_slice(g, x, axis, uop_idx(g, offset), uop_idx(g, size));
}
tensor *t_flip(graph *g, tensor *x, int axis) { return tensor_node(g, OP_FLIP, x, 0, NULL, (uarg){.a = 1 << axis}); }

tensor *t_cat_last(graph *g, tensor *a, tensor *b) {
  int last = a->shape->n - 1;
  int64_t na = a->shape->dim[last]->a, nb = b->shape->dim[last]->a;
  tensor *pa = t_pad(g, a, last, 0, nb), *pb = t_pad(g, b, last, na, 0);
  return t_where(g, t_op2(g, OP_CMPLT, t_iota(g, uop_idx(g, na + nb)), uop_idx(g, na)), pa, pb);
}

tensor *t_gather(graph *g, tensor *x, tensor *ids) {
  tensor *i = t_cast(g, ids, DT_IDX);
  i = t_op2(g, OP_MIN, t_op2(g, OP_MAX, i, uop_idx(g, 0)), idx_sub(g, x->shape->dim[0], uop_idx(g, 1)));
  return uop_new(g, OP_GATHER, (enum dtype)x->dt, 1, (uop *[]){x, i}, 2, (uarg){0});
}

tensor *t_stack_last(graph *g, tensor *const *x, int n) {
  return uop_new(g, OP_STACK, (enum dtype)x[0]->dt, 1, x, (size_t)n, (uarg){0});
}

// --- elementwise ----------------------------------------------------------------------------------------------------

static const shape *common_shape(graph *g, const shape *s, const shape *t) {
  if (!s || !t || s == t) return s ? s : t;
  int n = s->n > t->n ? s->n : t->n;
  uop *d[MAX_DIMS];
  for (int i = 0; i < n; i++) {
    uop *a = i < n - s->n ? uop_idx(g, 1) : s->dim[i - (n - s->n)],
        *b = i < n - t->n ? uop_idx(g, 1) : t->dim[i - (n - t->n)];
    die_if(a != b && !uop_is_int(a, 1) && !uop_is_int(b, 1),
           "shapes do not broadcast (axis %d: %lld, %lld)", i, (long long)a->vmax, (long long)b->vmax);
    d[i] = uop_is_int(a, 1) ? b : a;
  }
  return shape_new(g, n, d);
}

tensor *t_op1(graph *g, enum op op, tensor *x) { return uop_op1(g, op, x); }

tensor *t_op2(graph *g, enum op op, tensor *x, tensor *y) {
  const shape *s = common_shape(g, x->shape, y->shape);
  return uop_op2(g, op, t_broadcast(g, x, s), t_broadcast(g, y, s));
}

tensor *t_where(graph *g, tensor *cond, tensor *x, tensor *y) {
  const shape *s = common_shape(g, cond->shape, common_shape(g, x->shape, y->shape));
  return uop_op3(g, OP_WHERE, t_broadcast(g, cond, s), t_broadcast(g, x, s), t_broadcast(g, y, s));
}

tensor *t_add(graph *g, tensor *x, tensor *y) { return t_op2(g, OP_ADD, x, y); }
tensor *t_sub(graph *g, tensor *x, tensor *y) { return t_op2(g, OP_SUB, x, y); }
tensor *t_mul(graph *g, tensor *x, tensor *y) { return t_op2(g, OP_MUL, x, y); }
tensor *t_scale(graph *g, tensor *x, double by) { return t_op2(g, OP_MUL, x, uop_float(g, (enum dtype)x->dt, by)); }
tensor *t_exp(graph *g, tensor *x) { return t_op1(g, OP_EXP2, t_scale(g, x, M_LOG2E)); }
tensor *t_cast(graph *g, tensor *x, enum dtype dt) { return uop_cast(g, x, dt); }
tensor *t_bitcast(graph *g, tensor *x, enum dtype dt) { return uop_bitcast(g, x, dt); }

// --- reductions and what is made of them ----------------------------------------------------------------------------

tensor *t_reduce(graph *g, tensor *x, enum op op, int axis) {
  if (uop_is_int(x->shape->dim[axis], 1)) return x;
  return uop_new(g, OP_REDUCE_AXIS, (enum dtype)x->dt, 1, &x, 1, (uarg){.a = op, .b = 1 << axis});
}

tensor *t_softmax(graph *g, tensor *x, int axis) {
  tensor *e = t_exp(g, t_sub(g, x, t_reduce(g, x, OP_MAX, axis)));
  return t_op2(g, OP_FDIV, e, t_reduce(g, e, OP_ADD, axis));
}

tensor *t_matmul(graph *g, tensor *x, tensor *w) {
  int n = x->shape->n;
  uop *d[MAX_DIMS];
  for (int i = 0; i < n - 1; i++) d[i] = x->shape->dim[i];
  d[n - 1] = uop_idx(g, 1);
  d[n] = x->shape->dim[n - 1];
  tensor *product = t_mul(g, t_cast(g, t_reshape(g, x, n + 1, d), DT_F32), t_cast(g, w, DT_F32));
  d[n - 1] = w->shape->dim[0];
  return t_reshape(g, t_reduce(g, product, OP_ADD, n), n, d);
}

tensor *t_rmsnorm(graph *g, tensor *x, tensor *weight, double eps) {
  int last = x->shape->n - 1;
  tensor *mean = t_scale(g, t_reduce(g, t_mul(g, x, x), OP_ADD, last), 1.0 / (double)x->shape->dim[last]->a);
  tensor *r = t_op1(g, OP_RECIP, t_op1(g, OP_SQRT, t_add(g, mean, t_float(g, eps))));
  tensor *y = t_mul(g, x, r);
  return weight ? t_mul(g, y, weight) : y;
}

tensor *t_layernorm(graph *g, tensor *x, tensor *weight, double eps) {
  int last = x->shape->n - 1;
  tensor *mean = t_scale(g, t_reduce(g, x, OP_ADD, last), 1.0 / (double)x->shape->dim[last]->a);
  return t_rmsnorm(g, t_sub(g, x, mean), weight, eps);
}

tensor *t_silu(graph *g, tensor *x) {
  tensor *e = t_exp(g, t_op1(g, OP_NEG, x));
  return t_op2(g, OP_FDIV, x, t_add(g, e, t_float(g, 1)));
}

// --- memory ---------------------------------------------------------------------------------------------------------

static tensor *base_of(tensor *view) {
  while (is_view(view)) view = view->src[0];
  die_if(view->op != OP_BUFFER && view->op != OP_AFTER, "assign to %s", op_name((enum op)view->op));
  return view;
}

tensor *t_assign(graph *g, tensor *view, tensor *value) {
  value = t_broadcast(g, t_cast(g, value, (enum dtype)view->dt), view->shape);
  uop *store = uop_new(g, OP_ASSIGN, (enum dtype)view->dt, 1, (uop *[]){view, value}, 2, (uarg){0});
  uop *base = base_of(view);
  return uop_new(g, OP_AFTER, (enum dtype)base->dt, 1, (uop *[]){base, store}, 2, (uarg){0});
}

tensor *t_stage(graph *g, tensor *x, bool shared) {
  return uop_new(g, OP_STAGE, (enum dtype)x->dt, 1, &x, 1, (uarg){.a = shared});
}
tensor *t_contiguous(graph *g, tensor *x) { return uop_new(g, OP_CONTIGUOUS, (enum dtype)x->dt, 1, &x, 1, (uarg){0}); }
