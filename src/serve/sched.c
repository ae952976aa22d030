// Queues, and the thread that takes steps: see sched.h.
#include "serve/sched.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "serve/run.h"

enum { QUANTUM = 1024 };               // tokens that a key gains each turn
#define PATIENCE_S 10.0                // after so long the oldest of a key goes first

struct queue { request *first; int64_t credit; };
struct sched {
  struct sched_options o;
  weft_options model_options;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t more;
  struct queue *queues;
  int turn;
  bool draining;
  atomic_bool stop;
  _Atomic enum sched_state state;
  weft_error why;
  sequence seq;
  struct sched_counts c;
  double last_step;
  _Atomic double loaded;
};

static int64_t cost_of(const request *r) {
  int64_t answer = r->max_tokens < 0 || r->max_tokens > 256 ? 256 : r->max_tokens;
  return (int64_t)r->prompt.n + answer * r->n;
}

// ---- the queues; the lock is held --------------------------------------------------------------------------------------------

static size_t known(const sched *s, const request *r) {
  size_t n = 0;
  while (n < r->prompt.n && n < s->seq.past.n && r->prompt.at[n] == s->seq.past.at[n]) n++;
  return n;
}

static request **best_of(sched *s, struct queue *q) {
  request **best = &q->first;
  if (!*best || now_s() - (*best)->arrived > PATIENCE_S) return best;
  size_t most = known(s, *best);
  for (request **at = &(*best)->next; *at; at = &(*at)->next) {
    size_t n = known(s, *at);
    if (n > most) most = n, best = at;
  }
  return best;
}

static request *take(sched *s, request **at) {
  request *r = *at;
  *at = r->next;
  s->c.waiting--;
  s->c.waiting_tokens -= (int64_t)r->prompt.n;
  return r;
}

// The next request, or NULL.  Each queue with something in it gains credit until one can pay.
static request *next_request(sched *s) {
  if (!s->c.waiting) return NULL;
  for (;;) {
    struct queue *q = &s->queues[s->turn];
    request **r = best_of(s, q);
    if (!*r) q->credit = 0;
    else if (q->credit >= cost_of(*r)) { q->credit -= cost_of(*r); return take(s, r); }
    else q->credit += QUANTUM;
    s->turn = (s->turn + 1) % s->o.n_keys;
  }
}

// ---- steps --------------------------------------------------------------------------------------------------------------------

static void count(sched *s, const struct timing *t) {
  pthread_mutex_lock(&s->lock);
  s->c.prompt_tokens += (double)(t->n_prompt - t->n_cached);
  s->c.cached_tokens += (double)t->n_cached;
  s->c.prompt_s += t->prompt_ms / 1000;
  s->c.drawn_tokens += (double)t->n_drawn;
  s->c.drawn_s += t->drawn_ms / 1000;
  s->c.requests++;
  pthread_mutex_unlock(&s->lock);
}

static void step_ended(sched *s) {
  pthread_mutex_lock(&s->lock);
  s->last_step = now_s();
  s->c.steps++;
  s->c.n_past = (int)s->seq.past.n;
  pthread_mutex_unlock(&s->lock);
}

static void make_vectors(sched *s, request *r) {
  vectors v = {.q = &s->seq, .r = r};
  for (bool more = true; more; step_ended(s)) {
    if (s->stop) r->cancelled = true;
    more = vectors_step(&v);
  }
  count(s, &v.timing);
}

// All choices of a request, one after another: their prompt is evaluated once.  The request may be gone when the last event is out.
static void serve(sched *s, request *r) {
  for (int64_t i = 0, n = r->n; i < n; i++) {
    run *u = run_new(&s->seq, r, (int)i);
    bool more = true;
    while (more) {
      if (s->stop) r->cancelled = true;
      more = run_step(u);
      step_ended(s);
    }
    struct timing t;
    bool failed = run_ended(u, &t);
    count(s, &t);
    run_free(u);
    if (failed) return;
  }
}

static void on_load(void *ctx, const char *what, double fraction) {
  sched *s = ctx;
  s->loaded = fraction;
  if (s->o.model.progress) s->o.model.progress(s->o.model.progress_ctx, what, fraction);
}

// Kernels of single tokens and of prompts (of an encoder, of short texts) are made before anybody waits for them.
static int warm_up(sched *s, weft_error *err) {
  int32_t ids[2] = {0, 0};
  int n = weft_model_context(s->seq.model) > 2 ? 2 : 1;
  if (weft_model_only_embeds(s->seq.model)) {
    float *v = xcalloc((size_t)weft_model_embedding_size(s->seq.model), sizeof *v);
    int status = weft_embed(s->seq.model, ids, (size_t)n, WEFT_POOLING_MEAN, v, err);
    free(v);
    return status;
  }
  if (weft_decode(s->seq.model, ids, (size_t)n, 0, NULL, err) || weft_decode(s->seq.model, ids, 1, 0, NULL, err)) return -1;
  weft_model_settle(s->seq.model);
  return 0;
}

