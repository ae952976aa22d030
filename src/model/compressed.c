// Attention over recent positions and over entries that each summarize several positions (DeepSeek V4). All query heads
// share one key head, whose keys are also the values:
//
//   near       the last positions, as many as the window has
//   entries    one for each `ratio` positions: all of them (ratio 128), or the best ones by an indexer (ratio 4),
//              whose keys are entries as well
//
// Both are in one softmax with a sink. Values are rotated together with the keys, so a head's output is rotated back by
// the token's position: the result depends only on distances.
//
// An entry is a weighted sum of numbers that its positions make. For each element the weights are a softmax over the
// positions, of scores that they make too, plus a learned number for the place in the entry (ape). The sum is normed
// and rotated by the entry's first position. Entries of ratio 4 have eight positions, their own four and the four
// before. So each position makes two sets of numbers: one for its own entry and one for the next.
//
// The numbers are cached like keys with a window, and entries like keys of every `ratio`-th position. Each run
// recomputes all entries that contain one of its positions. An incomplete entry is written too, but never read. So an
// entry has equal bits whichever run completes it.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include "model/model_impl.h"
#include "model/stored.h"

enum { OVERLAPS = 4 };                      // the ratio whose entries overlap
#define MADE_WINDOW 128                     // maximum distance of an entry's positions

// What entries are made of: tensors, elements of an entry, sets of numbers per position, and the state's index.
// own_norm: of each position's numbers, with a bias, W_NONE: none; norm: of entries. Without a gate, entries are means,
// and their first elements rotate
typedef struct maker { enum tensor_id kv, gate, ape, norm, own_norm; int n, sets, state; enum kv cache; } maker;

static maker maker_of(const layer *y, bool index) {
  int sets = y->compressed.ratio == OVERLAPS ? 2 : 1;
  const compressed *c = &y->compressed;
  if (index)
    return (maker){W_INDEXER_COMPRESSOR_KV, W_INDEXER_COMPRESSOR_GATE, W_INDEXER_COMPRESSOR_APE,
                   W_INDEXER_COMPRESSOR_NORM, W_NONE, y->indexer.n, sets, c->index_made_of, KV_INDEX};
  return (maker){W_ATTN_COMPRESSOR_KV, W_ATTN_COMPRESSOR_GATE, W_ATTN_COMPRESSOR_APE, W_ATTN_COMPRESSOR_NORM, W_NONE,
                 y->head_dim, sets, c->made_of, KV_KEYS};
}

// For an indexer that chooses pools of positions
static maker pool_maker(const layer *y) {
  if (!y->mla.latent)
    return (maker){W_INDEXER_K_PROJ, W_NONE, W_NONE, W_INDEXER_K_NORM, W_NONE, y->indexer.n, 1,
                   y->compressed.index_made_of, KV_INDEX};
  return (maker){W_INDEXER_K, W_INDEXER_COMPRESSOR_GATE, W_INDEXER_COMPRESSOR_APE, W_NONE, W_INDEXER_K_NORM,
                 y->indexer.n, 1, y->compressed.index_made_of, KV_INDEX};
}

// The layer as seen by its entry caches, and by the cache of numbers that entries are made of
static layer entries_layer(const layer *y) {
  layer e = *y;
  e.window = 0;
  e.n_kv = 1;
  e.every = y->compressed.ratio;
  e.state = y->state + y->compressed.entries;
  return e;
}
static layer made_layer(const layer *y) {
  layer e = *y;
  e.window = MADE_WINDOW;
  return e;
}

// --- loading ---------------------------------------------------------------------------------------------------------

static int load_maker(loader *l, layer *y, bool index) {
  maker k = maker_of(y, index);
  int64_t d = l->m->n_embd, n = (int64_t)k.sets * k.n;
  return want_matrix(l, y, k.kv, d, n, 0) || want_matrix(l, y, k.gate, d, n, 0) ||
             want_matrix(l, y, k.ape, n, y->compressed.ratio, 0) || want_vector(l, y, k.norm, k.n, 0)
           ? -1
           : 0;
}

static int load_indexer(loader *l, layer *y, int rank) {
  indexer *i = &y->indexer;
  if (indexer_sizes(l, i)) return -1;
  return want_matrix(l, y, W_INDEXER_PROJ, l->m->n_embd, i->heads, 0) ||
             want_matrix(l, y, W_INDEXER_Q_B, rank, (int64_t)i->heads * i->n, 0) || load_maker(l, y, true)
           ? -1
           : 0;
}

