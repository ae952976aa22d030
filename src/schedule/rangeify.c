// Converts movement ops to index arithmetic and tensors to expressions over ranges: see rangeify.h.
#include "schedule/rangeify.h"
#include <stdlib.h>
#include <string.h>

uop *flat_index(graph *g, const shape *s, const place *at) {
  uop *e = uop_idx(g, 0), *stride = uop_idx(g, 1);
  for (int i = s ? s->n : 0; i-- > 0;) {
    e = idx_add(g, e, idx_mul(g, at->idx[i], stride));
    stride = idx_mul(g, stride, uop_idx(g, s->dim[i]->vmax));
  }
  return e;
}

enum { TEMP_TILE = 64 };

uop *temp_index(graph *g, const shape *s, const place *at) {
  int tiled = -1;
  bool outermost = true;
  for (int i = 0; s && i < s->n; i++) {
    if (uop_is_int(s->dim[i], 1)) continue;
    if (!outermost && s->dim[i]->op != OP_CONST && s->dim[i]->vmax % TEMP_TILE == 0 && s->dim[i]->vmax > TEMP_TILE)
      tiled = i;
    outermost = false;
  }
  if (tiled < 0) return flat_index(g, s, at);
  uop *e = uop_idx(g, 0), *stride = uop_idx(g, 1);
  for (int i = s->n; i-- > 0;) {
    uop *size = uop_idx(g, i == tiled ? TEMP_TILE : s->dim[i]->vmax),
        *idx = i == tiled ? idx_mod(g, at->idx[i], size) : at->idx[i];
    e = idx_add(g, e, idx_mul(g, idx, stride));
    stride = idx_mul(g, stride, size);
  }
  return idx_add(g, e, idx_mul(g, idx_div(g, at->idx[tiled], uop_idx(g, TEMP_TILE)), stride));
}

// Maps a reshape in groups of axes with equal products, so that a symbolic axis that does not change takes part in no
// division.
static void reshape_place(graph *g, const shape *from, const shape *to, const place *at, place *src) {
  int i = 0, j = 0;
  while (i < from->n || j < to->n) {
    int i0 = i, j0 = j;
    uop *p = i < from->n ? from->dim[i++] : uop_idx(g, 1), *q = j < to->n ? to->dim[j++] : uop_idx(g, 1);
    while (p != q) {
      // take more axes on the side with fewer elements so far; if sizes are symbolic, an axis of size 1 or the end
      // decides
      bool more_from = i < from->n && (j == to->n || uop_is_int(p, 1) || (!uop_is_int(q, 1) && p->vmax <= q->vmax));
      if (more_from) p = idx_mul(g, p, from->dim[i++]);
      else if (j < to->n) q = idx_mul(g, q, to->dim[j++]);
      else die("reshape of groups that do not match");
    }
    uop *e = uop_idx(g, 0), *stride = uop_idx(g, 1);
    for (int k = j; k-- > j0;) {
      e = idx_add(g, e, idx_mul(g, at->idx[k], stride));
      stride = idx_mul(g, stride, to->dim[k]);
    }
    stride = uop_idx(g, 1);
    for (int k = i; k-- > i0;) {
      bool outermost = true;
      for (int m = i0; m < k; m++) outermost &= uop_is_int(from->dim[m], 1);
      uop *part = idx_div(g, e, stride);
      src->idx[k] = uop_is_int(from->dim[k], 1) ? uop_idx(g, 0) : outermost ? part : idx_mod(g, part, from->dim[k]);
      stride = idx_mul(g, stride, from->dim[k]);
    }
  }
}

