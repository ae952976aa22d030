// Constructs and hash-conses nodes: see uop.h. Invariant: no two live nodes of a graph (or its parents) have equal op,
// dtype, lanes, sources and argument. shape.c derives shapes of tensor ops, bounds.c derives bounds.
#include "graph/uop.h"
#include <stdlib.h>
#include <string.h>
#include "graph/bounds.h"
#include "graph/half.h"
#include "graph/shape.h"

struct graph {
  graph *parent;
  arena *mem;
  struct entry { uint64_t key; uop *u; } *table;       // open addressing by identity()
  size_t cap, n;
  smap strings;
  map simplified;
  struct recorder *recorder;
  struct shape_table { const shape **at; size_t n, cap; } shapes;
};

static const struct { const char *name; int arity; unsigned flags; } ops[OP_COUNT] = {
#define O(name, arity, flags) {#name, arity, flags},
  OP_TABLE(O)
#undef O
};

const char *op_name(enum op op) { return ops[op].name; }
int op_arity(enum op op) { return ops[op].arity; }
unsigned op_flags(enum op op) { return ops[op].flags; }
const char *axis_kind_name(enum axis_kind k) {
  static const char *const names[] = {"GLOBAL", "THREAD", "LOCAL", "GROUP", "REDUCE",
                                      "UPCAST", "UNROLL", "LANE",  "LOOP",  "DOT", "MMA",
                                      "STEP"};
  return names[k];
}
const char *memory_kind_name(enum memory_kind k) {
  static const char *const names[MEMORY_KINDS] = {"", "weight", "stream", "temp", "tile"};
  return names[k];
}

graph *graph_new(graph *parent) {
  graph *g = xcalloc(1, sizeof *g);
  g->parent = parent;
  g->mem = arena_new();
  g->cap = 1024;
  g->table = xzeros(g->cap, sizeof *g->table);
  return g;
}

void graph_free(graph *g) {
  if (!g) return;
  arena_free(g->mem);
  smap_free(&g->strings);
  map_free(&g->simplified);
  free(g->table);
  free(g->shapes.at);
  free(g);
}

arena *graph_arena(graph *g) { return g->mem; }
size_t graph_size(const graph *g) { return g->n; }
map *graph_simplified(graph *g) { return &g->simplified; }
void graph_record(graph *g, struct recorder *r) { g->recorder = r; }
struct recorder *graph_recorder(const graph *g) { return g->recorder; }

static const char *intern_string(graph *g, const char *s, size_t n) {
  void *v;
  for (graph *p = g; p; p = p->parent)
    if (smap_get(&p->strings, s, n, &v)) return v;
  char *copy = arena_strndup(g->mem, s, n);
  smap_set(&g->strings, copy, n, copy);
  return copy;
}

const shape *shape_new(graph *g, int n, uop *const *dim) {
  die_if(n < 0 || n > MAX_DIMS, "shape of %d dimensions", n);
  for (graph *p = g; p; p = p->parent)
    for (size_t i = 0; i < p->shapes.n; i++) {
      const shape *s = p->shapes.at[i];
      if (s->n == n && (!n || !memcmp(s->dim, dim, (size_t)n * sizeof *dim))) return s;
    }
  shape *s = ARENA_NEW(g->mem, shape);
  s->n = n;
  for (int i = 0; i < n; i++) s->dim[i] = dim[i];
  vec_push(&g->shapes, s);
  return s;
}

static uint64_t node_hash(const uop *u) {
  uint64_t h = hash_u64((uint64_t)u->op | (uint64_t)u->dt << 8 | (uint64_t)u->lanes << 16 | (uint64_t)u->nsrc << 32, 7);
  // layers differ only in buffer ids: their hashes must be equal
  if (u->op != OP_BUFFER) h = hash_u64((uint64_t)u->a, h);
  h = hash_u64((uint64_t)u->b, h);
  if (u->s) h = hash_bytes(u->s, u->s_len, h);
  const char *memory = memory_kind_name((enum memory_kind)u->memory);
  if (*memory) h = hash_bytes(memory, strlen(memory), h);
  for (size_t i = 0; i < u->nsrc; i++) h = hash_u64(u->src[i]->hash, h);
  return h;
}

// --- ranges ---------------------------------------------------------------------------------------------------------

static bool is_in(const uop_list *l, const uop *range) {
  for (size_t i = 0; i < l->n; i++) if (l->at[i] == range) return true;
  return false;
}

