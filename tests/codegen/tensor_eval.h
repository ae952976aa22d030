// What a tensor graph means, as plainly as it can be said: every node becomes an array of all its elements, one node
// after the other.  Neither the scheduler nor the code generator has a part in it, so it is a reference for both.
//
// Elementwise ops come from graph/eval.h, which rounds every value to its dtype.  A version of a buffer (AFTER) is a
// copy of its contents with the stores applied; `written` marks the elements that those stores touch.
#ifndef WEFT_TEST_TENSOR_EVAL_H
#define WEFT_TEST_TENSOR_EVAL_H
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/eval.h"
#include "graph/graph.h"
#include "graph/half.h"

typedef struct te_value { int n; int64_t dim[MAX_DIMS], count; evalue *v; unsigned char *written; } te_value;
typedef struct te {
  arena *mem;
  map memo;                                        // uop* -> te_value*
  const struct te_var { const char *name; int64_t value; } *vars;
  int n_vars;
  const unsigned char *(*buffer)(void *ctx, int64_t id);         // initial contents
  void *ctx;
} te;

static inline evalue te_load(enum dtype d, const unsigned char *p) {
  evalue v = {.i = 0};
  float f;
  uint16_t h;
  switch (d) {
  case DT_F32: memcpy(&f, p, 4); v.f = (double)f; break;
  case DT_F64: memcpy(&v.f, p, 8); break;
  case DT_F16: memcpy(&h, p, 2); v.f = f16_to_double(h); break;
  case DT_BF16: memcpy(&h, p, 2); v.f = bf16_to_double(h); break;
  default: memcpy(&v.i, p, (size_t)dtype_size(d)); v.i = dtype_wrap(d, v.i);
  }
  return v;
}

static inline void te_store(enum dtype d, evalue v, unsigned char *p) {
  float f = 0;
  uint16_t h;
  switch (d) {
  case DT_F32: f = (float)v.f; memcpy(p, &f, 4); break;
  case DT_F64: memcpy(p, &v.f, 8); break;
  case DT_F16: h = f16_from_double(v.f); memcpy(p, &h, 2); break;
  case DT_BF16: h = bf16_from_double(v.f); memcpy(p, &h, 2); break;
  default: memcpy(p, &v.i, (size_t)dtype_size(d));
  }
}

static te_value *te_eval(te *e, uop *u);

static inline int64_t te_int(te *e, uop *u) { return te_eval(e, u)->v[0].i; }

static inline te_value *te_new(te *e, const uop *u) {
  te_value *t = ARENA_NEW(e->mem, te_value);
  t->count = 1;
  t->n = u->shape ? u->shape->n : 0;
  for (int i = 0; i < t->n; i++) t->count *= t->dim[i] = te_int(e, u->shape->dim[i]);
  t->v = ARENA_ARRAY(e->mem, evalue, (size_t)t->count + 1);
  return t;
}

// The place of element i along each axis, and back.
static inline void te_place(const te_value *t, int64_t i, int64_t *at) {
  for (int d = t->n; d-- > 0; i /= t->dim[d]) at[d] = i % t->dim[d];
}

static inline int64_t te_flat(const te_value *t, const int64_t *at) {
  int64_t i = 0;
  for (int d = 0; d < t->n; d++) {
    if (at[d] < 0 || at[d] >= t->dim[d]) return -1;
    i = i * t->dim[d] + at[d];
  }
  return i;
}

// Where element `at` of a movement's result comes from: element number of the source, or -1 for a PAD's zero.
static inline int64_t te_moved(te *e, const uop *u, const te_value *to, int64_t i, const te_value *from) {
  int64_t at[MAX_DIMS], src[MAX_DIMS];
  if (u->op == OP_RESHAPE) return i;
  te_place(to, i, at);
  for (int d = 0; d < to->n; d++) {
    if (u->op == OP_PERMUTE) src[u->a >> 4 * d & 15] = at[d];
    else if (u->op == OP_EXPAND) src[d] = from->dim[d] == 1 ? 0 : at[d];
    else if (u->op == OP_FLIP) src[d] = u->a >> d & 1 ? from->dim[d] - 1 - at[d] : at[d];
    else if (u->op == OP_SHRINK) src[d] = at[d] + te_int(e, u->src[1 + 2 * d]);
    else src[d] = at[d] - te_int(e, u->src[1 + 2 * d]);
  }
  int64_t r = te_flat(from, src);
  if (r < 0 && u->op != OP_PAD) die("%s reads outside of its source", op_name((enum op)u->op));
  return r;
}

static inline evalue te_apply(enum op op, enum dtype dt, enum dtype src_dt, const evalue *s, size_t n) {
  evalue out;
  if ((op == OP_MAX || op == OP_MIN) && dtype_is_float(dt))
    return op == OP_MAX ? (s[0].f < s[1].f ? s[1] : s[0]) : (s[1].f < s[0].f ? s[1] : s[0]);
  if (!eval_op(op, dt, src_dt, s, n, &out)) die("%s of these operands has no value; choose others", op_name(op));
  return out;
}

