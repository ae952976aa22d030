// The engine: file, tokenizer, graphs, plans, and the caches of all sequences. See engine.h. There is a plan for a
// single token with logits, one for a chunk of a prompt without, and some for rows of several sequences; a prompt of n
// tokens goes through as chunks of n - 1 and the last token alone, or among others' rows. All but the first are made
// when they are first needed.
#include "engine/engine.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "codegen/join.h"
#include "device/device.h"
#include "device/kept.h"
#include "device/live.h"
#include "device/memory.h"
#include "engine/page_store.h"
#include "engine/layouts.h"
#include "engine/learn.h"
#include "engine/places.h"
#include "engine/roles.h"
#include "engine/tune.h"
#include "engine/weights.h"
#include "graph/record.h"
#include "model/codebook.h"
#include "model/model.h"
#include "schedule/dots.h"
#include "schedule/layout.h"

enum {
  WORTH_LEARNING = 64 << 20 /* bytes of weights: smaller models lie in caches, where nothing need be asked for */
};
enum {
  TWO = 2,
  FEW = 4 /* tokens: one by one is quicker than a chunk */,
  TILE = 8 /* rows, of which each costs what one does */,
  DEFAULT_CHUNK = 64,
  MAX_CHUNK = 4096,
  CHUNK_STEP = 64,
  LEAST_CTX = 4096
};
// Kernels know no context but the longest that a sequence can have, and no number of pages but the largest.
enum { USUAL_CTX = 1 << 17, USUAL_PAGES = 1 << 13, FEW_PAGES = 8 };
// Tokens of one expert that its weights are read for at once, and what a chunk has of them on average, if that is not
// too long: the last tile of each is half empty, and each reads its weights once a chunk. DeepSeek-V2-Lite on Zen 4,
// prompts of 1,024, chunks of 64: 53 tokens a second, of 192: 68, 256: 73, 320: 71.
enum { EXPERT_TILE = 8, EXPERT_TOKENS = 3 * EXPERT_TILE, LONGEST_CHUNK = 512 };

// The plans of a model, what they compute beside the caches, and for how many tokens (0: as many as a chunk has; fewer:
// the plan that is better for up to DEFAULT_CHUNK). Tiles of tokens are as large as that: 40 tokens of 1B Q4_0 with
// chunks of 512 went through at 63 a second on Zen 4, at 190 with chunks of 64.
enum plan_kind {
  PLAN_ONE,
  PLAN_MANY,
  PLAN_ROWS,
  PLAN_TILE_ROWS,
  PLAN_APART,
  PLAN_TWO_APART,
  PLAN_FEW_APART,
  PLAN_TILE_APART,
  PLAN_MIXED,
  PLAN_SUMS,
  PLAN_HIDDEN,
  PLAN_FEWER,
  PLAN_FEWER_ROWS,
  PLAN_FEWER_APART,
  PLAN_FEWER_HIDDEN,
  PLAN_MTP,
  PLAN_COUNT
};
static const struct plan_row {
  enum model_logits logits;
  int tokens, rows;
  enum plan_kind fewer;
  bool apart, sums, mtp;
} plan_rows[PLAN_COUNT] = {
  [PLAN_ONE] = {.logits = LOGITS_LAST, .tokens = 1},
  [PLAN_MANY] = {.logits = LOGITS_NONE, .fewer = PLAN_FEWER},
  [PLAN_ROWS] = {.logits = LOGITS_ALL, .fewer = PLAN_FEWER_ROWS},
  [PLAN_TILE_ROWS] = {.logits = LOGITS_ALL, .tokens = TILE},
  [PLAN_APART] = {.logits = LOGITS_ALL, .fewer = PLAN_FEWER_APART, .apart = true},
  [PLAN_TWO_APART] = {.logits = LOGITS_ALL, .tokens = TWO, .apart = true},
  [PLAN_FEW_APART] = {.logits = LOGITS_ALL, .tokens = FEW, .apart = true},
  [PLAN_TILE_APART] = {.logits = LOGITS_ALL, .tokens = TILE, .apart = true},
  [PLAN_MIXED] = {.logits = LOGITS_ALL, .tokens = TILE, .rows = FEW, .apart = true},
  [PLAN_SUMS] = {.logits = LOGITS_NONE, .sums = true},
  [PLAN_HIDDEN] = {.logits = LOGITS_HIDDEN, .fewer = PLAN_FEWER_HIDDEN},
  [PLAN_FEWER] = {.logits = LOGITS_NONE, .tokens = DEFAULT_CHUNK},
  [PLAN_FEWER_ROWS] = {.logits = LOGITS_ALL, .tokens = DEFAULT_CHUNK},
  [PLAN_FEWER_APART] = {.logits = LOGITS_ALL, .tokens = DEFAULT_CHUNK, .apart = true},
  [PLAN_FEWER_HIDDEN] = {.logits = LOGITS_HIDDEN, .tokens = DEFAULT_CHUNK},
  [PLAN_MTP] = {.logits = LOGITS_LAST, .tokens = 1, .mtp = true},
};

typedef struct stage { graph *g; schedule s; plan *p; } stage;
// Weights in a layout for each tensor, and the plans that read them, on each device.
typedef struct laid {
  weights w[MOST_PLACES];
  enum layout_kind *layouts;
  stage plans[MOST_PLACES][PLAN_COUNT];
} laid;
// One of the devices, for what a plan there asks.
typedef struct site { engine *e; int place; } site;

