// Linearisation. A program is a tree of regions, one per loop. Every node goes to the outermost open region in which
// all ranges that it depends on are open, so values that a loop does not change are computed before it. A REDUCE
// becomes a variable in its region and a loop that updates it; reductions over equal ranges in one region share the
// loop. The code of a region is collected separately and appended to its parent when the loop is closed: hoisted code
// comes before the loop. Of several operands, the one that reads the earlier part of a packed weight comes first:
// weights are packed in this order (schedule/layout.c), and memory is fastest when it is read sequentially.
#include "codegen/linearize.h"
#include <stdlib.h>
#include <string.h>
#include "codegen/opt.h"

enum { MAX_DEPTH = 24 };

typedef struct region { uop *range; uint64_t mask; VEC(uop *) code; map done; } region;

typedef struct linear {
  graph *g;
  const target *t;
  map bits;                  // RANGE -> its bit
  map kinds;                 // node -> hash of its computation, without addresses
  map firsts;                // node -> 1 + the first byte of a packed weight that it reads in the first iteration
  map sums;                  // node -> does it have a sum below it?
  bool in_order;             // the compiler keeps this order of instructions
  map opened;                // ranges whose loop was opened before: the next loop gets a fresh number
  uop_list all;
  prefetch distance;
  int paged;
  region stack[MAX_DEPTH];
  int depth;
  int64_t next_range, next_acc, barriers;
} linear;

static uint64_t set_of(const linear *l, const uop *u) {
  const uop_list r = uop_ranges(u);
  uint64_t s = 0;
  for (size_t i = 0; i < r.n; i++) s |= (uint64_t)(uintptr_t)map_ptr(&l->bits, r.at[i]);
  return s;
}

static void number_ranges(linear *l) {
  int n = 0;
  for (size_t i = 0; i < l->all.n; i++) {
    uop *u = l->all.at[i];
    if (u->op != OP_RANGE) continue;
    die_if(n == 64, "a kernel with more than 64 ranges");
    map_put(&l->bits, u, (void *)(uintptr_t)(1ull << n++));
    l->next_range = max_i64(l->next_range, u->a + 1);
  }
}

static int target_region(const linear *l, uint64_t set) {
  for (int i = 0; i < l->depth; i++) if (!(set & ~l->stack[i].mask)) return i;
  die("a value depends on a range that no loop opens");
}

static void append_op(region *r, uop *u) { vec_push(&r->code, u); }

static uop *emit(linear *l, uop *u);
static void emit_store(linear *l, uop *store);
static void emit_copy(linear *l, uop *copy);
static uint64_t kind_hash(linear *l, const uop *u);
static void emit_side_by_side(linear *l, uop *const *u, size_t n);

static void open_loop(linear *l, uop *range) {
  die_if(l->depth == MAX_DEPTH, "loops nested too deeply");
  uop *end = emit(l, range->src[0]), *fresh = range;
  if (map_has(&l->opened, range) || end != range->src[0])
    fresh = uop_new(l->g, OP_RANGE, (enum dtype)range->dt, 1, &end, 1, (uarg){.a = l->next_range++, .b = range->b});
  map_put(&l->opened, range, (void *)1);
  region *r = &l->stack[l->depth];
  *r = (region){.range = fresh, .mask = l->stack[l->depth - 1].mask | (uint64_t)(uintptr_t)map_ptr(&l->bits, range)};
  l->depth++;
  append_op(r, fresh);
  map_put(&r->done, range, fresh);
}

static void close_loop(linear *l) {
  region *r = &l->stack[--l->depth], *parent = &l->stack[l->depth - 1];
  append_op(r, uop_new(l->g, OP_END, DT_VOID, 1, &r->range, 1, (uarg){0}));
  for (size_t i = 0; i < r->code.n; i++) append_op(parent, r->code.at[i]);
  vec_free(&r->code);
  map_free(&r->done);
}

