// The engine: file, tokenizer, graphs, plans, and the caches of all sequences. See engine.h. There is a plan for a
// single token with logits, one for a chunk of a prompt without logits, and some for rows of several sequences. A
// prompt of n tokens is evaluated as chunks of n - 1 tokens, then its last token alone or with other sequences' rows.
// All plans but the first are made at first use.
#include <stdlib.h>
#include <string.h>
#include "base/attempt.h"
#include "base/env.h"
#include "device/demand.h"
#include "device/memory.h"
#include "device/kernel_set.h"
#include "device/keeper.h"
#include "engine/auto_split.h"
#include "engine/calibrate.h"
#include "engine/float_rows.h"
#include "engine/follow.h"
#include "engine/layouts.h"
#include "engine/media_file.h"
#include "engine/on_demand.h"
#include "engine/plans.h"
#include "engine/roles.h"
#include "engine/rows_version.h"
#include "engine/sequence_file.h"
#include "engine/tune.h"
#include "model/codebook.h"
#include "schedule/layout.h"
#include "weft.h"

enum {
  WORTH_LEARNING = 64 << 20 /* bytes of weights: smaller models stay in caches and need no prefetch */
};
enum {
  CHUNK_STEP = 64,
  LEAST_CTX = 4096
};
// Kernels are compiled for the longest context and the largest number of pages, so these do not change with the
// context.
enum { USUAL_CTX = 1 << 17, USUAL_PAGES = 1 << 13, FEW_PAGES = 8 };
// The default context of models that denoise: each step has the logits of a whole text.
enum { LONGEST_DENOISED = 4096 };
// If weights do not fit: the fraction (1/n) of memory for the cache of the context, and of the shortest context.
enum { KV_SHARE = 8, KV_SHARE_MOST = 2 };
// Memory of a model besides its file and its cache: the program, its graphs and intermediates, the keeper and compiler
// processes. For a small model it is the main part: 18 MB of 24 for `weft run` with a model of 5 MB, 36 of 42 for `weft
// bench`.
static const uint64_t BESIDE_BYTES = 32 << 20;

void engine_progress(const engine *e, const char *what, double fraction) {
  if (e->o.progress) e->o.progress(e->o.progress_ctx, what, fraction);
}

bool engine_stopped(const engine *e) { return e->o.stop && e->o.stop(e->o.progress_ctx); }

// --- memory ---------------------------------------------------------------------------------------------------------

// Of one full context.
static uint64_t kv_bytes(const engine *e) {
  return caches_held_bytes(e->m, (int64_t)round_up((size_t)e->n_ctx, CACHE_PAGE), e->room);
}

// Approximate share of one process, of bytes that all processes hold together.
static uint64_t share_bytes(const engine *e, uint64_t all) { return (uint64_t)((double)all * e->share); }

// This process's part of the free memory of its machine; at least an equal one, as it needs some even without a share
// of the model. false: unknown.
static bool free_memory(const engine *e, uint64_t *have) {
  if (memory_available(have, NULL)) return false;
  ranks r = ranks_here();
  uint64_t share = r.on_host == r.n ? share_bytes(e, *have) : 0, equal = *have / (uint64_t)r.on_host;
  *have = share > equal ? share : equal;
  return true;
}

// With chunks of this many tokens.
static struct layer_split_sizes sizes_with(const engine *e, int64_t room) {
  const device *d = e->layer_split.at[0].d;
  // one size of kernels for most contexts; if memory is allocated up front, not much more than needed
  int64_t most = d->run->here ? max_i64(max_i64(e->n_ctx, model_n_ctx_train(e->m)), USUAL_CTX)
                              : (int64_t)round_up((size_t)e->n_ctx, LEAST_CTX);
  // a chunk may begin at the last position: then every index is in bounds for all values of the variables
  return (struct layer_split_sizes){(int64_t)round_up((size_t)(e->n_ctx + room), CACHE_PAGE),
                               (int64_t)round_up((size_t)(most + room), CACHE_PAGE),
                               room + (room > DEFAULT_CHUNK ? DEFAULT_CHUNK : 0)};
}