struct engine {
  gguf *file;
  tokenizer *tok;
  model *m;
  places places;
  site sites[MOST_PLACES];
  struct engine_options o;
  uint64_t options;                       // sequence_options
  int n_ctx;
  // positions that a sequence can have; tokens of a chunk, and what its plan has room for
  int64_t ctx, chunk, room;
  caches caches;
  sequence *own;                          // of callers who have none
  laid *now, *other;                      // other: while layouts are compared
  int32_t *ids, *at, *pages, slot;        // what plans read: tokens, and where they stand (model_shape)
  float *logits, *rows;                   // of one position; of a chunk (NULL: nobody has asked)
  float *hidden;                          // of a chunk, what the head would read; NULL: nobody has asked
  float *stream;                          // of a chunk, what flows from one device to the next; NULL: there is one
  float **sums;                           // by id from BUF_SUMS on; NULL: nobody has asked
  double load_ms, compile_ms, schedule_ms, codegen_ms;
  live *live;                             // of single tokens; NULL: it is not tuned while it runs
  // of what is evaluated now: who is asked whether to go on (NULL: nobody), tokens that are through and that are under
  // way, of these the share that is through on devices before, and whether it ended early
  struct { engine_go_on *go_on; void *ctx; double done, now, share; bool ended; } ask;
  double settle_s;                        // time that may be spent on moving weights into huge pages; negative: owed
  int64_t compiled, scheduled;
};

void engine_progress(const engine *e, const char *what, double fraction) {
  if (e->o.progress) e->o.progress(e->o.progress_ctx, what, fraction);
}

// --- memory ---------------------------------------------------------------------------------------------------------

// Of one whole context.
static uint64_t kv_bytes(const engine *e) {
  return caches_held_bytes(e->m, (int64_t)round_up((size_t)e->n_ctx, CACHE_PAGE), e->room);
}

// Entries of the table of pages: of a group, and of a sequence.
static int64_t page_table(const engine *e) { return e->ctx / CACHE_PAGE + 1; }
static int64_t page_tables(const engine *e) { return max_i64(model_n_groups(e->m), 1) * page_table(e); }

// With chunks of so many tokens.
static struct places_sizes sizes_with(const engine *e, int64_t room) {
  const device *d = e->places.at[0].d;
  // kernels of one size for most contexts; where memory is taken before it is used, for not much more than is needed
  int64_t most = d->run->here ? max_i64(max_i64(e->n_ctx, model_n_ctx_train(e->m)), USUAL_CTX)
                              : (int64_t)round_up((size_t)e->n_ctx, LEAST_CTX);
  // a chunk may begin at the last position: then every index is in bounds whatever the variables of a plan are
  return (struct places_sizes){(int64_t)round_up((size_t)(e->n_ctx + room), CACHE_PAGE),
                               (int64_t)round_up((size_t)(most + room), CACHE_PAGE),
                               room + (room > DEFAULT_CHUNK ? DEFAULT_CHUNK : 0)};
}

static bool fits_with(const engine *e, int64_t room) {
  struct places_sizes sizes = sizes_with(e, room);
  return places_hold(&e->places, e->file, e->m, &sizes, e->o.gpu_layers);
}

static bool has_room(const engine *e) {
  uint64_t need, have;
  if (!e->places.at[0].d->run->here) return fits_with(e, e->room);
  return add_u64(kv_bytes(e), gguf_file_bytes(e->file), &need) && (memory_available(&have, NULL) || need <= have);
}

// What nobody asked for may be less: many models were trained for more positions than a machine has memory for. Halves,
// so that a machine knows few kernels.
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
  e->chunk = model_is_encoder(e->m) ? e->n_ctx : e->o.chunk > 0 ? min_i64(e->o.chunk, MAX_CHUNK) : chunk;
  if (model_block(e->m)) e->chunk = min_i64(e->chunk, model_block(e->m));
  e->room = (int64_t)round_up((size_t)e->chunk, CHUNK_STEP);
}

// The context first, unless somebody asked for it: a short one is worse than small chunks. Then, where groups of items
// share rows of a weight from so many tokens on, and all fits with them, chunks of as many: by prediction (1B Q4_0,
// chunks of 64, 128, 256, 512) prompts of 21, 30, 51 and 58 thousand tokens a second on an H200, 3.4, 3.5, 5.4 and 5.1
// on an Orin.
static void choose_sizes(engine *e) {
  set_chunk(e, usual_chunk(e));
  if (!e->o.n_ctx) fit_context(e);
  int64_t many = e->places.at[0].d->target.many_tokens;
  if (many > e->chunk && fits_with(e, many)) set_chunk(e, many);
}

static int share_layers(engine *e, error *err) {
  places *p = &e->places;
  struct places_sizes sizes = sizes_with(e, e->room);
  e->ctx = sizes.longest;
  int r = places_share(p, e->file, e->m, &sizes, &e->o, err);
  for (int i = 0; i < p->n; i++) {
    e->sites[i] = (site){e, i};
    if (e->o.no_repack) p->at[i].d->target.has_streams = false;
  }
  if (p->n > 1) e->stream = xcalloc((size_t)(e->room * model_n_stream(e->m)) + 64, sizeof *e->stream);
  return r;
}

// Bytes of the file that are read here: of layers on a device with memory of its own, once.
static uint64_t file_bytes_here(const engine *e) {
  const struct place *first = &e->places.at[0];
  return e->places.n == 1 ? gguf_file_bytes(e->file) : places_bytes(e->file, e->m, first->from, first->to, 0);
}

static device **devices_of_states(const engine *e) {
  int n = model_n_states(e->m);
  device **of = xcalloc((size_t)n + 1, sizeof *of);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < e->places.n; j++)
      if (model_state_layer(e->m, i) >= e->places.at[j].from) of[i] = e->places.at[j].d;
  return of;
}

