// The client side of the keeper, and its start: see keeper.h. A thread uses its own socket during a request; there are
// as many sockets as there were concurrent requests.
#define _GNU_SOURCE
#include "device/keeper.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/attempt.h"
#include "base/child.h"
#include "base/message.h"
#include "device/cache.h"
#include "device/entry_kinds.h"
#include "device/keeper_wire.h"
#include "device/plan_impl.h"
#include "device/team.h"

struct keeper {
  pthread_mutex_t mutex;
  pid_t process;
  int first;                            // the socket over which other sockets are sent
  VEC(int) idle;
  bool ended;
};
static keeper own = {.mutex = PTHREAD_MUTEX_INITIALIZER};      // one per process, as there is one cache

// The keeper's address space limit: its base plus a stack and a heap for each client thread; its compiler has as many.
static int64_t most_addresses(int n_threads) {
  enum { OF_A_THREAD = 80 << 20 };
  return ((int64_t)8 << 30) + (int64_t)(n_threads ? n_threads : team_default_threads()) * OF_A_THREAD;
}

keeper *keeper_running(void) { return own.process ? &own : NULL; }

bool keeper_start(void (*enter)(void *ctx), void *ctx, keeper_scheduler *scheduler, int n_threads) {
  int pair[2];
  char *folder = cache_folder();
  bool off = !folder;
  free(folder);
  if (off || own.process || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) return false;
  fflush(stdout);                       // otherwise buffered output is printed twice
  pid_t child = fork();
  if (!child) {
    const int keep[] = {STDERR_FILENO, pair[1]};
    child_begin("weft-keeper", keep, (int)COUNT(keep));
    child_limit_memory(most_addresses(n_threads));
    if (enter) enter(ctx);
    keeper_serve(pair[1], scheduler, n_threads);
  }
  close(pair[1]);
  if (child < 0) {
    close(pair[0]);
    return false;
  }
  own.process = child;
  own.first = pair[0];
  return true;
}

void keeper_stop(void) {
  if (!own.process) return;
  close(own.first);
  for (size_t i = 0; i < own.idle.n; i++) close(own.idle.at[i]);
  vec_free(&own.idle);
  while (waitpid(own.process, NULL, 0) < 0 && errno == EINTR) continue;
  own.process = 0;
  own.ended = false;
}

// ------------------------------------------------------------------------------------------------------------- sockets

static int take_idle_socket(keeper *k) {
  int pair[2];
  pthread_mutex_lock(&k->mutex);
  int fd = k->idle.n && !k->ended ? k->idle.at[--k->idle.n] : -1;
  bool more = fd < 0 && !k->ended && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
  pthread_mutex_unlock(&k->mutex);
  if (!more) return fd;
  bool sent = message_send_fd(k->first, pair[1]);
  close(pair[1]);
  if (sent) return pair[0];
  close(pair[0]);
  return -1;
}

static void add_idle_socket(keeper *k, int fd) {
  pthread_mutex_lock(&k->mutex);
  vec_push(&k->idle, fd);
  pthread_mutex_unlock(&k->mutex);
}

void keeper_prepare(void) {
  keeper *k = keeper_running();
  struct attempt_frame *around = attempt_suspend();              // sockets outlive the attempt
  int fd = k ? take_idle_socket(k) : -1;
  if (fd >= 0) add_idle_socket(k, fd);
  attempt_resume(around);
}

// The keeper's exit closes the first socket. A request's socket may also fail for lack of memory or descriptors on
// either side.
static bool has_hung_up(const keeper *k) {
  struct pollfd first = {.fd = k->first, .events = POLLRDHUP};
  return poll(&first, 1, 0) > 0;
}

// A request got no answer. If the keeper has ended, new entries are no longer stored.
static void note_silence(keeper *k) {
  if (!has_hung_up(k)) return;
  pthread_mutex_lock(&k->mutex);
  bool first = !k->ended;
  k->ended = true;
  pthread_mutex_unlock(&k->mutex);
  if (first) warning("kernels are not cached any more: the process that keeps them has ended");
}

bool keeper_lives(keeper *k) {
  pthread_mutex_lock(&k->mutex);
  bool ended = k->ended;
  pthread_mutex_unlock(&k->mutex);
  return !ended && !has_hung_up(k);
}

// ------------------------------------------------------------------------------------------------------------ requests

typedef struct asking { struct keeper_request q; const void *part[KEEPER_PARTS]; struct keeper_reply r; } asking;

static void add_request_part(asking *a, int i, const void *at, size_t n) {
  a->part[i] = at;
  a->q.part[i] = (uint32_t)n;
}

