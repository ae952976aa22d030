// Traces the compilation of a model: see trace.h. Nothing is recorded while the model is opened. Graph, schedule and
// kernels are made again with recorders and equal those of the plan, since they depend only on the model. Times come
// from the plan itself.
#include "engine/trace.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "device/limit.h"
#include "device/team.h"
#include "device/tuning.h"
#include "graph/record.h"
#include "schedule/layout.h"

enum {
  WARM_UP = 2,
  MOST_RUNS = 64 /* whose times are kept */,
  MOST_STEPS = 20000 /* of a recorder */,
  MOST_TEXT = 2 << 20 /* bytes of source or assembly */
};

typedef struct pass_time { char name[48]; double s; } pass_time;

typedef struct look {
  engine *e;
  graph *g;
  schedule s;
  recorder *r;               // for the tensor graph
  device *d;
  plan *p;
  int n_threads, n_unique;
  int *unique;               // for each kernel: index of its distinct kernel
  const sched_kernel **first;               // one kernel of each distinct kernel
  str *out;
  VEC(pass_time) passes;     // of all distinct kernels together
} look;

static void add_text_member(str *out, const char *key, const char *text) {
  size_t n = strlen(text);
  str_addf(out, "\"%s\":", key);
  str_add_json(out, text, n < MOST_TEXT ? n : MOST_TEXT);
}

static void add_double(str *out, double x) { str_addf(out, isfinite(x) ? "%.7g" : "null", x); }

// ---- the timeline ---------------------------------------------------------------------------------------------------

// lanes: for each thread and kernel, from and to
typedef struct timing { double us, overhead_us; double *kernel_us, *wait_us, *lanes; } timing;

static int by_us(const void *x, const void *y) {
  const timing *a = x, *b = y;
  return (a->us > b->us) - (a->us < b->us);
}

// The times of the step with the median duration.
static int measure_steps(look *l, int prompt, int steps, int pos, timing *out, error *err) {
  int32_t *ids;
  int n = prompt ? prompt : 1, n_vocab = engine_n_vocab(l->e);
  if (gguf_check_size(engine_gguf(l->e), err) || engine_plan(l->e, prompt, &l->p, &ids, err)) return -1;
  engine_promote_pages(l->e);
  l->n_threads = team_size(plan_team(l->p));
  size_t kernels = (size_t)plan_get_stats(l->p).kernels, lane = 2 * kernels,
         each = kernels * 2 + lane * (size_t)l->n_threads;
  timing *all = xcalloc((size_t)steps, sizeof *all);
  double *figures = xcalloc(each * (size_t)steps + 1, sizeof *figures);
  uint64_t seed = 1;
  for (int i = -WARM_UP; i < steps; i++) {
    timing *t = &all[i < 0 ? 0 : i];
    double *at = figures + each * (size_t)(i < 0 ? 0 : i);
    *t = (timing){.kernel_us = at, .wait_us = at + kernels, .lanes = at + 2 * kernels};
    plan_times times = {.kernel_us = t->kernel_us, .kernel_wait_us = t->wait_us};
    for (int k = 0; k < n; k++) ids[k] = (int32_t)((seed = hash_u64(seed, 7)) % (uint64_t)n_vocab);
    plan_run_timed(l->p, (plan_var[]){{"n", n}, {"pos", pos + (prompt || i < 0 ? 0 : i)}}, 2, &times);
    t->us = times.us;
    t->overhead_us = times.overhead_us;
    for (int th = 0; th < l->n_threads; th++)
      for (size_t k = 0; k < kernels; k++)
        plan_lane(l->p, (int)k, th, &t->lanes[(size_t)th * lane + 2 * k], &t->lanes[(size_t)th * lane + 2 * k + 1]);
  }
  qsort(all, (size_t)steps, sizeof *all, by_us);
  *out = all[steps / 2];
  double *kept = xmalloc(each * sizeof *kept);
  memcpy(kept, out->kernel_us, each * sizeof *kept);
  *out = (timing){out->us, out->overhead_us, kept, kept + kernels, kept + 2 * kernels};
  free(figures);
  free(all);
  return 0;
}

// ---- the overview ---------------------------------------------------------------------------------------------------