static int reserve_caches(engine *e, error *err) {
  uint64_t file = file_bytes_here(e), kv = kv_bytes(e), need, have, all = UINT64_MAX;
  bool here = true;
  for (int i = 0; i < e->places.n; i++) here &= e->places.at[i].d->run->here;
  if (e->places.n > 1) kv = places_bytes(e->file, e->m, 0, e->places.at[0].to, e->n_ctx) - file;
  if (!add_u64(kv, file, &need))
    return error_set(err, "%s: a KV cache for %d positions is too large", gguf_path(e->file), e->n_ctx);
  if (!memory_available(&have, NULL) && need > have)
    return error_set(err,
                     "%s: %.2f GiB of model and %.2f GiB of KV cache for %d positions, but only %.2f GiB of memory are "
                     "free; a smaller context (-c) needs less",
                     gguf_path(e->file), (double)file / (1 << 30), (double)kv / (1 << 30), e->n_ctx,
                     (double)have / (1 << 30));
  if (!memory_available(&have, NULL)) all = have - file;
  int64_t least = least_pages(e);
  // Elsewhere pages take memory before they are used; but each sequence of a step has one of its own.
  int64_t pages = here ? max_i64(USUAL_PAGES, 2 * e->ctx / CACHE_PAGE) : max_i64(FEW_PAGES, least);
  if (caches_open(&e->caches, e->m, devices_of_states(e), pages, least, e->room, all, err) ||
      sequence_new(&e->caches, &e->own, err))
    return -1;
  e->ids = xcalloc((size_t)e->room, sizeof *e->ids);
  e->at = xcalloc((size_t)e->room, sizeof *e->at);
  e->pages = xcalloc((size_t)(e->room * page_tables(e)), sizeof *e->pages);
  e->logits = xcalloc((size_t)model_n_vocab(e->m) + 64, sizeof *e->logits);
  return 0;
}

static uint64_t rows_bytes(const engine *e) {
  return (uint64_t)e->room * (uint64_t)model_n_vocab(e->m) * sizeof *e->rows;
}

// Sums of squares for a tensor, or the counts of its experts.
static float *sums_buffer(engine *e, int64_t i) {
  const gguf_tensor *t = gguf_tensor_at(e->file, (size_t)i / 2);
  if (!e->sums[i]) e->sums[i] = xcalloc((size_t)t->ne[2] * (i % 2 ? 1 : (size_t)t->ne[0]) + 64, sizeof **e->sums);
  return e->sums[i];
}

// The ids and what comes of them lie in this process's memory, on every device: a plan brings and fetches them.
static void *buffer_at(void *ctx, int64_t id) {
  engine *e = ((const site *)ctx)->e;
  int64_t own = id - model_buffer_id(e->file, 0);
  if (codebook_is(id)) return codebook_data(id);
  if (own < 0) return (void *)(uintptr_t)gguf_tensor_at(e->file, (size_t)id)->data;
  if (own == BUF_IDS) return e->ids;
  if (own == BUF_AT) return e->at;
  if (own == BUF_PAGES) return e->pages;
  if (own == BUF_SLOT) return &e->slot;
  if (own == BUF_LOGITS) return e->logits;
  if (own == BUF_ROWS) return e->rows;
  if (own == BUF_HIDDEN) return e->hidden;
  if (own == BUF_STREAM) return e->stream;
  if (own >= BUF_ADAPTER) return model_adapter_data(e->m, own - BUF_ADAPTER);
  if (own >= BUF_SUMS) return sums_buffer(e, own - BUF_SUMS);
  return e->caches.state[own - BUF_STATE];
}

// --- plans ----------------------------------------------------------------------------------------------------------

static void role(void *ctx, const schedule *s, int i, char *out, size_t cap) {
  roles_name(((const site *)ctx)->e->file, s, i, out, cap);
}

static void compiling(void *ctx, double fraction) { engine_progress(((const site *)ctx)->e, "compiling", fraction); }

static void *stream_at(void *ctx, int64_t id, uint64_t hash, int64_t size, bool *filled) {
  const site *at = ctx;
  return weights_stream(&at->e->now->w[at->place], id, hash, size, filled);
}

static void filled(void *ctx, int64_t id, double from, double to, double done) {
  const site *at = ctx;
  engine *e = at->e;
  weights_give_back(&e->now->w[at->place], id, from, to);
  if (to >= 1) weights_filled(&e->now->w[at->place], id);
  engine_progress(e, "loading", done);
}

static enum layout_kind layout_wanted(void *ctx, int64_t id) {
  const engine *e = ctx;
  return id < model_buffer_id(e->file, 0) ? e->now->layouts[id] : LAYOUT_ROWS;
}

// What a plan computes, over weights as they lie in the file.
static uop *graph_of_plan(const engine *e, const struct place *at, enum plan_kind kind, graph *g) {
  const struct plan_row *r = &plan_rows[kind];
  model_shape of = {.page = CACHE_PAGE,
                    .tile = EXPERT_TILE,
                    .pages = e->caches.n_pages,
                    .slots = e->caches.slots,
                    .ctx = e->ctx,
                    .n_ctx = e->n_ctx,
                    .chunk = r->tokens ? r->tokens : e->room,
                    .apart = r->apart,
                    .rows = r->rows,
                    .logits = r->logits,
                    .sums = r->sums,
                    .mtp = r->mtp,
                    .exact = e->o.exact,
                    .layers = {at->from, at->to}};
  uop *sink = model_graph(e->m, g, &of);
  record_mark(g, sink, "model");
  return sink;
}

static void make_schedule(const engine *e, const device *d, graph *g, uop *sink, schedule *s) {
  const target *t = &d->target;
  if (!e->o.exact) sink = integer_dots(g, sink, t->rounded_most);
  if (!e->o.exact && t->has_streams &&
      descriptor_lanes(t->descriptors, DT_F32, t->vector_bytes / 4, t->vector_bytes / 4))
    sink = brain_dots(g, sink);
  if (!e->o.exact && t->has_streams && descriptor_tile(t->descriptors, DT_F16, 16)) sink = half_dots(g, sink);
  record_mark(g, sink, "dots");
  schedule_graph(g, sink, s);
  if (t->has_streams)
    layout_weights(g, s, &(layout_target){target_rows(t), t->row_bytes}, layout_wanted, (engine *)(uintptr_t)e);
  if (t->has_local) join_kernels(g, s, t);
  record_mark(g, sink, "schedule");
}