// States of a layer: keys, then the numbers that entries are made of, then entries.
static int load_states(loader *l, layer *y) {
  compressed *c = &y->compressed;
  int64_t both = 2 * (c->ratio == OVERLAPS ? 2 : 1);
  if (kv_load(l, y, KV_KEYS)) return -1;
  if (!c->ratio) return 0;
  layer made = made_layer(y);
  c->made_of = state(l, &made, DT_F32, both * y->head_dim, 0) - y->state;
  if (c->ratio == OVERLAPS) c->index_made_of = state(l, &made, DT_F32, both * y->indexer.n, 0) - y->state;
  c->entries = (int)l->m->states.n - y->state;
  layer e = entries_layer(y);
  return kv_load(l, &e, KV_KEYS) || (c->ratio == OVERLAPS && kv_load(l, &e, KV_INDEX)) ? -1 : 0;
}

static int load_entries(loader *l, layer *y) {
  compressed *c = &y->compressed;
  int64_t d = l->m->n_embd, heads = y->n_head, n = y->head_dim;
  int rank;
  if (want_heads(l, y) || key_count(l, "attention.q_lora_rank", 1, 1 << 20, &rank) ||
      key_count(l, "attention.output_group_count", 1, 1 << 14, &c->groups) ||
      key_count(l, "attention.output_lora_rank", 1, 1 << 16, &c->rank))
    return -1;
  if (heads * n % c->groups)
    return gguf_fail(l->f, key(l, "attention.output_group_count"), l->err, "%d does not divide %lld elements of heads",
                     c->groups, (long long)(heads * n));
  if (want_matrix(l, y, W_ATTN_Q_A, d, rank, 0) || want_vector(l, y, W_ATTN_Q_A_NORM, rank, 0) ||
      want_matrix(l, y, W_ATTN_Q_B, rank, heads * n, 0) || want_matrix(l, y, W_ATTN_KV, d, n, 0) ||
      want_vector(l, y, W_ATTN_KV_A_NORM, n, 0) || want_vector(l, y, W_ATTN_SINKS, heads, 0) ||
      want_matrix(l, y, W_ATTN_OUTPUT_A, heads * n / c->groups, (int64_t)c->groups * c->rank, 0) ||
      want_matrix(l, y, W_ATTN_OUTPUT_B, (int64_t)c->groups * c->rank, d, 0) ||
      (c->ratio && load_maker(l, y, false)) || (c->ratio == OVERLAPS && load_indexer(l, y, rank)))
    return -1;
  return load_states(l, y);
}

// --- entries ---------------------------------------------------------------------------------------------------------

// A run as seen by its entries: T of them, from the entry of its first position on. A page has as many entries as a
// page of positions makes. last: the last existing position, {T, 1}, or one for all. Rope angles are those of the
// entries' first positions.
typedef struct entries { build b; model_shape s; tensor *last; } entries;

// For batched sequences: several rows may be in one entry. Each row computes it from all existing positions, so that
// all write equal values.
static tensor *last_there(build *b, const build *e, int group) {
  graph *g = b->g;
  uop *one = n_(b, 1);
  tensor *to = e->rows[group], *at = t_cast(g, b->at, DT_I32);
  tensor *same = t_op2(g, OP_CMPEQ, t_reshape(g, to, DIMS(b->T, one)), t_reshape(g, to, DIMS(one, b->T)));
  tensor *most = t_reduce(g, t_where(g, same, t_reshape(g, at, DIMS(one, b->T)), uop_int(g, DT_I32, 0)), OP_MAX, 1);
  return t_cast(g, t_reshape(g, most, DIMS(b->T, one)), DT_IDX);
}