// A node that depends on as many ranges as one of its sources shares that source's list.
static const uop_list *ranges_of(graph *g, uop *u) {
  const uop_list *most = NULL;
  bool same = u->op != OP_RANGE && (size_t)uop_first_range(u) == u->nsrc;
  size_t all = u->op == OP_RANGE;
  for (size_t i = 0; i < u->nsrc; i++) {
    const uop_list *l = u->src[i]->ranges;
    if (!l) continue;
    all += l->n;
    if (!most || l->n > most->n) most = l;
  }
  if (!all) return NULL;
  for (size_t i = 0; same && i < u->nsrc; i++) {
    const uop_list *l = u->src[i]->ranges;
    for (size_t j = 0; l && l != most && same && j < l->n; j++) same = is_in(most, l->at[j]);
  }
  if (same) return most;
  uop_list *to = ARENA_NEW(g->mem, uop_list);
  to->at = ARENA_ARRAY(g->mem, uop *, all);
  if (u->op == OP_RANGE) to->at[to->n++] = u;
  for (size_t i = 0; i < u->nsrc; i++) {
    const uop_list l = uop_ranges(u->src[i]);
    for (size_t j = 0; j < l.n; j++) if (!is_in(to, l.at[j]) && !uop_binds(u, l.at[j])) to->at[to->n++] = l.at[j];
  }
  return to->n ? to : NULL;
}

bool uop_has_axis(const uop *u, enum axis_kind kind) {
  const uop_list l = uop_ranges(u);
  for (size_t i = 0; i < l.n; i++) if (l.at[i]->b == kind) return true;
  return false;
}

// --- nodes ----------------------------------------------------------------------------------------------------------

// The key of the hash table. Unlike the structural hash it distinguishes layers, so that their nodes do not collide.
static uint64_t identity(const uop *u) {
  uint64_t h = (uint64_t)u->op | (uint64_t)u->dt << 8 | (uint64_t)u->lanes << 16 | (uint64_t)u->nsrc << 32 |
               (uint64_t)u->memory << 56;
  uint64_t rest[3] = {(uint64_t)u->a, (uint64_t)u->b, (uint64_t)(uintptr_t)u->s};
  for (size_t i = 0; i < 3 + u->nsrc; i++)
    h = ((h << 5 | h >> 59) ^ (i < 3 ? rest[i] : (uint64_t)(uintptr_t)u->src[i - 3])) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 32;
}

static bool same_node(const uop *x, const uop *y) {
  if (x->op != y->op || x->dt != y->dt || x->lanes != y->lanes || x->nsrc != y->nsrc) return false;
  if (x->a != y->a || x->b != y->b || x->s != y->s || x->memory != y->memory) return false;
  return !x->nsrc || !memcmp(x->src, y->src, x->nsrc * sizeof *x->src);
}

static void grow(graph *g) {
  size_t cap = g->cap * 2;
  struct entry *t = xzeros(cap, sizeof *t);
  for (size_t i = 0; i < g->cap; i++)
    if (g->table[i].u) {
      size_t j = g->table[i].key & (cap - 1);
      while (t[j].u) j = (j + 1) & (cap - 1);
      t[j] = g->table[i];
    }
  free(g->table);
  g->table = t;
  g->cap = cap;
}

// constants come last, otherwise the structural hash decides: stable between runs
static bool out_of_order(const uop *x, const uop *y) {
  const uop *cx = uop_unsplat(x), *cy = uop_unsplat(y);
  bool kx = cx->op == OP_CONST, ky = cy->op == OP_CONST;
  if (kx != ky) return kx;
  return x->hash != y->hash ? x->hash > y->hash : x->id > y->id;
}

