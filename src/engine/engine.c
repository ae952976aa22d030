// The engine: file, tokenizer, graphs, plans and the KV cache of one sequence. See engine.h. There are two plans: one for a single
// token with logits, and one for a chunk of a prompt without; a prompt of n tokens goes through as chunks of n - 1 and the last
// token alone. The second plan is made when a prompt first needs it.
#include "engine/engine.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "device/device.h"
#include "device/live.h"
#include "device/memory.h"
#include "engine/layouts.h"
#include "engine/learn.h"
#include "engine/tune.h"
#include "engine/weights.h"
#include "graph/record.h"
#include "model/codebook.h"
#include "model/model.h"
#include "schedule/dots.h"

enum { WORTH_LEARNING = 64 << 20 /* bytes of weights: smaller models lie in caches, where nothing need be asked for */ };
enum { FEW = 4 /* tokens: one by one is quicker than a chunk */, DEFAULT_CHUNK = 64, MAX_CHUNK = 4096, CHUNK_STEP = 64, CTX_STEP = 128 /* a page of the caches */, LEAST_CTX = 4096 };

typedef struct stage { graph *g; schedule s; plan *p; } stage;
typedef struct laid { weights w; enum layout *layouts; stage one, many, rows, sums, hidden; } laid;  // weights in a layout for each tensor, and the plans that read them

struct engine {
  gguf *file;
  tokenizer *tok;
  model *m;
  device *d;
  struct engine_options o;
  int n_ctx;
  int64_t ctx, chunk, room;               // positions of the cache as laid out; tokens of a chunk, and what its plan has room for
  void **states;                          // caches of attention and other memory of the sequence
  uint64_t *promoted;                     // bytes of each state that lie in huge pages
  int64_t deepest;                        // positions that the states have held
  laid *now, *other;                      // other: while layouts are compared
  int32_t *ids;
  int32_t *history;                       // of a model with recurrent states: what was evaluated, to come back to an earlier position; else NULL
  int at;                                 // the position that follows what these states hold; -1: none
  float *logits, *rows;                   // of one position; of a chunk (NULL: nobody has asked)
  float *hidden;                          // of a chunk, what the head would read; NULL: nobody has asked
  float **sums;                           // by id from BUF_SUMS on; NULL: nobody has asked
  double load_ms, compile_ms, schedule_ms, codegen_ms;
  live *live;                             // of now->one; NULL: it is not tuned while it runs
  double settle_s;                        // time that may be spent on moving weights into huge pages; negative: owed
  int64_t compiled;
};

void engine_progress(const engine *e, const char *what, double fraction) {
  if (e->o.progress) e->o.progress(e->o.progress_ctx, what, fraction);
}

// --- memory ---------------------------------------------------------------------------------------------------------

static uint64_t state_bytes(const engine *e, int i) { return model_state_bytes(e->m, i, e->ctx); }

// Of all states; UINT64_MAX where that is no number.
static uint64_t kv_bytes(const engine *e) {
  uint64_t sum = 0;
  for (int i = 0; i < model_n_states(e->m); i++) if (!add_u64(sum, state_bytes(e, i), &sum)) return UINT64_MAX;
  return sum;
}

static void set_context(engine *e, int n) {
  e->n_ctx = n;
  e->ctx = (int64_t)round_up((size_t)n + (size_t)e->room, CTX_STEP);
}

static bool has_room(const engine *e) {
  uint64_t need, have;
  return add_u64(kv_bytes(e), gguf_file_bytes(e->file), &need) && (memory_available(&have, NULL) || need <= have);
}

// What nobody asked for may be less: many models were trained for more positions than a machine has memory for. Halves, so that a machine knows few kernels.
static void fit_context(engine *e) {
  int wish = e->n_ctx;
  while (e->n_ctx / 2 >= LEAST_CTX && !has_room(e)) set_context(e, e->n_ctx / 2);
  if (e->n_ctx == wish) return;
  if (has_room(e)) warning("%s: a context of %d positions, as there is no memory for the %d that the model was trained for", gguf_path(e->file), e->n_ctx, wish);
  else set_context(e, wish);
}