static void find_entries(build *b, const layer *y, entries *out) {
  graph *g = b->g;
  uop *ratio = n_(b, y->compressed.ratio);
  int group = window_group(b->m, 0);
  build *e = &out->b;
  *e = *b;
  out->s = *b->s;
  e->s = &out->s;
  out->s.page /= y->compressed.ratio;
  out->s.ctx /= y->compressed.ratio;
  if (b->s->apart) {
    e->at = t_op2(g, OP_IDIV, b->at, ratio);
  } else {
    e->pos = idx_div(g, b->pos, ratio);
    e->T = idx_div(g, idx_add(g, idx_mod(g, b->pos, ratio), idx_add(g, b->T, n_(b, y->compressed.ratio - 1))), ratio);
    e->C = idx_add(g, e->pos, e->T);
    e->at = t_add(g, t_iota(g, e->T), e->pos);
  }
  e->rows[group] = cache_rows(e, e->at, group);
  out->last = b->s->apart ? last_there(b, e, group) : idx_sub(g, b->C, n_(b, 1));
  if (y->rope != ROPE_NONE) rope_at(e, y->rope, t_op2(g, OP_MUL, e->at, ratio));
}

// x {T} of entries, each repeated n times: {T x n}
static tensor *each(const build *e, tensor *x, int64_t n) {
  graph *g = e->g;
  uop *N = n_(e, n);
  return t_reshape(g, t_expand(g, t_reshape(g, x, DIMS(e->T, n_(e, 1))), 2, (uop *[]){e->T, N}),
                   DIMS(idx_mul(g, e->T, N)));
}

// Cache rows of an entry's positions, {T x n}; *there: whether a position does not exist: {T, n, 1}
static tensor *places(build *b, const layer *y, const entries *of, int64_t n, tensor **there) {
  graph *g = b->g;
  const build *e = &of->b;
  int64_t ratio = y->compressed.ratio;
  uop *one = n_(b, 1), *N = n_(b, n);
  tensor *first = t_sub(g, t_op2(g, OP_MUL, e->at, n_(b, ratio)), n_(b, n - ratio));
  tensor *at = t_add(g, t_reshape(g, first, DIMS(e->T, one)), t_reshape(g, t_iota(g, N), DIMS(one, N))),
         *zero = uop_idx(g, 0);
  tensor *early = t_op2(g, OP_CMPLT, at, zero), *late = t_op2(g, OP_CMPLT, of->last, at);
  *there = t_reshape(g, t_op2(g, OP_OR, early, late), DIMS(e->T, N, one));
  build c = *b;
  c.T = idx_mul(g, e->T, N);
  if (b->s->apart) {
    c.at = each(e, b->at, n);
    c.entry = each(e, b->entry, n);
  }
  at = t_op2(g, OP_MIN, t_op2(g, OP_MAX, at, zero), of->last);
  return cache_rows(&c, t_reshape(g, at, DIMS(c.T)), window_group(b->m, MADE_WINDOW));
}

// What each position contributes to entries, {T, sets n}
static tensor *contribution(build *b, const layer *y, const maker *k, tensor *x) {
  graph *g = b->g;
  tensor *kv = linear(b, y, k->kv, x);
  if (!k->own_norm) return kv;
  return t_add(g, t_layernorm(g, kv, weight(b, y, k->own_norm), y->indexer.eps),
               bias(b, y, k->own_norm));
}

// Means of what the positions make, {T, 1, n}, normed and rotated. A sum of few terms needs no loop.
static tensor *mean_entries(build *b, const layer *y, const entries *of, const maker *k, tensor *x) {
  graph *g = b->g;
  const build *e = &of->b;
  layer made = made_layer(y);
  int64_t n = y->compressed.ratio, dims[] = {b->s->pages * b->s->page, k->n};
  tensor *cache = t_reshape_i(g, state_buffer(b, &made, k->state), 2, dims);
  tensor *next = t_assign(g, t_gather(g, cache, b->rows[window_group(b->m, MADE_WINDOW)]), linear(b, y, k->kv, x));
  vec_push(b->effects, next);
  tensor *missing, *at = places(b, y, of, n, &missing);
  tensor *rows = t_gather(g, t_reshape_i(g, next, 2, dims), at);
  rows = t_reshape(g, rows, DIMS(e->T, n_(b, n), n_(b, k->n)));
  tensor *mean = t_scale(g, t_reduce(g, t_where(g, missing, t_float(g, 0), rows), OP_ADD, 1), 1.0 / (double)n);
  mean = norm(e, y, k->norm, t_reshape(g, mean, DIMS(e->T, n_(b, k->n))));
  mean = t_reshape(g, mean, DIMS(e->T, n_(b, 1), n_(b, k->n)));
  return rope_turn_as(e, y, mean, 1, k->n, b->m->neox);
}

