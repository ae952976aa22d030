// The image encoder of Gemma 3n (MobileNetV5). Each stage of convolution blocks halves height and width once; the last
// stages also have attention over all places, whose heads share keys and values. The outputs of the last two stages are
// merged into 16 x 16 places, and each place becomes a row. Values are {places, channels}, line by line.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <string.h>
#include "model/model_impl.h"
#include "model/projector_impl.h"

enum {
  SIDE = 16 /* rows of an image in each direction */,
  STAGES = 4,
  TAPS = 3 /* of the convolutions */,
  MOST_TAPS = 7,
  MOST_CHANNELS = 1 << 16,
  MOST_PIXELS = 1536 /* of a side: twice the published models' */
};

// --- loading ---------------------------------------------------------------------------------------------------------

static const gguf_tensor *block_tensor(const loader *l, const layer *y, const char *rest) {
  char name[96];
  snprintf(name, sizeof name, "v.blk.%d.%d.%s.weight", y->block, y->within - 1, rest);
  return gguf_tensor_find(l->f, name);
}

// The outputs of a convolution's tensor, and its taps in a direction; 1: no such tensor, or too many.
static int64_t conv_outputs(const gguf_tensor *t) { return t && t->ne[3] <= MOST_CHANNELS ? t->ne[3] : 1; }
static int64_t taps_of(const gguf_tensor *t) { return t && t->ne[0] <= MOST_TAPS && t->ne[0] % 2 ? t->ne[0] : 1; }

// A convolution and its norm. in: channels that each output reads; 1: only its own.
static int want_conv(loader *l, layer *y, enum tensor_id id, int64_t taps, int64_t in, int64_t out) {
  if (want(l, y, id, taps, taps * in, out, WANT_BARE | WANT_KERNEL)) return -1;
  return want_vector(l, y, (enum tensor_id)(id + 1), out, 0);
}
static int want_pointwise(loader *l, layer *y, enum tensor_id id, int64_t in, int64_t out) {
  return want(l, y, id, 1, in, out, WANT_BARE | WANT_KERNEL);
}
static int want_gamma(loader *l, layer *y, int64_t n) {
  return want(l, y, W_LAYER_GAMMA, n, 1, 1, WANT_BARE | WANT_VECTOR | WANT_OPTIONAL);
}

static int load_edge_block(loader *l, layer *y, const gguf_tensor *first, int64_t *n) {
  int64_t inner = conv_outputs(first), out = conv_outputs(block_tensor(l, y, "conv_pwl"));
  if (want_conv(l, y, W_CONV_EXP, TAPS, *n, inner) || want_conv(l, y, W_CONV_PWL, 1, inner, out)) return -1;
  *n = out;
  return 0;
}

static int load_shared_block(loader *l, layer *y, const gguf_tensor *query, int64_t *n) {
  const gguf_tensor *key = block_tensor(l, y, "attn.key.proj"), *value = block_tensor(l, y, "attn.value.proj"),
                    *down = block_tensor(l, y, "attn.key.down_conv");
  int64_t d = conv_outputs(key), dv = conv_outputs(value), all = conv_outputs(query), taps = taps_of(down);
  if (all % d || all / d > 1 << 12)
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' has %lld outputs, not those of heads of %lld", query->name,
                     (long long)all, (long long)d);
  y->n_head = (int)(all / d), y->n_kv = 1, y->head_dim = (int)d, y->v_dim = (int)dv;
  if (down && (want_conv(l, y, W_MQ_K_DOWN, taps, 1, *n) || want_conv(l, y, W_MQ_V_DOWN, taps, 1, *n))) return -1;
  return want_vector(l, y, W_MQ_NORM, *n, 0) || want_pointwise(l, y, W_MQ_Q, *n, all) ||
             want_pointwise(l, y, W_MQ_K, *n, d) || want_pointwise(l, y, W_MQ_V, *n, dv) ||
             want_pointwise(l, y, W_MQ_OUT, y->n_head * dv, *n) || want_gamma(l, y, *n)
           ? -1
           : 0;
}