static bool fits_with(const engine *e, int64_t room) {
  struct layer_split_sizes sizes = sizes_with(e, room);
  return layer_split_hold(&e->layer_split, e->file, e->m, &sizes, e->o.gpu_layers);
}

// Weights that do not fit into memory together are loaded from the file on demand.
static bool may_bring_weights(const engine *e) {
  return e->layer_split.n == 1 && ranks_here().n == 1 && !e->o.no_repack && !e->o.rehearsed.n &&
         on_demand_possible(e->file, e->layer_split.at[0].d);
}

static bool has_room(const engine *e) {
  uint64_t need, have;
  if (!e->layer_split.at[0].d->run->here) return fits_with(e, e->room);
  if (!free_memory(e, &have)) return true;
  bool shortest = e->n_ctx / 2 < LEAST_CTX;
  if (may_bring_weights(e) && gguf_file_bytes(e->file) > have)
    return kv_bytes(e) <= have / (shortest ? KV_SHARE_MOST : KV_SHARE);
  return add_u64(kv_bytes(e), gguf_file_bytes(e->file), &need) && share_bytes(e, need) <= have;
}

// A default context may be reduced: many models were trained for more positions than fit in memory. It is halved, so
// that a machine needs few kernels.
static void fit_context(engine *e) {
  int wish = e->n_ctx;
  while (e->n_ctx / 2 >= LEAST_CTX && !has_room(e)) e->n_ctx /= 2;
  if (e->n_ctx == wish) return;
  if (has_room(e))
    warning("%s: a context of %d positions, as there is no memory for the %d that the model was trained for",
            gguf_path(e->file), e->n_ctx, wish);
  else e->n_ctx = wish;
}

static int64_t least_pages(const engine *e) {
  return (int64_t)round_up((size_t)e->n_ctx + (size_t)e->room, CACHE_PAGE) / CACHE_PAGE;
}

static int64_t usual_chunk(const engine *e) {
  size_t fills = round_up((size_t)model_tokens_by_expert(e->m, EXPERT_TOKENS), CHUNK_STEP);
  return max_i64(DEFAULT_CHUNK, min_i64((int64_t)fills, LONGEST_CHUNK));
}

static void set_chunk(engine *e, int64_t chunk) {
  e->chunk = model_is_encoder(e->m) || model_has_source(e->m) ? e->n_ctx
             : e->o.chunk > 0                                 ? min_i64(e->o.chunk, MAX_CHUNK)
                                                              : chunk;
  if (model_block(e->m)) e->chunk = min_i64(e->chunk, model_block(e->m));
  e->room = (int64_t)round_up((size_t)max_i64(e->chunk, model_draft_block(e->m)), CHUNK_STEP);
}

// The context comes first, unless the user set it: a short context is worse than small chunks. Then, if groups of
// work-items share rows from a certain number of tokens on and everything still fits, chunks have that many. Predicted
// for 1B Q4_0 with chunks of 64, 128, 256, 512: 21, 30, 51 and 58 thousand prompt tokens per second on an H200; 3.4,
// 3.5, 5.4 and 5.1 on an Orin.
static void choose_sizes(engine *e) {
  set_chunk(e, usual_chunk(e));
  if (!e->o.n_ctx) fit_context(e);
  int64_t many = e->layer_split.at[0].d->target.many_tokens;
  if (many > e->chunk && fits_with(e, many)) set_chunk(e, many);
}

static int share_layers(engine *e, error *err) {
  layer_split *p = &e->layer_split;
  struct layer_split_sizes sizes = sizes_with(e, e->room);
  e->ctx = sizes.longest;
  int r = layer_split_share(p, e->file, e->m, &sizes, &e->o, err);
  for (int i = 0; i < p->n; i++) {
    e->sites[i] = (site){e, i};
    if (e->o.no_repack) p->at[i].d->target.has_streams = false;
  }
  if (p->n > 1) e->stream = xcalloc((size_t)(e->room * model_n_stream(e->m)) + 64, sizeof *e->stream);
  return r;
}

