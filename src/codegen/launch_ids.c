// Replaces GLOBAL, LOCAL and GROUP ranges with the ids of work-groups and work-items that a launch provides. One
// work-item stores the result of a GROUP, unless each work-item has its own elements. Work-items that share a sum are
// neighbours, unless work-items have rows of a weight: then these are.
#include "codegen/launch_ids.h"
#include <stdlib.h>
#include <string.h>
#include "codegen/expand.h"
#include "codegen/mma.h"
#include "codegen/stage_shared.h"

enum { NUMBERS = 3 /* of a work-group, and of an item in it */ };

static uop *new_special(graph *g, program *p, bool local, int *count, uop *size) {
  int at = (*count)++;
  die_if(at >= NUMBERS, "more than three %s axes", local ? "LOCAL" : "GLOBAL");
  char name[2] = {local ? 'l' : 'g', (char)('0' + at)};
  (local ? p->local : p->global)[at] = size;
  return uop_new(g, OP_SPECIAL, DT_IDX, 1, NULL, 0, (uarg){.b = size->vmax, .s = name, .s_len = 2});
}

// --- kinds of ranges -------------------------------------------------------------------------------------------------

// A range whose steps are rows packed next to each other: its work-items are neighbours.
static bool is_row_of_items(const kernel *k, const uop *r) {
  return r->b == AXIS_LOCAL && k->t->row_items && uop_is_int(r->src[0], k->t->row_items);
}

// Does a sum that work-items share depend on r?
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

// Is r a LOCAL range with as many steps as work-items share sums, on which no shared sum depends? Then each of these
// work-items has one step. Ranges of a tile do not count: some of its work-items may have copies of one column.
static bool is_of_sharers(const kernel *k, const uop *r, int64_t shared) {
  mma_ranges tile;
  bool own = mma_has(k->ast) && mma_find(k->ast->src[0], &tile) && (r == tile.g || r == tile.t);
  return !own && shared > 1 && r->b == AXIS_LOCAL && uop_is_int(r->src[0], shared) && !shared_depends(k, r);
}

