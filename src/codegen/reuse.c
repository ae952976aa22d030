// Keeps values that the steps of a loop share. A loop over tiles of tokens inside a tile of rows would unpack the same
// weights in each step. Values that do not depend on that loop, but on loops of sums inside it, become a stage
// (rangeify.h): computed for all steps of these sums before the loop, stored in memory of the tile, and loaded where
// they are used. Values and order of operations do not change, so no bit does.
//
// A value is kept if something that depends on the loop reads it and it takes more operations than a load. A conversion
// to a wider type is done after the load: bytes are stored, not words. The LOAD has the value's
// maximum, by which descriptors of dot products are chosen. Values for equal loops are stored next to each
// other, in the order in which they are computed.
#include "codegen/reuse.h"
#include <stdlib.h>
#include <string.h>
#include "graph/symbolic.h"

enum { MOST_RANGES = MAX_AXES, MOST_RECORDS = 16, MOST_LINES = 128 };

typedef struct keeping {
  graph *g;
  uop *loop;                                     // its steps share values
  uop_list all;
  uop *outer[MOST_RANGES], *sums[MOST_RANGES];   // other output ranges; ranges of sums, outermost first
  int n_outer, n_sums;
  int least, hint;                               // operands of KEEP
  int64_t next_range;
} keeping;

// Values that depend on equal loops of sums: one record per step of these.
typedef struct records { uop *ranges[MOST_RANGES]; int n; int64_t steps, bytes; } records;
typedef struct value { uop *u; size_t of; int64_t at; } value;

// Finds the innermost plain output loop and the loops around it. False: there is none, or its steps are stages.
static bool find_loop(keeping *k, const uop *store) {
  size_t at = store->nsrc;
  while (at > 2 && store->src[at - 1]->b != AXIS_LOOP) at--;
  if (at <= 2 || store->nsrc - 2 > MOST_RANGES) return false;
  k->loop = store->src[at - 1];
  for (size_t i = 2; i < store->nsrc; i++) if (i + 1 != at) k->outer[k->n_outer++] = store->src[i];
  for (size_t i = 0; i < k->all.n; i++) {
    const uop *u = k->all.at[i];
    if (u->op == OP_LOCAL || u->op == OP_BARRIER) return false;
    if (u->op == OP_RANGE) k->next_range = max_i64(k->next_range, u->a + 1);
  }
  return true;
}

// Sorts ranges of sums by the number of loops of other sums around them. False: too many.
static bool find_sums(keeping *k) {
  int depth[MOST_RANGES];
  for (size_t i = k->all.n; i-- > 0;) {
    const uop *u = k->all.at[i];
    for (size_t j = (size_t)uop_first_range(u); u->op == OP_REDUCE && j < u->nsrc; j++) {
      if (uop_is_among(u->src[j], k->sums, k->n_sums)) continue;
      if (k->n_sums == MOST_RANGES) return false;
      int d = 0, at = k->n_sums++;
      for (size_t m = 0; m < uop_ranges(u).n; m++) d += uop_ranges(u).at[m]->b == AXIS_REDUCE;
      for (; at > 0 && depth[at - 1] > d; at--) { depth[at] = depth[at - 1]; k->sums[at] = k->sums[at - 1]; }
      depth[at] = d;
      k->sums[at] = u->src[j];
    }
  }
  return true;
}

// Operations that a value takes, without those of addresses; loads and reinterpretations count as none.
static int operations_of(const uop *u, map *seen) {
  if (map_has(seen, u)) return 0;
  map_put(seen, u, (void *)1);
  if (u->op == OP_LOAD) return u->src[0]->lanes > 1 ? u->src[0]->lanes : 0;
  if (u->op == OP_CONST) return 0;
  int n = u->op != OP_SPLAT && u->op != OP_BITCAST;
  if (u->op == OP_REDUCE) n = uop_first_range(u);
  for (size_t i = 0; i < u->nsrc && u->src[i]->op != OP_RANGE; i++) n += operations_of(u->src[i], seen);
  return n;
}

