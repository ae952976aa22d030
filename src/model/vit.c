// The transformer in image and sound encoders: layers in which each patch attends to all others or to those of its
// window, with learned positions or with rotation by two axes. The projector (projectors.c) makes the input and reads
// the output.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <float.h>
#include <math.h>
#include "model/model_impl.h"
#include "model/projector_impl.h"

static int vit_activation(loader *l) {
  bool gelu, silu;
  model *m = l->m;
  m->act = m->arch->act;
  if (gguf_bool_opt(l->f, file_key(l, "clip.use_gelu"), false, &gelu, l->err) ||
      gguf_bool_opt(l->f, file_key(l, "clip.use_silu"), false, &silu, l->err))
    return -1;
  if (gelu && silu) return gguf_fail(l->f, l->key, l->err, "true, and clip.use_gelu is true as well");
  if (m->projector->arch->own_act) return 0;
  m->act = gelu ? m->projector->arch->exact_gelu ? ACT_GELU_ERF : ACT_GELU : silu ? ACT_SILU : m->arch->act;
  return 0;
}

static int load_sizes(loader *l, int *heads, int *ff) {
  model *m = l->m;
  bool by_tensor = m->projector->arch->sized_by_tensor;        // early files of this kind say 0
  if (key_count(l, "block_count", 1, MODEL_MAX_LAYERS, &m->n_layer) ||
      key_count(l, "embedding_length", 1, 1 << 16, &m->n_embd) ||
      key_count(l, "attention.head_count", 1, 1 << 12, heads) ||
      key_count(l, "feed_forward_length", by_tensor ? 0 : 1, 1 << 20, ff) ||
      key_count(l, "projection_dim", m->projector->arch->last ? 0 : 1, 1 << 20, &m->n_embd_out) ||
      key_number(l, "attention.layer_norm_epsilon", FLT_MIN, 1, &m->eps))
    return -1;
  const char *end = m->projector->arch->last;
  const gguf_tensor *last = end ? gguf_tensor_find(l->f, end) : NULL;
  if (last) m->n_embd_out = (int)min_i64(last->ne[1], 1 << 20);
  if (!m->n_embd_out) return gguf_fail(l->f, NULL, l->err, "tensor '%s' is missing", end);
  const gguf_tensor *up = gguf_tensor_find(l->f, "v.blk.0.ffn_up.weight");
  // also if the names of the two matrices are exchanged
  int64_t tall = !up ? 0 : up->ne[1] == m->n_embd ? up->ne[0] : up->ne[1];
  if (by_tensor && up && tall >= 1 && tall <= 1 << 20) *ff = (int)tall;
  if (m->n_embd % *heads || (m->n_embd / *heads) % 2)
    return gguf_fail(l->f, key(l, "attention.head_count"), l->err, "%d does not make heads of an even size of %d",
                     *heads, m->n_embd);
  return 0;
}

// An optional norm before or after all layers.
static int load_end(loader *l, enum tensor_id id) {
  if (want_vector(l, NULL, id, l->m->n_embd, WANT_OPTIONAL)) return -1;
  return l->m->w[id].weight ? want_vector(l, NULL, id, l->m->n_embd, bias_if(l, HAS_NORM_BIAS)) : 0;
}

