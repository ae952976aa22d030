// watch: watches the sockets of all connections for clients that leave and for deadlines. libmicrohttpd reads nothing
// while an answer is made, so it does not see a client that leaves; here it shows at once. A missed deadline shuts the
// socket down, which libmicrohttpd then notices.
#ifndef WEFT_SERVE_WATCH_H
#define WEFT_SERVE_WATCH_H
#include "base/base.h"

typedef struct watch watch;
// deadline 0: none
typedef struct watched {
  int fd;
  uint32_t mark;                           // unique among recent connections, even for a reused descriptor
  _Atomic double deadline;
  void *about;
  struct watched *next, **link;
} watched;

struct watch_calls {
  // The client sends no more; called with the watch's lock held, so `about` exists. gone: it does not read either, or
  // its deadline has passed; otherwise only sending shows that, since TCP does not distinguish the two. Its result,
  // unless NULL,
  void *(*left)(void *ctx, void *about, bool gone);
  void (*after)(void *ctx, void *what, bool gone);     // is passed here after the lock is released
  void (*tick)(void *ctx);                 // twice a second, without the lock
  void *ctx;
};
int watch_start(const struct watch_calls *calls, watch **out, error *err);
void watch_stop(watch *w);
watched *watch_add(watch *w, int fd, void *about, double deadline);
void watch_remove(watch *w, watched *one);
static inline void watch_until(watched *one, double deadline) { one->deadline = deadline; }
void watch_each(watch *w, void (*fn)(void *ctx, void *about), void *ctx);
void watch_lock(watch *w);             // nothing is removed while it is held
void watch_unlock(watch *w);
#endif
