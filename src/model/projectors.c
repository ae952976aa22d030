// The types of projectors: a table, and for each type what it reads of its file and how it turns the encoder's output
// into rows. A new type is a row, a load function and a graph function. Where llama.cpp and a model's own code
// (transformers) differ, for example GELU by erf, this follows the model's own code.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <string.h>
#include "model/projector_impl.h"

// --- pieces ----------------------------------------------------------------------------------------------------------

// {T, n} to {T / side^2, side^2 n}: the patches of a square are already contiguous (projector_lay).
static tensor *merged_by(const build *b, tensor *x, int64_t side) {
  int64_t by = side * side, n = x->shape->dim[1]->a;
  return t_reshape(b->g, x, DIMS(idx_div(b->g, b->T, n_(b, by)), n_(b, by * n)));
}
static tensor *merged_patches(const build *b, tensor *x) { return merged_by(b, x, b->m->eye.merge); }

// {T, n} to {T / merge^2, n}: the mean of the patches of a row.
static tensor *mean_of_squares(const build *b, tensor *x) {
  graph *g = b->g;
  int64_t by = (int64_t)b->m->eye.merge * b->m->eye.merge, n = b->m->n_embd;
  uop *rows = idx_div(g, b->T, n_(b, by));
  x = t_reduce(g, t_reshape(g, x, DIMS(rows, n_(b, by), n_(b, n))), OP_ADD, 1);
  return t_scale(g, t_reshape(g, x, DIMS(rows, n_(b, n))), 1.0 / (double)by);
}

// {T, n} to {T / merge^2, n merge^2}: the first elements of a row's patches, then the second ones.
static tensor *channels_of_squares(const build *b, tensor *x) {
  graph *g = b->g;
  int64_t by = (int64_t)b->m->eye.merge * b->m->eye.merge, n = b->m->n_embd;
  uop *rows = idx_div(g, b->T, n_(b, by));
  x = t_swap(g, t_reshape(g, x, DIMS(rows, n_(b, by), n_(b, n))), 1, 2);
  return t_reshape(g, x, DIMS(rows, n_(b, by * n)));
}

#define TORCH_EPS 1e-5       // of PyTorch's norms, unless a file has another
static int merged_size(const model *m) { return m->eye.merge * m->eye.merge * m->n_embd; }

static int load_merge(loader *l, const char *rest, uint32_t usual) {
  return key_count_or(l, rest, usual, 1, 64, &l->m->eye.merge);
}

// Two products with GELU in between.
static tensor *mlp(const build *b, enum tensor_id first, enum tensor_id last, tensor *x) {
  return linear(b, NULL, last, gelu_erf(b->g, linear(b, NULL, first, x)));
}

static int want_mlp(loader *l, enum tensor_id first, enum tensor_id last, int64_t in, int64_t inner, unsigned bias) {
  return want_matrix(l, NULL, first, in, inner, bias) || want_matrix(l, NULL, last, inner, l->m->n_embd_out, bias) ? -1
                                                                                                                   : 0;
}

// --- pictures --------------------------------------------------------------------------------------------------------

// gemma3: rows are means of squares of patches, normed.
static int gemma3_load(loader *l) {
  return load_merge(l, "projector.scale_factor", 4) || want_vector(l, NULL, W_MM_SOFT_EMB_NORM, l->m->n_embd, 0) ||
             want_matrix(l, NULL, W_MM_INPUT_PROJECTION, l->m->n_embd_out, l->m->n_embd, 0)
           ? -1
           : 0;
}
static tensor *gemma3_graph(build *b, tensor *x) {
  graph *g = b->g;
  x = t_rmsnorm(g, mean_of_squares(b, x), weight(b, NULL, W_MM_SOFT_EMB_NORM), b->m->eps);
  return t_matmul(g, x, t_swap(g, weight(b, NULL, W_MM_INPUT_PROJECTION), 0, 1));
}

// gemma4: rows are means of squares of patches, shifted and scaled if the file says so, normed.
static int gemma4_load(loader *l) {
  model *m = l->m;
  m->attention_scale = 1;
  return load_merge(l, "projector.scale_factor", 3) ||
             want(l, NULL, W_STD_BIAS, m->n_embd, 1, 1, WANT_BARE | WANT_VECTOR | WANT_OPTIONAL) ||
             want(l, NULL, W_STD_SCALE, m->n_embd, 1, 1, WANT_BARE | WANT_VECTOR | WANT_OPTIONAL) ||
             want_matrix(l, NULL, W_MM_INPUT_PROJECTION, m->n_embd, m->n_embd_out, 0)
           ? -1
           : 0;
}
static tensor *gemma4_graph(build *b, tensor *x) {
  graph *g = b->g;
  x = t_scale(g, mean_of_squares(b, x), sqrt((double)b->m->n_embd));
  if (b->m->w[W_STD_BIAS].weight) x = t_sub(g, x, weight(b, NULL, W_STD_BIAS));
  if (b->m->w[W_STD_SCALE].weight) x = t_mul(g, x, weight(b, NULL, W_STD_SCALE));
  return linear(b, NULL, W_MM_INPUT_PROJECTION, t_rmsnorm(g, x, NULL, b->m->eps));
}

// qwen2.5vl: 2 x 2 patches are a row; attention in most layers is within windows.
static int qwen25_load(loader *l) {
  projector_facts *f = &l->m->eye;
  if (load_merge(l, "spatial_merge_size", 2) || key_count(l, "n_wa_pattern", 0, MODEL_MAX_LAYERS, &f->whole_every) ||
      key_count_or(l, "window_size", 112, (uint32_t)(f->patch * f->merge), 1 << 16, &f->window))
    return -1;
  if (!f->whole_every) f->window = 0;
  return want_mlp(l, W_MM_0, W_MM_2, merged_size(l->m), merged_size(l->m), WANT_BIAS);
}
static tensor *qwen25_graph(build *b, tensor *x) {
  return mlp(b, W_MM_0, W_MM_2, merged_patches(b, x));
}

