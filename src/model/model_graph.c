// The decoder as a tensor graph: embedding, layers, head. It is written as the formulas are; the scheduler decides
// which expressions become kernels.
#include <stdlib.h>
#include "base/attempt.h"
#include "model/dequant.h"
#include "model/model_impl.h"
#include "model/stored.h"

// {n} or {rows, n}
static tensor *tensor_at(const build *b, int at, bool is_vector) {
  if (!at) return NULL;
  const gguf_tensor *t = gguf_tensor_at(b->m->file, (size_t)at - 1);
  attempt_about("tensor", t->name);
  tensor *w = dequant(b->g, t->format, at - 1, t->ne[1] * t->ne[2] * t->ne[3], t->ne[0]);
  return is_vector ? t_reshape(b->g, w, 1, &w->shape->dim[1]) : w;
}

static const tensor_ref *ref(const build *b, const layer *y, enum tensor_id id) { return y ? &y->w[id] : &b->m->w[id]; }

tensor *weight(const build *b, const layer *y, enum tensor_id id) {
  const tensor_ref *r = ref(b, y, id);
  return tensor_at(b, r->weight, r->weight_is_vector);
}

tensor *bias(const build *b, const layer *y, enum tensor_id id) {
  const tensor_ref *r = ref(b, y, id);
  return tensor_at(b, r->bias, r->bias_is_vector);
}

tensor *scale(const build *b, const layer *y, enum tensor_id id) { return tensor_at(b, ref(b, y, id)->scale, true); }

void store_sums(const build *b, int weight, int which, tensor *sums) {
  int64_t n = 1;
  for (int i = 0; i < sums->shape->n; i++) n *= sums->shape->dim[i]->a;
  tensor *to = t_buffer(b->g, model_buffer_id(b->m->file, BUF_SUMS + 2 * (weight - 1) + which), DT_F32, n);
  // If a matrix is used twice, its first input counts.
  for (size_t i = 0; i < b->effects->n; i++) if (b->effects->at[i]->src[0] == to) return;
  vec_push(b->effects, t_assign(b->g, to, t_reshape_i(b->g, sums, 1, &n)));
}

// Limits of a product's input (from 0 on) or output (from 2 on), if the file has them.
static tensor *clipped(const build *b, const tensor_ref *r, int from, tensor *x) {
  if (r->clip[from]) x = t_op2(b->g, OP_MAX, x, tensor_at(b, r->clip[from], true));
  return r->clip[from + 1] ? t_op2(b->g, OP_MIN, x, tensor_at(b, r->clip[from + 1], true)) : x;
}

// The weight of a product. Half-precision weights that are exact in BF16 are multiplied as BF16.
static tensor *product_weight(const build *b, const layer *y, enum tensor_id id) {
  tensor *w = weight(b, y, id);
  int at = ref(b, y, id)->weight;
  return b->m->fits_bf16 && b->m->fits_bf16[at - 1] ? t_cast(b->g, t_cast(b->g, w, DT_BF16), DT_F32) : w;
}

tensor *linear(const build *b, const layer *y, enum tensor_id id, tensor *x) {
  const tensor_ref *r = ref(b, y, id);
  if (b->s->sums) {
    int last = x->shape->n - 1;
    uop *tokens = uop_idx(b->g, 1);
    for (int i = 0; i < last; i++) tokens = idx_mul(b->g, tokens, x->shape->dim[i]);
    tensor *rows = t_reshape(b->g, x, DIMS(tokens, x->shape->dim[last]));
    store_sums(b, r->weight, 0, t_reduce(b->g, t_mul(b->g, rows, rows), OP_ADD, 0));
  }
  x = clipped(b, r, 0, x);
  tensor *out = t_matmul(b->g, x, product_weight(b, y, id));
  // the scale of a whole tensor, as in NVFP4 files
  tensor *add = bias(b, y, id), *by = scale(b, y, id);
  if (by) out = t_mul(b->g, out, by);
  out = adapt(b, r->weight, x, out);
  if (y && b->m->switcher.n) out = switch_adds(b, y, id, x, out);
  return clipped(b, r, 2, add ? t_add(b->g, out, add) : out);
}