static int load_inverted_block(loader *l, layer *y, const gguf_tensor *wide, int64_t *n) {
  const gguf_tensor *start = block_tensor(l, y, "dw_start.conv"), *mid = block_tensor(l, y, "dw_mid.conv");
  int64_t inner = conv_outputs(wide), out = conv_outputs(block_tensor(l, y, "pw_proj.conv"));
  if ((start && want_conv(l, y, W_DW_START, taps_of(start), 1, *n)) || want_conv(l, y, W_PW_EXP, 1, *n, inner) ||
      (mid && want_conv(l, y, W_DW_MID, taps_of(mid), 1, inner)) || want_conv(l, y, W_PW_PROJ, 1, inner, out))
    return -1;
  *n = out;
  return want_gamma(l, y, out);
}

// The next block, of n channels; 1: the block does not exist.
static int load_map_block(loader *l, layer *y, int64_t *n) {
  const gguf_tensor *first = block_tensor(l, y, "conv_exp"), *query = block_tensor(l, y, "attn.query.proj"),
                    *wide = block_tensor(l, y, "pw_exp.conv");
  if (first) return load_edge_block(l, y, first, n);
  if (query) return load_shared_block(l, y, query, n);
  return wide ? load_inverted_block(l, y, wide, n) : 1;
}

static bool has_steps(const layer *y) {
  return y->w[W_CONV_EXP].weight || y->w[W_DW_START].weight || y->w[W_DW_MID].weight;
}

static int load_stages(loader *l, int64_t n, int64_t *ends) {
  model *m = l->m;
  m->layers = xcalloc(MODEL_MAX_LAYERS, sizeof *m->layers);
  m->n_layer = 0;
  for (int stage = 0; stage < STAGES; stage++) {
    int had = m->n_layer, none = 0;
    for (int i = 0; !none && m->n_layer < MODEL_MAX_LAYERS; i++) {
      layer *y = &m->layers[m->n_layer];
      *y = (layer){.index = m->n_layer, .block = stage, .within = i + 1, .state = -1, .kv_from = m->n_layer,
                   .cut = -INFINITY};
      if ((none = load_map_block(l, y, &n)) < 0) return -1;
      m->n_layer += !none;
    }
    if (m->n_layer == had || !has_steps(&m->layers[had]))
      return gguf_fail(l->f, NULL, l->err, "'v.blk.%d.0' has no tensor of a convolution with steps of 2", stage);
    ends[stage] = n;
  }
  m->n_block = m->n_layer;
  return 0;
}

int mobilenet_load(loader *l) {
  model *m = l->m;
  projector_facts *f = &m->eye;
  int ignored;
  int64_t ends[STAGES];
  const gguf_tensor *stem = gguf_tensor_find(l->f, "v.conv_stem.conv.weight"),
                    *wide = gguf_tensor_find(l->f, "v.msfa.ffn.pw_exp.conv.weight"),
                    *words = gguf_tensor_find(l->f, "mm.embedding.weight");
  // Ignored: converters write arbitrary numbers for these three keys, which this kind of encoder does not use.
  if (key_count(l, "block_count", 0, 1 << 20, &ignored) || key_count(l, "feed_forward_length", 0, 1 << 20, &ignored) ||
      key_count(l, "attention.head_count", 0, 1 << 20, &ignored) ||
      key_count(l, "embedding_length", 1, 1 << 16, &m->n_embd) ||
      key_count(l, "projection_dim", 1, 1 << 20, &m->n_embd_out) ||
      key_number(l, "attention.layer_norm_epsilon", 1e-30, 1, &m->eps))
    return -1;
  // No other key limits the size of images, and memory grows with their pixels.
  if (f->size > MOST_PIXELS)
    return gguf_fail(l->f, key(l, "image_size"), l->err, "%d pixels, %d at most", f->size, MOST_PIXELS);
  if (f->size % (SIDE * SIDE))
    return gguf_fail(l->f, key(l, "image_size"), l->err, "%d is not a multiple of %d pixels", f->size, SIDE * SIDE);
  f->patch = f->size / SIDE, f->merge = 1, f->fixed = true;
  f->queries = SIDE * SIDE + 1;
  m->act = ACT_GELU;
  m->residual_scale = m->embedding_scale = m->value_scale = 1;
  int64_t n = conv_outputs(stem), inner = conv_outputs(wide), d = m->n_embd;
  if (want_conv(l, NULL, W_CONV_STEM, TAPS, 3, n) || want(l, NULL, W_CONV_STEM_BIAS, 1, 1, n, WANT_BARE) ||
      load_stages(l, n, ends))
    return -1;
  return want_conv(l, NULL, W_MSFA_EXP, 1, ends[STAGES - 2] + ends[STAGES - 1], inner) ||
             want_conv(l, NULL, W_MSFA_PROJ, 1, inner, d) || want_vector(l, NULL, W_MSFA_NORM, d, 0) ||
             want_vector(l, NULL, W_MM_SOFT_EMB_NORM, d, 0) ||
             want_matrix(l, NULL, W_MM_INPUT_PROJECTION, d, m->n_embd_out, 0) ||
             // embeddings of the language model's own image tokens; the first ends an image
             want_matrix(l, NULL, W_MM_EMBEDDING, d, words ? words->ne[1] : 1, 0) ||
             want_vector(l, NULL, W_MM_HARD_EMB_NORM, d, 0)
           ? -1
           : 0;
}

