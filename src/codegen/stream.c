// Where the bytes lie decides everything: a kernel whose lanes are rows gathers its weight from rows that are far
// apart. So the weight is laid out anew at load: what an iteration of the loop nest reads, in the order in which it
// reads it, one iteration after the other, one ascending stream. The layout is derived from the kernel's own loads and
// knows no format: each wide load of a weight becomes an item at a fixed place of the iteration's share, and a filling
// kernel, made of the same addresses, copies the items there once.
//
// This is done for a weight only if all of its loads are of that kind: addresses that are a sum of multiples of the
// loop counters, a constant, and something that the lane alone decides. The order of items is that of the reduction's
// terms and, within a term, of addresses, which does not depend on how activations are indexed: one token or many, the
// stream is the same.
//
// A weight may be one of several that lie one after another (experts), and which one a loaded number: a term of the
// address that is a multiple of a bounded value. That value counts as a loop around all others, of as many steps as it
// has values: the stream has one expert after the other.
//
// A large weight of which an iteration reads several rows is treated in the same way. One whose rows are read one after
// the other anyway needs no other order, but huge pages: its stream is the file's bytes. Not where a run reads little
// of it (one token's row of an embedding).
#include "codegen/stream.h"
#include <stdlib.h>
#include <string.h>
#include "codegen/opt.h"
#include "graph/symbolic.h"

enum { MAX_ITEMS = 1024, MAX_LANES = 256, MAX_DEPTH = 8, LARGE = 1 << 20 };

typedef struct item {
  uop *load;                                            // or what takes its place: an expression of loads
  // computed when the stream is filled, over the file's bytes and loop_range()s; NULL: copied
  uop *value;
  enum dtype dt;                                        // in the stream
  int64_t base, stride[MAX_DEPTH], lane[MAX_LANES];     // bytes: constant part, per step of each loop, per lane
  int64_t key;                                          // the order of items within a term: that of their bases
  int64_t at, bytes;                                    // place and size in an iteration's share
  // elements in the stream; each goes to `repeat` neighbouring lanes
  int lanes, repeat;
  unsigned loops;                                       // the loops that it depends on
  // folded: 1 + the item whose place it shares, `copy` iterations further in each loop
  int like, copy[MAX_DEPTH];
} item;

typedef struct plan {
  graph *g;
  // RANGEs or parts of one; before them, what chooses among matrices
  uop *param, *loop[MAX_DEPTH];
  int64_t size[MAX_DEPTH], folded[MAX_DEPTH];           // iterations; how many copies became iterations (1: none)
  int n_loops, n_rows;                                  // n_rows: loops up to the last one of the rows
  // the loop of which so many neighbours lie side by side; -1, 1: none
  int row, tiles;
  VEC(item) items;
  map index;                                            // LOAD -> 1 + item
} plan;

// --- addresses ------------------------------------------------------------------------------------------------------

// A vector index as an expression over one scalar, the lane; NULL if it hangs on what is loaded.
static uop *scalar_of(graph *g, uop *u, uop *lane, map *memo) {
  uop *hit = map_ptr(memo, u);
  if (hit) return hit;
  uop *r, *s[3];
  if (u->lanes > 1 && u->op != OP_LANE && u->op != OP_SPLAT && u->op != OP_CONST &&
      !(op_flags((enum op)u->op) & OPF_ELEMENTWISE))
    return NULL;
  if (u->op == OP_LANE) r = lane;
  else if (u->op == OP_SPLAT) r = u->src[0];
  else if (u->lanes == 1) r = u;
  else {
    for (size_t i = 0; i < u->nsrc; i++) if (!(s[i] = scalar_of(g, u->src[i], lane, memo))) return NULL;
    r = u->op == OP_CONST ? uop_idx(g, u->a)
        : u->nsrc == 1    ? uop_op1(g, (enum op)u->op, s[0])
        : u->nsrc == 2    ? uop_op2(g, (enum op)u->op, s[0], s[1])
                          : uop_op3(g, (enum op)u->op, s[0], s[1], s[2]);
  }
  map_put(memo, u, r);
  return r;
}

static bool value_of(const uop *u, const uop *lane, int64_t at, int64_t *out) {
  int64_t a, b;
  if (u == lane) { *out = at; return true; }
  if (u->op == OP_CONST) { *out = u->a; return true; }
  if (u->nsrc != 2 || !value_of(u->src[0], lane, at, &a) || !value_of(u->src[1], lane, at, &b)) return false;
  switch (u->op) {
  case OP_ADD: return add_i64(a, b, out);
  case OP_MUL: return mul_i64(a, b, out);
  case OP_SUB: *out = a - b; return true;
  case OP_IDIV: if (b <= 0) return false; *out = floordiv_i64(a, b); return true;
  case OP_MOD: if (b <= 0) return false; *out = floormod_i64(a, b); return true;
  default: return false;
  }
}

static bool only_lane(const uop *u, const uop *lane) {
  if (u == lane || u->op == OP_CONST) return true;
  if (!u->nsrc || u->op == OP_RANGE || u->op == OP_LOAD) return false;
  for (size_t i = 0; i < u->nsrc; i++) if (!only_lane(u->src[i], lane)) return false;
  return true;
}

static int loop_of(plan *p, uop *r) {
  for (int i = 0; i < p->n_loops; i++) if (p->loop[i] == r) return i;
  return -1;
}

