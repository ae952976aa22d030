// watch: a second look at the sockets of all connections: who has left, and whose time is up.  A client that goes while
// its answer is being made shows in nothing that libmicrohttpd reads; here it shows at once.  Time that is up shuts the
// socket, which libmicrohttpd then notices.
#ifndef WEFT_SERVE_WATCH_H
#define WEFT_SERVE_WATCH_H
#include "base/base.h"

typedef struct watch watch;
// deadline 0: none
typedef struct watched {
  int fd;
  uint32_t mark;                           // no other connection of late has it, whatever its descriptor
  _Atomic double deadline;
  void *about;
  struct watched *next, **link;
} watched;

struct watch_calls {
  // The client sends no more; the lock of the watch is held, so `about` exists.  gone: it does not read any more
  // either, or its time is up; otherwise that shows only when something is sent, since TCP says the same of both.  What
  // it returns, unless NULL,
  void *(*left)(void *ctx, void *about, bool gone);
  void (*after)(void *ctx, void *what, bool gone);     // comes here when the lock is free
  void (*tick)(void *ctx);                 // twice a second, without the lock
  void *ctx;
};
int watch_start(const struct watch_calls *calls, watch **out, error *err);
void watch_stop(watch *w);
watched *watch_add(watch *w, int fd, void *about, double deadline);
void watch_remove(watch *w, watched *one);
static inline void watch_until(watched *one, double deadline) { one->deadline = deadline; }
void watch_each(watch *w, void (*fn)(void *ctx, void *about), void *ctx);
void watch_lock(watch *w);             // while it is held nothing is removed
void watch_unlock(watch *w);
#endif