void move_place(graph *g, const uop *u, const place *at, place *src) {
  const shape *s = u->src[0]->shape;
  src->n = s ? s->n : 0;
  src->valid = at->valid;
  switch (u->op) {
  case OP_RESHAPE: if (s) reshape_place(g, s, u->shape, at, src); break;
  case OP_PERMUTE: for (int i = 0; i < s->n; i++) src->idx[u->a >> 4 * i & 15] = at->idx[i]; break;
  case OP_EXPAND:
    for (int i = 0; i < s->n; i++) src->idx[i] = uop_is_int(s->dim[i], 1) ? uop_idx(g, 0) : at->idx[i];
    break;
  case OP_FLIP:
    for (int i = 0; i < s->n; i++)
      src->idx[i] = u->a >> i & 1 ? idx_sub(g, idx_sub(g, s->dim[i], uop_idx(g, 1)), at->idx[i]) : at->idx[i];
    break;
  case OP_SHRINK: for (int i = 0; i < s->n; i++) src->idx[i] = idx_add(g, at->idx[i], u->src[1 + 2 * i]); break;
  case OP_PAD:
    for (int i = 0; i < s->n; i++) {
      uop *lo = u->src[1 + 2 * i], *hi = u->src[2 + 2 * i];
      src->idx[i] = idx_sub(g, at->idx[i], lo);
      if (!uop_is_int(lo, 0))
        src->valid = bool_and(g, src->valid, idx_lt(g, idx_sub(g, lo, uop_idx(g, 1)), at->idx[i]));
      if (!uop_is_int(hi, 0)) src->valid = bool_and(g, src->valid, idx_lt(g, at->idx[i], idx_add(g, lo, s->dim[i])));
    }
    break;
  default: die("%s moves nothing", op_name((enum op)u->op));
  }
}

void gather_place(const uop *u, const place *at, uop *row, place *x, place *ids) {
  int n_ids = u->src[1]->shape ? u->src[1]->shape->n : 0;
  *ids = (place){.n = n_ids, .valid = at->valid};
  for (int i = 0; i < n_ids; i++) ids->idx[i] = at->idx[i];
  *x = (place){.n = u->src[0]->shape->n, .valid = at->valid};
  x->idx[0] = row;
  for (int i = 1; i < x->n; i++) x->idx[i] = at->idx[n_ids + i - 1];
}

// --- lowering -------------------------------------------------------------------------------------------------------

static uop *load_from(graph *g, uop *buf, const shape *s, const place *at, enum dtype dt) {
  uop *i = buf->a >= TEMP_IDS ? temp_index(g, s, at) : flat_index(g, s, at);
  if (at->valid) i = uop_op3(g, OP_WHERE, at->valid, i, uop_new(g, OP_INVALID, DT_IDX, 1, NULL, 0, (uarg){0}));
  return uop_load(g, uop_index(g, buf, i), dt, 1);
}

// Bytes reinterpreted as wider elements: one wide load if they are neighbours in memory, otherwise shifts.
static uop *lower_bitcast(lowering *l, uop *u, const place *at) {
  graph *g = l->f->g;
  uop *in = u->src[0];
  int from = dtype_size((enum dtype)in->dt), to = dtype_size((enum dtype)u->dt);
  if (from == to) return uop_bitcast(g, lower(l, in, at), (enum dtype)u->dt);
  die_if(from > to, "BITCAST to smaller elements is not supported yet: %s to %s", dtype_name((enum dtype)in->dt),
         dtype_name((enum dtype)u->dt));
  int ratio = to / from, last = at->n - 1;
  uop *part[8];
  bool adjacent = true;
  for (int j = 0; j < ratio; j++) {
    place p = *at;
    p.idx[last] = idx_add(g, idx_mul(g, at->idx[last], uop_idx(g, ratio)), uop_idx(g, j));
    part[j] = lower(l, in, &p);
    adjacent &= part[j]->op == OP_LOAD && part[j]->dt == part[j]->src[0]->src[0]->dt &&
                part[j]->src[0]->src[0] == part[0]->src[0]->src[0] && part[j]->src[0]->src[1]->op != OP_WHERE &&
                part[j]->src[0]->src[1] == idx_add(g, part[0]->src[0]->src[1], uop_idx(g, j));
  }
  if (adjacent) return uop_load(g, part[0]->src[0], (enum dtype)u->dt, 1);
  enum dtype wide = dtype_unsigned(to), narrow = dtype_unsigned(from);
  uop *sum = NULL;
  for (int j = 0; j < ratio; j++) {
    uop *t = uop_cast(g, uop_bitcast(g, part[j], narrow), wide);
    if (j) t = uop_op2(g, OP_SHL, t, uop_int(g, wide, 8 * from * j));
    sum = sum ? uop_op2(g, OP_OR, sum, t) : t;
  }
  return uop_bitcast(g, sum, (enum dtype)u->dt);
}

