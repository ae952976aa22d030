// The caches of a layer's keys and values: the layout of their numbers, the writing of rows and the reading of pages.
// See model_impl.h.
//
// Pages of the K cache are {kv, head_dim, position in page}, so that scores of neighbouring positions are adjacent.
// Pages of the V cache are {kv, position in page, v_dim}, so that a head of a page is read in one run. Attention reads
// whole pages: rows after the last position are masked like later positions, so that partial sums begin and end where
// pages do (schedule/flash.h).
//
// Numbers are floats, or integers in groups of 32 of a head's, with one scale per group in a cache of its own, which
// has the same layout; a reader multiplies a group by its scale. The expressions are those of weight formats: Q8_0, and
// Q4_0, whose bytes hold two numbers, 16 apart.
//
// 4-bit keys, and with them the queries, are first multiplied by a Hadamard matrix, which is its own inverse and keeps
// every product of two vectors. It spreads the few large elements of keys; beside these, 4 bits would round the other
// elements to 0.
#include <math.h>
#include <string.h>
#include "model/model_impl.h"
#include "model/stored.h"

enum { GROUP = 32, TURN = 64 };             // numbers that share a scale; numbers that are rotated together, at most

// A cache's name, type, number of states, and numbers per element
static const struct kind { const char *name; enum dtype dt; int states, per;
} kinds[KV_TYPES] = {
  [KV_F16] = {"f16", DT_F16, 1, 1},
  [KV_F32] = {"f32", DT_F32, 1, 1},
  [KV_BF16] = {"bf16", DT_BF16, 1, 1},
  [KV_Q8_0] = {"q8_0", DT_I8, 2, 1},
  [KV_Q4_0] = {"q4_0", DT_U8, 2, 2},
};

int kv_type_named(const char *name) {
  for (int i = 0; i < KV_TYPES; i++) if (!strcmp(kinds[i].name, name)) return i;
  return -1;
}

// The keys of an indexer stay floats: rounding would change which positions it chooses.
static const struct kind *kind_of_cache(const model *m, enum kv kv) {
  if (kv == KV_INDEX) return &kinds[m->kv.keys == KV_F32 ? KV_F32 : KV_F16];
  return &kinds[kv == KV_KEYS ? m->kv.keys : m->kv.values];
}
static int64_t row_width(const layer *y, enum kv kv) {
  return kv == KV_KEYS ? y->head_dim : kv == KV_INDEX ? y->indexer.n : y->v_dim;
}
static int at(const model *m, enum kv kv) { return kv == KV_KEYS ? 0 : kind_of_cache(m, KV_KEYS)->states; }

int kv_states(const model *m) { return kind_of_cache(m, KV_KEYS)->states + kind_of_cache(m, KV_VALUES)->states; }

layer kv_index_layer(const model *m, const layer *y) {
  layer small = *y;
  small.n_kv = 1;
  small.state += kind_of_cache(m, KV_VALUES)->states;
  return small;
}

int kv_load(loader *l, layer *y, enum kv kv) {
  const struct kind *k = kind_of_cache(l->m, kv);
  int64_t d = row_width(y, kv);
  if (k->states > 1 && d % GROUP)
    return gguf_fail(l->f, key(l, kv == KV_KEYS ? "attention.key_length" : "attention.value_length"), l->err,
                     "%lld is no multiple of %d, as a cache of type %s needs", (long long)d, GROUP, k->name);
  state(l, y, k->dt, (int64_t)y->n_kv * d / k->per, 0);
  if (k->states > 1) state(l, y, DT_F16, (int64_t)y->n_kv * d / GROUP, 0);
  return 0;
}

bool kv_is_float(const model *m, enum kv kv) { return kind_of_cache(m, kv)->states == 1; }

// ---- pages ----------------------------------------------------------------------------------------------------------

// The pages that some token of this run sees: the first one, and how many. A sum over their positions then adds the
// same values in the same order, and zeros, wherever the window is. By the interval analysis of `pos` they may end one
// page after the context: the table has room for it.
static uop *behind(const build *b, const layer *y) {
  return idx_max(b->g, idx_sub(b->g, b->pos, n_(b, y->window - 1)), n_(b, 0));
}
tensor *first_page_apart(const build *b, int window) {
  graph *g = b->g;
  if (!window) return NULL;
  tensor *behind = t_op2(g, OP_MAX, t_sub(g, b->at, uop_idx(g, window - 1)), uop_idx(g, 0));
  return t_op2(g, OP_IDIV, behind, uop_idx(g, b->s->page));
}

