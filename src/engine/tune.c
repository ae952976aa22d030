// Tunes a model: see tune.h. A kernel that is faster alone may not be faster in the model, where its neighbours
// determine the contents of caches. So results of searches are tested in whole runs of the plan, with and without them
// interleaved: each kernel must be faster there by its own time stamps, then all remaining ones together must shorten
// the run (the median ratio of neighbouring runs, since a machine's speed changes over minutes). What fails is dropped,
// and the cache records that, too.
#include "engine/tune.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/plain.h"
#include "device/cache.h"
#include "device/limit.h"

enum { TURNS = 9, FINAL_TURNS = 12, LOOKS = 3, DEEP = 4096 };
static const double PROMPT_SHARE = .5, SEARCHES = .86, LAYOUTS_SHARE = .15, MIN_GAIN = 0.998, TURNS_S = 6;

// A plan to tune. Progress: searching takes SEARCHES of its share of the bar; tests of single kernels and of all
// together take the rest.
typedef struct trial { plan *p; plan_var vars[2]; int n_vars; const struct tune_settings *s; bool prompt; } trial;

static void show_tuning(const trial *t, double fraction) {
  const struct tune_settings *s = t->s;
  double part = !s->prompt ? 1 : t->prompt ? PROMPT_SHARE : 1 - PROMPT_SHARE, from = t->prompt ? 1 - PROMPT_SHARE : 0;
  fraction = from + part * fraction;
  if (s->progress)
    s->progress(s->ctx, t->prompt ? "tuning prompts" : "tuning tokens",
                s->layouts ? LAYOUTS_SHARE + (1 - LAYOUTS_SHARE) * fraction : fraction);
}

static void searching(void *ctx, double fraction) { show_tuning(ctx, fraction * SEARCHES); }

static double run_us(const trial *t) {
  double start = now_s();
  plan_run(t->p, t->vars, t->n_vars);
  return (now_s() - start) * 1e6;
}

// Times each kernel in whole runs, with and without its result, interleaved. Drops results that are not faster.
static void try_each(const trial *t, struct tune_part *part) {
  plan_stats s = plan_get_stats(t->p);
  double *us = xcalloc(2 * (size_t)s.kernels + 1, sizeof *us),
         *sums = xcalloc((size_t)(2 * TURNS * s.unique) + 1, sizeof *sums), began = now_s();
  double ratio[TURNS];
  int turns = 0;
  for (; turns < TURNS && (turns < 3 || now_s() - began < TURNS_S); turns++) {
    show_tuning(t, SEARCHES + (1 - SEARCHES) / 2 * turns / TURNS);
    for (int found = 0; found < 2; found++) {
      plan_times times = {.kernel_us = us, .kernel_wait_us = us + s.kernels};
      plan_choose(t->p, -1, found);
      plan_run_timed(t->p, t->vars, t->n_vars, &times);
      for (int i = 0; i < s.kernels; i++) sums[(plan_unique(t->p, i) * 2 + found) * TURNS + turns] += us[i];
    }
  }
  for (int i = 0; i < s.unique; i++) {
    tune_row *row = &part->rows[i];
    for (int k = 0; k < turns; k++) ratio[k] = sums[(i * 2 + 1) * TURNS + k] / sums[i * 2 * TURNS + k];
    row->run_before_us = median(&sums[i * 2 * TURNS], turns);
    row->run_after_us = median(&sums[(i * 2 + 1) * TURNS], turns);
    if (row->state != TUNE_BETTER) continue;
    if (median(ratio, turns) >= MIN_GAIN) row->state = TUNE_DROPPED;
  }
  free(us); free(sums);
}

static void use_found(const trial *t, const struct tune_part *part, bool found) {
  for (int i = 0; i < part->n_rows; i++) plan_choose(t->p, i, found && part->rows[i].state == TUNE_BETTER);
}