static void *lead(void *arg) {
  sched *s = arg;
  s->model_options.progress = on_load;
  s->model_options.progress_ctx = s;
  int status = weft_model_open(s->o.path, &s->model_options, &s->seq.model, &s->why);
  if (!status) status = warm_up(s, &s->why);
  s->state = status ? SCHED_FAILED : SCHED_READY;
  pthread_mutex_lock(&s->lock);
  if (!status && !s->o.max_tokens) s->c.most_tokens = 8ll * weft_model_context(s->seq.model);
  while (!status) {
    request *r = next_request(s);
    if (!r && s->stop) break;
    if (!r) { pthread_cond_wait(&s->more, &s->lock); continue; }
    if (s->stop) r->cancelled = true;
    s->c.running++;
    s->last_step = now_s();
    pthread_mutex_unlock(&s->lock);
    if (r->embeds) make_vectors(s, r);
    else serve(s, r);
    pthread_mutex_lock(&s->lock);
    s->c.running--;
  }
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

// ---- from other threads ---------------------------------------------------------------------------------------------------------

int sched_start(const struct sched_options *o, sched **out, error *err) {
  sched *s = xcalloc(1, sizeof *s);
  s->o = *o;
  s->model_options = o->model;
  s->c.most_tokens = o->max_tokens;
  s->queues = xcalloc((size_t)o->n_keys, sizeof *s->queues);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->more, NULL);
  *out = s;
  if (!pthread_create(&s->thread, NULL, lead, s)) return 0;
  free(s->queues);
  free(s);
  return error_set(err, "no thread could be made for the model");
}

enum sched_state sched_state(sched *s) { return s->state; }
const char *sched_error(sched *s) { return s->why.text; }
weft_model *sched_model(sched *s) { return s->seq.model; }

// How long it will take until some of what waits is done, for Retry-After.
static int wait_s(const sched *s) {
  double rate = s->c.prompt_s > 0 ? s->c.prompt_tokens / s->c.prompt_s : 100;
  double wait = (double)s->c.waiting_tokens / (rate > 1 ? rate : 1) + 1;
  return wait < 1 ? 1 : wait > 60 ? 60 : (int)wait;
}

static int refuse(sched *s, int64_t tokens, size_t n, fault *f) {
  if (s->draining || s->stop) {
    f->retry_s = 5;
    return fault_set(f, 503, NULL, "the server is ending");
  }
  bool idle = !s->c.waiting && !s->c.running;
  if (s->c.waiting + (int)n > s->o.max_waiting) fault_set(f, 429, NULL, "%d requests wait already", s->c.waiting);
  else if (!idle && s->c.waiting_tokens + tokens > s->c.most_tokens)
    fault_set(f, 429, NULL, "prompts of %lld tokens wait already", (long long)s->c.waiting_tokens);
  if (!f->status) return 0;
  f->retry_s = wait_s(s);
  return -1;
}

int sched_submit(sched *s, request **r, size_t n, fault *f) {
  int64_t tokens = 0;
  for (size_t i = 0; i < n; i++) tokens += (int64_t)r[i]->prompt.n;
  pthread_mutex_lock(&s->lock);
  int status = refuse(s, tokens, n, f);
  for (size_t i = 0; i < n && !status; i++) {
    request **at = &s->queues[r[i]->key].first;
    while (*at) at = &(*at)->next;
    *at = r[i];
    r[i]->next = NULL;
    r[i]->arrived = now_s();
    s->c.waiting++;
  }
  if (!status) s->c.waiting_tokens += tokens;
  pthread_cond_signal(&s->more);
  pthread_mutex_unlock(&s->lock);
  return status;
}

// One that waits is taken out of its queue, so that its place is free at once.
void sched_cancel(sched *s, request *r) {
  bool waited = false;
  r->cancelled = true;
  pthread_mutex_lock(&s->lock);
  for (request **at = &s->queues[r->key].first; *at && !waited; at = *at ? &(*at)->next : at)
    if (*at == r) { take(s, at); waited = true; }
  pthread_mutex_unlock(&s->lock);
  if (!waited) return;
  for (int64_t i = 0, n = r->n; i < n; i++) {
    event *e = xcalloc(1, sizeof *e);
    e->kind = EVENT_END;
    e->request = r;
    e->choice = (int)i;
    e->finish = FINISH_GONE;
    r->event(r->ctx, e);
  }
}

void sched_counts(sched *s, struct sched_counts *out) {
  pthread_mutex_lock(&s->lock);
  *out = s->c;
  out->since_step = s->c.running ? now_s() - s->last_step : 0;
  pthread_mutex_unlock(&s->lock);
  out->loaded = s->loaded;
}

void sched_drain(sched *s) {
  pthread_mutex_lock(&s->lock);
  s->draining = true;
  pthread_mutex_unlock(&s->lock);
}

void sched_stop(sched *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  s->stop = true;
  pthread_cond_signal(&s->more);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->thread, NULL);
}

void sched_free(sched *s) {
  if (!s) return;
  weft_model_close(s->seq.model);
  vec_free(&s->seq.past);
  free(s->queues);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->more);
  free(s);
}