// qwen2vl: the same without windows.
static int qwen2_load(loader *l) {
  return load_merge(l, "spatial_merge_size", 2) ||
             want_mlp(l, W_MM_0, W_MM_2, merged_size(l->m), merged_size(l->m), WANT_BIAS)
           ? -1
           : 0;
}

// qwen3vl: the same; some layers also pass rows to the first layers of the language model. Those follow each row.
static int qwen3_load(loader *l) {
  model *m = l->m;
  uint32_t deep[MODEL_MAX_LAYERS] = {0};
  if (qwen2_load(l) || (has_key(l, "is_deepstack_layers") && key_flags(l, "is_deepstack_layers", deep))) return -1;
  int64_t n = merged_size(m), parts = 1, out = m->n_embd_out;
  for (int i = 0; i < m->n_layer; i++) {
    layer *y = &m->layers[i];
    if (!deep[i]) continue;
    parts++;
    if (want_vector(l, y, W_DEEP_NORM, n, WANT_BIAS) || want_matrix(l, y, W_DEEP_FC1, n, n, WANT_BIAS) ||
        want_matrix(l, y, W_DEEP_FC2, n, out, WANT_BIAS))
      return -1;
  }
  m->n_embd_out *= (int)parts;
  return 0;
}
static tensor *qwen3_behind(build *b, const layer *y, tensor *x) {
  if (!y->w[W_DEEP_NORM].weight) return x;
  tensor *deep = gelu_erf(b->g, linear(b, y, W_DEEP_FC1, norm(b, y, W_DEEP_NORM, merged_patches(b, x))));
  deep = linear(b, y, W_DEEP_FC2, deep);
  b->deep = b->deep ? t_cat_last(b->g, b->deep, deep) : deep;
  return x;
}
static tensor *qwen3_graph(build *b, tensor *x) {
  x = qwen25_graph(b, x);
  return b->deep ? t_cat_last(b->g, x, b->deep) : x;
}

// pixtral, Mistral Small: rows are patches or, if the file merges, squares of patches, with all channels of a square's
// first place first. A token separates the lines of an image.
static int pixtral_load(loader *l) {
  model *m = l->m;
  const gguf_tensor *first = gguf_tensor_find(l->f, "mm.1.weight");
  int64_t n = m->n_embd, inner = first ? first->ne[1] : 1;
  if (load_merge(l, "spatial_merge_size", 1) ||
      want(l, NULL, W_IMG_BREAK, m->n_embd_out, 1, 1, WANT_BARE | WANT_VECTOR | WANT_OPTIONAL))
    return -1;
  if (m->eye.merge > 1 && (want_vector(l, NULL, W_MM_INPUT_NORM, n, 0) ||
                           want_matrix(l, NULL, W_MM_PATCH_MERGER, merged_size(m), n, 0)))
    return -1;
  return want_mlp(l, W_MM_1, W_MM_2, n, inner, 0);
}
static tensor *pixtral_graph(build *b, tensor *x) {
  graph *g = b->g;
  if (b->m->eye.merge > 1) {
    x = t_rmsnorm(g, x, weight(b, NULL, W_MM_INPUT_NORM), b->m->eps);
    x = linear(b, NULL, W_MM_PATCH_MERGER, channels_of_squares(b, x));
  }
  return mlp(b, W_MM_1, W_MM_2, x);
}

// idefics3, SmolVLM: squares of patches are a row.
static int idefics3_load(loader *l) {
  return load_merge(l, "projector.scale_factor", 1) ||
             key_count_or(l, "preproc_image_size", 0, 0, 1 << 16, &l->m->eye.preprocess_size)
           ? -1
           : want_matrix(l, NULL, W_MM_FC, merged_size(l->m), l->m->n_embd_out, 0);
}
static tensor *idefics3_graph(build *b, tensor *x) {
  return linear(b, NULL, W_MM_FC, merged_patches(b, x));
}

// glm4v: squares of patches are convolved, multiplied, normed, and go through a gated feed-forward.
static int glm4v_load(loader *l) {
  model *m = l->m;
  const gguf_tensor *gate = gguf_tensor_find(l->f, "mm.gate.weight");
  int64_t by = 2, out = m->n_embd_out, inner = gate ? gate->ne[1] : 1;
  if (load_merge(l, "spatial_merge_size", 2) || want_vector(l, NULL, W_NORM_EMBD, m->n_embd, WANT_OPTIONAL)) return -1;
  by = m->eye.merge;
  return want(l, NULL, W_MM_MERGER_KERNEL, by, by * m->n_embd, out, WANT_BARE | WANT_KERNEL) ||
             want(l, NULL, W_MM_MERGER_BIAS, out, 1, 1, WANT_BARE | WANT_VECTOR) ||
             want_matrix(l, NULL, W_MM_FC, out, out, 0) || want_vector(l, NULL, W_MM_POST_NORM, out, WANT_BIAS) ||
             want_matrix(l, NULL, W_MM_GATE, out, inner, 0) || want_matrix(l, NULL, W_MM_UP, out, inner, 0) ||
             want_matrix(l, NULL, W_MM_DOWN, inner, out, 0)
           ? -1
           : 0;
}
static tensor *glm4v_graph(build *b, tensor *x) {
  graph *g = b->g;
  int64_t n = merged_size(b->m), out = b->m->n_embd_out;
  tensor *kernel = t_reshape_i(g, weight(b, NULL, W_MM_MERGER_KERNEL), 2, (int64_t[]){out, n});
  x = t_add(g, t_matmul(g, channels_of_squares(b, x), kernel), weight(b, NULL, W_MM_MERGER_BIAS));
  x = t_layernorm(g, linear(b, NULL, W_MM_FC, x), weight(b, NULL, W_MM_POST_NORM), TORCH_EPS);
  x = gelu_erf(g, t_add(g, x, bias(b, NULL, W_MM_POST_NORM)));
  return linear(b, NULL, W_MM_DOWN, t_mul(g, t_silu(g, linear(b, NULL, W_MM_GATE, x)), linear(b, NULL, W_MM_UP, x)));
}