static inline void te_reduce(const uop *u, const te_value *x, te_value *t) {
  bool *begun = xcalloc((size_t)t->count, 1);
  int64_t at[MAX_DIMS];
  for (int64_t i = 0; i < x->count; i++) {
    te_place(x, i, at);
    for (int d = 0; d < x->n; d++) if (u->b >> d & 1) at[d] = 0;
    int64_t o = te_flat(t, at);
    t->v[o] = begun[o] ? te_apply((enum op)u->a, (enum dtype)u->dt, (enum dtype)u->dt, (evalue[]){t->v[o], x->v[i]}, 2)
                       : x->v[i];
    begun[o] = true;
  }
  free(begun);
}

static inline void te_bitcast(const uop *u, const te_value *x, te_value *t) {
  int from = dtype_size((enum dtype)u->src[0]->dt), to = dtype_size((enum dtype)u->dt);
  unsigned char *raw = xcalloc((size_t)x->count, (size_t)from);
  for (int64_t i = 0; i < x->count; i++) te_store((enum dtype)u->src[0]->dt, x->v[i], raw + i * from);
  for (int64_t i = 0; i < t->count; i++) t->v[i] = te_load((enum dtype)u->dt, raw + i * to);
  free(raw);
}

// The buffer below a chain of movements over it, and where element i of the view lies in it.
static inline void te_assign(te *e, const uop *assign, te_value *whole) {
  uop *view = assign->src[0];
  const te_value *value = te_eval(e, assign->src[1]), *seen = te_eval(e, view);
  for (int64_t i = 0; i < seen->count; i++) {
    int64_t at = i;
    const te_value *to = seen;
    for (uop *v = view; op_flags((enum op)v->op) & OPF_MOVEMENT; v = v->src[0]) {
      const te_value *from = te_eval(e, v->src[0]);
      at = te_moved(e, v, to, at, from);
      to = from;
    }
    whole->v[at] = value->v[value->count == 1 ? 0 : i];
    whole->written[at] = 1;
  }
}

static inline void te_fill(te *e, uop *u, te_value *t) {
  const te_value *s[64];
  if (u->op == OP_BUFFER) {
    const unsigned char *p = e->buffer(e->ctx, u->a);
    t->written = ARENA_ARRAY(e->mem, unsigned char, (size_t)t->count + 1);
    for (int64_t i = 0; i < t->count; i++) t->v[i] = te_load((enum dtype)u->dt, p + i * dtype_size((enum dtype)u->dt));
    return;
  }
  if (u->op == OP_AFTER) {
    s[0] = te_eval(e, u->src[0]);
    t->written = ARENA_ARRAY(e->mem, unsigned char, (size_t)t->count + 1);
    memcpy(t->v, s[0]->v, (size_t)t->count * sizeof *t->v);
    memcpy(t->written, s[0]->written, (size_t)t->count);
    for (size_t i = 1; i < u->nsrc; i++) te_assign(e, u->src[i], t);
    return;
  }
  for (size_t i = 0; i < u->nsrc; i++) s[i] = te_eval(e, u->src[i]);
  switch (u->op) {
  case OP_CONST: t->v[0] = eval_of_const(u); return;
  case OP_VAR:
    for (int i = 0; i < e->n_vars; i++) if (!strcmp(e->vars[i].name, u->s)) { t->v[0].i = e->vars[i].value; return; }
    die("no value for %s", u->s);
  case OP_IOTA: for (int64_t i = 0; i < t->count; i++) t->v[i].i = i; return;
  case OP_CONTIGUOUS: case OP_STAGE: memcpy(t->v, s[0]->v, (size_t)t->count * sizeof *t->v); return;
  case OP_REDUCE_AXIS: te_reduce(u, s[0], t); return;
  case OP_BITCAST: te_bitcast(u, s[0], t); return;
  case OP_STACK:
    for (int64_t i = 0; i < t->count; i++) t->v[i] = s[i % (int64_t)u->nsrc]->v[i / (int64_t)u->nsrc];
    return;
  case OP_GATHER: {
    int64_t row = 1;
    for (int d = 1; d < s[0]->n; d++) row *= s[0]->dim[d];
    for (int64_t i = 0; i < t->count; i++) t->v[i] = s[0]->v[s[1]->v[i / row].i * row + i % row];
    return;
  }
  default: break;
  }
  bool moves = op_flags((enum op)u->op) & OPF_MOVEMENT;
  for (int64_t i = 0; i < t->count; i++) {
    if (moves) {
      int64_t at = te_moved(e, u, t, i, s[0]);
      if (at >= 0) t->v[i] = s[0]->v[at];
      continue;
    }
    evalue x[3];
    for (size_t j = 0; j < u->nsrc; j++) x[j] = s[j]->v[u->src[j]->shape ? i : 0];
    t->v[i] =
      te_apply((enum op)u->op, (enum dtype)u->dt, (enum dtype)u->src[u->op == OP_WHERE ? 1 : 0]->dt, x, u->nsrc);
  }
}

static te_value *te_eval(te *e, uop *u) {
  te_value *t = map_ptr(&e->memo, u);
  if (t) return t;
  t = te_new(e, u);
  te_fill(e, u, t);
  map_put(&e->memo, u, t);
  return t;
}

// The activations below u that are rounded: how many share a scale; 0 if none are.
static inline int64_t te_rounded_group(uop *u) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &u, 1);
  int64_t group = 0;
  for (size_t i = 0; i < l.n; i++)
    if (l.at[i]->op == OP_CONTIGUOUS && l.at[i]->dt == DT_I8) group = l.at[i]->shape->dim[l.at[i]->shape->n - 1]->a;
  arena_free(a);
  return group;
}
#endif
