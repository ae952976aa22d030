// Makes plans from their specs: from the model's graph to kernels on each device. See plans.h.
#include "engine/plans.h"
#include <stdlib.h>
#include <string.h>
#include "base/attempt.h"
#include "base/env.h"
#include "device/memory.h"
#include "engine/follow.h"
#include "engine/on_demand.h"
#include "engine/roles.h"
#include "engine/schedules.h"
#include "graph/record.h"
#include "model/codebook.h"

// --- specs -----------------------------------------------------------------------------------------------------------

plan_spec spec_one(void) { return (plan_spec){.logits = LOGITS_LAST, .tokens = 1}; }

plan_spec spec_many(const engine *e, enum model_logits logits, size_t n) {
  return (plan_spec){.logits = logits, .tokens = n <= DEFAULT_CHUNK ? min_i64(e->room, DEFAULT_CHUNK) : e->room};
}

plan_spec spec_span(const engine *e, enum model_logits logits, size_t n) {
  plan_spec spec = spec_many(e, logits, n);
  spec.tokens = max_i64(spec.tokens, (int64_t)round_up(n, DEFAULT_CHUNK));
  return spec;
}

plan_spec spec_first(const engine *e) {
  enum model_logits whole = model_denoises(e->m) ? LOGITS_ALL : LOGITS_HIDDEN;
  return model_is_encoder(e->m) ? spec_many(e, whole, (size_t)e->room) : spec_one();
}

static bool same_spec(const plan_spec *x, const plan_spec *y) {
  return x->logits == y->logits && x->tokens == y->tokens && x->rows == y->rows && x->apart == y->apart &&
         x->sums == y->sums && x->mtp == y->mtp && x->floats == y->floats && x->both == y->both;
}

planned *plans_of(const engine *e, const plan_spec *spec) {
  for (size_t i = 0; i < e->now->plans.n; i++)
    if (same_spec(&e->now->plans.at[i]->spec, spec) && e->now->plans.at[i]->spec.adapted == e->adapted)
      return e->now->plans.at[i];
  return NULL;
}

plan *plan_of(const engine *e, const plan_spec *spec) {
  const planned *p = plans_of(e, spec);
  return p ? p->at[e->layer_split.n - 1].p : NULL;
}

static planned *add_plans(engine *e, const plan_spec *spec) {
  planned *p = plans_of(e, spec);
  if (p) return p;
  p = xcalloc(1, sizeof *p);
  p->spec = *spec;
  p->spec.adapted = e->adapted;
  vec_push(&e->now->plans, p);
  return p;
}

void close_plans(weight_packing *l) {
  for (size_t i = 0; i < l->plans.n; i++) {
    for (int j = 0; j < MOST_SPLITS; j++) {
      plan_free(l->plans.at[i]->at[j].p);
      graph_free(l->plans.at[i]->at[j].g);
    }
    free(l->plans.at[i]);
  }
  vec_free(&l->plans);
}

// --- buffers --------------------------------------------------------------------------------------------------------

uint64_t rows_bytes(const engine *e) {
  uint64_t rows = (uint64_t)e->room + (model_is_recurrent(e->m) ? TILE : 0);
  return rows * (uint64_t)model_n_vocab(e->m) * sizeof *e->rows;
}

int reserve_rows(engine *e, error *err) {
  error none = {0};
  if (e->rows || (e->rows = memory_reserve_plain(rows_bytes(e), &none))) return 0;
  return error_set(err, "no memory for the logits of %lld positions: %s; a smaller chunk (-ub) needs less",
                   (long long)e->chunk, none.text);
}

void reserve_sums(engine *e) {
  if (!e->sums) e->sums = xcalloc(2 * gguf_n_tensors(e->file) + 1, sizeof *e->sums);
}

uint64_t floats_bytes(const engine *e) {
  return (uint64_t)e->most * (uint64_t)model_n_floats(e->m) * sizeof *e->floats;
}

// Sums of squares for a tensor, or the counts of its experts.
static float *sums_buffer(engine *e, int64_t i) {
  const gguf_tensor *t = gguf_tensor_at(e->file, (size_t)i / 2);
  if (!e->sums[i]) e->sums[i] = xcalloc((size_t)t->ne[2] * (i % 2 ? 1 : (size_t)t->ne[0]) + 64, sizeof **e->sums);
  return e->sums[i];
}

// Ids and outputs are in this process's memory for every device: a plan copies them.
static void *buffer_at(void *ctx, int64_t id) {
  const site *at = ctx;
  engine *e = at->e;
  int64_t own = id - model_buffer_id(e->file, 0);
  if (codebook_is(id)) return codebook_data(id);
  if (own < 0 && e->o.rehearsed.n) return weights_rehearsed(&e->now->w[at->place], id);
  if (own < 0) return (void *)(uintptr_t)gguf_tensor_at(e->file, (size_t)id)->data;
  if (own == BUF_IDS) return e->ids;
  if (own == BUF_AT) return e->at;
  if (own == BUF_PAGES) return e->pages;
  if (own == BUF_SLOT) return &e->slot;
  if (own == BUF_LOGITS) return e->logits;
  if (own == BUF_ROWS) return e->rows;
  if (own == BUF_HIDDEN) return e->hidden;
  if (own == BUF_STREAM) return e->stream;
  if (own == BUF_FLOATS) return e->floats;
  if (own == BUF_LAST) return e->last;
  if (own == BUF_TURNS) return e->turns;
  if (own == BUF_SCALES) return e->scales;
  if (own == BUF_SOURCE) return e->source;
  if (own >= BUF_ADAPTER) return model_adapter_data(e->m, own - BUF_ADAPTER);
  if (own >= BUF_CONTROL) return model_control_data(e->m, own - BUF_CONTROL);
  if (own >= BUF_SUMS) return sums_buffer(e, own - BUF_SUMS);
  return e->caches.state[own - BUF_STATE];
}