static bool describe(plan *p, uop *load, item *it) {
  graph *g = p->g;
  int unit = dtype_size((enum dtype)p->param->dt), lanes = load->lanes, size = dtype_size((enum dtype)load->dt);
  uop *index = load->src[0]->src[1], *lane = uop_range(g, uop_idx(g, lanes), -1, AXIS_LANE);
  *it = (item){.load = load, .dt = (enum dtype)load->dt, .bytes = (int64_t)lanes * size};
  if (lanes > MAX_LANES || load->nsrc != 1) return false;
  map memo = {0};
  uop *i = index->lanes > 1 ? scalar_of(g, index, lane, &memo) : index;
  map_free(&memo);
  if (!i) return false;
  if (index->lanes > 1) i = simplify(g, i);
  idx_sum s;
  if (!idx_sum_of(i, &s)) return false;
  it->base = s.constant * unit;
  for (int l = 0; l < lanes; l++) it->lane[l] = index->lanes > 1 ? 0 : (int64_t)l * size;
  for (int t = 0; t < s.n; t++) {
    int loop = loop_of(p, s.atom[t]);
    if (loop >= 0) { it->stride[loop] = s.coeff[t] * unit; it->loops |= 1u << loop; continue; }
    if (!only_lane(s.atom[t], lane)) return false;
    for (int l = 0; l < lanes; l++) {
      int64_t v;
      if (!value_of(s.atom[t], lane, l, &v)) return false;
      it->lane[l] += v * s.coeff[t] * unit;
    }
  }
  it->base += it->lane[0];
  it->key = it->base * MAX_ITEMS;
  for (int l = lanes; l-- > 0;) it->lane[l] -= it->lane[0];
  for (it->repeat = 4; it->repeat > 1; it->repeat /= 2) {
    bool same = lanes % it->repeat == 0;
    for (int l = 0; same && l < lanes; l++) same = it->lane[l] == it->lane[l - l % it->repeat];
    if (same) break;
  }
  it->lanes = lanes / it->repeat;
  it->bytes /= it->repeat;
  for (int l = 0; l < it->lanes; l++) it->lane[l] = it->lane[l * it->repeat];
  return true;
}

// --- folding --------------------------------------------------------------------------------------------------------
//
// Rows computed side by side and blocks unrolled are copies of the loads, a step of s apart where the loop that they
// were cut from has steps of n s. Folded, n copies are n iterations of that loop, and the layout is the one that the
// kernel would have without them: two kernels that differ in such cuts alone then read one stream.

static bool same_item(const plan *p, const item *a, const item *b, int64_t step) {
  return a->base + step == b->base && a->loops == b->loops && a->lanes == b->lanes && a->repeat == b->repeat &&
         a->bytes == b->bytes && a->load->dt == b->load->dt &&
         !memcmp(a->stride, b->stride, (size_t)p->n_loops * sizeof *a->stride) &&
         !memcmp(a->lane, b->lane, (size_t)a->lanes * sizeof *a->lane);
}

static item *copy_of(plan *p, const item *it, int64_t step) {
  for (size_t i = 0; i < p->items.n; i++) {
    item *other = &p->items.at[i];
    if (!other->like && same_item(p, it, other, step)) return other;
  }
  return NULL;
}

static bool fold_loop(plan *p, int loop, int n) {
  size_t live = 0, in_groups = 0;
  item **group = xcalloc(p->items.n * (size_t)n, sizeof *group);
  for (size_t i = 0; i < p->items.n; i++) {
    item *it = &p->items.at[i];
    if (it->like || !(it->loops >> loop & 1)) continue;
    live++;
    int64_t step = it->stride[loop] / n;
    if (it->stride[loop] % n || step <= 0 || copy_of(p, it, -step)) continue;
    int k = 1;
    group[i * (size_t)n] = it;
    while (k < n && (group[i * (size_t)n + (size_t)k] = copy_of(p, it, k * step))) k++;
    if (k == n) in_groups += (size_t)n;
  }
  bool ok = live && in_groups == live;
  for (size_t i = 0; ok && i < p->items.n; i++)
    for (int k = 1; group[i * (size_t)n] && k < n; k++) {
      item *other = group[i * (size_t)n + (size_t)k];
      other->like = (int)i + 1;
      other->copy[loop] = k;
    }
  for (size_t i = 0; ok && i < p->items.n; i++) if (p->items.at[i].loops >> loop & 1) p->items.at[i].stride[loop] /= n;
  if (ok) { p->folded[loop] *= n; p->size[loop] *= n; }
  free(group);
  return ok;
}

static void fold_copies(plan *p) {
  enum { MOST = 16 };
  for (int loop = 0; loop < p->n_loops; loop++)
    for (int n = MOST; n > 1; n--) if (fold_loop(p, loop, n)) break;
}

// --- order ----------------------------------------------------------------------------------------------------------

// The smallest address of this weight below u, as a key.
static int64_t lowest(plan *p, uop *u, map *memo) {
  void *known;
  if (map_get(memo, (uint64_t)(uintptr_t)u, &known)) return (int64_t)(intptr_t)known;
  int64_t low = INT64_MAX;
  uintptr_t i = (uintptr_t)map_ptr(&p->index, u);
  if (i) low = p->items.at[i - 1].key;
  else for (size_t k = 0; k < u->nsrc; k++) low = min_i64(low, lowest(p, u->src[k], memo));
  map_put(memo, u, (void *)(intptr_t)low);
  return low;
}

// share: bytes so far of an iteration, by set of loops
typedef struct order { plan *p; map low, seen; int64_t *share; } order;

