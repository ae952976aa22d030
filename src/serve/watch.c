// The watching thread: see watch.h.
#define _GNU_SOURCE
#include "serve/watch.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "serve/departures.h"

struct left_one { void *what; bool gone; };
typedef VEC(struct left_one) left_list;
struct watch {
  departures *left;
  pthread_t thread;
  pthread_mutex_t lock;
  watched *first;
  uint32_t n_added;                    // connections so far: the mark of the next one
  VEC(watched *) by_fd;                // events may be of removed connections, hence the lookup
  atomic_bool stop;
  struct watch_calls calls;
};

void watch_lock(watch *w) { pthread_mutex_lock(&w->lock); }
void watch_unlock(watch *w) { pthread_mutex_unlock(&w->lock); }

static void leave_watched(watch *w, watched *o, bool gone, left_list *all) {
  void *what = w->calls.left(w->calls.ctx, o->about, gone);
  if (what) vec_push(all, ((struct left_one){what, gone}));
}

static void check_deadlines(watch *w, double now, left_list *all) {
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
  struct departure left[MANY];
  left_list all = {0};
  double ticked = now_s();
  while (!w->stop) {
    int n = departures_wait(w->left, left, MANY, TICK_MS);
    double now = now_s();
    bool due = now - ticked > 0.0009 * TICK_MS;
    watch_lock(w);
    for (int i = 0; i < n; i++) {
      watched *o = left[i].fd < w->by_fd.n ? w->by_fd.at[left[i].fd] : NULL;
      // the connection may have been closed since the event, and its descriptor reused
      if (o && o->mark == left[i].mark) leave_watched(w, o, left[i].gone, &all);
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
  departures *left = departures_open();
  if (!left) return error_set(err, "connections cannot be watched: %s", strerror(errno));
  watch *w = xcalloc(1, sizeof *w);
  w->left = left;
  w->calls = *calls;
  pthread_mutex_init(&w->lock, NULL);
  *out = w;
  if (!pthread_create(&w->thread, NULL, watch_loop, w)) return 0;
  *out = NULL;
  departures_close(left);
  free(w);
  return error_set(err, "no thread could be made to watch connections");
}

void watch_stop(watch *w) {
  if (!w) return;
  w->stop = true;
  pthread_join(w->thread, NULL);
  departures_close(w->left);
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
  departures_add(w->left, fd, o->mark);
  watch_unlock(w);
  return o;
}

void watch_remove(watch *w, watched *o) {
  watch_lock(w);
  departures_remove(w->left, o->fd);
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