// --- plans -----------------------------------------------------------------------------------------------------------

static void role(void *ctx, const schedule *s, int i, char *out, size_t cap) {
  roles_name(((const site *)ctx)->e->file, s, i, out, cap);
}

static void compiling(void *ctx, double fraction) { engine_progress(((const site *)ctx)->e, "compiling", fraction); }

static bool unwanted(void *ctx) { return engine_stopped(((const site *)ctx)->e); }

static void *stream_at(void *ctx, int64_t id, uint64_t hash, int64_t size, bool *filled) {
  const site *at = ctx;
  return weights_stream(&at->e->now->w[at->place], id, hash, size, filled);
}

static void filled(void *ctx, int64_t id, double from, double to, double done) {
  const site *at = ctx;
  engine *e = at->e;
  weights_give_back(e->file, id, from, to);
  if (to >= 1) weights_filled(&e->now->w[at->place], id);
  engine_progress(e, "loading", done);
}

static int64_t matrices(void *ctx, int64_t id) { return on_demand_matrices(((const site *)ctx)->e->file, id); }

// The graph of a plan, over unpacked weights.
uop *graph_of_plan(const engine *e, const struct layer_range *at, const plan_spec *spec, graph *g) {
  model_shape of = {.page = CACHE_PAGE,
                    .tile = EXPERT_TILE,
                    .pages = e->caches.n_pages,
                    .slots = e->caches.slots,
                    .ctx = e->ctx,
                    .n_ctx = e->n_ctx,
                    .chunk = spec->tokens,
                    .apart = spec->apart,
                    .rows = spec->rows,
                    .logits = spec->logits,
                    .sums = spec->sums,
                    .floats = spec->floats,
                    .both = spec->both,
                    .mtp = spec->mtp,
                    .adapted = e->adapted,
                    .exact = e->o.exact,
                    .layers = {at->from, at->to}};
  uop *sink = model_graph(e->m, g, &of);
  record_mark(g, sink, "model");
  attempt_about(NULL, NULL);
  return sink;
}

// cuts: storage for how states are split, needed as long as the result.
static struct schedule_how how_scheduled(const engine *e, kept_cuts *cuts) {
  int64_t first = model_buffer_id(e->file, BUF_STATE);
  ranks r = engine_ranks(e);
  int n = 0;
  for (int i = 0; r.n > 1 && !e->owner && e->state_cuts && i < model_n_states(e->m); i++) {
    const state_cuts *s = &e->state_cuts[i];
    if (!s->known) continue;
    cuts[n] = (kept_cuts){.id = first + i, .period = s->what.n ? s->what.period : 0};
    memcpy(cuts[n++].cut, s->what.cut, sizeof s->what.cut);
  }
  int64_t worth = env_int(ENV_WEFT_RANK_BYTES);
  rank_split split = {r.rank, r.n, first, first + model_n_states(e->m), worth, cuts, n, .owner = e->owner};
  for (int i = 0; i < r.n; i++) split.until[i + 1] = split.until[i] + e->shares[i];
  return (struct schedule_how){.exact = e->o.exact,
                               .layouts = e->now->layouts,
                               .n = gguf_n_tensors(e->file),
                               .ranks = split};
}

static kept_cuts *room_for_cuts(const engine *e) {
  return xcalloc((size_t)(engine_ranks(e).n > 1 ? model_n_states(e->m) : 0) + 1, sizeof(kept_cuts));
}

void compile_plan(const engine *e, const struct layer_range *at, graph *g, uop *sink, schedule *s) {
  kept_cuts *cuts = room_for_cuts(e);
  const struct schedule_how how = how_scheduled(e, cuts);
  schedules_make(at->d, g, sink, &how, s);
  free(cuts);
}

typedef struct scheduling {
  const engine *e;
  const struct layer_range *at;
  const plan_spec *spec;
  kept_cuts *cuts;
  stage of;
  bool kept;
} scheduling;

static void schedule_plan(void *ctx) {
  scheduling *w = ctx;
  graph *g = graph_new(NULL);
  uop *sink = graph_of_plan(w->e, w->at, w->spec, g);
  const struct schedule_how how = how_scheduled(w->e, w->cuts);
  w->of.g = schedules_find(w->at->d, g, sink, &how, &w->of.s, &w->kept);
}

