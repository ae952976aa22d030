// Measures this machine: see calibrate.h.
#define _GNU_SOURCE
#include "engine/calibrate.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/plain.h"
#include "weft.h"
#include "base/env.h"
#include "compile/compile.h"
#include "device/cache.h"
#include "device/entry_kinds.h"
#include "device/llvm.h"
#include "device/machine.h"
#include "device/memory.h"
#include "device/team.h"
#include "engine/cpu_profiles.h"
#include "model/dequant.h"

// Q6_K: its products read from the most places at once of all formats, so prefetching has the largest effect.
enum { COLS = 2048, ROWS = 65536, BLOCK = 256, BLOCK_BYTES = 210, ROUNDS = 7, BARRIERS = 2000, TILE = 8 };
static const prefetch ways_of_one[CALIBRATION_VARIANTS] = {
  {0, 0}, {2, PREFETCH_T0}, {4, PREFETCH_T0}, {8, PREFETCH_T0}, {8, PREFETCH_NTA}},
                      ways_of_many[CALIBRATION_TILE_VARIANTS] = {{0, 0}, {8, PREFETCH_T0}, {32, PREFETCH_T1}};
static const double LEAST_GAIN = 1.03, AT_MOST_S = 0.3, BUSY = 0.8, MOST_MEASURED = 1e9;

typedef struct probe {
  unsigned char *weight, *stream;
  float x[TILE * COLS], y[TILE * ROWS];
  uint64_t bytes, stream_bytes;
  bool filled;
} probe;

static void profile_key(const device *d, str *key) {
  char cpu[128];
  weft_cpu_name(cpu, sizeof cpu);
  entry_key_begin(ENTRY_MACHINE, key);
  str_addf(key, "%s threads %d %s", cpu, d->n_threads, d->key);
}

// The cache keeps profiles as a run sent them, and a run that was taken over may send any.
static bool is_measured(double v) { return v >= 0 && v < MOST_MEASURED; }

static bool is_plain_name(const char *text) {
  for (; *text; text++) if (*text < ' ' || *text > '~') return false;
  return true;
}

// "barrier NS", then for products of one token and of many "best PREFETCH of N" and a line "PREFETCH GB/s" for each of
// the N variants tried; "busy" or "shipped 'name'" at the end.
static bool parse_table(const char **text, calibration_table *out) {
  char word[32];
  int used;
  if (sscanf(*text, " best %31s of %d%n", word, &out->n, &used) != 2 || out->n < 0 || out->n > CALIBRATION_VARIANTS ||
      !machine_parse_prefetch(word, &out->best))
    return false;
  *text += used;
  for (int i = 0; i < out->n; i++, *text += used)
    if (plain_sscanf(*text, " %31s %lf%n", word, &out->tried[i].gb_s, &used) != 2 ||
        !is_measured(out->tried[i].gb_s) || !machine_parse_prefetch(word, &out->tried[i].with))
      return false;
  return true;
}

static bool parse_profile(const char *text, machine_profile *out) {
  int used;
  *out = (machine_profile){0};
  if (plain_sscanf(text, "barrier %lf%n", &out->barrier_ns, &used) != 1 || !is_measured(out->barrier_ns)) return false;
  text += used;
  if (!parse_table(&text, &out->one) || !parse_table(&text, &out->many)) return false;
  if (sscanf(text, " shipped '%31[^']'", out->cpu_profile) == 1 && !is_plain_name(out->cpu_profile)) return false;
  out->busy = strstr(text, "busy") != NULL;
  return true;
}

static void print_table(str *out, const calibration_table *l) {
  str_add(out, "best ");
  machine_print_prefetch(out, l->best);
  str_addf(out, " of %d\n", l->n);
  for (int i = 0; i < l->n; i++) {
    machine_print_prefetch(out, l->tried[i].with);
    str_addf(out, " %.2f\n", l->tried[i].gb_s);
  }
}

