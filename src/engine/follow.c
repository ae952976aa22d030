// The protocol between the first process and the others: see follow.h. A message has a header with the length of the
// body, then the body; both are broadcast.
#include "engine/follow.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "device/memory.h"
#include "device/ranks.h"
#include "engine/content.h"
#include "engine/plans.h"
#include "engine/rows_version.h"

enum kind {
  FOLLOW_OPEN,
  FOLLOW_CLOSE,
  FOLLOW_PLAN,
  FOLLOW_RUN,
  FOLLOW_TOUCH,
  FOLLOW_COPY,
  FOLLOW_DISCARD,
  FOLLOW_READ,
  FOLLOW_WRITE,
  FOLLOW_TOLD,
  FOLLOW_LEAVE
};
typedef struct message { int32_t kind, number; uint64_t n; } message;
// The first process's settings that determine plans.
typedef struct opening {
  char version[64], device[512], compiler[128], content[CONTENT_NAME];
  int64_t worth;
  uint64_t file_bytes;
  int64_t ctx, chunk, room, n_pages, slots;
  int32_t n_ctx, n_threads, n_prompt_threads;
  int32_t no_repack, exact, mtp, n_settings, n_adapters, n_control_vectors;
  int32_t split;
  double shares[MOST_RANKS];
  model_kv kv;
} opening;
typedef struct run_head { plan_spec spec; int32_t adapted, n_vars; uint64_t gatherings; } run_head;
typedef struct run_var { char name[16]; int64_t value; } run_var;
typedef struct place { int32_t group, from, to; } place;
typedef struct piece { void *at; size_t n; } piece;
enum { MOST_PIECES = 10 };

// One message at a time, and none while a plan runs, since its processes communicate.
static pthread_mutex_t talking = PTHREAD_MUTEX_INITIALIZER;
static VEC(engine *) engines;              // by number, equal in all processes; NULL: closed

static bool leads(void) { ranks r = ranks_here(); return r.n > 1 && !r.rank; }

static void broadcast_message(enum kind kind, int number, const str *body, bool ahead) {
  message m = {kind, number, body ? body->n : 0};
  ranks_broadcast(&m, sizeof m, ahead);
  if (m.n) ranks_broadcast((void *)(uintptr_t)body->at, body->n, ahead);
}

static void tell_others(enum kind kind, int number, const str *body) {
  pthread_mutex_lock(&talking);
  broadcast_message(kind, number, body, false);
  pthread_mutex_unlock(&talking);
}

// --- files and plans -------------------------------------------------------------------------------------------------

static int opening_of(const engine *e, opening *out, error *err) {
  opening o;
  memset(&o, 0, sizeof o);                   // compared as bytes
  if (content_sample(e->file, e->m, o.content, err)) return -1;
  snprintf(o.version, sizeof o.version, "%s", ROWS_VERSION);
  const device *d = e->layer_split.at[0].d;
  snprintf(o.device, sizeof o.device, "%s", d->key);
  snprintf(o.compiler, sizeof o.compiler, "%s", d->compiler);
  o.worth = env_int(ENV_WEFT_RANK_BYTES);
  o.file_bytes = gguf_file_bytes(e->file);
  o.ctx = e->ctx;
  o.chunk = e->chunk;
  o.room = e->room;
  o.n_pages = e->caches.n_pages;
  o.slots = e->caches.slots;
  o.n_ctx = e->n_ctx;
  o.n_threads = e->o.n_threads;
  o.n_prompt_threads = e->o.n_prompt_threads;
  o.no_repack = e->o.no_repack;
  o.exact = e->o.exact;
  o.mtp = e->o.mtp;
  o.kv = e->o.kv;
  o.split = e->o.split;
  memcpy(o.shares, e->shares, sizeof o.shares);
  *out = o;
  return 0;
}

// Appends the text options, one after the other.
static void add_files(const struct engine_options *o, str *body) {
  for (size_t i = 0; i < o->n_settings; i++) str_addn(body, o->settings[i], strlen(o->settings[i]) + 1);
  for (size_t i = 0; i < o->n_adapters; i++) {
    str_addn(body, o->adapters[i].path, strlen(o->adapters[i].path) + 1);
    str_addn(body, &o->adapters[i].scale, sizeof o->adapters[i].scale);
  }
  for (size_t i = 0; i < o->n_control_vectors; i++) {
    control_file c = o->control_vectors[i];
    str_addn(body, c.path, strlen(c.path) + 1);
    c.path = NULL;
    str_addn(body, &c, sizeof c);
  }
}

