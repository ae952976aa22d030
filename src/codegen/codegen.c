// The pipeline of code generation, one call a pass: see codegen.h.
#include "codegen/codegen.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "codegen/cost.h"
#include "codegen/decompose.h"
#include "codegen/expand.h"
#include "codegen/join.h"
#include "codegen/keep.h"
#include "codegen/linearize.h"
#include "codegen/mma.h"
#include "graph/record.h"
#include "graph/verify.h"

// Behind every pass.
static void check(graph *g, uop *ast, enum stage stage, const char *pass) {
  record_mark(g, ast, "%s", pass);
  if (env_int(ENV_SPEC)) verify(g, ast, stage, pass);
}

static void dump(const char *pass, uop *ast) {
  if (debug_level() < 5) return;
  str s = {0};
  uop_print(&s, &ast, 1);
  fprintf(stderr, "--- %s\n%s", pass, str_c(&s));
  str_free(&s);
}

static void add_size(str *s, const uop *r) {
  if (r->src[0]->op == OP_CONST) str_addf(s, "_%lld", (long long)r->src[0]->a);
  else str_addf(s, "_n%lld", (long long)r->src[0]->vmax);
}

// r_ where something is reduced, E_ (elementwise) otherwise; then the sizes of the axes.
static void name_kernel(const kernel *k, program *p) {
  axes x;
  kernel_axes(k, &x);
  str s = {0};
  str_add(&s, x.n > x.n_out ? "r" : "E");
  for (int i = 0; i < x.n; i++) add_size(&s, x.at[i]);
  if (!x.n) str_add(&s, "_1");
  snprintf(p->name, sizeof p->name, "%s", str_c(&s));
  str_free(&s);
}

static int by_var_name(const void *x, const void *y) {
  const uop *a = *(uop *const *)x, *b = *(uop *const *)y;
  return strcmp(a->s, b->s);
}

void find_arguments(uop *ast, program *p) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++) {
    if (l.at[i]->op == OP_PARAM && l.at[i]->a >= p->n_bufs) p->n_bufs = (int)l.at[i]->a + 1;
    if (l.at[i]->op == OP_VAR) p->n_vars++;
  }
  p->bufs = ARENA_ARRAY(p->mem, struct program_buf, p->n_bufs + 1);
  p->vars = ARENA_ARRAY(p->mem, uop *, p->n_vars + 1);
  int n = 0;
  for (size_t i = 0; i < l.n; i++) {
    uop *u = l.at[i];
    if (u->op == OP_PARAM) { p->bufs[u->a].dt = (enum dtype)u->dt; p->bufs[u->a].elems = u->b; }
    if (u->op == OP_VAR) p->vars[n++] = u;
    if ((u->op == OP_LOAD || u->op == OP_STORE) && u->src[0]->src[0]->op == OP_PARAM) {
      struct program_buf *b = &p->bufs[u->src[0]->src[0]->a];
      if (u->op == OP_LOAD) b->read = true;
      else b->written = true;
    }
  }
  if (n) qsort(p->vars, (size_t)n, sizeof *p->vars, by_var_name);
  arena_free(a);
}

static uop *new_special(graph *g, program *p, bool local, int *count, uop *size) {
  int at = (*count)++;
  if (at >= 3) die("more than three %s axes", local ? "LOCAL" : "GLOBAL");
  char name[2] = {local ? 'l' : 'g', (char)('0' + at)};
  (local ? p->local : p->global)[at] = size;
  return uop_new(g, OP_SPECIAL, DT_IDX, 1, NULL, 0, (uarg){.b = size->vmax, .s = name, .s_len = 2});
}

// A range whose steps are rows of a weight that lie side by side: its items are neighbours.
static bool is_row_of_items(const kernel *k, const uop *r) {
  return r->b == AXIS_LOCAL && k->t->row_items && uop_is_int(r->src[0], k->t->row_items);
}

