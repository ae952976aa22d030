// Chooses layouts of weights. A kernel whose lanes are rows would gather bytes from distant rows. The weight is
// therefore copied once, in the order in which the kernel reads it: for each step of the loops that move evenly through
// the weight (rows in vectors, blocks of a row), the bytes of one block, in the order in which the block's expression
// reads them; each unit of bytes is stored for all rows of a vector next to each other.
//
// No code here knows a format. A range along which all loads of a weight move by an equal step is a loop of the layout.
// The remaining ranges are few and small; they form a block. They are split into digits at the divisions in addresses,
// and the digits are put in order: a digit along which most loads move is a loop around these loads, and loads that do
// not move along it are read before it. The order gives each byte of a block its place. The places that a load reads
// are then written as a sum over the same digits, and that sum becomes the load's address, so later passes need no
// special case. If a step fails, the weight keeps the file's layout.
//
// Some weights are two matrices, one after the other (gate and up), and a kernel reads a row of each. Loads that differ
// only by a large distance are slices; the choice of slice becomes a loop between the loops of rows and of sums.
//
// Some weights have a few rows interleaved: an address has a term of the row's group and one of the row's place in it.
// Loads move equally from group to group, and each by a step of its own within a group; a unit of the layout has that
// step, so the copy is like that of a weight with separate rows.
//
// If a kernel first converts a weight to another type of equal size, the copy is converted instead.
//
// Two kernels that read a weight in equal ways get equal layouts, so memory holds one copy. A large weight whose layout
// does not change is copied too, to place it in huge pages, unless kernels read little of it (rows of an embedding).
#include "schedule/layout.h"
#include <stdlib.h>
#include <string.h>
#include "graph/symbolic.h"

enum {
  LARGE = 1 << 20,
  MOST_LOADS = 64,
  MOST_DIGITS = 16,
  MOST_STEPS = 1 << 12,
  MOST_BYTES = 1 << 14,
  DOT = 4,
  WORD = 8 /* bytes that are copied at once */,
  PAIR = 2
};

// A term of an address that all loads share: an expression over one range, or the index that selects a matrix; NULL:
// the load's slice.
// rows: rows of a group that a step moves by, if rows are interleaved and the term is one of such rows.
typedef struct part { uop *expr; int64_t size, step, rows; } part;
// A range of a block, or one digit of it: (range / every) % size. now: its current value.
typedef struct digit { uop *range; int64_t every, size, now; } digit;
// How a load moves along rows: elements from a row to the next, or from a group of `together` interleaved rows to the
// next, and within such a group.
typedef struct row_steps { int64_t together, far, near; } row_steps;

typedef struct finding {
  graph *g;
  arena *mem;
  uop *store, *weight, *lane;
  int element;                            // bytes
  enum dtype to;                          // target type of the conversion; the weight's own type: no conversion
  int64_t lanes, lane_step, together, tiles;
  uop *load[MOST_LOADS];
  int unit[MOST_LOADS];                   // bytes that one instruction needs next to each other
  int slice[MOST_LOADS], slices;          // slice of each load; number of slices
  int64_t slice_step;                     // elements from one to the next
  int n_loads, n_parts, n_digits;
  part part[LAYOUT_LOOPS];
  digit digit[MOST_DIGITS];
  uint64_t varies[MOST_LOADS];            // bit set: digits along which its address moves
  int64_t base, share;                    // the first byte; bytes of one step of the loops for one lane
  int32_t *place;                         // byte after base -> 1 + its place among `share`
  int32_t *of, *near;                     // bytes of its unit; bytes to that of the next row of a group
  VEC(layout_unit) units;
} finding;

// --- what is read ----------------------------------------------------------------------------------------------------

static bool is_weight_memory(const uop *buf) { return buf->op == OP_PARAM && buf->memory == MEMORY_WEIGHT; }

// The address of a load, without its condition.
static uop *load_address(const uop *load) {
  uop *i = load->src[0]->src[1];
  return i->op == OP_WHERE ? i->src[1] : i;
}

static bool below(const uop *u, bool (*is)(const uop *, const void *), const void *what, map *seen) {
  if (map_has(seen, u)) return false;
  map_put(seen, u, (void *)1);
  if (is(u, what)) return true;
  for (size_t i = 0; i < u->nsrc; i++) if (below(u->src[i], is, what, seen)) return true;
  return false;
}

static bool loads_activations(const uop *u, const void *dt) {
  return u->op == OP_LOAD && !is_weight_memory(u->src[0]->src[0]) && u->dt == *(const enum dtype *)dt;
}

// The range along which instructions add up this sum of products (neighbouring bytes, or pairs of BF16).
static uop *dot_range(uop *reduce, int *products) {
  enum dtype dt = reduce->dt == DT_I32 ? DT_I8 : DT_BF16;
  *products = reduce->dt == DT_I32 ? DOT : PAIR;
  if (reduce->op != OP_REDUCE || reduce->a != OP_ADD || uop_first_range(reduce) != 1 ||
      (reduce->dt != DT_I32 && reduce->dt != DT_F32) || reduce->src[0]->op != OP_MUL)
    return NULL;
  const uop *body = reduce->src[0];
  for (int k = 0; k < 2; k++) {
    uop *x = body->src[k];
    while (x->op == OP_CAST) x = x->src[0];
    if (!loads_activations(x, &dt)) continue;
    for (size_t i = 1; i < reduce->nsrc; i++)
      if (reduce->src[i]->src[0]->op == OP_CONST && reduce->src[i]->src[0]->a % *products == 0 &&
          idx_factor(x->src[0]->src[1], reduce->src[i]) == 1)
        return reduce->src[i];
  }
  return NULL;
}

// --- lanes -----------------------------------------------------------------------------------------------------------

static int64_t lanes_of(const layout_target *t, const uop *r) {
  int64_t n = t->lanes;
  if (r->src[0]->op != OP_CONST) return 1;
  while (n > 1 && r->src[0]->a % n) n /= 2;
  return n >= 4 ? n : 1;
}