tensor *norm_by(const build *b, const layer *y, enum tensor_id id, tensor *x, double eps) {
  if (!id) return x;
  bool own = b->m->arch->centred_heads && (id == W_ATTN_Q_NORM || id == W_ATTN_K_NORM),
       centred = own || (b->m->arch->flags & ARCH_LAYER_NORM && !b->m->rms_norms);
  if (own) eps = 1e-5;
  tensor *w = weight(b, y, id), *add = bias(b, y, id);
  x = centred ? t_layernorm(b->g, x, w, eps) : t_rmsnorm(b->g, x, w, eps);
  return add ? t_add(b->g, x, add) : x;
}

tensor *norm(const build *b, const layer *y, enum tensor_id id, tensor *x) { return norm_by(b, y, id, x, b->m->eps); }

tensor *soft_cap(const build *b, tensor *x, double cap) {             // tanh u = 1 - 2 / (exp(2u) + 1)
  graph *g = b->g;
  if (cap == 0) return x;
  tensor *e = t_add(g, t_exp(g, t_scale(g, x, 2 / cap)), t_float(g, 1));
  return t_sub(g, t_float(g, cap), t_op2(g, OP_FDIV, t_float(g, 2 * cap), e));
}

static tensor *scaled(const build *b, tensor *x, double by) { return by == 1 ? x : t_scale(b->g, x, by); }

tensor *state_buffer(const build *b, const layer *y, int i) {
  const state_kind *k = &b->m->states.at[y->state + i];
  int64_t n = k->per_position ? k->per_position * b->s->page * b->s->pages : k->fixed * b->s->slots;
  return t_buffer(b->g, model_buffer_id(b->m->file, BUF_STATE + y->state + i), k->dtype, n);
}

tensor *state_slot(const build *b, const layer *y, int i, tensor *all) {
  int64_t n = b->m->states.at[y->state + i].fixed;
  return t_reshape_i(b->g, t_gather(b->g, t_reshape_i(b->g, all, 2, (int64_t[]){b->s->slots, n}), b->slot), 1, &n);
}

// What a part adds to the stream.
static tensor *part_of(build *b, const layer *y, const part *p, tensor *x, enum tensor_id post) {
  tensor *out = p->graph(b, y, x);
  double eps = b->m->arch->post_eps;
  if (post) out = norm_by(b, y, post, out, eps != 0 ? eps : b->m->eps);
  return b->m->arch->carries_norms ? out : scaled(b, out, b->m->residual_scale);
}

// The stream x and what a part makes of its norm
static tensor *plus_part(build *b, const layer *y, const part *p, const enum tensor_id norms[2], tensor *x) {
  graph *g = b->g;
  tensor *in = norm(b, y, norms[0], x);
  if (b->m->arch->carries_norms) x = scaled(b, in = flows_on(g, in), b->m->residual_scale);
  return t_add(g, x, part_of(b, y, p, in, norms[1]));
}

static tensor *by_layer_factor(const build *b, const layer *y, tensor *x) {
  tensor *factor = weight(b, y, W_LAYER_OUTPUT_SCALE);
  return b->m->arch->skips ? t_add(b->g, x, t_mul(b->g, b->embedded, factor)) : t_mul(b->g, x, factor);
}

// Sums over the stream between layers have the same form for one token and for many.
tensor *through(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  b->entered = x;
  b->router_in = b->m->arch->flags & ARCH_EARLY_ROUTER ? x : NULL;
  if (y->mixer && y->ff && b->m->parallel) {
    tensor *read = norm(b, y, y->mixer_norm, x), *ff_in = y->ff_norm ? norm(b, y, y->ff_norm, x) : read;
    x = t_add(g, t_add(g, x, part_of(b, y, y->mixer, read, y->mixer_post)), part_of(b, y, y->ff, ff_in, y->ff_post));
    return controlled(b, y, x);
  }
  if (y->mixer)
    x = norm(b, y, y->mixer_last,
             plus_part(b, y, y->mixer, (enum tensor_id[]){y->mixer_norm, y->mixer_post}, x));
  if (y->cross) x = t_add(g, x, part_of(b, y, y->cross, norm(b, y, W_CROSS_ATTN_NORM, x), W_NONE));
  if (y->mixer_again) x = norm(b, y, y->mixer_again, t_add(g, x, b->entered));
  if (y->ff)
    x = norm(b, y, y->ff_last, plus_part(b, y, y->ff, (enum tensor_id[]){y->ff_norm, y->ff_post}, x));
  if (b->m->n_own) x = t_add(g, x, per_layer_adds(b, y, x));
  if (y->w[W_LAYER_OUTPUT_SCALE].weight) x = by_layer_factor(b, y, x);
  x = controlled(b, y, y->halved ? t_scale(g, x, 0.5) : x);
  return y->leaves ? norm(b, NULL, y->leaves, x) : x;
}