// Does a sum that items share depend on r?
static bool shared_depends(const kernel *k, const uop *r) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n; i++)
    for (size_t j = (size_t)uop_first_range(l.at[i]); l.at[i]->op == OP_REDUCE && j < l.at[i]->nsrc; j++)
      any |= l.at[i]->src[j]->b == AXIS_GROUP && uop_varies(l.at[i], r);
  arena_free(a);
  return any;
}

// A LOCAL range of as many steps as items share sums, none of which depends on it: each of these items has one step.
static bool is_of_sharers(const kernel *k, const uop *r, int64_t shared) {
  return shared > 1 && r->b == AXIS_LOCAL && uop_is_int(r->src[0], shared) && !shared_depends(k, r);
}

// So many items share sums, and may do so by SWAP: they are neighbours among those that run in step, which no
// work-group ends amidst. 0: they share memory.
static int64_t swapped_items(const kernel *k, const axes *x, int64_t shared) {
  int64_t step = k->t->step_items, all = shared;
  for (int i = 0; i < x->n_out; i++) {
    if (x->at[i]->b != AXIS_LOCAL || is_of_sharers(k, x->at[i], shared)) continue;
    if (x->at[i]->src[0]->op != OP_CONST) return 0;
    all *= x->at[i]->src[0]->a;
  }
  bool whole = step && (all % step == 0 || all <= step);
  return whole && shared > 1 && shared <= step && !(shared & (shared - 1)) ? shared : 0;
}

static uop *steps_of_sharers(kernel *k, const axes *x, int64_t shared, bool *any) {
  graph *g = k->g;
  uop *item = uop_idx(g, 0);
  int64_t stride = 1;
  map m = {0};
  for (int i = 0; i < x->n; i++) {
    if (x->at[i]->b != AXIS_GROUP) continue;
    item = idx_add(g, item, idx_mul(g, x->at[i], uop_idx(g, stride)));
    stride *= x->at[i]->src[0]->a;
  }
  for (int i = 0; i < x->n_out; i++)
    if (!m.n && is_of_sharers(k, x->at[i], shared)) map_put(&m, x->at[i], item);
  uop *ast = m.n ? uop_substitute(g, k->ast, &m) : k->ast;
  *any = m.n;
  map_free(&m);
  return ast;
}