static void print_profile(str *out, const machine_profile *p) {
  str_addf(out, "barrier %.0f\n", p->barrier_ns);
  print_table(out, &p->one);
  print_table(out, &p->many);
  if (p->cpu_profile[0]) str_addf(out, "shipped '%s'\n", p->cpu_profile);
  if (p->busy) str_add(out, "busy\n");
}

static bool in_cache(const device *d, machine_profile *out) {
  bytes value;
  str key = {0};
  profile_key(d, &key);
  bool hit = cache_get(d->cache, key.at, key.n, &value), ok = false;
  str_free(&key);
  if (!hit) return false;
  char *text = memcpy(xcalloc(value.n + 1, 1), value.at, value.n);
  ok = parse_profile(text, out);
  free(text);
  bytes_free(&value);
  return ok;
}

static bool came_with_weft(const device *d, machine_profile *out) {
  cpu_target cpu;
  str version = {0};
  char name[32];
  bool found = !cpu_target_from_env(&cpu, NULL) && !llvm_version(&version, NULL) &&
               cpu_profiles_find(&cpu.has, d->target.vector_bytes * 8, atoi(str_c(&version)), name, out);
  if (found) snprintf(out->cpu_profile, sizeof out->cpu_profile, "%s", name);
  str_free(&version);
  return found;
}

bool calibration_known(const device *d, machine_profile *out) {
  if (!d->cache || !cache_is_on(d->cache) || *env_str(ENV_PREFETCH)) return false;
  return in_cache(d, out) || came_with_weft(d, out);
}

static void *probe_buffer(void *ctx, int64_t id) {
  probe *p = ctx;
  return id == 0 ? (void *)p->x : id == 1 ? (void *)p->weight : (void *)p->y;
}

// All variants read one copy of the weight; the first one fills it.
static void *probe_stream(void *ctx, int64_t id, uint64_t hash, int64_t size, bool *filled) {
  (void)id; (void)hash;
  probe *p = ctx;
  *filled = p->filled;
  return (uint64_t)size <= p->stream_bytes ? p->stream : NULL;
}

static void was_filled(void *ctx, int64_t id, double from, double to, double done) {
  (void)id; (void)from; (void)done;
  if (to >= 1) ((probe *)ctx)->filled = true;
}

typedef struct way { graph *g; plan *p; schedule s; double best_s; } way;

static int make_way(device *d, probe *p, int64_t tokens, way *w, error *err) {
  w->g = graph_new(NULL);
  tensor *x = t_reshape_i(w->g, t_buffer(w->g, 0, DT_F32, tokens * COLS), 2, (int64_t[]){tokens, COLS});
  tensor *y = t_matmul(w->g, x, dequant(w->g, format_by_name("Q6_K"), 1, ROWS, COLS));
  tensor *at = t_reshape_i(w->g, t_buffer(w->g, 2, DT_F32, tokens * ROWS), 2, (int64_t[]){tokens, ROWS});
  tensor *out = t_assign(w->g, at, y);
  compile_graph(w->g, uop_new(w->g, OP_SINK, DT_VOID, 1, &out, 1, (uarg){0}), &d->target, &(compile_choices){0}, &w->s);
  w->best_s = 1e30;
  return plan_build(d, w->g, &w->s,
                    &(plan_options){.buffer = probe_buffer, .ctx = p, .stream = probe_stream, .filled = was_filled},
                    &w->p, err);
}

static void wait_often(void *ctx, int thread, int n) {
  (void)thread; (void)n;
  for (int i = 0; i < BARRIERS; i++) team_barrier(ctx);
}

