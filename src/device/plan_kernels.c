// The kernels of a plan: taken from the cache, or generated (with the OptOps of a tuning if there is one) and compiled
// on all threads. See plan_impl.h.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "base/attempt.h"
#include "base/env.h"
#include "device/cache.h"
#include "device/entry_kinds.h"
#include "device/keeper.h"
#include "device/plan_impl.h"
#include "device/ref.h"
#include "device/tuning.h"
#include "graph/verify.h"

enum { N_EXPRS = 9 };            // before the variables in a cache entry
enum { MOST_BUFFERS = 4096 };    // of a kernel given as text

// --- cache entries ---------------------------------------------------------------------------------------------------
//
// "name\n", IR text of SINK(tiles, bytes, flops, numbers of work-groups and their sizes, vars...), NUL; packed code.

void plan_machine(const device *d, str *line) {
  const target *t = &d->target;
  str_addf(line, "layouts %d %s MV=%d,%d,%d NOOPT=%d ahead %d,%d %d,%d cache %lld tile %lld\n", t->has_streams, d->key,
           env_int(ENV_MV_THREADS_PER_ROW), env_int(ENV_MV_BLOCKSIZE), env_int(ENV_MV_ROWS_PER_THREAD),
           env_int(ENV_NOOPT), t->distance.kib, t->distance.hint, t->distance_of_tile.kib, t->distance_of_tile.hint,
           (long long)t->cache_bytes, (long long)t->tile_bytes);
}

void plan_key(const device *d, uop *ast, str *key) {
  plan_machine(d, key);
  uop_print(key, &ast, 1);
}

static void end_key(const device *d, const char *opts, str *key) {
  if (d->compiler[0]) str_addf(key, "compiler %s\n", d->compiler);
  if (opts) str_addf(key, "opts %s\n", opts);
}

// opts: of a tuning; NULL: the heuristic's.
static void cache_key(const device *d, uop *ast, bool filling, const char *opts, str *key) {
  entry_key_begin(filling ? ENTRY_FILLING : ENTRY_KERNEL, key);
  plan_key(d, ast, key);
  end_key(d, opts, key);
}

typedef struct packing { const device_kernel *k; str out; } packing;

