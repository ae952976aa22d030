// Copies of streams: see replay.h. Lock order: a copy's before an exchange's; http.c calls copies without holding a
// lock.
#define _GNU_SOURCE
#include "serve/replay.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "serve/server.h"
#include "serve/shapes.h"

enum { BYTES = 4 << 20, TOTAL = 64 << 20, MOST = 256, KEPT_S = 300 };

// One stream. It lives while it is in the list or the stream adds to it.
struct copy {
  char *id;
  int key, refs;
  bool listed;
  const char *type;                    // of the stream
  exchange *from;                      // the source; NULL: it has ended
  str out;
  uint64_t lost;                       // bytes before out
  VEC(exchange *) readers;
  int64_t began, ended;                // Unix time; ended 0: not yet
  double unread_since, ended_at;       // now_s(); unread_since 0: a client reads
};
struct replay { pthread_mutex_t lock; VEC(struct copy *) all; size_t bytes; double ticked; };

replay *replay_new(void) {
  replay *p = xcalloc(1, sizeof *p);
  pthread_mutex_init(&p->lock, NULL);
  return p;
}

// ---- life of a copy: all with the lock held -------------------------------------------------------------------------

static void copy_release(struct copy *c) {
  if (--c->refs) return;
  for (size_t i = 0; i < c->readers.n; i++) {
    exchange_end(c->readers.at[i]);
    exchange_drop(c->readers.at[i]);
  }
  vec_free(&c->readers);
  if (c->from) exchange_drop(c->from);
  free(c->id);
  free(c);
}

static struct copy *find_copy(const replay *p, int key, const char *id) {
  for (size_t i = 0; i < p->all.n; i++)
    if (p->all.at[i]->key == key && !strcmp(p->all.at[i]->id, id)) return p->all.at[i];
  return NULL;
}

static void unlist(replay *p, struct copy *c) {
  size_t i = 0;
  while (p->all.at[i] != c) i++;
  memmove(p->all.at + i, p->all.at + i + 1, (p->all.n - i - 1) * sizeof *p->all.at);
  p->all.n--;
  p->bytes -= c->out.n;
  str_free(&c->out);
  c->listed = false;
  copy_release(c);
}

// Cancels its request; further output is dropped.
static void cancel_copy(replay *p, struct copy *c) {
  exchange *from = c->from ? exchange_hold(c->from) : NULL;
  unlist(p, c);
  if (from) {
    exchange_cancel(from);
    exchange_drop(from);
  }
}

// The list is ordered by the start of streams. false: all are still running.
static bool forget_one(replay *p) {
  for (size_t i = 0; i < p->all.n; i++) {
    if (p->all.at[i]->from) continue;
    unlist(p, p->all.at[i]);
    return true;
  }
  return false;
}

static void drop_front(replay *p, struct copy *c, size_t n) {
  n = n < c->out.n ? n : c->out.n;
  memmove(c->out.at, c->out.at + n, c->out.n - n);
  c->out.n -= n;
  c->lost += n;
  p->bytes -= n;
}

// ---- what http.c calls ----------------------------------------------------------------------------------------------

static void copy_add(void *ctx, void *copy, const char *text, size_t n) {
  replay *p = ctx;
  struct copy *c = copy;
  pthread_mutex_lock(&p->lock);
  if (!c->listed) { pthread_mutex_unlock(&p->lock); return; }
  while (p->bytes + n > TOTAL && forget_one(p)) {}
  if (p->bytes + n > TOTAL || c->out.n + n > BYTES) drop_front(p, c, n + BYTES / 8);
  str_addn(&c->out, text, n);
  p->bytes += n;
  for (size_t i = 0; i < c->readers.n;) {
    if (exchange_add(c->readers.at[i], text, n)) { i++; continue; }
    exchange_drop(c->readers.at[i]);
    c->readers.at[i] = c->readers.at[--c->readers.n];
  }
  pthread_mutex_unlock(&p->lock);
}

static void copy_end(void *ctx, void *copy) {
  replay *p = ctx;
  struct copy *c = copy;
  pthread_mutex_lock(&p->lock);
  c->ended = (int64_t)time(NULL);
  c->ended_at = now_s();
  for (size_t i = 0; i < c->readers.n; i++) {
    exchange_end(c->readers.at[i]);
    exchange_drop(c->readers.at[i]);
  }
  c->readers.n = 0;
  exchange_drop(c->from);
  c->from = NULL;
  copy_release(c);
  pthread_mutex_unlock(&p->lock);
}

// NULL: too many copies; the stream then ends with its client.
static void *copy_begin(void *ctx, exchange *x, const char *id, const char *type) {
  replay *p = ctx;
  pthread_mutex_lock(&p->lock);
  int key = x->key < 0 ? 0 : x->key;
  struct copy *c = find_copy(p, key, id);
  if (c) cancel_copy(p, c);
  c = NULL;
  if (p->all.n < MOST || forget_one(p)) {
    c = xcalloc(1, sizeof *c);
    *c = (struct copy){.id = xstrdup(id),
                       .key = key,
                       .refs = 2,
                       .listed = true,
                       .type = type,
                       .from = exchange_hold(x),
                       .began = (int64_t)time(NULL)};
    vec_push(&p->all, c);
  }
  pthread_mutex_unlock(&p->lock);
  return c;
}

void replay_copy(replay *p, exchange *x, const char *id) {
  static const struct exchange_copier copier = {copy_begin, copy_add, copy_end};
  exchange_copy(x, &copier, p, id);
}