static void count_bytes(const trial *t, struct tune_part *part) {
  for (int i = 0; i < plan_get_stats(t->p).kernels; i++)
    part->bytes += plan_kernel(t->p, i, t->vars, t->n_vars).bytes;
}

// Times all remaining results together, interleaved with the heuristic's kernels, and the memory bandwidth meanwhile.
// Drops all of them if runs do not get shorter.
static int try_all(engine *e, const trial *t, struct tune_part *part, bool any, error *err) {
  double us[2][FINAL_TURNS], ratio[FINAL_TURNS], limit[LOOKS], began = now_s();
  int turns = 0, looks = 0;
  for (; turns < FINAL_TURNS && (turns < 3 || now_s() - began < (any ? TURNS_S : TURNS_S / 3)); turns++) {
    show_tuning(t, (1 + SEARCHES) / 2 + (1 - SEARCHES) / 2 * turns / FINAL_TURNS);
    if (turns % (FINAL_TURNS / LOOKS) == 0 && looks < LOOKS && !part->prompt &&
        device_read_limit(engine_device(e), &limit[looks++], err))
      return -1;
    for (int found = 0; found < (any ? 2 : 1); found++) {
      use_found(t, part, found);
      us[found][turns] = run_us(t);
    }
    if (!any) us[1][turns] = us[0][turns];
    ratio[turns] = us[1][turns] / us[0][turns];
  }
  part->before_us = median(us[0], turns);
  part->after_us = median(us[1], turns);
  part->limit_gb_s = looks ? median(limit, looks) : 0;
  count_bytes(t, part);
  bool shorter = median(ratio, turns) < MIN_GAIN && part->after_us < part->before_us * MIN_GAIN;
  for (int i = 0; any && !shorter && i < part->n_rows; i++)
    if (part->rows[i].state == TUNE_BETTER) part->rows[i].state = TUNE_DROPPED;
  return 0;
}

static void random_ids(const engine *e, int32_t *ids, int n) {
  uint64_t seed = 3;
  for (int i = 0; i < n; i++) ids[i] = (int32_t)((seed = hash_u64(seed, 7)) % (uint64_t)engine_n_vocab(e));
}

static int tune_part_run(engine *e, const struct tune_settings *s, bool prompt, double seconds, struct tune_part *part,
                         error *err) {
  trial t;
  int32_t *ids;
  double began = now_s();
  if (engine_plan(e, prompt, &t.p, &ids, err)) return -1;
  engine_promote_pages(e);
  plan_stats stats = plan_get_stats(t.p);
  int n = engine_chunk(e);
  t.vars[0] = (plan_var){"pos", s->depth};
  t.vars[1] = (plan_var){"n", n};
  t.n_vars = prompt ? 2 : 1;
  t.s = s;
  t.prompt = prompt;
  random_ids(e, ids, prompt ? n : 1);
  *part = (struct tune_part){
    .prompt = prompt, .rows = xcalloc((size_t)stats.unique + 1, sizeof *part->rows), .n_rows = stats.unique};
  tune_options o = {.width = s->width, .seconds = seconds, .skip_ms = s->skip_ms, .vars = t.vars, .n_vars = t.n_vars,
                    .progress = searching, .ctx = &t};
  int64_t deep = min_i64(DEEP, engine_n_ctx(e) - n);
  plan_var deeper[] = {{"pos", deep}, {"n", n}};
  if (deep > s->depth) o.deep = deeper;
  o.predict = s->predict;
  if (plan_search(t.p, &o, part->rows, err)) return -1;
  if (s->predict) {
    for (int i = 0; i < part->n_rows; i++) {
      part->before_us += part->rows[i].count * part->rows[i].before_us;
      part->after_us += part->rows[i].count * part->rows[i].after_us;
    }
    count_bytes(&t, part);
    return 0;
  }
  for (int i = 0; i < part->n_rows; i++) part->found += part->rows[i].state == TUNE_BETTER;
  if (part->found) try_each(&t, part);
  if (try_all(e, &t, part, part->found, err)) return -1;
  for (int i = 0; i < part->n_rows; i++) part->kept += part->rows[i].state == TUNE_BETTER;
  use_found(&t, part, true);
  if (!part->kept) part->after_us = part->before_us;
  plan_keep(t.p, part->rows);
  part->seconds = now_s() - began;
  return 0;
}