static bool reads_a_weight(const uop *u, map *seen) {
  if (map_has(seen, u)) return false;
  map_put(seen, u, (void *)1);
  if (u->op == OP_LOAD && is_weight(u->src[0]->src[0])) return true;
  for (size_t i = 0; i < u->nsrc; i++) if (reads_a_weight(u->src[i], seen)) return true;
  return false;
}

// The part of `u` worth keeping: u without conversions to wider types; NULL: nothing.
static uop *to_keep(const keeping *k, uop *u) {
  map seen = {0};
  while (u->op == OP_BITCAST ||
         (u->op == OP_CAST && dtype_size((enum dtype)u->src[0]->dt) < dtype_size((enum dtype)u->dt)))
    u = u->src[0];
  if (u->dt == DT_IDX || u->dt == DT_BOOL || u->op == OP_LOAD || u->op == OP_SPLAT) return NULL;
  bool sum = false;
  const uop_list r = uop_ranges(u);
  for (size_t i = 0; i < r.n; i++) {
    bool inner = uop_is_among(r.at[i], k->sums, k->n_sums);
    if (inner ? r.at[i]->src[0]->op != OP_CONST : !uop_is_among(r.at[i], k->outer, k->n_outer)) return NULL;
    sum |= inner;
  }
  bool worth = sum && operations_of(u, &seen) >= k->least;
  map_free(&seen);
  worth = worth && reads_a_weight(u, &seen);
  map_free(&seen);
  return worth ? u : NULL;
}

// Source j of a node that depends on the loop, if the source is a value worth keeping; otherwise NULL.
static uop *shared_source(const keeping *k, const uop *reader, size_t j) {
  uop *u = reader->src[j];
  if (!uop_varies(reader, k->loop) || reader->op == OP_INDEX || u->op == OP_RANGE || uop_varies(u, k->loop))
    return NULL;
  return to_keep(k, u);
}

// The record that u belongs to, created if necessary; -1: it would exceed the address space.
static int64_t record_of(const keeping *k, const uop *u, records *at, size_t *n) {
  records r = {.steps = 1};
  for (int i = 0; i < k->n_sums; i++) {
    if (!uop_varies(u, k->sums[i])) continue;
    r.ranges[r.n++] = k->sums[i];
    if (!mul_i64(r.steps, k->sums[i]->src[0]->a, &r.steps)) return -1;
  }
  for (size_t i = 0; i < *n; i++)
    if (at[i].n == r.n && !memcmp(at[i].ranges, r.ranges, sizeof r.ranges)) return (int64_t)i;
  at[*n] = r;
  return (int64_t)(*n)++;
}

typedef VEC(value) values;