static uop *first_page(const build *b, const layer *y) {
  return y->window && !b->s->apart ? idx_div(b->g, behind(b, y), n_(b, b->s->page)) : n_(b, 0);
}
static uop *n_pages(const build *b, const layer *y) {
  uop *page = n_(b, b->s->page), *n = b->C;
  if (b->s->apart) {
    uop *most = y->window ? n_(b, model_window_pages(y->window, b->s->page)) : NULL;
    return most && most->a < b->s->ctx / b->s->page ? idx_min(b->g, b->n_pages, most) : b->n_pages;
  }
  if (y->window) {
    uop *of_window = idx_min(b->g, b->pos, n_(b, y->window - 1));
    n = idx_add(b->g, idx_add(b->g, b->T, of_window), idx_mod(b->g, behind(b, y), page));
  }
  return idx_div(b->g, idx_add(b->g, n, n_(b, b->s->page - 1)), page);
}

uop *kv_seen(const build *b, const layer *y) { return idx_mul(b->g, n_pages(b, y), n_(b, b->s->page)); }

tensor *kv_seen_at(const build *b, const layer *y) {
  graph *g = b->g;
  uop *seen = kv_seen(b, y), *one = n_(b, 1), *page = n_(b, b->s->page);
  tensor *at = t_iota(g, seen), *first = b->s->apart ? first_page_apart(b, y->window) : NULL;
  if (!first) {
    at = t_add(g, at, idx_mul(g, first_page(b, y), page));
    return t_reshape(g, at, DIMS(one, one, one, one, seen));
  }
  first = t_reshape(g, t_mul(g, first, page), DIMS(b->T, one, one, one, one));
  return t_add(g, first, t_reshape(g, at, DIMS(one, one, one, one, seen)));
}

// The dimensions of a cache of rows of d elements: {pages, kv, d, page}, or {pages, kv, page, d} for values.
static void dims_of(const build *b, const layer *y, enum kv kv, int64_t d, int64_t dims[4]) {
  bool values = kv == KV_VALUES;
  int64_t page = b->s->page;
  dims[0] = b->s->pages; dims[1] = y->n_kv; dims[2] = values ? page : d; dims[3] = values ? d : page;
}

// Where the rows of this run are written, seen as {kv, d, T} for keys and {T, kv, d} for values: the layout of the
// cache.
static tensor *rows_to_write(const build *b, const layer *y, enum kv kv, tensor *cache, int64_t d) {
  graph *g = b->g;
  int64_t dims[4];
  dims_of(b, y, kv, d, dims);
  tensor *pages =
    t_permute(g, t_reshape_i(g, cache, 4, dims), kv == KV_VALUES ? (int[]){0, 2, 1, 3} : (int[]){0, 3, 1, 2});
  tensor *rows = t_gather(g, t_reshape_i(g, pages, 3, (int64_t[]){b->s->pages * b->s->page, y->n_kv, d}),
                          b->rows[window_group(b->m, y->window)]);
  return kv == KV_VALUES ? rows : t_permute(g, rows, (int[]){1, 2, 0});
}

// The visible pages, concatenated: {sequences, kv, d, seen}, or {sequences, kv, seen, d} for values.
static tensor *seen_of(const build *b, const layer *y, enum kv kv, tensor *cache, int64_t d) {
  graph *g = b->g;
  int64_t dims[4];
  bool values = kv == KV_VALUES;
  uop *n = n_pages(b, y), *sequences = b->s->apart ? b->T : n_(b, 1), *seen = kv_seen(b, y);
  dims_of(b, y, kv, d, dims);
  tensor *table = t_slice_i(g, b->pages, b->s->apart, window_group(b->m, y->window), 1);
  table = t_slice(g, table, b->s->apart + 1, first_page(b, y), n);
  tensor *pages = t_gather(g, t_reshape_i(g, cache, 4, dims), t_reshape(g, table, DIMS(sequences, n)));
  pages = t_permute(g, pages, values ? (int[]){0, 2, 1, 3, 4} : (int[]){0, 2, 3, 1, 4});
  return t_reshape(g, pages, 4,
                   (uop *[]){sequences, n_(b, y->n_kv), values ? seen : n_(b, d), values ? n_(b, d) : seen});
}

static tensor *store_rows(build *b, const layer *y, enum kv kv, int i, int64_t d, tensor *x) {
  tensor *next = t_assign(b->g, rows_to_write(b, y, kv, state_buffer(b, y, at(b->m, kv) + i), d),
                          kv == KV_VALUES ? x : t_permute(b->g, x, (int[]){1, 2, 0}));
  vec_push(b->effects, next);
  return seen_of(b, y, kv, next, d);
}

