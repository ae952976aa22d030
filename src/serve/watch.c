// The watching thread: see watch.h.
#define _GNU_SOURCE
#include "serve/watch.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct departure { void *what; bool gone; };
typedef VEC(struct departure) departures;
struct watch {
  int epoll;
  pthread_t thread;
  pthread_mutex_t lock;
  watched *first;
  uint32_t n_added;                    // connections, ever: the mark of the next one
  VEC(watched *) by_fd;                // an event can be of one that has been removed since: it is looked up
  atomic_bool stop;
  struct watch_calls calls;
};

void watch_lock(watch *w) { pthread_mutex_lock(&w->lock); }
void watch_unlock(watch *w) { pthread_mutex_unlock(&w->lock); }

static void leave_watched(watch *w, watched *o, bool gone, departures *all) {
  void *what = w->calls.left(w->calls.ctx, o->about, gone);
  if (what) vec_push(all, ((struct departure){what, gone}));
}

static void check_deadlines(watch *w, double now, departures *all) {
  for (watched *o = w->first; o; o = o->next) {
    double deadline = o->deadline;
    if (!deadline || now < deadline) continue;
    o->deadline = 0;
    shutdown(o->fd, SHUT_RDWR);
    leave_watched(w, o, true, all);
  }
}

static void *watch_loop(void *arg) {
  enum { MANY = 64, TICK_MS = 500 };
  watch *w = arg;
  struct epoll_event events[MANY];
  departures all = {0};
  double ticked = now_s();
  while (!w->stop) {
    int n = epoll_wait(w->epoll, events, MANY, TICK_MS);
    double now = now_s();
    bool due = now - ticked > 0.0009 * TICK_MS;
    watch_lock(w);
    for (int i = 0; i < n; i++) {
      size_t fd = (uint32_t)events[i].data.u64;
      watched *o = fd < w->by_fd.n ? w->by_fd.at[fd] : NULL;
      // since the event its connection may have been closed, and the descriptor given to the next one
      if (o && o->mark == (uint32_t)(events[i].data.u64 >> 32))
        leave_watched(w, o, events[i].events & (EPOLLHUP | EPOLLERR), &all);
    }
    if (due) check_deadlines(w, now, &all);
    watch_unlock(w);
    for (size_t i = 0; i < all.n; i++) w->calls.after(w->calls.ctx, all.at[i].what, all.at[i].gone);
    all.n = 0;
    if (due) ticked = now, w->calls.tick(w->calls.ctx);
  }
  vec_free(&all);
  return NULL;
}

int watch_start(const struct watch_calls *calls, watch **out, error *err) {
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return error_set(err, "epoll_create1: %s", strerror(errno));
  watch *w = xcalloc(1, sizeof *w);
  w->epoll = epoll;
  w->calls = *calls;
  pthread_mutex_init(&w->lock, NULL);
  *out = w;
  if (!pthread_create(&w->thread, NULL, watch_loop, w)) return 0;
  close(epoll);
  free(w);
  return error_set(err, "no thread could be made to watch connections");
}

void watch_stop(watch *w) {
  if (!w) return;
  w->stop = true;
  pthread_join(w->thread, NULL);
  close(w->epoll);
  pthread_mutex_destroy(&w->lock);
  vec_free(&w->by_fd);
  free(w);
}

watched *watch_add(watch *w, int fd, void *about, double deadline) {
  watched *o = xcalloc(1, sizeof *o);
  o->fd = fd;
  o->deadline = deadline;
  o->about = about;
  watch_lock(w);
  while (w->by_fd.n <= (size_t)fd) vec_push(&w->by_fd, NULL);
  w->by_fd.at[fd] = o;
  if ((o->next = w->first)) w->first->link = &o->next;
  o->link = &w->first;
  w->first = o;
  o->mark = w->n_added++;
  struct epoll_event e = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = (uint64_t)o->mark << 32 | (uint32_t)fd};
  epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e);      // where this fails, departures show when the answer is written
  watch_unlock(w);
  return o;
}

void watch_remove(watch *w, watched *o) {
  watch_lock(w);
  epoll_ctl(w->epoll, EPOLL_CTL_DEL, o->fd, NULL);
  w->by_fd.at[o->fd] = NULL;
  if ((*o->link = o->next)) o->next->link = o->link;
  watch_unlock(w);
  free(o);
}

void watch_each(watch *w, void (*fn)(void *, void *), void *ctx) {
  watch_lock(w);
  for (watched *o = w->first; o; o = o->next) fn(ctx, o->about);
  watch_unlock(w);
}