// The input of the head at every position.
static tensor *hidden_of(const build *b, tensor *x) {
  graph *g = b->g;
  const model *m = b->m;
  int64_t n = model_n_embd(m);
  x = norm(b, NULL, m->n_encoder ? W_ENC_OUTPUT_NORM : m->output_norm, hyper_leave(b, altup_leave(b, x)));
  // applied to each token instead of to their mean: both are linear
  if (m->w[W_DENSE_2].weight) x = linear(b, NULL, W_DENSE_3, linear(b, NULL, W_DENSE_2, x));
  if (m->pooling == POOLING_RANK) x = ranking(b, x);
  tensor *rows = t_reshape_i(g, t_buffer(g, model_buffer_id(m->file, BUF_HIDDEN), DT_F32, b->s->chunk * n), 2,
                             (int64_t[]){b->s->chunk, n});
  return t_assign(g, t_slice(g, rows, 0, uop_idx(g, 0), b->T), x);
}

// The number of tokens whose logits are wanted, if it is neither all nor only the last one.
static uop *n_wanted(const build *b) { return b->s->rows ? uop_var(b->g, "rows", 1, b->s->rows) : b->T; }

static tensor *wanted(const build *b, tensor *x) {
  graph *g = b->g;
  if (b->s->logits != LOGITS_ALL) return t_slice(g, x, 0, idx_sub(g, b->T, uop_idx(g, 1)), uop_idx(g, 1));
  return b->s->rows ? t_slice(g, x, 0, uop_idx(g, 0), n_wanted(b)) : x;
}

enum tensor_id head_of(const model *m) { return m->w[W_OUTPUT].weight ? W_OUTPUT : W_TOKEN_EMBD; }

// Tokens that cannot appear in text, such as image tokens, get the least logit, whatever other options add or subtract.
static tensor *without_banned(const build *b, tensor *logits) {
  graph *g = b->g;
  const model *m = b->m;
  if (m->banned_from == m->banned_to) return logits;
  tensor *id = t_iota(g, uop_idx(g, m->n_vocab)), *least = t_float(g, -1e30);
  tensor *behind = t_where(g, t_op2(g, OP_CMPLT, id, uop_idx(g, m->banned_to)), least, logits);
  return t_where(g, t_op2(g, OP_CMPLT, id, uop_idx(g, m->banned_from)), logits, behind);
}

tensor *logits_of(const build *b, const layer *y, enum tensor_id head, tensor *x) {
  graph *g = b->g;
  const model *m = b->m;
  bool all = b->s->logits == LOGITS_ALL;
  tensor *logits = without_banned(b, linear(b, y, head, x));
  if (!all) logits = t_reshape_i(g, logits, 1, (int64_t[]){m->n_vocab});
  logits = soft_cap(b, scaled(b, logits, m->logit_scale), m->logit_cap);
  if (!all) return t_assign(g, t_buffer(g, model_buffer_id(m->file, BUF_LOGITS), DT_F32, m->n_vocab), logits);
  tensor *rows = t_reshape_i(g, t_buffer(g, model_buffer_id(m->file, BUF_ROWS), DT_F32, b->s->chunk * m->n_vocab), 2,
                             (int64_t[]){b->s->chunk, m->n_vocab});
  return t_assign(g, t_slice(g, rows, 0, uop_idx(g, 0), n_wanted(b)), logits);
}

// Adds the outputs of the graph to the output of the last layer.
static void finish_graph(build *b, tensor *x) {
  const model *m = b->m;
  if (m->mtp) mtp_keep(b, x);
  if (m->draft) draft_keep(b);
  if (!b->s->logits) return;
  if (b->scales && b->s->logits != LOGITS_HIDDEN) b->scales = wanted(b, b->scales);
  vec_push(b->effects, b->s->logits == LOGITS_HIDDEN
                         ? hidden_of(b, x)
                         : logits_of(b, NULL, head_of(m),
                                     norm(b, NULL, m->output_norm, hyper_leave(b, altup_leave(b, wanted(b, x))))));
}

