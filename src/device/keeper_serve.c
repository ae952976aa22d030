// The keeper's process, which owns the kernel cache: see keeper.h. Data from its sockets may come from an attacker. Its
// threads, one for each socket, share the cache and the compiler, which is again a separate process.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/attempt.h"
#include "base/message.h"
#include "device/cache.h"
#include "device/cpu.h"
#include "device/device.h"
#include "device/keeper_room.h"
#include "device/keeper_wire.h"
#include "device/machine.h"
#include "device/plan_impl.h"
#include "device/schedule_cache.h"
#include "device/team.h"
#include "graph/verify.h"

enum { MOST_SOCKETS = 2048 };
enum { REQUEST_BYTES = 1 << 20 };      // memory per request besides its parts: an answer, the thread's own memory
enum { SENT_MAX = 1 << 20 };           // maximum size of a value stored as sent

// State of the keeper's process. d: NULL if the device cannot be opened or has no cache; why: the reason for the
// former.
static struct {
  device *d;
  error why;
  keeper_scheduler *scheduler;
  _Atomic int sockets;
  keeper_room room;
} own;

// room: its bytes in own.room
typedef struct request { int fd; struct keeper_request q; bytes part[KEEPER_PARTS]; size_t room; } request;

// ------------------------------------------------------------------------------------------------------------ messages

static bool enter_room(request *r) {
  size_t n = REQUEST_BYTES;
  for (int i = 0; i < KEEPER_PARTS; i++) n += r->q.part[i];
  if (!keeper_room_enter(&own.room, n)) return false;
  r->room = n;
  return true;
}

static bool receive_request(request *r) {
  bool whole = message_receive(r->fd, &r->q, sizeof r->q) && r->q.magic == KEEPER_MAGIC && r->q.want < KEEPER_WANTS &&
               enter_room(r);
  for (int i = 0; i < KEEPER_PARTS && whole; i++) {
    size_t n = r->q.part[i];
    r->part[i] = n <= KEEPER_PART_MAX ? (bytes){xmalloc(n + 1), n} : (bytes){0};
    whole = r->part[i].at && message_receive(r->fd, r->part[i].at, n);
    if (whole) r->part[i].at[n] = 0;           // NUL for texts
  }
  return whole;
}

static bool send_reply(const request *r, bool granted, double codegen_s, const void *at, size_t n) {
  struct keeper_reply reply = {KEEPER_MAGIC, granted, granted ? n : 0, codegen_s};
  struct iovec parts[] = {{&reply, sizeof reply}, {(void *)(uintptr_t)at, reply.n}};     // iovec has no const
  return message_send(r->fd, parts, COUNT(parts));
}

// ------------------------------------------------------------------------------------------------------------ the work

// The device as the client has it. Differences from the keeper's own device are refused, except settings that change
// after the start: code for another machine must not be stored under this machine's key.
static bool device_of(const request *r, device *out) {
  const struct keeper_machine *m = &r->q.machine;
  const prefetch *asked[] = {&m->distance, &m->distance_of_tile};
  str line = {0};
  for (size_t i = 0; i < COUNT(asked); i++) if (!machine_may_prefetch(*asked[i])) return false;
  *out = *own.d;
  out->target.has_streams = m->has_streams != 0;
  out->target.distance = m->distance;
  out->target.distance_of_tile = m->distance_of_tile;
  plan_machine(out, &line);
  bool same = line.n == r->part[0].n && !memcmp(line.at, r->part[0].at, line.n);
  str_free(&line);
  return same;
}

static const char *text_of_part(const bytes *b) { return memchr(b->at, 0, b->n) ? NULL : (const char *)b->at; }

// An entry over the limit is made but not stored.
static bool keep_with_room(enum keeper_kept how, const void *key, size_t n, const str *value) {
  bool may = keeper_room_keep(&own.room, how, n + value->n);
  if (may) cache_put(own.d->cache, key, n, value->at, value->n);
  return may;
}

static bool make_kernel(const request *r) {
  device d;
  error err = {0};
  str key = {0}, entry = {0};
  double codegen_s = 0;
  const struct plan_text of = {
    (const char *)r->part[1].at, r->part[1].n, r->q.has_opts ? text_of_part(&r->part[2]) : NULL, r->q.filling};
  bool made = device_of(r, &d) && text_of_part(&r->part[1]) && (of.opts || !r->q.has_opts) &&
              !plan_make_entry(&d, &of, &key, &entry, &codegen_s, &err);
  if (made) keep_with_room(KEEPER_MADE, key.at, key.n, &entry);
  bool sent = send_reply(r, made, codegen_s, entry.at, entry.n);
  str_free(&key);
  str_free(&entry);
  return sent;
}

typedef struct scheduling { const struct keeper_graph *of; graph *g; str *key, *entry; bool made; } scheduling;