// Bytes of the file that this process reads; layers on a device with separate memory are read once.
static uint64_t file_bytes_here(const engine *e) {
  const struct layer_range *first = &e->layer_split.at[0];
  return e->layer_split.n == 1 ? gguf_file_bytes(e->file) : layer_split_bytes(e->file, e->m, first->from, first->to, 0);
}

static device **devices_of_states(const engine *e) {
  int n = model_n_states(e->m);
  device **of = xcalloc((size_t)n + 1, sizeof *of);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < e->layer_split.n; j++)
      if (model_state_layer(e->m, i) >= e->layer_split.at[j].from) of[i] = e->layer_split.at[j].d;
  return of;
}

// In addition to these bytes of the model. In a small control group the system would kill the program without a
// message.
static int check_beside(const engine *e, uint64_t need, error *err) {
  const double mib = 1 << 20;
  uint64_t have;
  if (e->o.rehearsed.n || !free_memory(e, &have) || have >= BESIDE_BYTES + (on_demand_wanted() ? 0 : need)) return 0;
  return error_set(err, "%s: %.1f MiB of memory are needed, %.1f MiB for the model and its cache and %.0f MiB for the "
                        "program, but only %.1f MiB are free",
                   gguf_path(e->file), (double)(need + BESIDE_BYTES) / mib, (double)need / mib,
                   (double)BESIDE_BYTES / mib, (double)have / mib);
}

// Memory of the model in this process: bytes of the file and of the cache. all: maximum of all caches.
static int reserve_memory(engine *e, uint64_t file, uint64_t kv, uint64_t *all, error *err) {
  uint64_t need, have = UINT64_MAX;
  if (!add_u64(kv, file, &need))
    return error_set(err, "%s: a KV cache for %d positions is too large", gguf_path(e->file), e->n_ctx);
  bool told = free_memory(e, &have), brings = may_bring_weights(e);
  *all = told && need <= have ? have - file : UINT64_MAX;
  if (brings && on_demand_wanted() ? file <= on_demand_wanted() : !told || need <= have)
    return check_beside(e, need, err);
  if (!brings || (told && kv >= have))
    return error_set(err,
                     "%s: %.2f GiB of model and %.2f GiB of KV cache for %d positions, but only %.2f GiB of memory are "
                     "free; a smaller context (-c) needs less",
                     gguf_path(e->file), (double)file / (1 << 30), (double)kv / (1 << 30), e->n_ctx,
                     (double)have / (1 << 30));
  if (told && need > have) *all = kv;
  error why = {0};
  uint64_t budget = on_demand_budget(have, kv);
  e->demand = on_demand_open(e->file, e->m, budget, &why);
  if (e->demand) return 0;
  return error_set(err, "%s; %.1f MiB of memory are free, and the cache and the program need the rest of them",
                   why.text, (double)have / (1 << 20));
}

static int reserve_caches(engine *e, error *err) {
  uint64_t file = e->o.rehearsed.n ? 0 : share_bytes(e, file_bytes_here(e)), kv = share_bytes(e, kv_bytes(e));
  uint64_t all = UINT64_MAX;
  bool here = true;
  for (int i = 0; i < e->layer_split.n; i++) here &= e->layer_split.at[i].d->run->here;
  if (e->layer_split.n > 1) kv = layer_split_bytes(e->file, e->m, 0, e->layer_split.at[0].to, e->n_ctx) - file;
  if (reserve_memory(e, file, kv, &all, err)) return -1;
  int64_t least = least_pages(e);
  // on other devices pages use memory from the start; but each sequence of a step has its own page
  int64_t pages = here ? max_i64(USUAL_PAGES, 2 * e->ctx / CACHE_PAGE) : max_i64(FEW_PAGES, least);
  if (caches_open(&e->caches, e->m, devices_of_states(e), pages, least, e->room, all, err) ||
      sequence_new(&e->caches, &e->own, err))
    return -1;
  e->most = max_i64(e->room, MAX_CHUNK);
  e->ids = xcalloc((size_t)e->most, sizeof *e->ids);
  e->last = xcalloc((size_t)e->most, sizeof *e->last);
  if (model_n_adapters(e->m))
    e->scales = xcalloc((size_t)e->most * (size_t)model_n_adapters(e->m), sizeof *e->scales);
  if (model_has_sections(e->m)) e->turns = xcalloc((size_t)e->most * 3, sizeof *e->turns);
  if (model_has_source(e->m)) e->source = xcalloc((size_t)e->most, sizeof *e->source);
  e->float_table = float_table_new();
  e->at = xcalloc((size_t)e->room, sizeof *e->at);
  e->pages = xcalloc((size_t)(e->room * page_tables(e)), sizeof *e->pages);
  e->logits = xcalloc((size_t)model_n_vocab(e->m) + 64, sizeof *e->logits);
  return 0;
}