// The grids of LLaVA 1.6, {height, width} in pixels, each of several tiles. Published files have at most 4.
static int llava_canvases(loader *l, const gguf_value *v) {
  projector_facts *f = &l->m->eye;
  gguf_string merging;
  bool whole = v->type == GGUF_ARRAY && (v->elem == GGUF_INT32 || v->elem == GGUF_UINT32);
  if (!whole || v->a.n % 2 || !v->a.n || v->a.n > 2 * PROJECTOR_CANVASES)
    return gguf_fail(l->f, l->key, l->err, "expected an array of at most %d pairs of numbers", PROJECTOR_CANVASES);
  for (size_t i = 0; i < v->a.n; i++) {
    int64_t edge = v->elem == GGUF_INT32 ? gguf_elem(v, i).i : (int64_t)gguf_elem(v, i).u;
    if (edge < f->size || edge % f->size || edge / f->size > 32)
      return gguf_fail(l->f, l->key, l->err, "%lld is not 1 to 32 times image_size = %d", (long long)edge, f->size);
    f->canvases[i / 2][i % 2] = (int)(edge / f->size);
    int tiles = i % 2 ? f->canvases[i / 2][0] * f->canvases[i / 2][1] : 2;
    if (tiles < 2 || tiles > PROJECTOR_TILES)
      return gguf_fail(l->f, l->key, l->err, "{%d, %d} is %d tiles, not 2 to %d", f->canvases[i / 2][0] * f->size,
                       f->canvases[i / 2][1] * f->size, tiles, PROJECTOR_TILES);
  }
  f->n_canvases = (int)v->a.n / 2;
  if (gguf_str_opt(l->f, key(l, "mm_patch_merge_type"), "flat", &merging, l->err)) return -1;
  return equals_text(merging, "spatial_unpad") ? 0 : gguf_fail(l->f, l->key, l->err, "only 'spatial_unpad' goes with "
                                                               "image_grid_pinpoints");
}

// What happens to an image that is not square. Files with grids cut it into tiles. Most of the others have no key for
// it; then the square in its centre is used.
static int llava_shape(loader *l) {
  char text[64];
  gguf_string said;
  bool grids = l->m->eye.n_canvases;
  if (gguf_str_opt(l->f, key(l, "image_aspect_ratio"), grids ? "anyres" : "square", &said, l->err)) return -1;
  l->m->eye.padded = !grids && equals_text(said, "pad");
  if (l->m->eye.padded || equals_text(said, grids ? "anyres" : "square")) return 0;
  return gguf_fail(l->f, l->key, l->err, "'%s' is not %s", gguf_quote(text, sizeof text, said.at, said.n),
                   grids ? "'anyres', which goes with image_grid_pinpoints"
                         : "'square' or 'pad', which go without image_grid_pinpoints");
}

static int llava_newline(loader *l) {
  bool grids = l->m->eye.n_canvases;
  if (want(l, NULL, W_IMAGE_NEWLINE, l->m->n_embd_out, 1, 1, WANT_BARE | WANT_VECTOR | (grids ? 0 : WANT_OPTIONAL)))
    return -1;
  int at = l->m->w[W_IMAGE_NEWLINE].weight;
  const gguf_tensor *t = at ? gguf_tensor_at(l->f, (size_t)(at - 1)) : NULL;
  return !t || t->format->id == FORMAT_F32
           ? 0
           : gguf_fail(l->f, NULL, l->err, "tensor '%s' has type %s, not F32", t->name, t->format->name);
}

// llava: each patch is a row. Files have the layers up to the one that is read, and CLIP's own projection_dim.
static int llava_load(loader *l) {
  model *m = l->m;
  const gguf_tensor *first = gguf_tensor_find(l->f, "mm.0.weight");
  m->eye.merge = 1;
  const gguf_value *grids = gguf_find(l->f, key(l, "image_grid_pinpoints"));
  if (grids && llava_canvases(l, grids)) return -1;
  // further keys of LLaVA 1.6: the first two belong to a tiling that image_aspect_ratio does not select
  for (size_t i = 0; i < 3; i++)
    has_key(l, (const char *[]){"image_crop_resolution", "image_split_resolution", "mm_projector_type"}[i]);
  return llava_shape(l) || llava_newline(l) ||
             want_mlp(l, W_MM_0, W_MM_2, m->n_embd, first ? first->ne[1] : 1, WANT_BIAS)
           ? -1
           : 0;
}
static tensor *llava_graph(build *b, tensor *x) { return mlp(b, W_MM_0, W_MM_2, x); }

// internvl: squares of patches, normed, are a row.
static int internvl_load(loader *l) {
  model *m = l->m;
  return load_merge(l, "projector.scale_factor", 2) ||
             key_count_or(l, "preproc_min_tiles", 0, 0, 1 << 10, &m->eye.min_tiles) ||
             key_count_or(l, "preproc_max_tiles", 0, 0, 1 << 10, &m->eye.max_tiles) ||
             want_vector(l, NULL, W_MM_MLP_0, merged_size(m), WANT_BIAS) ||
             want_mlp(l, W_MM_MLP_1, W_MM_MLP_3, merged_size(m), m->n_embd_out, WANT_BIAS)
           ? -1
           : 0;
}
static tensor *internvl_graph(build *b, tensor *x) {
  x = merged_patches(b, x);
  x = t_layernorm(b->g, x, weight(b, NULL, W_MM_MLP_0), TORCH_EPS);
  return mlp(b, W_MM_MLP_1, W_MM_MLP_3, t_add(b->g, x, bias(b, NULL, W_MM_MLP_0)));
}