// --- the graph -------------------------------------------------------------------------------------------------------

// x {side x side, n}
typedef struct places { tensor *x; int64_t side; } places;
static int64_t map_channels(const places *a) { return a->x->shape->dim[1]->a; }

static tensor *map_norm(const build *b, const layer *y, enum tensor_id id, tensor *x) {
  return t_rmsnorm(b->g, x, weight(b, y, id), b->m->eps);
}

// The values that the taps read at each place, {side, side, n} for tap (i, j). Zeros are added beyond the edges to make
// the side a multiple of the step, with the larger half after the end.
static tensor *map_tap(const build *b, const places *a, int64_t taps, int64_t step, int64_t i, int64_t j) {
  graph *g = b->g;
  int64_t out = (a->side + step - 1) / step, all = (out - 1) * step + taps - a->side, n = map_channels(a);
  int64_t before = all > 0 ? all / 2 : 0, behind = (out * step + taps) - a->side - before;
  tensor *x = t_reshape_i(g, a->x, 3, (int64_t[]){a->side, a->side, n});
  x = t_pad(g, t_pad(g, x, 0, before, behind), 1, before, behind);
  x = t_slice_i(g, t_slice_i(g, x, 0, i, out * step), 1, j, out * step);
  if (step == 1) return x;
  x = t_reshape_i(g, x, 5, (int64_t[]){out, step, out, step, n});
  return t_reshape_i(g, t_slice_i(g, t_slice_i(g, x, 1, 0, 1), 3, 0, 1), 3, (int64_t[]){out, out, n});
}

static const gguf_tensor *conv_file(const build *b, const layer *y, enum tensor_id id) {
  const tensor_ref *r = y ? &y->w[id] : &b->m->w[id];
  return gguf_tensor_at(b->m->file, (size_t)r->weight - 1);
}

// Each channel by itself.
static places depthwise_conv(const build *b, const layer *y, enum tensor_id id, places a, int64_t step) {
  graph *g = b->g;
  int64_t n = map_channels(&a), out = (a.side + step - 1) / step, k = conv_file(b, y, id)->ne[0];
  tensor *w = t_reshape_i(g, weight(b, y, id), 3, (int64_t[]){n, k, k}), *sum = NULL;
  for (int64_t i = 0; i < k * k; i++) {
    tensor *by = t_slice_i(g, t_slice_i(g, w, 1, i / k, 1), 2, i % k, 1);
    tensor *term = t_mul(g, map_tap(b, &a, k, step, i / k, i % k), t_reshape_i(g, by, 1, (int64_t[]){n}));
    sum = sum ? t_add(g, sum, term) : term;
  }
  sum = t_reshape_i(g, sum, 2, (int64_t[]){out * out, n});
  return (places){map_norm(b, y, (enum tensor_id)(id + 1), sum), out};
}