static bool exchange(int fd, asking *a, bytes *answer) {
  struct iovec parts[1 + KEEPER_PARTS] = {{&a->q, sizeof a->q}};
  for (int i = 0; i < KEEPER_PARTS; i++)       // iovec has no const
    parts[1 + i] = (struct iovec){(void *)(uintptr_t)a->part[i], a->q.part[i]};
  if (!message_send(fd, parts, COUNT(parts)) || !message_receive(fd, &a->r, sizeof a->r)) return false;
  if (a->r.magic != KEEPER_MAGIC || a->r.n > 2ull * KEEPER_PART_MAX) return false;
  *answer = (bytes){xmalloc(a->r.n + 1), a->r.n};
  answer->at[a->r.n] = 0;                      // NUL for texts
  if (message_receive(fd, answer->at, a->r.n)) return true;
  bytes_free(answer);
  return false;
}

// answer: NULL if not wanted.
static bool ask_keeper_for(keeper *k, enum keeper_want want, asking *a, bytes *answer) {
  bytes b = {0};
  struct attempt_frame *around = attempt_suspend();              // sockets outlive the attempt
  a->q.magic = KEEPER_MAGIC;
  a->q.want = want;
  int fd = take_idle_socket(k);
  bool answered = fd >= 0 && exchange(fd, a, &b);
  if (answered) {
    add_idle_socket(k, fd);
  } else {
    if (fd >= 0) close(fd);
    note_silence(k);
  }
  attempt_resume(around);
  bool granted = answered && a->r.granted;
  if (answer && granted) *answer = b;
  else bytes_free(&b);
  return granted;
}

bool keeper_open(keeper *k, bool *on, str *text) {
  asking a = {0};
  bytes b = {0};
  if (!ask_keeper_for(k, KEEPER_OPEN, &a, &b)) return false;
  *on = b.n && b.at[0];
  if (b.n > 1) str_addn(text, b.at + 1, b.n - 1);
  bytes_free(&b);
  return true;
}

bool keeper_get(keeper *k, const void *key, size_t n, bytes *value) {
  asking a = {0};
  *value = (bytes){0};
  if (n > KEEPER_PART_MAX) return false;
  add_request_part(&a, 0, key, n);
  return ask_keeper_for(k, KEEPER_GET, &a, value);
}

bool keeper_put(keeper *k, const void *key, size_t n, const void *value, size_t value_n) {
  asking a = {0};
  if (n > KEEPER_PART_MAX || value_n > KEEPER_PART_MAX || !keeper_takes(key, n)) return false;
  add_request_part(&a, 0, key, n);
  add_request_part(&a, 1, value, value_n);
  return ask_keeper_for(k, KEEPER_PUT, &a, NULL);
}

bool keeper_flush(keeper *k) { return ask_keeper_for(k, KEEPER_FLUSH, &(asking){0}, NULL); }

bool keeper_takes(const void *key, size_t n) {
  return entry_kind_row_of(entry_kind_of(key, n))->taken;
}

static void add_machine(asking *a, const device *d, str *line) {
  a->q.machine = (struct keeper_machine){d->target.has_streams, d->target.distance, d->target.distance_of_tile};
  plan_machine(d, line);
  add_request_part(a, 0, line->at, line->n);
}

bool keeper_make_kernel(keeper *k, const struct keeper_kernel *of, bytes *entry, double *codegen_s) {
  asking a = {.q = {.has_opts = of->opts != NULL, .filling = of->filling}};
  str line = {0};
  *entry = (bytes){0};
  add_machine(&a, of->d, &line);
  add_request_part(&a, 1, of->ir->at, of->ir->n);
  add_request_part(&a, 2, of->opts, of->opts ? strlen(of->opts) : 0);
  bool made = of->ir->n <= KEEPER_PART_MAX && ask_keeper_for(k, KEEPER_KERNEL, &a, entry);
  *codegen_s = made ? a.r.codegen_s : 0;
  str_free(&line);
  return made;
}

bool keeper_make_schedule(keeper *k, const device *d, const str *graph_text, const void *how, size_t n, str *key,
                          bytes *entry) {
  asking a = {0};
  bytes b = {0};
  str line = {0};
  *entry = (bytes){0};
  add_machine(&a, d, &line);
  add_request_part(&a, 1, graph_text->at, graph_text->n);
  add_request_part(&a, 2, how, n);
  bool made = graph_text->n <= KEEPER_PART_MAX && n <= KEEPER_PART_MAX && ask_keeper_for(k, KEEPER_SCHEDULE, &a, &b);
  const char *end = made ? memchr(b.at, 0, b.n) : NULL;
  if (end) {
    size_t key_n = (size_t)(end - (const char *)b.at);
    str_addn(key, b.at, key_n);
    *entry = (bytes){memcpy(xmalloc(b.n - key_n), end + 1, b.n - key_n - 1), b.n - key_n - 1};
  }
  bytes_free(&b);
  str_free(&line);
  return end != NULL;
}