static uop *lower_reduce(lowering *l, uop *u, const place *at) {
  graph *g = l->f->g;
  const shape *s = u->src[0]->shape;
  place p = *at;
  uop *src[1 + MAX_DIMS];
  size_t n = 1;
  int64_t height = (int64_t)(uintptr_t)map_ptr(&l->f->height, u);
  for (int i = 0; i < s->n; i++)
    if (u->b >> i & 1) {
      // reductions of equal height over equal sizes share a range, and so a loop
      p.idx[i] = src[n] = uop_range(g, s->dim[i], 100 * height + (int64_t)n, AXIS_REDUCE);
      n++;
    }
  p.valid = at->valid;
  src[0] = lower(l, u->src[0], &p);
  return uop_new(g, OP_REDUCE, (enum dtype)u->dt, 1, src, n, (uarg){.a = u->a});
}

// --- stages ---------------------------------------------------------------------------------------------------------

enum { FIRST_STAGE_RANGE = 100000 };

bool belongs_to_tile(const uop *index) {
  return index->op == OP_CONST || (index->op == OP_RANGE && index->b == AXIS_LOOP);
}

bool stage_fits(const uop *stage, const place *at) {
  if (at->valid) return false;
  for (int i = 0; i < at->n; i++)
    if (!belongs_to_tile(at->idx[i]) && (stage->a || stage->shape->dim[i]->op != OP_CONST)) return false;
  return true;
}

static uop *inner_index(graph *g, const shape *s, const place *at, const place *of) {
  uop *e = uop_idx(g, 0), *stride = uop_idx(g, 1);
  for (int i = s->n; i-- > 0;) {
    if (belongs_to_tile(of->idx[i])) continue;
    e = idx_add(g, e, idx_mul(g, at->idx[i], stride));
    stride = idx_mul(g, stride, s->dim[i]);
  }
  return e;
}

// Numbers a stage by its content, not by the order of visits: that order depends on the order of factors, which may
// differ between layers.
static int64_t stage_number(lowering *l, uop *u, int64_t size) {
  int64_t height = (int64_t)(uintptr_t)map_ptr(&l->f->height, u), number = height * 256;
  for (; size > 1; size = (size + 1) / 2) number += 4;
  for (;; number++) {
    size_t i = 0;
    while (i < l->numbers.n && l->numbers.at[i] != number) i++;
    if (i == l->numbers.n) break;
  }
  vec_push(&l->numbers, number);
  return number;
}

// The STORE of a stage, made once for all places of one tile.
static uop *stage_store(lowering *l, uop *u, const place *at) {
  graph *g = l->f->g;
  uop **key = ARENA_ARRAY(l->mem, uop *, 1 + MAX_DIMS);
  size_t bytes = (1 + (size_t)at->n) * sizeof *key;
  key[0] = u;
  for (int i = 0; i < at->n; i++) key[1 + i] = belongs_to_tile(at->idx[i]) ? at->idx[i] : NULL;
  void *hit;
  if (smap_get(&l->stages, (const char *)key, bytes, &hit)) return hit;
  uop *src[2 + MAX_DIMS], *mem;
  place p = *at;
  size_t n = 2;
  int64_t size = 1, number;
  for (int i = 0; i < at->n; i++)
    die_if(!belongs_to_tile(at->idx[i]) && !mul_i64(size, u->shape->dim[i]->a, &size),
           "a stage of more than 2^63 elements");
  number = stage_number(l, u, size);
  for (int i = 0; i < at->n; i++) {
    if (belongs_to_tile(at->idx[i])) continue;
    p.idx[i] = src[n++] = uop_range(g, u->shape->dim[i], FIRST_STAGE_RANGE + number * MAX_DIMS + i, AXIS_REDUCE);
  }
  if (u->a) src[0] = uop_index(g, map_ptr(&l->f->stored, u), temp_index(g, u->shape, at));
  else {
    mem = uop_new(g, OP_LOCAL, (enum dtype)u->dt, 1, NULL, 0, (uarg){.a = number, .b = size, .memory = MEMORY_TILE});
    src[0] = uop_index(g, mem, inner_index(g, u->shape, &p, at));
  }
  src[1] = lower(l, u->src[0], &p);
  uop *store = uop_new(g, OP_STORE, DT_VOID, 1, src, n, (uarg){0});
  smap_set(&l->stages, (const char *)key, bytes, store);
  return store;
}

