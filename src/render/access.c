// Counts the memory accesses of a GPU kernel from its program, without running it (render.h). Evaluates the addresses
// of the first subgroup of a work-group, with all loops in their first iteration.
#include "render/render.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/eval.h"

enum { STEP = 32 /* items */, SECTOR = 32 /* bytes that memory gives at once */, WIDEST = 16 /* bytes of a load */,
       WORD = 4, TURNS_AT_ONCE = 4 };

// The address of a load: bytes after the element with number `base` (NULL: element 0).
typedef struct place { const uop *memory, *base; int64_t from, bytes; } place;

// turns: iterations of all open loops; own: of the innermost; first, items: the work-items that the open conditions
// admit
typedef struct scope { double turns, own; int64_t first, items; } scope;

typedef struct walk {
  const program *p;
  const int64_t *vars;                     // values; NULL: the maxima
  map zeros;
  scope in;
  // Since a region began: burst: distinct bytes needed by a subgroup; loaded: bytes that each work-item loads. most:
  // the maximum of burst times iterations so far.
  double burst, loaded, most;
  VEC(place) near;                         // loads since a loop or condition began or ended, or a store
} walk;

// The value of a leaf: a variable, a loop counter, or a launch id; values loaded from memory are unknown.
static bool start(const uop *u, const int *item, evalue *out) {
  switch (u->op) {
  case OP_SPECIAL: *out = (evalue){.i = u->s[0] == 'l' ? item[u->s[1] - '0'] : 0}; return true;
  case OP_RANGE: case OP_VAR: *out = (evalue){.i = u->op == OP_VAR ? u->a : 0}; return true;
  case OP_LOAD: *out = (evalue){.i = max_i64(u->vmin, 0)}; return true;
  default: return false;
  }
}

static void put_starts(uop *u, const int *item, map *leaf, evalue *room, size_t *n) {
  if (map_has(leaf, u)) return;
  if (start(u, item, &room[*n])) { map_put(leaf, u, &room[(*n)++]); return; }
  for (size_t i = 0; i < u->nsrc; i++) put_starts(u->src[i], item, leaf, room, n);
}

