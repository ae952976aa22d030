// Draft files: models that only draft tokens for another model, the target, from what leaves some of its layers. They
// are rows of the table of architectures, opened by model_open and given to the target by model_take_draft.
//
// A chain (EAGLE-3) has one layer, which predicts the token after the next one. It reads the embedding of the next
// token and the target's rows of one position before, fused to one row; when it goes on from its own draft, it reads
// its own output instead. A block (DFlash) fills several positions at once: its layers read the drawn token, a mask at
// each later position, and, at all earlier positions, keys and values made of the target's fused rows.
// In some files (DSpark) a product of low rank with the token before changes the logits of each place.
//
// As for mtp.c, cache entries of a position depend on the same tokens as those of the target's layers. So they are in
// the same pages, and every graph of the target writes them. Entries that a draft writes at its own positions are
// overwritten when the target evaluates these.
//
// Invariant: no result of the target depends on its draft.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/arch_impl.h"
#include "model/stored.h"

// ---- loading --------------------------------------------------------------------------------------------------------

static int load_reads(loader *l) {
  drafter *d = &l->m->drafter;
  bool chain = l->m->arch->drafts == DRAFTS_CHAIN;
  uint32_t each[DRAFT_READS];
  const gguf_value *v = gguf_find(l->f, key(l, "target_layers"));
  size_t n = v && v->type == GGUF_ARRAY ? v->a.n : chain ? 3 : 1;
  if (chain ? n != 3 : n < 1 || n > DRAFT_READS)
    return gguf_fail(l->f, l->key, l->err, "lists %zu layers, expected %s", n, chain ? "3" : "1 to 16");
  if (gguf_u32_each(l->f, l->key, n, each, l->err)) return -1;
  d->n_reads = (int)n;
  for (size_t i = 0; i < n; i++) {
    if (each[i] > MODEL_MAX_LAYERS) return gguf_fail(l->f, l->key, l->err, "layer %u", each[i]);
    d->reads[i] = (int)each[i];
  }
  return 0;
}

// What changes logits by the token before, and a head for the probability that a token is accepted, which is not used:
// the length of drafts follows measurements.
static int load_markov(loader *l) {
  model *m = l->m;
  drafter *d = &m->drafter;
  bool confident;
  const gguf_tensor *w = gguf_tensor_find(l->f, "markov_w1.weight");
  if (!w) return 0;
  if (w->ne[0] > 1 << 20 || w->ne[1] > INT32_MAX)
    return gguf_fail(l->f, NULL, l->err, "tensor 'markov_w1.weight' is {%lld, %lld}", (long long)w->ne[0],
                     (long long)w->ne[1]);
  d->markov = (int)w->ne[0];
  d->markov_rows = (int)w->ne[1];
  return gguf_bool_opt(l->f, key(l, "sample_from_anchor"), true, &d->from_first, l->err) ||
             gguf_bool_opt(l->f, key(l, "has_confidence_head"), false, &confident, l->err) ||
             want_matrix(l, NULL, W_MARKOV_W1, d->markov, d->markov_rows, 0) ||
             want_matrix(l, NULL, W_MARKOV_W2, d->markov, m->n_vocab ? m->n_vocab : d->markov_rows, 0) ||
             want_matrix(l, NULL, W_CONF_PROJ, m->n_embd + d->markov, 1, WANT_OPTIONAL)
           ? -1
           : 0;
}

static int load_draft_block(loader *l) {
  drafter *d = &l->m->drafter;
  uint32_t mask;
  if (key_count_or(l, "block_size", 16, 2, MODEL_DRAFT_MOST, &d->block) ||
      gguf_bool_opt(l->f, key(l, "attention.causal"), false, &d->causal, l->err) ||
      key_number_or(l, "attention.value_scale", 1, -1e3, 1e3, &l->m->value_scale) ||
      gguf_u32(l->f, file_key(l, "tokenizer.ggml.mask_token_id"), &mask, l->err))
    return -1;
  d->mask = (int)min_i64(mask, INT32_MAX);
  return 0;
}