// ---- time -----------------------------------------------------------------------------------------------------------

static bool copy_is_read(struct copy *c) {
  for (size_t i = 0; i < c->readers.n;) {
    if (!exchange_gone(c->readers.at[i])) return true;
    exchange_drop(c->readers.at[i]);
    c->readers.at[i] = c->readers.at[--c->readers.n];
  }
  return c->from && !exchange_gone(c->from);
}

void replay_tick(replay *p) {
  double now = now_s();
  pthread_mutex_lock(&p->lock);
  if (now - p->ticked >= 1) {
    p->ticked = now;
    for (size_t i = p->all.n; i-- > 0;) {
      struct copy *c = p->all.at[i];
      if (!c->from) {
        if (now - c->ended_at > KEPT_S) unlist(p, c);
        continue;
      }
      if (copy_is_read(c)) c->unread_since = 0;
      else if (!c->unread_since) c->unread_since = now;
      else if (now - c->unread_since > KEPT_S) cancel_copy(p, c);
    }
  }
  pthread_mutex_unlock(&p->lock);
}

void replay_free(replay *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  while (p->all.n) unlist(p, p->all.at[0]);
  pthread_mutex_unlock(&p->lock);
  pthread_mutex_destroy(&p->lock);
  vec_free(&p->all);
  free(p);
}

// ---- endpoints ------------------------------------------------------------------------------------------------------

static int need_id(server *s, exchange *x) {
  fault f = {0};
  if (asked_of(x)->conversation) return 0;
  fault_set(&f, 400, "conv_id", "'conv_id' is missing: which stream?");
  answer_fault(s, x, &f);
  return -1;
}

// The start offset, in bytes of the whole stream.
static int read_from(const struct copy *c, const char *text, uint64_t *from, fault *f) {
  char *end = NULL;
  *from = text ? strtoull(text, &end, 10) : 0;
  if (text && (!*text || *end || strspn(text, "0123456789") > 18 || *text == '-' || *text == '+'))
    return fault_set(f, 400, "from", "'from' must be a number of bytes");
  if (*from < c->lost)
    return fault_set(f, 400, "from", "'from' is %llu; what was sent before byte %llu is no longer there",
                     (unsigned long long)*from, (unsigned long long)c->lost);
  return 0;
}

void handle_stream(server *s, exchange *x) {
  const struct asked *a = asked_of(x);
  replay *p = s->replay;
  fault f = {0};
  uint64_t from;
  if (need_id(s, x)) return;
  pthread_mutex_lock(&p->lock);
  struct copy *c = find_copy(p, x->key < 0 ? 0 : x->key, a->conversation);
  if (!c) fault_set(&f, 404, "conv_id", "there is no stream of this conversation, or no longer");
  else if (!read_from(c, a->from, &from, &f)) {
    exchange_stream(x, c->type, strstr(c->type, "event-stream") ? ": ping\n" : NULL);
    size_t skip = from - c->lost < c->out.n ? (size_t)(from - c->lost) : c->out.n;
    exchange_add(x, str_c(&c->out) + skip, c->out.n - skip);
    if (c->from) vec_push(&c->readers, exchange_hold(x));
    else exchange_end(x);
  }
  pthread_mutex_unlock(&p->lock);
  if (f.status) answer_fault(s, x, &f);
}

void handle_stream_delete(server *s, exchange *x) {
  replay *p = s->replay;
  if (need_id(s, x)) return;
  pthread_mutex_lock(&p->lock);
  struct copy *c = find_copy(p, x->key < 0 ? 0 : x->key, asked_of(x)->conversation);
  if (c) cancel_copy(p, c);
  pthread_mutex_unlock(&p->lock);
  exchange_send(x, 204, NULL, "", 0);
}

struct lookup { json_t *ids; };
static const struct field lookup_table[] = {
  FN(struct lookup, ids, "conversation_ids", F_ARRAY, SHAPE_TEXTS, "whose streams"),
};
static const struct fields lookup_fields = FIELDS(lookup_table);
const struct fields *const stream_lookup_fields[] = {&lookup_fields, NULL};

// Only for named conversations: streams cannot be listed.
void handle_stream_lookup(server *s, exchange *x) {
  replay *p = s->replay;
  struct lookup q = {0};
  fault f = {0};
  json_t *all = json_array(), *id;
  size_t i;
  if (!fields_read(asked_of(x)->body, "", lookup_fields, &q, &f)) {
    if (!q.ids) fault_set(&f, 400, "conversation_ids", "'conversation_ids' is missing");
    json_array_foreach(q.ids, i, id) if (!json_is_string(id))
      fault_set(&f, 400, "conversation_ids", "'conversation_ids' must be strings");
  }
  pthread_mutex_lock(&p->lock);
  json_array_foreach(f.status ? NULL : q.ids, i, id) {
    const struct copy *c = find_copy(p, x->key < 0 ? 0 : x->key, json_string_value(id));
    if (c)
      json_array_append_new(all, json_pack("{ss sb sI sI sI}", "conversation_id", c->id, "is_done", !c->from,
                                           "total_bytes", (json_int_t)(c->lost + c->out.n), "started_at",
                                           (json_int_t)c->began, "completed_at", (json_int_t)c->ended));
  }
  pthread_mutex_unlock(&p->lock);
  if (!f.status) { answer_json(x, 200, all); return; }
  json_decref(all);
  answer_fault(s, x, &f);
}