// Does this load move along r by one element, or not at all?
static bool reads_side_by_side(const uop *load, const uop *r) {
  int64_t c = idx_factor(load_address(load), r);
  return !c || c * dtype_size((enum dtype)load->src[0]->src[0]->dt) == dtype_size((enum dtype)load->dt);
}

static bool apart(const uop *load, const uop *r) {
  return is_weight_memory(load->src[0]->src[0]) && uop_varies(load_address(load), r) && !reads_side_by_side(load, r);
}

// An output range whose steps are rows: of the weight of a dot product, or, without a dot product, of a float weight.
static uop *find_lane(const uop_list *l, uop *store, const layout_target *t) {
  uop *dot = NULL;
  int products;
  for (size_t i = 0; i < l->n; i++) {
    if (l->at[i]->op == OP_STORE && l->at[i] != store) return NULL;            // stages have their own lanes
    if (l->at[i]->op != OP_REDUCE || l->at[i]->dt != DT_I32 || !dot_range(l->at[i], &products)) continue;
    for (size_t k = store->nsrc; k-- > 2 && !dot;)
      if (uop_varies(l->at[i]->src[0], store->src[k]) && lanes_of(t, store->src[k]) > 1) dot = l->at[i];
  }
  for (size_t k = store->nsrc; k-- > 2;) {
    uop *r = store->src[k];
    bool ok = r->b == AXIS_LOOP && lanes_of(t, r) > 1 && uop_varies(store->src[0], r), any = false;
    ok = ok && (dot ? uop_varies(dot->src[0], r) : lanes_of(t, r) == t->lanes);
    for (size_t i = 0; ok && i < l->n; i++) {
      const uop *u = l->at[i];
      if (u->op != OP_LOAD) continue;
      bool far = apart(u, r), plain = dtype_is_float((enum dtype)u->dt) && u->dt == u->src[0]->src[0]->dt;
      any |= far;
      ok = reads_side_by_side(u, r) || (far && (dot || plain));
    }
    if (ok && any) return r;
  }
  return NULL;
}

// --- loops and blocks ------------------------------------------------------------------------------------------------

static bool is_choice(const uop *u, const void *what) {
  (void)what;
  return u->op == OP_LOAD;
}

// Is this term of an address a loaded number, which selects a matrix?
static bool chooses(const uop *u) {
  map seen = {0};
  bool any = u->op != OP_RANGE && below(u, is_choice, NULL, &seen);
  map_free(&seen);
  return any;
}

// The index that selects a matrix, without the conditions of the load: the matrix exists in any case.
static uop *matrix_choice(graph *g, uop *u) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &u, 1);
  map plain = {0};
  for (size_t i = 0; i < l.n; i++) {
    uop *at = l.at[i]->op == OP_LOAD ? l.at[i]->src[0] : NULL;
    if (!at || at->src[1]->op != OP_WHERE) continue;
    uop *inside = at->src[1]->src[1];
    if (inside->vmin >= 0 && inside->vmax < at->src[0]->b)
      map_put(&plain, l.at[i], uop_load_from(g, l.at[i], uop_index(g, at->src[0], inside), 1));
  }
  if (plain.n) u = uop_substitute(g, u, &plain);
  map_free(&plain);
  arena_free(a);
  return u;
}

// Do all loads move along this term of an address by `step`, with no other dependency on it?
static bool all_move(const finding *f, uop *atom, int64_t step) {
  for (int i = 0; i < f->n_loads; i++) {
    idx_sum s;
    int64_t c = 0;
    if (!idx_sum_of(load_address(f->load[i]), &s)) return false;
    for (int t = 0; t < s.n; t++) {
      if (s.atom[t] == atom || (chooses(atom) && chooses(s.atom[t]) && matrix_choice(f->g, s.atom[t]) == atom))
        c = s.coeff[t];
      else if (atom->op == OP_RANGE && uop_varies(s.atom[t], atom)) return false;
    }
    if (c != step) return false;
  }
  return true;
}

static bool add_part(finding *f, part p) {
  if (p.size == 1) return true;
  if (f->n_parts == LAYOUT_LOOPS) return false;
  f->part[f->n_parts++] = p;
  return true;
}

static bool steps_along_rows(const uop *load, const uop *lane, row_steps *out) {
  idx_sum s;
  *out = (row_steps){.together = 1};
  if (!idx_sum_of(load_address(load), &s)) return false;
  for (int t = 0; t < s.n; t++) {
    const uop *u = s.atom[t];
    if (!uop_varies(u, lane)) continue;
    bool split = (u->op == OP_IDIV || u->op == OP_MOD) && u->src[0] == lane && u->src[1]->op == OP_CONST;
    int64_t together = split ? u->src[1]->a : 1;
    if ((u != lane && !split) || ((out->far || out->near) && together != out->together)) return false;
    out->together = together;
    *(u->op == OP_MOD ? &out->near : &out->far) = s.coeff[t];
  }
  return out->far > 0 && (out->near > 0) == (out->together > 1);
}

// Adds the loops of (lane / every) % size: over groups of interleaved rows, and over rows of a group.
static bool add_row_loops(finding *f, int64_t every, int64_t size) {
  graph *g = f->g;
  int64_t t = f->together, rows = every < t ? min_i64(size, t / every) : 1, groups = size / rows;
  uop *far = idx_div(g, f->lane, uop_idx(g, every * rows)), *near = idx_div(g, f->lane, uop_idx(g, every));
  return add_part(f, (part){idx_mod(g, far, uop_idx(g, groups)), groups,
                            .step = f->lane_step / f->element * every * rows / t}) &&
         add_part(f, (part){idx_mod(g, near, uop_idx(g, rows)), rows, .rows = every});
}