// Stores what the positions make, and computes entries from it: {T, 1, n}, normed and rotated
static tensor *make_entries(build *b, const layer *y, const entries *of, const maker *k, tensor *x) {
  graph *g = b->g;
  const build *e = &of->b;
  layer made = made_layer(y);
  int64_t ratio = y->compressed.ratio, n = k->sets * ratio, wide = 2ll * k->sets * k->n, all = b->s->pages * b->s->page;
  uop *N = n_(b, n), *D = n_(b, k->n), *one = n_(b, 1);
  tensor *cache = t_reshape_i(g, state_buffer(b, &made, k->state), 2, (int64_t[]){all, wide});
  tensor *next = t_assign(g, t_gather(g, cache, b->rows[window_group(b->m, MADE_WINDOW)]),
                          t_cat_last(g, contribution(b, y, k, x), linear(b, y, k->gate, x)));
  vec_push(b->effects, next);
  // one set of each position; rows have n elements, and the sets of values come before those of scores
  tensor *missing, *at = places(b, y, of, n, &missing),
                   *rows = t_reshape_i(g, next, 2, (int64_t[]){2 * k->sets * all, k->n});
  tensor *set = t_op2(g, OP_IDIV, t_iota(g, N), n_(b, ratio));
  set = t_reshape(g, t_expand(g, t_reshape(g, set, DIMS(one, N)), 2, (uop *[]){e->T, N}), DIMS(idx_mul(g, e->T, N)));
  at = t_add(g, t_op2(g, OP_MUL, at, n_(b, 2 * k->sets)), set);
  tensor *kv = t_reshape(g, t_gather(g, rows, at), DIMS(e->T, N, D)),
         *score = t_reshape(g, t_gather(g, rows, t_add(g, at, n_(b, k->sets))), DIMS(e->T, N, D));
  tensor *ape = t_reshape_i(g, weight(b, y, k->ape), 3, (int64_t[]){ratio, k->sets, k->n});
  ape = t_reshape(g, t_swap(g, ape, 0, 1), DIMS(one, N, D));
  score = t_where(g, missing, t_float(g, -INFINITY), t_add(g, score, ape));
  tensor *w = t_exp(g, t_sub(g, score, t_reduce(g, score, OP_MAX, 1)));
  tensor *sum = t_op2(g, OP_FDIV, t_reduce(g, t_mul(g, w, kv), OP_ADD, 1), t_reduce(g, w, OP_ADD, 1));
  sum = norm(e, y, k->norm, t_reshape(g, sum, DIMS(e->T, D)));
  return rope_turn_last(e, y, t_reshape(g, sum, DIMS(e->T, one, D)), 1, k->n, false);
}

// All entries that tokens may read: {sequences, 1, n, seen}
static tensor *seen_entries(build *b, const layer *y, entries *of, const maker *k, tensor *x) {
  layer e = entries_layer(y);
  return kv_store(&of->b, &e, k->cache, (k->gate ? make_entries : mean_entries)(b, y, of, k, x));
}

// --- attention -------------------------------------------------------------------------------------------------------

static tensor *weighted_query(build *b, const layer *y, tensor *x) {
  const indexer *i = &y->indexer;
  tensor *q = t_reshape(b->g, linear(b, y, W_INDEXER_Q_B, x), DIMS(b->T, n_(b, i->heads), n_(b, i->n)));
  return rope_turn_last(b, y, q, i->heads, i->n, false);
}

static tensor *normed_query(build *b, const layer *y, tensor *x) {
  const indexer *i = &y->indexer;
  tensor *q = t_reshape(b->g, linear(b, y, W_INDEXER_Q_PROJ, x), DIMS(b->T, n_(b, i->heads), n_(b, i->n)));
  q = norm(b, y, W_INDEXER_Q_NORM, q);
  return rope_turn_as(b, y, makes_several(b->g, q), i->heads, i->n, b->m->neox);
}