static int64_t first_byte(linear *l, const uop *u) {
  void *hit = map_ptr(&l->firsts, u);
  if (hit) return (int64_t)(intptr_t)hit - 1;
  int64_t first = INT64_MAX - 1;
  if (u->op == OP_LOAD && is_stream(u->src[0]->src[0])) first = u->src[0]->src[1]->vmin;
  else for (size_t i = 0; i < u->nsrc; i++) first = min_i64(first, first_byte(l, u->src[i]));
  map_put(&l->firsts, u, (void *)(intptr_t)(first + 1));
  return first;
}

static bool has_sum(linear *l, const uop *u) {
  void *known;
  if (map_get(&l->sums, (uint64_t)(uintptr_t)u, &known)) return known != NULL;
  bool has = u->op == OP_REDUCE || u->op == OP_DOT || u->op == OP_MMLA;
  for (size_t i = 0; i < u->nsrc && !has; i++) has = has_sum(l, u->src[i]);
  map_put(&l->sums, u, (void *)(uintptr_t)has);
  return has;
}

// Is operand x computed before operand y? With in_order, operands without a sum come last, so that they need no
// register meanwhile.
static bool is_before(linear *l, const uop *x, const uop *y) {
  if (l->in_order && has_sum(l, x) != has_sum(l, y)) return has_sum(l, x);
  return first_byte(l, x) < first_byte(l, y);
}

// Sorts operands into the order in which they are computed.
static void order_operands(linear *l, const uop *u, unsigned *order) {
  for (unsigned i = 0, j; i < u->nsrc; i++) {
    for (j = i; j > 0 && is_before(l, u->src[i], u->src[order[j - 1]]); j--) order[j] = order[j - 1];
    order[j] = i;
  }
}

static bool same_ranges(const uop *x, const uop *y) {
  size_t nx = x->nsrc - (size_t)uop_first_range(x), ny = y->nsrc - (size_t)uop_first_range(y);
  return nx == ny && !memcmp(x->src + uop_first_range(x), y->src + uop_first_range(y), nx * sizeof *x->src);
}

static bool is_dot(const uop *value) {
  return (value->op == OP_DOT || value->op == OP_MMLA) && uop_unsplat(value->src[0])->op == OP_CONST;
}

static bool is_multiply_add(const linear *l, const uop *reduce, const uop *value) {
  return reduce->a == OP_ADD && value->op == OP_MUL && (value->dt == DT_F32 || value->dt == DT_F64) && l->t->has_fma;
}

static uop *find_emitted(const linear *l, const uop *u) {
  for (int i = l->depth; i-- > 0;) {
    uop *hit = map_ptr(&l->stack[i].done, u);
    if (hit) return hit;
  }
  return NULL;
}

// Appends a node whose sources are already emitted, unless it is emitted already.
static uop *once(linear *l, uop *u) {
  region *r = &l->stack[l->depth - 1];
  if (find_emitted(l, u)) return u;
  append_op(r, u);
  map_put(&r->done, u, u);
  return u;
}

// acc op value: a multiply-add if the machine has it. Sums with equal beginnings share them.
static uop *emit_combine(linear *l, const uop *reduce, uop *acc, uop *value) {
  uop *u;
  if (is_dot(value)) {
    uop *a = emit(l, value->src[1]), *b = emit(l, value->src[2]);
    u = uop_new(l->g, (enum op)value->op, (enum dtype)reduce->dt, reduce->lanes, (uop *[]){acc, a, b}, 3, (uarg){0});
  } else if (is_multiply_add(l, reduce, value)) {
    uop *a = emit(l, value->src[0]), *b = emit(l, value->src[1]);
    u = uop_op3(l->g, OP_FMA, a, b, acc);
  } else {
    uop *v = emit(l, value);
    u = uop_new(l->g, (enum op)reduce->a, (enum dtype)reduce->dt, reduce->lanes, (uop *[]){acc, v}, 2, (uarg){0});
  }
  return once(l, u);
}

