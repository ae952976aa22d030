// The kernels of a plan: taken from the cache, or made by codegen (as a tuning says where there is one) and compiled by
// all threads. See plan_impl.h.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "device/cache.h"
#include "device/cuda.h"
#include "device/metal.h"
#include "device/nv.h"
#include "device/opencl.h"
#include "device/plan_impl.h"
#include "device/ref.h"
#include "device/tuning.h"

enum { N_EXPRS = 9 };            // in front of the variables in a cache entry

// --- cache entries: "name\n", IR text of SINK(tiles, bytes, flops, numbers of work-groups and their sizes, vars...),
// NUL; packed code
// ----------------------------------------------------------------------------------------------

void plan_machine(const device *d, str *line) {
  const target *t = &d->target;
  str_addf(line, "layouts %d %s MV=%d,%d,%d NOOPT=%d ahead %d,%d %d,%d cache %lld tile %lld\n", t->has_streams, d->key,
           env_int(ENV_MV_THREADS_PER_ROW), env_int(ENV_MV_BLOCKSIZE), env_int(ENV_MV_ROWS_PER_THREAD),
           env_int(ENV_NOOPT), t->ahead.kib, t->ahead.hint, t->ahead_many.kib, t->ahead_many.hint,
           (long long)t->cache_bytes, (long long)t->tile_bytes);
}

void plan_key(const device *d, uop *ast, str *key) {
  plan_machine(d, key);
  uop_print(key, &ast, 1);
}

// opts: those of a tuning; NULL: the heuristic's.
static void cache_key(const device *d, uop *ast, bool filling, const char *opts, str *key) {
  if (filling) str_add(key, "filling ");
  plan_key(d, ast, key);
  if (opts) str_addf(key, "opts %s\n", opts);
}

static void pack_entry(const device_kernel *k, str *out) {
  const program *p = k->p;
  uop *src[N_EXPRS + MAX_VARS] = {p->tiles, p->bytes, p->flops}, *one = uop_idx(p->graph, 1);
  for (int i = 0; i < 3; i++) {
    src[3 + i] = p->global[i] ? p->global[i] : one;
    src[6 + i] = p->local[i] ? p->local[i] : one;
  }
  for (int i = 0; i < p->n_vars; i++) src[N_EXPRS + i] = p->vars[i];
  uop *sink = uop_new(p->graph, OP_SINK, DT_VOID, 1, src, N_EXPRS + (size_t)p->n_vars, (uarg){0});
  str_addf(out, "%s\n", p->name);
  uop_print(out, &sink, 1);
  str_addc(out, 0);
  str_addn(out, k->packed.at, k->packed.n);
}

static void put_entry(device *d, const str *key, const device_kernel *k) {
  str value = {0};
  pack_entry(k, &value);
  cache_put(d->cache, key->at, key->n, value.at, value.n);
  str_free(&value);
}

void plan_remember(device *d, uop *ast, const char *opts, const device_kernel *k) {
  str key = {0};
  if (!d->cache || !k->packed.n) return;
  cache_key(d, ast, false, opts, &key);
  put_entry(d, &key, k);
  str_free(&key);
}

static bool unpack_entry(const bytes *b, device_kernel *k) {
  const char *text = (const char *)b->at, *line = memchr(text, '\n', b->n);
  if (!line) return false;
  const char *end = memchr(line, 0, b->n - (size_t)(line - text));
  program *p = xcalloc(1, sizeof *p);
  error e = {0};
  p->graph = graph_new(NULL);
  p->mem = graph_arena(p->graph);
  uop *sink = end ? uop_parse(p->graph, line + 1, (size_t)(end - line - 1), &e) : NULL;
  if (!sink || sink->op != OP_SINK || sink->nsrc < N_EXPRS || sink->nsrc > N_EXPRS + MAX_VARS ||
      sscanf(text, "%95s", p->name) != 1) {
    program_free(p);
    return false;
  }
  p->tiles = sink->src[0];
  p->bytes = sink->src[1];
  p->flops = sink->src[2];
  for (int i = 0; i < 3; i++) { p->global[i] = sink->src[3 + i]; p->local[i] = sink->src[6 + i]; }
  p->n_vars = (int)sink->nsrc - N_EXPRS;
  p->vars = ARENA_ARRAY(p->mem, uop *, sink->nsrc);
  for (int i = 0; i < p->n_vars; i++) p->vars[i] = sink->src[N_EXPRS + i];
  const char *code = end + 1;
  size_t n = b->n - (size_t)(code - text);
  k->packed = (bytes){memcpy(xmalloc(n), code, n), n};
  k->p = p;
  return true;
}

// --- compiling ------------------------------------------------------------------------------------------------------

typedef struct job { uop *ast; device_kernel *k; error err; bool failed, tuned; tuning t; double codegen_s; } job;
typedef struct jobs { device *d; graph *g; job *at; int n, next, done; bool filling; const plan_options *o; } jobs;

