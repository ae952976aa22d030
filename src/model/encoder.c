// Attention of models that read a text in both directions: each position reads all others, or those of a window around
// it, and nothing is cached.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <stdio.h>
#include "model/model_impl.h"
#include "model/stored.h"

// Loads what comes after the embedding, and what makes vectors. For files that end with two more products, keys name
// the number of elements between them.
int encoder_load_ends(loader *l) {
  model *m = l->m;
  const gguf_tensor *types = gguf_tensor_find(l->f, "token_types.weight"),
                    *dense = gguf_tensor_find(l->f, "dense_2.weight");
  if (types && want_matrix(l, NULL, W_TOKEN_TYPES, m->n_embd, types->ne[1], 0)) return -1;
  if (!dense) return 0;
  int between;
  if (key_count(l, "dense_2_feat_out", 1, 1 << 20, &between) ||
      key_count(l, "dense_3_feat_out", 1, 1 << 20, &m->n_embd_out))
    return -1;
  return want_matrix(l, NULL, W_DENSE_2, m->n_embd, between, 0) ||
             want_matrix(l, NULL, W_DENSE_3, between, m->n_embd_out, 0)
           ? -1
           : 0;
}

// Files that rank texts have a layer, a product that makes scores, or both.
int ranking_load(loader *l) {
  model *m = l->m;
  const gguf_tensor *first = gguf_tensor_find(l->f, "cls.weight"), *out = gguf_tensor_find(l->f, "cls.output.weight"),
                    *last = out ? out : first;
  if (m->pooling != POOLING_RANK) return 0;
  if (!last)
    return gguf_fail(l->f, NULL, l->err,
                     "tensors 'cls.weight' and 'cls.output.weight' are missing, and pooling_type 4 needs one of them");
  if (gguf_tensor_find(l->f, "cls.norm.weight"))
    return gguf_fail(l->f, NULL, l->err, "it ranks texts through 'cls.norm.weight', which is not supported yet");
  if (last->ne[1] > 1 << 20)
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' makes %lld scores", last->name, (long long)last->ne[1]);
  m->n_embd_out = (int)last->ne[1];
  return (first && want_matrix(l, NULL, W_CLS, m->n_embd, first->ne[1], 0)) ||
             (out && want_matrix(l, NULL, W_CLS_OUTPUT, first ? first->ne[1] : m->n_embd, out->ne[1], 0))
           ? -1
           : 0;
}

// Models that classify have a score for each class, of which the first one is "yes"; the result is its probability.
tensor *ranking(const build *b, tensor *x) {
  graph *g = b->g;
  if (b->m->w[W_CLS].weight) x = soft_cap(b, linear(b, NULL, W_CLS, x), 1);             // tanh
  if (b->m->w[W_CLS_OUTPUT].weight) x = linear(b, NULL, W_CLS_OUTPUT, x);
  return b->m->arch->encoder ? x : t_softmax(g, x, 1);
}

// {T, heads, n} with rows up to the end of the last page, since attention over them runs in one pass, page by page
// (schedule/flash.h). The additional rows are copies of the last one and are masked.
static tensor *whole_blocks(const build *b, tensor *x, uop *rows) {
  return t_gather(b->g, x, t_iota(b->g, rows));
}

// Scores fall with the distance. away {T, 1, 1, 1, positions}
static tensor *add_alibi_both_ways(const build *b, const layer *y, tensor *s, tensor *away) {
  graph *g = b->g;
  if (b->m->alibi == 0) return s;
  tensor *distance = t_op2(g, OP_MAX, away, t_sub(g, t_float(g, 0), away));
  return t_sub(g, s, t_mul(g, alibi_slopes(b, y), distance));
}

// --- distances in ranges ---------------------------------------------------------------------------------------------

enum { FAR = 128 };             // from this distance on all are the same range; no key says another limit

int distances_load(loader *l) {
  model *m = l->m;
  return key_count(l, "attention.relative_buckets_count", 4, 256, &m->n_near);
}

int distances_table(loader *l, layer *y, enum tensor_id id) {
  char second[64];
  snprintf(second, sizeof second, "%sblk.1.attn_rel_b.weight", before_blocks(l, y));
  if (gguf_tensor_find(l->f, second)) return want_matrix(l, y, W_ATTN_REL_B, y->n_head, l->m->n_near, 0);
  return y->block ? 0 : want_matrix(l, NULL, id, y->n_head, l->m->n_near, 0);
}