int vit_load(loader *l) {
  model *m = l->m;
  int heads, ff;
  const projector_arch *a = m->projector->arch;
  if (load_sizes(l, &heads, &ff) || vit_activation(l)) return -1;
  m->n_block = m->n_layer;
  m->residual_scale = m->embedding_scale = m->value_scale = 1;
  m->neox = m->arch->flags & ARCH_NEOX;
  m->layers = xcalloc((size_t)m->n_layer, sizeof *m->layers);
  bool posts = m->arch->flags & ARCH_POST_NORMS;
  // llama4's second norm in files of recent converters, which use gemma4's name for it
  bool called_post = !posts && !gguf_tensor_find(l->f, "v.blk.0.ln2.weight") &&
                     gguf_tensor_find(l->f, "v.blk.0.attn_post_norm.weight");
  for (int i = 0; i < m->n_layer; i++)
    m->layers[i] = (layer){.index = i,
                           .block = i,
                           .mixer = a->before ? &part_conformer : &part_vit_attention,
                           .ff = a->before ? NULL : &part_vit_dense,
                           .mixer_norm = a->before ? W_ATTN_PRE_NORM : W_LN1,
                           .ff_norm = called_post ? W_ATTN_POST_NORM : W_LN2,
                           .mixer_post = posts ? W_ATTN_POST_NORM : W_NONE,
                           .ff_post = posts ? W_FFN_POST_NORM : W_NONE,
                           .n_head = heads,
                           .n_kv = heads,
                           .head_dim = m->n_embd / heads,
                           .v_dim = m->n_embd / heads,
                           .n_ff = ff,
                           .rope = a->turns ? ROPE_GLOBAL : ROPE_NONE,
                           .state = -1,
                           .kv_from = i,
                           .cut = -INFINITY};
  m->rope[ROPE_GLOBAL] = (rope){.dim = m->n_embd / heads, .base = a->base, .scale = 1, .attn = 1};
  if (a->turns && m->layers[0].head_dim % 4)
    return gguf_fail(l->f, key(l, "attention.head_count"), l->err, "heads of %d elements cannot turn along two axes",
                     m->layers[0].head_dim);
  return load_end(l, W_PRE_LN) || load_end(l, W_POST_LN) || load_layers(l) ? -1 : 0;
}

// Factors of what is added to the stream: all layers have them or none.
static int load_layer_scale(loader *l, layer *y, enum tensor_id id) {
  return want_vector(l, y, id, l->m->n_embd, WANT_OPTIONAL);
}

static int load_vit_attention(loader *l, layer *y) {
  int64_t d = l->m->n_embd;
  return heads_weights(l, y) || want_matrix(l, y, W_ATTN_OUT, d, d, bias_if(l, HAS_OUT_BIAS)) ||
             load_layer_scale(l, y, W_LS1)
           ? -1
           : 0;
}

static tensor *factored(const build *b, const layer *y, enum tensor_id id, tensor *x) {
  return y->w[id].weight ? t_mul(b->g, x, weight(b, y, id)) : x;
}

// Windows of an image, which may be smaller at its edges, or of consecutive chunks of a sound.
static row_groups window_groups_of(const build *b) {
  const projector_facts *f = &b->m->eye;
  int64_t side = f->chunk ? 0 : max_i64(f->window / (f->patch * f->merge), 1) * f->merge;
  return f->chunk ? (row_groups){b->window, f->chunk_window, true} : (row_groups){b->window, side * side, false};
}

static tensor *vit_attention(build *b, const layer *y, tensor *x) {
  int every = b->m->eye.whole_every;
  bool whole = every ? (y->index + 1) % every == 0 : !b->m->eye.chunk;
  if (whole) return factored(b, y, W_LS1, linear(b, y, W_ATTN_OUT, see_all(b, y, x, NULL)));
  const row_groups windows = window_groups_of(b);
  return factored(b, y, W_LS1, linear(b, y, W_ATTN_OUT, see_all(b, y, x, &windows)));
}
const part part_vit_attention = {load_vit_attention, vit_attention};

// Files of early converters call the first matrix ffn_down and the last one ffn_up.
static int load_swapped(loader *l, layer *y) {
  unsigned bias = bias_if(l, HAS_FFN_BIAS);
  int64_t d = l->m->n_embd, f = y->n_ff;
  if (want_matrix(l, y, W_FFN_DOWN, d, f, bias) || want_matrix(l, y, W_FFN_UP, f, d, bias)) return -1;
  tensor_ref first = y->w[W_FFN_DOWN];
  y->w[W_FFN_DOWN] = y->w[W_FFN_UP];
  y->w[W_FFN_UP] = first;
  return 0;
}

static int load_dense(loader *l, layer *y) {
  char name[64];
  snprintf(name, sizeof name, "%sblk.%d.ffn_down.weight", l->prefix, y->block);
  const gguf_tensor *down = gguf_tensor_find(l->f, name);
  bool swapped = l->m->arch->flags & ARCH_PLAIN_FFN && down && down->ne[0] == l->m->n_embd && y->n_ff != l->m->n_embd;
  return (swapped ? load_swapped(l, y) : part_dense.load(l, y)) || load_layer_scale(l, y, W_LS2) ? -1 : 0;
}