static void pack_entry(void *ctx) {
  packing *to = ctx;
  const device_kernel *k = to->k;
  const program *p = k->p;
  str *out = &to->out;
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

static int put_entry(device *d, const str *key, const device_kernel *k, error *err) {
  packing w = {.k = k};
  if (cache_keeper(d->cache)) return 0;                            // the keeper made it and stores it
  int status = attempt(ATTEMPT_LEAVES, pack_entry, &w, err);       // its nodes belong to the program
  if (!status) cache_put(d->cache, key->at, key->n, w.out.at, w.out.n);
  str_free(&w.out);
  return status;
}

// Asks the keeper, if there is one, to make the kernel, since it accepts no code from this process.
static bool ask_keeper(device *d, const str *ir, const char *opts, bool filling, bytes *entry, double *codegen_s) {
  const struct keeper_kernel of = {d, ir, opts, filling};
  keeper *k = cache_keeper(d->cache);
  return k && keeper_make_kernel(k, &of, entry, codegen_s);
}

void plan_remember(device *d, uop *ast, const char *opts, const device_kernel *k) {
  str key = {0};
  if (!d->cache || !k->packed.n) return;
  if (cache_keeper(d->cache)) {
    bytes entry = {0};
    uop_print(&key, &ast, 1);
    ask_keeper(d, &key, opts, false, &entry, &(double){0});
    bytes_free(&entry);
    str_free(&key);
    return;
  }
  cache_key(d, ast, false, opts, &key);
  put_entry(d, &key, k, NULL);
  str_free(&key);
}

static bool read_entry(const bytes *b, device_kernel *k) {
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

struct reading { const bytes *b; device_kernel k; bool read; };

static void try_entry(void *ctx) {
  struct reading *r = ctx;
  r->read = read_entry(r->b, &r->k);
}

// An entry that breaks an invariant counts as a miss.
static bool unpack_entry(const bytes *b, device_kernel *k) {
  struct reading r = {.b = b};
  if (attempt(ATTEMPT_OWNS, try_entry, &r, NULL) || !r.read) return false;
  k->p = r.k.p;
  k->packed = r.k.packed;
  return true;
}

// --- compiling ------------------------------------------------------------------------------------------------------

// ir: for the keeper; empty if there is none
typedef struct job {
  uop *ast;
  str ir;
  device_kernel *k;
  error err;
  bool failed, tuned;
  tuning t;
  double codegen_s;
} job;
typedef struct jobs {
  device *d;
  graph *g;
  job *at;
  int n, next, done;
  bool filling, stopped;         // stopped: plan_options.stops returned true, and the rest is not made
  const plan_options *o;
} jobs;

// The kernel with the OptOps of a tuning; NULL if it must not be used, since another process may have written it into
// the cache.
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

typedef struct making { const jobs *j; job *one; program *p; } making;

static void make_one(void *ctx) {
  making *m = ctx;
  const jobs *j = m->j;
  job *one = m->one;
  m->p = j->filling ? codegen(j->g, one->ast, &j->d->target, &(codegen_options){.filling = true})
                    : make_program(j->d, j->g, one->ast, one->tuned ? &one->t : NULL, NULL);
  die_if(m->p->n_vars > MAX_VARS, "a kernel with more than %d variables", MAX_VARS);
}

struct compiling { device *d; device_kernel *k; error *err; int status; };

static void compile_kernel(void *ctx) {
  struct compiling *c = ctx;
  c->status = c->d->compile(c->d, c->k, c->err);
}

int plan_compile_kernel(device *d, device_kernel *k, error *err) {
  struct compiling c = {d, k, err, -1};
  return attempt(ATTEMPT_LEAVES, compile_kernel, &c, err) ? -1 : c.status;
}

static bool kept_one(const jobs *j, job *one) {
  bytes entry = {0};
  str opts = {0};
  if (!one->ir.n) return false;
  if (one->tuned) opts_print(&opts, one->t.opts, one->t.n);
  bool made = ask_keeper(j->d, &one->ir, one->tuned ? str_c(&opts) : NULL, j->filling, &entry, &one->codegen_s) &&
              unpack_entry(&entry, one->k);
  bytes_free(&entry);
  str_free(&opts);
  return made;
}

// Runs on a thread of the team; an error of one kernel does not stop the others.
static void compile_one(jobs *j, job *one) {
  making m = {.j = j, .one = one};
  if (kept_one(j, one)) return;
  double start = now_s();
  one->failed = attempt(ATTEMPT_OWNS, make_one, &m, &one->err) != 0;
  one->codegen_s = now_s() - start;
  if (one->failed) return;
  one->k->p = m.p;
  one->failed = plan_compile_kernel(j->d, one->k, &one->err) != 0;
}

static void compile_some(void *ctx, int thread, int n_threads) {
  (void)n_threads;
  jobs *j = ctx;
  for (int i; (i = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED)) < j->n;) {
    if (!thread && j->o->stops && j->o->stops(j->o->ctx)) __atomic_store_n(&j->stopped, true, __ATOMIC_RELAXED);
    if (__atomic_load_n(&j->stopped, __ATOMIC_RELAXED)) return;
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

// An unusable kernel counts as a miss.
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
    bool asks = d->cache && cache_keeper(d->cache) && debug_level() < 4;
    if (!j.n && d->prepare && !asks) d->prepare(d);
    job *one = &j.at[j.n++];
    *one = (job){.ast = asts[i], .k = &kernels[i], .tuned = tuned, .t = t};
    if (asks) uop_print(&one->ir, &asts[i], 1);
  }
  if (j.n) team_run(d->team, compile_some, &j);
  int r = j.stopped ? error_set(err, "loading was stopped") : 0, workers = (int)min_i64(j.n, d->n_threads);
  for (int i = 0; i < j.n; i++) {
    stats->codegen_ms += j.at[i].codegen_s * 1e3 / workers;
    const program *made = j.at[i].k->p;
    if (j.at[i].failed) r = error_set(err, "kernel %s: %s", made ? made->name : "?", j.at[i].err.text);
    size_t index = (size_t)(j.at[i].k - kernels);
    if (r || !d->cache || !j.at[i].k->packed.n) continue;
    r = put_entry(d, &keys[index], j.at[i].k, err);
  }
  if (j.n && d->cache) cache_flush(d->cache);
  stats->compiled += j.n;
  if (j.n) stats->compile_ms += (now_s() - start) * 1e3;
  for (int i = 0; i < n; i++) str_free(&keys[i]);
  for (int i = 0; i < j.n; i++) str_free(&j.at[i].ir);
  free(keys);
  free(j.at);
  return r;
}

// --- for the keeper: an entry from the text of a kernel --------------------------------------------------------------

typedef struct from_text {
  device *d;
  const struct plan_text *of;
  graph *g;
  device_kernel k;
  str key, entry;
  const char *why;                       // why it was not made
} from_text;

// Are bound ranges few enough for the passes (opt.h)?
static bool binds_well(const uop *u) {
  int from = uop_first_range(u);
  bool sound = from >= 0 && (size_t)from <= u->nsrc && ((size_t)from == u->nsrc || u->nsrc <= MOST_BOUND);
  for (size_t k = sound ? (size_t)from : u->nsrc; k < u->nsrc; k++)
    sound = sound && u->src[k]->op == OP_RANGE && !uop_is_among(u->src[k], u->src + from, (int)k - from);
  return sound;
}

// Does the kernel have the form of a schedule's? Loops are the output's or sums'; in a packing kernel (layout_filling)
// threads may share the first loop, and all STOREs have equal loops.
static bool is_scheduled(const uop *ast, const uop *u, bool filling) {
  const uop *first = ast->src[0];
  if (u->op == OP_RANGE && u->b != AXIS_LOOP)
    return filling ? u->b == AXIS_GLOBAL && first->nsrc > 2 && u == first->src[2] : u->b == AXIS_REDUCE;
  if (!filling || u->op != OP_STORE) return true;
  return u->nsrc == first->nsrc && !memcmp(u->src + 2, first->src + 2, (u->nsrc - 2) * sizeof *u->src);
}

// Checks what the verifier assumes, since no program code violates it.
static bool is_well_formed(uop *ast, bool filling) {
  int n_vars = 0;
  bool sound = true;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  for (size_t i = 0; i < l.n; i++) {
    const uop *u = l.at[i];
    if (u->op == OP_PARAM) sound = sound && u->a >= 0 && u->a < MOST_BUFFERS && u->b >= 0;
    // a range of one step is not allowed
    if (u->op == OP_RANGE && u->src[0]->op == OP_CONST) sound = sound && u->src[0]->a > 1;
    sound = sound && binds_well(u) && is_scheduled(ast, u, filling);
    n_vars += u->op == OP_VAR;
  }
  arena_free(a);
  return sound && n_vars <= MAX_VARS;
}

static bool is_kernel(graph *g, uop *ast, bool filling, str *why) {
  bool form = ast->op == OP_SINK && ast->nsrc && (filling || ast->nsrc == 1);
  for (unsigned i = 0; form && i < ast->nsrc; i++) form = ast->src[i]->op == OP_STORE;
  return form && is_well_formed(ast, filling) && verify_graph_ok(g, ast, STAGE_KERNEL, why);
}

// The key contains the text itself, so the result does not depend on its author.
static void make_from_text(void *ctx) {
  from_text *f = ctx;
  const struct plan_text *of = f->of;
  error e = {0};
  str why = {0};
  tuning t = {0};
  f->g = graph_new(NULL);
  uop *ast = uop_parse(f->g, of->ir, of->n, &e);
  f->why = !ast || !is_kernel(f->g, ast, of->filling, &why)           ? "not the IR of a kernel"
         : of->opts && !opts_parse(of->opts, t.opts, MOST_OPTS, &t.n) ? "not a list of OptOps"
                                                                      : NULL;
  str_free(&why);
  if (f->why) return;
  entry_key_begin(of->filling ? ENTRY_FILLING : ENTRY_KERNEL, &f->key);
  plan_machine(f->d, &f->key);
  str_addn(&f->key, of->ir, of->n);
  end_key(f->d, of->opts, &f->key);
  f->k.p = of->filling ? codegen(f->g, ast, &f->d->target, &(codegen_options){.filling = true})
                       : make_program(f->d, f->g, ast, of->opts ? &t : NULL, NULL);
}

int plan_make_entry(device *d, const struct plan_text *of, str *key, str *entry, double *codegen_s, error *err) {
  from_text f = {.d = d, .of = of};
  double start = now_s();
  if (attempt(ATTEMPT_OWNS, make_from_text, &f, err)) return -1;
  *codegen_s = now_s() - start;
  packing w = {.k = &f.k};
  int status = f.why ? error_set(err, "%s", f.why) : plan_compile_kernel(d, &f.k, err);
  if (!status && !f.k.packed.n) status = error_set(err, "no code that could be kept");
  if (!status) status = attempt(ATTEMPT_LEAVES, pack_entry, &w, err);      // its nodes belong to the program
  *key = f.key;
  *entry = w.out;
  plan_free_kernels(&f.k, 1);
  graph_free(f.g);
  return status;
}

void plan_free_kernels(device_kernel *kernels, int n) {
  for (int i = 0; i < n; i++) {
    program_free(kernels[i].p);
    bytes_free(&kernels[i].packed);
    if (kernels[i].ref) ref_free(kernels[i].ref);
    if (kernels[i].remote) kernels[i].remote->unload(kernels[i].remote);
    if (kernels[i].library) dlclose(kernels[i].library);
  }
}