// Several sums take their v-th values. Their operands are computed together first, so that all sums use a shared
// operand (a weight that several tokens multiply, an activation that several rows multiply) at once and no register
// keeps it.
static void combine_all(linear *l, uop *const *reduce, uop **acc, size_t n, int v) {
  VEC(uop *) operands[2] = {0};
  for (size_t i = 0; i < n; i++) {
    if (v >= uop_first_range(reduce[i])) continue;
    uop *value = reduce[i]->src[v];
    if (is_dot(value)) { vec_push(&operands[0], value->src[1]); vec_push(&operands[1], value->src[2]); }
    else if (is_multiply_add(l, reduce[i], value)) {
      bool turned = operands[0].n && kind_hash(l, value->src[0]) != kind_hash(l, operands[0].at[0]);
      vec_push(&operands[turned], value->src[0]); vec_push(&operands[!turned], value->src[1]);
    }
    else vec_push(&operands[0], value);
  }
  bool second = operands[1].n && is_before(l, operands[1].at[0], operands[0].at[0]);
  for (int k = 0; k < 2; k++) emit_side_by_side(l, operands[k ^ second].at, operands[k ^ second].n);
  for (size_t i = 0; i < n; i++)
    if (v < uop_first_range(reduce[i])) acc[i] = emit_combine(l, reduce[i], acc[i], reduce[i]->src[v]);
  for (int k = 0; k < 2; k++) vec_free(&operands[k]);
}

// Reductions whose ranges are all unrolled are chains of additions. All of these belong to one region.
static void emit_chains(linear *l, uop *const *u, size_t n, int where) {
  region *r = &l->stack[where];
  uop **cur = xcalloc(n, sizeof *cur);
  int longest = 0;
  for (size_t i = 0; i < n; i++) longest = uop_first_range(u[i]) > longest ? uop_first_range(u[i]) : longest;
  for (size_t i = 0; i < n; i++) cur[i] = u[i]->src[0];
  emit_side_by_side(l, cur, n);
  for (size_t i = 0; i < n; i++) cur[i] = emit(l, cur[i]);
  for (int v = 1; v < longest; v++) combine_all(l, u, cur, n, v);
  for (size_t i = 0; i < n; i++) map_put(&r->done, u[i], cur[i]);
  free(cur);
}

// All reductions that share ranges and region with `first` run in one loop.
static void emit_reduces(linear *l, uop *first, int where) {
  VEC(uop *) group = {0};
  for (size_t i = 0; i < l->all.n; i++) {
    uop *u = l->all.at[i];
    if (u->op != OP_REDUCE || !same_ranges(u, first) || map_has(&l->stack[where].done, u)) continue;
    if ((set_of(l, u) & ~l->stack[where].mask) || target_region(l, set_of(l, u)) != where) continue;
    vec_push(&group, u);
  }
  uop **acc = xcalloc(group.n, sizeof *acc), **cur = xcalloc(group.n, sizeof *cur);
  for (size_t i = 0; i < group.n; i++) {
    uop *init = emit(l, monoid_identity(l->g, group.at[i], (enum op)group.at[i]->a));
    acc[i] = cur[i] =
      uop_new(l->g, OP_ACC, (enum dtype)group.at[i]->dt, group.at[i]->lanes, &init, 1, (uarg){.a = l->next_acc++});
    append_op(&l->stack[where], acc[i]);
  }
  int opened = 0;
  for (size_t i = (size_t)uop_first_range(first); i < first->nsrc; i++) { open_loop(l, first->src[i]); opened++; }
  region *body = &l->stack[l->depth - 1];
  for (int v = 0, more = 1; more; v++) {
    more = 0;
    for (size_t i = 0; i < group.n; i++) more |= v + 1 < uop_first_range(group.at[i]);
    combine_all(l, group.at, cur, group.n, v);
  }
  for (size_t i = 0; i < group.n; i++)
    append_op(body, uop_new(l->g, OP_SET, DT_VOID, 1, (uop *[]){acc[i], cur[i]}, 2, (uarg){0}));
  while (opened--) close_loop(l);
  for (size_t i = 0; i < group.n; i++) map_put(&l->stack[where].done, group.at[i], acc[i]);
  free(acc); free(cur);
  vec_free(&group);
}

