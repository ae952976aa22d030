// Plans: capture and replay. Building compiles each different kernel once (many layers share one), all threads taking part, and gives
// every step its memory; running sets the variables and leaves the rest to the device's runtime (host.c, opencl_plan.c, cuda_plan.c).
#define _GNU_SOURCE
#include "device/device.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "device/cache.h"
#include "device/cuda.h"
#include "device/opencl.h"
#include "device/plan_impl.h"
#include "device/ref.h"
#include "device/team.h"
#include "device/tuning.h"

enum { N_EXPRS = 9 /* in front of the variables in a cache entry */, ARENA_ALIGN = 4096 };

// --- cache entries: "name\n", IR text of SINK(tiles, bytes, flops, numbers of work-groups and their sizes, vars...), NUL; for each stream "param bytes fills\n" and each of its fills, NUL;
// an empty line; packed code ----------------------------------------------------------------------------------------------

void plan_machine(const device *d, str *line) {
  str_addf(line, "streams %d %s MV=%d,%d,%d NOOPT=%d ahead %d,%d cache %lld\n", d->target.has_streams ? d->target.stream_growth : -1, d->key, env_int(ENV_MV_THREADS_PER_ROW), env_int(ENV_MV_BLOCKSIZE), env_int(ENV_MV_ROWS_PER_THREAD), env_int(ENV_NOOPT),
    d->target.ahead.kib, d->target.ahead.hint, (long long)d->target.cache_bytes);
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
  for (int i = 0; i < p->n_streams; i++) {
    const program_stream *s = &p->streams[i];
    str_addf(out, "%d %lld %d\n", s->param, (long long)s->bytes, s->n_fills);
    for (int j = 0; j < s->n_fills; j++) str_addn(out, s->fill[j], strlen(s->fill[j]) + 1);
  }
  str_addc(out, '\n');
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

// Reads the streams of an entry; NULL if they are damaged, otherwise what follows them.
static const char *unpack_streams(const char *at, const char *end, program *p) {
  for (; at < end && *at != '\n'; p->n_streams++) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    program_stream *s = &p->streams[p->n_streams];
    long long n;
    if (!line || p->n_streams == (int)COUNT(p->streams) || sscanf(at, "%d %lld %d", &s->param, &n, &s->n_fills) != 3 || s->n_fills < 0 || s->n_fills > (int)COUNT(s->fill)) return NULL;
    s->bytes = n;
    at = line + 1;
    for (int j = 0; j < s->n_fills; j++) {
      const char *nul = memchr(at, 0, (size_t)(end - at));
      if (!nul) return NULL;
      s->fill[j] = memcpy(arena_alloc(p->mem, (size_t)(nul + 1 - at)), at, (size_t)(nul + 1 - at));
      at = nul + 1;
    }
  }
  return at < end ? at + 1 : NULL;
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
  if (!sink || sink->op != OP_SINK || sink->nsrc < N_EXPRS || sink->nsrc > N_EXPRS + MAX_VARS || sscanf(text, "%95s", p->name) != 1) { program_free(p); return false; }
  p->tiles = sink->src[0];
  p->bytes = sink->src[1];
  p->flops = sink->src[2];
  for (int i = 0; i < 3; i++) { p->global[i] = sink->src[3 + i]; p->local[i] = sink->src[6 + i]; }
  p->n_vars = (int)sink->nsrc - N_EXPRS;
  p->vars = ARENA_ARRAY(p->mem, uop *, sink->nsrc);
  for (int i = 0; i < p->n_vars; i++) p->vars[i] = sink->src[N_EXPRS + i];
  const char *code = unpack_streams(end + 1, text + b->n, p);
  if (!code) { program_free(p); return false; }
  size_t n = b->n - (size_t)(code - text);
  k->packed = (bytes){memcpy(xmalloc(n), code, n), n};
  k->p = p;
  return true;
}

// --- building -------------------------------------------------------------------------------------------------------