int draft_keys(loader *l) {
  model *m = l->m;
  drafter *d = &m->drafter;
  if (load_reads(l)) return -1;
  d->target_embd = m->n_embd;
  if (m->arch->drafts == DRAFTS_BLOCK) return load_draft_block(l);
  m->unseen = 1;
  if (m->n_layer != 1) return gguf_fail(l->f, key(l, "block_count"), l->err, "%d layers, expected 1", m->n_layer);
  return key_count(l, "target_hidden_size", 1, 1 << 20, &d->target_embd) ||
             gguf_bool_opt(l->f, key(l, "norm_before_residual"), false, &d->residual_normed, l->err) ||
             gguf_bool_opt(l->f, key(l, "norm_before_fc"), false, &d->reads_normed, l->err)
           ? -1
           : 0;
}

// Norms after parts are those of the target's family, if there are any.
int draft_layer(loader *l, layer *y) {
  char name[80];
  y->mixer = &part_draft_attention;
  snprintf(name, sizeof name, "blk.%d.post_attention_norm.weight", y->block);
  if (gguf_tensor_find(l->f, name)) y->mixer_post = W_POST_ATTENTION_NORM;
  snprintf(name, sizeof name, "blk.%d.post_ffw_norm.weight", y->block);
  if (gguf_tensor_find(l->f, name)) y->ff_post = W_POST_FFW_NORM;
  return 0;
}

// The target's ids of the rows of the head: {n}, 64-bit integers
static int load_ids(loader *l, const gguf_tensor *t) {
  model *m = l->m;
  if (t->n_dims != 1 || t->ne[0] > INT32_MAX || t->format->id != FORMAT_I64)
    return gguf_fail(l->f, NULL, l->err, "tensor 'd2t' has type %s and %u axes, expected I64 and 1", t->format->name,
                     t->n_dims);
  l->claimed[gguf_tensor_index(l->f, t)] = true;
  m->n_vocab = (int)t->ne[0];
  free(m->drafter.ids);
  m->drafter.ids = xcalloc((size_t)t->ne[0], sizeof *m->drafter.ids);
  for (int i = 0; t->data && i < m->n_vocab; i++) {
    int64_t id;
    memcpy(&id, (const unsigned char *)t->data + (size_t)i * sizeof id, sizeof id);
    if (id < 0 || id > INT32_MAX)
      return gguf_fail(l->f, NULL, l->err, "tensor 'd2t' has %lld at place %d, which is no token", (long long)id, i);
    m->drafter.ids[i] = (int32_t)id;
  }
  return 0;
}

// Embedding and head may be the target's.
int draft_load_ends(loader *l) {
  model *m = l->m;
  drafter *d = &m->drafter;
  int64_t n = m->n_embd, in = (int64_t)d->target_embd * d->n_reads;
  const gguf_tensor *ids = gguf_tensor_find(l->f, "d2t"), *embd = gguf_tensor_find(l->f, "token_embd.weight"),
                    *head = gguf_tensor_find(l->f, "output.weight");
  bool chain = m->arch->drafts == DRAFTS_CHAIN;
  if (ids && load_ids(l, ids)) return -1;
  if (ids && !head) return gguf_fail(l->f, NULL, l->err, "tensor 'output.weight' is missing, whose rows 'd2t' numbers");
  if ((embd && embd->ne[1] > INT32_MAX) || (head && head->ne[1] > INT32_MAX))
    return gguf_fail(l->f, NULL, l->err, "tensor '%s' has more than %d rows", embd ? embd->name : head->name,
                     INT32_MAX);
  d->embd_rows = embd ? (int)embd->ne[1] : 0;
  if (!ids && head) m->n_vocab = (int)head->ne[1];
  else if (!ids && embd && !chain) m->n_vocab = d->embd_rows;
  if ((embd && want_matrix(l, NULL, W_TOKEN_EMBD, n, d->embd_rows, 0)) ||
      (head && want_matrix(l, NULL, W_OUTPUT, n, m->n_vocab, 0)) || want_matrix(l, NULL, W_FC, in, n, 0) ||
      want_norm(l, NULL, W_OUTPUT_NORM))
    return -1;
  if (!chain && (want_norm(l, NULL, W_ENC_OUTPUT_NORM) || load_markov(l))) return -1;
  return d->reads_normed ? want_vector(l, NULL, W_ENC_OUTPUT_NORM, in, 0) : 0;
}