static bool is_work_group(const uop *mem) { return mem->op == OP_LOCAL && mem->memory != MEMORY_TILE; }
static bool is_guarded(const uop *index) {
  return index->src[1]->op == OP_WHERE && uop_unsplat(index->src[1]->src[2])->op == OP_INVALID;
}
static bool is_stage(const uop *u) {
  return u->op == OP_COPY ||
         (u->op == OP_STORE && (u->nsrc > 2 || !is_work_group(u->src[0]->src[0]) || is_guarded(u->src[0])));
}

// Emits a stage: its STORE, and those of its copies (which have equal loops), in loops of their own.
static void emit_stage(linear *l, uop *first, int where) {
  VEC(uop *) group = {0}, values = {0};
  for (size_t i = 0; i < l->all.n; i++) {
    uop *u = l->all.at[i];
    if (u->op != OP_STORE || !same_ranges(u, first) || u->nsrc == 2 || map_has(&l->stack[where].done, u)) continue;
    if (!(set_of(l, u) & ~l->stack[where].mask) && target_region(l, set_of(l, u)) == where) vec_push(&group, u);
  }
  if (first->nsrc == 2) vec_push(&group, first);
  for (size_t i = 2; i < first->nsrc; i++) open_loop(l, first->src[i]);
  for (size_t i = 0; i < group.n; i++) vec_push(&values, group.at[i]->src[1]);
  emit_side_by_side(l, values.at, values.n);
  for (size_t i = 0; i < group.n; i++) emit_store(l, group.at[i]);
  for (size_t i = 2; i < first->nsrc; i++) close_loop(l);
  for (size_t i = 0; i < group.n; i++) map_put(&l->stack[where].done, group.at[i], group.at[i]);
  vec_free(&group); vec_free(&values);
}

// Emits a PREFETCH over ranges in loops over these.
static void emit_asks(linear *l, const uop *u, int where) {
  for (size_t i = 1; i < u->nsrc; i++) open_loop(l, u->src[i]);
  uop *index = emit(l, u->src[0]);
  uop *one = uop_new(l->g, OP_PREFETCH, DT_VOID, 1, &index, 1, uop_arg(u));
  append_op(&l->stack[l->depth - 1], one);
  for (size_t i = 1; i < u->nsrc; i++) close_loop(l);
  map_put(&l->stack[where].done, u, one);
}

static bool has_followers(const uop *u) { return u->op == OP_REDUCE && (size_t)uop_first_range(u) == u->nsrc; }

// Emits reductions and stages in region `where`; inner regions are set aside meanwhile. Several only if they are
// chains.
static void emit_reductions(linear *l, uop *const *u, size_t n, int where) {
  region saved[MAX_DEPTH];
  int depth = l->depth, inner = depth - where - 1;
  memcpy(saved, l->stack + where + 1, (size_t)inner * sizeof *saved);
  l->depth = where + 1;
  if (u[0]->op == OP_COPY) emit_copy(l, u[0]);
  else if (is_stage(u[0])) emit_stage(l, u[0], where);
  else if (u[0]->op == OP_PREFETCH) emit_asks(l, u[0], where);
  else if (has_followers(u[0])) emit_chains(l, u, n, where);
  else emit_reduces(l, u[0], where);
  memcpy(l->stack + where + 1, saved, (size_t)inner * sizeof *saved);
  l->depth = depth;
}