// The number of work-items that share sums by SWAP: neighbours within a subgroup that no work-group boundary splits. 0:
// they share through memory.
static int64_t swapped_items(const kernel *k, const axes *x, int64_t shared) {
  int64_t step = k->t->subgroup_size, all = shared;
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

// --- numbers ---------------------------------------------------------------------------------------------------------

typedef struct numbering {
  kernel *k;
  program *p;
  axes x;
  int64_t shared;                          // work-items that share sums
  map to;                                  // range -> its replacement
  int n_groups, n_items;                   // ids of the launch so far
  uop *column;                             // the id for copies of one column; NULL if there are none
} numbering;

static uop *next_number(numbering *n, bool item, uop *size) {
  return new_special(n->k->g, n->p, item, item ? &n->n_items : &n->n_groups, size);
}

// Numbers first the ranges of neighbouring rows of a weight, or of a tile. False: the kernel has neither.
static bool number_rows(numbering *n) {
  graph *g = n->k->g;
  mma_ranges tile;
  bool any = false;
  bool tiled = mma_has(n->k->ast) && mma_find(n->k->ast->src[0], &tile);
  // reserve one id for the remaining ranges, one for work-items that share sums, one for a tile
  int room = NUMBERS - 1 - (n->shared > 1) - tiled;
  for (int i = 0; i < n->x.n_out && n->n_items < room; i++) {
    uop *r = n->x.at[i];
    if (!is_row_of_items(n->k, r) || is_of_sharers(n->k, r, n->shared)) continue;
    map_put(&n->to, r, next_number(n, true, r->src[0]));
    any = true;
  }
  if (!tiled) return any;
  uop *s = next_number(n, true, uop_idx(g, MMA_ITEMS));
  map_put(&n->to, tile.g, idx_div(g, s, tile.t->src[0]));
  uop *t = idx_mod(g, s, tile.t->src[0]);
  map_put(&n->to, tile.t, t);
  if (!uop_varies(n->k->ast->src[0]->src[0], tile.t)) {           // copies of one column
    map_put(&n->to, tile.j, uop_idx(g, 0));
    n->column = t;
  }
  return true;
}

// All GROUP ranges together get one id; the range that was created first moves fastest. NULL if there are none.
static uop *number_sharers(numbering *n) {
  graph *g = n->k->g;
  int64_t stride = 1;
  if (n->shared == 1) return NULL;
  uop *s = next_number(n, true, uop_idx(g, n->shared));
  for (int i = 0; i < n->x.n; i++) {
    uop *r = n->x.at[i];
    if (r->b != AXIS_GROUP) continue;
    map_put(&n->to, r, idx_mod(g, idx_div(g, s, uop_idx(g, stride)), r->src[0]));
    stride *= r->src[0]->a;
  }
  return s;
}

// Gives several ranges one id together, the first range fastest.
static void number_together(numbering *n, uop *const *r, int n_ranges) {
  graph *g = n->k->g;
  int64_t size = 1, stride = 1;
  for (int i = 0; i < n_ranges; i++) size *= r[i]->src[0]->vmax;
  uop *s = next_number(n, true, n_ranges == 1 ? r[0]->src[0] : uop_idx(g, size));
  for (int i = 0; i < n_ranges; i++) {
    map_put(&n->to, r[i], n_ranges == 1 ? s : idx_mod(g, idx_div(g, s, uop_idx(g, stride)), r[i]->src[0]));
    stride *= r[i]->src[0]->vmax;
  }
}

// Numbers the remaining LOCAL output ranges, innermost first; those that get no id of their own share one. Ranges of
// stages use the work-item's number within the work-group.
static void number_items(numbering *n, uop *ast) {
  graph *g = n->k->g;
  uop *store = ast->src[0], *item = uop_idx(g, 0), *left[MAX_AXES];
  int n_left = 0;
  for (int i = n->x.n_out; i-- > 0;)
    if (n->x.at[i]->b == AXIS_LOCAL && !map_has(&n->to, n->x.at[i]) &&
        uop_is_among(n->x.at[i], store->src + 2, (int)store->nsrc - 2))
      left[n_left++] = n->x.at[i];
  for (int i = 0, of; i < n_left; i += of) {
    of = n->n_items + 1 < NUMBERS ? 1 : n_left - i;
    number_together(n, left + i, of);
  }
  for (int i = 0; i < n->x.n_out; i++)
    if (n->x.at[i]->b == AXIS_LOCAL && map_has(&n->to, n->x.at[i]))
      item = idx_add(g, idx_mul(g, item, n->x.at[i]->src[0]), map_ptr(&n->to, n->x.at[i]));
  for (int i = n->x.n_out; i < n->x.n; i++) if (n->x.at[i]->b == AXIS_LOCAL) map_put(&n->to, n->x.at[i], item);
}

// Only the first id of a launch may be large: ranges of known sizes come first, then numbers of tokens.
static void number_groups(numbering *n) {
  for (int symbolic = 0; symbolic < 2; symbolic++)
    for (int i = 0; i < n->x.n_out; i++)
      if (n->x.at[i]->b == AXIS_GLOBAL && (n->x.at[i]->src[0]->op != OP_CONST) == symbolic)
        map_put(&n->to, n->x.at[i], next_number(n, false, n->x.at[i]->src[0]));
}

// The number of a work-item within its work-group, consecutive for neighbours.
static uop *item_number(const numbering *n, int64_t *items) {
  graph *g = n->k->g;
  uop *item = uop_idx(g, 0);
  *items = 1;
  for (int i = 0; i < n->n_items; i++) {
    int64_t size = n->p->local[i]->vmax;
    char name[2] = {'l', (char)('0' + i)};
    uop *one = uop_new(g, OP_SPECIAL, DT_IDX, 1, NULL, 0, (uarg){.b = size, .s = name, .s_len = 2});
    item = idx_add(g, item, idx_mul(g, one, uop_idx(g, *items)));
    *items *= size;
  }
  return item;
}

// Work-item 0 stores what work-items share.
static uop *stored_once(graph *g, uop *index, uop *item) {
  uop *i = index->src[1], *valid = idx_lt(g, item, uop_idx(g, 1));
  if (i->op == OP_WHERE) { valid = bool_and(g, i->src[0], valid); i = i->src[1]; }
  return uop_index(g, index->src[0],
                   uop_op3(g, OP_WHERE, valid, i, uop_new(g, OP_INVALID, DT_IDX, 1, NULL, 0, (uarg){0})));
}

uop *launch_ids(kernel *k, program *p) {
  graph *g = k->g;
  numbering n = {.k = k, .p = p, .shared = 1};
  bool all_store;
  int64_t items;
  kernel_axes(k, &n.x);
  for (int i = 0; i < n.x.n; i++) if (n.x.at[i]->b == AXIS_GROUP) n.shared *= n.x.at[i]->src[0]->a;
  bool rows_first = number_rows(&n);
  uop *ast = steps_of_sharers(k, &n.x, n.shared, &all_store), *sharer = number_sharers(&n);
  number_items(&n, ast);
  number_groups(&n);
  int64_t swapped = rows_first ? 0 : swapped_items(k, &n.x, n.shared);
  uop *item = item_number(&n, &items);
  for (int i = 0; i < n.x.n; i++)                    // neighbouring work-items are in one subgroup
    if (n.x.at[i]->b == AXIS_STEP) map_put(&n.to, n.x.at[i], idx_mod(g, item, n.x.at[i]->src[0]));
  ast = expand_groups(g, expand_mma(g, stage_in_shared(k, ast, item, items)), swapped, rows_first);
  uop *store = expand_shared_stages(g, uop_substitute(g, ast->src[0], &n.to)),
      *src[2 + MAX_AXES] = {store->src[0], store->src[1]};
  map_free(&n.to);
  size_t n_src = 2;
  for (size_t i = 2; i < store->nsrc; i++) if (store->src[i]->op == OP_RANGE) src[n_src++] = store->src[i];
  if (sharer && !all_store) src[0] = stored_once(g, src[0], sharer);
  if (n.column) src[0] = stored_once(g, src[0], n.column);
  store = uop_new(g, OP_STORE, DT_VOID, 1, src, n_src, (uarg){0});
  return simplify(g, uop_new(g, OP_SINK, DT_VOID, 1, &store, 1, (uarg){0}));
}

// --- filling ---------------------------------------------------------------------------------------------------------

// On a device with work-groups, the outermost loop of a kernel that packs a weight becomes the work-group's id, rows
// become work-items.
uop *filling_launch_ids(graph *g, uop *ast, program *p) {
  const uop *store = ast->src[0];
  map specials = {0};
  int n = 0, m = 0;
  if (store->src[2]->b == AXIS_GLOBAL)
    map_put(&specials, store->src[2], new_special(g, p, false, &n, store->src[2]->src[0]));
  uop *rows = store->src[store->nsrc - 1];
  map_put(&specials, rows, new_special(g, p, true, &m, rows->src[0]));
  VEC(uop *) all = {0};
  for (size_t i = 0; i < ast->nsrc; i++) {
    uop *s = uop_substitute(g, ast->src[i], &specials), *src[MOST_BOUND];
    size_t k = 2;
    die_if(s->nsrc > MOST_BOUND, "a filling kernel of more than %d loops", MAX_AXES);
    src[0] = s->src[0]; src[1] = s->src[1];
    for (size_t j = 2; j < s->nsrc; j++) if (s->src[j]->op == OP_RANGE) src[k++] = s->src[j];
    vec_push(&all, uop_new(g, OP_STORE, DT_VOID, 1, src, k, (uarg){0}));
  }
  map_free(&specials);
  uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, all.at, all.n, (uarg){0});
  vec_free(&all);
  return simplify(g, sink);
}