// What a tuning makes of the kernel; NULL where it must not be used: somebody may have written it into the cache.
static program *tuned_program(const device *d, graph *g, uop *ast, const tuning *t, struct recorder *r) {
  if (!search_allows(g, ast, &d->target, t->opts, t->n, NULL)) return NULL;
  bool doubtful = d->target.has_local;
  return codegen(g, ast, &d->target,
                 &(codegen_options){.opts = t->opts, .n_opts = t->n, .doubtful = doubtful, .record = r});
}

static program *make_program(const device *d, graph *g, uop *ast, const tuning *t, struct recorder *r) {
  program *p = t ? tuned_program(d, g, ast, t, r) : NULL;
  return p ? p : codegen(g, ast, &d->target, &(codegen_options){.noopt = d->target.keeps_math, .record = r});
}

program *plan_program(const device *d, graph *g, uop *ast, struct recorder *r, tuning *t, bool *searched) {
  *searched = tuning_get(d, ast, t);
  return make_program(d, g, ast, *searched && t->better ? t : NULL, r);
}

static void compile_one(jobs *j, job *one) {
  double start = now_s();
  one->k->p = j->filling ? codegen(j->g, one->ast, &j->d->target, &(codegen_options){.filling = true})
                         : make_program(j->d, j->g, one->ast, one->tuned ? &one->t : NULL, NULL);
  if (one->k->p->n_vars > MAX_VARS) die("a kernel with more than %d variables", MAX_VARS);
  one->codegen_s = now_s() - start;
  one->failed = j->d->compile(j->d, one->k, &one->err) != 0;
}

static void compile_some(void *ctx, int thread, int n_threads) {
  (void)n_threads;
  jobs *j = ctx;
  for (int i; (i = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED)) < j->n;) {
    compile_one(j, &j->at[i]);
    int done = __atomic_add_fetch(&j->done, 1, __ATOMIC_RELAXED);
    if (!thread && j->o->progress) j->o->progress(j->o->ctx, (double)done / j->n);
  }
}

static int count_buffers(uop *ast) {
  int n = 0;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++) if (l.at[i]->op == OP_PARAM && l.at[i]->a >= n) n = (int)l.at[i]->a + 1;
  arena_free(a);
  return n;
}

// One that cannot be used is as if the cache had not had it.
static bool is_taken(device *d, uop *ast, device_kernel *k) {
  if (!d->run->take || d->run->take(d, k, count_buffers(ast))) return true;
  plan_free_kernels(k, 1);
  *k = (device_kernel){0};
  return false;
}

int plan_compile(device *d, graph *g, uop **asts, device_kernel *kernels, int n, bool filling, const plan_options *o,
                 plan_stats *stats, error *err) {
  jobs j = {.d = d, .g = g, .at = xcalloc((size_t)n, sizeof *j.at), .filling = filling, .o = o};
  str *keys = xcalloc((size_t)n, sizeof *keys);
  double start = now_s();
  for (int i = 0; i < n; i++) {
    bytes hit = {0};
    tuning t = {0};
    bool tuned = !filling && tuning_get(d, asts[i], &t) && t.better;
    stats->tuned += tuned;
    if (d->cache) {
      str opts = {0};
      if (tuned) opts_print(&opts, t.opts, t.n);
      cache_key(d, asts[i], filling, tuned ? str_c(&opts) : NULL, &keys[i]);
      str_free(&opts);
      if (debug_level() < 4 && cache_get(d->cache, keys[i].at, keys[i].n, &hit) && unpack_entry(&hit, &kernels[i]) &&
          is_taken(d, asts[i], &kernels[i])) {
        bytes_free(&hit);
        continue;
      }
      bytes_free(&hit);
    }
    if (!j.n && d->prepare) d->prepare(d);
    j.at[j.n++] = (job){.ast = asts[i], .k = &kernels[i], .tuned = tuned, .t = t};
  }
  if (j.n) team_run(d->team, compile_some, &j);
  int r = 0, workers = (int)min_i64(j.n, d->n_threads);
  for (int i = 0; i < j.n; i++) {
    stats->codegen_ms += j.at[i].codegen_s * 1e3 / workers;
    if (j.at[i].failed) r = error_set(err, "kernel %s: %s", j.at[i].k->p->name, j.at[i].err.text);
    size_t index = (size_t)(j.at[i].k - kernels);
    if (r || !d->cache || !j.at[i].k->packed.n) continue;
    put_entry(d, &keys[index], j.at[i].k);
  }
  if (j.n && d->cache) cache_flush(d->cache);
  stats->compiled += j.n;
  if (j.n) stats->compile_ms += (now_s() - start) * 1e3;
  for (int i = 0; i < n; i++) str_free(&keys[i]);
  free(keys);
  free(j.at);
  return r;
}

void plan_free_kernels(device_kernel *kernels, int n) {
  for (int i = 0; i < n; i++) {
    program_free(kernels[i].p);
    bytes_free(&kernels[i].packed);
    if (kernels[i].ref) ref_free(kernels[i].ref);
    if (kernels[i].cl) cl_code_free(kernels[i].cl);
    if (kernels[i].cuda) cuda_code_free(kernels[i].cuda);
    if (kernels[i].nv) nv_code_free(kernels[i].nv);
    if (kernels[i].metal) metal_code_free(kernels[i].metal);
    if (kernels[i].library) dlclose(kernels[i].library);
  }
}