// The numbers of n ranges of distances to one side. For the first half the distance is the number; the bounds of the
// others grow geometrically, up to FAR.
static tensor *ranges_of_side(const build *b, tensor *far, int n) {
  graph *g = b->g;
  int single = n / 2;
  tensor *range = t_op2(g, OP_MIN, far, n_(b, single));
  for (int i = 1; i < n - single; i++) {
    int64_t first = (int64_t)ceil(single * pow((double)FAR / single, (double)i / (n - single)) - 1e-6);
    range = t_add(g, range, t_where(g, t_op2(g, OP_CMPLT, far, n_(b, first)), n_(b, 0), n_(b, 1)));
  }
  return range;
}

// {2 FAR + 1}: the range numbers of distances -FAR to FAR, positions after a token first, then those before it. For one
// side alone: {FAR + 1}, of distances 0 to FAR.
static tensor *ranges_of_distances(const build *b, bool both) {
  graph *g = b->g;
  int n = b->m->n_near;
  if (!both) return ranges_of_side(b, t_iota(g, n_(b, FAR + 1)), n);
  tensor *zero = n_(b, 0), *at = t_sub(g, t_iota(g, n_(b, 2 * FAR + 1)), n_(b, FAR)),
         *far = t_op2(g, OP_MAX, at, t_sub(g, zero, at));
  return t_add(g, ranges_of_side(b, far, n / 2), t_where(g, t_op2(g, OP_CMPLT, zero, at), n_(b, n / 2), zero));
}

// Each head has a bias for each range of distances, which is added to the scores. The table belongs to the layer or to
// all layers.
tensor *by_range(const build *b, const layer *y, tensor *s, const ranges *of) {
  graph *g = b->g;
  if (!b->m->n_near) return s;
  uop *one = n_(b, 1), *kv = n_(b, y->n_kv), *per = n_(b, y->n_head / y->n_kv), *positions = of->away->shape->dim[4];
  int64_t least = of->both ? -FAR : 0;
  tensor *table = y->w[W_ATTN_REL_B].weight ? weight(b, y, W_ATTN_REL_B) : weight(b, NULL, of->none);
  tensor *all = read_by_many(g, t_gather(g, table, ranges_of_distances(b, of->both)));
  tensor *at = t_op2(g, OP_MAX, t_op2(g, OP_MIN, of->away, n_(b, FAR)), n_(b, least));
  at = t_reshape(g, t_sub(g, at, n_(b, least)), DIMS(b->T, positions));
  tensor *heads = t_swap(g, t_gather(g, all, at), 1, 2);
  return t_add(g, s, t_reshape(g, heads, DIMS(b->T, kv, per, one, positions)));
}

// --- groups of neighbours --------------------------------------------------------------------------------------------

enum { MOST_NEAR = 512 /* keys per block, as many as one attention pass takes */, LEAST_BLOCK = 64 };

typedef struct qkv { tensor *q, *k, *v; } qkv;
// The rows of a block, and the number of blocks that they read. Groups that begin anywhere may reach from the block
// before a row's own to the block after it.
typedef struct near_blocks { int64_t rows, read; } near_blocks;

static near_blocks near_blocks_of(const row_groups *of) {
  int64_t each = of->most * max_i64(LEAST_BLOCK / of->most, 1);
  return of->aligned ? (near_blocks){each, 1} : (near_blocks){max_i64(of->most, LEAST_BLOCK), 3};
}

static bool are_near(const row_groups *of) {
  near_blocks near = near_blocks_of(of);
  return near.rows * near.read <= MOST_NEAR;
}

// {blocks x per}: the numbers of the rows that each block has or reads, from the one `before` its first row on.
static tensor *rows_of_blocks(const build *b, uop *blocks, int64_t rows, int64_t before, int64_t per) {
  graph *g = b->g;
  tensor *first = t_reshape(g, t_mul(g, t_iota(g, blocks), n_(b, rows)), DIMS(blocks, n_(b, 1)));
  tensor *at = t_sub(g, t_add(g, first, t_iota(g, n_(b, per))), n_(b, before));
  return t_reshape(g, at, DIMS(idx_mul(g, blocks, n_(b, per))));
}