// kernels: [[distinct kernel, level, role, [buffers, written ones as -1 - number], us, wait_us, bytes, flops]...]
static void add_kernels(look *l, const timing *t, const map *buffers, const plan_var *vars) {
  str *o = l->out;
  str_add(o, ",\n\"kernels\":[");
  for (int i = 0; i < l->s.n_kernels; i++) {
    const sched_kernel *k = &l->s.kernels[i];
    plan_kernel_info info = plan_kernel(l->p, i, vars, 2);
    str_addf(o, i ? ",\n[%d,%d," : "[%d,%d,", l->unique[i], k->level);
    str_add_json(o, info.role, strlen(info.role));
    str_add(o, ",[");
    for (int b = 0; b < k->n_bufs; b++) {
      void *at;
      die_if(!map_get(buffers, (uint64_t)k->bufs[b], &at), "a buffer without a number");
      str_addf(o, b ? ",%ld" : "%ld", k->written[b] ? -1 - (long)(intptr_t)at : (long)(intptr_t)at);
    }
    str_addf(o, "],%.3f,%.3f,%.0f,%.0f]", t->kernel_us[i], t->wait_us[i], info.bytes, info.flops);
  }
  str_addc(o, ']');
}

// buffers: [name...], in the order of first use by kernels; ids: their numbers in the tensor graph
static void add_buffers(look *l, map *buffers) {
  size_t n = 0;
  str ids = {0};
  str_add(l->out, ",\n\"buffers\":[");
  for (int i = 0; i < l->s.n_kernels; i++)
    for (int b = 0; b < l->s.kernels[i].n_bufs; b++) {
      int64_t id = l->s.kernels[i].bufs[b];
      char name[256];
      if (map_get(buffers, (uint64_t)id, NULL)) continue;
      engine_buffer_name(l->e, id, name, sizeof name);
      str_add(l->out, n ? "," : "");
      str_addf(&ids, n ? ",%lld" : "%lld", (long long)id);
      str_add_json(l->out, name, strlen(name));
      map_set(buffers, (uint64_t)id, (void *)(intptr_t)n++);
    }
  str_addf(l->out, "],\n\"ids\":[%s]", str_c(&ids));
  str_free(&ids);
}

// The kernels of one step of the other plan: [[role, dispatch, us, bytes, flops]...]; a chunk of a prompt beside a
// token, or a token beside a chunk.
static int add_other(look *l, double token_us, int prompt, int pos, error *err) {
  enum { CHUNK = 64, RUNS = 3 };
  const double PATIENCE_US = 5e6;                       // the interpreter needs seconds for a token
  str *o = l->out;
  plan *p;
  int32_t *ids;
  int n = prompt ? 1 : (int)min_i64(min_i64(CHUNK, engine_chunk(l->e)), engine_n_ctx(l->e) - pos), runs = RUNS;
  if (n * token_us > PATIENCE_US) { n = (int)(PATIENCE_US / token_us) + 1; runs = 1; }
  if (n < 1 || engine_plan(l->e, !prompt, &p, &ids, err)) return -1;
  size_t kernels = (size_t)plan_get_stats(p).kernels;
  double *us = xcalloc(2 * kernels + 1, sizeof *us), least = 0;
  double *best = xcalloc(kernels + 1, sizeof *best);
  plan_var vars[] = {{"n", n}, {"pos", pos}};
  for (int i = 0; i < runs; i++) {
    plan_times t = {.kernel_us = us, .kernel_wait_us = us + kernels};
    for (int k = 0; k < n; k++) ids[k] = k % engine_n_vocab(l->e);
    plan_run_timed(p, vars, 2, &t);
    if (!i || t.us < least) { least = t.us; memcpy(best, us, kernels * sizeof *us); }
  }
  str_addf(o, ",\n\"other\":{\"tokens\":%d,\"us\":%.3f,\"kernels\":[", n, least);
  for (size_t k = 0; k < kernels; k++) {
    plan_kernel_info info = plan_kernel(p, (int)k, vars, 2);
    str_add(o, k ? ",[" : "[");
    str_add_json(o, info.role, strlen(info.role));
    str_addf(o, ",%d,%.3f,%.0f,%.0f]", info.dispatch, best[k], info.bytes, info.flops);
  }
  str_add(o, "]}");
  free(us); free(best);
  return 0;
}