// The same as the last time, if nothing that decides about it has changed.
static void find_schedule(engine *e, const struct place *at, enum plan_kind kind, stage *st) {
  graph *g = graph_new(NULL);
  uop *sink = graph_of_plan(e, at, kind, g);
  str key = {0}, more = {0};
  str_addf(&more, "exact %d\n", e->o.exact);
  str_addn(&more, e->now->layouts, gguf_n_tensors(e->file) * sizeof *e->now->layouts);
  kept_key(at->d, sink, more.at, more.n, &key);
  st->g = graph_new(NULL);
  if (kept_schedule(at->d, &key, st->g, &st->s)) graph_free(g);
  else {
    graph_free(st->g);
    st->g = g;
    make_schedule(e, at->d, g, sink, &st->s);
    keep_schedule(at->d, &key, g, &st->s);
    e->scheduled++;
  }
  str_free(&more);
  str_free(&key);
}

// The plan that a model cannot do without: of one token, or of a whole text.
static enum plan_kind first_plan(const engine *e) { return model_is_encoder(e->m) ? PLAN_HIDDEN : PLAN_ONE; }
// The plan for the last layers, which is there if those before are; where there is one device it is all.
static plan *plan_of(const engine *e, enum plan_kind kind) { return e->now->plans[e->places.n - 1][kind].p; }

static enum plan_kind plan_for(const engine *e, enum plan_kind kind, size_t tokens) {
  enum plan_kind fewer = plan_rows[kind].fewer;
  return fewer && tokens <= DEFAULT_CHUNK && e->room > DEFAULT_CHUNK ? fewer : kind;
}

static void hidden_buffer(engine *e) {
  if (!e->hidden) e->hidden = xcalloc((size_t)(e->room * model_n_embd(e->m)) + 64, sizeof *e->hidden);
}

static int need_at(engine *e, int place, enum plan_kind kind, error *err) {
  stage *st = &e->now->plans[place][kind];
  const struct place *at = &e->places.at[place];
  if (st->p) return 0;
  double began = now_s();
  if (!st->g) find_schedule(e, at, kind, st);
  e->schedule_ms += (now_s() - began) * 1e3;
  if (plan_build(at->d, st->g, &st->s,
                 &(plan_options){.buffer = buffer_at,
                                 .ctx = &e->sites[place],
                                 .role = role,
                                 .progress = compiling,
                                 .stream = stream_at,
                                 .filled = filled,
                                 .prompt = plan_rows[kind].tokens != 1 && !plan_rows[kind].apart,
                                 .flushes = true},
                 &st->p, err))
    return -1;
  plan_stats s = plan_get_stats(st->p);
  e->compile_ms += s.compile_ms;
  e->codegen_ms += s.codegen_ms;
  e->compiled += s.compiled;
  return 0;
}

// Makes a plan, for all devices, unless it is there.
static int need_plan(engine *e, enum plan_kind kind, error *err) {
  if (plan_of(e, kind)) return 0;
  if (plan_rows[kind].logits == LOGITS_HIDDEN) hidden_buffer(e);
  for (int i = 0; i < e->places.n; i++) if (need_at(e, i, kind, err)) return -1;
  return 0;
}

static int open_weights(engine *e, laid *l, error *err) {
  for (int i = 0; i < e->places.n; i++) {
    const struct place *at = &e->places.at[i];
    int to = at->to == model_n_layer(e->m) ? model_n_blocks(e->m) : at->to;
    if (at->d->target.has_streams && weights_open(&l->w[i], e->file, at->d, at->from, to, err)) return -1;
  }
  return 0;
}

static int load_model(engine *e, const char *path, error *err) {
  if (gguf_open(path, &e->file, err)) return -1;
  for (size_t i = 0; i < e->o.n_settings; i++) if (gguf_set_text(e->file, e->o.settings[i], err)) return -1;
  if (model_open(e->file, e->o.kv, &e->m, err) || tokenizer_from_gguf(e->file, &e->tok, err)) return -1;
  if (!e->o.mtp) model_drop_mtp(e->m);
  for (size_t i = 0; i < e->o.n_adapters; i++)
    if (model_adapt(e->m, e->o.adapters[i].path, e->o.adapters[i].scale, err)) return -1;
  e->options = sequence_options(&e->o);
  e->o.n_settings = e->o.n_adapters = 0;  // those are the caller's
  engine_progress(e, "loading", 0.3);
  int most = model_n_ctx_max(e->m);
  e->n_ctx = e->o.n_ctx ? e->o.n_ctx : model_n_ctx_train(e->m);
  if (most && e->n_ctx > most)
    return error_set(err, "%s: a context of %d positions, but of this model there are %d at most", path, e->n_ctx,
                     most);
  if (places_open(&e->places, e->m, &e->o, err)) return -1;
  choose_sizes(e);
  if (share_layers(e, err)) return -1;
  if (e->places.n > 1) model_drop_mtp(e->m);
  if (reserve_caches(e, err)) return -1;
  device *first = e->places.at[0].d;
  if (gguf_tensor_bytes(e->file) >= WORTH_LEARNING) machine_learn(first);
  e->now->layouts = layouts_known(first, e->file);
  if (open_weights(e, e->now, err)) return -1;
  if (need_plan(e, first_plan(e), err) || model_adapters_used(e->m, err)) return -1;
  if (first->target.has_streams) weights_read_ahead(&e->now->w[0]);
  tune_from_env(e, false);
  const char *tune = env_str(ENV_WEFT_TUNE);
  bool always = !strcmp(tune, "always");
  if (!model_is_encoder(e->m) && e->places.n == 1 && (always || !strcmp(tune, "background")))
    e->live = live_open(plan_of(e, PLAN_ONE), always);
  return 0;
}

int engine_open(const char *path, const struct engine_options *options, engine **out, error *err) {
  engine *e = xcalloc(1, sizeof *e);
  double t = now_s();
  e->now = xcalloc(1, sizeof *e->now);
  if (options) e->o = *options;
  error why = {0};
  if (load_model(e, path, &why) || gguf_check_size(e->file, &why)) {
    // of a file that was cut: that, and not what its zeros look like
    if (!e->file || !gguf_check_size(e->file, err)) error_set(err, "%s", why.text);
    engine_close(e);
    return -1;
  }
  e->load_ms = (now_s() - t) * 1e3 - e->compile_ms;
  *out = e;
  return 0;
}

static void stop_live(engine *e) {
  live_close(e->live);
  e->live = NULL;
}