static void place(order *o, uop *u) {
  if (map_has(&o->seen, u) || lowest(o->p, u, &o->low) == INT64_MAX) return;
  map_put(&o->seen, u, (void *)1);
  uintptr_t i = (uintptr_t)map_ptr(&o->p->index, u);
  if (i) {
    item *it = &o->p->items.at[i - 1];
    if (it->like) return;
    it->at = o->share[it->loops];
    o->share[it->loops] += it->bytes;
    return;
  }
  uop *few[64], **s = u->nsrc <= COUNT(few) ? few : xmalloc(u->nsrc * sizeof *s);
  memcpy(s, u->src, u->nsrc * sizeof *s);
  if (u->op != OP_REDUCE && u->op != OP_SINK)               // terms keep their order; other operands by address
    for (size_t a = 1; a < u->nsrc; a++)
      for (size_t b = a; b > 0 && lowest(o->p, s[b], &o->low) < lowest(o->p, s[b - 1], &o->low); b--) {
        uop *t = s[b];
        s[b] = s[b - 1];
        s[b - 1] = t;
      }
  for (size_t k = 0; k < u->nsrc; k++) place(o, s[k]);
  if (s != few) free(s);
}

// --- filling --------------------------------------------------------------------------------------------------------

// The longest run of bytes (1, 2, 4, 8) into which all of the item's lanes fall.
static int64_t unit_of(const item *it, int size, int least) {
  for (int64_t u = 8; u > size; u /= 2) {
    if (u % size || it->bytes % u) continue;
    int k = (int)(u / size);
    bool ok = true;
    for (int l = 0; ok && l < it->lanes; l++) ok = it->lane[l] == it->lane[l - l % k] + (int64_t)(l % k) * size;
    if (ok && u >= least) return u;
  }
  return size;
}

// The copy of one item: `count` units, evenly apart in the file; or, where they are not, unit number `only` alone.
static uop *copy(plan *p, const item *it, uop **ranges, int n, uop *lane, int64_t unit, int64_t step, int only,
                 int64_t start, int64_t share, const int64_t *flat, int row, int64_t stream_bytes) {
  graph *g = p->g;
  int per = (int)(unit / dtype_size((enum dtype)it->load->dt)), raw_unit = dtype_size((enum dtype)p->param->dt);
  uop *to = uop_idx(g, start + it->at + only * unit), *from = uop_idx(g, (it->base + it->lane[only * per]) / raw_unit);
  for (int i = 0; i < n; i++) {
    uop *r = ranges[i], *tiles = uop_idx(g, p->tiles);
    if (i == row) {
      to = idx_add(g, to, idx_mul(g, idx_mod(g, r, tiles), uop_idx(g, share)));
      r = idx_div(g, r, tiles);
    }
    to = idx_add(g, to, idx_mul(g, r, uop_idx(g, flat[i] * share)));
    from = idx_add(g, from, idx_mul(g, ranges[i], uop_idx(g, it->stride[i] / raw_unit)));
  }
  if (lane) {
    to = idx_add(g, to, idx_mul(g, lane, uop_idx(g, unit)));
    from = idx_add(g, from, idx_mul(g, lane, uop_idx(g, step / raw_unit)));
  }
  uop *stream = uop_new(g, OP_PARAM, DT_U8, 1, NULL, 0, (uarg){.a = 0, .b = stream_bytes});
  uop *raw = uop_new(g, OP_PARAM, (enum dtype)p->param->dt, 1, NULL, 0, (uarg){.a = 1, .b = p->param->b});
  uop *src[3 + MAX_DEPTH];
  size_t k = 0;
  src[k++] = uop_index(g, stream, to);
  src[k++] = uop_load(g, uop_index(g, raw, from), dtype_unsigned(unit), 1);
  for (int i = 0; i < n; i++) if (it->loops >> i & 1) src[k++] = ranges[i];
  if (lane) src[k++] = lane;
  return uop_new(g, OP_STORE, DT_VOID, 1, src, k, (uarg){0});
}

// Neighbouring loops through which all items go as through one are one: how a kernel cuts its loops does not change the
// stream.
static int merge_loops(plan *p, unsigned set, int64_t *size, int *row) {
  int n = 0, of[MAX_DEPTH];
  *row = -1;
  for (int i = 0; i < p->n_loops; i++) {
    if (!(set >> i & 1)) continue;
    bool join = n > 0 && *row < 0;
    for (size_t k = 0; join && k < p->items.n; k++) {
      item *it = &p->items.at[k];
      if (it->loops == set && !it->like && !it->value) join = it->stride[of[n - 1]] == it->stride[i] * p->size[i];
    }
    if (join) { size[n - 1] *= p->size[i]; of[n - 1] = i; }
    else { of[n] = i; size[n++] = p->size[i]; }
    if (i == p->row) *row = n - 1;
  }
  for (size_t k = 0; k < p->items.n; k++) {
    item *it = &p->items.at[k];
    if (it->loops != set || it->like || it->value) continue;
    int64_t s[MAX_DEPTH];
    for (int i = 0; i < n; i++) s[i] = it->stride[of[i]];
    memcpy(it->stride, s, (size_t)n * sizeof *s);
  }
  return n;
}

static void add_fill(program *prog, program_stream *out, uop *sink) {
  str text = {0};
  uop_print(&text, &sink, 1);
  str_addc(&text, 0);
  if (out->n_fills == (int)COUNT(out->fill)) die("a stream of more than %d parts", out->n_fills);
  out->fill[out->n_fills++] = memcpy(arena_alloc(prog->mem, text.n), text.at, text.n);
  str_free(&text);
}