static int reserve(engine *e, error *err) {
  uint64_t kv = kv_bytes(e), need, have;
  int n = model_n_states(e->m);
  if (!add_u64(kv, gguf_file_bytes(e->file), &need)) return error_set(err, "%s: a KV cache for %d positions is too large", gguf_path(e->file), e->n_ctx);
  if (!memory_available(&have, NULL) && need > have)
    return error_set(err, "%s: %.2f GiB of model and %.2f GiB of KV cache for %d positions, but only %.2f GiB of memory are free; a smaller context (-c) needs less",
                     gguf_path(e->file), (double)gguf_file_bytes(e->file) / (1 << 30), (double)kv / (1 << 30), e->n_ctx, (double)have / (1 << 30));
  e->states = xcalloc((size_t)n, sizeof *e->states);
  e->promoted = xcalloc((size_t)n, sizeof *e->promoted);
  for (int i = 0; i < n; i++) if (!(e->states[i] = device_alloc(e->d, state_bytes(e, i), PAGES_PLAIN, err))) return -1;
  e->ids = xcalloc((size_t)e->room, sizeof *e->ids);
  if (model_is_recurrent(e->m)) e->history = xcalloc((size_t)e->n_ctx, sizeof *e->history);
  e->logits = xcalloc((size_t)model_n_vocab(e->m) + 64, sizeof *e->logits);
  return 0;
}

static uint64_t rows_bytes(const engine *e) { return (uint64_t)e->room * (uint64_t)model_n_vocab(e->m) * sizeof *e->rows; }

// Sums of squares for a tensor, or the counts of its experts.
static float *sums_buffer(engine *e, int64_t i) {
  const gguf_tensor *t = gguf_tensor_at(e->file, (size_t)i / 2);
  if (!e->sums[i]) e->sums[i] = xcalloc((size_t)t->ne[2] * (i % 2 ? 1 : (size_t)t->ne[0]) + 64, sizeof **e->sums);
  return e->sums[i];
}

// The ids and what comes of them lie in this process's memory, on every device: a plan brings and fetches them.
static void *buffer(void *ctx, int64_t id) {
  engine *e = ctx;
  int64_t own = id - model_buffer_id(e->file, 0);
  if (codebook_is(id)) return codebook_data(id);
  if (own < 0) return (void *)(uintptr_t)gguf_tensor_at(e->file, (size_t)id)->data;
  if (own == BUF_IDS) return e->ids;
  if (own == BUF_LOGITS) return e->logits;
  if (own == BUF_ROWS) return e->rows;
  if (own == BUF_HIDDEN) return e->hidden;
  if (own >= BUF_ADAPTER) return model_adapter_data(e->m, own - BUF_ADAPTER);
  if (own >= BUF_SUMS) return sums_buffer(e, own - BUF_SUMS);
  return e->states[own - BUF_STATE];
}

// --- plans ----------------------------------------------------------------------------------------------------------

// That the kernel reads; NULL: none.
static const gguf_tensor *largest_weight(const engine *e, const sched_kernel *k) {
  const gguf_tensor *best = NULL;
  for (int i = 0; i < k->n_bufs; i++) {
    if (codebook_is(k->bufs[i]) || k->bufs[i] >= model_buffer_id(e->file, 0)) continue;
    const gguf_tensor *t = gguf_tensor_at(e->file, (size_t)k->bufs[i]);
    if (!best || t->nbytes > best->nbytes) best = t;
  }
  return best;
}