// Finds how all loads move along the rows; adds the loop over vectors of rows, or over tiles of them.
static bool add_lane(finding *f, int64_t size) {
  row_steps s, first = {.together = 1};
  for (int i = 0; i < f->n_loads; i++) {
    if (!steps_along_rows(f->load[i], f->lane, &s)) return false;
    if (!i) first = s;
    if (s.together != first.together || s.far != first.far) return false;
  }
  f->together = first.together;
  f->lane_step = first.far * f->element;
  if (f->lanes % f->together && f->together % f->lanes) return false;
  if (size % f->together) return false;
  if (size / f->lanes % f->tiles) f->tiles = 1;
  return add_row_loops(f, f->lanes * f->tiles, size / f->lanes / f->tiles);
}

// Collects the multiples at which divisions in an address split a range.
static void find_cuts(uop *u, const uop *r, int64_t size, uint64_t *cuts) {
  idx_sum s;
  if (!uop_varies(u, r)) return;
  for (size_t i = 0; i < u->nsrc; i++) find_cuts(u->src[i], r, size, cuts);
  if ((u->op != OP_IDIV && u->op != OP_MOD) || u->src[1]->op != OP_CONST || !idx_sum_of(u->src[0], &s)) return;
  for (int t = 0; t < s.n; t++) {
    int64_t at = s.atom[t] == r && s.coeff[t] > 0 && u->src[1]->a % s.coeff[t] == 0 ? u->src[1]->a / s.coeff[t] : 0;
    if (at > 1 && at < size && size % at == 0 && !(at & (at - 1))) *cuts |= (uint64_t)at;
  }
}

// Adds the digits of a range of the block, coarsest first.
static bool add_digits(finding *f, uop *r, int64_t size) {
  uint64_t cuts = 0;
  for (int i = 0; i < f->n_loads; i++) find_cuts(f->load[i]->src[0]->src[1], r, size, &cuts);
  int64_t above = size;
  for (int bit = 62; bit >= 0; bit--) {
    int64_t at = (int64_t)1 << bit;
    if (bit && !(cuts >> bit & 1)) continue;
    if (above == at) continue;
    if (f->n_digits == MOST_DIGITS) return false;
    f->digit[f->n_digits++] = (digit){r, at, above / at, 0};
    above = at;
  }
  return true;
}

// Does an address depend on r, apart from the index that selects a matrix?
static bool moves_along(uop *index, const uop *r) {
  idx_sum s;
  if (!uop_varies(index, r)) return false;
  if (!idx_sum_of(index, &s)) return true;
  for (int t = 0; t < s.n; t++) if (uop_varies(s.atom[t], r) && !chooses(s.atom[t])) return true;
  return false;
}

// Adds a range that loads depend on, as a loop of the layout or of the block.
static bool add_range(finding *f, uop *r) {
  bool any = false;
  int64_t step = 0, unit = 1, size = r->src[0]->op == OP_CONST ? r->src[0]->a : 0;
  for (int i = 0; i < f->n_loads; i++) {
    uop *index = load_address(f->load[i]);
    if (!moves_along(index, r)) continue;
    any = true;
    step = idx_factor(index, r);
    if (step == 1) unit = max_i64(unit, f->unit[i] / f->element);
  }
  if (!any) return true;
  if (!size) return false;
  if (r == f->lane) return add_lane(f, size);
  bool moves = step > 0 && all_move(f, r, step);
  if (moves && unit == 1) return add_part(f, (part){r, size, .step = step});
  if (moves && size % unit == 0 && size > unit) {
    if (!add_part(f, (part){idx_div(f->g, r, uop_idx(f->g, unit)), size / unit, .step = step * unit})) return false;
    size = unit;
  }
  return add_digits(f, r, size);
}

// Does an address contain only this number of choices, and does its condition depend on ranges of the block only? Then
// the first place of the block represents all of them.
static bool is_understood(const finding *f, const uop *load, int choices) {
  idx_sum s;
  const uop *i = load->src[0]->src[1];
  int n = 0;
  if (!idx_sum_of(load_address(load), &s)) return false;
  for (int t = 0; t < s.n; t++) n += chooses(s.atom[t]);
  const uop_list ranges = i->op == OP_WHERE ? uop_ranges(i->src[0]) : (uop_list){0};
  for (size_t k = 0; k < ranges.n; k++) {
    int64_t steps = 1;
    for (int d = 0; d < f->n_digits; d++) if (f->digit[d].range == ranges.at[k]) steps *= f->digit[d].size;
    if (!uop_is_int(ranges.at[k]->src[0], steps)) return false;
  }
  return n == choices;
}

// Finds the loops, outermost first: matrix index, rows, summed ranges.
static bool find_parts(finding *f, const uop_list *l) {
  idx_sum s;
  int choices = 0;
  if (!idx_sum_of(load_address(f->load[0]), &s)) return false;
  for (int t = 0; t < s.n; t++) {
    if (!chooses(s.atom[t])) continue;
    uop *which = matrix_choice(f->g, s.atom[t]);
    if (which->vmin || which->vmax >= INT32_MAX || s.coeff[t] <= 0 || !all_move(f, which, s.coeff[t]) ||
        !add_part(f, (part){which, which->vmax + 1, .step = s.coeff[t]}))
      return false;
    choices++;
  }
  for (size_t i = 2; i < f->store->nsrc; i++) if (!add_range(f, f->store->src[i])) return false;
  if (f->slices > 1 && !add_part(f, (part){NULL, f->slices, .step = f->slice_step})) return false;
  map seen = {0};
  bool ok = true;
  for (size_t i = l->n; i-- > 0;)                               // outer sums before inner ones
    for (size_t k = (size_t)uop_first_range(l->at[i]); l->at[i]->op == OP_REDUCE && k < l->at[i]->nsrc && ok; k++) {
      if (map_has(&seen, l->at[i]->src[k])) continue;
      map_put(&seen, l->at[i]->src[k], (void *)1);
      ok = add_range(f, l->at[i]->src[k]);
    }
  map_free(&seen);
  for (int i = 0; i < f->n_loads; i++) ok = ok && is_understood(f, f->load[i], choices);
  ok = ok && f->lane_step && add_row_loops(f, f->lanes, f->tiles);
  int64_t steps = 1;
  for (int i = 0; i < f->n_digits && steps <= MOST_STEPS; i++) steps *= f->digit[i].size;
  return ok && steps <= MOST_STEPS;
}