// minicpmv4_6: after one of the layers, the patches of a 2 x 2 square attend to each other and are merged into one:
// their mean plus the output of two products. The same merges four of the encoder's outputs. In mode "4x" only the
// latter happens.
static int minicpm_merger_load(loader *l) {
  model *m = l->m;
  int64_t n = m->n_embd, inner = (int64_t)m->layers[0].n_ff * 4;
  l->prefix = "v.vit_merger.";
  int failed = want_vector(l, NULL, W_LN1, n, WANT_BIAS) || want_matrix(l, NULL, W_ATTN_Q, n, n, WANT_BIAS) ||
               want_matrix(l, NULL, W_ATTN_K, n, n, WANT_BIAS) || want_matrix(l, NULL, W_ATTN_V, n, n, WANT_BIAS) ||
               want_matrix(l, NULL, W_ATTN_OUT, n, n, WANT_BIAS) || want_vector(l, NULL, W_DS_LN, 4 * n, WANT_BIAS) ||
               want_matrix(l, NULL, W_DS_FFN_UP, 4 * n, inner, WANT_BIAS) ||
               want_matrix(l, NULL, W_DS_FFN_DOWN, inner, n, WANT_BIAS);
  l->prefix = "v.";
  return failed ? -1 : 0;
}
static int minicpm_load(loader *l) {
  model *m = l->m;
  projector_facts *f = &m->eye;
  int64_t four = 4 * (int64_t)m->n_embd;
  uint32_t behind;
  if (key_count(l, "projector.scale_factor", 2, 4, &f->merge)) return -1;
  if (f->merge == 3) return gguf_fail(l->f, l->key, l->err, "3 is not 2 or 4");
  f->inner = 2;
  if (gguf_u32_each(l->f, key(l, "wa_layer_indexes"), 1, &behind, l->err)) return -1;
  if (behind >= (uint32_t)m->n_layer)
    return gguf_fail(l->f, l->key, l->err, "%u, but there are %d layers", behind, m->n_layer);
  f->merge_after = f->merge == 2 ? -1 : (int)behind;
  if (f->merge == 4 && minicpm_merger_load(l)) return -1;
  return want_vector(l, NULL, W_MM_INPUT_NORM, four, WANT_BIAS) ||
             want_mlp(l, W_MM_UP, W_MM_DOWN, four, four, WANT_BIAS)
           ? -1
           : 0;
}
static tensor *minicpm_behind(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  if (y->index != b->m->eye.merge_after) return x;
  layer merger = *y;
  memcpy(merger.w, b->m->w, sizeof merger.w);
  tensor *square = t_op2(g, OP_IDIV, t_iota(g, n_(b, projector_places(b->m, b->s->chunk))), uop_idx(g, 4));
  const row_groups squares = {square, 4, true};
  tensor *seen = see_all(b, &merger, norm(b, &merger, W_LN1, x), &squares);
  x = merged_by(b, t_add(g, x, linear(b, &merger, W_ATTN_OUT, seen)), 2);
  uop *rows = idx_div(g, b->T, n_(b, 4));
  tensor *mean = t_reduce(g, t_reshape(g, x, DIMS(rows, n_(b, 4), n_(b, b->m->n_embd))), OP_ADD, 1);
  mean = t_scale(g, t_reshape(g, mean, DIMS(rows, n_(b, b->m->n_embd))), 0.25);
  tensor *inner = activate(b, &merger, linear(b, &merger, W_DS_FFN_UP, norm(b, &merger, W_DS_LN, x)));
  b->T = rows;
  return t_add(g, linear(b, &merger, W_DS_FFN_DOWN, inner), mean);
}
static tensor *minicpm_graph(build *b, tensor *x) {
  x = norm_by(b, NULL, W_MM_INPUT_NORM, merged_by(b, x, 2), 1e-6);
  return mlp(b, W_MM_UP, W_MM_DOWN, x);
}