// --- processes ------------------------------------------------------------------------------------------------------

static bool by_layers(const engine *e) { return e->o.split == WEFT_SPLIT_LAYER && engine_ranks(e).n > 1; }

static int take_shares(engine *e, error *err) {
  int n = engine_ranks(e).n;
  if (n > 1 && e->o.split == WEFT_SPLIT_NONE)
    return error_set(err, "%s: split mode none (-sm) is for one process, and there are %d", gguf_path(e->file), n);
  if (n > 1 && e->o.n_shares && e->o.n_shares != (size_t)n)
    return error_set(err, "%s: shares of %zu processes (-ts), and there are %d", gguf_path(e->file), e->o.n_shares, n);
  for (int i = 0; i < n; i++) e->shares[i] = n > 1 && e->o.n_shares ? e->o.shares[i] : 1;
  e->o.shares = NULL;                      // it belongs to the caller
  if (n < 2 || e->o.split != WEFT_SPLIT_AUTO || e->layer_split.n > 1) return 0;
  return auto_split(e->file, e->m, e->layer_split.at[0].d, &e->o.split, err);
}

// The process of each weight and state, and this process's part of them.
static void deal_to_ranks(engine *e) {
  ranks r = engine_ranks(e);
  int to[MOST_RANKS], n_states = model_n_states(e->m);
  uint64_t held[MOST_RANKS];
  double all = 0;
  for (int i = 0; i < r.n; i++) all += e->shares[i];
  e->share = e->shares[r.rank] / all;
  if (!by_layers(e)) return;
  layer_split_deal(e->file, e->m, e->shares, r.n, e->n_ctx, to, held);
  all = 0;
  for (int i = 0; i < r.n; i++) all += (double)held[i];
  e->share = (double)held[r.rank] / all;
  e->own_blocks.from = r.rank ? to[r.rank - 1] : 0;
  e->own_blocks.to = to[r.rank];
  size_t n = gguf_n_tensors(e->file), first = (size_t)model_buffer_id(e->file, BUF_STATE);
  free(e->owner);
  e->owner = xmalloc(first + (size_t)n_states);
  memset(e->owner, ANY_RANK, first);
  for (size_t i = 0; i < n + (size_t)n_states; i++) {
    int block = i < n ? layer_split_layer_of(gguf_tensor_at(e->file, i))
                      : model_layer_block(e->m, model_state_layer(e->m, (int)(i - n))), rank = 0;
    while (rank < r.n - 1 && block >= to[rank]) rank++;
    if (block >= 0) e->owner[i < n ? i : first + i - n] = (unsigned char)rank;
  }
}

static void mark_states_elsewhere(engine *e) {
  int64_t first = model_buffer_id(e->file, BUF_STATE);
  for (int i = 0; e->owner && i < model_n_states(e->m); i++)
    e->caches.elsewhere[i] = e->owner[first + i] != engine_ranks(e).rank;
}

// --- plans ----------------------------------------------------------------------------------------------------------

static int open_weights(engine *e, weight_packing *l, error *err) {
  for (int i = 0; i < e->layer_split.n; i++) {
    const struct layer_range *at = &e->layer_split.at[i];
    int from = e->owner ? e->own_blocks.from : at->from;
    int to = e->owner ? e->own_blocks.to : at->to == model_n_layer(e->m) ? model_n_blocks(e->m) : at->to;
    if (e->o.rehearsed.n) {
      if (weights_rehearse(&l->w[i], e->file, at->d, err)) return -1;
    } else if (at->d->target.has_streams &&
               weights_open(&l->w[i], e->file, at->d, from, to, e->demand ? 0 : e->share, err))
      return -1;
  }
  return 0;
}

