// Profiles a model: see profile.h. Steps run one after another and all times are recorded; then the middle half is
// averaged, and launches of equal kernels in equal roles become one row.
#include "engine/profile_steps.h"
#include <stdlib.h>
#include <string.h>
#include "device/limit.h"

enum { WARM_UP = 2 };

typedef struct sample { double us, overhead_us; float *kernel_us, *kernel_wait_us; } sample;

static int by_time(const void *x, const void *y) {
  const sample *a = x, *b = y;
  return (a->us > b->us) - (a->us < b->us);
}

static int slowest_first(const void *x, const void *y) {
  const struct profile_row *a = x, *b = y;
  if (a->us != b->us) return (a->us < b->us) - (a->us > b->us);
  int c = strcmp(a->role, b->role);
  return c ? c : strcmp(a->name, b->name);
}

static struct profile_row *row_of_kernel(struct profile *out, const plan_kernel_info *k) {
  for (size_t i = 0; i < out->n_rows; i++)
    if (!strcmp(out->rows[i].name, k->name) && !strcmp(out->rows[i].role, k->role)) return &out->rows[i];
  struct profile_row *r = &out->rows[out->n_rows++];
  *r = (struct profile_row){0};
  snprintf(r->name, sizeof r->name, "%s", k->name);
  snprintf(r->role, sizeof r->role, "%s", k->role);
  return r;
}

static void summarise_samples(const plan *p, sample *samples, int n, const plan_var *vars, int n_vars,
                              struct profile *out) {
  qsort(samples, (size_t)n, sizeof *samples, by_time);
  int from = n / 4, to = n - n / 4;
  double part = 1.0 / (to - from);
  plan_stats s = plan_get_stats(p);
  out->rows = xcalloc((size_t)s.kernels + 1, sizeof *out->rows);
  for (int i = from; i < to; i++) {
    out->us += samples[i].us * part;
    out->overhead_us += samples[i].overhead_us * part;
  }
  for (int k = 0; k < s.kernels; k++) {
    plan_kernel_info info = plan_kernel(p, k, vars, n_vars);
    struct profile_row *r = row_of_kernel(out, &info);
    r->count++;
    r->bytes += info.bytes;
    r->flops += info.flops;
    for (int i = from; i < to; i++) {
      r->us += (double)samples[i].kernel_us[k] * part;
      r->wait_us += (double)samples[i].kernel_wait_us[k] * part;
      out->wait_us += (double)samples[i].kernel_wait_us[k] * part;
    }
  }
}

// Reads hardware counters in a few more steps, since reading them would change the times.
static void count_events(const profiled *of, struct profile *out) {
  enum { STEPS = 2 };
  counters *c;
  plan *p = of->p;
  plan_stats s = plan_get_stats(p);
  if (counters_open(plan_team(p), counter_events, COUNTED, &c, &out->no_counters)) return;
  double *got = xcalloc((size_t)s.kernels * COUNTED + 1, sizeof *got);
  for (int i = 0; i < STEPS; i++) {
    plan_run_counted(p, of->vars, of->n_vars, c, got);
    for (int k = 0; k < s.kernels; k++) {
      plan_kernel_info info = plan_kernel(p, k, of->vars, of->n_vars);
      struct profile_row *r = row_of_kernel(out, &info);
      for (int j = 0; j < COUNTED; j++) r->counted[j] += got[(size_t)k * COUNTED + (size_t)j] / STEPS;
    }
  }
  free(got);
  counters_close(c);
}

static void set_step(profiled *of, int step) {
  if (of->before) of->before(of->ctx, step, of->vars);
}

void profile_steps(profiled *of, struct profile *out) {
  plan_stats s = plan_get_stats(of->p);
  out->dispatches = s.dispatches;
  out->graph_ops = s.graph_ops;
  size_t n_kernels = (size_t)s.kernels;
  double *us = xcalloc(2 * n_kernels + 1, sizeof *us);
  float *kept = xcalloc(2 * n_kernels * (size_t)of->steps + 1, sizeof *kept), *at = kept;
  sample *samples = xcalloc((size_t)of->steps, sizeof *samples);
  for (int i = -WARM_UP; i < of->steps; i++) {
    plan_times t = {.kernel_us = us, .kernel_wait_us = us + n_kernels};
    set_step(of, i < 0 ? -1 : i);
    plan_run_timed(of->p, of->vars, of->n_vars, &t);
    if (i < 0) continue;
    samples[i] = (sample){t.us, t.overhead_us, at, at + n_kernels};
    for (size_t k = 0; k < 2 * n_kernels; k++) at[k] = (float)us[k];
    at += 2 * n_kernels;
  }
  set_step(of, of->steps / 2);
  summarise_samples(of->p, samples, of->steps, of->vars, of->n_vars, out);
  set_step(of, of->steps);
  if (of->d->run->here) count_events(of, out);
  else error_set(&out->no_counters, "what runs on DEV=%s is not counted by this machine's processors", of->d->name);
  free(samples); free(kept); free(us);
  if (out->n_rows) qsort(out->rows, out->n_rows, sizeof *out->rows, slowest_first);
}

// Random tokens.
typedef struct drawing { int32_t *ids; int n, n_vocab, prompt, steps, pos; uint64_t seed; } drawing;

static void draw_tokens(void *ctx, int step, plan_var *vars) {
  drawing *w = ctx;
  for (int k = 0; k < w->n; k++) w->ids[k] = (int32_t)((w->seed = hash_u64(w->seed, 7)) % (uint64_t)w->n_vocab);
  vars[1].value = w->pos + (w->prompt || step < 0 || step == w->steps ? 0 : step);
}

int profile_run(engine *e, int prompt, int steps, int pos, struct profile *out, error *err) {
  plan *p;
  int32_t *ids;
  int n = prompt ? prompt : 1;
  *out = (struct profile){.tokens = n, .n_layer = engine_n_layer(e)};
  die_if(steps < 1 || pos < 0 || n > engine_chunk(e) || (int64_t)pos + (prompt ? n : steps) > engine_n_ctx(e),
         "profile_run: %d steps of %d tokens at %d of %d", steps, n, pos, engine_n_ctx(e));
  if (engine_plan(e, prompt, &p, &ids, err)) return -1;
  engine_promote_pages(e);
  if (gguf_check_size(engine_gguf(e), err)) return -1;
  drawing w = {ids, n, engine_n_vocab(e), prompt, steps, pos, 1};
  profile_steps(&(profiled){.d = engine_device(e),
                            .p = p,
                            .vars = {{"n", n}, {"pos", pos}},
                            .n_vars = 2,
                            .steps = steps,
                            .before = draw_tokens,
                            .ctx = &w},
                out);
  return device_read_limit(engine_device(e), &out->limit_gb_s, err);
}

void profile_free(struct profile *p) {
  free(p->rows);
  *p = (struct profile){0};
}
