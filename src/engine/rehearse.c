// Estimates models on machines that are not present: see rehearse.h.
#include "engine/rehearse.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/plain.h"
#include "device/ranks.h"
#include "engine/engine_impl.h"
#include "weft.h"

enum { WARM_UP = 2, MOST_RUNS = 31, LEAST_RUNS = 3, HEADS = 512 /* bytes of a message besides its tables */,
       SMALL = 32 << 10 /* bytes that are gathered in few steps */ };
static const double RUNS_S = 3, LONG_S = 4;

// --- links -----------------------------------------------------------------------------------------------------------

// Assumed performance of MPI over TCP on such links, from published measurements of message latency and bandwidth.
static const struct { const char *name; network is; } known[] = {{"1GbE", {40, 0.94}},
                                                                 {"10GbE", {20, 9.4}},
                                                                 {"25GbE", {15, 23.5}},
                                                                 {"100GbE", {10, 94}},
                                                                 {"USB4", {40, 15}}};

static bool same_word(const char *x, const char *y) {
  while (*x && ascii_lower(*x) == ascii_lower(*y)) { x++; y++; }
  return !*x && !*y;
}

int network_parse(const char *text, network *out, error *err) {
  str names = {0};
  int used = 0;
  for (size_t i = 0; i < COUNT(known); i++) {
    if (same_word(text, known[i].name)) { *out = known[i].is; str_free(&names); return 0; }
    str_addf(&names, "%s%s", i ? ", " : "", known[i].name);
  }
  bool given = plain_sscanf(text, "%lf:%lf%n", &out->latency_us, &out->gbit_s, &used) == 2 && !text[used] &&
               out->latency_us >= 0 && out->latency_us < 1e9 && out->gbit_s > 0 && out->gbit_s < 1e9;
  if (!given)
    error_set(err, "a link '%s' is not known; it may be %s, or MICROSECONDS:GBIT such as 50:9.4", text,
              str_c(&names));
  str_free(&names);
  return given ? 0 : -1;
}

static double wire_us(const network *l, double size) { return size * 8 / (l->gbit_s * 1e3); }

static double doublings(int n) { return ceil(log2((double)n)); }

// Small data uses recursive doubling, large data a ring.
double network_gather_us(const network *l, int n, double size) {
  if (n < 2) return 0;
  double steps = size < SMALL ? doublings(n) : n - 1;
  return steps * l->latency_us + wire_us(l, size * (n - 1) / n);
}

double network_broadcast_us(const network *l, int n, double size) {
  return n < 2 ? 0 : doublings(n) * (l->latency_us + wire_us(l, size));
}

network network_measured(int n) {
  link_times t = ranks_link();
  double steps = doublings(n), us = t.large_us - t.small_us / steps * (n - 1), bits = 8.0 * LINK_LARGE * (n - 1);
  return (network){t.small_us / steps, bits / (us > 1 ? us : 1) / 1e3};
}

// --- rows ------------------------------------------------------------------------------------------------------------

// Bytes of this process's KV cache and fixed states for this many positions.
static uint64_t bytes_of_states(const engine *e, int64_t positions) {
  uint64_t all = 0;
  for (int i = 0; i < model_n_states(e->m); i++) {
    double part = 1;
    const state_cuts *c = e->state_cuts ? &e->state_cuts[i] : NULL;
    int rank = e->o.rehearsed.rank;
    if (c && c->known && c->what.n && c->what.period)
      part = (double)(c->what.cut[rank + 1] - c->what.cut[rank]) / (double)c->what.period;
    uint64_t own = (uint64_t)((double)model_state_bytes(e->m, i, positions) * part);
    if (!add_u64(all, own, &all)) return UINT64_MAX;
  }
  return all;
}

static void draw_ids(const engine *e, int32_t *ids, int n, uint64_t *seed) {
  for (int i = 0; i < n; i++) ids[i] = (int32_t)((*seed = hash_u64(*seed, 7)) % (uint64_t)engine_n_vocab(e));
}

// The mean of the largest of n values, each drawn from these ones.
static double expected_most(double *of, int many, int n) {
  double sum = 0;
  median(of, many);                                      // sorts them
  for (int i = 0; i < many; i++) sum += of[i] * (pow((i + 1.0) / many, n) - pow((double)i / many, n));
  return sum;
}

// The time of a run of n processes. They begin a stretch between gatherings when all have ended the one before. times:
// of each stretch, run by run.
static double time_together(const double *times, size_t stretches, int runs, int n) {
  double of[MOST_RUNS], all = 0;
  for (size_t i = 0; i < stretches; i++) {
    for (int r = 0; r < runs; r++) of[r] = times[(size_t)r * stretches + i];
    all += expected_most(of, runs, n);
  }
  return all;
}

// The time of a plan on n processes that are like this one, by a few runs here; a slow plan runs once.
static double time_runs(engine *e, plan *p, int32_t *ids, int n_ids, int pos, int n) {
  double us[MOST_RUNS], began = now_s();
  uint64_t seed = 1;
  int runs = 0;
  size_t stretches = 1;
  VEC(double) times = {0};
  const plan_var vars[] = {{"n", n_ids}, {"pos", pos}};
  for (int i = -WARM_UP; i < MOST_RUNS && (runs < LEAST_RUNS || now_s() - began < RUNS_S); i++) {
    const double *gathered;
    draw_ids(e, ids, n_ids, &seed);
    ranks_rehearsed(&gathered);
    double start = now_s();
    plan_run(p, vars, COUNT(vars));
    double end = now_s(), took = end - start;
    if (i < 0 && took < LONG_S) continue;
    stretches = ranks_rehearsed(&gathered) + 1;
    for (size_t j = 0; j < stretches; j++) {
      double until = j + 1 < stretches ? gathered[j] : end;
      vec_push(&times, (until - start) * 1e6);
      start = until;
    }
    us[runs++] = took * 1e6;
    if (took >= LONG_S) break;
  }
  double all = n > 1 ? time_together(times.at, stretches, runs, n) : median(us, runs);
  vec_free(&times);
  return all;
}