static uop *loop_range(plan *p, int k) { return uop_range(p->g, uop_idx(p->g, p->size[k]), -2 - k, AXIS_LOOP); }

// One filling kernel for all values that are computed.
static void fill_values(plan *p, program *prog, program_stream *out, unsigned set, int64_t start, int64_t share) {
  graph *g = p->g;
  uop *src[2 + MAX_DEPTH], *flat = uop_idx(g, 0),
                           *stream = uop_new(g, OP_PARAM, DT_U8, 1, NULL, 0, (uarg){.a = 0, .b = out->bytes});
  map ranges = {0};
  size_t n = 2;
  for (int k = 0; k < p->n_loops; k++) {
    if (!(set >> k & 1)) continue;
    src[n] = uop_range(g, uop_idx(g, p->size[k]), k, n == 2 ? AXIS_GLOBAL : AXIS_LOOP);
    map_put(&ranges, loop_range(p, k), src[n]);
    flat = idx_add(g, idx_mul(g, flat, uop_idx(g, p->size[k])), src[n++]);
  }
  VEC(uop *) stores = {0};
  for (size_t i = 0; i < p->items.n; i++) {
    const item *it = &p->items.at[i];
    if (!it->value || it->loops != set) continue;
    src[0] = uop_index(g, stream, idx_add(g, idx_mul(g, flat, uop_idx(g, share)), uop_idx(g, start + it->at)));
    src[1] = uop_substitute(g, it->value, &ranges);
    vec_push(&stores, uop_new(g, OP_STORE, DT_VOID, 1, src, n, (uarg){0}));
  }
  if (stores.n) add_fill(prog, out, simplify(g, uop_new(g, OP_SINK, DT_VOID, 1, stores.at, stores.n, (uarg){0})));
  vec_free(&stores);
  map_free(&ranges);
}

static void fill_set(plan *p, program *prog, program_stream *out, unsigned set, int64_t start, int64_t share) {
  graph *g = p->g;
  int64_t size[MAX_DEPTH], flat[MAX_DEPTH], f = 1;
  int row, n = merge_loops(p, set, size, &row), raw_unit = dtype_size((enum dtype)p->param->dt);
  uop *ranges[MAX_DEPTH];
  for (int i = n; i-- > 0; f *= size[i]) flat[i] = i >= row ? f * p->tiles : f;
  for (int i = 0; i < n; i++) ranges[i] = uop_range(g, uop_idx(g, size[i]), i, i ? AXIS_LOOP : AXIS_GLOBAL);
  map done = {0};
  // one filling kernel for all items with equally many evenly spaced units
  for (size_t first = 0; first < p->items.n; first++) {
    if (p->items.at[first].loops != set || p->items.at[first].like || p->items.at[first].value ||
        map_has(&done, &p->items.at[first]))
      continue;
    VEC(uop *) stores = {0};
    int64_t units = 0;
    uop *lane = NULL;
    for (size_t k = first; k < p->items.n; k++) {
      item *it = &p->items.at[k];
      if (it->loops != set || it->like || it->value || map_has(&done, it)) continue;
      int esize = dtype_size((enum dtype)it->load->dt);
      int64_t unit = unit_of(it, esize, raw_unit), count = it->bytes / unit,
              step = count > 1 ? it->lane[unit / esize] : 0;
      bool even = true;
      for (int64_t i = 0; i < count; i++) even &= it->lane[i * unit / esize] == i * step;
      if (!even || count == 1) count = 1;
      if (units && count != units) continue;
      if (!units) { units = count; if (count > 1) lane = uop_range(g, uop_idx(g, count), n, AXIS_LOOP); }
      map_put(&done, it, (void *)1);
      struct item moved = *it;
      moved.loops = (1u << n) - 1;
      for (int64_t i = 0; i < (count == 1 ? it->bytes / unit : 1); i++)
        vec_push(&stores, copy(p, &moved, ranges, n, lane, unit, step, (int)i, start, share, flat, row, out->bytes));
    }
    add_fill(prog, out, uop_new(g, OP_SINK, DT_VOID, 1, stores.at, stores.n, (uarg){0}));
    vec_free(&stores);
  }
  map_free(&done);
  fill_values(p, prog, out, set, start, share);
}

// --- one weight -----------------------------------------------------------------------------------------------------

// The range that u is part of (by divisions and remainders), or NULL.
static uop *viewed(uop *u) {
  while ((u->op == OP_IDIV || u->op == OP_MOD) && u->src[1]->op == OP_CONST) u = u->src[0];
  return u->op == OP_RANGE ? u : NULL;
}

// What the addresses of this load are multiples of, other than what the lane decides.
static void find_atoms(plan *p, uop *load, map *seen, uop **atom, int *n) {
  graph *g = p->g;
  uop *i = load->src[0]->src[1], *lane = uop_range(g, uop_idx(g, load->lanes), -1, AXIS_LANE);
  map memo = {0};
  idx_sum s;
  if (i->lanes > 1) i = scalar_of(g, i, lane, &memo);
  map_free(&memo);
  if (!i || !idx_sum_of(simplify(g, i), &s)) return;
  for (int t = 0; t < s.n; t++) {
    if (only_lane(s.atom[t], lane) || map_has(seen, s.atom[t]) || *n == MAX_DEPTH) continue;
    map_put(seen, s.atom[t], s.atom[t]);
    atom[(*n)++] = s.atom[t];
  }
}