// Collects all values worth keeping, in the order in which they are computed, with their places in records. False: they
// do not fit.
static bool find_values(const keeping *k, values *found, records *of, size_t *n_of, int64_t most) {
  map known = {0};
  bool fits = true;
  for (size_t i = 0; i < k->all.n && fits; i++) {
    const uop *reader = k->all.at[i];
    for (size_t j = 0; j < reader->nsrc && fits; j++) {
      uop *u = shared_source(k, reader, j);
      if (!u || map_has(&known, u)) continue;
      map_put(&known, u, u);
      int64_t which = record_of(k, u, of, n_of), size = (int64_t)u->lanes * dtype_size((enum dtype)u->dt), unit = 1;
      fits = which >= 0 && *n_of < MOST_RECORDS;
      if (!fits) break;
      while (unit < size && unit < CACHE_LINE) unit *= 2;
      records *r = &of[which];
      r->bytes = (r->bytes + unit - 1) / unit * unit;
      vec_push(found, ((value){u, (size_t)which, r->bytes}));
      r->bytes += size;
    }
  }
  map_free(&known);
  int64_t all = 0, bytes;
  for (size_t i = 0; i < *n_of && fits; i++) {
    of[i].bytes = (of[i].bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    fits = mul_i64(of[i].bytes, of[i].steps, &bytes) && add_i64(all, bytes, &all) && all <= most;
  }
  return fits;
}

// Memory would be idle while a tile computes. Each tile therefore prefetches the packed weight of the next tile: an
// equal share of its lines in each step of the loop, inside the loops of sums that read it.

// What the innermost loops read of a packed weight in their first step: bytes `first` to `last`, and the first load.
typedef struct source { uop *stream, *load; int64_t first, last; int depth; } source;
typedef VEC(source) sources;

static void note_load(const keeping *k, uop *load, sources *all) {
  uop *stream = load->src[0]->src[0], *at = load->src[0]->src[1];
  int64_t unit = dtype_size((enum dtype)stream->dt), first = at->vmin * unit,
          last = first + (int64_t)load->lanes * dtype_size((enum dtype)load->dt);
  int depth = 0;
  for (int i = 0; i < k->n_sums; i++) depth += uop_varies(at, k->sums[i]);
  source *s = NULL;
  for (size_t i = 0; i < all->n; i++) if (all->at[i].stream == stream) s = &all->at[i];
  if (!s) { vec_push(all, (source){.stream = stream}); s = &all->at[all->n - 1]; }
  if (depth < s->depth || !depth) return;
  if (depth > s->depth) *s = (source){stream, load, first, last, depth};
  if (first < s->first) { s->first = first; s->load = load; }
  s->last = max_i64(s->last, last);
}

static void find_sources(const keeping *k, sources *all) {
  for (size_t i = 0; i < k->all.n && k->hint; i++) {
    uop *u = k->all.at[i];
    if (u->op == OP_LOAD && is_stream(u->src[0]->src[0]) && u->src[0]->lanes == 1 && !uop_varies(u, k->loop))
      note_load(k, u, all);
  }
}

// Returns NULL if the bytes do not move evenly from tile to tile, or are too many.
static uop *ask_for_next(const keeping *k, const source *s, int64_t number) {
  graph *g = k->g;
  idx_sum at;
  if (!s->load || !idx_sum_of(s->load->src[0]->src[1], &at)) return NULL;
  int64_t unit = dtype_size((enum dtype)s->stream->dt), tile = 0,
          lines = (s->last - s->first + 2 * CACHE_LINE - 2) / CACHE_LINE;
  for (int i = 0; i < at.n; i++)
    if (at.atom[i]->op == OP_RANGE && at.atom[i]->b == AXIS_GLOBAL) tile = at.coeff[i] * unit;
  if (tile <= 0 || lines > MOST_LINES) return NULL;
  uop *steps = uop_op2(g, OP_MAX, k->loop->src[0], uop_idx(g, 1));
  uop *share = idx_div(g, idx_add(g, steps, uop_idx(g, lines - 1)), steps);
  uop *line = share->vmax > 1 ? uop_range(g, share, k->next_range + number, AXIS_LOOP) : uop_idx(g, 0);
  uop *from = idx_mul(g, idx_add(g, idx_mul(g, k->loop, share), line), uop_idx(g, CACHE_LINE / unit));
  uop *src[] = {uop_index(g, s->stream, simplify(g, idx_add(g, s->load->src[0]->src[1], from))), line};
  return uop_new(g, OP_PREFETCH, DT_VOID, 1, src, share->vmax > 1 ? 2 : 1, (uarg){.a = tile, .b = k->hint - 1});
}

static bool stands_in(const uop *u, const uop *load, map *seen) {
  if (u == load) return true;
  if (map_has(seen, u)) return false;
  map_put(seen, u, (void *)1);
  for (size_t i = 0; i < u->nsrc; i++) if (stands_in(u->src[i], load, seen)) return true;
  return false;
}

// The kept value that this load belongs to; -1 if there is none.
static int64_t kept_for(const values *found, const uop *load) {
  for (size_t i = 0; i < found->n; i++) {
    map seen = {0};
    bool hit = stands_in(found->at[i].u, load, &seen);
    map_free(&seen);
    if (hit) return (int64_t)i;
  }
  return -1;
}

// A load that is ordered after the prefetch `ask`.
static uop *asking(graph *g, const uop *load, uop *ask) {
  uop *src[4];
  die_if(load->nsrc + 1 > COUNT(src), "LOAD after %u effects", load->nsrc - 1);
  memcpy(src, load->src, load->nsrc * sizeof *src);
  src[load->nsrc] = ask;
  return uop_new(g, OP_LOAD, (enum dtype)load->dt, load->lanes, src, load->nsrc + 1, uop_arg(load));
}

// --- all together ----------------------------------------------------------------------------------------------------

static uop *load_kept(graph *g, const value *v, const records *of) {
  const records *r = &of[v->of];
  uop *at = uop_idx(g, 0), *src[2 + MOST_RANGES];
  for (int i = 0; i < r->n; i++) at = idx_add(g, idx_mul(g, at, r->ranges[i]->src[0]), r->ranges[i]);
  at = simplify(g, idx_add(g, idx_mul(g, at, uop_idx(g, r->bytes)), uop_idx(g, v->at)));
  uop *mem = uop_new(g, OP_LOCAL, DT_U8, 1, NULL, 0,
                     (uarg){.a = (int64_t)v->of, .b = r->bytes * r->steps, .memory = MEMORY_TILE});
  src[0] = uop_index(g, mem, at);
  src[1] = v->u;
  memcpy(src + 2, r->ranges, (size_t)r->n * sizeof *src);
  uop *store = uop_new(g, OP_STORE, DT_VOID, 1, src, 2 + (size_t)r->n, (uarg){0});
  bool small = dtype_is_int((enum dtype)v->u->dt) && v->u->vmin >= 0 && v->u->vmax < dtype_max((enum dtype)v->u->dt);
  return uop_new(g, OP_LOAD, (enum dtype)v->u->dt, v->u->lanes, (uop *[]){src[0], store}, 2,
                 (uarg){.a = small ? v->u->vmax : 0});
}

bool reuses_anything(uop *ast, int least) {
  arena *a = arena_new();
  keeping k = {.all = uop_toposort(a, &ast, 1), .least = least};
  bool any = false;
  if (find_loop(&k, ast->src[0]) && find_sums(&k))
    for (size_t i = 0; i < k.all.n; i++)
      for (size_t j = 0; j < k.all.at[i]->nsrc && !any; j++) any = shared_source(&k, k.all.at[i], j);
  arena_free(a);
  return any;
}

uop *reuse_across_tokens(graph *g, uop *ast, int least, int hint, int64_t bytes) {
  if (!least) return ast;
  arena *a = arena_new();
  keeping k = {.g = g, .all = uop_toposort(a, &ast, 1), .least = least, .hint = hint};
  records of[MOST_RECORDS] = {0};
  size_t n_of = 0;
  values found = {0};
  sources streams = {0};
  map loads = {0};
  if (find_loop(&k, ast->src[0]) && find_sums(&k)) {
    if (!find_values(&k, &found, of, &n_of, bytes)) found.n = 0;
    for (size_t i = 0; i < found.n; i++) map_put(&loads, found.at[i].u, load_kept(g, &found.at[i], of));
    find_sources(&k, &streams);
  }
  for (size_t i = 0; i < streams.n; i++) {
    uop *ask = ask_for_next(&k, &streams.at[i], (int64_t)i);
    int64_t by = kept_for(&found, streams.at[i].load);
    uop *reader = by < 0 ? streams.at[i].load : found.at[by].u;
    bool open = ask != NULL;                       // where it is read, the loops of the load are open
    for (int j = 0; j < k.n_sums && open; j++)
      open = !uop_varies(streams.at[i].load, k.sums[j]) || uop_varies(reader, k.sums[j]);
    if (open) map_put(&loads, reader, asking(g, by < 0 ? reader : map_ptr(&loads, reader), ask));
  }
  if (loads.n) ast = uop_substitute(g, ast, &loads);
  map_free(&loads);
  vec_free(&found); vec_free(&streams);
  arena_free(a);
  return ast;
}