// On a machine with work-groups, GLOBAL, LOCAL and GROUP ranges are numbers that the launch gives; a store after a
// GROUP is one item's, unless each of the items has others. Items that share a sum are neighbours, unless rows of a
// weight are: GROUP ranges together are the first number, of which the one that was made first moves fastest. The first
// number of a launch may be large: what is known there comes first, then numbers of tokens.
static uop *special_axes(kernel *k, program *p) {
  graph *g = k->g;
  uop *only_first = NULL;
  axes x;
  kernel_axes(k, &x);
  map specials = {0};
  int count[2] = {0, 0};
  int64_t shared = 1;
  bool rows_first = false;
  for (int i = 0; i < x.n; i++) if (x.at[i]->b == AXIS_GROUP) shared *= x.at[i]->src[0]->a;
  for (int i = 0; i < x.n_out; i++) {
    if (!is_row_of_items(k, x.at[i]) || is_of_sharers(k, x.at[i], shared)) continue;
    map_put(&specials, x.at[i], new_special(g, p, true, &count[1], x.at[i]->src[0]));
    rows_first = true;
  }
  mma_ranges tile;
  if (mma_has(k->ast) && mma_find(k->ast->src[0], &tile)) {
    uop *s = new_special(g, p, true, &count[1], uop_idx(g, MMA_ITEMS));
    map_put(&specials, tile.g, idx_div(g, s, tile.t->src[0]));
    map_put(&specials, tile.t, idx_mod(g, s, tile.t->src[0]));
    rows_first = true;
  }
  bool all_store;
  uop *ast = steps_of_sharers(k, &x, shared, &all_store);
  if (shared > 1) {
    uop *s = new_special(g, p, true, &count[1], uop_idx(g, shared));
    int64_t stride = 1;
    for (int i = 0; i < x.n; i++) {
      if (x.at[i]->b != AXIS_GROUP) continue;
      map_put(&specials, x.at[i], idx_mod(g, idx_div(g, s, uop_idx(g, stride)), x.at[i]->src[0]));
      stride *= x.at[i]->src[0]->a;
    }
    if (!all_store) only_first = idx_lt(g, s, uop_idx(g, 1));
  }
  for (int i = x.n_out; i-- > 0;)
    if (x.at[i]->b == AXIS_LOCAL && !map_has(&specials, x.at[i]) &&
        uop_is_among(x.at[i], ast->src[0]->src + 2, (int)ast->src[0]->nsrc - 2))
      map_put(&specials, x.at[i], new_special(g, p, true, &count[1], x.at[i]->src[0]));
  for (int symbolic = 0; symbolic < 2; symbolic++)
    for (int i = 0; i < x.n_out; i++)
      if (x.at[i]->b == AXIS_GLOBAL && (x.at[i]->src[0]->op != OP_CONST) == symbolic)
        map_put(&specials, x.at[i], new_special(g, p, false, &count[0], x.at[i]->src[0]));
  uop *item = uop_idx(g, 0);
  for (int i = 0; i < x.n_out; i++)
    if (x.at[i]->b == AXIS_LOCAL && map_has(&specials, x.at[i]))
      item = idx_add(g, idx_mul(g, item, x.at[i]->src[0]), map_ptr(&specials, x.at[i]));
  for (int i = x.n_out; i < x.n; i++) if (x.at[i]->b == AXIS_LOCAL) map_put(&specials, x.at[i], item);
  int64_t swapped = rows_first ? 0 : swapped_items(k, &x, shared);
  uop *store = uop_substitute(g, expand_groups(g, expand_mma(g, ast), swapped, rows_first)->src[0], &specials),
      *src[2 + MAX_AXES];
  map_free(&specials);
  store = expand_shared_stages(g, store);
  memcpy(src, store->src, 2 * sizeof *src);
  size_t n = 2;
  for (size_t i = 2; i < store->nsrc; i++) if (store->src[i]->op == OP_RANGE) src[n++] = store->src[i];
  if (only_first) {
    uop *i = src[0]->src[1], *valid = only_first;
    if (i->op == OP_WHERE) { valid = bool_and(g, i->src[0], valid); i = i->src[1]; }
    src[0] = uop_index(g, src[0]->src[0],
                       uop_op3(g, OP_WHERE, valid, i, uop_new(g, OP_INVALID, DT_IDX, 1, NULL, 0, (uarg){0})));
  }
  store = uop_new(g, OP_STORE, DT_VOID, 1, src, n, (uarg){0});
  return simplify(g, uop_new(g, OP_SINK, DT_VOID, 1, &store, 1, (uarg){0}));
}

// A core does some 20 operations on 8-bit integers or more in the time in which memory gives it a byte. One token's
// products with a weight need 2 to 10, a chunk's 100 and more.
enum { FLOPS_PER_BYTE = 16 };

static void optimise(kernel *k, const program *p, const codegen_options *o) {
  if (o && o->opts) { for (int i = 0; i < o->n_opts; i++) kernel_apply(k, o->opts[i]); return; }
  if ((o && o->noopt) || env_int(ENV_NOOPT)) return;
  heuristic(k, p->flops->vmax / FLOPS_PER_BYTE <= p->bytes->vmax);
}