// passes: [[pass, us]...] over all distinct kernels; memory: bytes by kind.
static void add_costs(look *l) {
  struct engine_stats s;
  str *o = l->out;
  engine_stats(l->e, &s);
  str_add(o, ",\n\"passes\":[");
  for (size_t i = 0; i < l->passes.n; i++) {
    str_add(o, i ? ",[" : "[");
    str_add_json(o, l->passes.at[i].name, strlen(l->passes.at[i].name));
    str_addf(o, ",%.1f]", l->passes.at[i].s * 1e6);
  }
  str_addf(o, "],\n\"memory\":{\"weights\":%llu,\"KV cache\":%llu,\"intermediates\":%lld},\"context\":%d",
           (unsigned long long)s.model_bytes, (unsigned long long)s.kv_bytes,
           (long long)plan_get_stats(l->p).arena_bytes, engine_n_ctx(l->e));
}

// temps: [[buffer, dtype, elements, bytes, offset, first level, last level]...]; lanes: per thread [from, to, from, to,
// ...] in us, by kernel
static void add_overview(look *l, const timing *t, int prompt, int pos, int steps) {
  str *o = l->out;
  plan_stats s = plan_get_stats(l->p);
  double limit = 0;
  error e = {0};
  map buffers = {0};
  if (device_read_limit(l->d, &limit, &e)) limit = 0;
  str_addc(o, '{');
  add_text_member(o, "path", gguf_path(engine_gguf(l->e)));
  str_addf(o,
           ",\"threads\":%d,\"tokens\":%d,\"depth\":%d,\"dispatches\":%d,\"graph_ops\":%d,\"layers\":%d,\"arena_"
           "bytes\":%lld,\"limit_gb_s\":",
           l->n_threads, prompt ? prompt : 1, pos, s.dispatches, s.graph_ops, engine_n_layer(l->e),
           (long long)s.arena_bytes);
  add_double(o, limit);
  str_addf(o, ",\"step_us\":%.3f,\"overhead_us\":%.3f,", t->us, t->overhead_us);
  add_text_member(o, "key", l->d->key);
  add_buffers(l, &buffers);
  add_kernels(l, t, &buffers, (plan_var[]){{"n", prompt ? prompt : 1}, {"pos", pos + (prompt ? 0 : steps / 2)}});
  str_add(o, ",\n\"temps\":[");
  for (int i = 0; i < l->s.n_temps; i++) {
    const sched_temp *w = &l->s.temps[i];
    void *at = NULL;
    map_get(&buffers, (uint64_t)w->id, &at);
    str_addf(o, i ? ",[%ld,\"%s\",%lld,%lld,%lld,%d,%d]" : "[%ld,\"%s\",%lld,%lld,%lld,%d,%d]", (long)(intptr_t)at,
             dtype_name(w->dt), (long long)w->elems, (long long)w->bytes, (long long)w->offset, w->first, w->last);
  }
  str_add(o, "],\n\"lanes\":[");
  for (int th = 0; th < l->n_threads; th++) {
    str_add(o, th ? ",\n[" : "[");
    for (int k = 0; k < 2 * s.kernels; k++)
      str_addf(o, k ? ",%.2f" : "%.2f", t->lanes[(size_t)th * 2 * (size_t)s.kernels + (size_t)k]);
    str_addc(o, ']');
  }
  str_addc(o, ']');
  add_costs(l);
  map_free(&buffers);
}