// All channels, with taps x taps places.
static tensor *conv_product(const build *b, const layer *y, enum tensor_id id, tensor *x) {
  tensor *w = weight(b, y, id);
  int64_t in = x->shape->dim[1]->a, out = conv_file(b, y, id)->ne[3];
  return t_matmul(b->g, x, t_reshape_i(b->g, w, 2, (int64_t[]){out, in}));
}
static places dense_conv(const build *b, const layer *y, enum tensor_id id, places a, int64_t step) {
  graph *g = b->g;
  int64_t out = (a.side + step - 1) / step, n = map_channels(&a);
  tensor *near[TAPS * TAPS];
  for (int i = 0; i < TAPS * TAPS; i++) near[i] = map_tap(b, &a, TAPS, step, i / TAPS, i % TAPS);
  // Stored by lines and columns: from a combined index the compiler could not prove that the neighbours exist.
  tensor *x = t_reshape_i(g, t_stack_last(g, near, TAPS * TAPS), 3, (int64_t[]){out, out, TAPS * TAPS * n});
  x = t_reshape_i(g, x, 2, (int64_t[]){out * out, TAPS * TAPS * n});
  return (places){conv_product(b, y, id, x), out};
}

static tensor *pointwise_conv(const build *b, const layer *y, enum tensor_id id, tensor *x) {
  return map_norm(b, y, (enum tensor_id)(id + 1), conv_product(b, y, id, x));
}

static places edge_block(const build *b, const layer *y, places a, int64_t step) {
  places c = dense_conv(b, y, W_CONV_EXP, a, step);
  c.x = activate(b, NULL, map_norm(b, y, W_CONV_EXP_NORM, c.x));
  return (places){pointwise_conv(b, y, W_CONV_PWL, c.x), c.side};
}

static places inverted_block(const build *b, const layer *y, places a, int64_t step) {
  bool mid = y->w[W_DW_MID].weight;
  if (y->w[W_DW_START].weight) a = depthwise_conv(b, y, W_DW_START, a, mid ? 1 : step);
  a.x = activate(b, NULL, pointwise_conv(b, y, W_PW_EXP, a.x));
  if (mid) {
    a = depthwise_conv(b, y, W_DW_MID, a, step);
    a.x = activate(b, NULL, a.x);
  }
  return (places){pointwise_conv(b, y, W_PW_PROJ, a.x), a.side};
}

static places shared_block(build *b, const layer *y, places a) {
  graph *g = b->g;
  places k = {map_norm(b, y, W_MQ_NORM, a.x), a.side}, v = k;
  int64_t d = y->head_dim, dv = y->v_dim;
  b->T = n_(b, a.side * a.side);
  tensor *q = t_scale(g, conv_product(b, y, W_MQ_Q, k.x), 1 / sqrt((double)d));
  if (y->w[W_MQ_K_DOWN].weight) {
    k = depthwise_conv(b, y, W_MQ_K_DOWN, k, 2);
    v = depthwise_conv(b, y, W_MQ_V_DOWN, v, 2);
  }
  q = t_reshape_i(g, q, 3, (int64_t[]){a.side * a.side, y->n_head, d});
  tensor *keys = t_reshape_i(g, conv_product(b, y, W_MQ_K, k.x), 3, (int64_t[]){k.side * k.side, 1, d});
  tensor *values = t_reshape_i(g, conv_product(b, y, W_MQ_V, v.x), 3, (int64_t[]){v.side * v.side, 1, dv});
  return (places){conv_product(b, y, W_MQ_OUT, attend_rows(b, y, q, keys, values, NULL)), a.side};
}