static void add_loop(plan *p, uop *u) {
  if (u->vmin != 0 || u->vmax == INT64_MAX || (u->op == OP_RANGE && u->src[0]->op != OP_CONST) ||
      p->n_loops == MAX_DEPTH)
    return;
  p->loop[p->n_loops] = u;
  p->size[p->n_loops++] = u->vmax + 1;
}

// Outer loops first; what chooses a matrix before all of them.
static void find_loops(plan *p, const uop_list *l, uop *ast) {
  VEC(uop *) binders = {0};
  map seen = {0};
  uop *atom[MAX_DEPTH];
  int n = 0;
  for (size_t i = 0; i < l->n; i++)
    if (l->at[i]->op == OP_LOAD && l->at[i]->src[0]->src[0] == p->param) find_atoms(p, l->at[i], &seen, atom, &n);
  map_free(&seen);
  for (int i = 0; i < n; i++) if (!viewed(atom[i])) add_loop(p, atom[i]);
  vec_push(&binders, ast->src[0]);
  // outer loops first
  for (size_t i = l->n; i-- > 0;) if (l->at[i]->op == OP_REDUCE) vec_push(&binders, l->at[i]);
  for (size_t i = 0; i < binders.n; i++)
    for (size_t j = (size_t)uop_first_range(binders.at[i]); j < binders.at[i]->nsrc; j++)
      for (int k = 0; k < n; k++)
        if (viewed(atom[k]) == binders.at[i]->src[j] && loop_of(p, atom[k]) < 0) {
          add_loop(p, atom[k]);
          if (!i) p->n_rows = p->n_loops;
        }
  vec_free(&binders);
}

// False where some load of the weight is of another kind.
static bool find_items(plan *p, const uop_list *l, bool *scattered) {
  for (size_t i = 0; i < l->n; i++) {
    uop *u = l->at[i];
    if (u->op != OP_LOAD || u->src[0]->src[0] != p->param) continue;
    item it;
    if (u->lanes == 1 || p->items.n == MAX_ITEMS || !describe(p, u, &it)) return false;
    *scattered |= u->src[0]->src[1]->lanes > 1;
    vec_push(&p->items, it);
    map_put(&p->index, u, (void *)(uintptr_t)p->items.n);
  }
  return p->items.n > 0;
}

// Every lane `times` times: 0 0 1 1 2 2 ...
static uop *repeated(graph *g, uop *u, int times) {
  char lanes[2 * MAX_LANES];
  int n = u->lanes * times;
  for (int i = 0; i < n; i++) { lanes[2 * i] = (char)(i / times & 255); lanes[2 * i + 1] = (char)(i / times >> 8); }
  return uop_new(g, OP_SHUFFLE, (enum dtype)u->dt, n, &u, 1, (uarg){.s = lanes, .s_len = 2 * (size_t)n});
}

static uop *replace_loads(plan *p, uop *ast, const int64_t *start, const int64_t *share, int64_t bytes) {
  graph *g = p->g;
  map m = {0};
  uop *stream = uop_new(g, OP_PARAM, DT_U8, 1, NULL, 0, (uarg){p->param->a, bytes, "stream", 6});
  for (size_t i = 0; i < p->items.n; i++) {
    item *it = &p->items.at[i], *of = it;
    int64_t copy[MAX_DEPTH];
    for (int k = 0; k < p->n_loops; k++) copy[k] = it->copy[k];
    while (of->like) {                                                      // a copy of a copy
      of = &p->items.at[of->like - 1];
      for (int k = 0; k < p->n_loops; k++) copy[k] += of->copy[k];
    }
    uop *at = uop_idx(g, 0), *tiles = uop_idx(g, p->tiles), *beside = NULL;
    for (int k = 0; k < p->n_loops; k++) {
      if (!(it->loops >> k & 1)) continue;
      uop *step = idx_add(g, idx_mul(g, p->loop[k], uop_idx(g, p->folded[k])), uop_idx(g, copy[k]));
      if (k == p->row) { beside = idx_mod(g, step, tiles); step = idx_div(g, step, tiles); }
      at = idx_add(g, idx_mul(g, at, uop_idx(g, k == p->row ? p->size[k] / p->tiles : p->size[k])), step);
    }
    if (beside) at = idx_add(g, idx_mul(g, at, tiles), beside);
    at = idx_add(g, idx_mul(g, at, uop_idx(g, share[it->loops])), uop_idx(g, start[it->loops] + of->at));
    uop *load = uop_load(g, uop_index(g, stream, at), it->dt, it->lanes);
    map_put(&m, it->load, it->repeat > 1 ? repeated(g, load, it->repeat) : uop_cast(g, load, (enum dtype)it->load->dt));
  }
  uop *r = uop_substitute(g, ast, &m);
  map_free(&m);
  return r;
}

static int by_place(const void *x, const void *y) {
  const item *a = x, *b = y;
  return a->loops != b->loops ? (a->loops < b->loops ? -1 : 1) : (a->at > b->at) - (a->at < b->at);
}

static int by_base(const void *x, const void *y) {
  return (((const item *)x)->base > ((const item *)y)->base) - (((const item *)x)->base < ((const item *)y)->base);
}

// Does an iteration read one run of bytes?
static bool one_run(plan *p) {
  item *it = xcalloc(p->items.n, sizeof *it);
  memcpy(it, p->items.at, p->items.n * sizeof *it);
  qsort(it, p->items.n, sizeof *it, by_base);
  bool one = true;
  for (size_t i = 1; i < p->items.n; i++)
    one &= it[i].base == it[i - 1].base + it[i - 1].bytes && it[i].loops == it[0].loops;
  free(it);
  return one;
}