int follow_open(engine *e, error *err) {
  ranks r = ranks_here();
  if (r.n < 2) return 0;
  if (e->layer_split.n > 1 || !engine_on_cpu(e))
    return error_set(err, "%s: %d processes share a model on processors only", gguf_path(e->file), r.n);
  if (e->o.in_memory)
    return error_set(err, "%s: %d processes share a model that is a file, which each of them opens", gguf_path(e->file),
                     r.n);
  opening o;
  if (!r.rank && opening_of(e, &o, err)) return -1;
  pthread_mutex_lock(&talking);
  e->number = (int)engines.n;
  e->caches.number = e->number;
  vec_push(&engines, e);
  if (!r.rank) {
    o.n_settings = (int32_t)e->o.n_settings;
    o.n_adapters = (int32_t)e->o.n_adapters;
    o.n_control_vectors = (int32_t)e->o.n_control_vectors;
    str body = {0};
    str_addn(&body, &o, sizeof o);
    str_addn(&body, gguf_path(e->file), strlen(gguf_path(e->file)) + 1);
    add_files(&e->o, &body);
    broadcast_message(FOLLOW_OPEN, e->number, &body, false);
    str_free(&body);
  }
  pthread_mutex_unlock(&talking);
  return 0;
}

void follow_close(engine *e) {
  if (!leads() || e->number < 0) return;
  tell_others(FOLLOW_CLOSE, e->number, NULL);
  e->number = e->caches.number = -1;
}

void follow_plan(engine *e, const plan_spec *spec) {
  if (!leads() || e->number < 0) return;
  str body = {0};
  str_addn(&body, &(run_head){*spec, e->adapted, 0, 0}, sizeof(run_head));
  tell_others(FOLLOW_PLAN, e->number, &body);
  str_free(&body);
}

// --- runs ------------------------------------------------------------------------------------------------------------

// The inputs of a plan other than weights and states.
static int inputs(engine *e, const plan_spec *spec, piece *out) {
  int n = 0;
  size_t tokens = (size_t)spec->tokens, room = (size_t)min_i64(spec->tokens, e->room);
  out[n++] = (piece){e->ids, tokens * sizeof *e->ids};
  out[n++] = (piece){e->at, room * sizeof *e->at};
  out[n++] = (piece){e->last, tokens * sizeof *e->last};
  out[n++] = (piece){&e->slot, sizeof e->slot};
  out[n++] = (piece){e->pages, (spec->apart ? room : 1) * (size_t)page_tables(e) * sizeof *e->pages};
  if (e->source) out[n++] = (piece){e->source, tokens * sizeof *e->source};
  if (e->turns) out[n++] = (piece){e->turns, 3 * tokens * sizeof *e->turns};
  if (e->scales) out[n++] = (piece){e->scales, tokens * (size_t)model_n_adapters(e->m) * sizeof *e->scales};
  if (spec->floats) out[n++] = (piece){e->floats, tokens * (size_t)model_n_floats(e->m) * sizeof *e->floats};
  return n;
}

static const planned *planned_of(const engine *e, const plan *p) {
  for (size_t i = 0; i < e->now->plans.n; i++) if (e->now->plans.at[i]->at[0].p == p) return e->now->plans.at[i];
  return NULL;
}

void follow_starts(void *ctx, const plan *p, const plan_var *vars, int n_vars) {
  engine *e = ((const site *)ctx)->e;
  const planned *of = planned_of(e, p);
  piece in[MOST_PIECES];
  str body = {0};
  if (!leads() || e->number < 0) return;
  die_if(!of, "a plan that no engine knows runs on several processes");
  str_addn(&body, &(run_head){of->spec, of->spec.adapted, n_vars, plan_gatherings(p)}, sizeof(run_head));
  for (int i = 0; i < n_vars; i++) {
    run_var v = {.value = vars[i].value};
    snprintf(v.name, sizeof v.name, "%s", vars[i].name);
    str_addn(&body, &v, sizeof v);
  }
  for (int i = 0, n = inputs(e, &of->spec, in); i < n; i++) str_addn(&body, in[i].at, in[i].n);
  pthread_mutex_lock(&talking);
  // by layers the others first need what this process makes: the next chunk of a prompt runs here while they run this
  // one
  broadcast_message(FOLLOW_RUN, e->number, &body, e->owner != NULL);
  str_free(&body);
}

void follow_broken(const engine *e) {
  if (leads() && e->number >= 0) ranks_end_all(e->broken.text);
}

void follow_ends(void *ctx) {
  if (leads() && ((const site *)ctx)->e->number >= 0) pthread_mutex_unlock(&talking);
}

// --- states ----------------------------------------------------------------------------------------------------------

static void tell_state(enum kind kind, const caches *c, int group, int from, int to) {
  str body = {0};
  if (!leads() || c->number < 0) return;
  str_addn(&body, &(place){group, from, to}, sizeof(place));
  tell_others(kind, c->number, &body);
  str_free(&body);
}