static void close_stage(stage *s) {
  plan_free(s->p);
  graph_free(s->g);
}

static void close_laid(laid *l) {
  if (!l) return;
  for (int i = 0; i < MOST_PLACES; i++) {
    for (int j = 0; j < PLAN_COUNT; j++) close_stage(&l->plans[i][j]);
    weights_free(&l->w[i]);
  }
  free(l->layouts);
  free(l);
}

void engine_close(engine *e) {
  if (!e) return;
  stop_live(e);
  close_laid(e->now);
  close_laid(e->other);
  sequence_free(e->own);
  caches_close(&e->caches);
  places_close(&e->places);
  for (size_t i = 0; e->sums && i < 2 * gguf_n_tensors(e->file); i++) free(e->sums[i]);
  free(e->sums);
  if (e->rows) memory_release(e->rows, rows_bytes(e));
  free(e->ids); free(e->at); free(e->pages); free(e->logits); free(e->hidden); free(e->stream);
  model_close(e->m);
  tokenizer_free(e->tok);
  gguf_close(e->file);
  free(e);
}

const gguf *engine_gguf(const engine *e) { return e->file; }
const tokenizer *engine_tokenizer(const engine *e) { return e->tok; }
int engine_n_vocab(const engine *e) { return model_n_vocab(e->m); }
int engine_n_ctx(const engine *e) { return e->n_ctx; }

// Memory is plain pages at first, which cost little to touch, and moves into huge ones, which are quicker to read,
// between runs: in a small part of the time that the runs take, so that no token waits for it. Caches follow as far as
// they are full.
enum { SETTLE_PERCENT = 5 };

void engine_watch(engine *e, engine_go_on *go_on, void *ctx) {
  e->ask.go_on = go_on;
  e->ask.ctx = ctx;
}

bool engine_ended(const engine *e) { return e->ask.ended; }

static bool ask_go_on(void *ctx, double part) {
  engine *e = ctx;
  double through = e->ask.share + part / e->places.n;
  return e->ask.go_on(e->ask.ctx, e->ask.done + through * e->ask.now);
}

static bool settle(engine *e, double seconds) {
  for (int i = 0; i < e->places.n; i++) if (!weights_settle(&e->now->w[i], seconds)) return false;
  return caches_settle(&e->caches, seconds);
}

static void run_plans(engine *e, enum plan_kind kind, const plan_var *vars, int n_vars) {
  double start = now_s();
  bool whole = kind == PLAN_ONE || kind == PLAN_SUMS || plan_rows[kind].logits == LOGITS_HIDDEN, ended = false;
  bool asking = e->ask.go_on && !whole;
  for (int i = 0; i < e->places.n && !ended; i++) {
    plan *p = e->now->plans[i][kind].p;
    e->ask.share = (double)i / e->places.n;
    if (e->live && kind == PLAN_ONE) live_run(e->live, vars, n_vars);
    else if (asking) ended = !plan_run_asking(p, vars, n_vars, ask_go_on, e);
    else plan_run(p, vars, n_vars);
  }
  e->ask.ended |= ended;
  double end = now_s();
  e->settle_s += (end - start) * SETTLE_PERCENT / 100;
  if (e->settle_s <= 0) return;
  bool all = settle(e, e->settle_s);
  e->settle_s = all ? 0 : e->settle_s - (now_s() - end);
}

void engine_settle(engine *e) { while (!settle(e, 1)) continue; }

// Where plans over one sequence find it.
static void choose_sequence(engine *e, const sequence *q) {
  for (int g = 0; g < model_n_groups(e->m); g++) {
    const page_list *list = &q->group[g];
    int32_t *table = e->pages + g * page_table(e);
    for (size_t i = 0; i < list->n; i++) table[i] = list->at[i] == NO_PAGE ? 0 : list->at[i];
  }
  e->slot = q->slot;
}

// As many of n tokens from pos on as go through at once. Returns their number.
static size_t eval_chunk(engine *e, enum plan_kind kind, const int32_t *ids, size_t n, int pos) {
  int block = model_block(e->m);
  size_t m = n < (size_t)e->chunk ? n : (size_t)e->chunk;
  if (block && m > (size_t)(block - pos % block)) m = (size_t)(block - pos % block);
  memcpy(e->ids, ids, m * sizeof *ids);
  e->ask.now = (double)m;
  run_plans(e, kind, (plan_var[]){{"n", (int64_t)m}, {"pos", pos}}, 2);
  e->ask.done += (double)m;
  return m;
}

static void eval_each(engine *e, const int32_t *ids, size_t n, int pos) {
  for (; n; ids++, n--, pos++) {
    e->ids[0] = ids[0];
    run_plans(e, PLAN_ONE, &(plan_var){"pos", pos}, 1);
  }
}

// Whether file and device are as they were.
static int sound(const engine *e, error *err) {
  for (int i = 0; i < e->places.n; i++) if (device_check(e->places.at[i].d, err)) return -1;
  return gguf_check_size(e->file, err);
}

// So many tokens go one by one rather than as a chunk. A chunk of two costs no more than they do, but its plan is not
// made for a few.
static size_t few(const engine *e) { return plan_of(e, PLAN_MANY) || plan_of(e, PLAN_FEWER) ? 1 : FEW; }

// The plan for a chunk of a prompt, among those that are there: the end of a long one is not worth another.
static enum plan_kind chunk_plan(const engine *e, size_t n) {
  enum plan_kind kind = plan_for(e, PLAN_MANY, n);
  return plan_of(e, kind) ? kind : PLAN_MANY;
}

// Evaluates n tokens as chunks, all but the `last` ones and a few. Returns how many are left.
static size_t eval_chunks(engine *e, const int32_t *ids, size_t n, size_t last, int pos) {
  for (size_t m; n > few(e) + last && !e->ask.ended; ids += m, n -= m, pos += (int)m)
    m = eval_chunk(e, chunk_plan(e, n - last), ids, n - last, pos);
  return n;
}