static int check_searched(const engine *e, error *err) {
  if (engine_brings_weights(e))
    return error_set(err, "%s: its weights do not fit into memory together, so its kernels are not searched",
                     gguf_path(engine_gguf(e)));
  if (engine_has_source(e))
    return error_set(err, "%s: kernels of models with an encoder and a decoder are not searched yet",
                     gguf_path(engine_gguf(e)));
  return engine_is_encoder(e) ? error_set(err, "%s: kernels of models that see a text as a whole are not searched yet",
                                          gguf_path(engine_gguf(e)))
                              : 0;
}

static void layouts_progress(void *ctx, const char *what, double fraction) {
  const struct tune_settings *s = ctx;
  if (s->progress) s->progress(s->ctx, what, fraction * LAYOUTS_SHARE);
}

int tune_run(engine *e, const struct tune_settings *wanted, struct tune_part parts[2], layout_rows *layouts,
             error *err) {
  memset(parts, 0, 2 * sizeof *parts);
  *layouts = (layout_rows){0};
  if (check_searched(e, err) || gguf_check_size(engine_gguf(e), err)) return -1;
  device *d = engine_device(e);
  if (wanted->predict && !d->target.has_local)
    return error_set(err, "DEV=%s has no work-groups: only their times can be predicted (DEV=CUDA)", d->name);
  if (!wanted->predict && d->cache && !cache_is_on(d->cache))
    return error_set(err, "the kernel cache is off: nothing that is found could be kept");
  struct tune_settings all = *wanted, trying = all, *s = &all;
  trying.progress = layouts_progress;
  trying.ctx = (void *)(uintptr_t)wanted;
  double began = now_s();
  if (s->layouts && layouts_search(e, &trying, s->seconds * LAYOUTS_SHARE, layouts, err)) return -1;
  // otherwise no layout was tried, and the bar begins at 0
  s->layouts = s->layouts && now_s() - began > s->seconds * LAYOUTS_SHARE / 4;
  if (s->layouts) s->seconds *= 1 - LAYOUTS_SHARE;
  if (tune_part_run(e, s, false, s->prompt ? s->seconds * (1 - PROMPT_SHARE) : s->seconds, &parts[0], err)) return -1;
  return s->prompt ? tune_part_run(e, s, true, s->seconds * PROMPT_SHARE, &parts[1], err) : 0;
}

static void quiet_progress(void *ctx, const char *what, double fraction) { engine_progress(ctx, what, fraction); }

void tune_from_env(engine *e, bool prompt) {
  enum { MOST = 64, SECONDS = 30, WIDTH = 4 };
  int width = env_int(ENV_BEAM) ? env_int(ENV_BEAM) : !strcmp(env_str(ENV_WEFT_TUNE), "now") ? WIDTH : 0;
  error err = {0};
  struct tune_part part = {0};
  struct tune_settings s = {.width = width < MOST ? width : MOST,
                            .skip_ms = plain_strtod(env_str(ENV_BEAM_SKIP_MS), NULL),
                            .progress = quiet_progress,
                            .ctx = e};
  if (width > 0 && (check_searched(e, &err) || tune_part_run(e, &s, prompt, SECONDS, &part, &err)))
    warning("no search for better kernels: %s", err.text);
  tune_part_free(&part);
}

void tune_part_free(struct tune_part *p) {
  if (p->rows) tune_rows_free(p->rows, p->n_rows);
  free(p->rows);
  *p = (struct tune_part){0};
}