// --- the order of a block --------------------------------------------------------------------------------------------

// The value of an index or a condition in the first step of all loops; false if it is unknown.
static bool value_now(finding *f, const uop *u, int64_t *out) {
  int64_t a, b;
  if (u->op == OP_CONST) { *out = u->a; return true; }
  if (u->op == OP_RANGE) {
    *out = 0;
    for (int i = 0; i < f->n_digits; i++) if (f->digit[i].range == u) *out += f->digit[i].now * f->digit[i].every;
    return true;
  }
  if (u->op == OP_WHERE) {
    if (!value_now(f, u->src[0], &a)) return false;
    return u->src[a ? 1 : 2]->op != OP_INVALID && value_now(f, u->src[a ? 1 : 2], out);
  }
  if ((u->op == OP_MIN || u->op == OP_MAX || u->op == OP_CAST) && chooses(u)) { *out = 0; return true; }
  if (u->nsrc != 2 || !value_now(f, u->src[0], &a) || !value_now(f, u->src[1], &b)) return false;
  switch (u->op) {
  case OP_ADD: return add_i64(a, b, out);
  case OP_SUB: *out = a - b; return true;
  case OP_MUL: return mul_i64(a, b, out);
  case OP_IDIV: if (b <= 0) return false; *out = floordiv_i64(a, b); return true;
  case OP_MOD: if (b <= 0) return false; *out = floormod_i64(a, b); return true;
  case OP_CMPLT: *out = a < b; return true;
  case OP_CMPEQ: *out = a == b; return true;
  case OP_CMPNE: *out = a != b; return true;
  case OP_AND: *out = a & b; return true;
  case OP_OR: *out = a | b; return true;
  case OP_XOR: *out = a ^ b; return true;
  default: return false;
  }
}

static int slice_of(const finding *f, const uop *load) {
  for (int i = 0; i < f->n_loads; i++) if (f->load[i] == load) return f->slice[i];
  return 0;
}

// The element that a load reads in the first step of all loops, as if it were in the first slice.
static bool element_now(finding *f, const uop *load, int64_t *at) {
  if (!value_now(f, load_address(load), at)) return false;
  *at -= slice_of(f, load) * f->slice_step;
  return true;
}

// Does the condition of a load hold now?
static bool reads_now(finding *f, const uop *load) {
  const uop *i = load->src[0]->src[1];
  int64_t holds;
  return i->op != OP_WHERE || (value_now(f, i->src[0], &holds) && holds);
}

// Records that a unit of bytes is read: it gets the next place unless it has one.
static bool note_unit(finding *f, int load) {
  int64_t at;
  int size = dtype_size((enum dtype)f->load[load]->dt), unit = max_i64(f->unit[load], size);
  if (!reads_now(f, f->load[load])) return true;
  row_steps rows;
  if (!element_now(f, f->load[load], &at) || !steps_along_rows(f->load[load], f->lane, &rows)) return false;
  at = at * f->element - f->base;
  int32_t near = (int32_t)(rows.near * f->element);
  if (at < 0 || at + unit > MOST_BYTES) return false;
  if (f->place[at]) return f->of[at] == unit && f->near[at] == near;
  for (int i = 0; i < unit; i++) {
    if (f->place[at + i]) return false;
    f->place[at + i] = (int32_t)(f->share * f->lanes + i + 1);
    f->of[at + i] = unit;
    f->near[at + i] = near;
  }
  vec_push(&f->units, ((layout_unit){(int32_t)at, unit, near}));
  f->share += unit;
  return true;
}

// Orders the loads of a set while all digits outside `digits` are fixed. A digit along which most loads move is a loop
// around these loads; the others are read before it. All steps of a loop therefore read equally many consecutive bytes.
static bool order(finding *f, uint64_t loads, uint64_t digits) {
  int best = -1, most = 0;
  bool ok = true;
  for (int d = 0; d < f->n_digits; d++) {
    int n = 0;
    for (int i = 0; i < f->n_loads; i++) n += loads >> i & 1 && digits >> d & 1 && f->varies[i] >> d & 1;
    if (n > most) { most = n; best = d; }
  }
  if (best < 0) {
    for (int i = 0; ok && i < f->n_loads; i++) if (loads >> i & 1) ok = note_unit(f, i);
    return ok;
  }
  uint64_t moving = 0;
  for (int i = 0; i < f->n_loads; i++) if (loads >> i & 1 && f->varies[i] >> best & 1) moving |= (uint64_t)1 << i;
  if (loads & ~moving) ok = order(f, loads & ~moving, digits);
  digit *d = &f->digit[best];
  for (d->now = 0; ok && d->now < d->size; d->now++) ok = order(f, moving, digits & ~((uint64_t)1 << best));
  d->now = 0;
  return ok;
}

static int64_t address_now(finding *f, int load) {
  int64_t at;
  return element_now(f, f->load[load], &at) ? at : 0;
}

static void sort_loads(finding *f) {
  for (int i = 1; i < f->n_loads; i++)
    for (int k = i; k > 0 && address_now(f, k) < address_now(f, k - 1); k--) {
      uop *u = f->load[k];
      int unit = f->unit[k], slice = f->slice[k];
      f->load[k] = f->load[k - 1]; f->unit[k] = f->unit[k - 1]; f->slice[k] = f->slice[k - 1];
      f->load[k - 1] = u; f->unit[k - 1] = unit; f->slice[k - 1] = slice;
    }
}

