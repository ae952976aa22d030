// Random expressions for the tests of bounds and rules, with values for their leaves.  Leaves: three small VARs (for
// integers and conditions), and LOADs that stand for floats and wide integers.  The sequence is the same in every run.
#ifndef WEFT_TESTS_GEN_H
#define WEFT_TESTS_GEN_H
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/eval.h"
#include "graph/half.h"
#include "graph/uop.h"

enum { GEN_VARS = 3, GEN_LOADS = 3 };

typedef struct gen {
  graph *g;
  uint64_t seed;
  int lanes;                        // of everything made, 1 or more
  bool divides;                     // may make divisions whose divisor could be zero, and shifts that could be too wide
  uop *var[GEN_VARS];
  VEC(uop *) leaves;                // every VAR and LOAD made
} gen;

static inline uint64_t gen_bits(gen *r) { return hash_u64(++r->seed, 0x77); }
static inline int gen_below(gen *r, int n) { return (int)((gen_bits(r) >> 11) % (uint64_t)n); }
static inline int64_t gen_between(gen *r, int64_t lo, int64_t hi) {
  return lo + (int64_t)(gen_bits(r) % (uint64_t)(hi - lo + 1));
}

static inline uop *gen_add_leaf(gen *r, uop *u) {
  for (size_t i = 0; i < r->leaves.n; i++) if (r->leaves.at[i] == u) return u;
  vec_push(&r->leaves, u);
  return u;
}

// A fresh graph and fresh variables of bounds that are at most `width` wide.
static inline void gen_begin(gen *r, int width, int lanes) {
  r->g = graph_new(NULL);
  r->lanes = lanes;
  r->leaves.n = 0;
  const char *const names[] = {"a", "b", "c"};
  for (int i = 0; i < GEN_VARS; i++) {
    int64_t lo = gen_below(r, 2) ? 0 : gen_between(r, -5, 5);
    r->var[i] = gen_add_leaf(r, uop_var(r->g, names[i], lo, lo + gen_below(r, width)));
  }
}

static inline void gen_end(gen *r) { graph_free(r->g); vec_free(&r->leaves); }

// --- expressions -----------------------------------------------------------------------------------------------------

static const enum dtype gen_int_types[] = {DT_IDX, DT_IDX, DT_IDX, DT_I32, DT_I32, DT_U8,
                                           DT_I8,  DT_U16, DT_I16, DT_U32, DT_I64, DT_U64};
static const enum dtype gen_float_types[] = {DT_F32, DT_F32, DT_F32, DT_F16, DT_BF16, DT_F64};
static inline enum dtype gen_int_type(gen *r) { return gen_int_types[gen_below(r, COUNT(gen_int_types))]; }
static inline enum dtype gen_float_type(gen *r) { return gen_float_types[gen_below(r, COUNT(gen_float_types))]; }

static inline uop *gen_const(gen *r, enum dtype d) {
  static const double floats[] = {0, -0.0, 1, -1, 2, 0.5, -2, 3, 0.1, 1e-3, 1e6, INFINITY};
  if (dtype_is_float(d)) return uop_splat(r->g, uop_float(r->g, d, floats[gen_below(r, COUNT(floats))]), r->lanes);
  int64_t v = gen_between(r, -6, 12);
  switch (gen_below(r, 8)) {
  case 0: case 1: v = (int64_t)1 << gen_below(r, 9); break;
  case 2: v = ((int64_t)1 << gen_below(r, 9)) - 1; break;
  case 3: v = gen_between(r, 1, 64); break;
  case 4: if (d != DT_IDX) v = (int64_t)gen_bits(r); break;
  default: break;
  }
  return uop_splat(r->g, uop_int(r->g, d, v), r->lanes);
}

static inline uop *gen_leaf(gen *r, enum dtype d) {
  if (!gen_below(r, 4)) return gen_const(r, d);
  bool load = dtype_is_float(d) || (d != DT_IDX && !gen_below(r, 3));
  if (load) {
    int i = gen_below(r, GEN_LOADS);
    uop *mem = uop_new(r->g, OP_PARAM, d, 1, NULL, 0, (uarg){.a = (int64_t)d * GEN_LOADS + i, .b = 64});
    return gen_add_leaf(r, uop_load(r->g, uop_index(r->g, mem, uop_idx(r->g, 0)), d, r->lanes));
  }
  if (d == DT_IDX && r->lanes > 1 && !gen_below(r, 3))
    return uop_new(r->g, OP_LANE, DT_IDX, r->lanes, NULL, 0, (uarg){0});
  uop *v = r->var[gen_below(r, GEN_VARS)];
  return uop_splat(r->g, uop_cast(r->g, v, d), r->lanes);
}

static inline uop *gen_expr(gen *r, enum dtype d, int depth);

static inline uop *gen_bool(gen *r, int depth) {
  int k = gen_below(r, 8);
  if (depth <= 0) k = 0;
  if (k < 5) {
    static const enum op compares[] = {OP_CMPLT, OP_CMPLT, OP_CMPEQ, OP_CMPNE};
    enum dtype d = gen_below(r, 4) ? gen_int_type(r) : gen_float_type(r);
    return uop_op2(r->g, compares[gen_below(r, 4)], gen_expr(r, d, depth - 1), gen_expr(r, d, depth - 1));
  }
  if (k == 5) return uop_cast(r->g, gen_expr(r, gen_int_type(r), depth - 1), DT_BOOL);
  static const enum op logic[] = {OP_AND, OP_OR, OP_XOR, OP_CMPNE};
  return uop_op2(r->g, logic[gen_below(r, 4)], gen_bool(r, depth - 1), gen_bool(r, depth - 1));
}

