// Converts the output ranges that OptOps left to tiles that threads share, or to work-group ids.
#include "codegen/kernel_ranges.h"

static void outer_reduces(uop *u, map *seen, void (*each)(uop *, void *), void *ctx) {
  if (map_has(seen, u)) return;
  map_put(seen, u, (void *)1);
  if (u->op == OP_REDUCE) { each(u, ctx); return; }
  for (size_t i = 0; i < u->nsrc; i++) outer_reduces(u->src[i], seen, each, ctx);
}

typedef struct common { int n; uop **at; bool *ok; } common;

static void keep_common(uop *reduce, void *ctx) {
  common *c = ctx;
  for (int i = 0; i < c->n; i++) c->ok[i] &= uop_varies(reduce, c->at[i]);
}

void kernel_tile_ranges(const kernel *k, map *out) {
  uop *store = k->ast->src[0];
  bool ok[MAX_AXES];
  common c = {.n = (int)store->nsrc - 2, .at = store->src + 2, .ok = ok};
  for (int i = 0; i < c.n; i++) ok[i] = true;
  map seen = {0};
  outer_reduces(store->src[1], &seen, keep_common, &c);
  map_free(&seen);
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &store->src[1], 1);
  for (size_t i = 0; i < l.n; i++) if (l.at[i]->op == OP_STORE) keep_common(l.at[i], &c);      // including stages
  arena_free(a);
  for (int i = 0; i < c.n; i++) if (ok[i]) map_put(out, c.at[i], (void *)1);
}

enum { ENOUGH_TILES = 8, MANY_TILES = 64 };

// Flattens n ranges of known sizes to one, the last one fastest.
static void flatten_ranges(kernel *k, uop *const *fixed, int n, int64_t steps) {
  graph *g = k->g;
  uop *tile = uop_range(g, uop_idx(g, steps), k->next_range++, AXIS_GLOBAL);
  int64_t stride = 1;
  for (int i = n; i-- > 0; stride *= fixed[i]->src[0]->a) {
    uop *e = idx_div(g, tile, uop_idx(g, stride));
    if (i) e = idx_mod(g, e, fixed[i]->src[0]);
    replace_range(k, &(change){.r = fixed[i], .expr = e, .fresh = {tile}, .n = i == n - 1 ? 1 : 0});
  }
}

// Does the condition of an access depend on one of these ranges?
static bool guards_vary(const kernel *k, uop *const *ranges, int n) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  bool any = false;
  for (size_t i = 0; i < l.n && !any; i++)
    for (int r = 0; r < n && l.at[i]->op == OP_WHERE && l.at[i]->src[2]->op == OP_INVALID; r++)
      any |= uop_varies(l.at[i]->src[0], ranges[r]);
  arena_free(a);
  return any;
}

int kernel_group_ranges(const kernel *k, uop **out) {
  const uop *store = k->ast->src[0];
  int n = 0;
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    if ((r->b == AXIS_LOOP || r->b == AXIS_THREAD) && r->src[0]->op == OP_CONST) out[n++] = r;
  }
  return n > 1 && guards_vary(k, out, n) ? 1 : n;    // as for tiles, below
}

// Work-groups have one id for all ranges of known sizes, and two for others: numbers of tokens, or of blocks of
// positions. Each work-group computes shared values for itself.
static void make_groups(kernel *k) {
  uop *store = k->ast->src[0], *fixed[MAX_AXES], *symbolic[2];
  int n = kernel_group_ranges(k, fixed), n_symbolic = 0;
  int64_t groups = 1;
  for (int i = 0; i < n; i++) die_if(!mul_i64(groups, fixed[i]->src[0]->a, &groups), "too many work-groups");
  for (size_t i = 2; i < store->nsrc && n_symbolic < 2; i++) {
    uop *r = store->src[i];
    if ((r->b == AXIS_LOOP || r->b == AXIS_THREAD) && r->src[0]->op != OP_CONST) symbolic[n_symbolic++] = r;
  }
  for (int i = 0; i < n_symbolic; i++) change_kind(k, symbolic[i], AXIS_GLOBAL);
  if (n) flatten_ranges(k, fixed, n, groups);
}

void kernel_make_tiles(kernel *k) {
  if (k->t->has_local) { make_groups(k); return; }
  map may = {0};
  kernel_tile_ranges(k, &may);
  uop *store = k->ast->src[0], *fixed[MAX_AXES], *symbolic = NULL;
  int n = 0;
  int64_t tiles = 1;
  for (size_t i = 2; i < store->nsrc; i++) {
    uop *r = store->src[i];
    if ((r->b != AXIS_LOOP || !map_has(&may, r)) && r->b != AXIS_THREAD) continue;
    if (r->src[0]->op == OP_CONST) { fixed[n++] = r; die_if(!mul_i64(tiles, r->src[0]->a, &tiles), "too many tiles"); }
                                                            else if (!symbolic) symbolic = r;
  }
  map_free(&may);
  // bounds of guarded accesses can be proven for plain ranges only: no flattening
  if (n > 1 && has_guards(k)) { tiles = fixed[0]->src[0]->a; n = 1; }
  // inner ranges stay loops if enough tiles are left: less index arithmetic, longer runs
  while (n > 1 && fixed[n - 1]->b != AXIS_THREAD && tiles / fixed[n - 1]->src[0]->a >= MANY_TILES)
    tiles /= fixed[--n]->src[0]->a;
  if (n && (tiles >= ENOUGH_TILES || !symbolic)) flatten_ranges(k, fixed, n, tiles);
  else if (symbolic) change_kind(k, symbolic, AXIS_GLOBAL);
}