// Finds slices: groups of loads that are alike and far apart.
static void find_slices(finding *f) {
  int each = 0, n = f->n_loads;
  f->slices = 1;
  sort_loads(f);
  while (each < n && (address_now(f, each) - address_now(f, 0)) * f->element < MOST_BYTES) each++;
  if (each == n || n % each) return;
  int64_t step = address_now(f, each) - address_now(f, 0);
  for (int i = each; i < n; i++) if (address_now(f, i) - address_now(f, i - each) != step) return;
  for (int i = 0; i < n; i++) f->slice[i] = i / each;
  f->slices = n / each;
  f->slice_step = step;
}

// Records along which digits each load moves.
static void note_varying(finding *f) {
  for (int i = 0; i < f->n_loads; i++)
    for (int d = 0; d < f->n_digits; d++) {
      int64_t first = address_now(f, i);
      for (f->digit[d].now = 1; f->digit[d].now < f->digit[d].size; f->digit[d].now++)
        if (address_now(f, i) != first) f->varies[i] |= (uint64_t)1 << d;
      f->digit[d].now = 0;
    }
}

// Steps to the next combination of the values of the block's ranges; false after the last.
static bool next_step(finding *f) {
  for (int i = f->n_digits; i-- > 0; f->digit[i].now = 0) if (++f->digit[i].now < f->digit[i].size) return true;
  return false;
}

// Loads with a condition come first, one at a time: what they read differs between steps.
static bool find_order(finding *f) {
  uint64_t plain = 0, all = ~(uint64_t)0;
  sort_loads(f);
  note_varying(f);
  f->base = INT64_MAX;
  do {
    for (int i = 0; i < f->n_loads; i++) {
      int64_t at;
      if (!reads_now(f, f->load[i])) continue;
      if (!element_now(f, f->load[i], &at)) return false;
      f->base = min_i64(f->base, at * f->element);
    }
  } while (next_step(f));
  f->place = ARENA_ARRAY(f->mem, int32_t, MOST_BYTES);
  f->of = ARENA_ARRAY(f->mem, int32_t, MOST_BYTES);
  f->near = ARENA_ARRAY(f->mem, int32_t, MOST_BYTES);
  memset(f->place, 0, MOST_BYTES * sizeof *f->place);
  for (int i = 0; i < f->n_loads; i++) {
    if (f->load[i]->src[0]->src[1]->op != OP_WHERE) plain |= (uint64_t)1 << i;
    else if (!order(f, (uint64_t)1 << i, all)) return false;
  }
  return order(f, plain, all) && f->share;
}

// --- addresses -------------------------------------------------------------------------------------------------------

// The place among the block's bytes that a load reads now; false if it reads nothing, or a byte without a place.
static bool place_now(finding *f, const uop *load, int64_t *out) {
  int64_t at;
  if (!reads_now(f, load) || !element_now(f, load, &at)) return false;
  at = at * f->element - f->base;
  if (at < 0 || at >= MOST_BYTES || !f->place[at]) return false;
  *out = f->place[at] - 1;
  return true;
}

// Writes v[0 .. n * every) as an expression over (r / every), in digits: a run of equal steps, then runs of these runs.
static uop *in_digits(finding *f, const int64_t *v, int64_t n, int64_t every, uop *r) {
  graph *g = f->g;
  if (n == 1) return uop_idx(g, 0);
  int64_t run = 1;
  while (run < n && v[run * every] == run * v[every]) run++;
  while (n % run) run--;
  if (run == 1) return NULL;
  for (int64_t i = 0; i < n; i++)
    if (v[i * every] != v[i / run * run * every] + i % run * v[every]) return NULL;
  uop *low = every > 1 ? idx_div(g, r, uop_idx(g, every)) : r, *rest;
  if (run == n) return idx_mul(g, low, uop_idx(g, v[every]));
  rest = in_digits(f, v, n / run, every * run, r);
  return rest ? idx_add(g, rest, idx_mul(g, idx_mod(g, low, uop_idx(g, run)), uop_idx(g, v[every]))) : NULL;
}

// The places of a load along one range of the block, relative to the first, from the first step at which its condition
// holds. The steps at which it holds are consecutive.
static uop *along(finding *f, const uop *load, digit *in, int64_t start, int64_t first, int64_t *v, int64_t *count) {
  int64_t n = 0, at;
  for (in->now = 0; in->now < in->size; in->now++) {
    bool reads = place_now(f, load, &at);
    if (reads && in->now != start + n) { n = 0; break; }
    if (reads) v[n++] = at - first;
  }
  in->now = start;
  *count = n;
  uop *r = in->every > 1 ? idx_div(f->g, in->range, uop_idx(f->g, in->every)) : in->range;
  if (in->every * in->size < in->range->src[0]->a) r = idx_mod(f->g, r, uop_idx(f->g, in->size));
  return n ? in_digits(f, v, n, 1, idx_sub(f->g, r, uop_idx(f->g, start))) : NULL;
}

// The places of a load as a sum over the block's ranges; NULL if they are not such a sum. unit: bytes of its unit.
static uop *places_of(finding *f, const uop *load, int *unit) {
  int64_t first, at, start[MOST_DIGITS], n[MOST_DIGITS], *v[MOST_DIGITS];
  while (!place_now(f, load, &first)) if (!next_step(f)) return NULL;
  uop *sum = uop_idx(f->g, first);
  *unit = element_now(f, load, &at) ? f->of[at * f->element - f->base] : 0;
  for (int i = 0; i < f->n_digits; i++) start[i] = f->digit[i].now;
  for (int i = 0; i < f->n_digits && sum; i++) {
    v[i] = NULL;
    if (!uop_varies(load->src[0], f->digit[i].range)) continue;
    v[i] = ARENA_ARRAY(f->mem, int64_t, f->digit[i].size);
    uop *digits = along(f, load, &f->digit[i], start[i], first, v[i], &n[i]);
    sum = digits ? idx_add(f->g, sum, digits) : NULL;
  }
  for (int i = 0; i < f->n_digits; i++) f->digit[i].now = 0;
  if (!sum) return NULL;
  bool same = true;                                             // does the sum hold for all of them together?
  do {
    if (!reads_now(f, load)) continue;
    int64_t want = first;
    for (int i = 0; i < f->n_digits; i++) {
      int64_t k = f->digit[i].now - start[i];
      if (v[i]) { same &= k >= 0 && k < n[i]; want += same ? v[i][k] : 0; }
    }
    same = same && place_now(f, load, &at) && at == want && element_now(f, load, &at) &&
           f->of[at * f->element - f->base] == *unit;
  } while (next_step(f) && same);
  for (int i = 0; i < f->n_digits; i++) f->digit[i].now = 0;
  return same ? sum : NULL;
}