typedef struct job { uop *ast; device_kernel *k; error err; bool failed, tuned; tuning t; double codegen_s; } job;
typedef struct jobs { device *d; graph *g; job *at; int n, next, done; bool filling; const plan_options *o; } jobs;

bool plan_same_layouts(const program *a, const program *b) {
  bool same = a->n_streams == b->n_streams;
  for (int i = 0; same && i < a->n_streams; i++) same = a->streams[i].param == b->streams[i].param && plan_layout(&a->streams[i]) == plan_layout(&b->streams[i]);
  return same;
}

// What a tuning makes of the kernel; NULL where it must not be used: somebody may have written it into the cache.
static program *tuned_program(const device *d, graph *g, uop *ast, const tuning *t, struct recorder *r) {
  if (!search_allows(g, ast, &d->target, t->opts, t->n, NULL)) return NULL;
  program *p = codegen(g, ast, &d->target, &(codegen_options){.opts = t->opts, .n_opts = t->n, .record = r});
  if (!p->n_streams) return p;
  program *its = codegen(g, ast, &d->target, NULL);
  bool same = plan_same_layouts(p, its);
  program_free(its);
  if (!same) { program_free(p); p = NULL; }
  return p;
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
  one->k->p = j->filling ? codegen_filling(j->g, one->ast, &j->d->target) : make_program(j->d, j->g, one->ast, one->tuned ? &one->t : NULL, NULL);
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
static bool taken(device *d, uop *ast, device_kernel *k) {
  if (!d->run->take || d->run->take(d, k, count_buffers(ast))) return true;
  plan_free_kernels(k, 1);
  *k = (device_kernel){0};
  return false;
}

static int compile_all(device *d, graph *g, uop **asts, device_kernel *kernels, int n, bool filling, const plan_options *o, plan_stats *stats, error *err) {
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
      if (debug_level() < 4 && cache_get(d->cache, keys[i].at, keys[i].n, &hit) && unpack_entry(&hit, &kernels[i]) && taken(d, asts[i], &kernels[i])) { bytes_free(&hit); continue; }
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
    if (kernels[i].library) dlclose(kernels[i].library);
  }
}

// --- streams: weights laid out for their kernels, filled once ---------------------------------------------------------------

enum { FILL_PIECE = 32 << 20 };                  // bytes of a stream that are filled before the file's pages are given back

typedef struct filling { const program_stream *s; unsigned char *raw, *at; uint64_t raw_bytes; int64_t id; int kernel[COUNT(((program_stream *)NULL)->fill)]; } filling;

uint64_t plan_layout(const program_stream *s) {
  uint64_t h = (uint64_t)s->bytes;
  for (int i = 0; i < s->n_fills; i++) h = hash_bytes(s->fill[i], strlen(s->fill[i]), h);
  return h;
}

