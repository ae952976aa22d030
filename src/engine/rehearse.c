// Estimates models on machines that are not present: see rehearse.h.
#include "engine/rehearse.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "engine/engine_impl.h"

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
  while (*x && tolower((unsigned char)*x) == tolower((unsigned char)*y)) { x++; y++; }
  return !*x && !*y;
}

int network_parse(const char *text, network *out, error *err) {
  str names = {0};
  int used = 0;
  for (size_t i = 0; i < COUNT(known); i++) {
    if (same_word(text, known[i].name)) { *out = known[i].is; str_free(&names); return 0; }
    str_addf(&names, "%s%s", i ? ", " : "", known[i].name);
  }
  bool given = sscanf(text, "%lf:%lf%n", &out->latency_us, &out->gbit_s, &used) == 2 && !text[used] &&
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

// The median time of a few runs of a plan; a slow plan runs once.
static double time_runs(engine *e, plan *p, int32_t *ids, int n, int pos) {
  double us[MOST_RUNS], began = now_s();
  uint64_t seed = 1;
  int runs = 0;
  const plan_var vars[] = {{"n", n}, {"pos", pos}};
  for (int i = -WARM_UP; i < MOST_RUNS && (runs < LEAST_RUNS || now_s() - began < RUNS_S); i++) {
    draw_ids(e, ids, n, &seed);
    double start = now_s();
    plan_run(p, vars, COUNT(vars));
    double took = now_s() - start;
    if (i < 0 && took < LONG_S) continue;
    us[runs++] = took * 1e6;
    if (took >= LONG_S) break;
  }
  return median(us, runs);
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
  int n = prompt ? engine_chunk(e) : 1;
  double us = time_runs(e, p, ids, n, depth), size = 0;
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
  *out = (rehearsal){.n = n};
  ranks_rehearse(n - 1);
  int r = engine_open(path, &o, &e, err);
  if (!r) {
    out->chunk = engine_chunk(e);
    r = rehearse_part(e, false, depth, link, out, err) || (prompt && rehearse_part(e, true, depth, link, out, err));
    uint64_t read = weights_rehearsed_bytes(&e->now->w[0]), states = bytes_of_states(e, engine_n_ctx(e));
    if (!add_u64(out->memory, read, &out->memory) || !add_u64(out->memory, states, &out->memory))
      out->memory = UINT64_MAX;
    engine_close(e);
  }
  ranks_rehearse(-1);
  return r ? -1 : 0;
}

// --- layers ----------------------------------------------------------------------------------------------------------

// Assigns layers to machines with at most `most` bytes each; every machine gets at least one. false: some layers are
// left.
static bool deal_layers(const gguf *file, const model *m, int n, int64_t positions, uint64_t most, int *to,
                        uint64_t *sizes) {
  int from = 0, all = model_n_layer(m);
  for (int i = 0; i < n; i++) {
    to[i] = from;
    sizes[i] = 0;
    for (int end = from + 1; end <= all - (n - 1 - i); end++) {
      uint64_t size = layer_split_bytes(file, m, from, end, positions);
      if (size > most) break;
      to[i] = end;
      sizes[i] = size;
    }
    from = to[i];
  }
  return from == all;
}

int rehearse_layers(const char *path, const struct engine_options *options, int n, int *to, uint64_t *sizes,
                    double *token_bytes, error *err) {
  gguf *file = NULL;
  model *m = NULL;
  int r = gguf_open_head(path, &file, err) || model_open(file, options->kv, &m, err) ? -1 : 0;
  if (!r) {
    uint64_t low = 0, high = layer_split_bytes(file, m, 0, model_n_layer(m), options->n_ctx);
    while (low < high) {
      uint64_t middle = low + (high - low) / 2;
      if (deal_layers(file, m, n, options->n_ctx, middle, to, sizes)) high = middle;
      else low = middle + 1;
    }
    deal_layers(file, m, n, options->n_ctx, high, to, sizes);
    *token_bytes = (double)model_n_stream(m) * sizeof(float);
  }
  model_close(m);
  gguf_close(file);
  return r;
}
