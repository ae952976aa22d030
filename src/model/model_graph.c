// The decoder as a tensor graph: embedding, layers, head. Written as one would write it on paper; which of it becomes a
// kernel is the scheduler's business.
#include <stdlib.h>
#include "model/dequant.h"
#include "model/model_impl.h"
#include "model/stored.h"

static tensor *tensor_at(const build *b, int at) {
  if (!at) return NULL;
  const gguf_tensor *t = gguf_tensor_at(b->m->file, (size_t)at - 1);
  tensor *w = dequant(b->g, t->format, at - 1, t->ne[1] * t->ne[2] * t->ne[3], t->ne[0]);
  return t->n_dims == 1 ? t_reshape(b->g, w, 1, &w->shape->dim[1]) : w;
}

static const tensor_ref *ref(const build *b, const layer *y, enum tensor_id id) { return y ? &y->w[id] : &b->m->w[id]; }

tensor *weight(const build *b, const layer *y, enum tensor_id id) { return tensor_at(b, ref(b, y, id)->weight); }

tensor *bias(const build *b, const layer *y, enum tensor_id id) { return tensor_at(b, ref(b, y, id)->bias); }
tensor *scale(const build *b, const layer *y, enum tensor_id id) { return tensor_at(b, ref(b, y, id)->scale); }

void store_sums(const build *b, int weight, int which, tensor *sums) {
  int64_t n = 1;
  for (int i = 0; i < sums->shape->n; i++) n *= sums->shape->dim[i]->a;
  tensor *to = t_buffer(b->g, model_buffer_id(b->m->file, BUF_SUMS + 2 * (weight - 1) + which), DT_F32, n);
  // a matrix that is used twice: what goes in first counts
  for (size_t i = 0; i < b->effects->n; i++) if (b->effects->at[i]->src[0] == to) return;
  vec_push(b->effects, t_assign(b->g, to, t_reshape_i(b->g, sums, 1, &n)));
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
  tensor *out = t_matmul(b->g, x, weight(b, y, id));
  // scale: of the whole tensor, as NVFP4 files have them
  tensor *bias = tensor_at(b, r->bias), *scale = tensor_at(b, r->scale);
  if (scale) out = t_mul(b->g, out, scale);
  out = adapt(b, r->weight, x, out);
  return bias ? t_add(b->g, out, bias) : out;
}

tensor *norm(const build *b, const layer *y, enum tensor_id id, tensor *x) {
  if (!id) return x;
  bool centred = b->m->arch->flags & ARCH_LAYER_NORM;
  tensor *w = weight(b, y, id), *bias = tensor_at(b, ref(b, y, id)->bias);
  x = centred ? t_layernorm(b->g, x, w, b->m->eps) : t_rmsnorm(b->g, x, w, b->m->eps);
  return bias ? t_add(b->g, x, bias) : x;
}

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
  if (post) out = norm(b, y, post, makes_several(b->g, out));
  return scaled(b, out, b->m->residual_scale);
}

// What flows on is stored, and its norm where that is what flows on.
static tensor *finished(const build *b, const layer *y, tensor *x, enum tensor_id last) {
  x = flows_on(b->g, x);
  return last ? norm(b, y, last, x) : x;
}

// Sums over what flows from layer to layer have one form for one token and for many.
tensor *through(build *b, const layer *y, tensor *x) {
  graph *g = b->g;
  tensor *in = x;
  b->router_in = b->m->arch->flags & ARCH_EARLY_ROUTER ? x : NULL;
  if (y->mixer && y->ff && b->m->parallel) {
    tensor *read = norm(b, y, y->mixer_norm, x), *ff_in = y->ff_norm ? norm(b, y, y->ff_norm, x) : read;
    return flows_on(
      g, t_add(g, t_add(g, x, part_of(b, y, y->mixer, read, y->mixer_post)), part_of(b, y, y->ff, ff_in, y->ff_post)));
  }
  if (y->mixer)
    x =
      finished(b, y, t_add(g, x, part_of(b, y, y->mixer, norm(b, y, y->mixer_norm, x), y->mixer_post)), y->mixer_last);
  if (y->mixer_again) x = finished(b, y, t_add(g, x, in), y->mixer_again);
  if (y->ff) x = finished(b, y, t_add(g, x, part_of(b, y, y->ff, norm(b, y, y->ff_norm, x), y->ff_post)), y->ff_last);
  if (b->m->n_own) x = flows_on(g, t_add(g, x, per_layer_adds(b, y, x)));
  if (y->w[W_LAYER_OUTPUT_SCALE].weight) x = t_mul(g, x, weight(b, y, W_LAYER_OUTPUT_SCALE));
  return y->halved ? t_scale(g, x, 0.5) : x;
}