static int fill_streams(plan *p, filling *fills, size_t n, const plan_options *o, error *err) {
  graph *g = graph_new(NULL);
  map index = {0};
  VEC(uop *) asts = {0};
  error e = {0};
  const runtime *run = p->d->run;
  for (size_t i = 0; i < n; i++)
    for (int j = 0; j < fills[i].s->n_fills; j++) {
      uop *ast = uop_parse(g, fills[i].s->fill[j], strlen(fills[i].s->fill[j]), &e);
      if (!ast || ast->op != OP_SINK) die("a filling kernel that does not parse: %s", e.text);
      if (!map_has(&index, ast)) { map_put(&index, ast, (void *)(intptr_t)asts.n); vec_push(&asts, ast); }
      fills[i].kernel[j] = (int)(intptr_t)map_ptr(&index, ast);
    }
  device_kernel *kernels = xcalloc(asts.n + 1, sizeof *kernels);
  code_image *code = NULL;
  int r = compile_all(p->d, g, asts.at, kernels, (int)asts.n, true, o, &p->stats, err) || p->d->run->link(p->d, kernels, (int)asts.n, &code, err) ? -1 : 0;
  double all = 0, done = 0;
  for (size_t i = 0; i < n; i++) all += (double)fills[i].s->bytes;
  for (size_t i = 0; i < n && !r; i++) {
    int64_t pieces = fills[i].s->bytes / FILL_PIECE + 1;
    for (int64_t at = 0; at < pieces && !r; at++) {
      size_t from = (size_t)(fills[i].s->bytes / pieces * at), to = at + 1 == pieces ? (size_t)fills[i].s->bytes : (size_t)(fills[i].s->bytes / pieces * (at + 1));
      if (!fills[i].s->n_fills) r = run->lay_out(p, NULL, fills[i].at, fills[i].raw, fills[i].raw_bytes, (int64_t)from, (int64_t)to, err);
      for (int j = 0; j < fills[i].s->n_fills && !r; j++) {
        const device_kernel *k = &kernels[fills[i].kernel[j]];
        int64_t tiles = program_eval(k->p, k->p->tiles, NULL);
        r = run->lay_out(p, k, fills[i].at, fills[i].raw, fills[i].raw_bytes, tiles * at / pieces, tiles * (at + 1) / pieces, err);
      }
      done += (double)fills[i].s->bytes / (double)pieces;
      if (o->filled) o->filled(o->ctx, fills[i].id, (double)at / (double)pieces, (double)(at + 1) / (double)pieces, done / all);
    }
  }
  code_unmap(code);
  plan_free_kernels(kernels, (int)asts.n);
  free(kernels);
  vec_free(&asts);
  map_free(&index);
  graph_free(g);
  return r;
}

// Of argument `number` of a kernel; 0: it has none of that number.
uint64_t plan_bytes(uop *ast, int number) {
  uint64_t size = 0;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++) if (l.at[i]->op == OP_PARAM && l.at[i]->a == number) size = (uint64_t)l.at[i]->b * (uint64_t)dtype_size((enum dtype)l.at[i]->dt);
  arena_free(a);
  return size;
}

void plan_arguments(const sched_kernel *k, plan_argument *args) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &(uop *){k->ast}, 1);
  for (size_t i = 0; i < l.n; i++) {
    const uop *u = l.at[i];
    if (u->op == OP_PARAM) args[u->a] = (plan_argument){(uint64_t)u->b * (uint64_t)dtype_size((enum dtype)u->dt), is_weight(u), k->written[u->a]};
  }
  arena_free(a);
}

static void *own_memory(plan *p, uint64_t size, error *err) {
  void *at = p->d->run->alloc(p->d, size, PAGES_HUGE, err);
  if (at) vec_push(&p->streams, ((own_stream){at, size}));
  return at;
}

// Gives every step whose kernel reads streams their memory, and fills those that are new.
static int bind_streams(plan *p, const schedule *s, const plan_options *o, error *err) {
  VEC(filling) fills = {0};
  int r = 0;
  for (int i = 0; i < s->n_kernels && !r; i++) {
    step *t = &p->steps[i];
    for (int j = 0; j < t->k->p->n_streams && !r; j++) {
      const program_stream *w = &t->k->p->streams[j];
      int64_t id = s->kernels[i].bufs[w->param];
      bool filled = false;
      void *at = o->stream ? o->stream(o->ctx, id, plan_layout(w), w->bytes, &filled) : NULL;
      if (!at && !(at = own_memory(p, (uint64_t)w->bytes, err))) { r = -1; break; }
      if (!filled) vec_push(&fills, ((filling){.s = w, .raw = t->bufs[w->param], .raw_bytes = plan_bytes(s->kernels[i].ast, w->param), .at = at, .id = id}));
      for (int n = 0; n < p->n_threads; n++) t->bufs[n * t->n_bufs + w->param] = at;
    }
  }
  if (!r && fills.n) r = fill_streams(p, fills.at, fills.n, o, err);
  vec_free(&fills);
  return r;
}

static intptr_t temp_offset(const map *temps, int64_t id) {
  void *v;
  if (!map_get(temps, (uint64_t)id, &v)) die("an intermediate without a place");
  return (intptr_t)v;
}