// "blk.*.ffn_down" after the largest weight; "cache" or "-" where it reads none.
static void role(void *ctx, const sched_kernel *k, char *out, size_t cap) {
  const engine *e = ctx;
  const gguf_tensor *best = largest_weight(e, k);
  bool cache = false;
  for (int i = 0; i < k->n_bufs; i++) cache |= !codebook_is(k->bufs[i]) && k->bufs[i] < TEMP_IDS && k->bufs[i] - model_buffer_id(e->file, 0) >= BUF_STATE && k->bufs[i] - model_buffer_id(e->file, 0) < BUF_SUMS;
  if (!best) { snprintf(out, cap, "%s", cache ? "attention" : "-"); return; }
  const char *name = best->name, *rest = name;
  if (!strncmp(name, "blk.", 4)) { rest = strchr(name + 4, '.'); rest = rest ? rest + 1 : name; }
  int n = (int)strcspn(rest, ".");
  snprintf(out, cap, "%s%.*s", rest == name ? "" : "blk.*.", n, rest);
}

static void compiling(void *ctx, double fraction) { engine_progress(ctx, "compiling", fraction); }

static void *stream(void *ctx, int64_t id, uint64_t layout, int64_t size, bool *filled) {
  engine *e = ctx;
  return weights_stream(&e->now->w, id, layout, size, filled);
}

static void filled(void *ctx, int64_t id, double from, double to, double done) {
  engine *e = ctx;
  weights_give_back(&e->now->w, id, from, to);
  if (to >= 1) weights_filled(&e->now->w, id);
  engine_progress(e, "loading", done);
}

static void make_schedule(const engine *e, int64_t chunk, enum model_logits logits, bool sums, graph *g, schedule *s) {
  uop *sink = model_graph(e->m, g, &(model_shape){.ctx = e->ctx, .n_ctx = e->n_ctx, .chunk = chunk, .logits = logits, .sums = sums, .exact = e->o.exact});
  record_mark(g, sink, "model");
  const target *t = &e->d->target;
  if (!e->o.exact) sink = integer_dots(g, sink);
  if (!e->o.exact && t->has_streams && descriptor_lanes(t->descriptors, DT_F32, t->vector_bytes / 4, t->vector_bytes / 4)) sink = brain_dots(g, sink);
  record_mark(g, sink, "dots");
  schedule_graph(g, sink, s);
  for (int i = 0; i < s->n_kernels; i++) s->kernels[i].ast = layouts_apply(g, e->file, e->now->layouts, &s->kernels[i]);
  record_mark(g, sink, "schedule");
}

static int build(engine *e, stage *st, int64_t chunk, enum model_logits logits, bool sums, error *err) {
  double began = now_s();
  st->g = graph_new(NULL);
  make_schedule(e, chunk, logits, sums, st->g, &st->s);
  e->schedule_ms += (now_s() - began) * 1e3;
  if (plan_build(e->d, st->g, &st->s, &(plan_options){.buffer = buffer, .ctx = e, .role = role, .progress = compiling, .stream = stream, .filled = filled, .prompt = chunk > 1}, &st->p, err)) return -1;
  plan_stats s = plan_get_stats(st->p);
  e->compile_ms += s.compile_ms;
  e->codegen_ms += s.codegen_ms;
  e->compiled += s.compiled;
  return 0;
}

static float *hidden_buffer(engine *e) { return e->hidden ? e->hidden : (e->hidden = xcalloc((size_t)(e->room * model_n_embd(e->m)) + 64, sizeof *e->hidden)); }

// The plan that a model cannot do without: of one token, or of a whole text.
static int build_first(engine *e, error *err) {
  if (!model_is_encoder(e->m)) return build(e, &e->now->one, 1, LOGITS_LAST, false, err);
  hidden_buffer(e);
  return build(e, &e->now->one, e->room, LOGITS_HIDDEN, false, err);
}