// Prefetches `further` bytes after `index`, for each cache line whose first byte a load of memory read in long runs
// touches in the first iteration. (Later iterations are equally far apart.)
static void ask_for_lines(linear *l, int where, const uop *load, uop *index, int64_t further, int hint) {
  int64_t at = load->src[0]->src[1]->vmin * dtype_size((enum dtype)index->dt),
          end = at + (int64_t)load->lanes * dtype_size((enum dtype)load->dt);
  for (int64_t line = (at + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE; line < end; line += CACHE_LINE)
    append_op(&l->stack[where],
              uop_new(l->g, OP_PREFETCH, DT_VOID, 1, &index, 1, (uarg){.a = line - at + further, .b = hint}));
}

// The address of a load in the next iteration of the loop that selects the entry of its table; in the last iteration,
// the current address.
static uop *next_index(linear *l, const uop *load, uop *r) {
  uop *one = uop_int(l->g, (enum dtype)r->dt, 1), *last = uop_int(l->g, (enum dtype)r->dt, r->vmax);
  map m = {0};
  map_put(&m, r, uop_op2(l->g, OP_MIN, uop_op2(l->g, OP_ADD, r, one), last));
  uop *next = uop_substitute(l->g, load->src[0], &m);
  map_free(&m);
  return next;
}

// The innermost open loop that selects this entry of a table; NULL if there is none.
static uop *loop_of(const linear *l, const uop *entry) {
  const uop_list of = entry ? uop_ranges(entry) : (uop_list){0};
  for (int i = l->depth; i-- > 0;)
    for (size_t j = 0; j < of.n; j++) if (map_ptr(&l->stack[i].done, of.at[j]) == l->stack[i].range) return of.at[j];
  return NULL;
}

static void ask_before_load(linear *l, int where, const uop *load, uop *index) {
  if (!is_long_run(index->src[0]) || index->lanes > 1) return;
  uop *table = l->paged ? loop_of(l, table_entry_of(load)) : NULL;
  if (table) ask_for_lines(l, where, load, emit(l, next_index(l, load, table)), 0, l->paged - 1);
  else if (l->distance.kib) ask_for_lines(l, where, load, index, l->distance.kib * 1024, l->distance.hint);
}

static uop *emit(linear *l, uop *u) {
  uop *hit = find_emitted(l, u);
  if (hit) return hit;
  int where = target_region(l, set_of(l, u));
  if (u->op == OP_REDUCE || is_stage(u) || u->op == OP_PREFETCH) {
    emit_reductions(l, &u, 1, where);
    return find_emitted(l, u);
  }
  uop *few[8], **s = u->nsrc <= 8 ? few : xmalloc(u->nsrc * sizeof *s);
  unsigned few_places[8], *order = u->nsrc <= 8 ? few_places : xmalloc(u->nsrc * sizeof *order);
  order_operands(l, u, order);
  for (size_t i = 0; i < u->nsrc; i++) s[order[i]] = emit(l, u->src[order[i]]);
  size_t n = u->nsrc;
  // these sources only order the node; being emitted before it is enough
  while (u->op == OP_LOAD && n > 1 && (is_stage(s[n - 1]) || s[n - 1]->op == OP_PREFETCH)) n--;
  while (u->op == OP_BARRIER && n && is_stage(s[n - 1])) n--;
  uarg arg = uop_arg(u);
  if (u->op == OP_BARRIER && n < u->nsrc) arg.a = --l->barriers;                         // each is a distinct node
  uop *to = u->nsrc ? uop_new(l->g, (enum op)u->op, (enum dtype)u->dt, u->lanes, s, n, arg) : u;
  if (s != few) { free(s); free(order); }
  // different nodes may become one: loads after different stores once these sources are dropped, or uses of equal sums
  if (to != u) {
    if ((hit = find_emitted(l, to))) { map_put(&l->stack[l->depth - 1].done, u, hit); return hit; }
    map_put(&l->stack[where].done, to, to);
  }
  if (to->op == OP_LOAD && (l->distance.kib || l->paged)) ask_before_load(l, where, u, to->src[0]);
  append_op(&l->stack[where], to);
  map_put(&l->stack[where].done, u, to);
  return to;
}

// A hash of a node's computation: its operations, without what they read and without the order of commutative operands.
static uint64_t kind_hash(linear *l, const uop *u) {
  void *hit = map_ptr(&l->kinds, u);
  if (hit) return (uint64_t)(uintptr_t)hit;
  uint64_t h = hash_u64(u->op, (uint64_t)u->dt << 16 | (uint64_t)u->lanes), all = 0;
  bool commutes = op_flags((enum op)u->op) & OPF_COMMUTATIVE;
  size_t n = u->op == OP_INDEX                                                                 ? 1
             : u->op == OP_RANGE || u->op == OP_CONST || u->op == OP_REDUCE || u->op == OP_DOT ? 0
                                                                                               : u->nsrc;
  for (size_t i = 0; i < n; i++) {
    uint64_t k = kind_hash(l, u->src[i]);
    if (commutes) all += k; else h = hash_u64(h, k);
  }
  h = hash_u64(h, all + (u->op == OP_REDUCE    ? hash_u64((uint64_t)u->a, u->nsrc)
                         : u->op == OP_EXTRACT ? (uint64_t)u->a
                                               : 0)) |
      1;
  map_put(&l->kinds, u, (void *)(uintptr_t)h);
  return h;
}

// Emits nodes; those with equal computations advance together, operand by operand. With in_order, operands without a
// sum are emitted when they are used.
static void emit_side_by_side(linear *l, uop *const *u, size_t n) {
  if (l->in_order && n && !has_sum(l, u[0])) return;
  VEC(uop *) rest = {0}, operand = {0};
  bool alike = true;
  for (size_t i = 0; i < n; i++) {
    if (find_emitted(l, u[i])) continue;
    size_t j = 0;
    while (j < rest.n && rest.at[j] != u[i]) j++;
    if (j < rest.n) continue;
    vec_push(&rest, u[i]);
    alike &= kind_hash(l, u[i]) == kind_hash(l, rest.at[0]) &&
             target_region(l, set_of(l, u[i])) == target_region(l, set_of(l, rest.at[0]));
  }
  uop *first = rest.n > 1 && alike ? rest.at[0] : NULL;
  if (first && has_followers(first)) emit_reductions(l, rest.at, rest.n, target_region(l, set_of(l, first)));
  else if (first && first->op != OP_REDUCE && !is_stage(first)) {
    unsigned *order = xmalloc((first->nsrc + 1) * sizeof *order);
    order_operands(l, first, order);
    for (size_t k = 0; k < first->nsrc; k++) {
      size_t j = order[k];
      operand.n = 0;
      for (size_t i = 0; i < rest.n; i++) {
        const uop *v = rest.at[i];
        bool turned =
          (op_flags((enum op)v->op) & OPF_COMMUTATIVE) && kind_hash(l, v->src[0]) != kind_hash(l, first->src[0]);
        vec_push(&operand, v->src[turned ? 1 - j : j]);
      }
      emit_side_by_side(l, operand.at, operand.n);
    }
    free(order);
  }
  for (size_t i = 0; i < rest.n; i++) emit(l, rest.at[i]);
  vec_free(&rest); vec_free(&operand);
}

static void guarded(linear *l, uop *cond, uop *effect) {
  region *r = &l->stack[l->depth - 1];
  if (cond) append_op(r, uop_new(l->g, OP_IF, DT_VOID, 1, &cond, 1, (uarg){0}));
  append_op(r, effect);
  if (cond) append_op(r, uop_new(l->g, OP_ENDIF, DT_VOID, 1, NULL, 0, (uarg){0}));
}

static uop *lane(linear *l, uop *v, int i) {
  if (v->lanes == 1) return v;
  return once(l, uop_new(l->g, OP_EXTRACT, (enum dtype)v->dt, 1, &v, 1, (uarg){.a = i}));
}

static uop *store_of(linear *l, uop *index, uop *value) {
  return uop_new(l->g, OP_STORE, DT_VOID, 1, (uop *[]){index, value}, 2, (uarg){0});
}

static void emit_store(linear *l, uop *st) {
  uop *index = st->src[0], *i = index->src[1], *value = emit(l, st->src[1]), *mem = emit(l, index->src[0]);
  if (!is_guarded(index)) { guarded(l, NULL, store_of(l, emit(l, index), value)); return; }
  uop *cond = emit(l, i->src[0]), *at = emit(l, i->src[1]);
  for (int k = 0; k < at->lanes; k++) {
    uop *address = uop_index(l->g, mem, lane(l, at, k)), *c = lane(l, cond, k);
    once(l, address);
    guarded(l, c, store_of(l, address, at->lanes > 1 ? lane(l, value, k) : value));
  }
}

static void emit_copy(linear *l, uop *u) {
  uop *index = u->src[0], *cond = NULL, *src[2];
  for (size_t i = 2; i < u->nsrc; i++) emit(l, u->src[i]);
  src[1] = emit(l, u->src[1]);
  if (is_guarded(index)) {
    uop *mem = emit(l, index->src[0]);
    cond = emit(l, index->src[1]->src[0]);
    src[0] = once(l, uop_index(l->g, mem, emit(l, index->src[1]->src[1])));
  } else src[0] = emit(l, index);
  guarded(l, cond, uop_new(l->g, OP_COPY, DT_VOID, 1, src, 2, uop_arg(u)));
  map_put(&l->stack[l->depth - 1].done, u, u);
}

// Work-items that share memory in a loop reuse it in the next iteration, so no work-item may begin that while others
// still read. A loop with a barrier therefore ends with a barrier, unless the existing barrier already separates the
// iterations.
static void end_with_barriers(linear *l, program *p) {
  bool has[MAX_DEPTH] = {false};
  uop *open[MAX_DEPTH];
  VEC(uop *) code = {0};
  int depth = 0;
  for (size_t i = 0; i < p->n; i++) {
    uop *u = p->at[i];
    if (u->op == OP_BARRIER) for (int d = 0; d < depth; d++) has[d] |= !uop_is_among(open[d], u->src, (int)u->nsrc);
    if (u->op == OP_RANGE) { open[depth] = u; has[depth++] = false; }
    if (u->op == OP_END && has[--depth])
      vec_push(&code, uop_new(l->g, OP_BARRIER, DT_VOID, 1, NULL, 0, (uarg){.a = (int64_t)i}));
    vec_push(&code, u);
  }
  p->n = code.n;
  p->at = memcpy(ARENA_ARRAY(p->mem, uop *, code.n), code.at, code.n * sizeof *code.at);
  vec_free(&code);
}

void linearize(graph *g, uop *ast, const target *t, program *p) {
  arena *a = arena_new();
  linear l = {.g = g, .t = t, .depth = 1, .distance = p->distance, .paged = p->paged, .in_order = p->order[ORDER_ALL]};
  l.all = uop_toposort(a, &ast, 1);
  number_ranges(&l);
  // parameters first, so that every program declares its arguments in order
  for (int n = 0; n < p->n_bufs; n++)
    for (size_t i = 0; i < l.all.n; i++) if (l.all.at[i]->op == OP_PARAM && l.all.at[i]->a == n) emit(&l, l.all.at[i]);
  uop *first = ast->src[0];
  for (size_t i = 2; i < first->nsrc; i++) open_loop(&l, first->src[i]);
  for (size_t i = 0; i < ast->nsrc; i++) if (ast->src[i]->op == OP_STORE) emit_store(&l, ast->src[i]);
  while (l.depth > 1) close_loop(&l);
  p->n = l.stack[0].code.n;
  p->at = ARENA_ARRAY(p->mem, uop *, p->n);
  memcpy(p->at, l.stack[0].code.at, p->n * sizeof *p->at);
  if (t->has_local) end_with_barriers(&l, p);
  vec_free(&l.stack[0].code);
  map_free(&l.stack[0].done);
  map_free(&l.bits); map_free(&l.kinds); map_free(&l.firsts); map_free(&l.sums); map_free(&l.opened);
  arena_free(a);
}