static inline uop *gen_float(gen *r, enum dtype d, int depth) {
  static const enum op ops[] = {OP_ADD, OP_SUB, OP_MUL,   OP_FDIV,  OP_MAX,   OP_MIN, OP_NEG,
                                OP_ADD, OP_MUL, OP_TRUNC, OP_FLOOR, OP_WHERE, OP_CAST};
  enum op op = ops[gen_below(r, COUNT(ops))];
  if (op == OP_CAST)
    return uop_cast(r->g, gen_expr(r, gen_below(r, 2) ? gen_int_type(r) : gen_float_type(r), depth - 1), d);
  uop *x = gen_expr(r, d, depth - 1);
  if (op == OP_WHERE) return uop_op3(r->g, op, gen_bool(r, depth - 1), x, gen_expr(r, d, depth - 1));
  return op_arity(op) == 1 ? uop_op1(r->g, op, x) : uop_op2(r->g, op, x, gen_expr(r, d, depth - 1));
}

static inline uop *gen_positive_const(gen *r, enum dtype d) {
  static const int64_t v[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 32, 64};
  return uop_splat(r->g, uop_int(r->g, d, v[gen_below(r, COUNT(v))]), r->lanes);
}

// d is an integer type, BOOL or a float; a depth of 0 gives a leaf.
static inline uop *gen_expr(gen *r, enum dtype d, int depth) {
  if (d == DT_BOOL) return gen_bool(r, depth);
  if (depth <= 0) return gen_leaf(r, d);
  if (dtype_is_float(d)) return gen_float(r, d, depth);
  static const enum op ops[] = {OP_ADD,  OP_ADD, OP_ADD, OP_SUB,  OP_MUL,   OP_MUL,  OP_NEG, OP_IDIV,
                                OP_IDIV, OP_MOD, OP_MOD, OP_CDIV, OP_CMOD,  OP_MAX,  OP_MIN, OP_AND,
                                OP_OR,   OP_XOR, OP_SHL, OP_SHR,  OP_WHERE, OP_CAST, OP_CAST};
  enum op op = ops[gen_below(r, COUNT(ops))];
  if (op == OP_CAST) {
    enum dtype from = gen_below(r, 4) ? gen_int_type(r) : DT_BOOL;
    return uop_cast(r->g, gen_expr(r, from, depth - 1), d);
  }
  uop *x = gen_expr(r, d, depth - 1);
  if (op == OP_NEG) return uop_op1(r->g, op, x);
  if (op == OP_WHERE) return uop_op3(r->g, op, gen_bool(r, depth - 1), x, gen_expr(r, d, depth - 1));
  bool divides = op_flags(op) & OPF_UNSAFE, shifts = op == OP_SHL || op == OP_SHR;
  if (divides && (!r->divides || gen_below(r, 4))) return uop_op2(r->g, op, x, gen_positive_const(r, d));
  if (shifts && (!r->divides || gen_below(r, 4)))
    return uop_op2(r->g, op, x, uop_splat(r->g, uop_int(r->g, d, gen_below(r, 7)), r->lanes));
  if (op == OP_MUL && gen_below(r, 2)) return uop_op2(r->g, op, x, gen_const(r, d));
  return uop_op2(r->g, op, x, gen_expr(r, d, depth - 1));
}

// --- values ----------------------------------------------------------------------------------------------------------

static inline evalue gen_value(gen *r, const uop *u) {
  enum dtype d = (enum dtype)u->dt;
  if (u->op == OP_VAR) return (evalue){.i = gen_between(r, u->a, u->b)};
  if (!dtype_is_float(d))
    return (evalue){.i = dtype_wrap(d, gen_below(r, 2) ? gen_between(r, -4, 40) : (int64_t)gen_bits(r))};
  static const double special[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e30, 1e-30, 65504};
  double v;
  switch (gen_below(r, 4)) {
  case 0: v = special[gen_below(r, COUNT(special))]; break;
  case 1: v = (double)gen_between(r, -8, 8); break;
  default: v = (double)gen_between(r, -1000000, 1000000) / 65536; break;
  }
  return (evalue){.f = dtype_round(d, v)};
}

// Values for all leaves into m (uop* -> evalue[lanes], owned by mem).
static inline void gen_values(gen *r, arena *mem, map *m) {
  for (size_t i = 0; i < r->leaves.n; i++) {
    uop *u = r->leaves.at[i];
    evalue *v = ARENA_ARRAY(mem, evalue, u->lanes);
    for (int l = 0; l < u->lanes; l++) v[l] = gen_value(r, u);
    map_put(m, u, v);
  }
}

static inline bool gen_same(enum dtype d, evalue p, evalue q, double tolerance) {
  if (!dtype_is_float(d)) return p.i == q.i;
  if (isnan(p.f) || isnan(q.f)) return isnan(p.f) && isnan(q.f);
  if (tolerance == 0) return p.f == q.f && signbit(p.f) == signbit(q.f);
  return p.f == q.f || fabs(p.f - q.f) <= tolerance * fmax(fabs(p.f), fabs(q.f));
}
#endif