// resampler (MiniCPM-V 2.5 to 4.5): learned queries attend to all patches of an image, in heads of 128 elements. The
// place of its patch is added to a key: half of the elements encode the column, the others the line, sines before
// cosines.
enum { RESAMPLER_HEAD = 128, MOST_QUERIES = 1 << 12 };
static int resampler_keys(loader *l) {
  uint32_t version, queries;
  static const uint32_t known[] = {2, 3, 4, 5, 6, 100045};
  const gguf_tensor *t = gguf_tensor_find(l->f, "resampler.query");
  size_t i = 0;
  if (gguf_u32_opt(l->f, file_key(l, "clip.minicpmv_version"), 2, &version, l->err)) return -1;
  while (i < COUNT(known) && known[i] != version) i++;
  if (i == COUNT(known)) return gguf_fail(l->f, l->key, l->err, "%u is not 2 to 6 or 100045", version);
  l->m->eye.merge = 1;
  l->m->eye.queries = t ? (int)min_i64(t->ne[1], MOST_QUERIES) : 1;
  if (gguf_u32_opt(l->f, file_key(l, "clip.minicpmv_query_num"), 0, &queries, l->err)) return -1;
  if (t && queries && queries != t->ne[1])
    return gguf_fail(l->f, l->key, l->err, "%u, but tensor '%s' has %lld rows", queries, t->name, (long long)t->ne[1]);
  if (l->m->n_embd_out % RESAMPLER_HEAD)
    return gguf_fail(l->f, NULL, l->err, "tensor 'resampler.proj.weight' has %d rows, not a multiple of %d",
                     l->m->n_embd_out, RESAMPLER_HEAD);
  return 0;
}
static int resampler_load(loader *l) {
  if (resampler_keys(l)) return -1;
  const gguf_tensor *places = gguf_tensor_find(l->f, "resampler.pos_embed_k");
  int64_t n = l->m->n_embd_out, in = l->m->n_embd;
  // if both sizes are equal, the product before may be missing; positions of keys are computed for images of any size
  return want(l, NULL, W_RS_QUERY, n, l->m->eye.queries, 1, WANT_BARE) ||
             want_matrix(l, NULL, W_RS_KV, in, n, n == in ? WANT_OPTIONAL : 0) ||
             want(l, NULL, W_RS_PLACES, n, places ? places->ne[1] : 1, 1, WANT_BARE | WANT_OPTIONAL) ||
             want_vector(l, NULL, W_RS_LN_Q, n, WANT_BIAS) || want_vector(l, NULL, W_RS_LN_KV, n, WANT_BIAS) ||
             want_matrix(l, NULL, W_RS_Q, n, n, WANT_BIAS) || want_matrix(l, NULL, W_RS_K, n, n, WANT_BIAS) ||
             want_matrix(l, NULL, W_RS_V, n, n, WANT_BIAS) || want_matrix(l, NULL, W_RS_OUT, n, n, WANT_BIAS) ||
             want_vector(l, NULL, W_RS_LN_POST, n, WANT_BIAS) || want_matrix(l, NULL, W_RS_PROJ, n, n, 0)
           ? -1
           : 0;
}
static tensor *waves_of_places(const build *b, int64_t n) {
  graph *g = b->g;
  tensor *freq = t_op1(g, OP_EXP2, t_scale(g, t_cast(g, t_iota(g, n_(b, n / 4)), DT_F64), -4.0 / n * log2(10000)));
  tensor *at = t_stack_last(g, (tensor *[]){place_of(b, 1, b->T), place_of(b, 0, b->T)}, 2);
  tensor *phase = t_scale(g, t_cast(g, t_iota(g, n_(b, 2)), DT_F64), M_PI_2);
  at = t_reshape(g, t_cast(g, at, DT_F64), DIMS(b->T, n_(b, 2), n_(b, 1), n_(b, 1)));
  at = t_op1(g, OP_SIN, t_add(g, t_mul(g, at, freq), t_reshape(g, phase, DIMS(n_(b, 2), n_(b, 1)))));
  return t_reshape(g, t_cast(g, at, DT_F32), DIMS(b->T, n_(b, n)));
}
static tensor *resampler_graph(build *b, tensor *x) {
  graph *g = b->g;
  const double eps = 1e-6;                               // fixed: no key
  int64_t n = b->m->n_embd_out, heads = n / RESAMPLER_HEAD;
  const layer y = {.n_head = (int)heads, .n_kv = (int)heads, .head_dim = RESAMPLER_HEAD, .v_dim = RESAMPLER_HEAD};
  if (b->m->w[W_RS_KV].weight) x = linear(b, NULL, W_RS_KV, x);
  x = norm_by(b, NULL, W_RS_LN_KV, x, eps);
  tensor *k = linear(b, NULL, W_RS_K, t_add(g, x, waves_of_places(b, n))), *v = linear(b, NULL, W_RS_V, x);
  tensor *q = linear(b, NULL, W_RS_Q, norm_by(b, NULL, W_RS_LN_Q, weight(b, NULL, W_RS_QUERY), eps));
  k = t_reshape(g, k, DIMS(b->T, n_(b, heads), n_(b, RESAMPLER_HEAD)));
  v = t_reshape(g, v, DIMS(b->T, n_(b, heads), n_(b, RESAMPLER_HEAD)));
  b->T = n_(b, b->m->eye.queries);
  q = t_scale(g, q, 1 / sqrt(RESAMPLER_HEAD));
  q = t_reshape(g, q, DIMS(b->T, n_(b, heads), n_(b, RESAMPLER_HEAD)));
  x = linear(b, NULL, W_RS_OUT, attend_rows(b, &y, q, k, v, NULL));
  return linear(b, NULL, W_RS_PROJ, norm_by(b, NULL, W_RS_LN_POST, x, eps));
}

// llama4: squares of patches are a row; three products, with GELU after the first two.
static int llama4_load(loader *l) {
  const gguf_tensor *first = gguf_tensor_find(l->f, "mm.model.mlp.1.weight"),
                    *last = gguf_tensor_find(l->f, "mm.model.mlp.2.weight");
  int64_t inner = first ? first->ne[1] : 1, out = last ? last->ne[1] : 1;
  return load_merge(l, "projector.scale_factor", 2) ||
             want_matrix(l, NULL, W_MM_MLP_1, merged_size(l->m), inner, 0) ||
             want_matrix(l, NULL, W_MM_MLP_2, inner, out, 0) ||
             want_matrix(l, NULL, W_MM_FC, out, l->m->n_embd_out, 0)
           ? -1
           : 0;
}
static tensor *llama4_graph(build *b, tensor *x) {
  x = mlp(b, W_MM_MLP_1, W_MM_MLP_2, merged_patches(b, x));
  return linear(b, NULL, W_MM_FC, gelu_erf(b->g, x));
}

// kimivl, kimik25: squares of patches, each of which is normed, are a row.
static int kimi_load(loader *l) {
  return load_merge(l, "projector.scale_factor", 2) ||
             want_vector(l, NULL, W_MM_INPUT_NORM, l->m->n_embd, WANT_BIAS) ||
             want_mlp(l, W_MM_1, W_MM_2, merged_size(l->m), merged_size(l->m), WANT_BIAS)
           ? -1
           : 0;
}
static tensor *kimi_graph(build *b, tensor *x) {
  x = norm(b, NULL, W_MM_INPUT_NORM, x);
  return mlp(b, W_MM_1, W_MM_2, merged_patches(b, x));
}

// paddleocr: the same, with an epsilon of its own.
static tensor *paddleocr_graph(build *b, tensor *x) {
  x = norm_by(b, NULL, W_MM_INPUT_NORM, x, TORCH_EPS);
  return mlp(b, W_MM_1, W_MM_2, merged_patches(b, x));
}

// lfm2: squares of patches, normed in some files, are a row.
static int lfm2_load(loader *l) {
  const gguf_tensor *first = gguf_tensor_find(l->f, "mm.1.weight");
  return load_merge(l, "projector.scale_factor", 2) ||
             want_vector(l, NULL, W_MM_INPUT_NORM, merged_size(l->m), WANT_BIAS | WANT_OPTIONAL) ||
             want_mlp(l, W_MM_1, W_MM_2, merged_size(l->m), first ? first->ne[1] : 1, WANT_BIAS)
           ? -1
           : 0;
}
static tensor *lfm2_graph(build *b, tensor *x) {
  x = merged_patches(b, x);
  if (b->m->w[W_MM_INPUT_NORM].weight) x = norm_by(b, NULL, W_MM_INPUT_NORM, x, TORCH_EPS);
  return mlp(b, W_MM_1, W_MM_2, x);
}