static void make_schedule(void *ctx) {
  scheduling *s = ctx;
  const struct keeper_graph *of = s->of;
  error err = {0};
  str why = {0};
  schedule made = {0};
  s->g = graph_new(NULL);
  uop *sink = uop_parse(s->g, (const char *)of->text.at, of->text.n, &err);
  bool is_one = sink && sink->op == OP_SINK && verify_graph_ok(s->g, sink, STAGE_TENSOR, &why);
  str_free(&why);
  if (!is_one || !of->scheduler(of->d, s->g, sink, of->how.at, of->how.n, s->key, &made)) return;
  schedule_cache_text(s->g, &made, s->entry);
  s->made = true;
}

bool keeper_schedule(const struct keeper_graph *of, str *key, str *entry) {
  scheduling s = {.of = of, .key = key, .entry = entry};
  if (attempt(ATTEMPT_OWNS, make_schedule, &s, NULL)) {          // which freed its memory
    *key = *entry = (str){0};
    return false;
  }
  graph_free(s.g);
  return s.made;
}

static bool keep_schedule(const request *r) {
  device d;
  str key = {0}, entry = {0}, answer = {0};
  const struct keeper_graph of = {&d, own.scheduler, r->part[1], r->part[2]};
  bool may = own.scheduler && device_of(r, &d);
  if (may && d.prepare) d.prepare(&d);           // kernels follow
  bool made = may && keeper_schedule(&of, &key, &entry);
  if (made) {
    keep_with_room(KEEPER_MADE, key.at, key.n, &entry);
    str_addn(&answer, key.at, key.n);
    str_addc(&answer, 0);
    str_addn(&answer, entry.at, entry.n);
  }
  bool sent = send_reply(r, made, 0, answer.at, answer.n);
  str_free(&key); str_free(&entry); str_free(&answer);
  return sent;
}

static bool say_state(const request *r) {
  str answer = {0};
  str_addc(&answer, own.d && cache_is_on(own.d->cache));
  str_add(&answer, own.d ? cache_file(own.d->cache) : own.why.text);
  bool sent = send_reply(r, true, 0, answer.at, answer.n);
  str_free(&answer);
  return sent;
}

static bool give_entry(const request *r) {
  bytes value;
  bool found = cache_get(own.d->cache, r->part[0].at, r->part[0].n, &value),
       sent = send_reply(r, found, 0, value.at, value.n);
  bytes_free(&value);
  return sent;
}

static bool keep_entry(const request *r) {
  const bytes *key = &r->part[0], *value = &r->part[1];
  const str sent = {.at = (char *)value->at, .n = value->n};
  bool taken =
    keeper_takes(key->at, key->n) && value->n <= SENT_MAX && keep_with_room(KEEPER_AS_SENT, key->at, key->n, &sent);
  return send_reply(r, taken, 0, NULL, 0);
}

static bool keep_all(const request *r) {
  cache_flush(own.d->cache);
  return send_reply(r, true, 0, NULL, 0);
}

static bool (*const work[KEEPER_WANTS])(const request *r) = {
  [KEEPER_OPEN] = say_state,   [KEEPER_GET] = give_entry,     [KEEPER_PUT] = keep_entry,
  [KEEPER_FLUSH] = keep_all,   [KEEPER_KERNEL] = make_kernel, [KEEPER_SCHEDULE] = keep_schedule,
};

static bool do_work(const request *r) {
  return own.d || r->q.want == KEEPER_OPEN ? work[r->q.want](r) : send_reply(r, false, 0, NULL, 0);
}

// --------------------------------------------------------------------------------------------------------- the process

static void *serve_socket(void *p) {
  for (bool more = true; more;) {
    request r = {.fd = (int)(intptr_t)p};
    more = receive_request(&r) && do_work(&r);
    for (int i = 0; i < KEEPER_PARTS; i++) bytes_free(&r.part[i]);
    if (r.room) keeper_room_leave(&own.room, r.room);
  }
  close((int)(intptr_t)p);
  own.sockets--;
  return NULL;
}

static void begin_serving(int fd) {
  pthread_t id;
  own.sockets++;
  if (own.sockets <= MOST_SOCKETS && !pthread_create(&id, NULL, serve_socket, (void *)(intptr_t)fd)) {
    pthread_detach(id);
    return;
  }
  own.sockets--;
  close(fd);
}

// One thread, because the keeper evaluates nothing. It compiles as many kernels at once as the client would.
static void open_device(int n_threads) {
  if (device_open_named("CPU", 1, 0, &own.d, &own.why)) return;
  cpu_compile_at_once(own.d, (n_threads ? n_threads : team_default_threads()) + 1);
  if (own.d->cache) return;
  device_close(own.d);
  own.d = NULL;
}

void keeper_serve(int first, keeper_scheduler *scheduler, int n_threads) {
  bool opened = false;
  own.scheduler = scheduler;
  keeper_room_init(&own.room);
  for (bool more = true; more;) {
    int fd = message_receive_fd(first, &more);
    if (fd < 0) continue;
    if (!opened) open_device(n_threads);
    opened = true;
    begin_serving(fd);
  }
  if (own.d) cache_flush(own.d->cache);            // the compiler sees that its sockets are closed
  _exit(0);
}