// The replacement of a load.
static uop *moved(finding *f, const uop *load, uop *stream) {
  graph *g = f->g;
  int unit;
  uop *at = uop_idx(g, 0), *place = places_of(f, load, &unit), *index = load->src[0]->src[1];
  bool converts = f->to != (enum dtype)f->weight->dt;
  if (!place) return NULL;
  for (int i = 0; i < f->n_parts; i++)
    at = idx_add(g, idx_mul(g, at, uop_idx(g, f->part[i].size)),
                 f->part[i].expr ? f->part[i].expr : uop_idx(g, slice_of(f, load)));
  at = idx_mul(g, at, uop_idx(g, f->share * f->lanes));
  at = idx_add(g, at, idx_mul(g, idx_mod(g, f->lane, uop_idx(g, f->lanes)), uop_idx(g, unit)));
  at = simplify(g, idx_add(g, at, place));
  if (index->op == OP_WHERE) at = uop_op3(g, OP_WHERE, index->src[0], at, index->src[2]);
  return uop_load(g, uop_index(g, stream, at), converts ? f->to : (enum dtype)load->dt, 1);
}

// --- one weight ------------------------------------------------------------------------------------------------------

static const layout *made(finding *f, int64_t bytes) {
  arena *mem = graph_arena(f->g);
  layout *l = ARENA_NEW(mem, layout);
  layout_unit *units = ARENA_ARRAY(mem, layout_unit, f->units.n);
  memcpy(units, f->units.at, f->units.n * sizeof *units);
  *l = (layout){.dt = (enum dtype)f->weight->dt,
                .to = f->to,
                .elems = f->weight->b,
                .bytes = bytes,
                .base = f->base,
                .lanes = f->lanes,
                .lane_step = f->lane_step,
                .together = f->together,
                .n_loops = f->n_parts,
                .n_units = (int)f->units.n,
                .unit = units};
  l->hash = hash_bytes(units, f->units.n * sizeof *units, hash_u64((uint64_t)l->bytes, (uint64_t)l->base));
  l->hash = hash_u64(hash_u64(l->hash, (uint64_t)l->lanes), (uint64_t)l->lane_step);
  l->hash = hash_u64(l->hash, (uint64_t)l->together);
  if (l->to != l->dt) l->hash = hash_u64(l->hash, (uint64_t)l->to);
  for (int i = 0; i < f->n_parts; i++) {
    l->loop[i] = (struct layout_loop){f->part[i].size, f->part[i].step * f->element, f->part[i].rows};
    l->hash = hash_u64(hash_u64(l->hash, (uint64_t)l->loop[i].size), (uint64_t)l->loop[i].step);
    l->hash = hash_u64(l->hash, (uint64_t)l->loop[i].rows);
  }
  return l;
}

static bool is_that(const uop *u, const void *what) { return u == what; }

static bool is_under(const uop *u, const uop *root) {
  map seen = {0};
  bool hit = below(root, is_that, u, &seen);
  map_free(&seen);
  return hit;
}

// Does u go up by one along n steps of r that start at a multiple of n?
static bool counts_up(const uop *u, const uop *r, int n) {
  return u == r || (u->op == OP_MOD && u->src[1]->op == OP_CONST && !(u->src[1]->a % n) && counts_up(u->src[0], r, n));
}

// Is u the same in n steps of r that start at a multiple of n?
static bool stays(const uop *u, const uop *r, int n) {
  if (!uop_varies(u, r)) return true;
  if ((u->op != OP_IDIV && u->op != OP_MOD) || u->src[1]->op != OP_CONST) return false;
  return stays(u->src[0], r, n) || (u->op == OP_IDIV && !(u->src[1]->a % n) && counts_up(u->src[0], r, n));
}

// Do `n` steps of r, starting at a multiple of n, read n neighbouring elements? An address may split r, but not within
// these steps.
static bool steps_by_one(uop *index, const uop *r, int n) {
  idx_sum s;
  int64_t step = 0;
  if (!idx_sum_of(index, &s)) return false;
  for (int t = 0; t < s.n; t++) {
    if (counts_up(s.atom[t], r, n)) step += s.coeff[t];
    else if (!stays(s.atom[t], r, n)) return false;
  }
  return step == 1;
}

// Number of neighbouring elements of a load: as many as an instruction takes, or more if the target asks for more.
static int unit_along(const finding *f, const uop *load, const uop *r, int elements, const layout_target *t) {
  uop *at = load_address(load);
  if (dtype_size((enum dtype)load->dt) != f->element || !steps_by_one(at, r, elements)) return 0;
  int64_t size = r->src[0]->op == OP_CONST ? r->src[0]->a : 0;
  while (2 * elements * f->element <= t->bytes && size % (2 * elements) == 0 && steps_by_one(at, r, 2 * elements))
    elements *= 2;
  return elements * f->element;
}

// Finds the units that the sums need: for a dot product, the bytes that its instruction takes along its range; for
// floats, what a work-item reads at once.
static void find_units(finding *f, const uop_list *l, const layout_target *t) {
  bool floats = t->bytes && dtype_is_float((enum dtype)f->weight->dt);
  for (int i = 0; i < f->n_loads; i++) f->unit[i] = dtype_size((enum dtype)f->load[i]->dt);
  for (size_t i = 0; i < l->n; i++) {
    int products = 0;
    const uop *u = l->at[i], *dot = u->op == OP_REDUCE ? dot_range(l->at[i], &products) : NULL;
    if (u->op != OP_REDUCE || (!dot && !floats)) continue;
    for (size_t j = (size_t)uop_first_range(u); j < u->nsrc; j++)
      for (int k = 0; k < f->n_loads; k++) {
        int unit = (dot ? u->src[j] == dot : f->unit[k] == f->element) && is_under(f->load[k], u->src[0])
                     ? unit_along(f, f->load[k], u->src[j], dot ? products : 1, t)
                     : 0;
        if (unit) f->unit[k] = unit;
      }
  }
}