tensor *cache_rows(const build *b, tensor *at, int group) {
  graph *g = b->g;
  tensor *size = uop_idx(g, b->s->page), *nth = t_op2(g, OP_IDIV, at, size), *last = uop_idx(g, b->s->pages - 1);
  if (b->s->apart) {
    tensor *first = first_page_apart(b, b->m->group_window[group]);
    if (first) nth = t_sub(g, nth, first);
    nth = t_add(g, b->entry, nth);
  }
  if (group) nth = t_add(g, nth, uop_idx(g, group * (b->s->ctx / b->s->page + 1)));
  tensor *page = t_cast(g, t_gather(g, b->table, nth), DT_IDX);
  page = t_op2(g, OP_MIN, t_op2(g, OP_MAX, page, uop_idx(g, 0)), last);
  return t_add(g, t_mul(g, page, size), t_op2(g, OP_MOD, at, size));
}

// The values of a buffer for this run's tokens: {T}, or {T, n}.
static tensor *of_tokens(const build *b, int buffer, enum dtype dt, int64_t n) {
  graph *g = b->g;
  tensor *all = t_buffer(g, model_buffer_id(b->m->file, buffer), dt, b->s->chunk * n);
  if (n > 1) all = t_reshape_i(g, all, 2, (int64_t[]){b->s->chunk, n});
  return t_slice(g, all, 0, uop_idx(g, 0), b->T);
}

// The places of the tokens: their positions, and the pages of their sequences.
static void find_positions(build *b) {
  graph *g = b->g;
  const model_shape *s = b->s;
  int64_t table = s->ctx / s->page + 1, groups = max_i64(b->m->n_groups, 1), rows = s->apart ? s->chunk : 1;
  tensor *row = t_iota(g, b->T);
  b->table = t_buffer(g, model_buffer_id(b->m->file, BUF_PAGES), DT_I32, rows * groups * table);
  if (s->apart) {
    tensor *at =
      t_cast(g, t_slice(g, t_buffer(g, model_buffer_id(b->m->file, BUF_AT), DT_I32, s->chunk), 0, uop_idx(g, 0), b->T),
             DT_IDX);
    b->at = t_op2(g, OP_MIN, t_op2(g, OP_MAX, at, uop_idx(g, 0)), uop_idx(g, s->ctx - 1));
    b->n_pages = uop_var(g, "pages", 1, table - 1);
    b->pages = t_slice(g, t_reshape_i(g, b->table, 3, (int64_t[]){rows, groups, table}), 0, uop_idx(g, 0), b->T);
    b->entry = t_mul(g, row, uop_idx(g, groups * table));
  } else {
    b->pos = b->m->arch->encoder ? uop_idx(g, 0) : uop_var(g, "pos", 0, s->ctx - s->chunk);
    b->C = idx_add(g, b->pos, b->T);
    b->at = t_add(g, row, b->pos);
    b->slot = t_buffer(g, model_buffer_id(b->m->file, BUF_SLOT), DT_I32, 1);
    b->pages = t_reshape_i(g, b->table, 2, (int64_t[]){groups, table});
  }
  for (int i = 0; i < groups; i++) b->rows[i] = cache_rows(b, b->at, i);
  if (s->adapted)
    b->scales = t_reshape(g, of_tokens(b, BUF_SCALES, DT_F32, b->m->n_adapters),
                          DIMS(b->T, uop_idx(g, b->m->n_adapters)));
  if (b->m->n_encoder) b->source = t_cast(g, of_tokens(b, BUF_SOURCE, DT_I32, 1), DT_IDX);
  if (s->both) b->last = t_cast(g, of_tokens(b, BUF_LAST, DT_I32, 1), DT_IDX);
  for (int i = 0; i < 3 && model_has_sections(b->m); i++)
    b->turns[i] = t_reshape(g, t_slice_i(g, of_tokens(b, BUF_TURNS, DT_I32, 3), 1, i, 1), DIMS(b->T));
}

static tensor *raw_ids(const build *b) { return of_tokens(b, BUF_IDS, DT_I32, 1); }

tensor *token_ids(const build *b) {
  tensor *ids = raw_ids(b);
  return b->s->floats ? t_op2(b->g, OP_MAX, ids, uop_int(b->g, DT_I32, 0)) : ids;
}

static void find_floats(build *b) {
  graph *g = b->g;
  if (!b->s->floats) return;
  b->is_floats = t_reshape(g, t_op2(g, OP_CMPLT, raw_ids(b), uop_int(g, DT_I32, 0)), DIMS(b->T, uop_idx(g, 1)));
  b->floats = of_tokens(b, BUF_FLOATS, DT_F32, model_n_floats(b->m));
}