// Everything else that affects results besides files and adapters: the program, the devices and the options.
static void open_content(engine *e) {
  str s = {0};
  str_addf(&s, "%s, variant %d, %d blocks\n", ROWS_VERSION, model_variant(e->m, e->n_ctx), model_n_blocks(e->m));
  for (int i = 0; i < e->layer_split.n; i++)
    str_addf(&s, "from %d: %s\n", e->layer_split.at[i].from, e->layer_split.at[i].d->key);
  sequence_options(&e->o, &s);
  e->content = content_new(e->file, e->m, str_c(&s), e->layer_split.at[0].d->cache);
  str_free(&s);
}

// The draft file's tensors are further ones of the model's file from here on.
static int open_draft_file(engine *e, error *err) {
  gguf *f;
  model *draft = NULL;
  if (gguf_open(e->o.draft_file, &f, err)) return -1;
  if (model_open(f, e->o.kv, &draft, err) || model_check_draft(e->m, draft, err)) {
    model_close(draft);
    gguf_close(f);
    return -1;
  }
  size_t first = gguf_n_tensors(e->file);
  if (gguf_join(e->file, f, "draft.", err)) {
    model_close(draft);
    return -1;
  }
  model_take_draft(e->m, draft, first);
  return 0;
}

// Devices with work-groups have no layout for interleaved rows, and add up products of such rows in another order for
// one token than for many.
static int check_formats(const engine *e, const char *path, error *err) {
  for (size_t i = 0; i < gguf_n_tensors(e->file); i++) {
    const gguf_tensor *t = gguf_tensor_at(e->file, i);
    for (int d = 0; d < e->layer_split.n && t->format->rows > 1; d++)
      if (e->layer_split.at[d].d->target.has_local)
        return error_set(err, "%s: tensor '%s' has type %s, whose rows are interleaved: DEV=%s cannot compute it (weft "
                         "quantize makes other types of it)", path, t->name, t->format->name,
                         e->layer_split.at[d].d->name);
  }
  return 0;
}

static void tell_ignored_ids(const engine *e) {
  static const char key[] = "tokenizer.ggml.suppress_tokens";
  const gguf_value *all = gguf_find(e->file, key);
  size_t n;
  tokenizer_suppressed(e->tok, &n);
  if (all && all->a.n > n)
    warning("%s: key '%s': %zu of its %zu ids are no token, and are ignored", gguf_path(e->file), key,
            (size_t)all->a.n - n, (size_t)all->a.n);
}