program *codegen(graph *parent, uop *ast, const target *t, const codegen_options *o) {
  if (is_joined(ast)) return codegen_joined(parent, ast, t, o);
  graph *g = graph_new(parent);
  program *p = xcalloc(1, sizeof *p);
  kernel k;
  p->mem = graph_arena(g);
  p->graph = g;
  if (o) graph_record(g, o->record);
  kernel_init(&k, g, simplify(g, ast), t);
  dump("kernel", k.ast);                                check(g, k.ast, STAGE_KERNEL, "schedule");
  find_arguments(k.ast, p);
  kernel_cost(g, k.ast, p);
  optimise(&k, p, o);                                   check(g, k.ast, STAGE_KERNEL, "optimise");
  memcpy(p->order, k.order, sizeof p->order);
  p->ahead = k.ahead;
  p->by_table = k.by_table;
  p->without = k.without;
  kernel_make_tiles(&k);                                check(g, k.ast, STAGE_KERNEL, "tiles");
  name_kernel(&k, p);
  p->applied = memcpy(ARENA_ARRAY(p->mem, opt, k.n_applied + 1), k.applied, (size_t)k.n_applied * sizeof *k.applied);
  p->n_applied = k.n_applied;
  dump("optimised", k.ast);
  uop *u = t->has_local ? special_axes(&k, p) : k.ast;  check(g, u, STAGE_OPTIMISED, "work-groups");
  u = expand_gates(g, u);                               check(g, u, STAGE_OPTIMISED, "gates");
  u = expand_stages(g, u);                              check(g, u, STAGE_OPTIMISED, "stages");
  u = expand_unrolls(g, u);                             check(g, u, STAGE_OPTIMISED, "unroll");
  u = expand_lanes(g, u);                               check(g, u, STAGE_OPTIMISED, "lanes");
  u = keep_values(g, u, k.keep, k.keep_hint, t->tile_bytes); check(g, u, STAGE_OPTIMISED, "keep");
  dump("expanded", u);
  u = decompose(g, u, t);                               check(g, u, STAGE_OPTIMISED, "decompose");
  p->tiles = uop_idx(g, 1);
  for (size_t i = 2; i < u->src[0]->nsrc; i++)
    if (u->src[0]->src[i]->b == AXIS_GLOBAL) p->tiles = u->src[0]->src[i]->src[0];
  linearize(g, u, t, p);
  if (env_int(ENV_SPEC)) verify_program(g, p->at, p->n, "linearize");
  if (debug_level() >= 3) {
    fprintf(stderr, "kernel %s:", p->name);
    for (int i = 0; i < k.n_applied; i++)
      fprintf(stderr, " %s(%d, %d)", opt_name(k.applied[i].kind), k.applied[i].axis, k.applied[i].amount);
    fputc('\n', stderr);
  }
  graph_record(g, NULL);
  if (debug_level() >= 5) { str s = {0}; program_print(&s, p); fprintf(stderr, "%s", str_c(&s)); str_free(&s); }
  return p;
}

// On a machine with work-groups, the outermost loop of a filling kernel is a work-group's number, rows are items.
static uop *filling_items(graph *g, uop *ast, program *p) {
  const uop *store = ast->src[0];
  map specials = {0};
  int n = 0, m = 0;
  if (store->src[2]->b == AXIS_GLOBAL)
    map_put(&specials, store->src[2], new_special(g, p, false, &n, store->src[2]->src[0]));
  uop *rows = store->src[store->nsrc - 1];
  map_put(&specials, rows, new_special(g, p, true, &m, rows->src[0]));
  VEC(uop *) all = {0};
  for (size_t i = 0; i < ast->nsrc; i++) {
    uop *s = uop_substitute(g, ast->src[i], &specials), *src[64];
    size_t k = 2;
    src[0] = s->src[0]; src[1] = s->src[1];
    for (size_t j = 2; j < s->nsrc; j++) if (s->src[j]->op == OP_RANGE) src[k++] = s->src[j];
    vec_push(&all, uop_new(g, OP_STORE, DT_VOID, 1, src, k, (uarg){0}));
  }
  map_free(&specials);
  uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, all.at, all.n, (uarg){0});
  vec_free(&all);
  return simplify(g, sink);
}