// The i-th part of rows of floats
static tensor *floats_part(const build *b, int i) {
  return t_slice_i(b->g, b->floats, 1, (int64_t)i * b->m->n_embd, b->m->n_embd);
}

// Adds the part of the rows of floats that belongs to layer i to the layer's output.
static tensor *deepened(const build *b, int i, tensor *x) {
  graph *g = b->g;
  if (!b->floats || i >= b->m->n_deep) return x;
  return flows_on(g, t_add(g, x, t_where(g, b->is_floats, floats_part(b, i + 1), t_float(g, 0))));
}

tensor *embedding(const build *b, const layer *y, enum tensor_id id, tensor *ids) {
  tensor *rows = adapt_rows(b, ref(b, y, id)->weight, ids, t_gather(b->g, weight(b, y, id), ids));
  return scaled(b, rows, b->m->embedding_scale);
}

tensor *with_floats(const build *b, tensor *x) {
  return b->is_floats ? t_where(b->g, b->is_floats, floats_part(b, 0), x) : x;
}

// The input of the first layer.
static tensor *embedded(build *b) {
  graph *g = b->g;
  const model *m = b->m;
  tensor *ids = switch_ids(b, token_ids(b)), *x = embedding(b, NULL, W_TOKEN_EMBD, ids);
  x = with_floats(b, x);
  // all tokens of a text have the first type
  if (m->w[W_TOKEN_TYPES].weight) x = t_add(g, x, t_slice_i(g, weight(b, NULL, W_TOKEN_TYPES), 0, 0, 1));
  if (m->w[W_POSITION_EMBD].weight) x = t_add(g, x, t_gather(g, weight(b, NULL, W_POSITION_EMBD), b->at));
  if (m->arch->flags & ARCH_EMBD_NORM) x = norm(b, NULL, W_TOKEN_EMBD_NORM, x);
  b->embedded = x;
  per_layer_enter(b, ids, x);
  return hyper_enter(b, altup_enter(b, x));
}

// For this run's tokens, the stream from one graph's layers to the next graph's: {T, n_embd}.
static tensor *stream_between(const build *b) {
  int64_t n = model_n_stream(b->m), rows = b->s->chunk;
  tensor *all = t_buffer(b->g, model_buffer_id(b->m->file, BUF_STREAM), DT_F32, rows * n);
  return t_slice(b->g, t_reshape_i(b->g, all, 2, (int64_t[]){rows, n}), 0, uop_idx(b->g, 0), b->T);
}

uop *model_graph(const model *m, graph *g, const model_shape *s) {
  effects all = {0};
  build b = {.m = m, .s = s, .g = g, .effects = &all, .kept = xcalloc((size_t)model_n_blocks(m), sizeof *b.kept)};
  int from = s->layers.from, to = s->layers.to ? s->layers.to : m->n_layer;
  b.T = s->chunk > 1 ? uop_var(g, "n", 1, s->chunk) : uop_idx(g, 1);
  find_positions(&b);
  rope_tables(&b);
  find_floats(&b);
  if (s->mtp && m->draft) {
    draft_predict(&b);
  } else if (s->mtp) {
    mtp_predict(&b);
  } else if (m->n_encoder && s->floats) {
    source_keep(&b);
  } else if (m->n_encoder && s->logits == LOGITS_HIDDEN) {
    finish_graph(&b, source_through(&b, embedded(&b)));
  } else {
    tensor *x = from ? stream_between(&b) : embedded(&b);
    if (m->stacks.n) x = stacks_through(&b, x);
    for (int i = from; i < to && !m->stacks.n; i++) {
      draft_read(&b, i, x);
      x = m->n_rows    ? altup_through(&b, &m->layers[i], x)
          : m->hyper.n    ? hyper_through(&b, &m->layers[i], x)
          : m->bank_every ? residual_bank_through(&b, &m->layers[i], x)
                       : through(&b, &m->layers[i], x);
      x = deepened(&b, i, x);
    }
    draft_read(&b, m->n_layer, x);
    if (m->bank_every) x = residual_bank_leave(&b, x);
    if (to < m->n_layer) vec_push(b.effects, t_assign(g, stream_between(&b), x));
    else finish_graph(&b, x);
  }
  uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, all.at, all.n, (uarg){0});
  vec_free(&all);
  free(b.kept);
  return sink;
}