// {.., d, ..} with d at axis `at` as {.., d / GROUP, n, GROUP / n, ..}
static tensor *grouped(const build *b, tensor *x, int at, int64_t d, int64_t n) {
  uop *dims[MAX_DIMS];
  int k = 0;
  for (int i = 0; i < x->shape->n; i++)
    if (i != at) dims[k++] = x->shape->dim[i];
    else { dims[k++] = n_(b, d / GROUP); dims[k++] = n_(b, n); dims[k++] = n_(b, GROUP / n); }
  return t_reshape(b->g, x, k, dims);
}

// x {T, kv, d} as integers, |q| <= 127, of the same shape, and scales {T, kv, d / GROUP}
static void to_q8_0(const build *b, const layer *y, tensor *x, int64_t d, tensor **q, tensor **scale) {
  graph *g = b->g;
  uop *kv = n_(b, y->n_kv), *groups = n_(b, d / GROUP);
  tensor *in = t_reshape(g, makes_several(g, x), DIMS(b->T, kv, groups, n_(b, GROUP)));
  tensor *most = makes_several(g, t_reduce(g, t_op2(g, OP_MAX, in, t_op1(g, OP_NEG, in)), OP_MAX, 3));
  tensor *by =
    t_where(g, t_op2(g, OP_CMPLT, t_float(g, 0), most), t_op2(g, OP_FDIV, t_float(g, 127), most), t_float(g, 0));
  tensor *rounded = t_cast(g, t_op1(g, OP_FLOOR, t_add(g, t_mul(g, in, by), t_float(g, 0.5))), DT_I8);
  *q = t_reshape(g, rounded, DIMS(b->T, kv, n_(b, d)));
  *scale = t_reshape(g, t_scale(g, most, 1.0 / 127), DIMS(b->T, kv, groups));
}

// x {T, kv, d} as integers 0..15 for -8..7, two in a byte, {T, kv, d / 2}, and scales {T, kv, d / GROUP}: the element
// of a group with the largest magnitude becomes -8, so a scale may be negative.
static void to_q4_0(const build *b, const layer *y, tensor *x, int64_t d, tensor **q, tensor **scale) {
  graph *g = b->g;
  uop *kv = n_(b, y->n_kv), *groups = n_(b, d / GROUP), *one = n_(b, 1);
  tensor *in = t_reshape(g, makes_several(g, x), DIMS(b->T, kv, groups, n_(b, GROUP)));
  tensor *high = t_reduce(g, in, OP_MAX, 3), *low = t_op1(g, OP_NEG, t_reduce(g, t_op1(g, OP_NEG, in), OP_MAX, 3));
  tensor *most =
    makes_several(g, t_where(g, t_op2(g, OP_CMPLT, t_op1(g, OP_NEG, low), high), high, low));
  tensor *by =
    t_where(g, t_op2(g, OP_CMPNE, most, t_float(g, 0)), t_op2(g, OP_FDIV, t_float(g, -8), most), t_float(g, 0));
  tensor *rounded = t_op1(g, OP_FLOOR, t_add(g, t_mul(g, in, by), t_float(g, 8.5)));
  tensor *codes = t_cast(g, t_op2(g, OP_MIN, rounded, t_float(g, 15)), DT_I32);
  codes = grouped(b, t_reshape(g, codes, DIMS(b->T, kv, n_(b, d))), 2, d, 2);
  tensor *first = t_slice_i(g, codes, 3, 0, 1), *second = t_slice_i(g, codes, 3, 1, 1);
  tensor *both = t_op2(g, OP_OR, first, t_op2(g, OP_SHL, second, uop_int(g, DT_I32, 4)));
  *q = t_reshape(g, t_cast(g, both, DT_U8), DIMS(b->T, kv, n_(b, d / 2)));
  *scale = t_reshape(g, t_scale(g, t_reshape(g, most, DIMS(b->T, kv, groups, one)), -1.0 / 8), DIMS(b->T, kv, groups));
}

// The numbers 0..15 of bytes {.., d / 2, ..}, as {.., d, ..}
static tensor *nibbles(const build *b, tensor *q, int at, int64_t d) {
  graph *g = b->g;
  uop *dims[MAX_DIMS];
  int n = q->shape->n + 2;
  for (int i = 0, k = 0; i < q->shape->n; i++) {
    if (i != at) { dims[k++] = q->shape->dim[i]; continue; }
    dims[k++] = n_(b, d / GROUP); dims[k++] = n_(b, 1); dims[k++] = n_(b, GROUP / 2);
  }
  tensor *bytes = t_reshape(g, q, n, dims);
  uop *of[MAX_DIMS];
  for (int i = 0; i < n; i++) of[i] = n_(b, i == at + 1 ? 2 : 1);
  tensor *by = t_reshape(g, t_mul(g, t_iota(g, n_(b, 2)), n_(b, 4)), n, of);
  tensor *codes = t_op2(g, OP_AND, t_op2(g, OP_SHR, bytes, t_cast(g, by, DT_U8)), uop_int(g, DT_U8, 15));
  for (int i = 0, k = 0; i < q->shape->n; i++) dims[k++] = i == at ? n_(b, d) : q->shape->dim[i];
  return t_reshape(g, codes, q->shape->n, dims);
}