static tensor *dense(build *b, const layer *y, tensor *x) { return factored(b, y, W_LS2, part_dense.graph(b, y, x)); }
const part part_vit_dense = {load_dense, dense};

// For heads that rotate: the first half of the pairs uses one coordinate of a patch, usually its line, the others use
// the other one.
static void turn_tables(build *b, tensor *first, tensor *second) {
  graph *g = b->g;
  const rope *r = &b->m->rope[ROPE_GLOBAL];
  int64_t pairs = r->dim / 4;
  tensor *i = t_cast(g, t_iota(g, n_(b, pairs)), DT_F64);
  tensor *at = t_cast(g, t_stack_last(g, (tensor *[]){first, second}, 2), DT_F64);
  tensor *freq = t_op1(g, OP_EXP2, t_scale(g, i, -4.0 / r->dim * log2(r->base)));
  if (b->m->projector->arch->odd_columns) {
    tensor *odd = t_scale(g, freq, exp2(-2.0 / r->dim * log2(r->base)));
    freq = t_swap(g, t_stack_last(g, (tensor *[]){freq, odd}, 2), 0, 1);
  }
  tensor *angle = t_mul(g, t_reshape(g, at, DIMS(b->T, n_(b, 2), n_(b, 1))), freq);
  if (b->m->projector->arch->alternate) angle = t_swap(g, angle, 1, 2);
  angle = t_reshape(g, angle, DIMS(b->T, n_(b, 1), n_(b, 2 * pairs)));
  b->sin[ROPE_GLOBAL] = t_cast(g, t_op1(g, OP_SIN, angle), DT_F32);
  b->cos[ROPE_GLOBAL] =
    t_cast(g, t_op1(g, OP_SIN, t_add(g, angle, uop_float(g, DT_F64, M_PI_2))), DT_F32);
}

tensor *place_of(const build *b, int which, uop *n) {
  int64_t places = projector_places(b->m, b->s->chunk);
  tensor *all = t_buffer(b->g, model_buffer_id(b->m->file, BUF_PLACES), DT_I32, 3 * places);
  return t_slice(b->g, t_slice_i(b->g, all, 0, which * places, places), 0, n_(b, 0), n);
}

// The line (0) or the column (1) by which a row rotates.
static tensor *turn_of(const build *b, int axis) {
  graph *g = b->g;
  const projector_arch *a = b->m->projector->arch;
  int64_t others = a->class_row != CLASS_NONE;
  if (!a->from_one) return place_of(b, axis, b->T);
  tensor *at = place_of(b, axis, idx_sub(g, b->T, n_(b, others)));
  return t_pad(g, t_add(g, at, t_cast(g, t_float(g, 1), DT_I32)), 0, 0, others);
}

tensor *vit(build *b, tensor *x) {
  graph *g = b->g;
  bool by_column = b->m->projector->arch->columns_first;
  if (b->m->projector->arch->turns) turn_tables(b, turn_of(b, by_column), turn_of(b, !by_column));
  if (b->m->eye.whole_every || b->m->eye.chunk) b->window = place_of(b, 2, n_(b, projector_places(b->m, b->s->chunk)));
  if (b->m->w[W_PRE_LN].weight) x = norm(b, NULL, W_PRE_LN, x);
  for (int i = 0; i < b->m->n_layer; i++) {
    if (b->m->projector->arch->before) x = b->m->projector->arch->before(b, &b->m->layers[i], x);
    x = through(b, &b->m->layers[i], x);
    if (b->m->projector->arch->behind) x = b->m->projector->arch->behind(b, &b->m->layers[i], x);
  }
  int pools = b->m->projector->arch->pools;
  if (pools) {
    uop *rows = idx_div(g, b->T, n_(b, pools)), *n = n_(b, b->m->n_embd);
    x = t_reduce(g, t_reshape(g, x, DIMS(rows, n_(b, pools), n)), OP_ADD, 1);
    x = t_scale(g, t_reshape(g, x, DIMS(rows, n)), 1.0 / pools);
    b->T = rows;
  }
  return b->m->w[W_POST_LN].weight ? norm(b, NULL, W_POST_LN, x) : x;
}
