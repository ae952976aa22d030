// OptOps for devices whose work-items cooperate: in work-groups with memory, in subgroups, on tiles.
#include "codegen/opt_rows.h"
#include "codegen/mma.h"
#include "codegen/stage_shared.h"
#include <string.h>

// Copies a single column, for F16 and BF16 tiles only.
const char *apply_columns(kernel *k, const axes *x, opt o) {
  uop *store = k->ast->src[0], *src[2 + MAX_AXES + 1];
  if (x->n_out == MAX_AXES || store->nsrc < 3) return "the output has too many axes, or none";
  for (int i = 0; i < x->n; i++)
    if (x->at[i]->b != AXIS_LOOP && x->at[i]->b != AXIS_REDUCE) return "it comes before what takes an axis";
  src[0] = store->src[0];
  src[1] = store->src[1];
  src[2] = uop_range(k->g, uop_idx(k->g, o.amount), k->next_range++, AXIS_LOOP);
  for (size_t i = 2; i < store->nsrc; i++) src[i + 1] = store->src[i];
  kernel_set_store(k, uop_new(k->g, OP_STORE, DT_VOID, 1, src, store->nsrc + 1, (uarg){0}));
  return NULL;
}

// MMA for F16 and BF16: four steps of the surrounding range with the shortest steps in memory go to four work-items.
static bool apply_mma_halves(kernel *k, const mma_ranges *m, uop *inner) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  uop *outer = NULL, *its;
  bool fit = true;
  for (size_t i = 0; i < l.n && fit; i++) {
    if (l.at[i]->op != OP_REDUCE || !uop_binds(l.at[i], inner)) continue;
    fit = descriptor_tile(k->t->descriptors, mma_halves(l.at[i]), 16) && mma_fits_halves(l.at[i], m, inner, &its) &&
          (!outer || its == outer);
    outer = its;
  }
  for (size_t i = 0; i < l.n && fit; i++)
    fit = l.at[i]->op != OP_REDUCE || !outer || !uop_binds(l.at[i], outer) || uop_binds(l.at[i], inner);
  arena_free(a);
  if (!fit || !outer) return false;
  change_kind(k, inner, AXIS_MMA);
  return take_range(k, outer, 4, AXIS_MMA);
}

const char *apply_mma(kernel *k, const axes *x, opt o) {
  mma_ranges m;
  uop *half = NULL, *its;
  uop *inner = x->at[o.axis];
  if (!mma_find(k->ast->src[0], &m)) return "the output is not cut into tiles";
  if (inner->b != AXIS_REDUCE || inner->src[0]->op != OP_CONST) return "what it sums is no plain axis of known size";
  if (apply_mma_halves(k, &m, inner)) return NULL;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  bool fit = true, any = false;
  for (size_t i = 0; i < l.n && fit; i++) {
    if (l.at[i]->op != OP_REDUCE || !uop_binds(l.at[i], inner)) continue;
    fit = mma_fits(l.at[i], &m, inner, &its) && (!any || its == half);
    half = its;
    any = true;
  }
  for (size_t i = 0; i < l.n && fit && half; i++)
    fit = l.at[i]->op != OP_REDUCE || !uop_binds(l.at[i], half) || uop_binds(l.at[i], inner);
  arena_free(a);
  int products = half || inner->src[0]->a > 16 ? 32 : 16;
  if (!fit || !any || (half && half->b != AXIS_REDUCE)) return "the sum is not one of tiles";
  if (!descriptor_tile(k->t->descriptors, DT_U8, products)) return "the device has no such tiles";
  change_kind(k, inner, AXIS_MMA);
  if (half) change_kind(k, half, AXIS_MMA);
  return NULL;
}

// A value that is equal for work-items with different rows, different columns of a tile or different parts of a sum is
// computed by 32 of them together: by those that have the rows, otherwise by those that have the parts.
const char *apply_step(kernel *k, const axes *x, opt o) {
  if (o.amount != k->t->subgroup_size || o.amount != k->t->row_items) return "no such number of items runs in step";
  uop *r = x->at[o.axis];
  // if a range's length is unknown, a work-item may have a part that the others' iterations do not reach: allowed if
  // exact
  bool even = r->src[0]->op == OP_CONST && r->src[0]->a % o.amount == 0,
       alike = r->b == AXIS_REDUCE && (even || r->src[0]->op != OP_CONST), rows = mma_has(k->ast);
  int64_t parts = 1;
  for (int i = 0; i < x->n; i++) {
    const uop *items = x->at[i]->src[0];
    rows |= i < x->n_out && x->at[i]->b == AXIS_LOCAL && items->op == OP_CONST && items->a % o.amount == 0;
    if (x->at[i]->b == AXIS_GROUP) parts *= x->at[i]->src[0]->a;
  }
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  for (size_t i = 0; i < l.n && alike; i++) {
    const uop *u = l.at[i];
    if (u->op != OP_REDUCE || !uop_binds(u, r)) continue;
    alike = dtype_size((enum dtype)u->dt) == 4 && uop_first_range(u) == 1 && (even || u->a == OP_MAX || u->a == OP_MIN);
    for (int n = 0; n < x->n && alike; n++)
      alike = (x->at[n]->b != AXIS_LOCAL && x->at[n]->b != AXIS_GROUP && x->at[n]->b != AXIS_STEP) ||
              (!uop_varies(u, x->at[n]) && !uop_binds(u, x->at[n]));
  }
  arena_free(a);
  if (!alike) return "items have the sum, or a part of it, for themselves";
  if (!rows && parts % o.amount && kernel_items(k) % o.amount) return "the items are no whole number of such sets";
  return take_range(k, r, o.amount, AXIS_STEP) ? NULL : opt_not_followed;
}