// The visible numbers times their scales
static tensor *in_groups(const build *b, const layer *y, enum kv kv, tensor *q, tensor *scale) {
  graph *g = b->g;
  int of = kv == KV_VALUES ? 3 : 2;                    // the axis of d
  int64_t d = row_width(y, kv);
  if (kind_of_cache(b->m, kv)->per == 2)
    q = t_sub(g, t_cast(g, nibbles(b, q, of, d), DT_F32), t_float(g, 8));
  uop *dims[5];
  for (int i = 0; i < 4; i++) dims[i < of ? i : i + 1] = q->shape->dim[i];
  dims[of] = n_(b, d / GROUP);
  dims[of + 1] = n_(b, GROUP);
  tensor *in = t_reshape(g, t_cast(g, q, DT_F32), 5, dims);
  dims[of + 1] = n_(b, 1);
  return t_reshape(g, t_mul(g, in, t_reshape(g, t_cast(g, scale, DT_F32), 5, dims)), 4, q->shape->dim);
}

tensor *kv_turned(const build *b, tensor *x, int64_t d) {
  graph *g = b->g;
  int64_t n = min_i64(d & -d, TURN);
  if (b->m->kv.keys != KV_Q4_0 || n < 2) return x;
  uop *heads = x->shape->dim[1], *rows = x->shape->dim[0], *one = n_(b, 1), *size = n_(b, n);
  // -1 where the numbers of row and column share an odd number of bits
  tensor *bits = t_op2(g, OP_AND, t_cast(g, t_reshape(g, t_iota(g, size), DIMS(size, one)), DT_I32),
                       t_cast(g, t_iota(g, size), DT_I32));
  for (int by = 4; by; by /= 2)
    bits = t_op2(g, OP_XOR, bits, t_op2(g, OP_SHR, bits, uop_int(g, DT_I32, by)));
  tensor *sign =
    t_sub(g, t_float(g, 1), t_scale(g, t_cast(g, t_op2(g, OP_AND, bits, uop_int(g, DT_I32, 1)), DT_F32), 2));
  tensor *in = t_reshape(g, read_by_many(g, x), DIMS(rows, heads, n_(b, d / n), one, size));
  tensor *sums = t_reduce(g, t_mul(g, in, t_reshape(g, sign, DIMS(one, one, one, size, size))), OP_ADD, 4);
  return t_reshape(g, t_scale(g, sums, 1 / sqrt((double)n)), 3, x->shape->dim);
}

tensor *kv_store(build *b, const layer *y, enum kv kv, tensor *x) {
  graph *g = b->g;
  int64_t d = row_width(y, kv);
  const struct kind *k = kind_of_cache(b->m, kv);
  if (kv_is_float(b->m, kv)) return t_cast(g, store_rows(b, y, kv, 0, d, x), DT_F32);
  tensor *q, *scale;
  if (k->per == 2) to_q4_0(b, y, x, d, &q, &scale); else to_q8_0(b, y, x, d, &q, &scale);
  q = store_rows(b, y, kv, 0, d / k->per, q);
  scale = store_rows(b, y, kv, 1, d / GROUP, scale);
  return in_groups(b, y, kv, q, scale);
}

tensor *kv_store_pairs(build *b, const layer *y, tensor *pairs) {
  graph *g = b->g;
  int64_t half = y->head_dim / 2;
  bool neox = b->m->neox;
  tensor *view = rows_to_write(b, y, KV_KEYS, state_buffer(b, y, 0), y->head_dim);
  view = t_reshape(g, view, DIMS(n_(b, y->n_kv), n_(b, neox ? 2 : half), n_(b, neox ? half : 2), b->T));
  if (neox) view = t_swap(g, view, 1, 2);
  tensor *next = t_assign(g, view, t_permute(g, pairs, (int[]){1, 2, 3, 0}));
  vec_push(b->effects, next);
  return t_cast(g, seen_of(b, y, KV_KEYS, next, y->head_dim), DT_F32);
}