static uop *lower_stage(lowering *l, uop *u, const place *at) {
  graph *g = l->f->g;
  if (!stage_fits(u, at)) return lower(l, u->src[0], at);
  uop *store = stage_store(l, u, at), *mem = store->src[0]->src[0];
  uop *index = u->a ? store->src[0] : uop_index(g, mem, inner_index(g, u->shape, at, at));
  return uop_new(g, OP_LOAD, (enum dtype)u->dt, 1, (uop *[]){index, store}, 2, (uarg){0});
}

void lowering_free(lowering *l) {
  smap_free(&l->memo);
  smap_free(&l->stages);
  vec_free(&l->numbers);
}

void view_place(lowering *l, uop *u, const place *at, place *src) {
  place ids;
  if (u->op != OP_GATHER) { move_place(l->f->g, u, at, src); return; }
  gather_place(u, at, NULL, src, &ids);
  src->idx[0] = lower(l, u->src[1], &ids);
}

static uop *lower_new(lowering *l, uop *u, const place *at) {
  graph *g = l->f->g;
  bool made_here = u == l->self || (l->self && map_ptr(&l->f->home, u) == l->self);
  uop *buf = made_here ? NULL : map_ptr(&l->f->stored, u);
  if (buf) return load_from(g, buf, u->shape, at, (enum dtype)u->dt);
  unsigned flags = op_flags((enum op)u->op);
  place p;
  if (u->op == OP_PAD) {
    move_place(g, u, at, &p);
    uop *v = lower(l, u->src[0], &p);
    uop *own = simplify(g, p.valid ? p.valid : uop_int(g, DT_BOOL, 1));
    return simplify(g, uop_op3(g, OP_WHERE, own, v, uop_const_like(g, v, 0)));
  }
  if (is_view(u)) { view_place(l, u, at, &p); return lower(l, u->src[0], &p); }
  switch (u->op) {
  case OP_CONST: case OP_VAR: return u;
  case OP_BUFFER: case OP_AFTER: return load_from(g, uop_memory(u), u->shape, at, (enum dtype)u->dt);
  case OP_IOTA: return at->idx[0];
  case OP_CONTIGUOUS: return lower(l, u->src[0], at);
  case OP_STAGE: return lower_stage(l, u, at);
  case OP_REDUCE_AXIS: return lower_reduce(l, u, at);
  case OP_BITCAST: return lower_bitcast(l, u, at);
  case OP_STACK: {
    place inner = *at;
    inner.n--;
    uop *which = at->idx[inner.n], *v = lower(l, u->src[u->nsrc - 1], &inner);
    for (size_t i = u->nsrc - 1; i-- > 0;)
      v = uop_op3(g, OP_WHERE, idx_lt(g, which, uop_idx(g, (int64_t)i + 1)), lower(l, u->src[i], &inner), v);
    return v;
  }
  default: break;
  }
  die_if(!(flags & OPF_ELEMENTWISE), "cannot lower %s", op_name((enum op)u->op));
  uop *s[3];
  for (size_t i = 0; i < u->nsrc; i++) s[i] = lower(l, u->src[i], at);
  return uop_with_src(g, u, s);
}

uop *lower(lowering *l, uop *u, const place *at) {
  struct { uop *u, *valid, *idx[MAX_DIMS]; } *key = arena_alloc(l->mem, sizeof *key);
  key->u = u;
  int n = u->shape ? u->shape->n : 0;
  if (u->shape) {
    key->valid = at->valid;
    die_if(at->n != n, "%s: a place of %d axes in %d", op_name((enum op)u->op), at->n, n);
    for (int i = 0; i < n; i++) key->idx[i] = at->idx[i];
  }
  void *hit;
  if (smap_get(&l->memo, (const char *)key, sizeof *key, &hit)) return hit;
  place here = *at;
  here.n = n;
  uop *v = lower_new(l, u, &here);
  smap_set(&l->memo, (const char *)key, sizeof *key, v);
  return v;
}