static int load_draft_attention(loader *l, layer *y) {
  model *m = l->m;
  bool chain = m->arch->drafts == DRAFTS_CHAIN;
  if ((chain && want_norm(l, y, W_ATTN_NORM_2)) || part_attention.load(l, y)) return -1;
  if (chain) m->drafter.rows = state(l, y, m->kv.keys == KV_F32 ? DT_F32 : DT_BF16, m->n_embd, 0) - y->state;
  return 0;
}

static tensor *draft_attention(build *b, const layer *y, tensor *x) { return part_attention.graph(b, y, x); }

const part part_draft_attention = {load_draft_attention, draft_attention};

const arch arch_drafts[] = {
  {.name = "eagle3", .drafts = DRAFTS_CHAIN, .keys = draft_keys, .layer = draft_layer},
  {.name = "dflash",
   .drafts = DRAFTS_BLOCK,
   .flags = ARCH_NEOX | ARCH_QK_NORM | ARCH_SECTIONS | ARCH_SINKS | ARCH_LAYER_SCALE,
   .has = HAS_SINKS_MAYBE,
   .period = PERIOD_LISTED,
   .keys = draft_keys,
   .layer = draft_layer},
  {.name = NULL},
};

// ---- a target and its draft -----------------------------------------------------------------------------------------

bool model_only_drafts(const model *m) { return m->arch->drafts; }
int model_check_alone(const model *m, error *err) {
  if (!model_only_drafts(m)) return 0;
  return gguf_fail(m->file, "general.architecture", err,
                   "'%s' is a draft file, which drafts tokens for another model: -md names it beside that model",
                   m->arch->name);
}
bool model_kind_drafts(const char *name, size_t n) {
  const arch *a = arch_find(name, n);
  return a && a->drafts;
}
bool model_has_draft(const model *m) { return m->draft; }
int model_draft_block(const model *m) { return m->draft ? m->draft->drafter.block : 0; }
int32_t model_draft_mask(const model *m) { return m->draft->drafter.mask; }
bool model_draft_from_first(const model *m) { return m->draft->drafter.from_first; }
bool model_draft_follows(const model *m) { return m->draft && m->draft->drafter.markov; }
int model_draft_vocab(const model *m) { return m->draft->n_vocab; }
const int32_t *model_draft_ids(const model *m) { return m->draft->drafter.ids; }

static bool has_plain_stream(const model *m) {
  return !m->n_rows && !m->hyper.n && !m->bank_every && !m->stacks.n && !m->n_encoder && !m->arch->encoder;
}

// Says what does not fit, by the draft's key.
static int misfit_key(const model *draft, const char *rest, error *err, const char *fmt, ...) PRINTF_LIKE(4, 5);
static int misfit_key(const model *draft, const char *rest, error *err, const char *fmt, ...) {
  char name[160];
  str s = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&s, fmt, ap);
  va_end(ap);
  snprintf(name, sizeof name, "%s.%s", draft->arch->name, rest);
  gguf_fail(draft->file, name, err, "%s", str_c(&s));
  str_free(&s);
  return -1;
}