static bool has_load(const uop *u) {
  if (u->op == OP_LOAD) return true;
  for (size_t i = 0; i < u->nsrc; i++) if (has_load(u->src[i])) return true;
  return false;
}

// Bytes that the kernel reads when it runs: of one of the matrices, where a loaded number chooses.
static int64_t read_at_once(const plan *p) {
  int64_t all = 0;
  for (size_t i = 0; i < p->items.n; i++) {
    int64_t n = p->items.at[i].bytes;
    for (int k = 0; k < p->n_loops; k++) if (p->items.at[i].loops >> k & 1 && !has_load(p->loop[k])) n *= p->size[k];
    all += n;
  }
  return all;
}

// Which loop's neighbours lie side by side: the one over tiles of rows, the fastest if there are several.
static void set_tiles(plan *p) {
  int tiles = layout_tiles(layout_of(p->param));
  const int64_t *stride = p->items.at[0].stride;
  p->row = -1;
  p->tiles = 1;
  for (int k = 0; k < p->n_rows; k++)
    if (!has_load(p->loop[k]) && stride[k] > 0 && (p->row < 0 || stride[k] < stride[p->row])) p->row = k;
  bool ok = tiles > 1 && p->row >= 0 && p->size[p->row] % tiles == 0;
  for (size_t i = 0; ok && i < p->items.n; i++) ok = p->items.at[i].like || (p->items.at[i].loops >> p->row & 1);
  if (ok) p->tiles = tiles;
  else p->row = -1;
}

// --- values ---------------------------------------------------------------------------------------------------------
//
// What hangs on the weight alone can be computed when its stream is filled (LAYOUT_VALUES): scales of six bits become
// bytes, and if memory may grow by so much, codes do. Candidates are the largest such expressions, less conversions and
// repetitions, kept as the smallest type that their bounds allow. Those that share loads go together: what they take
// has to be paid for by the loads that nobody else needs.

typedef struct candidate {
  uop *u, *value;
  size_t load;
  int group;
  enum dtype dt;
  unsigned loops;
  int64_t base;
  uint64_t kind;
} candidate;
typedef struct group { int64_t growth; bool ok; } group;

static enum dtype smallest(const uop *u) {
  static const enum dtype types[] = {DT_U8, DT_I8, DT_U16, DT_I16};
  if (dtype_is_int((enum dtype)u->dt))
    for (size_t i = 0; i < COUNT(types); i++)
      if (u->vmin >= dtype_min(types[i]) && u->vmax <= dtype_max(types[i]) &&
          dtype_size(types[i]) <= dtype_size((enum dtype)u->dt))
        return types[i];
  return (enum dtype)u->dt;
}

static bool is_constant(const uop *u) { return u->op == OP_CONST || (u->op == OP_SPLAT && u->src[0]->op == OP_CONST); }

// Does u hang on loads of the weight, and on nothing else?
static bool of_weight(const plan *p, const uop *u, const map *pure) {
  if (u->op == OP_LOAD) return map_has(&p->index, u);
  if (u->lanes == 1 || (u->op != OP_SHUFFLE && !(op_flags((enum op)u->op) & OPF_ELEMENTWISE))) return false;
  bool any = false;
  for (size_t i = 0; i < u->nsrc; i++) {
    any |= map_has(pure, u->src[i]);
    if (!map_has(pure, u->src[i]) && !is_constant(u->src[i])) return false;
  }
  return any;
}

static uop *bare(uop *u, const map *pure) {
  while ((u->op == OP_SHUFFLE && u->nsrc == 1 && u->src[0]->lanes < u->lanes) ||
         (u->op == OP_CAST && map_has(pure, u->src[0]) && dtype_is_int((enum dtype)u->src[0]->dt) &&
          dtype_size((enum dtype)u->src[0]->dt) <= dtype_size((enum dtype)u->dt)))
    u = u->src[0];
  return u;
}

static int64_t times(const plan *p, unsigned loops) {
  int64_t n = 1;
  for (int k = 0; k < p->n_loops; k++) if (loops >> k & 1) n *= p->size[k];
  return n;
}

// What is computed of which bytes, whatever the loops and the order of operands that may change places.
static uint64_t kind_of(const plan *p, const uop *u, map *memo) {
  if (u->op == OP_LOAD) return hash_u64((uint64_t)p->items.at[(uintptr_t)map_ptr(&p->index, u) - 1].base, u->dt);
  if (map_has(memo, u)) return (uint64_t)(uintptr_t)map_ptr(memo, u);
  uint64_t h = hash_u64(hash_u64(u->op, (uint64_t)u->dt << 16 | (uint64_t)u->lanes), (uint64_t)u->a), all = 0;
  for (size_t i = 0; i < u->nsrc; i++) {
    uint64_t k = kind_of(p, u->src[i], memo);
    if (op_flags((enum op)u->op) & OPF_COMMUTATIVE) all += k;
    else h = hash_u64(h, k);
  }
  h = hash_u64(h, all);
  map_put(memo, u, (void *)(uintptr_t)h);
  return h;
}