// Entries with keys K that the indexer chooses: {T, 1, 1, 1, seen}. complete {T, 1, 1, 1, 1}: the number of complete
// entries
static tensor *choose_of(build *b, const layer *y, entries *of, tensor *K, tensor *const in[2], tensor *complete) {
  graph *g = b->g;
  const indexer *i = &y->indexer;
  layer e = entries_layer(y);
  bool weighted = y->w[W_INDEXER_PROJ].weight;
  uop *page = n_(b, of->s.page), *heads = n_(b, i->heads);
  index_keys k = {.q = weighted ? weighted_query(b, y, in[1]) : normed_query(b, y, in[0]),
                  .K = K,
                  .by = weighted ? t_reshape(g, linear(b, y, W_INDEXER_PROJ, in[0]), DIMS(b->T, heads)) : NULL,
                  .at = kv_seen_at(&of->b, &e),
                  .last = t_sub(g, complete, uop_idx(g, 1)),
                  .pages = idx_div(g, kv_seen(&of->b, &e), page),
                  .page = of->s.page};
  return indexer_best(b, y, &k);
}

static tensor *best_entries(build *b, const layer *y, entries *of, tensor *const in[2], tensor *complete) {
  maker k = maker_of(y, true);
  tensor *K = seen_entries(b, y, of, &k, in[0]);
  return indexer_chooses(b->m, b->s->n_ctx) ? choose_of(b, y, of, K, in, complete) : NULL;
}

// in: the normed stream, and the input of the query matrix
static sight compressed_past(build *b, const layer *y, tensor *q, tensor *const in[2]) {
  graph *g = b->g;
  entries of;
  layer e = entries_layer(y);
  maker k = maker_of(y, false);
  uop *ratio = n_(b, y->compressed.ratio), *one = n_(b, 1);
  find_entries(b, y, &of);
  tensor *K = seen_entries(b, y, &of, &k, in[0]), *number = kv_seen_at(&of.b, &e),
         *complete = t_op2(g, OP_IDIV, t_add(g, own_at(b), one), ratio);
  tensor *read = t_op2(g, OP_CMPLT, number, complete),
         *best = y->compressed.ratio == OVERLAPS ? best_entries(b, y, &of, in, complete) : NULL;
  if (best) read = t_op2(g, OP_AND, read, best);
  number = t_reshape(g, number, DIMS(one, one, one, kv_seen(&of.b, &e), one));
  return (sight){.scores = t_where(g, read, scores(b, y, q, K), t_float(g, -INFINITY)),
                .V = K,
                .there = t_op2(g, OP_CMPLT, number, b->s->apart ? complete : idx_div(g, b->C, ratio)),
                .as_keys = true};
}

// Rotates the heads' output back and reduces it in groups of heads to a low rank
static tensor *grouped_output(build *b, const layer *y, tensor *out) {
  graph *g = b->g;
  const compressed *c = &y->compressed;
  int64_t n = (int64_t)y->n_head * y->head_dim;
  build back = *b;
  back.sin[y->rope] = t_op1(g, OP_NEG, b->sin[y->rope]);
  out = t_reshape(g, out, DIMS(b->T, n_(b, y->n_head), n_(b, y->head_dim)));
  out = rope_turn_last(&back, y, out, y->n_head, y->head_dim, false);
  tensor *w = t_reshape_i(g, weight(b, y, W_ATTN_OUTPUT_A), 3, (int64_t[]){c->groups, c->rank, n / c->groups});
  out = heads_product(b, t_reshape(g, out, DIMS(b->T, n_(b, c->groups), n_(b, n / c->groups))), w);
  return linear(b, y, W_ATTN_OUTPUT_B, t_reshape(g, out, DIMS(b->T, n_(b, (int64_t)c->groups * c->rank))));
}

static tensor *near_and_entries(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  uop *heads = n_(b, y->n_head), *n = n_(b, y->head_dim), *one = n_(b, 1);
  tensor *low = norm(b, y, W_ATTN_Q_A_NORM, linear(b, y, W_ATTN_Q_A, x));
  tensor *q = t_reshape(g, linear(b, y, W_ATTN_Q_B, low), DIMS(b->T, heads, n));
  q = t_rmsnorm(g, q, NULL, b->m->eps);
  q =
    rope_turn_last(b, y, t_scale(g, makes_several(g, q), 1 / sqrt((double)y->head_dim)), y->n_head, y->head_dim, false);
  tensor *kv = norm(b, y, W_ATTN_KV_A_NORM, linear(b, y, W_ATTN_KV, x));
  kv = rope_turn_last(b, y, t_reshape(g, kv, DIMS(b->T, one, n)), 1, y->head_dim, false);
  tensor *K = kv_store(b, y, KV_KEYS, kv);
  sight of[2] = {seen_positions(b, y, scores(b, y, q, K), K)};
  of[0].as_keys = true;
  if (y->compressed.ratio) of[1] = compressed_past(b, y, q, (tensor *[]){x, low});
  return grouped_output(b, y, attend_to(b, y, of, y->compressed.ratio ? 2 : 1));
}