// --- sound -----------------------------------------------------------------------------------------------------------

// Several frames become a row; the last one is padded with zeros.
static tensor *stacked_frames(const build *b, tensor *x) {
  int64_t frames = b->m->eye.frames / 2, by = b->m->eye.stack, rows = (frames + by - 1) / by, n = b->m->n_embd;
  x = t_pad(b->g, x, 0, 0, rows * by - frames);
  return t_reshape_i(b->g, x, 2, (int64_t[]){rows, by * n});
}

// ultravox: a gated product between two norms.
static int ultravox_load(loader *l) {
  model *m = l->m;
  if (key_count(l, "projector.stack_factor", 1, 64, &m->eye.stack)) return -1;
  int64_t in = (int64_t)m->eye.stack * m->n_embd;
  const gguf_tensor *t = gguf_tensor_find(l->f, "mm.a.mlp.2.weight");
  int64_t inner = t ? t->ne[0] : 1;
  return want_vector(l, NULL, W_MM_A_NORM_PRE, in, 0) || want_vector(l, NULL, W_MM_A_NORM_MID, inner, 0) ||
             want_matrix(l, NULL, W_MM_A_MLP_1, in, 2 * inner, 0) ||
             want_matrix(l, NULL, W_MM_A_MLP_2, inner, m->n_embd_out, 0)
           ? -1
           : 0;
}
static tensor *ultravox_graph(build *b, tensor *x) {
  graph *g = b->g;
  const double eps = 1e-6;                               // fixed: no key
  x = linear(b, NULL, W_MM_A_MLP_1, t_rmsnorm(g, stacked_frames(b, x), weight(b, NULL, W_MM_A_NORM_PRE), eps));
  int64_t n = x->shape->dim[1]->a / 2;
  x = t_mul(g, t_slice_i(g, x, 1, 0, n), t_silu(g, t_slice_i(g, x, 1, n, n)));
  return linear(b, NULL, W_MM_A_MLP_2, t_rmsnorm(g, x, weight(b, NULL, W_MM_A_NORM_MID), eps));
}

// voxtral: four frames are a row.
static int voxtral_load(loader *l) {
  model *m = l->m;
  const gguf_tensor *first = gguf_tensor_find(l->f, "mm.a.mlp.1.weight");
  return key_count(l, "projector.stack_factor", 1, 64, &m->eye.stack) ||
             want_mlp(l, W_MM_A_MLP_1, W_MM_A_MLP_2, (int64_t)m->eye.stack * m->n_embd, first ? first->ne[1] : 1, 0)
           ? -1
           : 0;
}
static tensor *voxtral_graph(build *b, tensor *x) { return mlp(b, W_MM_A_MLP_1, W_MM_A_MLP_2, stacked_frames(b, x)); }

// qwen2-audio: the mean of two frames is a row. A sound is a chunk of 30 seconds whose frames do not see the silence
// after it. It is convolved with that silence, as the model's processor pads.
static int qwen2a_load(loader *l) {
  projector_facts *f = &l->m->eye;
  if (l->m->projector->beyond) {
    f->chunk = f->frames;
    f->halvings = 1;
    f->chunk_window = f->frames / 2;
  }
  f->stack = l->m->projector->arch->pools;
  return want_matrix(l, NULL, W_MM_A_FC, l->m->n_embd, l->m->n_embd_out, WANT_BIAS);
}
// Qwen2.5-Omni: the same in chunks of two seconds, at most 15 of them.
static int qwen25o_load(loader *l) {
  projector_facts *f = &l->m->eye;
  *f = (projector_facts){.mel = f->mel, .merge = 1, .chunk = 200, .halvings = 1, .chunk_window = 100, .frames = 3000};
  return qwen2a_load(l);
}
static tensor *qwen2a_graph(build *b, tensor *x) { return linear(b, NULL, W_MM_A_FC, x); }

// qwen3a, of Qwen3-Omni and Qwen3-ASR: chunks of a second, three convolutions over frames and bins; attention is over 8
// chunks, so at most 8 run at once.
static int qwen3a_load(loader *l) {
  projector_facts *f = &l->m->eye;
  int64_t mel = f->mel, n = l->m->n_embd, bins = (((mel + 1) / 2 + 1) / 2 + 1) / 2;
  *f = (projector_facts){.mel = (int)mel, .merge = 1, .stack = 1, .chunk = 100, .halvings = 3, .chunk_window = 8 * 13,
                         .frames = 800};
  const gguf_tensor *t = gguf_tensor_find(l->f, "a.conv2d.1.weight");
  int64_t c = t ? min_i64(t->ne[3], 1 << 14) : 1;
  for (int i = 0; i < 3; i++)
    if (want(l, NULL, (enum tensor_id)(W_CONV2D_1 + 2 * i), 3, i ? 3 * c : 3, c, WANT_BARE | WANT_KERNEL) ||
        want(l, NULL, (enum tensor_id)(W_CONV2D_1_BIAS + 2 * i), 1, 1, c, WANT_BARE))
      return -1;
  return want_matrix(l, NULL, W_CONV_OUT, c * bins, n, 0) || want_mlp(l, W_MM_A_MLP_1, W_MM_A_MLP_2, n, n, WANT_BIAS)
           ? -1
           : 0;
}
static tensor *qwen3a_graph(build *b, tensor *x) { return mlp(b, W_MM_A_MLP_1, W_MM_A_MLP_2, x); }

// --- the table -------------------------------------------------------------------------------------------------------

#define SIGLIP {.name = "clip.vision", .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_QK_NORM_MAYBE, \
  .has = HAS_BIASES, .act = ACT_GELU_QUICK}
#define QWEN_VL {.name = "clip.vision", .flags = ARCH_NEOX | ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_QK_NORM_MAYBE, \
  .has = HAS_BIASES, .act = ACT_GELU_QUICK}