static int load_model(engine *e, const char *path, error *err) {
  if (e->o.in_memory        ? gguf_open_memory(e->o.data, e->o.n_data, path, &e->file, err)
      : e->o.rehearsed.n ? gguf_open_head(path, &e->file, err)
                           : gguf_open(path, &e->file, err))
    return -1;
  for (size_t i = 0; i < e->o.n_settings; i++) if (gguf_set_text(e->file, e->o.settings[i], err)) return -1;
  if (media_file_is_model(e->file, err) || model_open(e->file, e->o.kv, &e->m, err) || model_check_alone(e->m, err) ||
      tokenizer_from_gguf(e->file, &e->tok, err))
    return -1;
  tell_ignored_ids(e);
  if (!e->o.mtp) model_drop_mtp(e->m);
  if (e->o.draft_file && open_draft_file(e, err)) return -1;
  for (size_t i = 0; i < e->o.n_adapters; i++)
    if (model_adapt(e->m, e->o.adapters[i].path, e->o.adapters[i].scale, err)) return -1;
  for (size_t i = 0; i < e->o.n_control_vectors; i++) if (model_control(e->m, &e->o.control_vectors[i], err)) return -1;
  engine_progress(e, "loading", 0.3);
  if (engine_stopped(e)) return error_set(err, "%s: loading was stopped", path);
  int most = model_n_ctx_max(e->m), usual = model_n_ctx_train(e->m);
  if (model_has_source(e->m)) usual = (int)min_i64(2 * (int64_t)usual, 1 << 30);         // a source, and an answer
  if (model_denoises(e->m)) usual = (int)min_i64(usual, LONGEST_DENOISED);
  e->n_ctx = e->o.n_ctx ? e->o.n_ctx : usual;
  if (most && e->n_ctx > most)
    return error_set(err, "%s: a context of %d positions, but of this model there are %d at most", path, e->n_ctx,
                     most);
  keeper_prepare();
  if (layer_split_open(&e->layer_split, e->m, &e->o, err) || check_formats(e, path, err)) return -1;
  if (take_shares(e, err)) return -1;
  deal_to_ranks(e);
  choose_sizes(e);
  deal_to_ranks(e);                        // with the context that was chosen
  if (share_layers(e, err)) return -1;
  if (e->layer_split.n > 1) model_drop_mtp(e->m);
  if (model_has_draft(e->m) && (e->layer_split.n > 1 || ranks_here().n > 1))
    return error_set(err, "%s: a draft file needs all layers of %s on one device and in one process", e->o.draft_file,
                     path);
  if (e->o.rehearsed.n && !engine_on_cpu(e)) return error_set(err, "%s: plans are rehearsed on processors only", path);
  if (reserve_caches(e, err)) return -1;
  mark_states_elsewhere(e);
  if (!e->o.rehearsed.n && follow_open(e, err)) return -1;
  open_content(e);
  e->o.n_settings = e->o.n_adapters = e->o.n_control_vectors = 0;  // these belong to the caller
  e->o.device = e->o.draft_file = NULL;
  device *first = e->layer_split.at[0].d;
  if (gguf_tensor_bytes(e->file) >= WORTH_LEARNING && !kernel_set_is_on()) calibrate(first);
  e->now->layouts = layouts_known(first, e->file);
  if (open_weights(e, e->now, err)) return -1;
  plan_spec first_spec = spec_first(e), one = spec_one();
  e->adapted = model_n_adapters(e->m) > 0;
  if (settle_states(e, err) || need_plan(e, &first_spec, err) || model_adapters_used(e->m, err)) return -1;
  e->adapted = sequence_adapted(e->own);
  if (need_plan(e, &first_spec, err)) return -1;
  if (e->o.rehearsed.n) return 0;
  if (first->target.has_streams && !e->demand) weights_read_ahead(&e->now->w[0]);
  if (e->number < 0 && !e->demand) tune_from_env(e, false);
  const char *tune = env_str(ENV_WEFT_TUNE);
  bool always = !strcmp(tune, "always");
  if (!model_is_encoder(e->m) && e->layer_split.n == 1 && e->number < 0 && !e->demand &&
      (always || !strcmp(tune, "background")))
    e->online_tuner = online_tuner_open(e->tuned = plan_of(e, &one), always);
  return 0;
}

typedef struct loading { engine *e; const char *path; int status; error *err; } loading;

static void try_load(void *ctx) {
  loading *l = ctx;
  l->status = load_model(l->e, l->path, l->err);
}

int engine_open(const char *path, const struct engine_options *options, engine **out, error *err) {
  engine *e = xcalloc(1, sizeof *e);
  double t = now_s();
  e->number = -1;
  e->now = xcalloc(1, sizeof *e->now);
  if (options) e->o = *options;
  error why = {0};
  loading l = {e, path, -1, &why};
  error broken = {0};
  if (attempt(ATTEMPT_LEAVES, try_load, &l, &broken)) error_set(&why, "%s: %s", path, broken.text);
  if (l.status || gguf_check_size(e->file, &why)) {
    // reports a truncated file as such, not the effects of its missing bytes
    if (!e->file || !gguf_check_size(e->file, err)) error_set(err, "%s", why.text);
    engine_close(e);
    return -1;
  }
  e->load_ms = (now_s() - t) * 1e3 - e->compile_ms;
  e->o.stop = NULL;
  *out = e;
  return 0;
}