static void eval_ids(engine *e, const int32_t *ids, size_t n, int pos) {
  size_t left = eval_chunks(e, ids, n, 1, pos);
  if (!e->ask.ended) eval_each(e, ids + n - left, left, pos + (int)(n - left));
}

// Before n tokens from pos on are evaluated: memory for them, and a plan for prompts if one is needed (prompt: so many
// tokens go through it at least).
static int prepare_eval(engine *e, sequence *q, const int32_t *ids, size_t n, int pos, size_t prompt, error *err) {
  if (!n || pos < 0 || n > (size_t)(e->n_ctx - pos)) die("engine: %zu tokens at %d of %d", n, pos, e->n_ctx);
  for (size_t i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= model_n_vocab(e->m)) die("engine: token %d of %d", ids[i], model_n_vocab(e->m));
  bool again = !sequence_is_whole(q, pos);               // what lies before pos is evaluated once more
  if (sound(e, err) || (again && sequence_hold_again(q, pos, pos + (int)n, err)) ||
      sequence_hold(q, pos, pos + (int)n, err))
    return -1;
  if (again && pos > FEW && (size_t)pos > prompt) prompt = (size_t)pos;
  enum plan_kind kind = plan_for(e, PLAN_MANY, prompt);
  if (!prompt || plan_of(e, kind)) return 0;
  if (need_plan(e, kind, err)) return -1;
  if (q == e->own && !pos) {
    engine_go_on *go_on = e->ask.go_on;
    choose_sequence(e, q);
    e->ask.go_on = NULL;
    tune_from_env(e, true);                              // what the searches write is evaluated by the caller
    e->ask.go_on = go_on;
  }
  return 0;
}

// After that: this sequence is the one, with fixed states and windows as they were at pos.
static void enter_sequence(engine *e, sequence *q, const int32_t *ids, size_t n, int pos) {
  choose_sequence(e, q);
  e->ask.done = 0;
  e->ask.ended = false;
  if (caches_keep_ids(&e->caches)) {
    int whole = sequence_whole(q, pos);
    if (whole < pos) eval_ids(e, q->ids.at + whole, (size_t)(pos - whole), whole);
    if (!e->ask.ended) sequence_is_renewed(q, pos);
    q->ids.n = (size_t)pos;
    for (size_t i = 0; i < n; i++) vec_push(&q->ids, ids[i]);
  }
  q->n = q->at = pos + (int)n;
  q->evaluations++;
}

// What was begun at pos has been evaluated, or (early) not all of it.
static void end_eval(sequence *q, int pos, bool early) {
  if (!early) { sequence_trim(q); return; }
  sequence_cut(q, pos);
  q->at = -1;
}

static int begin_eval(engine *e, sequence *q, const int32_t *ids, size_t n, int pos, size_t prompt, error *err) {
  if (prepare_eval(e, q, ids, n, pos, prompt, err)) return -1;
  enter_sequence(e, q, ids, n, pos);
  return 0;
}

static int reserve_rows(engine *e, error *err) {
  error none = {0};
  if (e->rows || (e->rows = memory_reserve_plain(rows_bytes(e), &none))) return 0;
  return error_set(err, "no memory for the logits of %lld positions: %s; a smaller chunk (-ub) needs less",
                   (long long)e->chunk, none.text);
}

int engine_eval_rows(engine *e, sequence *q, const int32_t *ids, size_t n, int pos, size_t first, engine_row *row,
                     void *ctx, error *err) {
  if (!q) q = e->own;
  if (first >= n) die("engine_eval_rows: from %zu of %zu tokens on", first, n);
  enum plan_kind rows = first || n > TILE ? plan_for(e, PLAN_ROWS, n - first) : PLAN_TILE_ROWS;
  if (reserve_rows(e, err) || need_plan(e, rows, err) || begin_eval(e, q, ids, n, pos, first, err)) return -1;
  bool go_on = true;
  size_t at = 0, n_vocab = (size_t)model_n_vocab(e->m);
  for (size_t m; at < n && go_on; at += m) {
    bool wanted = at >= first;
    size_t left = (wanted ? n : first) - at;
    m = eval_chunk(e, wanted ? rows : chunk_plan(e, left), ids + at, left, pos + (int)at);
    if (e->ask.ended) { end_eval(q, pos, true); return sound(e, err) ? -1 : pos; }
    if (sound(e, err)) return -1;
    for (size_t i = 0; wanted && go_on && i < m; i++) go_on = row(ctx, at + i, e->rows + i * n_vocab);
  }
  q->n = q->at = pos + (int)at;
  end_eval(q, pos, false);
  return q->n;
}

int engine_eval_sums(engine *e, const int32_t *ids, size_t n, engine_sums *see, void *ctx, error *err) {
  size_t n_tensors = gguf_n_tensors(e->file);
  if (!e->sums) e->sums = xcalloc(2 * n_tensors + 1, sizeof *e->sums);
  if (need_plan(e, PLAN_SUMS, err) || begin_eval(e, e->own, ids, n, 0, 0, err)) return -1;
  for (size_t at = 0, m; at < n; at += m) {
    m = eval_chunk(e, PLAN_SUMS, ids + at, n - at, (int)at);
    if (sound(e, err)) return -1;
    for (size_t t = 0; t < n_tensors; t++) if (e->sums[2 * t]) see(ctx, t, e->sums[2 * t], e->sums[2 * t + 1], m);
  }
  end_eval(e->own, 0, false);
  return 0;
}

int engine_eval_hidden(engine *e, const int32_t *ids, size_t n, engine_row *row, void *ctx, error *err) {
  enum plan_kind kind = plan_for(e, PLAN_HIDDEN, n);
  if (need_plan(e, kind, err) || begin_eval(e, e->own, ids, n, 0, 0, err)) return -1;
  bool go_on = true;
  for (size_t at = 0, m; at < n && go_on; at += m) {
    m = eval_chunk(e, kind, ids + at, n - at, (int)at);
    if (sound(e, err)) return -1;
    for (size_t i = 0; go_on && i < m; i++) go_on = row(ctx, at + i, e->hidden + i * (size_t)model_n_embd(e->m));
  }
  end_eval(e->own, 0, false);
  e->own->at = -1;
  return 0;
}