static int start(engine *e, const char *path, error *err) {
  if (gguf_open(path, &e->file, err)) return -1;
  for (size_t i = 0; i < e->o.n_settings; i++) if (gguf_set_text(e->file, e->o.settings[i], err)) return -1;
  if (model_open(e->file, &e->m, err) || tokenizer_from_gguf(e->file, &e->tok, err)) return -1;
  for (size_t i = 0; i < e->o.n_adapters; i++) if (model_adapt(e->m, e->o.adapters[i].path, e->o.adapters[i].scale, err)) return -1;
  engine_progress(e, "loading", 0.3);
  e->n_ctx = e->o.n_ctx ? e->o.n_ctx : model_n_ctx_train(e->m);
  if (model_n_ctx_max(e->m) && e->n_ctx > model_n_ctx_max(e->m))
    return error_set(err, "%s: a context of %d positions, but this model has learned %d", path, e->n_ctx, model_n_ctx_max(e->m));
  e->chunk = model_is_encoder(e->m) ? e->n_ctx : e->o.chunk > 0 ? min_i64(e->o.chunk, MAX_CHUNK) : DEFAULT_CHUNK;
  if (model_block(e->m)) e->chunk = min_i64(e->chunk, model_block(e->m));
  // room for a chunk that begins at the last position: then every index is in bounds whatever the two variables are
  e->room = (int64_t)round_up((size_t)e->chunk, CHUNK_STEP);
  set_context(e, e->n_ctx);
  if (!e->o.n_ctx) fit_context(e);
  if (device_open(e->o.n_threads, e->o.n_prompt_threads, &e->d, err) || reserve(e, err)) return -1;
  if (e->o.no_repack) e->d->target.has_streams = false;
  e->d->target.stream_growth = e->o.repack_memory;
  if (gguf_tensor_bytes(e->file) >= WORTH_LEARNING) machine_learn(e->d);
  e->now->layouts = layouts_known(e->d, e->file);
  if (e->d->target.has_streams && weights_open(&e->now->w, e->file, e->d, err)) return -1;
  if (build_first(e, err) || model_adapters_used(e->m, err)) return -1;
  if (e->d->target.has_streams) weights_read_ahead(&e->now->w);
  tune_from_env(e, false);
  const char *tune = env_str(ENV_WEFT_TUNE);
  bool always = !strcmp(tune, "always");
  if (always || !strcmp(tune, "background")) e->live = live_open(e->now->one.p, always);
  return 0;
}