// As attend_rows, but a block of rows reads only the blocks that its groups are in: T rows take at most T x MOST_NEAR
// products. Blocks take the place of positions, and the rows of a block that of heads that share keys.
static tensor *see_near(const build *b, const layer *y, const qkv *x, const row_groups *of) {
  graph *g = b->g;
  near_blocks near = near_blocks_of(of);
  int64_t n = near.rows * near.read, before = near.read / 2 * near.rows, per = y->n_head / y->n_kv, d = y->head_dim;
  uop *one = n_(b, 1), *kv = n_(b, y->n_kv), *keys = n_(b, n), *dv = n_(b, y->v_dim), *rows = n_(b, near.rows),
      *heads = n_(b, near.rows * per), *blocks = idx_div(g, idx_add(g, b->T, n_(b, near.rows - 1)), rows);
  tensor *own = rows_of_blocks(b, blocks, near.rows, 0, near.rows),
         *at = rows_of_blocks(b, blocks, near.rows, before, n);
  tensor *q = t_reshape(g, t_gather(g, x->q, own), DIMS(blocks, rows, kv, n_(b, per), n_(b, d)));
  q = read_in_parts(g, t_permute(g, q, (int[]){0, 2, 1, 3, 4}));
  tensor *k = t_permute(g, t_reshape(g, t_gather(g, x->k, at), DIMS(blocks, keys, kv, n_(b, d))), (int[]){0, 2, 3, 1});
  tensor *v = t_swap(g, t_reshape(g, t_gather(g, x->v, at), DIMS(blocks, keys, kv, dv)), 1, 2);
  tensor *s = t_mul(g, t_reshape(g, q, DIMS(blocks, kv, heads, n_(b, d), one)),
                    t_reshape(g, read_by_many(g, k), DIMS(blocks, kv, one, n_(b, d), keys)));
  s = t_reshape(g, t_reduce(g, s, OP_ADD, 3), DIMS(blocks, kv, rows, n_(b, per), keys));
  tensor *mine = t_reshape(g, t_gather(g, of->number, own), DIMS(blocks, one, rows, one, one)),
         *theirs = t_reshape(g, t_gather(g, of->number, at), DIMS(blocks, one, one, one, keys));
  at = t_reshape(g, at, DIMS(blocks, one, one, one, keys));
  s = t_where(g, t_op2(g, OP_CMPEQ, mine, theirs), s, t_float(g, -INFINITY));
  s = t_where(g, t_op2(g, OP_CMPLT, at, n_(b, 0)), t_float(g, -INFINITY), s);
  s = t_where(g, t_op2(g, OP_CMPLT, at, b->T), s, t_float(g, -INFINITY));
  build as = *b;
  const layer in = {.n_head = (int)(y->n_kv * near.rows * per), .n_kv = y->n_kv, .v_dim = y->v_dim};
  as.T = blocks;
  sight all = {.scores = t_reshape(g, s, DIMS(blocks, kv, heads, one, keys)), .V = v};
  tensor *out = t_reshape(g, attend_to(&as, &in, &all, 1), DIMS(blocks, kv, rows, n_(b, per), dv));
  out = t_reshape(g, t_permute(g, out, (int[]){0, 2, 1, 3, 4}),
                  DIMS(idx_mul(g, blocks, rows), n_(b, (int64_t)y->n_head * y->v_dim)));
  return t_slice(g, out, 0, n_(b, 0), b->T);
}

// --- all rows --------------------------------------------------------------------------------------------------------

tensor *attend_rows(build *b, const layer *y, tensor *q, tensor *k, tensor *v, const row_groups *of) {
  graph *g = b->g;
  if (of && are_near(of)) return see_near(b, y, &(qkv){q, k, v}, of);
  uop *one = n_(b, 1), *block = n_(b, b->s->page), *keys = k->shape->dim[0],
      *rows = idx_mul(g, idx_div(g, idx_add(g, keys, n_(b, b->s->page - 1)), block), block);
  int64_t d = y->head_dim;
  uop *kv = n_(b, y->n_kv), *per = n_(b, y->n_head / y->n_kv);
  k = read_by_many(g, t_permute(g, whole_blocks(b, k, rows), (int[]){1, 2, 0}));
  v = t_swap(g, whole_blocks(b, v, rows), 0, 1);
  tensor *qs =
    t_reshape(g, t_stage(g, t_reshape(g, q, DIMS(b->T, kv, per, n_(b, d))), false), DIMS(b->T, kv, per, n_(b, d), one));
  tensor *s = t_reduce(g, t_mul(g, qs, t_reshape(g, k, DIMS(one, kv, one, n_(b, d), rows))), OP_ADD, 3);
  tensor *own = t_reshape(g, t_iota(g, b->T), DIMS(b->T, one, one, one, one)), *at = t_iota(g, rows),
         *away = t_sub(g, at, own);
  s = add_alibi_both_ways(b, y, soft_cap(b, s, b->m->attention_cap), t_cast(g, away, DT_F32));
  s = by_range(b, y, s, &(ranges){away, true, W_ENC_ATTN_REL_B});
  s = t_where(g, t_op2(g, OP_CMPLT, at, keys), s, t_float(g, -INFINITY));
  if (y->window) {              // half of it is before a token, half after it
    uop *half = n_(b, y->window / 2);
    s = t_where(g, t_op2(g, OP_CMPLT, half, away), t_float(g, -INFINITY), s);
    s = t_where(g, t_op2(g, OP_CMPLT, away, idx_sub(g, n_(b, 0), half)), t_float(g, -INFINITY), s);
  }
  if (of) {
    tensor *mine = t_reshape(g, t_slice(g, of->number, 0, n_(b, 0), b->T), DIMS(b->T, one, one, one, one));
    s = t_where(g, t_op2(g, OP_CMPEQ, mine, t_slice(g, of->number, 0, n_(b, 0), rows)), s, t_float(g, -INFINITY));
  }
  return attend_to(b, y, &(sight){.scores = s, .V = t_reshape(g, v, DIMS(one, kv, rows, n_(b, y->v_dim)))}, 1);
}