static int find_schedule(engine *e, const struct layer_range *at, const plan_spec *spec, stage *st, error *err) {
  scheduling w = {.e = e, .at = at, .spec = spec, .cuts = room_for_cuts(e)};
  error why = {0};
  int broken = attempt(ATTEMPT_OWNS, schedule_plan, &w, &why);
  free(w.cuts);
  if (broken) return error_set(err, "%s: %s", gguf_path(e->file), why.text);
  *st = w.of;
  e->scheduled += !w.kept;
  return 0;
}

static bool same_gathering(const gathering *a, const gathering *b) {
  return a->period == b->period && a->n == b->n && !memcmp(a->cut, b->cut, ((size_t)a->n + 1) * sizeof *a->cut);
}

// Records how a schedule splits states among processes. Returns whether it agrees with earlier plans. settling: a state
// that plans split differently is no longer split.
static bool take_states(engine *e, const schedule *s, bool settling) {
  bool same = true;
  if (!e->state_cuts) e->state_cuts = xcalloc((size_t)model_n_states(e->m) + 1, sizeof *e->state_cuts);
  for (int i = 0; i < s->n_kept; i++) {
    state_cuts now = {.known = true, .size = (size_t)dtype_size((enum dtype)s->kept[i].ast->src[0]->src[0]->dt)};
    state_cuts *had = &e->state_cuts[s->kept[i].bufs[0] - model_buffer_id(e->file, BUF_STATE)];
    kernel_gathers(s->kept[i].ast, 0, &now.what);
    now.what.count = NULL;
    if (had->known && same_gathering(&had->what, &now.what)) continue;
    same &= !had->known;
    if (had->known && settling) now.what = (gathering){0};
    if (!had->known || settling) *had = now;
  }
  return same;
}

int settle_states(engine *e, error *err) {
  const plan_spec one = spec_one(), specs[] = {
    spec_first(e),
    spec_many(e, LOGITS_NONE, (size_t)e->room),
    spec_many(e, LOGITS_NONE, 1),
    spec_many(e, LOGITS_ALL, (size_t)e->room),
    {.logits = LOGITS_ALL, .tokens = TILE},
    {.logits = LOGITS_ALL, .tokens = TILE, .apart = !model_is_recurrent(e->m)},
    {.logits = LOGITS_LAST, .tokens = one.tokens, .mtp = model_has_mtp(e->m)},
  };
  bool settled = engine_ranks(e).n < 2 || e->owner || model_is_encoder(e->m);
  while (!settled) {
    settled = true;
    for (size_t i = 0; i < COUNT(specs); i++) {
      stage st = {0};
      if (find_schedule(e, &e->layer_split.at[0], &specs[i], &st, err)) return -1;
      settled &= take_states(e, &st.s, true);
      graph_free(st.g);
    }
  }
  return 0;
}

static void hidden_buffer(engine *e) {
  if (!e->hidden) e->hidden = xcalloc((size_t)(e->room * model_n_embd(e->m)) + 64, sizeof *e->hidden);
}

static int floats_buffer(engine *e, error *err) {
  error none = {0};
  if (e->floats || (e->floats = memory_reserve_plain(floats_bytes(e), &none))) return 0;
  return error_set(err, "no memory for %lld rows of %d floats: %s", (long long)e->most, model_n_floats(e->m),
                   none.text);
}

static int need_at(engine *e, int place, planned *of, error *err) {
  stage *st = &of->at[place];
  const struct layer_range *at = &e->layer_split.at[place];
  error why = {0};
  if (st->p) return 0;
  double began = now_s();
  if (!st->g && find_schedule(e, at, &of->spec, st, err)) return -1;
  e->schedule_ms += (now_s() - began) * 1e3;
  if (!take_states(e, &st->s, false))
    return error_set(err, "%s: its plans would split a state among processes in two ways", gguf_path(e->file));
  if (plan_build(at->d, st->g, &st->s,
                 &(plan_options){.buffer = buffer_at,
                                 .ctx = &e->sites[place],
                                 .role = role,
                                 .progress = compiling,
                                 .stream = stream_at,
                                 .filled = filled,
                                 .demand = e->demand,
                                 .matrices = matrices,
                                 .starts = follow_starts,
                                 .ends = follow_ends,
                                 .stops = unwanted,
                                 .prompt = of->spec.tokens != 1 && !of->spec.apart,
                                 .flushes = true},
                 &st->p, &why))
    return error_set(err, "%s: %s", gguf_path(e->file), why.text);
  plan_stats s = plan_get_stats(st->p);
  e->compile_ms += s.compile_ms;
  e->codegen_ms += s.codegen_ms;
  e->compiled += s.compiled;
  return 0;
}

int need_plan(engine *e, const plan_spec *spec, error *err) {
  if (plan_of(e, spec)) return 0;
  follow_plan(e, spec);
  if (spec->logits == LOGITS_HIDDEN) hidden_buffer(e);
  if (spec->logits == LOGITS_ALL && reserve_rows(e, err)) return -1;
  if (spec->floats && floats_buffer(e, err)) return -1;
  planned *of = add_plans(e, spec);
  for (int i = 0; i < e->layer_split.n; i++) if (need_at(e, i, of, err)) return -1;
  return 0;
}