program *codegen_filling(graph *parent, uop *ast, const target *t) {
  graph *g = graph_new(parent);
  program *p = xcalloc(1, sizeof *p);
  p->mem = graph_arena(g);
  p->graph = g;
  find_arguments(ast, p);
  const uop *store = ast->src[0];
  p->tiles = store->nsrc > 2 && store->src[2]->b == AXIS_GLOBAL ? store->src[2]->src[0] : uop_idx(g, 1);
  p->bytes = uop_idx(g, 2 * p->bufs[0].elems);
  p->flops = uop_idx(g, 0);
  snprintf(p->name, sizeof p->name, "fill_%lld_%lld_%u", (long long)p->tiles->a,
           (long long)(p->bufs[0].elems / p->tiles->a), ast->nsrc);
  if (t->has_local) ast = filling_items(g, ast, p);
  dump("filling kernel", ast);                          check(g, ast, STAGE_OPTIMISED, "filling kernel");
  linearize(g, decompose(g, ast, t), t, p);
  return p;
}

void program_free(program *p) {
  if (!p) return;
  graph_free(p->graph);
  free(p);
}

int64_t program_eval(const program *p, const uop *u, const int64_t *vars) {
  if (u->op == OP_CONST) return u->a;
  if (u->op == OP_VAR) {
    for (int i = 0; i < p->n_vars; i++) if (!strcmp(p->vars[i]->s, u->s)) return vars[i];
    die("no value for variable %s", u->s);
  }
  int64_t s[3];
  if (u->nsrc > 3) die("cannot evaluate %s", op_name((enum op)u->op));
  for (size_t i = 0; i < u->nsrc; i++) s[i] = program_eval(p, u->src[i], vars);
  switch (u->op) {
  case OP_ADD: return s[0] + s[1];
  case OP_SUB: return s[0] - s[1];
  case OP_MUL: return s[0] * s[1];
  case OP_IDIV: return floordiv_i64(s[0], s[1]);
  case OP_MOD: return floormod_i64(s[0], s[1]);
  case OP_CDIV: return s[0] / s[1];
  case OP_CMOD: return s[0] % s[1];
  case OP_SHR: return s[0] >> s[1];
  case OP_SHL: return s[0] << s[1];
  case OP_AND: return s[0] & s[1];
  case OP_MAX: return max_i64(s[0], s[1]);
  case OP_MIN: return min_i64(s[0], s[1]);
  case OP_NEG: return -s[0];
  case OP_CAST: return s[0];
  default: die("cannot evaluate %s", op_name((enum op)u->op));
  }
}

void program_print(str *out, const program *p) {
  map number = {0};
  int indent = 1;
  str_addf(out, "program %s\n", p->name);
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    if (u->op == OP_END || u->op == OP_ENDIF) indent--;
    str_addf(out, "%*s", 2 * indent, "");
    map_put(&number, u, (void *)(uintptr_t)(i + 1));
    str_addf(out, "%%%zu = %s.%s", i, op_name((enum op)u->op), dtype_name((enum dtype)u->dt));
    if (u->lanes > 1) str_addf(out, "x%d", u->lanes);
    for (size_t j = 0; j < u->nsrc; j++) str_addf(out, " %%%ld", (long)(uintptr_t)map_ptr(&number, u->src[j]) - 1);
    if (u->op == OP_CONST) str_addf(out, " %.9g", uop_const_float(u));
    else if (u->s && u->op != OP_SHUFFLE) str_addf(out, " \"%s\"", u->s);
    else if (u->op == OP_RANGE) str_addf(out, " r%lld %s", (long long)u->a, axis_kind_name((enum axis_kind)u->b));
    else if (u->a || u->b)
      str_addf(out, u->memory ? " [%lld %lld %s]" : " [%lld %lld]", (long long)u->a, (long long)u->b,
               memory_kind_name((enum memory_kind)u->memory));
    str_addc(out, '\n');
    if (u->op == OP_RANGE || u->op == OP_IF) indent++;
  }
  map_free(&number);
}