// The data that a run gathers, and the link's time for it.
static void add_gatherings(const plan *p, const network *l, int n, int tokens, int pos, double *us, double *size,
                           int *count) {
  const plan_var vars[] = {{"n", tokens}, {"pos", pos}};
  for (int i = 0; i < plan_get_stats(p).kernels; i++) {
    plan_kernel_info k = plan_kernel(p, i, vars, COUNT(vars));
    if (strcmp(k.name, "allgather")) continue;
    *us += network_gather_us(l, n, k.bytes);
    *size += k.bytes;
    ++*count;
  }
}

static int rehearse_part(engine *e, bool prompt, int depth, const network *l, rehearsal *out, error *err) {
  plan *p;
  int32_t *ids;
  if (engine_plan(e, prompt, &p, &ids, err)) return -1;
  engine_promote_pages(e);
  int n = prompt ? out->chunk : 1;
  double us = time_runs(e, p, ids, n, depth, out->n), size = 0;
  double told = HEADS + (double)(page_tables(e) * (int64_t)sizeof(int32_t)) + 12.0 * n;
  double link = network_broadcast_us(l, out->n, told);
  int count = 0;
  add_gatherings(p, l, out->n, n, depth, &link, &size, &count);
  *(prompt ? &out->chunk_us : &out->token_us) = us;
  *(prompt ? &out->chunk_link_us : &out->token_link_us) = link;
  *(prompt ? &out->chunk_bytes : &out->token_bytes) = size;
  *(prompt ? &out->chunk_gathers : &out->token_gathers) = count;
  out->memory = out->work += plan_arena_used(p);
  return device_check(engine_device(e), err);
}

int rehearse_rows(const char *path, const struct engine_options *options, int n, int depth, bool prompt,
                  const network *link, rehearsal *out, error *err) {
  struct engine_options o = *options;
  engine *e;
  o.rehearsed.rank = n - 1;
  o.rehearsed.n = n;
  o.split = WEFT_SPLIT_ROW;
  o.n_shares = 0;
  *out = (rehearsal){.n = n};
  ranks_rehearse(n - 1);
  int r = engine_open(path, &o, &e, err);
  if (!r) {
    out->chunk = (int)min_i64(engine_chunk(e), engine_n_ctx(e) - depth);
    r = engine_check_predicts(e, err) || rehearse_part(e, false, depth, link, out, err) ||
        (prompt && rehearse_part(e, true, depth, link, out, err));
    uint64_t read = weights_rehearsed_bytes(&e->now->w[0]), states = bytes_of_states(e, engine_n_ctx(e));
    if (!add_u64(out->memory, read, &out->memory) || !add_u64(out->memory, states, &out->memory))
      out->memory = UINT64_MAX;
    engine_close(e);
  }
  ranks_rehearse(-1);
  return r ? -1 : 0;
}

// --- layers ----------------------------------------------------------------------------------------------------------

int rehearse_context(const char *path, const struct engine_options *options, int *n_ctx, error *err) {
  gguf *file = NULL;
  model *m = NULL;
  int r = gguf_open_head(path, &file, err) || model_open(file, options->kv, &m, err) ? -1 : 0;
  if (!r && model_n_ctx_max(m)) *n_ctx = (int)min_i64(*n_ctx, model_n_ctx_max(m));
  model_close(m);
  gguf_close(file);
  return r;
}

// Chunks of a prompt need the blocks' matrices, and not the head.
static double busiest_part(const gguf *file, const int *to, int n) {
  double of[MOST_RANKS] = {0}, most = 0, all = 0;
  for (size_t i = 0; i < gguf_n_tensors(file); i++) {
    const gguf_tensor *t = gguf_tensor_at(file, i);
    int block = layer_split_layer_of(t), at = 0;
    while (at < n - 1 && block >= to[at]) at++;
    if (block >= 0) of[at] += (double)t->nbytes;
  }
  for (int i = 0; i < n; i++) { all += of[i]; most = of[i] > most ? of[i] : most; }
  return all > 0 ? most / all : 1;
}

int rehearse_layers(const char *path, const struct engine_options *options, int n, rehearsed_layers *out, error *err) {
  gguf *file = NULL;
  model *m = NULL;
  int r = gguf_open_head(path, &file, err) || model_open(file, options->kv, &m, err) ? -1 : 0;
  if (!r) {
    double equal[MOST_RANKS];
    int to[MOST_RANKS];
    for (int i = 0; i < n; i++) equal[i] = 1;
    layer_split_deal(file, m, equal, n, options->n_ctx, to, out->sizes);
    out->token_bytes = (double)model_n_stream(m) * sizeof(float);
    out->busiest = busiest_part(file, to, n);
  }
  model_close(m);
  gguf_close(file);
  return r;
}