int engine_open(const char *path, const struct engine_options *options, engine **out, error *err) {
  engine *e = xcalloc(1, sizeof *e);
  double t = now_s();
  e->now = xcalloc(1, sizeof *e->now);
  if (options) e->o = *options;
  error why = {0};
  if (start(e, path, &why) || gguf_check_size(e->file, &why)) {
    if (!e->file || !gguf_check_size(e->file, err)) error_set(err, "%s", why.text);       // of a file that was cut: that, and not what its zeros look like
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
  close_stage(&l->one);
  close_stage(&l->many);
  close_stage(&l->rows);
  close_stage(&l->sums);
  close_stage(&l->hidden);
  weights_free(&l->w);
  free(l->layouts);
  free(l);
}

void engine_close(engine *e) {
  if (!e) return;
  stop_live(e);
  close_laid(e->now);
  close_laid(e->other);
  if (e->states) for (int i = 0; i < model_n_states(e->m); i++) device_release(e->d, e->states[i], state_bytes(e, i));
  device_close(e->d);
  for (size_t i = 0; e->sums && i < 2 * gguf_n_tensors(e->file); i++) free(e->sums[i]);
  free(e->sums);
  if (e->rows) memory_release(e->rows, rows_bytes(e));
  free(e->states); free(e->promoted); free(e->ids); free(e->history); free(e->logits); free(e->hidden);
  model_close(e->m);
  tokenizer_free(e->tok);
  gguf_close(e->file);
  free(e);
}

const gguf *engine_gguf(const engine *e) { return e->file; }
const tokenizer *engine_tokenizer(const engine *e) { return e->tok; }
int engine_n_vocab(const engine *e) { return model_n_vocab(e->m); }
int engine_n_ctx(const engine *e) { return e->n_ctx; }

// Memory is plain pages at first, which cost little to touch, and moves into huge ones, which are quicker to read, between runs: in a small
// part of the time that the runs take, so that no token waits for it. Caches follow as far as they are full.
enum { SETTLE_PERCENT = 5 };

static bool settle_states(engine *e, double seconds) {
  double end = now_s() + seconds;
  for (int i = 0; i < model_n_states(e->m) && e->d->run->here; i++)
    for (uint64_t full = state_bytes(e, i) / (uint64_t)e->ctx * (uint64_t)e->deepest; e->promoted[i] + MEMORY_ALIGN <= full; e->promoted[i] += MEMORY_ALIGN) {
      if (now_s() >= end) return false;
      if (!memory_promote((unsigned char *)e->states[i] + e->promoted[i], MEMORY_ALIGN)) { e->promoted[i] = state_bytes(e, i); break; }
    }
  return true;
}

static void run(engine *e, plan *p, const plan_var *vars, int n_vars, int64_t positions) {
  double start = now_s();
  if (e->live && p == e->now->one.p) live_run(e->live, vars, n_vars);
  else plan_run(p, vars, n_vars);
  e->deepest = max_i64(e->deepest, positions);
  double end = now_s();
  e->settle_s += (end - start) * SETTLE_PERCENT / 100;
  if (e->settle_s <= 0) return;
  bool all = weights_settle(&e->now->w, e->settle_s) && settle_states(e, e->settle_s);
  e->settle_s = all ? 0 : e->settle_s - (now_s() - end);
}

void engine_settle(engine *e) { while (!weights_settle(&e->now->w, 1) || !settle_states(e, 1)) continue; }

// As many of n tokens from pos on as go through at once. Returns their number.
static size_t eval_chunk(engine *e, plan *p, const int32_t *ids, size_t n, int pos) {
  int block = model_block(e->m);
  size_t m = n < (size_t)e->chunk ? n : (size_t)e->chunk;
  if (block && m > (size_t)(block - pos % block)) m = (size_t)(block - pos % block);
  memcpy(e->ids, ids, m * sizeof *ids);
  run(e, p, (plan_var[]){{"n", (int64_t)m}, {"pos", pos}}, 2, pos + (int64_t)m);
  return m;
}

static void eval(engine *e, const int32_t *ids, size_t n, int pos) {
  while (n > FEW) {
    size_t m = eval_chunk(e, e->now->many.p, ids, n - 1, pos);
    ids += m; n -= m; pos += (int)m;
  }
  for (; n; ids++, n--, pos++) {
    e->ids[0] = ids[0];
    run(e, e->now->one.p, (plan_var[]){{"pos", pos}}, 1, pos + 1);
  }
}

// Whether file and device are as they were.
static int sound(const engine *e, error *err) { return gguf_check_size(e->file, err) || device_check(e->d, err) ? -1 : 0; }

// Before n tokens from pos on are evaluated, of which `prompt` at least go through as a prompt: the plan for that, and a recurrent state as it was at pos.
static int begin_eval(engine *e, const int32_t *ids, size_t n, int pos, size_t prompt, error *err) {
  if (!n || pos < 0 || n > (size_t)(e->n_ctx - pos)) die("engine_eval: %zu tokens at %d of %d", n, pos, e->n_ctx);
  for (size_t i = 0; i < n; i++) if (ids[i] < 0 || ids[i] >= model_n_vocab(e->m)) die("engine_eval: token %d of %d", ids[i], model_n_vocab(e->m));
  if (sound(e, err)) return -1;
  bool again = e->history && pos && pos != e->at;        // what lies before pos is evaluated once more
  if ((prompt || (again && pos > FEW)) && !e->now->many.p) {
    if (build(e, &e->now->many, e->room, LOGITS_NONE, false, err)) return -1;
    if (!pos) tune_from_env(e, true);                    // what the searches write is evaluated by the caller
  }
  if (again) eval(e, e->history, (size_t)pos, 0);
  if (e->history) memcpy(e->history + pos, ids, n * sizeof *ids);
  return 0;
}

int engine_eval_rows(engine *e, const int32_t *ids, size_t n, int pos, size_t first, engine_row *row, void *ctx, error *err) {
  if (first >= n) die("engine_eval_rows: from %zu of %zu tokens on", first, n);
  if (!e->rows) {
    error none = {0};
    if (!(e->rows = memory_reserve_plain(rows_bytes(e), &none))) return error_set(err, "no memory for the logits of %lld positions: %s; a smaller chunk (-ub) needs less", (long long)e->chunk, none.text);
  }
  if (!e->now->rows.p && build(e, &e->now->rows, e->room, LOGITS_ALL, false, err)) return -1;
  if (begin_eval(e, ids, n, pos, first, err)) return -1;
  bool go_on = true;
  size_t at = 0, n_vocab = (size_t)model_n_vocab(e->m);
  for (size_t m; at < n && go_on; at += m) {
    bool wanted = at >= first;
    m = eval_chunk(e, wanted ? e->now->rows.p : e->now->many.p, ids + at, (wanted ? n : first) - at, pos + (int)at);
    if (sound(e, err)) return -1;
    for (size_t i = 0; wanted && go_on && i < m; i++) go_on = row(ctx, at + i, e->rows + i * n_vocab);
  }
  return e->at = pos + (int)at;
}

int engine_eval_sums(engine *e, const int32_t *ids, size_t n, engine_sums *see, void *ctx, error *err) {
  size_t n_tensors = gguf_n_tensors(e->file);
  if (!e->sums) e->sums = xcalloc(2 * n_tensors + 1, sizeof *e->sums);
  if (!e->now->sums.p && build(e, &e->now->sums, e->room, LOGITS_NONE, true, err)) return -1;
  if (begin_eval(e, ids, n, 0, 0, err)) return -1;
  for (size_t at = 0, m; at < n; at += m) {
    m = eval_chunk(e, e->now->sums.p, ids + at, n - at, (int)at);
    if (sound(e, err)) return -1;
    for (size_t t = 0; t < n_tensors; t++) if (e->sums[2 * t]) see(ctx, t, e->sums[2 * t], e->sums[2 * t + 1], m);
  }
  e->at = (int)n;
  return 0;
}

int engine_eval_hidden(engine *e, const int32_t *ids, size_t n, engine_row *row, void *ctx, error *err) {
  bool whole = model_is_encoder(e->m), brief = whole && n <= DEFAULT_CHUNK && e->room > DEFAULT_CHUNK;       // tiles of few rows do for a short text
  stage *s = whole && !brief ? &e->now->one : &e->now->hidden;
  hidden_buffer(e);
  if (!s->p && build(e, s, brief ? DEFAULT_CHUNK : e->room, LOGITS_HIDDEN, false, err)) return -1;
  if (begin_eval(e, ids, n, 0, 0, err)) return -1;
  bool go_on = true;
  for (size_t at = 0, m; at < n && go_on; at += m) {
    m = eval_chunk(e, s->p, ids + at, n - at, (int)at);
    if (gguf_check_size(e->file, err)) return -1;
    for (size_t i = 0; go_on && i < m; i++) go_on = row(ctx, at + i, e->hidden + i * (size_t)model_n_embd(e->m));
  }
  e->at = -1;
  return 0;
}

int engine_eval(engine *e, const int32_t *ids, size_t n, int pos, const float **logits, error *err) {
  if (begin_eval(e, ids, n, pos, n > FEW ? n : 0, err)) return -1;
  eval(e, ids, n, pos);
  if (sound(e, err)) return -1;
  e->at = pos + (int)n;
  if (logits) *logits = e->logits;
  return 0;
}

void engine_stats(const engine *e, struct engine_stats *out) {
  plan_stats s = plan_get_stats(e->now->one.p);
  live_stats l = {0};
  if (e->live) live_stats_get(e->live, &l);
  *out = (struct engine_stats){
    .load_ms = e->load_ms, .compile_ms = e->compile_ms, .schedule_ms = e->schedule_ms, .codegen_ms = e->codegen_ms, .kernels_compiled = e->compiled,
    .kernels_per_token = s.dispatches, .kernels_per_block = (double)s.dispatches / model_n_layer(e->m),
    .fusion_rate = s.dispatches ? (double)s.graph_ops / s.dispatches : 0,
    .kv_bytes = kv_bytes(e), .peak_rss_bytes = memory_peak_rss(),
    .n_params = gguf_n_params(e->file), .model_bytes = gguf_tensor_bytes(e->file),
    .kernels = s.unique, .kernels_tuned = s.tuned, .tune_tried = l.tried, .tune_better = l.better, .tune_state = l.state,
    .tune_cost = l.ran_s > 0 ? (l.lost_s + l.made_s) / l.ran_s : 0,
  };
}

device *engine_device(engine *e) { return e->d; }
int engine_n_layer(const engine *e) { return model_n_layer(e->m); }
int engine_n_embd(const engine *e) { return model_n_embd(e->m); }
bool engine_is_encoder(const engine *e) { return model_is_encoder(e->m); }
int engine_pooling(const engine *e) { return (int)model_pooling(e->m); }
int engine_chunk(const engine *e) { return (int)e->chunk; }

void engine_look(const engine *e, bool prompt, graph *g, schedule *s) { make_schedule(e, prompt ? e->room : 1, prompt ? LOGITS_NONE : LOGITS_LAST, false, g, s); }

void engine_buffer_name(const engine *e, int64_t id, char *out, size_t cap) {
  int64_t own = id - model_buffer_id(e->file, 0);
  if (id >= TEMP_IDS) snprintf(out, cap, "temporary %lld", (long long)(id - TEMP_IDS));
  else if (codebook_is(id)) snprintf(out, cap, "code book");
  else if (own < 0) snprintf(out, cap, "%s", gguf_tensor_at(e->file, (size_t)id)->name);
  else if (own < BUF_STATE) snprintf(out, cap, "%s", own == BUF_IDS ? "ids" : "logits");
  else if (own >= BUF_ADAPTER) snprintf(out, cap, "adapter %s", gguf_tensor_at(e->file, (size_t)(own - BUF_ADAPTER) / 2)->name);
  else snprintf(out, cap, "state %lld", (long long)(own - BUF_STATE));
}

// --- layouts --------------------------------------------------------------------------------------------------------

const enum layout *engine_layouts(const engine *e) { return e->now->layouts; }

int engine_lay_out(engine *e, const enum layout *layouts, error *err) {
  stop_live(e);
  laid *before = e->now;
  size_t n = gguf_n_tensors(e->file);
  if (e->other) die("weights are laid out in two ways already");
  e->now = xcalloc(1, sizeof *e->now);
  e->now->layouts = xcalloc(n + 1, sizeof *layouts);
  memcpy(e->now->layouts, layouts, n * sizeof *layouts);
  e->other = before;
  if (!weights_open(&e->now->w, e->file, e->d, err) && !build_first(e, err)) return 0;
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
  const stage *s = prompt ? &e->now->many : &e->now->one;
  const gguf_tensor *t = largest_weight(e, &s->s.kernels[launch]);
  return t ? (int64_t)gguf_tensor_index(e->file, t) : -1;
}

int engine_plan(engine *e, bool prompt, plan **p, int32_t **ids, error *err) {
  if (prompt && !e->now->many.p && build(e, &e->now->many, e->room, LOGITS_NONE, false, err)) return -1;
  stop_live(e);             // its runs would be somebody else's
  *p = prompt ? e->now->many.p : e->now->one.p;
  *ids = e->ids;
  e->at = -1;               // whoever runs plans by himself leaves behind what no sequence of ours has
  return 0;
}