int plan_build(device *d, graph *g, const schedule *s, const plan_options *o, plan **out, error *err) {
  plan *p = xcalloc(1, sizeof *p);
  p->d = d;
  p->team = o->prompt ? d->prompt_team : d->team;
  p->n_threads = team_size(p->team);
  p->flushes = o->flushes;
  p->g = g;
  p->mem = arena_new();
  map unique = {0};
  VEC(uop *) asts = {0};
  for (int i = 0; i < s->n_kernels; i++)
    if (!map_has(&unique, s->kernels[i].ast)) { map_put(&unique, s->kernels[i].ast, (void *)(intptr_t)asts.n); vec_push(&asts, s->kernels[i].ast); }
  p->stats = (plan_stats){.kernels = s->n_kernels, .dispatches = s->n_levels, .unique = (int)asts.n, .graph_ops = s->graph_ops, .arena_bytes = s->arena_bytes};
  p->kernels = xcalloc(asts.n, sizeof *p->kernels);
  p->asts = ARENA_ARRAY(p->mem, uop *, asts.n + 1);
  for (size_t i = 0; i < asts.n; i++) p->asts[i] = asts.at[i];
  int r = compile_all(d, g, asts.at, p->kernels, (int)asts.n, false, o, &p->stats, err) || d->run->link(d, p->kernels, (int)asts.n, &p->code, err) ? -1 : 0;
  // the arena that all share, then one for each thread
  int64_t shared = (int64_t)round_up((size_t)s->arena_bytes, ARENA_ALIGN), own = (int64_t)round_up((size_t)s->each_bytes, ARENA_ALIGN);
  p->stats.arena_bytes = shared + own * p->n_threads;
  if (!r && p->stats.arena_bytes) {
    p->arena_at = d->run->alloc(d, (uint64_t)p->stats.arena_bytes, PAGES_HUGE, err);
    if (!p->arena_at) r = -1;
  }
  map temps = {0};
  for (int i = 0; i < s->n_temps; i++) map_set(&temps, (uint64_t)s->temps[i].id, (void *)(intptr_t)(s->temps[i].offset + (s->temps[i].each ? shared : 0)));
  p->steps = ARENA_ARRAY(p->mem, step, s->n_kernels);
  p->parts = aligned_alloc(64, sizeof(part) * ((size_t)s->n_kernels * (size_t)p->n_threads + 1));
  if (!p->parts) die("out of memory");
  for (int i = 0; i < s->n_kernels && !r; i++) {
    const sched_kernel *k = &s->kernels[i];
    step *t = &p->steps[i];
    t->unique = (int)(intptr_t)map_ptr(&unique, k->ast);
    t->k = &p->kernels[t->unique];
    t->level = k->level;
    t->parts = &p->parts[(size_t)i * (size_t)p->n_threads];
    t->each = k->each;
    t->n_bufs = k->n_bufs;
    t->bufs = ARENA_ARRAY(p->mem, unsigned char *, k->n_bufs * p->n_threads + 1);
    t->raw = ARENA_ARRAY(p->mem, unsigned char *, k->n_bufs + 1);
    for (int b = 0; b < k->n_bufs; b++) {
      bool temp = k->bufs[b] >= TEMP_IDS;
      intptr_t at = temp ? temp_offset(&temps, k->bufs[b]) : 0;
      unsigned char *first = temp ? (unsigned char *)p->arena_at + at : o->buffer(o->ctx, k->bufs[b]);
      for (int j = 0; j < p->n_threads; j++) t->bufs[j * k->n_bufs + b] = first + (temp && at >= shared ? own * j : 0);
    }
    memcpy(t->raw, t->bufs, (size_t)k->n_bufs * sizeof *t->raw);
    if (o->role) o->role(o->ctx, s, i, t->role, sizeof t->role);
  }
  if (!r) r = bind_streams(p, s, o, err);
  if (!r && d->run->record) r = d->run->record(p, s, err);
  map_free(&temps);
  map_free(&unique);
  vec_free(&asts);
  if (r) { plan_free(p); return -1; }
  *out = p;
  return 0;
}