// The only user of u; NULL if there is none or more than one.
static uop *only_user(const uop_list *l, const uop *u) {
  uop *user = NULL;
  for (size_t i = 0; i < l->n; i++)
    for (size_t k = 0; k < l->at[i]->nsrc; k++) {
      if (l->at[i]->src[k] != u) continue;
      if (user && user != l->at[i]) return NULL;
      user = l->at[i];
    }
  return user;
}

// The cast to another type of equal size that is the only use of a load (the last such cast of several); NULL if there
// is no such cast.
static uop *converting_cast(const uop_list *l, uop *load) {
  for (uop *u = only_user(l, load); u && u->op == OP_CAST; u = only_user(l, u))
    if (dtype_size((enum dtype)u->dt) == dtype_size((enum dtype)load->dt))
      return dtype_is_float((enum dtype)u->dt) && u->dt != load->dt ? u : NULL;
  return NULL;
}

// The type that all loads of a float weight are converted to; its own type if they are not converted alike.
static enum dtype converted_to(const uop_list *l, const finding *f) {
  const uop *first = f->n_loads ? converting_cast(l, f->load[0]) : NULL;
  for (int i = 0; first && i < f->n_loads; i++) {
    const uop *u = converting_cast(l, f->load[i]);
    if (!u || u->dt != first->dt || f->load[i]->dt != f->weight->dt) first = NULL;
  }
  return (enum dtype)(first ? first->dt : f->weight->dt);
}

// Rewrites the loads of one weight; NULL: the weight keeps the file's layout.
static const layout *weight_layout(graph *g, arena *mem, const uop_list *l, uop *store, uop *weight, uop *lane,
                                   const layout_target *t, enum layout_kind kind, map *loads) {
  finding f = {.g = g, .mem = mem, .store = store, .weight = weight, .lane = lane, .lanes = lanes_of(t, lane),
               .tiles = layout_tiles(kind),
               .element = dtype_size((enum dtype)weight->dt)};
  const layout *out = NULL;
  bool ok = true;
  for (size_t i = 0; ok && i < l->n; i++) {
    uop *u = l->at[i];
    if (u->op != OP_LOAD || u->src[0]->src[0] != weight) continue;
    ok = f.n_loads < MOST_LOADS && u->nsrc == 1 && apart(u, lane);
    if (ok) f.load[f.n_loads++] = u;
  }
  f.to = converted_to(l, &f);
  if (ok) { find_units(&f, l, t); find_slices(&f); }
  ok = ok && f.n_loads && find_parts(&f, l) && find_order(&f);
  int64_t bytes = f.share * f.lanes;
  for (int i = 0; ok && i < f.n_parts; i++) ok = mul_i64(bytes, f.part[i].size, &bytes);
  uop *moved_to[MOST_LOADS], *stream = ok ? uop_new(g, OP_PARAM, DT_U8, 1, NULL, 0,
                                                    (uarg){.a = weight->a, .b = bytes, .memory = MEMORY_STREAM}) : NULL;
  for (int i = 0; ok && i < f.n_loads; i++) ok = (moved_to[i] = moved(&f, f.load[i], stream)) != NULL;
  ok = ok && bytes <= weight->b * f.element;
  for (int i = 0; ok && i < f.n_loads; i++)
    map_put(loads, f.to == (enum dtype)weight->dt ? f.load[i] : converting_cast(l, f.load[i]), moved_to[i]);
  if (ok) out = made(&f, bytes);
  vec_free(&f.units);
  return out;
}

// Bytes of a weight that one run of the kernel reads: one matrix if a loaded number selects it; the row of one token.
static int64_t read_at_once(const uop_list *l, const uop *weight) {
  int64_t all = 0, n;
  for (size_t i = 0; i < l->n; i++) {
    const uop *u = l->at[i];
    if (u->op != OP_LOAD || u->src[0]->src[0] != weight) continue;
    n = dtype_size((enum dtype)u->dt);
    const uop_list ranges = uop_ranges(u->src[0]);
    for (size_t k = 0; k < ranges.n; k++)
      if (ranges.at[k]->src[0]->op == OP_CONST && moves_along(load_address(u), ranges.at[k]) &&
          !mul_i64(n, ranges.at[k]->src[0]->a, &n))
        n = INT64_MAX / 2;
    all = min_i64(all + n, INT64_MAX / 2);
  }
  return all;
}

static const layout *as_it_lies(graph *g, const uop *weight) {
  layout *l = ARENA_NEW(graph_arena(g), layout);
  int64_t bytes = weight->b * dtype_size((enum dtype)weight->dt);
  enum dtype dt = (enum dtype)weight->dt;
  *l = (layout){.hash = (uint64_t)bytes, .dt = dt, .to = dt, .elems = weight->b, .bytes = bytes, .together = 1};
  return l;
}

static uop *kernel_layouts(graph *g, const sched_kernel *k, const layout_target *t, const enum layout_kind *kinds) {
  arena *mem = arena_new();
  uop *ast = k->ast, *store = ast->src[0];
  uop_list l = uop_toposort(mem, &ast, 1);
  uop *lane = t->lanes ? find_lane(&l, store, t) : NULL;
  map loads = {0};
  for (size_t i = 0; i < l.n; i++) {
    uop *w = l.at[i];
    if (!is_weight_memory(w) || kinds[w->a] == LAYOUT_FILE) continue;
    if (lane) k->layouts[w->a] = weight_layout(g, mem, &l, store, w, lane, t, kinds[w->a], &loads);
    if (!k->layouts[w->a] && w->b * dtype_size((enum dtype)w->dt) >= LARGE && read_at_once(&l, w) >= LARGE)
      k->layouts[w->a] = as_it_lies(g, w);
  }
  if (loads.n) ast = uop_substitute(g, ast, &loads);
  map_free(&loads);
  arena_free(mem);
  return ast;
}