static int draft_fits_sizes(const model *m, const model *draft, error *err) {
  const drafter *d = &draft->drafter;
  const char *target = gguf_path(m->file);
  bool chain = draft->arch->drafts == DRAFTS_CHAIN, own_embd = draft->w[W_TOKEN_EMBD].weight;
  if (d->target_embd != m->n_embd)
    return misfit_key(draft, chain ? "target_hidden_size" : "embedding_length", err,
                      "%d, but the rows of %s have %d elements", d->target_embd, target, m->n_embd);
  if (draft->n_embd != m->n_embd && !(own_embd && draft->n_vocab))
    return misfit_key(draft, "embedding_length", err,
                      "%d, but the embedding and head of %s, which it needs, have rows of %d elements", draft->n_embd,
                      target, m->n_embd);
  for (int i = 0; i < d->n_reads; i++)
    if (d->reads[i] > m->n_layer)
      return misfit_key(draft, "target_layers", err, "layer %d, but %s has %d layers", d->reads[i], target, m->n_layer);
  if (own_embd && d->embd_rows < m->n_vocab)
    return gguf_fail(draft->file, NULL, err, "tensor 'token_embd.weight' has %d rows, but %s has %d tokens",
                     d->embd_rows, target, m->n_vocab);
  if (d->markov && d->markov_rows != m->n_vocab)
    return gguf_fail(draft->file, NULL, err, "tensor 'markov_w1.weight' has %d rows, but %s has %d tokens",
                     d->markov_rows, target, m->n_vocab);
  if (d->mask >= (own_embd ? d->embd_rows : m->n_vocab))
    return gguf_fail(draft->file, "tokenizer.ggml.mask_token_id", err, "%d, but %s has %d tokens", d->mask, target,
                     m->n_vocab);
  if (draft->n_vocab > m->n_vocab)
    return gguf_fail(draft->file, NULL, err, "its head has %d rows, but %s has %d tokens", draft->n_vocab, target,
                     m->n_vocab);
  for (int i = 0; d->ids && i < draft->n_vocab; i++)
    if (d->ids[i] >= m->n_vocab)
      return gguf_fail(draft->file, NULL, err, "tensor 'd2t' has token %d, but %s has %d tokens", d->ids[i], target,
                       m->n_vocab);
  return 0;
}

// A draft file has the tokens of its target. The first different one is named.
static int check_tokens(const model *m, const model *draft, error *err) {
  static const char tokens[] = "tokenizer.ggml.tokens";
  const gguf_value *x, *y;
  char of_x[80], of_y[80];
  if (gguf_strs_opt(m->file, tokens, &x, err) || gguf_strs_opt(draft->file, tokens, &y, err)) return -1;
  for (size_t i = 0; x && y && i < x->a.n && i < y->a.n; i++) {
    gguf_string u = gguf_elem_str(x, i), v = gguf_elem_str(y, i);
    if (u.n != v.n || memcmp(u.at, v.at, u.n))
      return gguf_fail(draft->file, tokens, err, "token %zu is '%s', but '%s' in %s", i,
                       gguf_quote(of_y, sizeof of_y, v.at, v.n), gguf_quote(of_x, sizeof of_x, u.at, u.n),
                       gguf_path(m->file));
  }
  return 0;
}

int model_check_draft(const model *m, const model *draft, error *err) {
  if (!model_only_drafts(draft))
    return gguf_fail(draft->file, "general.architecture", err, "'%s' is not one of a draft file", draft->arch->name);
  if (!has_plain_stream(m))
    return gguf_fail(draft->file, NULL, err, "%s is a model of the kind %s, which takes no draft file",
                     gguf_path(m->file), m->arch->name);
  if (model_has_sections(draft) && !model_has_sections(m))       // runs of the target have no positions of sections
    return misfit_key(draft, "rope.dimension_sections", err, "it has sections, and %s has none", gguf_path(m->file));
  if (draft_fits_sizes(m, draft, err) || check_tokens(m, draft, err)) return -1;
  int groups = m->n_groups;
  for (int i = 0; i < draft->n_groups; i++) groups += window_group(m, draft->group_window[i]) == m->n_groups;
  return groups > MODEL_GROUPS
           ? gguf_fail(draft->file, NULL, err, "with its windows, layers would have more than %d different ones",
                       MODEL_GROUPS)
           : 0;
}

static void shift_tensors(tensor_ref *w, int by) {
  for (int id = 0; id < W_COUNT; id++) {
    int *each[] = {&w[id].weight, &w[id].bias, &w[id].scale};
    for (size_t i = 0; i < COUNT(each); i++) if (*each[i]) *each[i] += by;
  }
}