static void stop_live(engine *e) {
  online_tuner_close(e->online_tuner);
  e->online_tuner = NULL;
}

static void close_packing(weight_packing *l) {
  if (!l) return;
  close_plans(l);
  for (int i = 0; i < MOST_SPLITS; i++) weights_free(&l->w[i]);
  free(l->layouts);
  free(l);
}

void engine_close(engine *e) {
  if (!e) return;
  stop_live(e);
  follow_close(e);
  content_free(e->content);
  close_packing(e->now);
  close_packing(e->other);
  demand_free(e->demand);
  sequence_free(e->own);
  caches_close(&e->caches);
  layer_split_close(&e->layer_split);
  for (size_t i = 0; e->sums && i < 2 * gguf_n_tensors(e->file); i++) free(e->sums[i]);
  free(e->sums);
  if (e->rows) memory_release(e->rows, rows_bytes(e));
  if (e->floats) memory_release(e->floats, floats_bytes(e));
  vec_free(&e->held);
  float_table_free(e->float_table);
  free(e->last); free(e->turns); free(e->source); free(e->scales);
  free(e->state_cuts);
  free(e->owner);
  free(e->ids); free(e->at); free(e->pages); free(e->logits); free(e->hidden); free(e->stream);
  free(e->draft_rows);
  model_close(e->m);
  tokenizer_free(e->tok);
  gguf_close(e->file);
  free(e);
}

const gguf *engine_gguf(const engine *e) { return e->file; }
const tokenizer *engine_tokenizer(const engine *e) { return e->tok; }
int engine_n_vocab(const engine *e) { return model_n_vocab(e->m); }
int engine_n_ctx(const engine *e) { return e->n_ctx; }

void engine_stats(const engine *e, struct engine_stats *out) {
  plan_stats s = {0};
  plan_spec first = spec_first(e);
  for (int i = 0; i < e->layer_split.n; i++) {
    plan_stats of = plan_get_stats(plans_of(e, &first)->at[i].p);
    s.dispatches += of.dispatches;
    s.graph_ops += of.graph_ops;
    s.unique += of.unique;
    s.tuned += of.tuned;
  }
  online_tuner_stats l = {0};
  if (e->online_tuner) online_tuner_stats_get(e->online_tuner, &l);
  *out = (struct engine_stats){
    .load_ms = e->load_ms,
    .compile_ms = e->compile_ms,
    .schedule_ms = e->schedule_ms,
    .codegen_ms = e->codegen_ms,
    .kernels_compiled = e->compiled,
    .plans_scheduled = e->scheduled,
    .kernels_per_token = s.dispatches,
    .kernels_per_block = (double)s.dispatches / model_n_layer(e->m),
    .fusion_rate = s.dispatches ? (double)s.graph_ops / s.dispatches : 0,
    .kv_bytes = kv_bytes(e),
    .peak_rss_bytes = memory_peak_rss(),
    .n_params = gguf_n_params(e->file),
    .model_bytes = gguf_tensor_bytes(e->file),
    .kernels = s.unique,
    .kernels_tuned = s.tuned,
    .tune_tried = l.tried,
    .tune_better = l.better,
    .tune_state = l.state,
    .tune_cost = l.ran_s > 0 ? (l.lost_s + l.made_s) / l.ran_s : 0,
  };
}

device *engine_device(engine *e) { return e->layer_split.at[0].d; }
int engine_n_layer(const engine *e) { return model_n_layer(e->m); }
int engine_n_floats(const engine *e) { return model_n_floats(e->m); }
float_table *engine_float_table(engine *e) { return e->float_table; }
bool engine_has_sections(const engine *e) { return model_has_sections(e->m); }
int engine_n_embd(const engine *e) { return model_n_embd(e->m); }
bool engine_is_recurrent(const engine *e) { return model_is_recurrent(e->m); }
bool engine_is_encoder(const engine *e) { return model_is_encoder(e->m); }
bool engine_has_source(const engine *e) { return model_has_source(e->m); }
int32_t engine_starts(const engine *e) { return model_starts(e->m); }
bool engine_denoises(const engine *e) { return model_denoises(e->m); }
bool engine_is_exact(const engine *e) { return e->o.exact; }
int engine_block(const engine *e) { return model_block(e->m); }
int engine_pooling(const engine *e) { return (int)model_pooling(e->m); }
int engine_chunk(const engine *e) { return (int)e->chunk; }