#define QWEN25_VL {.name = "clip.vision", .flags = ARCH_NEOX | ARCH_QK_NORM_MAYBE, \
  .has = HAS_QKV_BIAS | HAS_OUT_BIAS | HAS_FFN_BIAS, .act = ACT_SILU}
#define MOON {.name = "clip.vision", .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN, .has = HAS_BIASES, .act = ACT_GELU}
#define WHISPER {.name = "clip.audio", .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN | ARCH_QK_NORM_MAYBE, \
  .has = HAS_BIASES | HAS_BARE_KEYS, .act = ACT_GELU_ERF}
#define ARCH(...) .arch = &(const projector_arch){__VA_ARGS__}

static const projector_tiling
  rows_and_columns = {.tile = "<fake_token_around_image><row_%d_col_%d>",
                      .next_row = "\n",
                      .last_row = "\n\n",
                      .whole = "<fake_token_around_image><global-img>"},
  images = {.first_tile = "<slice>",
            .tile = "<image>",
            .after_tile = "</image>",
            .next_row = "\n",
            .last_row = "</slice>",
            .whole = "<image>",
            .after_whole = "</image>"},
  slices = {.tile = "<slice>",
            .after_tile = "</slice>",
            .next_row = "\n",
            .whole = "<image>",
            .after_whole = "</image>"},
  separators = {.next_column = "<|tile_x_separator|>",
                .next_row = "<|tile_y_separator|>",
                .last_row = "<|tile_y_separator|>",
                .whole = "<|image|>"},
  thumbnail = {.tile = "<|img_row_%d_col_%d|>", .whole = "<|img_thumbnail|>", .whole_of_tiles = true};