// Splits each sum over the range into parts: sums of every amount-th step.
const char *apply_parts(kernel *k, const axes *x, opt o) {
  graph *g = k->g;
  uop *r = x->at[o.axis], *end = r->src[0];
  bool even = end->op == OP_CONST && end->a % o.amount == 0, fit = r->b == AXIS_REDUCE && (even || end->op != OP_CONST);
  bool inner = false;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  for (size_t i = 0; i < l.n && fit; i++) {
    if (!uop_binds(l.at[i], r)) continue;
    fit = l.at[i]->op == OP_REDUCE && uop_first_range(l.at[i]) == 1;
    inner |= l.at[i]->nsrc > 2;
  }
  arena_free(a);
  uop *by = uop_idx(g, o.amount), *rest = idx_div(g, idx_add(g, end, uop_idx(g, o.amount - 1)), by);
  bool one = uop_is_int(rest, 1);
  if (!fit) return "what it sums has no whole number of parts, or is no plain axis";
  if (one && !inner) return "each part would be one step";
  uop *part = uop_range(g, by, k->next_range++, AXIS_REDUCE);
  change c = {.r = r, .expr = part, .parts = part};
  if (!one) {
    c.fresh[c.n++] = uop_range(g, rest, k->next_range++, AXIS_REDUCE);
    c.expr = idx_add(g, idx_mul(g, c.fresh[0], by), part);
  }
  if (!even) c.valid = idx_lt(g, c.expr, end);
  return replace_soundly(k, &c, even) ? NULL : opt_not_followed;
}

const char *apply_share(kernel *k, const axes *x, opt o) {
  if (!k->t->has_local) return "the device has no work-groups";
  uop *step = x->at[o.axis], *alike = x->at[o.amount];
  if (step->b != AXIS_REDUCE || alike->b != AXIS_LOCAL) return "its axes are no plain sum, and items of a work-group";
  int64_t bytes = stage_in_shared_bytes(k, step, alike);
  if (!bytes) return "items read nothing alike of a stream";
  if (bytes > k->t->max_local_bytes) return "a work-group has too little memory for that";
  k->share_step = step;
  k->share_alike = alike;
  return NULL;
}

// ---- items of a work-group ------------------------------------------------------------------------------------------

// Is a sum over r computed by a subgroup together?
static bool is_in_step(const uop *u, const void *r) {
  bool any = false;
  for (size_t j = (size_t)uop_first_range(u); uop_binds(u, r) && j < u->nsrc; j++) any |= u->src[j]->b == AXIS_STEP;
  return any;
}

// Is u the STORE of a stage that has r among its axes?
static bool is_stage_over(const uop *u, const void *r) {
  return u->op == OP_STORE && u->src[0]->src[0]->op == OP_LOCAL && uop_binds(u, r);
}

int64_t kernel_items(const kernel *k) {
  axes x;
  int64_t items = 1;
  kernel_axes(k, &x);
  for (int i = 0; i < x.n; i++)
    if (x.at[i]->b == AXIS_GROUP || (i < x.n_out && x.at[i]->b == AXIS_LOCAL)) items *= x.at[i]->src[0]->a;
  return items;
}

// Work-items if no sum is shared; 0 if one is.
static int64_t items_of(const axes *x) {
  int64_t n = 1;
  for (int i = 0; i < x->n; i++) {
    if (x->at[i]->b == AXIS_GROUP) return 0;
    if (x->at[i]->b == AXIS_LOCAL && i < x->n_out) n *= x->at[i]->src[0]->a;
  }
  return n;
}

// ---- sums that a work-group shares ----------------------------------------------------------------------------------

// Does u contain a sum over r that is not inside another sum?
static bool holds_sum(uop *u, const uop *r, map *known) {
  void *v;
  if (map_get(known, (uint64_t)(uintptr_t)u, &v)) return v;
  bool holds = u->op == OP_REDUCE && uop_binds(u, r);
  for (size_t i = 0; i < u->nsrc && u->op != OP_REDUCE && !holds; i++) holds = holds_sum(u->src[i], r, known);
  map_put(known, u, holds ? u : NULL);
  return holds;
}