static bool address_at(uop *index, const int *item, int64_t *out) {
  evalue room[64], v;
  map leaf = {0};
  size_t n = 0;
  put_starts(index->src[1], item, &leaf, room, &n);
  bool known = index->lanes == 1 && n < COUNT(room) && eval_expr(&(eval_env){.leaf = &leaf}, index->src[1], &v);
  map_free(&leaf);
  if (known) *out = v.i * dtype_size((enum dtype)render_memory(index)->dt);
  return known;
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// The address that a LOAD or a COPY reads.
static uop *read_index(const uop *u) { return u->op == OP_LOAD ? u->src[0] : u->op == OP_COPY ? u->src[1] : NULL; }
static int64_t read_bytes(const uop *u) {
  return u->op == OP_COPY ? u->a : (int64_t)u->lanes * dtype_size((enum dtype)u->dt);
}

static place load_place(const uop *load) {
  const uop *at = read_index(load)->src[1], *memory = render_memory(read_index(load));
  place p = {memory, at, 0, read_bytes(load)};
  const uop *offset = at->op == OP_ADD ? at->src[1] : at;
  if (offset->op == OP_CONST) {
    p.base = at->op == OP_ADD ? at->src[0] : NULL;
    p.from = offset->a * dtype_size((enum dtype)memory->dt);
  }
  return p;
}

static bool is_near(const walk *w, const place *p, int64_t from, int64_t bytes) {
  int64_t found = 0;
  for (size_t i = 0; i < w->near.n; i++) {
    const place *q = &w->near.at[i];
    if (q->memory == p->memory && q->base == p->base && q->from >= from && q->from + q->bytes <= from + bytes)
      found += q->bytes;
  }
  return found == bytes;
}

static void note_near(walk *w, size_t i) {
  vec_free(&w->near);
  for (; i < w->p->n; i++) {
    const uop *u = w->p->at[i];
    if (u->op == OP_RANGE || u->op == OP_END || u->op == OP_IF || u->op == OP_ENDIF || u->op == OP_STORE) break;
    if (u->op == OP_LOAD && u->src[0]->lanes == 1) vec_push(&w->near, load_place(u));
  }
}

// Compilers merge neighbouring loads into one instruction if it begins at a multiple of its size. Returns the bytes of
// the instruction that this load stands for; 0 if an earlier load stands for it.
static int64_t together(walk *w, const uop *load) {
  place p = load_place(load);
  int64_t element = dtype_size((enum dtype)p.memory->dt), bytes = p.bytes,
          aligned = p.base ? element << min_i64(render_zeros((uop *)(uintptr_t)p.base, &w->zeros), 4) : WIDEST;
  for (int64_t all = WIDEST; all > bytes && bytes >= 2; all /= 2) {
    int64_t first = p.from - (p.from % all + all) % all;
    if (aligned >= all && is_near(w, &p, first, all)) return p.from == first ? all : 0;
  }
  return bytes;
}

// Counts a load's instructions, sectors and distinct bytes per iteration, for a subgroup.
static void count_load(walk *w, const uop *load, const int size[3], kernel_access *out) {
  uop *index = read_index(load);
  const uop *memory = render_memory(index);
  int64_t at[STEP], sectors[STEP], element = dtype_size((enum dtype)memory->dt), bytes = together(w, load),
          wide = min_i64(min_i64(bytes, WIDEST), element << min_i64(render_zeros(index->src[1], &w->zeros), 4));
  if (!bytes) return;
  int n = (int)min_i64(STEP, w->in.items);
  for (int i = 0; i < n; i++) {
    int number = (int)w->in.first + i,
        item[3] = {number % size[0], number / size[0] % size[1], number / size[0] / size[1]};
    if (!address_at((uop *)index, item, &at[i])) at[i] = (int64_t)i * 4096;      // unknown address: assume scattered
  }
  qsort(at, (size_t)n, sizeof *at, by_value);
  for (int64_t part = 0; part < bytes; part += wide) {
    int found = 0, different = 0;
    for (int i = 0; i < n; i++) {
      sectors[found] = (at[i] + part) / SECTOR;
      found += !found || sectors[found] != sectors[found - 1];
      different += !i || at[i] != at[i - 1];
    }
    out->loads += w->in.turns;
    out->sectors += w->in.turns * found;
    out->useful += w->in.turns * different * (double)wide;
    w->burst += different * (double)wide;
    w->loaded += (double)wide;
    out->loaded += w->in.turns * (double)wide;
  }
}

// The ids of work-groups ('g') or work-items ('l') that satisfy a condition of a merged kernel.
static void numbers_of(const uop *cond, char kind, int64_t *from, int64_t *below) {
  const uop *x = cond->nsrc > 0 ? cond->src[0] : NULL, *y = cond->nsrc > 1 ? cond->src[1] : NULL;
  if (cond->op == OP_AND && x && y) { numbers_of(x, kind, from, below); numbers_of(y, kind, from, below); }
  if (cond->op != OP_CMPLT || !x || !y) return;
  if (x->op == OP_CONST && y->op == OP_SPECIAL && y->s[0] == kind) *from = max_i64(*from, x->a + 1);
  if (y->op == OP_CONST && x->op == OP_SPECIAL && x->s[0] == kind) *below = min_i64(*below, y->a);
}

static void put_variables(const walk *w, uop *u, map *leaf, evalue *room, size_t *n) {
  if (u->op == OP_VAR && !map_has(leaf, u)) {
    room[*n].i = w->vars[render_var(w->p, u)];
    map_put(leaf, u, &room[(*n)++]);
  }
  for (size_t i = 0; i < u->nsrc; i++) put_variables(w, u->src[i], leaf, room, n);
}

// The value of an expression over variables; its maximum if it depends on anything else.
static double value_at(const walk *w, uop *u) {
  evalue room[64], v;
  map leaf = {0};
  size_t n = 0;
  if (w->vars && w->p->n_vars <= (int)COUNT(room)) put_variables(w, u, &leaf, room, &n);
  bool known = eval_expr(&(eval_env){.leaf = &leaf}, u, &v);
  map_free(&leaf);
  return (double)(known ? v.i : u->vmax);
}

// Instructions of an operation: one for merged loads, otherwise one per lane. A constant offset is part of an address.
static double instructions_of(walk *w, const uop *u) {
  switch (u->op) {
  case OP_INDEX: case OP_SPLAT: case OP_STACK: case OP_EXTRACT: case OP_LOCAL: case OP_SPECIAL: case OP_VAR:
  case OP_BITCAST: case OP_LANE: case OP_ACC: case OP_SET: return 0;
  case OP_LOAD: return u->src[0]->lanes > 1 ? u->lanes : ceil((double)together(w, u) / WIDEST);
  case OP_STORE: return ceil((double)u->src[1]->lanes * dtype_size((enum dtype)u->src[1]->dt) / WIDEST);
  case OP_ADD: if (u->lanes == 1 && dtype_is_int((enum dtype)u->dt) && u->src[1]->op == OP_CONST) return 0; break;
  default: break;
  }
  return u->dt == DT_VOID ? 1 : u->lanes;
}

// Words of work-group memory that a node loads or stores.
static double shared_words(const uop *u) {
  if (u->op != OP_LOAD && u->op != OP_STORE) return 0;
  const uop *v = u->op == OP_LOAD ? u : u->src[1];
  return is_group_memory(render_memory(u->src[0])) ? ceil((double)v->lanes * dtype_size((enum dtype)v->dt) / WORD) : 0;
}

// A condition opens: it admits fewer work-groups, or fewer work-items, in whole subgroups.
static void enter_if(walk *w, const uop *cond, const kernel_access *a) {
  int64_t from = 0, below = (int64_t)a->groups, first = w->in.first, end = w->in.first + w->in.items;
  numbers_of(cond, 'g', &from, &below);
  if (below > from) w->in.turns *= (double)(below - from) / a->groups;
  numbers_of(cond, 'l', &first, &end);
  if (end <= first) return;
  w->in.turns *= (double)round_up((size_t)(end - first), STEP) / (double)round_up((size_t)w->in.items, STEP);
  w->in.first = first;
  w->in.items = end - first;
}

// A region ends: an iteration of a loop, a conditional block, the code before a barrier. NVIDIA's assembler issues the
// loads of four iterations together.
static void end_burst(walk *w, kernel_access *out) {
  if (w->burst * w->in.turns > w->most) {
    double at_once = fmin(w->in.own, TURNS_AT_ONCE);
    w->most = w->burst * w->in.turns;
    out->burst = w->burst * at_once;
    out->ahead = w->loaded * (at_once - 1);
  }
  w->burst = w->loaded = 0;
}

bool render_access(const program *p, const int64_t *vars, kernel_access *out) {
  walk w = {.p = p, .vars = vars, .in = {.turns = 1, .own = 1}};
  int size[3];
  *out = (kernel_access){.groups = 1, .bytes = value_at(&w, p->bytes)};
  for (int i = 0; i < 3; i++) {
    if (p->local[i] && p->local[i]->op != OP_CONST) return false;
    size[i] = p->local[i] ? (int)p->local[i]->a : 1;
    if (p->global[i]) out->groups *= value_at(&w, p->global[i]);
  }
  out->items = size[0] * size[1] * size[2];
  scope before[64];
  int depth = 0;
  w.in.items = (int64_t)out->items;
  note_near(&w, 0);
  for (size_t i = 0; i < p->n; i++) {
    const uop *u = p->at[i];
    bool parts = u->op == OP_RANGE || u->op == OP_END || u->op == OP_IF || u->op == OP_ENDIF;
    if (parts || u->op == OP_BARRIER) end_burst(&w, out);
    if (u->op == OP_RANGE || u->op == OP_IF) {
      if (depth == (int)COUNT(before)) return false;
      before[depth++] = w.in;
      if (u->op == OP_RANGE) w.in.turns *= w.in.own = value_at(&w, u->src[0]);
      else enter_if(&w, u->src[0], out);
    } else if (u->op == OP_END || u->op == OP_ENDIF) w.in = before[--depth];
    else if (u->op != OP_CONST && u->op != OP_PARAM) {
      out->nodes += w.in.turns;
      out->instructions += w.in.turns * instructions_of(&w, u);
    }
    // 16 x 8 sums over K bytes, or over K / 2 halves at half the rate
    if (u->op == OP_MMA) out->macs += w.in.turns * 16 * 8 * (double)(u->a << !!u->b);
    if (read_index(u) && render_memory(read_index(u))->op == OP_PARAM) count_load(&w, u, size, out);
    out->shared += w.in.turns * shared_words(u);
    if (parts || u->op == OP_STORE) note_near(&w, i + 1);
  }
  end_burst(&w, out);
  map_free(&w.zeros);
  vec_free(&w.near);
  return out->loads > 0;
}

void render_access_line(str *out, const program *p) {
  kernel_access a;
  if (!render_access(p, NULL, &a)) return;
  str_addf(out,
           "access %s: %.0f groups of %.0f items, %.0f bytes, %.0f nodes, %.0f loads of %.1f bytes, %.0f sectors, %.0f "
           "useful bytes\n",
           p->name, a.groups, a.items, a.bytes, a.nodes, a.loads, a.loaded / a.loads, a.sectors, a.useful);
}