const part part_near = {load_entries, near_and_entries}, part_entries = {load_entries, near_and_entries},
           part_sparse_entries = {load_entries, near_and_entries};

// --- an indexer that chooses pools of positions (GLM 5, Qwen4-Exp) ---------------------------------------------------
// Its keys are entries that do not overlap. A token reads all positions of the best complete ones, and the positions
// after the last complete one before it.

int pool_indexer_weights(loader *l, layer *y) {
  indexer *i = &y->indexer;
  bool own = y->kv_from == y->index;
  unsigned flags = own ? 0 : WANT_OPTIONAL;
  int rank, ratio = y->compressed.ratio;
  int64_t d = l->m->n_embd;
  if (indexer_sizes(l, i)) return -1;
  if (!y->mla.latent)
    return want_matrix(l, y, W_INDEXER_Q_PROJ, d, (int64_t)i->heads * i->n, 0) ||
               want_matrix(l, y, W_INDEXER_K_PROJ, d, i->n, 0) || want_vector(l, y, W_INDEXER_Q_NORM, i->n, 0) ||
               want_vector(l, y, W_INDEXER_K_NORM, i->n, 0)
             ? -1
             : 0;
  return key_count(l, "attention.q_lora_rank", 1, 1 << 20, &rank) ||
      want_matrix(l, y, W_INDEXER_PROJ, l->m->n_embd, i->heads, flags) ||
      want_matrix(l, y, W_INDEXER_K, l->m->n_embd, i->n, flags) ||
      want_vector(l, y, W_INDEXER_K_NORM, i->n, own ? WANT_BIAS : flags) ||
      want_matrix(l, y, W_INDEXER_Q_B, rank, (int64_t)i->heads * i->n, flags) ||
      want_matrix(l, y, W_INDEXER_COMPRESSOR_GATE, l->m->n_embd, i->n, flags) ||
      want_matrix(l, y, W_INDEXER_COMPRESSOR_APE, i->n, ratio, flags) ? -1 : 0;
}

// Entries follow the layer's keys and values.
int pool_indexer_load(loader *l, layer *y) {
  compressed *c = &y->compressed;
  c->ratio = l->m->block_size;
  if (pool_indexer_weights(l, y)) return -1;
  if (y->kv_from != y->index) return 0;
  c->entries = y->mla.latent ? 0 : kv_index_layer(l->m, y).state - y->state;
  layer e = entries_layer(y), made = made_layer(y);
  if (kv_load(l, &e, KV_INDEX)) return -1;
  c->index_made_of = state(l, &made, DT_F32, (y->mla.latent ? 2ll : 1ll) * y->indexer.n, 0) - y->state;
  return 0;
}

tensor *pool_indexer_choice(build *b, const layer *y, tensor *x, tensor *q) {
  graph *g = b->g;
  entries of;
  layer e = entries_layer(y);
  maker k = pool_maker(y);
  int64_t size = y->compressed.ratio;
  uop *one = n_(b, 1), *ratio = n_(b, size), *seen = kv_seen(b, y);
  find_entries(b, y, &of);
  if (!b->s->apart) of.b.C = idx_div(g, seen, ratio);    // all entries of the pages whose positions are seen
  tensor *complete = t_op2(g, OP_IDIV, t_add(g, own_at(b), one), ratio);
  tensor *best = choose_of(b, y, &of, seen_entries(b, y, &of, &k, x), (tensor *[]){x, q}, complete);
  uop *pools = kv_seen(&of.b, &e);
  best = t_op2(g, OP_AND, best, t_op2(g, OP_CMPLT, kv_seen_at(&of.b, &e), complete));
  best = t_expand(g, t_reshape(g, best, DIMS(b->T, one, one, one, pools, one)), 6,
                  (uop *[]){b->T, one, one, one, pools, ratio});
  tensor *last = t_sub(g, t_op2(g, OP_MUL, complete, ratio), one), *tail = t_op2(g, OP_CMPLT, last, kv_seen_at(b, y));
  return t_op2(g, OP_OR, tail, t_reshape(g, best, DIMS(b->T, one, one, one, seen)));
}