// Kernels that shared one expression still share it if their weights have equal kinds of layouts.
void layout_weights(graph *g, schedule *s, const layout_target *t, layout_choice *choose, void *ctx) {
  smap done = {0};
  for (int i = 0; i < s->n_kernels; i++) {
    sched_kernel *k = &s->kernels[i];
    size_t bytes = sizeof(uop *) + (size_t)k->n_bufs * sizeof(enum layout_kind);
    char *key = arena_alloc(graph_arena(g), bytes);
    enum layout_kind *kinds = ARENA_ARRAY(graph_arena(g), enum layout_kind, k->n_bufs + 1);
    void *known;
    for (int b = 0; b < k->n_bufs; b++) kinds[b] = choose ? choose(ctx, k->bufs[b]) : LAYOUT_ROWS;
    memcpy(key, &k->ast, sizeof(uop *));
    memcpy(key + sizeof(uop *), kinds, (size_t)k->n_bufs * sizeof *kinds);
    if (smap_get(&done, key, bytes, &known)) {
      const sched_kernel *like = known;
      k->ast = like->ast;
      k->layouts = like->layouts;
      continue;
    }
    k->layouts = ARENA_ARRAY(graph_arena(g), const layout *, k->n_bufs + 1);
    memset(k->layouts, 0, ((size_t)k->n_bufs + 1) * sizeof *k->layouts);
    k->ast = kernel_layouts(g, k, t, kinds);
    smap_set(&done, key, bytes, k);
  }
  smap_free(&done);
}

static const struct { const char *name; int tiles; } kinds[LAYOUT_KINDS] = {
  [LAYOUT_ROWS] = {"rows", 1}, [LAYOUT_FILE] = {"file", 1}, [LAYOUT_TILES_2] = {"tiles2", 2},
  [LAYOUT_TILES_4] = {"tiles4", 4}};

const char *layout_name(enum layout_kind k) { return kinds[k].name; }
int layout_tiles(enum layout_kind k) { return kinds[k].tiles; }

// --- filling ---------------------------------------------------------------------------------------------------------

// The value stored for the file's elements from `at` on: `bytes` unchanged bytes, or one converted element.
static uop *filled_with(graph *g, const layout *l, uop *raw, uop *at, int bytes) {
  if (l->to == l->dt) return uop_load(g, uop_index(g, raw, at), dtype_unsigned(bytes), 1);
  uop *v = t_cast(g, uop_load(g, uop_index(g, raw, at), l->dt, 1), DT_F32);
  return uop_bitcast(g, t_cast(g, v, l->to), dtype_unsigned(bytes));
}

uop *layout_filling(graph *g, const layout *l) {
  if (!l->n_units) return NULL;
  int element = dtype_size(l->dt);
  uop *ranges[LAYOUT_LOOPS + 1], *to = uop_idx(g, 0), *from = uop_idx(g, l->base / element), *row = uop_idx(g, 0);
  int64_t share = 0, at = 0;
  size_t n = 0;
  for (int i = 0; i < l->n_units; i++) share += l->unit[i].bytes;
  for (int i = 0; i < l->n_loops; i++) {
    ranges[n] = uop_range(g, uop_idx(g, l->loop[i].size), i, n ? AXIS_LOOP : AXIS_GLOBAL);
    to = idx_add(g, idx_mul(g, to, uop_idx(g, l->loop[i].size)), ranges[n]);
    from = idx_add(g, from, idx_mul(g, ranges[n], uop_idx(g, l->loop[i].step / element)));
    row = idx_add(g, row, idx_mul(g, ranges[n++], uop_idx(g, l->loop[i].rows)));
  }
  uop *lane = uop_range(g, uop_idx(g, l->lanes), LAYOUT_LOOPS, AXIS_LOOP);
  ranges[n++] = lane;
  to = idx_mul(g, to, uop_idx(g, share * l->lanes));
  uop *together = uop_idx(g, l->together), *group = idx_div(g, lane, together);
  from = idx_add(g, from, idx_mul(g, group, uop_idx(g, l->lane_step / element)));
  row = idx_add(g, row, idx_mod(g, lane, together));
  uop *copy = uop_new(g, OP_PARAM, DT_U8, 1, NULL, 0, (uarg){.a = 0, .b = l->bytes}),
      *raw = uop_new(g, OP_PARAM, l->dt, 1, NULL, 0, (uarg){.a = 1, .b = l->elems});
  VEC(uop *) stores = {0};
  for (int i = 0; i < l->n_units; at += l->unit[i++].bytes * l->lanes) {
    int bytes = l->unit[i].bytes, word = l->to == l->dt ? (int)min_i64(bytes, WORD) : element;
    uop *first = idx_add(g, idx_add(g, to, uop_idx(g, at)), idx_mul(g, lane, uop_idx(g, bytes))),
        *rows = idx_mul(g, row, uop_idx(g, l->unit[i].row / element));
    for (int k = 0; k < bytes; k += word) {
      uop *src[2 + LAYOUT_LOOPS + 1];
      src[0] = uop_index(g, copy, idx_add(g, first, uop_idx(g, k)));
      uop *byte = idx_add(g, idx_add(g, from, uop_idx(g, (l->unit[i].from + k) / element)), rows);
      src[1] = filled_with(g, l, raw, byte, word);
      memcpy(src + 2, ranges, n * sizeof *ranges);
      vec_push(&stores, uop_new(g, OP_STORE, DT_VOID, 1, src, 2 + n, (uarg){0}));
    }
  }
  uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, stores.at, stores.n, (uarg){0});
  vec_free(&stores);
  return sink;
}
