// Detects departures by polling every connection ten times a second: poll does not report a half-closed connection
// while it has unread bytes. See departures.h.
#include "serve/departures.h"
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

struct polled_fd { int fd; uint32_t mark; bool told; };
struct departures { pthread_mutex_t lock; VEC(struct polled_fd) all; };

departures *departures_open(void) {
  departures *d = xcalloc(1, sizeof *d);
  pthread_mutex_init(&d->lock, NULL);
  return d;
}

void departures_close(departures *d) {
  pthread_mutex_destroy(&d->lock);
  vec_free(&d->all);
  free(d);
}

void departures_add(departures *d, int fd, uint32_t mark) {
  struct polled_fd one = {fd, mark, false};
  pthread_mutex_lock(&d->lock);
  vec_push(&d->all, one);
  pthread_mutex_unlock(&d->lock);
}

void departures_remove(departures *d, int fd) {
  pthread_mutex_lock(&d->lock);
  for (size_t i = 0; i < d->all.n; i++)
    if (d->all.at[i].fd == fd) {
      d->all.at[i] = d->all.at[--d->all.n];
      break;
    }
  pthread_mutex_unlock(&d->lock);
}

static int look_at_all(departures *d, struct departure *out, int most) {
  int n = 0;
  pthread_mutex_lock(&d->lock);
  for (size_t i = 0; i < d->all.n && n < most; i++) {
    struct polled_fd *one = &d->all.at[i];
    char next;
    // not recv, which the program replaces for libmicrohttpd (http.c)
    ssize_t got = one->told ? 1 : recvfrom(one->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT, NULL, NULL);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) continue;
    one->told = true;
    out[n++] = (struct departure){(uint32_t)one->fd, one->mark, got < 0};
  }
  pthread_mutex_unlock(&d->lock);
  return n;
}

int departures_wait(departures *d, struct departure *out, int most, int ms) {
  enum { LOOK_MS = 100 };
  int n = look_at_all(d, out, most);
  for (int waited = 0; !n && waited < ms; waited += LOOK_MS) {
    nanosleep(&(struct timespec){0, LOOK_MS * 1000000}, NULL);
    n = look_at_all(d, out, most);
  }
  return n;
}