// The plans that tools show: for one token, and for a chunk of a prompt.
static plan_spec spec_shown(const engine *e, bool prompt) {
  return prompt ? spec_many(e, LOGITS_NONE, (size_t)e->room) : spec_one();
}

void engine_trace(const engine *e, bool prompt, graph *g, schedule *s) {
  const struct layer_range *at = &e->layer_split.at[0];
  plan_spec spec = spec_shown(e, prompt);
  compile_plan(e, at, g, graph_of_plan(e, at, &spec, g), s);
}

void engine_buffer_name(const engine *e, int64_t id, char *out, size_t cap) {
  int64_t own = id - model_buffer_id(e->file, 0);
  if (id >= TEMP_IDS) snprintf(out, cap, "temporary %lld", (long long)(id - TEMP_IDS));
  else if (codebook_is(id)) snprintf(out, cap, "code book");
  else if (own < 0) snprintf(out, cap, "%s", gguf_tensor_at(e->file, (size_t)id)->name);
  else if (own < BUF_STATE) snprintf(out, cap, "%s", own == BUF_IDS ? "ids" : own == BUF_TURNS ? "turns" : "logits");
  else if (own >= BUF_ADAPTER)
    snprintf(out, cap, "adapter %s",
             gguf_tensor_at(e->file, (size_t)(own - BUF_ADAPTER) / 2 % gguf_n_tensors(e->file))->name);
  else if (own >= BUF_CONTROL) snprintf(out, cap, "control vector");
  else snprintf(out, cap, "state %lld", (long long)(own - BUF_STATE));
}

// --- layouts --------------------------------------------------------------------------------------------------------

bool engine_brings_weights(const engine *e) { return e->demand; }
const enum layout_kind *engine_layouts(const engine *e) { return e->now->layouts; }

int engine_repack(engine *e, const enum layout_kind *layouts, error *err) {
  stop_live(e);
  weight_packing *before = e->now;
  size_t n = gguf_n_tensors(e->file);
  fail_if(e->other, err, "weights are packed in two ways already");
  e->now = xcalloc(1, sizeof *e->now);
  e->now->layouts = xcalloc(n + 1, sizeof *layouts);
  memcpy(e->now->layouts, layouts, n * sizeof *layouts);
  e->other = before;
  plan_spec first = spec_first(e);
  if (!open_weights(e, e->now, err) && !need_plan(e, &first, err)) return 0;
  engine_swap(e);
  engine_drop_other(e);
  return -1;
}

void engine_swap(engine *e) {
  weight_packing *l = e->now;
  e->now = e->other;
  e->other = l;
}

void engine_drop_other(engine *e) {
  close_packing(e->other);
  demand_free(e->demand);
  e->other = NULL;
}

int64_t engine_weight_of(const engine *e, bool prompt, int launch) {
  plan_spec spec = spec_shown(e, prompt);
  const stage *s = &plans_of(e, &spec)->at[0];
  const gguf_tensor *t = roles_weight(e->file, &s->s.kernels[launch]);
  return t ? (int64_t)gguf_tensor_index(e->file, t) : -1;
}

int engine_plan(engine *e, bool prompt, plan **p, int32_t **ids, error *err) {
  if (e->layer_split.n > 1)
    return error_set(err, "a model on two devices is two plans, and this looks at one: -ngl %d has all on %s, -ngl 0 "
                          "none", model_n_layer(e->m), e->layer_split.at[1].d->name);
  plan_spec spec = spec_shown(e, prompt);
  if (need_plan(e, &spec, err) || sequence_hold_all(e->own, e->n_ctx, err)) return -1;
  choose_sequence(e, e->own);
  stop_live(e);             // its runs would change another sequence
  *p = plan_of(e, &spec);
  *ids = e->ids;
  return 0;
}