// The same over the file's bytes, written in one way whatever the kernel; NULL where lanes are not evenly apart.
static uop *canonical(plan *p, uop *u, map *kinds, map *memo) {
  graph *g = p->g;
  uop *hit = map_ptr(memo, u), *s[3] = {0};
  if (hit) return hit;
  if (is_constant(u)) return u;
  if (u->op == OP_LOAD) {
    const item *it = &p->items.at[(uintptr_t)map_ptr(&p->index, u) - 1];
    int unit = dtype_size((enum dtype)p->param->dt), n = it->lanes;
    int64_t step = n > 1 ? it->lane[1] : 0;
    for (int l = 0; l < n; l++) if (it->lane[l] != l * step || step % unit) return NULL;
    uop *at = uop_idx(g, it->base / unit),
        *raw = uop_new(g, OP_PARAM, (enum dtype)p->param->dt, 1, NULL, 0, (uarg){.a = 1, .b = p->param->b});
    for (int k = 0; k < p->n_loops; k++)
      if (it->loops >> k & 1) at = idx_add(g, at, idx_mul(g, loop_range(p, k), uop_idx(g, it->stride[k] / unit)));
    if (n > 1 && step != dtype_size((enum dtype)u->dt))
      at = uop_op2(g, OP_ADD, uop_splat(g, at, n),
                   uop_op2(g, OP_MUL, uop_new(g, OP_LANE, DT_IDX, n, NULL, 0, (uarg){0}),
                           uop_splat(g, uop_idx(g, step / unit), n)));
    uop *load = uop_load(g, uop_index(g, raw, at), (enum dtype)u->dt, n);
    hit = it->repeat > 1 ? repeated(g, load, it->repeat) : load;
  } else {
    if (u->nsrc > COUNT(s)) return NULL;
    for (size_t i = 0; i < u->nsrc; i++) if (!(s[i] = canonical(p, u->src[i], kinds, memo))) return NULL;
    if ((op_flags((enum op)u->op) & OPF_COMMUTATIVE) && kind_of(p, u->src[0], kinds) > kind_of(p, u->src[1], kinds)) {
      uop *t = s[0];
      s[0] = s[1];
      s[1] = t;
    }
    hit = uop_with_src(g, u, s);
  }
  map_put(memo, u, hit);
  return hit;
}

static int by_bytes(const void *x, const void *y) {
  const candidate *a = x, *b = y;
  return a->base != b->base ? (a->base < b->base ? -1 : 1) : (a->kind > b->kind) - (a->kind < b->kind);
}

static void compute_values(plan *p, const uop_list *l, int64_t room) {
  map pure = {0}, wanted = {0}, kinds = {0}, memo = {0};
  VEC(candidate) c = {0};
  size_t n = p->items.n;
  int *of = xmalloc(n * sizeof *of);                    // load -> group
  bool *kept = xcalloc(n, sizeof *kept);                // loads that something else needs
  for (size_t i = 0; i < n; i++) of[i] = (int)i;
  for (size_t i = 0; i < l->n; i++) if (of_weight(p, l->at[i], &pure)) map_put(&pure, l->at[i], l->at[i]);
  for (size_t i = 0; i < l->n; i++)
    for (size_t j = 0; !map_has(&pure, l->at[i]) && j < l->at[i]->nsrc; j++) {
      uop *u = l->at[i]->src[j];
      if (!map_has(&pure, u)) continue;
      u = bare(u, &pure);
      if (u->op == OP_LOAD) kept[(uintptr_t)map_ptr(&p->index, u) - 1] = true;
      else if (!map_has(&wanted, u)) {
        map_put(&wanted, u, u);
        vec_push(&c, ((candidate){.u = u, .dt = smallest(u), .base = INT64_MAX}));
      }
    }
  for (size_t i = 0; i < c.n; i++) {
    candidate *x = &c.at[i];
    arena *a = arena_new();
    uop_list below = uop_toposort(a, &x->u, 1);
    int first = -1;
    for (size_t k = 0; k < below.n; k++) {
      uintptr_t at = below.at[k]->op == OP_LOAD ? (uintptr_t)map_ptr(&p->index, below.at[k]) : 0;
      if (!at) continue;
      const item *it = &p->items.at[at - 1];
      x->loops |= it->loops;
      x->base = min_i64(x->base, it->base);
      int g = of[at - 1];
      if (first < 0) first = g;
      for (size_t m = 0; m < n; m++) if (of[m] == g) of[m] = first;
      x->load = at - 1;
    }
    arena_free(a);
  }
  for (size_t i = 0; i < c.n; i++) c.at[i].kind = kind_of(p, c.at[i].u, &kinds);
  if (c.n) qsort(c.at, c.n, sizeof *c.at, by_bytes);
  group *groups = xcalloc(n, sizeof *groups);
  for (size_t i = 0; i < n; i++) groups[i].ok = true;
  for (size_t i = 0; i < n; i++)
    if (!kept[i]) groups[of[i]].growth -= p->items.at[i].bytes * times(p, p->items.at[i].loops);
  for (size_t i = 0; i < c.n; i++) {
    candidate *x = &c.at[i];
    x->group = of[x->load];
    groups[x->group].growth += (int64_t)x->u->lanes * dtype_size(x->dt) * times(p, x->loops);
    groups[x->group].ok &= x->u->lanes <= MAX_LANES && (x->value = canonical(p, x->u, &kinds, &memo)) != NULL;
    if (x->value) x->value = uop_cast(p->g, x->value, x->dt);
  }
  VEC(item) items = {0};
  for (;;) {                                            // the cheapest group first
    int best = -1;
    for (size_t i = 0; i < c.n; i++)
      if (groups[c.at[i].group].ok && (best < 0 || groups[c.at[i].group].growth < groups[best].growth))
        best = c.at[i].group;
    if (best < 0 || groups[best].growth > room) break;
    room -= groups[best].growth;
    groups[best].ok = false;
    for (size_t i = 0; i < c.n; i++)
      if (c.at[i].group == best)
        vec_push(&items, ((item){.load = c.at[i].u,
                                 .value = c.at[i].value,
                                 .dt = c.at[i].dt,
                                 .key = c.at[i].base * MAX_ITEMS + min_i64((int64_t)i, MAX_ITEMS - 1),
                                 .loops = c.at[i].loops,
                                 .lanes = c.at[i].u->lanes,
                                 .repeat = 1,
                                 .bytes = (int64_t)c.at[i].u->lanes * dtype_size(c.at[i].dt)}));
    for (size_t i = 0; i < n; i++) if (of[i] == best && !kept[i]) of[i] = -1;           // not in the stream any more
  }
  for (size_t i = 0; i < n; i++) if (of[i] >= 0) vec_push(&items, p->items.at[i]);
  vec_free(&p->items);
  p->items.at = items.at; p->items.n = items.n; p->items.cap = items.cap;
  map_free(&p->index);
  for (size_t i = 0; i < items.n; i++) map_put(&p->index, items.at[i].load, (void *)(uintptr_t)(i + 1));
  free(of); free(kept); free(groups);
  vec_free(&c);
  map_free(&pure); map_free(&wanted); map_free(&kinds); map_free(&memo);
}