void follow_touch(const caches *c, int group, int page) { tell_state(FOLLOW_TOUCH, c, group, page, 0); }
void follow_copy(const caches *c, int group, int from, int to) { tell_state(FOLLOW_COPY, c, group, from, to); }
void follow_discard(const caches *c, int group, int first, int n) { tell_state(FOLLOW_DISCARD, c, group, first, n); }

// Every process has its part of each piece: gathers all parts in all processes.
static void gather_states(engine *e, int group, int number) {
  for (int i = 0; i < model_n_states(e->m); i++) {
    const state_cuts *cuts = &e->state_cuts[i];
    if (!caches_is_of(&e->caches, i, group) || !cuts->known || !cuts->what.n) continue;
    int64_t period = cuts->what.period * (int64_t)cuts->size, count = (int64_t)caches_piece(&e->caches, i) / period;
    unsigned char *at = caches_at(&e->caches, i, number);
    ranks_gather(&at, &(gathered_buffer){cuts->what, cuts->size}, 1, count);
  }
}

void follow_read(const caches *c, int group, int number) {
  str body = {0};
  if (!leads() || c->number < 0) return;
  str_addn(&body, &(place){group, number, 0}, sizeof(place));
  pthread_mutex_lock(&talking);
  broadcast_message(FOLLOW_READ, c->number, &body, false);
  gather_states(engines.at[c->number], group, number);
  pthread_mutex_unlock(&talking);
  str_free(&body);
}

void follow_write(const caches *c, int group, int number, const void *all, size_t n) {
  str body = {0};
  if (!leads() || c->number < 0) return;
  str_addn(&body, &(place){group, number, 0}, sizeof(place));
  str_addn(&body, all, n);
  tell_others(FOLLOW_WRITE, c->number, &body);
  str_free(&body);
}

// --- the others ------------------------------------------------------------------------------------------------------

static const char *text_at(const char **at) {
  const char *s = *at;
  *at += strlen(s) + 1;
  return s;
}

static int same_opening(const engine *e, const opening *o, error *err) {
  opening own;
  if (opening_of(e, &own, err)) return -1;
  own.n_settings = o->n_settings;
  own.n_adapters = o->n_adapters;
  own.n_control_vectors = o->n_control_vectors;
  own.n_threads = o->n_threads;
  own.n_prompt_threads = o->n_prompt_threads;
  if (strcmp(own.version, o->version))
    return error_set(err, "version %s of plans, and rank 0 has %s", own.version, o->version);
  if (strcmp(own.device, o->device) || strcmp(own.compiler, o->compiler))
    return error_set(err,
                     "kernels are made for '%s' %s here, and for '%s' %s on rank 0: the bits would be those of neither "
                     "(WEFT_CPU names instructions that all have)",
                     own.device, own.compiler, o->device, o->compiler);
  if (own.worth != o->worth)
    return error_set(err, "WEFT_RANK_BYTES is %lld here, and %lld on rank 0", (long long)own.worth,
                     (long long)o->worth);
  if (own.file_bytes != o->file_bytes)
    return error_set(err, "%s: %llu bytes, and rank 0 has a file of %llu", gguf_path(e->file),
                     (unsigned long long)own.file_bytes, (unsigned long long)o->file_bytes);
  if (strcmp(own.content, o->content))
    return error_set(err, "%s: as many bytes as the file of rank 0, or its adapters, and not the same ones",
                     gguf_path(e->file));
  if (memcmp(&own, o, sizeof own))
    return error_set(err,
                     "%s: %lld pages for a context of %lld and chunks of %lld here, and %lld, %lld, %lld on rank 0",
                     gguf_path(e->file), (long long)own.n_pages, (long long)own.ctx, (long long)own.chunk,
                     (long long)o->n_pages, (long long)o->ctx, (long long)o->chunk);
  return 0;
}

static int open_too(const char *body, error *err) {
  const char *at = body + sizeof(opening), *path;
  opening o;
  VEC(const char *) settings = {0};
  VEC(struct engine_adapter) adapters = {0};
  VEC(control_file) vectors = {0};
  memcpy(&o, body, sizeof o);
  path = text_at(&at);
  for (int i = 0; i < o.n_settings; i++) vec_push(&settings, text_at(&at));
  for (int i = 0; i < o.n_adapters; i++) {
    struct engine_adapter a = {.path = text_at(&at)};
    memcpy(&a.scale, at, sizeof a.scale);
    at += sizeof a.scale;
    vec_push(&adapters, a);
  }
  for (int i = 0; i < o.n_control_vectors; i++) {
    const char *file = text_at(&at);
    control_file c;
    memcpy(&c, at, sizeof c);
    c.path = file;
    at += sizeof c;
    vec_push(&vectors, c);
  }
  struct engine_options to = {.n_ctx = o.n_ctx, .n_threads = o.n_threads, .n_prompt_threads = o.n_prompt_threads};
  to.chunk = (int)o.chunk;
  to.no_repack = o.no_repack;
  to.settings = settings.at;
  to.n_settings = settings.n;
  to.adapters = adapters.at;
  to.n_adapters = adapters.n;
  to.control_vectors = vectors.at;
  to.n_control_vectors = vectors.n;
  to.kv = o.kv;
  to.split = o.split;
  to.shares = o.shares;
  to.n_shares = (size_t)ranks_here().n;
  to.exact = o.exact;
  to.mtp = o.mtp;
  engine *e = NULL;
  int status = engine_open(path, &to, &e, err) || same_opening(e, &o, err) ? -1 : 0;
  vec_free(&settings);
  vec_free(&adapters);
  vec_free(&vectors);
  return status;
}