int engine_eval(engine *e, const int32_t *ids, size_t n, int pos, const float **logits, error *err) {
  if (begin_eval(e, e->own, ids, n, pos, n > FEW ? n : 0, err)) return -1;
  eval_ids(e, ids, n, pos);
  end_eval(e->own, pos, e->ask.ended);
  if (sound(e, err)) return -1;
  if (logits) *logits = e->ask.ended ? NULL : e->logits;
  return e->ask.ended;
}

bool engine_has_mtp(const engine *e) { return model_has_mtp(e->m); }

int engine_predict(engine *e, sequence *q, int32_t id, int pos, const float **logits, error *err) {
  if (!q) q = e->own;
  if (pos < 0 || pos >= e->n_ctx || id < 0 || id >= model_n_vocab(e->m)) die("engine_predict: token %d at %d", id, pos);
  if (need_plan(e, PLAN_MTP, err) || sequence_hold(q, pos, pos + 1, err)) return -1;
  choose_sequence(e, q);
  e->ids[0] = id;
  run_plans(e, PLAN_MTP, &(plan_var){"pos", pos}, 1);
  *logits = e->logits;
  return sound(e, err);
}

int engine_need_mtp(engine *e, error *err) { return need_plan(e, PLAN_MTP, err); }

// --- steps of several sequences -------------------------------------------------------------------------------------

struct sequence *engine_sequence(engine *e) { return e->own; }
int engine_sequence_new(engine *e, struct sequence **out, error *err) { return sequence_new(&e->caches, out, err); }
static uint64_t files_of(const engine *e) {
  return sequence_model(e->file, e->options, model_variant(e->m, e->n_ctx));
}
int engine_sequence_save(const engine *e, const struct sequence *q, const int32_t *ids, const char *path, error *err) {
  return sequence_save(q, ids, files_of(e), path, err);
}
int engine_sequence_load(engine *e, const int32_t *ids, size_t n, const char *path, struct sequence **out, error *err) {
  return sequence_load(&e->caches, ids, n, e->n_ctx, files_of(e), path, out, err);
}
int engine_store_open(engine *e, const struct page_folder *where, struct page_store **out, error *err) {
  return page_store_open(&e->caches, files_of(e), e->n_ctx, where, out, err);
}

// What goes through together: the last tokens of parts, of which logits are wanted, and `more` tokens before those, or
// at the end of parts without, as many as have room beside them at little cost.
static enum plan_kind apart_plan(const engine *e, size_t rows, size_t more) {
  if (rows > FEW) return rows > TILE ? plan_for(e, PLAN_APART, rows) : PLAN_TILE_APART;
  return more ? PLAN_MIXED : rows > TWO ? PLAN_FEW_APART : PLAN_TWO_APART;
}

static size_t add_rows(engine *e, const struct engine_part *p, size_t first, size_t n, size_t row) {
  for (size_t i = first; i < first + n; i++, row++) {
    e->ids[row] = p->ids[i];
    e->at[row] = p->from + (int)i;
    for (int g = 0; g < model_n_groups(e->m); g++) {
      const page_list *list = &p->q->group[g];
      size_t from = (size_t)model_first_page(model_group_window(e->m, g), CACHE_PAGE, e->at[row]);
      size_t to = caches_n_pages(e->at[row] + 1);
      memcpy(e->pages + (int64_t)row * page_tables(e) + g * page_table(e), list->at + from,
             (to - from) * sizeof *e->pages);
    }
  }
  return row;
}

// The last tokens of n parts, each a row with the pages of its sequence, in one run. What all rows add to the caches is
// there before any of them looks, and each looks at no position beyond its own: so several may be of one sequence.
static void eval_apart(engine *e, const struct engine_part *parts, size_t n, size_t more) {
  size_t deepest = 0, rows = 0, all;
  for (size_t i = 0; i < n; i++) {
    const struct engine_part *p = &parts[i];
    size_t held = (size_t)(p->q->n + CACHE_PAGE - 1) / CACHE_PAGE;
    rows = add_rows(e, p, p->n - p->rows, p->rows, rows);
    if ((p->rows || p->beside) && held > deepest) deepest = held;
  }
  all = rows;
  for (size_t i = 0; i < n; i++)
    all = add_rows(e, &parts[i], parts[i].n - parts[i].rows - parts[i].beside, parts[i].beside, all);
  run_plans(e, apart_plan(e, rows, more),
            (plan_var[]){{"n", (int64_t)all}, {"pages", (int64_t)deepest}, {"rows", (int64_t)rows}}, 3);
}

// How many tokens without logits find room beside so many rows with.
static size_t find_room(const engine *e, struct engine_part *parts, size_t n, size_t rows) {
  size_t room = round_up(rows, TILE) - rows, more = 0;
  if (model_is_recurrent(e->m) || rows + room > (size_t)e->chunk) room = 0;
  for (size_t i = 0; i < n; i++) {
    size_t before = parts[i].n - parts[i].rows;
    parts[i].beside = before < room ? before : room;
    room -= parts[i].beside;
    more += parts[i].beside;
  }
  return more;
}

struct stopping { bool (*stop)(void *ctx); void *ctx; };

static bool not_stopped(void *ctx, double done) {
  const struct stopping *s = ctx;
  (void)done;
  return !s->stop(s->ctx);
}