// What the head would read, of every position.
static tensor *hidden_of(const build *b, tensor *x) {
  graph *g = b->g;
  const model *m = b->m;
  int64_t n = model_n_embd(m);
  x = norm(b, NULL, m->output_norm, altup_leave(b, x));
  // of each token, as of their mean: both are linear
  if (m->w[W_DENSE_2].weight) x = linear(b, NULL, W_DENSE_3, linear(b, NULL, W_DENSE_2, x));
  if (m->pooling == POOLING_RANK) x = ranking(b, x);
  tensor *rows = t_reshape_i(g, t_buffer(g, model_buffer_id(m->file, BUF_HIDDEN), DT_F32, b->s->chunk * n), 2,
                             (int64_t[]){b->s->chunk, n});
  return t_assign(g, t_slice(g, rows, 0, uop_idx(g, 0), b->T), x);
}

// Of the tokens whose logits are wanted: how many there are, where not all or the last one are.
static uop *n_wanted(const build *b) { return b->s->rows ? uop_var(b->g, "rows", 1, b->s->rows) : b->T; }

static tensor *wanted(const build *b, tensor *x) {
  graph *g = b->g;
  if (b->s->logits != LOGITS_ALL) return t_slice(g, x, 0, idx_sub(g, b->T, uop_idx(g, 1)), uop_idx(g, 1));
  return b->s->rows ? t_slice(g, x, 0, uop_idx(g, 0), n_wanted(b)) : x;
}

enum tensor_id head_of(const model *m) { return m->w[W_OUTPUT].weight ? W_OUTPUT : W_TOKEN_EMBD; }

tensor *logits_of(const build *b, const layer *y, enum tensor_id head, tensor *x) {
  graph *g = b->g;
  const model *m = b->m;
  bool all = b->s->logits == LOGITS_ALL;
  tensor *logits = linear(b, y, head, x);
  if (!all) logits = t_reshape_i(g, logits, 1, (int64_t[]){m->n_vocab});
  logits = soft_cap(b, scaled(b, logits, m->logit_scale), m->logit_cap);
  if (!all) return t_assign(g, t_buffer(g, model_buffer_id(m->file, BUF_LOGITS), DT_F32, m->n_vocab), logits);
  tensor *rows = t_reshape_i(g, t_buffer(g, model_buffer_id(m->file, BUF_ROWS), DT_F32, b->s->chunk * m->n_vocab), 2,
                             (int64_t[]){b->s->chunk, m->n_vocab});
  return t_assign(g, t_slice(g, rows, 0, uop_idx(g, 0), n_wanted(b)), logits);
}

// What the graph is for, made of what leaves the last layer.
static void finish_graph(build *b, tensor *x) {
  const model *m = b->m;
  if (m->mtp) mtp_keep(b, x);
  if (!b->s->logits) return;
  vec_push(b->effects, b->s->logits == LOGITS_HIDDEN
                         ? hidden_of(b, x)
                         : logits_of(b, NULL, head_of(m), norm(b, NULL, m->output_norm, altup_leave(b, wanted(b, x)))));
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

// Where the tokens stand: their positions, and the pages of their sequences.
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
}

tensor *token_ids(const build *b) {
  tensor *ids = t_buffer(b->g, model_buffer_id(b->m->file, BUF_IDS), DT_I32, b->s->chunk);
  return t_slice(b->g, ids, 0, uop_idx(b->g, 0), b->T);
}

tensor *embedding(const build *b, const layer *y, enum tensor_id id, tensor *ids) {
  return scaled(b, t_gather(b->g, weight(b, y, id), ids), b->m->embedding_scale);
}

// The tokens as the first layer reads them.
static tensor *embedded(build *b) {
  graph *g = b->g;
  const model *m = b->m;
  tensor *ids = token_ids(b), *x = embedding(b, NULL, W_TOKEN_EMBD, ids);
  // all tokens of a text are of its first type
  if (m->w[W_TOKEN_TYPES].weight) x = t_add(g, x, t_slice_i(g, weight(b, NULL, W_TOKEN_TYPES), 0, 0, 1));
  if (m->w[W_POSITION_EMBD].weight) x = t_add(g, x, t_gather(g, weight(b, NULL, W_POSITION_EMBD), b->at));
  if (m->arch->flags & ARCH_EMBD_NORM) x = norm(b, NULL, W_TOKEN_EMBD_NORM, x);
  x = flows_on(g, x);           // no kernel of a layer looks up and unpacks rows of a quantised matrix again
  per_layer_enter(b, ids, x);
  return altup_enter(b, x);
}

// Of this run's tokens, what flows from one graph's layers to the next one's: {T, n_embd}.
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
  if (s->mtp) {
    mtp_predict(&b);
  } else {
    tensor *x = from ? stream_between(&b) : embedded(&b);
    for (int i = from; i < to; i++)
      x = m->n_rows ? altup_through(&b, &m->layers[i], x) : through(&b, &m->layers[i], x);
    if (to < m->n_layer) vec_push(b.effects, t_assign(g, stream_between(&b), x));
    else finish_graph(&b, x);
  }
  uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, all.at, all.n, (uarg){0});
  vec_free(&all);
  free(b.kept);
  return sink;
}