static int need_too(engine *e, const plan_spec *spec, error *err) {
  if (spec->sums) reserve_sums(e);
  return spec->logits == LOGITS_ALL && reserve_rows(e, err) ? -1 : need_plan(e, spec, err);
}

static int run_too(engine *e, const char *body, error *err) {
  run_head h;
  run_var v[8];
  plan_var vars[8];
  piece in[MOST_PIECES];
  memcpy(&h, body, sizeof h);
  body += sizeof h;
  fail_if(h.n_vars < 0 || h.n_vars > (int)COUNT(v), err, "a run with %d variables", h.n_vars);
  memcpy(v, body, (size_t)h.n_vars * sizeof *v);
  body += (size_t)h.n_vars * sizeof *v;
  for (int i = 0; i < h.n_vars; i++) vars[i] = (plan_var){v[i].name, v[i].value};
  e->adapted = h.adapted;
  if (need_too(e, &h.spec, err)) return -1;
  for (int i = 0, n = inputs(e, &h.spec, in); i < n; body += in[i++].n) memcpy(in[i].at, body, in[i].n);
  plan *p = plan_of(e, &h.spec);
  if (plan_gatherings(p) != h.gatherings)
    return error_set(err, "%s: rank 0 would gather other parts than this process", gguf_path(e->file));
  plan_run(p, vars, h.n_vars);
  return device_check(e->layer_split.at[0].d, err);
}

static int plan_too(engine *e, const char *body, error *err) {
  run_head h;
  memcpy(&h, body, sizeof h);
  e->adapted = h.adapted;
  return need_too(e, &h.spec, err);
}

static int state_too(enum kind kind, engine *e, const char *body) {
  place p;
  memcpy(&p, body, sizeof p);
  if (kind == FOLLOW_TOUCH) caches_touch(&e->caches, p.group, p.from);
  if (kind == FOLLOW_COPY) caches_copy(&e->caches, p.group, p.from, p.to);
  if (kind == FOLLOW_DISCARD) caches_discard(&e->caches, p.group, p.from, p.to);
  if (kind == FOLLOW_READ) gather_states(e, p.group, p.from);
  if (kind == FOLLOW_WRITE) caches_write(&e->caches, p.group, p.from, (const unsigned char *)body + sizeof p);
  return 0;
}

static int do_too(const message *m, const char *body, error *err) {
  enum kind kind = (enum kind)m->kind;
  if (kind == FOLLOW_OPEN) return open_too(body, err);
  engine *e = m->number >= 0 && (size_t)m->number < engines.n ? engines.at[m->number] : NULL;
  fail_if(!e, err, "a message %d about a model that is not open", m->kind);
  switch (kind) {
  case FOLLOW_CLOSE:
    engines.at[m->number] = NULL;
    engine_close(e);
    return 0;
  case FOLLOW_PLAN: return plan_too(e, body, err);
  case FOLLOW_RUN: return run_too(e, body, err);
  default: return state_too(kind, e, body);
  }
}

void follow_tell(const void *what, size_t n) {
  str body = {0};
  if (!leads()) return;
  str_addn(&body, what, n);
  tell_others(FOLLOW_TOLD, 0, &body);
  str_free(&body);
}

int follow_rank_0(void (*told)(void *ctx, const void *what, size_t n), void *ctx, error *err) {
  char *body = NULL;
  int status = 0;
  for (message m = {0}; !status;) {
    ranks_broadcast(&m, sizeof m, false);
    if (m.kind == FOLLOW_LEAVE) break;
    body = xrealloc(body, m.n + 1);
    ranks_broadcast(body, m.n, false);
    body[m.n] = 0;
    if (m.kind != FOLLOW_TOLD) status = do_too(&m, body, err);
    else if (told) told(ctx, body, m.n);
  }
  free(body);
  return status;
}

void follow_leave(void) {
  if (leads()) tell_others(FOLLOW_LEAVE, 0, NULL);
  ranks_leave();
}