// The contribution of one step of r to an expression that is linear in its sums over r: summed over all steps it gives
// the expression. NULL if the expression is not linear.
static uop *step_of_range(graph *g, uop *u, uop *r, map *known) {
  if (u->op == OP_REDUCE) {
    uop *src[64];
    size_t n = 0;
    if (u->nsrc > COUNT(src)) return NULL;
    for (size_t i = 0; i < u->nsrc; i++) if (u->src[i] != r) src[n++] = u->src[i];
    if (u->a != OP_ADD || uop_first_range(u) > 1) return NULL;
    return n == 1 ? src[0] : uop_new(g, OP_REDUCE, (enum dtype)u->dt, 1, src, n, (uarg){.a = u->a, .b = u->b});
  }
  bool in[2] = {u->nsrc > 0 && holds_sum(u->src[0], r, known), u->nsrc > 1 && holds_sum(u->src[1], r, known)};
  bool sum = u->op == OP_ADD || u->op == OP_SUB;
  if (!sum && u->op != OP_NEG && (u->op != OP_MUL || in[0] == in[1]) &&
      (u->op != OP_CAST || dtype_is_float((enum dtype)u->src[0]->dt)))
    return NULL;
  uop *s[2] = {NULL, NULL};
  for (size_t i = 0; i < u->nsrc; i++) {
    s[i] = in[i] ? step_of_range(g, u->src[i], r, known) : u->src[i];
    if (!s[i]) return NULL;
    if (sum && !in[i])                               // added in the first step only
      s[i] = uop_op3(g, OP_WHERE, idx_lt(g, r, uop_idx(g, 1)), s[i], uop_const_like(g, s[i], 0));
  }
  return uop_with_src(g, u, s);
}

bool is_shared_out(const uop *u) {
  bool all = u->op == OP_REDUCE && uop_first_range(u) == 1;
  for (size_t i = 1; i < u->nsrc && all; i++) all = u->src[i]->b == AXIS_GROUP;
  return all;
}

// A sum over a GROUP range inside another sum would need an exchange with a barrier in each step of the outer one. If
// the expression between them is linear, the outer sum takes over the range; integer sums are exact in between. Not
// done if work-items have parts of the outer sum and of each part: these are exchanged together (group_reduce).
static bool widen_one(kernel *k) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &k->ast, 1);
  map m = {0};
  for (size_t i = 0; i < l.n && !m.n; i++) {
    uop *o = l.at[i];
    if (o->op != OP_REDUCE || o->a != OP_ADD || uop_first_range(o) > 1 || o->nsrc > 60) continue;
    if (is_shared_out(o) && is_shared_out(o->src[0])) continue;
    for (size_t j = 0; j < i && !m.n; j++) {
      const uop *in = l.at[j];
      for (size_t n = (size_t)uop_first_range(in); in->op == OP_REDUCE && n < in->nsrc && !m.n; n++) {
        uop *r = in->src[n], *src[64], *v = NULL;
        map known = {0};
        if (r->b == AXIS_GROUP && !uop_binds(o, r) && holds_sum(o->src[0], r, &known))
          v = step_of_range(k->g, o->src[0], r, &known);
        map_free(&known);
        if (!v) continue;
        memcpy(src, o->src, o->nsrc * sizeof *src);
        src[0] = v;
        src[o->nsrc] = r;
        map_put(&m, o, uop_new(k->g, OP_REDUCE, (enum dtype)o->dt, 1, src, o->nsrc + 1, (uarg){.a = o->a, .b = o->b}));
      }
    }
  }
  arena_free(a);
  bool did = m.n;
  if (did) k->ast = simplify(k->g, uop_substitute(k->g, k->ast, &m));
  map_free(&m);
  return did;
}

void widen_sums(kernel *k) { while (widen_one(k)) {} }

const char *local_fits(const kernel *k, const axes *x, const uop *r, int64_t amount) {
  if (!k->t->has_local) return "the device has no work-groups";
  if (is_output_axis(x, r)) return NULL;
  if (!any_node(k, is_stage_over, r)) return "items of a work-group have output axes, or those of a stage";
  return amount == items_of(x) ? NULL : "all items of a work-group make a stage together";
}

const char *group_fits(const kernel *k, const axes *x, const uop *r, int64_t amount) {
  (void)x, (void)amount;
  if (!k->t->has_local) return "the device has no work-groups";
  return any_node(k, is_in_step, r) ? "items that run in step make that sum already" : NULL;
}

// Work-items of a subgroup exchange one value at a time, so a shared sum has no lanes. And if all work-items fill a
// stage, later OptOps may not add work-items.
const char *items_forbid(const kernel *k, const axes *x, opt o) {
  bool lanes = false, groups = false, filled = false, grouped = opt_row_of(o.kind)->into == AXIS_GROUP;
  for (int i = 0; i < x->n; i++) {
    lanes |= i < x->n_out && (x->at[i]->b == AXIS_LANE || (o.kind == OPT_LANES && o.axis == i));
    groups |= x->at[i]->b == AXIS_GROUP || grouped;
    filled |= i >= x->n_out && x->at[i]->b == AXIS_LOCAL;
  }
  if (k->t->subgroup_size && lanes && groups) return "what items in step share out has no lanes";
  return filled && ((o.kind == OPT_LOCAL && o.axis < x->n_out) || grouped) ? "all items fill a stage already" : NULL;
}