// The tensor graph as given, after the rewriting of dot products, and as scheduled; tensors: the node that each kernel
// stores.
static void add_graph(look *l) {
  map numbers = {0};
  str_add(l->out, "{\"record\":");
  record_write(l->r, l->out, &numbers);
  str_add(l->out, ",\n\"tensors\":[");
  for (int i = 0; i < l->s.n_kernels; i++)
    str_addf(l->out, i ? ",%ld" : "%ld", (long)(uintptr_t)map_ptr(&numbers, l->s.kernels[i].tensor) - 1);
  str_add(l->out, "]}");
  map_free(&numbers);
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// Each OptOp is recorded separately (UPCAST(0,4)); here they are one kind of pass.
static void add_pass(void *ctx, const char *name, double s) {
  look *l = ctx;
  if (strchr(name, '(')) name = "OptOps";
  for (size_t i = 0; i < l->passes.n; i++) if (!strcmp(l->passes.at[i].name, name)) { l->passes.at[i].s += s; return; }
  pass_time p = {.s = s};
  snprintf(p.name, sizeof p.name, "%s", name);
  vec_push(&l->passes, p);
}

// One distinct kernel: name, program (linear IR), source, assembly, streams [[parameter, bytes]...], and its record;
// search, if there was one: did it find something better, us of a launch before and after.
static int add_one_kernel(look *l, const sched_kernel *k, error *err) {
  recorder *r = recorder_new(MOST_STEPS);
  tuning t;
  bool searched;
  program *p = plan_program(l->d, l->g, k->ast, r, &t, &searched);
  str source = {0}, assembly = {0}, text = {0}, *o = l->out;
  record_passes(r, add_pass, l);
  double began = now_s();
  int status = l->d->show ? l->d->show(l->d, p, &source, &assembly, err) : 0;
  add_pass(l, "machine code", now_s() - began);
  if (!status) {
    program_print(&text, p);
    str_addc(o, '{');
    add_text_member(o, "name", p->name);
    str_addc(o, ',');
    add_text_member(o, "program", str_c(&text));
    str_addc(o, ',');
    add_text_member(o, "source", str_c(&source));
    str_addc(o, ',');
    add_text_member(o, "assembly", str_c(&assembly));
    if (searched) str_addf(o, ",\"search\":[%s,%.3f,%.3f]", t.better ? "true" : "false", t.before_us, t.after_us);
    str_add(o, ",\"streams\":[");
    for (int b = 0, n = 0; k->layouts && b < k->n_bufs; b++)
      if (k->layouts[b]) str_addf(o, n++ ? ",[%d,%lld]" : "[%d,%lld]", b, (long long)k->layouts[b]->bytes);
    str_add(o, "],\n\"record\":");
    record_write(r, o, NULL);
    str_addc(o, '}');
  }
  str_free(&source); str_free(&assembly); str_free(&text);
  program_free(p);
  recorder_free(r);
  return status;
}

static void find_unique(look *l) {
  map seen = {0};
  l->unique = xcalloc((size_t)l->s.n_kernels + 1, sizeof *l->unique);
  l->first = xcalloc((size_t)l->s.n_kernels + 1, sizeof *l->first);
  for (int i = 0; i < l->s.n_kernels; i++) {
    uop *ast = l->s.kernels[i].ast;
    if (!map_has(&seen, ast)) {
      l->first[l->n_unique] = &l->s.kernels[i];
      map_put(&seen, ast, (void *)(intptr_t)l->n_unique++);
    }
    l->unique[i] = (int)(intptr_t)map_ptr(&seen, ast);
  }
  map_free(&seen);
}

// Puts each JSON object on one line: newlines inside only keep source lines short.
static void end_line(str *out, size_t from) {
  for (size_t i = from; i < out->n; i++) if (out->at[i] == '\n') out->at[i] = ' ';
  str_addc(out, '\n');
}

int trace_run(engine *e, int prompt, int steps, int pos, str *out, error *err) {
  die_if(steps < 1 || pos < 0 || prompt > engine_chunk(e) ||
         (int64_t)pos + (prompt ? prompt : steps) > engine_n_ctx(e),
         "look_run: %d steps at %d of %d", steps, pos, engine_n_ctx(e));
  look l = {.e = e, .d = engine_device(e), .g = graph_new(NULL), .r = recorder_new(MOST_STEPS), .out = out};
  timing t = {0};
  if (steps > MOST_RUNS) steps = MOST_RUNS;
  graph_record(l.g, l.r);
  engine_trace(e, prompt, l.g, &l.s);
  graph_record(l.g, NULL);
  find_unique(&l);
  int r = measure_steps(&l, prompt, steps, pos, &t, err);
  die_if(!r && plan_get_stats(l.p).kernels != l.s.n_kernels, "the graph came out differently the second time");
  str each = {0};                                               // of the kernels, written after their totals
  l.out = &each;
  for (int i = 0; i < l.n_unique && !r; i++) {
    size_t from = each.n;
    engine_progress(e, "looking", (double)i / l.n_unique);
    r = add_one_kernel(&l, l.first[i], err);
    end_line(&each, from);
  }
  l.out = out;
  if (!r) {
    size_t from = out->n;
    add_overview(&l, &t, prompt, pos, steps);
    r = add_other(&l, t.us / (prompt ? prompt : 1), prompt, pos, err);
    str_addc(out, '}');
    end_line(out, from);
    from = out->n;
    add_graph(&l);
    end_line(out, from);
    str_addn(out, each.at, each.n);
  }
  str_free(&each);
  vec_free(&l.passes);
  free(t.kernel_us); free(l.unique); free(l.first);
  recorder_free(l.r);
  graph_free(l.g);
  return r;
}
