// Runs a plan: sets its variables and calls the device's runtime (host.c, remote_plan.c).
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "device/plan_impl.h"

void plan_vars(const program *q, const plan_var *vars, int n_vars, int64_t *values) {
  for (int v = 0; v < q->n_vars; v++) {
    int j = 0;
    while (j < n_vars && strcmp(vars[j].name, q->vars[v]->s)) j++;
    die_if(j == n_vars, "plan: no value for variable %s", q->vars[v]->s);
    die_if(vars[j].value < q->vars[v]->a || vars[j].value > q->vars[v]->b,
           "plan: %s = %lld is out of its bounds", vars[j].name, (long long)vars[j].value);
    values[v] = vars[j].value;
  }
}

void plan_set_vars(plan *p, const plan_var *vars, int n_vars) {
  if (p->shared) p->starts(p->starts_ctx, p, vars, n_vars);
  for (int i = 0; i < p->stats.kernels; i++) {
    step *t = &p->steps[i];
    plan_vars(t->k->p, vars, n_vars, t->vars);
    t->tiles = program_eval(t->k->p, t->k->p->tiles, t->vars);
    for (int j = 0; j < p->n_threads; j++) atomic_store_explicit(&t->parts[j].next, 0, memory_order_relaxed);
  }
}

void plan_ends(plan *p) {
  if (p->shared) p->ends(p->starts_ctx);
}

void plan_make_marks(plan *p) {
  if (p->marks) return;
  p->n_marks = (size_t)p->stats.kernels + (size_t)p->stats.dispatches + 1;
  p->marks = xcalloc((size_t)p->n_threads * p->n_marks, sizeof *p->marks);
}

void plan_run_timed(plan *p, const plan_var *vars, int n_vars, plan_times *out) {
  error e = {0};
  plan_set_vars(p, vars, n_vars);
  int r = p->d->run->replay_timed(p, out, &e);
  plan_ends(p);
  device_note(p->d, r, &e);
}

static void run_and_print(plan *p, const plan_var *vars, int n_vars) {
  size_t n = (size_t)p->stats.kernels;
  double *us = xcalloc(2 * n + 1, sizeof *us);
  plan_times t = {.kernel_us = us, .kernel_wait_us = us + n};
  plan_run_timed(p, vars, n_vars, &t);
  for (size_t i = 0; i < n; i++) {
    const program *q = p->steps[i].k->p;
    fprintf(stderr, "%4d %-36s %-24s %9.1f us %8.2f GB/s %8.2f GFLOP/s\n", p->steps[i].level, q->name, p->steps[i].role,
            us[i], (double)program_eval(q, q->bytes, p->steps[i].vars) / us[i] / 1e3,
            (double)program_eval(q, q->flops, p->steps[i].vars) / us[i] / 1e3);
  }
  fprintf(stderr, "     %d kernels %61.1f us\n", p->stats.kernels, t.us);
  free(us);
}

void plan_run(plan *p, const plan_var *vars, int n_vars) {
  error e = {0};
  if (debug_level() >= 2) { run_and_print(p, vars, n_vars); return; }
  plan_set_vars(p, vars, n_vars);
  device_note(p->d, p->d->run->replay(p, &e), &e);
  plan_ends(p);
}

bool plan_run_asking(plan *p, const plan_var *vars, int n_vars, plan_go_on *go_on, void *ctx) {
  if (!go_on(ctx, 0)) return false;
  if (p->shared) { plan_run(p, vars, n_vars); return true; }  // the other processes cannot be told of a cancellation
  p->go_on = go_on;
  p->go_on_ctx = ctx;
  plan_run(p, vars, n_vars);
  p->go_on = NULL;
  return !atomic_exchange(&p->ended, false);
}

plan_kernel_info plan_kernel(const plan *p, int i, const plan_var *vars, int n_vars) {
  const step *t = &p->steps[i];
  const program *q = t->k->p;
  int64_t values[MAX_VARS];
  plan_vars(q, vars, n_vars, values);
  return (plan_kernel_info){q->name, t->role, t->level, (double)program_eval(q, q->bytes, values),
                            (double)program_eval(q, q->flops, values)};
}