static const projector_kind kinds[] = {
  {.name = "gemma3",
   .span = SPAN_BOTH_WAYS,
   .before = "<start_of_image>",
   .after = "<end_of_image>",
   .preprocess = "gemma3",
   ARCH(.layers = SIGLIP, .load = gemma3_load, .graph = gemma3_graph)},
  {.name = "gemma3nv",   // the encoder makes the row that ends an image
   .before = "<start_of_image>",
   .preprocess = "gemma3n",
   ARCH(.layers = {.name = "clip.vision", .act = ACT_GELU}, .positions = POSITIONS_NONE, .load = mobilenet_load,
        .whole = mobilenet_graph)},
  {.name = "gemma4v",
   .span = SPAN_BOTH_WAYS,
   .before = "<|image>",
   .after = "<image|>",
   .preprocess = "gemma4",
   ARCH(.layers = {.name = "clip.vision",
                   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_V_NORM | ARCH_POST_NORMS,
                   .act = ACT_GELU,
                   .clipped = true,
                   .halves_apart = true},
        .own_act = true, .turns = true, .base = 100, .columns_first = true, .positions = POSITIONS_AXES,
        .doubled = true, .load = gemma4_load, .graph = gemma4_graph)},
  {.name = "qwen2.5vl_merger",
   .span = SPAN_GRID,
   .before = "<|vision_start|>",
   .after = "<|vision_end|>",
   .preprocess = "qwen2vl",
   ARCH(.layers = QWEN25_VL, .turns = true, .base = 10000, .positions = POSITIONS_NONE, .load = qwen25_load,
        .graph = qwen25_graph)},
  {.name = "qwen2vl_merger",
   .span = SPAN_GRID,
   .before = "<|vision_start|>",
   .after = "<|vision_end|>",
   .preprocess = "qwen2vl",
   ARCH(.layers = QWEN_VL, .sized_by_tensor = true, .turns = true, .base = 10000, .positions = POSITIONS_NONE,
        .load = qwen2_load, .graph = qwen25_graph)},
  {.name = "qwen2.5o",
   .span = SPAN_GRID,
   .before = "<|vision_bos|>",
   .after = "<|vision_eos|>",
   .preprocess = "qwen2vl",
   ARCH(.layers = QWEN25_VL, .turns = true, .base = 10000, .positions = POSITIONS_NONE, .load = qwen25_load,
        .graph = qwen25_graph)},
  {.name = "qwen3vl_merger",
   .span = SPAN_GRID,
   .before = "<|vision_start|>",
   .after = "<|vision_end|>",
   .preprocess = "qwen3vl",
   ARCH(.layers = QWEN_VL, .turns = true, .base = 10000, .positions = POSITIONS_STRETCHED, .load = qwen3_load,
        .behind = qwen3_behind, .graph = qwen3_graph)},
  {.name = "glm4v",
   .span = SPAN_GRID,
   .before = "<|begin_of_image|>",
   .after = "<|end_of_image|>",
   .preprocess = "glm4v",
   ARCH(.layers = {.name = "clip.vision", .flags = ARCH_NEOX | ARCH_QK_NORM_MAYBE, .act = ACT_SILU},
        .sized_by_tensor = true, .turns = true, .base = 10000, .positions = POSITIONS_CUBIC,
        .perhaps_placed = true, .load = glm4v_load, .graph = glm4v_graph)},
  {.name = "pixtral",
   .between = "[IMG_BREAK]",
   .after = "[IMG_END]",
   .preprocess = "pixtral",
   ARCH(.layers = {.name = "clip.vision", .flags = ARCH_QK_NORM_MAYBE, .act = ACT_SILU}, .exact_gelu = true,
        .turns = true, .base = 10000, .odd_columns = true, .positions = POSITIONS_NONE, .load = pixtral_load,
        .graph = pixtral_graph)},
  {.name = "idefics3",
   .tiling = &rows_and_columns,
   .after = "<fake_token_around_image>",
   .preprocess = "idefics3",
   ARCH(.layers = SIGLIP, .load = idefics3_load, .graph = idefics3_graph)},
  {.name = "internvl",
   .before = "<img>",
   .after = "</img>",
   .preprocess = "internvl",
   ARCH(.layers = {.name = "clip.vision",
                   .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN,
                   .has = HAS_NORM_BIAS | HAS_OUT_BIAS | HAS_FFN_BIAS,
                   .act = ACT_GELU_ERF},
        .bare = &(const arch){.name = "clip.vision",
                              .flags = ARCH_PLAIN_FFN | ARCH_QK_NORM_ALL,
                              .has = HAS_OUT_BIAS | HAS_FFN_BIAS,
                              .act = ACT_GELU_ERF},
        .exact_gelu = true, .class_row = CLASS_FIRST, .load = internvl_load, .graph = internvl_graph)},
  {.name = "minicpmv4_6",
   .tiling = &slices,
   .numbered = {"<image_id>", "</image_id>"},
   .preprocess = "minicpmv",
   ARCH(.layers = SIGLIP, .positions = POSITIONS_NEAREST, .load = minicpm_load, .behind = minicpm_behind,
        .graph = minicpm_graph)},
  {.name = "resampler",
   .newest = 2,
   .tiling = &images,
   .preprocess = "minicpmv",
   ARCH(.layers = SIGLIP, .last = "resampler.proj.weight", .positions = POSITIONS_NEAREST, .load = resampler_load,
        .graph = resampler_graph)},
  {.name = "resampler",
   .tiling = &slices,
   .numbered = {"<image_id>", "</image_id>"},
   .preprocess = "minicpmv",
   ARCH(.layers = SIGLIP, .last = "resampler.proj.weight", .positions = POSITIONS_NEAREST, .load = resampler_load,
        .graph = resampler_graph)},
  {.name = "llama4",
   .tiling = &separators,
   .before = "<|image_start|>",
   .after = "<|image_end|>",
   .preprocess = "llama4",
   ARCH(.layers = {.name = "clip.vision",
                   .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN,
                   .has = HAS_BIASES,
                   .act = ACT_GELU_ERF},
        .exact_gelu = true, .turns = true, .base = 10000, .columns_first = true, .from_one = true,
        .class_row = CLASS_LAST, .load = llama4_load, .graph = llama4_graph)},
  // the converter does not permute queries and keys: pairs rotate by columns and lines alternately
  {.name = "kimivl",
   .before = "<|media_start|>image<|media_content|>",
   .after = "<|media_end|>",
   .preprocess = "kimivl",
   ARCH(.layers = MOON, .own_act = true, .turns = true, .base = 10000, .columns_first = true, .alternate = true,
        .positions = POSITIONS_CUBIC, .load = kimi_load, .graph = kimi_graph)},
  {.name = "kimik25",
   .before = "<|media_begin|>image<|media_content|>",
   .after = "<|media_end|>",
   .preprocess = "kimik25",
   ARCH(.layers = MOON, .own_act = true, .turns = true, .base = 10000, .columns_first = true,
        .positions = POSITIONS_CUBIC, .load = kimi_load, .graph = kimi_graph)},
  {.name = "paddleocr",
   .span = SPAN_GRID,
   .before = "<|IMAGE_START|>",
   .after = "<|IMAGE_END|>",
   .preprocess = "paddleocr",
   ARCH(.layers = {.name = "clip.vision",
                   .flags = ARCH_NEOX | ARCH_LAYER_NORM | ARCH_PLAIN_FFN,
                   .has = HAS_BIASES,
                   .act = ACT_GELU},
        .turns = true, .base = 10000, .positions = POSITIONS_LINEAR, .load = kimi_load, .graph = paddleocr_graph)},
  {.name = "lfm2",
   .tiling = &thumbnail,
   .before = "<|image_start|>",
   .after = "<|image_end|>",
   .preprocess = "lfm2",
   ARCH(.layers = SIGLIP, .positions = POSITIONS_SMOOTH, .load = lfm2_load, .graph = lfm2_graph)},
  {.name = "mlp",
   .preprocess = "llava",
   ARCH(.layers = SIGLIP, .exact_gelu = true, .last = "mm.2.weight", .class_row = CLASS_FIRST, .load = llava_load,
        .graph = llava_graph)},
  {.name = "ultravox",
   .medium = MEDIUM_SOUND,
   ARCH(.layers = WHISPER, .own_act = true, .load = ultravox_load, .graph = ultravox_graph)},
  {.name = "voxtral",
   .medium = MEDIUM_SOUND,
   .before = "[BEGIN_AUDIO]",
   ARCH(.layers = WHISPER, .own_act = true, .load = voxtral_load, .graph = voxtral_graph)},
  {.name = "qwen2a",
   .medium = MEDIUM_SOUND,
   .before = "<|audio_bos|>",
   .after = "<|audio_eos|>",
   .beyond = 2,
   ARCH(.layers = WHISPER, .own_act = true, .pools = 2, .chunks = chunk_frames, .load = qwen2a_load,
        .graph = qwen2a_graph)},
  {.name = "qwen3a",
   .medium = MEDIUM_SOUND,
   .before = "<|audio_start|>",
   .after = "<|audio_end|>",
   .mirrored = true,
   ARCH(.layers = {.name = "clip.audio",
                   .flags = ARCH_LAYER_NORM | ARCH_PLAIN_FFN,
                   .has = HAS_BIASES,
                   .act = ACT_GELU_ERF},
        .own_act = true, .chunks = chunk_squares, .load = qwen3a_load, .graph = qwen3a_graph)},
  {.name = "gemma4a",
   .medium = MEDIUM_SOUND,
   .before = "<|audio>",
   .after = "<audio|>",
   .gemma_mel = true,
   ARCH(.layers = {.name = "clip.audio", .flags = ARCH_POST_NORMS, .act = ACT_SILU, .clipped = true}, .own_act = true,
        .positions = POSITIONS_NONE, .chunks = conformer_frames, .load = conformer_load, .before = conformer_before,
        .behind = conformer_behind, .graph = conformer_graph)},
  {.name = "qwen2.5o",
   .medium = MEDIUM_SOUND,
   .before = "<|audio_bos|>",
   .after = "<|audio_eos|>",
   ARCH(.layers = WHISPER, .own_act = true, .pools = 2, .chunks = chunk_frames, .load = qwen25o_load,
        .graph = qwen2a_graph)},
};

const projector_kind *projector_at(size_t i) { return i < COUNT(kinds) ? &kinds[i] : NULL; }