int engine_step(engine *e, struct engine_part *parts, size_t n, bool (*stop)(void *ctx), void *ctx, error *err) {
  bool fixed = model_is_recurrent(e->m);
  size_t rows = 0, before = 0, n_vocab = (size_t)model_n_vocab(e->m), more;
  for (size_t i = 0; i < n; i++) rows += parts[i].rows;
  if (rows > (size_t)e->chunk || (fixed && rows > n))
    die("engine_step: %zu rows of %zu sequences, %lld at most", rows, n, (long long)e->chunk);
  more = find_room(e, parts, n, rows);
  // the last tokens of all parts are left to one run
  bool together = rows + more > 1 && !fixed;
  if (reserve_rows(e, err) || (together && need_plan(e, apart_plan(e, rows, more), err))) return -1;
  for (size_t i = 0; i < n; i++) {
    struct engine_part *p = &parts[i];
    p->from = p->q->n;
    if (prepare_eval(e, p->q, p->ids, p->n, p->from, p->n > FEW + p->rows + p->beside ? p->n : 0, err)) return -1;
  }
  engine_go_on *before_go_on = e->ask.go_on;
  void *before_ctx = e->ask.ctx;
  struct stopping stopping = {stop, ctx};                // not within the if: it would be gone behind that
  if (stop) engine_watch(e, not_stopped, &stopping);
  for (size_t i = 0, row = 0; i < n && !(i && e->ask.ended); i++) {
    struct engine_part *p = &parts[i];
    size_t last = together ? p->rows + p->beside : p->rows;
    enter_sequence(e, p->q, p->ids, p->n, p->from);
    size_t left = eval_chunks(e, p->ids, p->n, last, p->from), at = p->n - left;
    if (!e->ask.ended) eval_each(e, p->ids + at, left - (together ? last : 0), p->from + (int)at);
    if (!together && p->rows) memcpy(e->rows + row++ * n_vocab, e->logits, n_vocab * sizeof *e->rows);
  }
  e->ask.now = 0;
  if (!e->ask.ended && together) eval_apart(e, parts, n, more);
  engine_watch(e, before_go_on, before_ctx);
  bool stopped = e->ask.ended;
  for (size_t i = 0; i < n; i++) end_eval(parts[i].q, parts[i].from, stopped);
  if (sound(e, err)) return -1;
  for (size_t i = 0; i < n; before += parts[i++].rows) parts[i].logits = stopped ? NULL : e->rows + before * n_vocab;
  return stopped;
}

void engine_stats(const engine *e, struct engine_stats *out) {
  plan_stats s = {0};
  for (int i = 0; i < e->places.n; i++) {
    plan_stats of = plan_get_stats(e->now->plans[i][first_plan(e)].p);
    s.dispatches += of.dispatches;
    s.graph_ops += of.graph_ops;
    s.unique += of.unique;
    s.tuned += of.tuned;
  }
  live_stats l = {0};
  if (e->live) live_stats_get(e->live, &l);
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

device *engine_device(engine *e) { return e->places.at[0].d; }
int engine_n_layer(const engine *e) { return model_n_layer(e->m); }
int engine_n_embd(const engine *e) { return model_n_embd(e->m); }
bool engine_is_recurrent(const engine *e) { return model_is_recurrent(e->m); }
bool engine_is_encoder(const engine *e) { return model_is_encoder(e->m); }
int engine_pooling(const engine *e) { return (int)model_pooling(e->m); }
int engine_chunk(const engine *e) { return (int)e->chunk; }

void engine_look(const engine *e, bool prompt, graph *g, schedule *s) {
  const struct place *at = &e->places.at[0];
  make_schedule(e, at->d, g, graph_of_plan(e, at, prompt ? PLAN_MANY : PLAN_ONE, g), s);
}

void engine_buffer_name(const engine *e, int64_t id, char *out, size_t cap) {
  int64_t own = id - model_buffer_id(e->file, 0);
  if (id >= TEMP_IDS) snprintf(out, cap, "temporary %lld", (long long)(id - TEMP_IDS));
  else if (codebook_is(id)) snprintf(out, cap, "code book");
  else if (own < 0) snprintf(out, cap, "%s", gguf_tensor_at(e->file, (size_t)id)->name);
  else if (own < BUF_STATE) snprintf(out, cap, "%s", own == BUF_IDS ? "ids" : "logits");
  else if (own >= BUF_ADAPTER)
    snprintf(out, cap, "adapter %s", gguf_tensor_at(e->file, (size_t)(own - BUF_ADAPTER) / 2)->name);
  else snprintf(out, cap, "state %lld", (long long)(own - BUF_STATE));
}

// --- layouts --------------------------------------------------------------------------------------------------------

const enum layout_kind *engine_layouts(const engine *e) { return e->now->layouts; }

int engine_lay_out(engine *e, const enum layout_kind *layouts, error *err) {
  stop_live(e);
  laid *before = e->now;
  size_t n = gguf_n_tensors(e->file);
  if (e->other) die("weights are laid out in two ways already");
  e->now = xcalloc(1, sizeof *e->now);
  e->now->layouts = xcalloc(n + 1, sizeof *layouts);
  memcpy(e->now->layouts, layouts, n * sizeof *layouts);
  e->other = before;
  if (!open_weights(e, e->now, err) && !need_plan(e, first_plan(e), err)) return 0;
  engine_swap(e);
  engine_drop_other(e);
  return -1;
}

void engine_swap(engine *e) {
  laid *l = e->now;
  e->now = e->other;
  e->other = l;
}

void engine_drop_other(engine *e) {
  close_laid(e->other);
  e->other = NULL;
}

int64_t engine_weight_of(const engine *e, bool prompt, int launch) {
  const stage *s = &e->now->plans[0][prompt ? PLAN_MANY : PLAN_ONE];
  const gguf_tensor *t = roles_weight(e->file, &s->s.kernels[launch]);
  return t ? (int64_t)gguf_tensor_index(e->file, t) : -1;
}

int engine_plan(engine *e, bool prompt, plan **p, int32_t **ids, error *err) {
  if (e->places.n > 1)
    return error_set(err, "a model on two devices is two plans, and this looks at one: -ngl %d has all on %s, -ngl 0 "
                          "none", model_n_layer(e->m), e->places.at[1].d->name);
  if (need_plan(e, prompt ? PLAN_MANY : PLAN_ONE, err) || sequence_hold_all(e->own, e->n_ctx, err)) return -1;
  choose_sequence(e, e->own);
  stop_live(e);             // its runs would be somebody else's
  *p = plan_of(e, prompt ? PLAN_MANY : PLAN_ONE);
  *ids = e->ids;
  return 0;
}