void plan_free(plan *p) {
  if (!p) return;
  if (p->recorded) p->d->run->forget(p);
  code_unmap(p->code);
  plan_free_kernels(p->kernels, p->stats.unique);
  for (int i = 0; p->alternatives && i < p->stats.unique; i++) { plan_free_kernels(&p->alternatives[i].k, 1); code_unmap(p->alternatives[i].code); }
  free(p->alternatives);
  for (size_t i = 0; i < p->streams.n; i++) p->d->run->release(p->d, p->streams.at[i].at, p->streams.at[i].bytes);
  vec_free(&p->streams);
  p->d->run->release(p->d, p->arena_at, (uint64_t)p->stats.arena_bytes);
  free(p->kernels);
  free(p->marks);
  free(p->parts);
  arena_free(p->mem);
  free(p);
}

plan_stats plan_get_stats(const plan *p) { return p->stats; }
struct team *plan_team(const plan *p) { return p->team; }

// --- running --------------------------------------------------------------------------------------------------------

void plan_vars(const program *q, const plan_var *vars, int n_vars, int64_t *values) {
  for (int v = 0; v < q->n_vars; v++) {
    int j = 0;
    while (j < n_vars && strcmp(vars[j].name, q->vars[v]->s)) j++;
    if (j == n_vars) die("plan: no value for variable %s", q->vars[v]->s);
    if (vars[j].value < q->vars[v]->a || vars[j].value > q->vars[v]->b) die("plan: %s = %lld is out of its bounds", vars[j].name, (long long)vars[j].value);
    values[v] = vars[j].value;
  }
}

void plan_set_vars(plan *p, const plan_var *vars, int n_vars) {
  for (int i = 0; i < p->stats.kernels; i++) {
    step *t = &p->steps[i];
    plan_vars(t->k->p, vars, n_vars, t->vars);
    t->tiles = program_eval(t->k->p, t->k->p->tiles, t->vars);
    for (int j = 0; j < p->n_threads; j++) atomic_store_explicit(&t->parts[j].next, 0, memory_order_relaxed);
  }
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
  device_note(p->d, r, &e);
}

static void run_and_print(plan *p, const plan_var *vars, int n_vars) {
  size_t n = (size_t)p->stats.kernels;
  double *us = xcalloc(2 * n + 1, sizeof *us);
  plan_times t = {.kernel_us = us, .kernel_wait_us = us + n};
  plan_run_timed(p, vars, n_vars, &t);
  for (size_t i = 0; i < n; i++) {
    const program *q = p->steps[i].k->p;
    fprintf(stderr, "%4d %-36s %-24s %9.1f us %8.2f GB/s %8.2f GFLOP/s\n", p->steps[i].level, q->name, p->steps[i].role, us[i],
            (double)program_eval(q, q->bytes, p->steps[i].vars) / us[i] / 1e3, (double)program_eval(q, q->flops, p->steps[i].vars) / us[i] / 1e3);
  }
  fprintf(stderr, "     %d kernels %61.1f us\n", p->stats.kernels, t.us);
  free(us);
}

void plan_run(plan *p, const plan_var *vars, int n_vars) {
  error e = {0};
  if (debug_level() >= 2) { run_and_print(p, vars, n_vars); return; }
  plan_set_vars(p, vars, n_vars);
  device_note(p->d, p->d->run->replay(p, &e), &e);
}

plan_kernel_info plan_kernel(const plan *p, int i, const plan_var *vars, int n_vars) {
  const step *t = &p->steps[i];
  const program *q = t->k->p;
  int64_t values[MAX_VARS];
  plan_vars(q, vars, n_vars, values);
  return (plan_kernel_info){q->name, t->role, t->level, (double)program_eval(q, q->bytes, values), (double)program_eval(q, q->flops, values)};
}