static places through_block(build *b, const layer *y, places a, int64_t step) {
  graph *g = b->g;
  places c = y->w[W_CONV_EXP].weight ? edge_block(b, y, a, step)
          : y->w[W_MQ_Q].weight   ? shared_block(b, y, a)
                                  : inverted_block(b, y, a, step);
  if (y->w[W_LAYER_GAMMA].weight) c.x = t_mul(g, c.x, weight(b, y, W_LAYER_GAMMA));
  if (c.side == a.side && map_channels(&c) == map_channels(&a)) c.x = t_add(g, a.x, c.x);
  return c;
}

// The image, whose squares are stored one after another.
static places stem_map(const build *b) {
  graph *g = b->g;
  int64_t p = b->m->eye.patch, side = SIDE * p;
  tensor *x = t_reshape_i(g, picture_input(b), 5, (int64_t[]){SIDE, SIDE, 3, p, p});
  x = t_permute(g, x, (int[]){0, 3, 1, 4, 2});
  places a = dense_conv(b, NULL, W_CONV_STEM, (places){t_reshape_i(g, x, 2, (int64_t[]){side * side, 3}), side}, 2);
  a.x = t_add(g, a.x, t_reshape_i(g, weight(b, NULL, W_CONV_STEM_BIAS), 1, (int64_t[]){map_channels(&a)}));
  a.x = activate(b, NULL, map_norm(b, NULL, W_CONV_STEM_NORM, a.x));
  return a;
}

// Both maps at the same number of places; the second map's side is half as long, so each of its places is repeated four
// times.
static places maps_beside(const build *b, places a, places c) {
  graph *g = b->g;
  tensor *at = t_iota(g, n_(b, a.side * a.side)), *side = n_(b, a.side), *two = n_(b, 2);
  tensor *line = t_op2(g, OP_IDIV, t_op2(g, OP_IDIV, at, side), two),
         *column = t_op2(g, OP_IDIV, t_op2(g, OP_MOD, at, side), two);
  tensor *x = t_gather(g, c.x, t_add(g, t_mul(g, line, n_(b, c.side)), column));
  int64_t first = map_channels(&a), second = map_channels(&c);
  x = t_add(g, t_pad(g, a.x, 1, 0, second), t_pad(g, x, 1, first, 0));
  return (places){x, a.side};
}

static tensor *mean_of_map(const build *b, places a) {
  graph *g = b->g;
  int64_t by = a.side / SIDE, n = map_channels(&a);
  if (by == 1) return a.x;
  tensor *x = t_reshape_i(g, a.x, 5, (int64_t[]){SIDE, by, SIDE, by, n});
  x = t_reduce(g, t_reduce(g, x, OP_ADD, 3), OP_ADD, 1);
  return t_scale(g, t_reshape_i(g, x, 2, (int64_t[]){SIDE * SIDE, n}), 1.0 / (double)(by * by));
}

tensor *mobilenet_graph(build *b) {
  graph *g = b->g;
  const model *m = b->m;
  places a = stem_map(b), before = a;
  for (int i = 0; i < m->n_layer; i++) {
    const layer *y = &m->layers[i];
    if (y->within == 1 && y->block == STAGES - 1) before = a;
    a = through_block(b, y, a, y->within == 1 ? 2 : 1);
  }
  a = maps_beside(b, before, a);
  a.x = pointwise_conv(b, NULL, W_MSFA_PROJ, activate(b, NULL, pointwise_conv(b, NULL, W_MSFA_EXP, a.x)));
  tensor *x = map_norm(b, NULL, W_MSFA_NORM, mean_of_map(b, a));
  b->T = n_(b, SIDE * SIDE);
  x = map_norm(b, NULL, W_MM_SOFT_EMB_NORM, t_scale(g, x, sqrt((double)m->n_embd)));
  tensor *end = t_slice_i(g, weight(b, NULL, W_MM_EMBEDDING), 0, 0, 1);
  end = map_norm(b, NULL, W_MM_HARD_EMB_NORM, end);
  x = t_add(g, t_pad(g, x, 0, 0, 1), t_pad(g, end, 0, SIDE * SIDE, 0));
  b->T = n_(b, SIDE * SIDE + 1);
  return t_rmsnorm(g, linear(b, NULL, W_MM_INPUT_PROJECTION, x), NULL, m->eps);
}