uop *uop_new(graph *g, enum op op, enum dtype dt, int lanes, uop *const *src, size_t nsrc, uarg arg) {
  die_if(op_arity(op) >= 0 && nsrc != (size_t)op_arity(op), "%s with %zu sources", op_name(op), nsrc);
  die_if(lanes < 1 || lanes > UINT16_MAX, "%s with %d lanes", op_name(op), lanes);
  uint64_t buf[(sizeof(uop) + 16 * sizeof(uop *)) / 8];
  uop *t = nsrc <= 16 ? (uop *)buf : xmalloc(sizeof(uop) + nsrc * sizeof(uop *));
  memset(t, 0, sizeof *t);
  t->op = (uint8_t)op; t->dt = (uint8_t)dt; t->lanes = (uint16_t)lanes; t->nsrc = (uint32_t)nsrc;
  t->a = arg.a; t->b = arg.b;
  t->memory = (uint8_t)arg.memory;
  die_if(arg.s_len >= 1 << 24, "%s with a text of %zu bytes", op_name(op), arg.s_len);
  if (arg.s) { t->s = intern_string(g, arg.s, arg.s_len); t->s_len = (uint32_t)arg.s_len & 0xffffff; }
  for (size_t i = 0; i < nsrc; i++) {
    die_if(!src[i], "%s: source %zu is missing", op_name(op), i);
    t->src[i] = src[i];
  }
  if ((op_flags(op) & OPF_COMMUTATIVE) && out_of_order(t->src[0], t->src[1])) {
    uop *x = t->src[0];
    t->src[0] = t->src[1];
    t->src[1] = x;
  }
  uint64_t key = identity(t);
  uop *found = NULL;
  for (graph *p = g; p && !found; p = p->parent)
    for (size_t i = key & (p->cap - 1); p->table[i].u; i = (i + 1) & (p->cap - 1))
      if (p->table[i].key == key && same_node(p->table[i].u, t)) { found = p->table[i].u; break; }
  if (!found) {
    if (g->n * 2 >= g->cap) grow(g);
    t->hash = node_hash(t);
    found = arena_alloc(g->mem, sizeof(uop) + nsrc * sizeof(uop *));
    memcpy(found, t, sizeof(uop) + nsrc * sizeof(uop *));
    found->id = (uint32_t)g->n;
    bounds few[16], *sb = nsrc <= 16 ? few : xmalloc(nsrc * sizeof *sb);
    for (size_t i = 0; i < nsrc; i++) sb[i] = (bounds){src[i]->vmin, src[i]->vmax};
    // after the swap
    for (size_t i = 0; i < 2 && i < nsrc; i++) sb[i] = (bounds){found->src[i]->vmin, found->src[i]->vmax};
    bounds b = bounds_of(found, sb);
    found->vmin = b.lo; found->vmax = b.hi;
    if (sb != few) free(sb);
    found->shape = shape_derive(g, found);
    found->ranges = ranges_of(g, found);
    size_t i = key & (g->cap - 1);
    while (g->table[i].u) i = (i + 1) & (g->cap - 1);
    g->table[i] = (struct entry){key, found};
    g->n++;
  }
  if (t != (uop *)buf) free(t);
  return found;
}

uop *uop_with_src(graph *g, const uop *u, uop *const *src) {
  bool same = true;
  for (size_t i = 0; i < u->nsrc; i++) same &= src[i] == u->src[i];
  if (same) return (uop *)(uintptr_t)u;
  return uop_new(g, (enum op)u->op, (enum dtype)u->dt, u->lanes, src, u->nsrc, uop_arg(u));
}

static enum dtype result_dtype(enum op op, uop *const *s) {
  if (op_flags(op) & OPF_COMPARE) return DT_BOOL;
  return (enum dtype)(op == OP_WHERE ? s[1]->dt : s[0]->dt);
}

static uop *new_elementwise(graph *g, enum op op, uop **s, size_t n) {
  int lanes = 1;
  for (size_t i = 0; i < n; i++) if (s[i]->lanes > lanes) lanes = s[i]->lanes;
  for (size_t i = 0; i < n; i++) if (s[i]->op != OP_INVALID) s[i] = uop_splat(g, s[i], lanes);
  if (n >= 2 && op != OP_SHL && op != OP_SHR) {
    const uop *x = s[n - 2], *y = s[n - 1];
    die_if(x->dt != y->dt,
           "%s of %s and %s", op_name(op), dtype_name((enum dtype)x->dt), dtype_name((enum dtype)y->dt));
  }
  return uop_new(g, op, result_dtype(op, s), lanes, s, n, (uarg){0});
}

uop *uop_op1(graph *g, enum op op, uop *x) { return new_elementwise(g, op, (uop *[]){x}, 1); }
uop *uop_op2(graph *g, enum op op, uop *x, uop *y) { return new_elementwise(g, op, (uop *[]){x, y}, 2); }
uop *uop_op3(graph *g, enum op op, uop *x, uop *y, uop *z) { return new_elementwise(g, op, (uop *[]){x, y, z}, 3); }

uop *uop_int(graph *g, enum dtype dt, int64_t v) {
  if (dtype_is_float(dt)) return uop_float(g, dt, (double)v);
  return uop_new(g, OP_CONST, dt, 1, NULL, 0, (uarg){.a = dtype_wrap(dt, v)});
}

uop *uop_idx(graph *g, int64_t v) { return uop_int(g, DT_IDX, v); }

uop *uop_float(graph *g, enum dtype dt, double v) {
  if (!dtype_is_float(dt)) return uop_int(g, dt, (int64_t)v);
  v = dtype_round(dt, v);
  int64_t bits;
  memcpy(&bits, &v, 8);
  return uop_new(g, OP_CONST, dt, 1, NULL, 0, (uarg){.a = bits});
}

uop *uop_const_like(graph *g, const uop *u, double v) {
  return uop_splat(g, uop_float(g, (enum dtype)u->dt, v), u->lanes);
}

double uop_const_float(const uop *u) {
  die_if(u->op != OP_CONST, "uop_const_float of %s", op_name((enum op)u->op));
  if (!dtype_is_float((enum dtype)u->dt)) return u->dt == DT_U64 ? (double)(uint64_t)u->a : (double)u->a;
  double v;
  memcpy(&v, &u->a, 8);
  return v;
}