// States and groups of pages are numbered in both alike.
static void share_states(model *m, model *draft) {
  int before = (int)m->states.n;
  for (int i = 0; i < draft->n_groups; i++) {
    int window = draft->group_window[i];
    if (window_group(m, window) == m->n_groups) m->group_window[m->n_groups++] = window;
  }
  for (size_t i = 0; i < draft->states.n; i++) vec_push(&m->states, draft->states.at[i]);
  draft->states.n = 0;
  for (size_t i = 0; i < m->states.n; i++) vec_push(&draft->states, m->states.at[i]);
  draft->n_groups = m->n_groups;
  memcpy(draft->group_window, m->group_window, sizeof m->group_window);
  for (int i = 0; i < draft->n_layer; i++) draft->layers[i].state += before;
}

void model_take_draft(model *m, model *draft, size_t first) {
  if (!draft->n_vocab) draft->n_vocab = m->n_vocab;
  shift_tensors(draft->w, (int)first);
  for (int i = 0; i < draft->n_layer; i++) shift_tensors(draft->layers[i].w, (int)first);
  model_drop_mtp(m);
  share_states(m, draft);
  draft->file = m->file;
  m->draft = draft;
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

// The same run, as the draft's layers see it
static build draft_of(const build *b) {
  build d = *b;
  d.m = b->m->draft;
  d.kept = xcalloc((size_t)d.m->n_layer, sizeof *d.kept);
  d.floats = d.is_floats = d.last = NULL;
  rope_tables(&d);
  return d;
}

void draft_read(build *b, int i, tensor *x) {
  const model *draft = b->m->draft;
  for (int k = 0; draft && k < draft->drafter.n_reads; k++)
    if (draft->drafter.reads[k] == i) b->reads[k] = flows_on(b->g, x);
}

// {T, n_embd}
static tensor *fused(const build *d) {
  const drafter *of = &d->m->drafter;
  tensor *all = d->reads[0];
  for (int i = 1; i < of->n_reads; i++) all = t_cat_last(d->g, all, d->reads[i]);
  all = read_by_many(d->g, all);
  if (of->reads_normed) all = read_by_many(d->g, norm(d, NULL, W_ENC_OUTPUT_NORM, all));
  return linear(d, NULL, W_FC, all);
}

// The embedding of this run's tokens, from the draft's own table or the target's: {T, n_embd}
static tensor *embedded_ids(const build *b, const build *d) {
  const build *of = d->m->w[W_TOKEN_EMBD].weight ? d : b;
  tensor *rows = t_gather(b->g, weight(of, NULL, W_TOKEN_EMBD), token_ids(b));
  return d->m->embedding_scale == 1 ? rows : t_scale(b->g, rows, d->m->embedding_scale);
}

static void store_row(const build *b, const build *d, tensor *x) {
  int64_t n = d->m->n_vocab;
  tensor *to = t_buffer(b->g, model_buffer_id(d->m->file, BUF_LOGITS), DT_F32, n);
  vec_push(b->effects, t_assign(b->g, to, t_reshape_i(b->g, x, 1, &n)));
}

// The draft's logits of x, by its own head or the target's
static void store_logits(const build *b, const build *d, tensor *x) {
  graph *g = b->g;
  const model *m = d->m;
  tensor *out;
  x = read_by_many(g, norm(d, NULL, W_OUTPUT_NORM, x));
  if (m->w[W_OUTPUT].weight) out = linear(d, NULL, W_OUTPUT, x);
  else if (m->w[W_TOKEN_EMBD].weight && m->drafter.block) out = linear(d, NULL, W_TOKEN_EMBD, x);
  else out = linear(b, NULL, head_of(b->m), x);
  int64_t n = m->n_vocab, rows = b->s->chunk;
  if (b->s->logits != LOGITS_ALL) {
    store_row(b, d, out);
    return;
  }
  tensor *to = t_buffer(g, model_buffer_id(m->file, BUF_ROWS), DT_F32, rows * n);
  to = t_slice(g, t_reshape_i(g, to, 2, (int64_t[]){rows, n}), 0, uop_idx(g, 0), b->T);
  vec_push(b->effects, t_assign(g, to, out));
}

// --- a chain

static tensor *chain_rows(const build *d) {
  int64_t dims[] = {d->s->pages * d->s->page, d->m->n_embd};
  return t_reshape_i(d->g, state_buffer(d, &d->m->layers[0], d->m->drafter.rows), 2, dims);
}

static int chain_group(const build *d) { return window_group(d->m, d->m->layers[0].window); }

// Stores x {T, n_embd} for these positions, and returns all stored rows.
static tensor *keep_rows(build *d, tensor *x) {
  int64_t dims[] = {d->s->pages * d->s->page, d->m->n_embd};
  enum dtype dt = d->m->states.at[d->m->layers[0].state + d->m->drafter.rows].dtype;
  tensor *next = t_assign(d->g, t_gather(d->g, chain_rows(d), d->rows[chain_group(d)]), t_cast(d->g, x, dt));
  vec_push(d->effects, next);
  return t_reshape_i(d->g, next, 2, dims);
}

// The rows of one position before, where `all` is the stored rows; zeros before the first position
static tensor *chain_rows_before(const build *d, tensor *all) {
  graph *g = d->g;
  tensor *first = t_reshape(g, t_op2(g, OP_CMPLT, d->at, uop_idx(g, 1)), DIMS(d->T, n_(d, 1)));
  tensor *at = t_op2(g, OP_MAX, t_sub(g, d->at, uop_idx(g, 1)), uop_idx(g, 0));
  tensor *x = t_cast(g, t_gather(g, all, cache_rows(d, at, chain_group(d))), DT_F32);
  return read_by_many(g, t_where(g, first, t_float(g, 0), x));
}

// The stream {T, n_embd} after the layer. all: see chain_rows_before
static tensor *through_chain(const build *b, build *d, tensor *all) {
  graph *g = b->g;
  const layer *y = &d->m->layers[0];
  tensor *x = chain_rows_before(d, all), *normed = read_by_many(g, norm(d, y, W_ATTN_NORM_2, x));
  tensor *e = norm(d, y, W_ATTN_NORM, read_by_many(g, embedded_ids(b, d)));
  tensor *mixed = y->mixer->graph(d, y, read_by_many(g, t_cat_last(g, e, normed)));
  tensor *h = t_add(g, d->m->drafter.residual_normed ? normed : x, mixed);
  return t_add(g, h, y->ff->graph(d, y, norm(d, y, y->ff_norm, h)));
}

// --- a block

// Only the entries of keys and values are needed.
static void keep_entries(build *d) {
  tensor *x = read_by_many(d->g, norm(d, NULL, W_ENC_OUTPUT_NORM, fused(d)));
  for (int i = 0; i < d->m->n_layer; i++) d->m->layers[i].mixer->graph(d, &d->m->layers[i], x);
}

static void predict_block(build *b, build *d) {
  graph *g = b->g;
  if (!d->m->drafter.causal)
    d->last = t_add(g, t_mul(g, b->at, n_(b, 0)), idx_sub(g, b->C, n_(b, 1)));
  tensor *x = embedded_ids(b, d);
  for (int i = 0; i < d->m->n_layer; i++) x = through(d, &d->m->layers[i], x);
  store_logits(b, d, x);
}

// What a token adds to the logits after it
static void predict_after(build *b, build *d) {
  store_row(b, d, linear(d, NULL, W_MARKOV_W2, t_gather(b->g, weight(d, NULL, W_MARKOV_W1), token_ids(b))));
}

void draft_keep(build *b) {
  build d = draft_of(b);
  if (d.m->drafter.block) keep_entries(&d);
  else through_chain(b, &d, keep_rows(&d, fused(&d)));
  free(d.kept);
}

void draft_predict(build *b) {
  build d = draft_of(b);
  if (d.m->drafter.block) {
    if (b->s->chunk == 1) predict_after(b, &d);
    else predict_block(b, &d);
  } else {
    tensor *x = flows_on(b->g, through_chain(b, &d, chain_rows(&d)));
    keep_rows(&d, x);
    store_logits(b, &d, x);
  }
  free(d.kept);
}