// Times the variants interleaved. *alone is false if other programs used the processors.
static int race_ways(device *d, probe *p, int64_t tokens, const prefetch *ways, int n, calibration_table *out,
                     bool *alone, error *err) {
  way w[CALIBRATION_VARIANTS] = {0};
  int r = 0, best = 0;
  prefetch before = d->target.distance, before_many = d->target.distance_of_tile;
  for (int i = 0; i < n && !r; i++) {
    d->target.distance = d->target.distance_of_tile = ways[i];
    r = make_way(d, p, tokens, &w[i], err);
  }
  d->target.distance = before;
  d->target.distance_of_tile = before_many;
  // the first runs wake threads and touch memory
  for (int i = 0; i < n && !r; i++) plan_run(w[i].p, NULL, 0);
  // threads of a team busy-wait: processor time that they did not get went to other programs
  double began = now_s(), spent = processor_s();
  for (int round = 0; round < ROUNDS && !r && (round < 2 || now_s() - began < AT_MOST_S); round++)
    for (int i = 0; i < n; i++) {
      double t = now_s();
      plan_run(w[i].p, NULL, 0);
      t = now_s() - t;
      if (t < w[i].best_s) w[i].best_s = t;
    }
  *alone &= processor_s() - spent >= (now_s() - began) * d->n_threads * BUSY;
  for (int i = 0; i < n && !r; i++) {
    out->tried[out->n].with = ways[i];
    out->tried[out->n++].gb_s = (double)p->bytes / w[i].best_s / 1e9;
    if (out->tried[i].gb_s > out->tried[best].gb_s * (best ? 1 : LEAST_GAIN)) best = i;
  }
  out->best = ways[best];
  for (int i = 0; i < n; i++) { plan_free(w[i].p); graph_free(w[i].g); }
  return r;
}

static int measure_profile(device *d, probe *p, machine_profile *out, error *err) {
  bool alone = true;
  if (race_ways(d, p, 1, ways_of_one, CALIBRATION_VARIANTS, &out->one, &alone, err) ||
      race_ways(d, p, TILE, ways_of_many, CALIBRATION_TILE_VARIANTS, &out->many, &alone, err))
    return -1;
  out->busy = !alone;
  double t = now_s();
  team_run(d->team, wait_often, d->team);
  out->barrier_ns = (now_s() - t) / BARRIERS * 1e9;
  return 0;
}

int calibration_measure(device *d, machine_profile *out, error *err) {
  uint64_t have;
  probe *p = xcalloc(1, sizeof *p);
  *out = (machine_profile){0};
  p->bytes = (uint64_t)ROWS * COLS / BLOCK * BLOCK_BYTES;
  p->stream_bytes = p->bytes + p->bytes / 10;
  int r = 0;
  if (!memory_available(&have, NULL) && have / 4 < p->stream_bytes) r = error_set(err, "too little memory");
  if (!r && (!(p->weight = memory_reserve_plain(p->bytes, err)) || !(p->stream = memory_reserve(p->stream_bytes, err))))
    r = -1;
  if (!r) r = measure_profile(d, p, out, err);
  if (p->weight) memory_release(p->weight, p->bytes);
  if (p->stream) memory_release(p->stream, p->stream_bytes);
  free(p);
  return r;
}

void calibration_save(device *d, const machine_profile *p) {
  str key = {0}, text = {0};
  profile_key(d, &key);
  print_profile(&text, p);
  cache_put(d->cache, key.at, key.n, text.at, text.n);
  cache_flush(d->cache);
  str_free(&key); str_free(&text);
}

void calibrate(device *d) {
  machine_profile m = {0}, now;
  error err = {0};
  if (!d->run->here || !d->cache || !cache_is_on(d->cache) || !d->target.has_streams || !d->target.vector_bytes ||
      env_int(ENV_NOOPT) || *env_str(ENV_PREFETCH))
    return;
  bool known = in_cache(d, &m);
  if (!known && came_with_weft(d, &m)) {                 // does not query LLVM's version from now on
    calibration_save(d, &m);
    known = true;
  }
  if (!known || m.busy) {
    bool failed = calibration_measure(d, &now, &err);
    if (failed && debug_level()) fprintf(stderr, "weft: this machine was not measured: %s\n", err.text);
    if (failed && !known) return;
    if (!failed && (!known || !now.busy)) {
      m = now;
      calibration_save(d, &m);
    }
  }
  d->target.distance = m.one.best;
  d->target.distance_of_tile = m.many.best;
}