const uop *uop_unsplat(const uop *u) { return u->op == OP_SPLAT ? u->src[0] : u; }

uop *uop_var(graph *g, const char *name, int64_t lo, int64_t hi) {
  die_if(lo > hi, "variable %s with bounds %lld..%lld", name, (long long)lo, (long long)hi);
  return uop_new(g, OP_VAR, DT_IDX, 1, NULL, 0, (uarg){.a = lo, .b = hi, .s = name, .s_len = strlen(name)});
}

uop *uop_cast(graph *g, uop *x, enum dtype dt) {
  if (x->dt == dt) return x;
  return uop_new(g, OP_CAST, dt, x->lanes, &x, 1, (uarg){0});
}

uop *uop_bitcast(graph *g, uop *x, enum dtype dt) {
  if (x->dt == dt) return x;
  die_if(!x->shape && dtype_size((enum dtype)x->dt) != dtype_size(dt),
         "bitcast of %s to %s", dtype_name((enum dtype)x->dt), dtype_name(dt));
  return uop_new(g, OP_BITCAST, dt, x->lanes, &x, 1, (uarg){0});
}

uop *uop_range(graph *g, uop *end, int64_t number, enum axis_kind kind) {
  return uop_new(g, OP_RANGE, DT_IDX, 1, &end, 1, (uarg){.a = number, .b = kind});
}

uop *uop_index(graph *g, uop *buf, uop *idx) {
  return uop_new(g, OP_INDEX, (enum dtype)buf->dt, idx->lanes, (uop *[]){buf, idx}, 2, (uarg){0});
}

uop *uop_load_from(graph *g, const uop *load, uop *index, int lanes) {
  uop *src[64];
  die_if(load->nsrc > COUNT(src), "LOAD after %u effects", load->nsrc - 1);
  src[0] = index;
  for (size_t i = 1; i < load->nsrc; i++) src[i] = load->src[i];
  return uop_new(g, OP_LOAD, (enum dtype)load->dt, lanes, src, load->nsrc, (uarg){0});
}
uop *uop_load(graph *g, uop *index, enum dtype dt, int lanes) {
  return uop_new(g, OP_LOAD, dt, lanes, &index, 1, (uarg){0});
}

uop *uop_splat(graph *g, uop *x, int lanes) {
  if (x->lanes == lanes) return x;
  die_if(x->lanes != 1, "splat of %d lanes to %d", x->lanes, lanes);
  return uop_new(g, OP_SPLAT, (enum dtype)x->dt, lanes, &x, 1, (uarg){0});
}

// --- walking --------------------------------------------------------------------------------------------------------

// Does not visit below nodes of `stop` (NULL: none).
static uop_list sort_below(arena *a, uop *const *roots, size_t n, const map *stop) {
  struct visit { uop *u; bool leave; };    // leave: its sources are done
  VEC(uop *) out = {0};
  VEC(struct visit) stack = {0};
  map seen = {0};
  for (size_t r = 0; r < n; r++) vec_push(&stack, ((struct visit){roots[n - 1 - r], false}));
  while (stack.n) {
    struct visit *top = &stack.at[stack.n - 1];
    uop *u = top->u;
    if (top->leave) { vec_push(&out, u); stack.n--; continue; }
    if (!map_add(&seen, (uint64_t)(uintptr_t)u)) { stack.n--; continue; }
    top->leave = true;
    for (size_t i = stop && map_has(stop, u) ? 0 : u->nsrc; i-- > 0;)
      if (!map_has(&seen, u->src[i])) vec_push(&stack, ((struct visit){u->src[i], false}));
  }
  uop_list l = {ARENA_ARRAY(a, uop *, out.n), out.n};
  if (out.n) memcpy(l.at, out.at, out.n * sizeof *out.at);
  vec_free(&out); vec_free(&stack); map_free(&seen);
  return l;
}

uop_list uop_toposort(arena *a, uop *const *roots, size_t n) { return sort_below(a, roots, n, NULL); }

uop *uop_substitute(graph *g, uop *u, const map *m) {
  arena *a = arena_new();
  uop_list l = sort_below(a, &u, 1, m);
  map done = {0};
  for (size_t i = 0; i < l.n; i++) {
    uop *x = l.at[i], *to = map_ptr(m, x);
    if (!to) {
      uop **src = ARENA_ARRAY(a, uop *, x->nsrc);
      for (size_t j = 0; j < x->nsrc; j++) src[j] = map_ptr(&done, x->src[j]);
      to = uop_with_src(g, x, src);
    }
    map_put(&done, x, to);
  }
  uop *r = map_ptr(&done, u);
  map_free(&done);
  arena_free(a);
  return r;
}