// Heads {T, heads, d} whose halves rotate separately, reordered so that they rotate as one; scores stay the same.
static tensor *halves_as_one(const build *b, const layer *y, tensor *x) {
  uop *two = n_(b, 2);
  tensor *parts = t_reshape(b->g, x, DIMS(b->T, x->shape->dim[1], two, two, n_(b, y->head_dim / 4)));
  return t_reshape(b->g, t_swap(b->g, parts, 2, 3), DIMS(b->T, x->shape->dim[1], n_(b, y->head_dim)));
}

tensor *see_all(build *b, const layer *y, tensor *x, const row_groups *of) {
  graph *g = b->g;
  int64_t d = y->head_dim, dv = y->v_dim, nq = y->n_head * d, nk = y->n_kv * d, nv = y->n_kv * dv;
  uop *kv = n_(b, y->n_kv);
  tensor *q, *k, *v;
  if (y->w[W_ATTN_QKV].weight) {
    tensor *all = linear(b, y, W_ATTN_QKV, x);
    q = t_slice_i(g, all, 1, 0, nq); k = t_slice_i(g, all, 1, nq, nk); v = t_slice_i(g, all, 1, nq + nk, nv);
  } else {
    q = read_in_parts(g, linear(b, y, W_ATTN_Q, x));
    k = read_in_parts(g, linear(b, y, W_ATTN_K, x));
    v = linear(b, y, W_ATTN_V, x);
  }
  bool normed = y->w[W_ATTN_Q_NORM].weight, all_heads = normed && b->m->arch->flags & ARCH_QK_NORM_ALL;
  if (all_heads) { q = norm(b, y, W_ATTN_Q_NORM, q); k = norm(b, y, W_ATTN_K_NORM, k); }
  q = t_reshape(g, q, DIMS(b->T, n_(b, y->n_head), n_(b, d)));
  k = t_reshape(g, k, DIMS(b->T, kv, n_(b, d)));
  v = t_reshape(g, v, DIMS(b->T, kv, n_(b, dv)));
  if (normed && !all_heads) { q = norm(b, y, W_ATTN_Q_NORM, q); k = norm(b, y, W_ATTN_K_NORM, k); }
  if (b->m->arch->halves_apart) { q = halves_as_one(b, y, q); k = halves_as_one(b, y, k); }
  if (b->m->arch->flags & ARCH_V_NORM) v = t_rmsnorm(g, v, NULL, b->m->eps);
  q = rope_turn(b, y, t_scale(g, q, b->m->attention_scale != 0 ? b->m->attention_scale : 1 / sqrt((double)d)),
                y->n_head, d);
  k = rope_turn(b, y, k, y->n_kv, d);
  return attend_rows(b, y, q, k, v, of);
}

static tensor *encoder_attention(build *b, const layer *y, tensor *x) {
  return linear(b, y, W_ATTN_OUTPUT, see_all(b, y, x, NULL));
}

const part part_encoder_attention = {attention_weights, encoder_attention};

static int t5_weights(loader *l, layer *y) {
  if (heads_weights(l, y)) return -1;
  if (want_matrix(l, y, W_ATTN_O, (int64_t)y->n_head * y->v_dim, l->m->n_embd, 0)) return -1;
  return distances_table(l, y, W_ENC_ATTN_REL_B);
}

static tensor *t5_attention(build *b, const layer *y, tensor *x) {
  return linear(b, y, W_ATTN_O, see_all(b, y, x, NULL));
}

const part part_t5_attention = {t5_weights, t5_attention};