static uop *stream_weight(graph *g, uop *ast, const target *t, program *prog, uop *param, bool fold) {
  plan p = {.g = g, .param = param};
  for (int i = 0; i < MAX_DEPTH; i++) p.folded[i] = 1;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  find_loops(&p, &l, ast);
  int64_t raw = param->b * dtype_size((enum dtype)param->dt);
  bool scattered = false, known = find_items(&p, &l, &scattered) && prog->n_streams < (int)COUNT(prog->streams);
  if (known && raw >= LARGE) scattered |= !one_run(&p);
  // as it lies
  if (known && !scattered && raw >= LARGE && read_at_once(&p) >= LARGE)
    prog->streams[prog->n_streams++] = (program_stream){.param = (int)param->a, .bytes = raw};
  if (known && scattered && fold) fold_copies(&p);
  else if (known && scattered && layout_of(param) == LAYOUT_VALUES)
    compute_values(&p, &l, raw / 100 * t->stream_growth);
  if (known && scattered) {
    set_tiles(&p);
    int64_t *share = ARENA_ARRAY(a, int64_t, 1 << MAX_DEPTH), *start = ARENA_ARRAY(a, int64_t, 1 << MAX_DEPTH),
            bytes = 0;
    order o = {.p = &p, .share = share};
    place(&o, ast);
    map_free(&o.low); map_free(&o.seen);
    for (unsigned set = 0; set < 1u << p.n_loops; set++) {
      int64_t n = share[set];
      for (int i = 0; i < p.n_loops; i++) if (set >> i & 1) n *= p.size[i];
      start[set] = bytes;
      bytes += n;
    }
    if (bytes - raw <= raw / 100 * t->stream_growth) {
      program_stream *out = &prog->streams[prog->n_streams++];
      *out = (program_stream){.param = (int)param->a, .bytes = bytes};
      ast = replace_loads(&p, ast, start, share, bytes);
      qsort(p.items.at, p.items.n, sizeof *p.items.at, by_place);        // `index` is not used any more
      for (unsigned set = 0; set < 1u << p.n_loops; set++)
        if (share[set]) fill_set(&p, prog, out, set, start[set], share[set]);
      prog->bufs[param->a] = (struct program_buf){.dt = DT_U8, .elems = bytes, .read = true};
    }
  }
  vec_free(&p.items);
  map_free(&p.index);
  arena_free(a);
  return ast;
}

// --- layouts --------------------------------------------------------------------------------------------------------

static const struct { const char *name, *weight; int tiles;
} layouts[LAYOUT_COUNT] = {{"stream", "weight", 1},
                           {"file", "weight:file", 1},
                           {"tiles2", "weight:tiles2", 2},
                           {"tiles4", "weight:tiles4", 4},
                           {"values", "weight:values", 1}};

const char *layout_name(enum layout l) { return layouts[l].name; }
int layout_tiles(enum layout l) { return layouts[l].tiles; }

enum layout layout_of(const uop *weight) {
  int l = LAYOUT_COUNT;
  while (l-- > 1) if (!strcmp(weight->s, layouts[l].weight)) break;
  return (enum layout)l;
}

uop *layouts_set(graph *g, uop *ast, const enum layout *of, int n) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  map m = {0};
  for (size_t i = 0; i < l.n; i++)
    if (is_weight(l.at[i]) && l.at[i]->a < n && of[l.at[i]->a] != LAYOUT_STREAM) {
      const char *name = layouts[of[l.at[i]->a]].weight;
      map_put(
        &m, l.at[i],
        uop_new(g, OP_PARAM, (enum dtype)l.at[i]->dt, 1, NULL, 0, (uarg){l.at[i]->a, l.at[i]->b, name, strlen(name)}));
    }
  if (m.n) ast = uop_substitute(g, ast, &m);
  map_free(&m);
  arena_free(a);
  return ast;
}

uop *make_streams(graph *g, uop *ast, const target *t, program *p, bool fold) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  VEC(uop *) weights = {0};
  for (size_t i = 0; i < l.n; i++)
    if (is_weight(l.at[i])) vec_push(&weights, l.at[i]);
  arena_free(a);
  for (size_t i = 0; i < weights.n; i++)
    if (layout_of(weights.at[i]) != LAYOUT_FILE) ast = stream_weight(g, ast, t, p, weights.at[i], fold);
  vec_free(&weights);
  return ast;
}
