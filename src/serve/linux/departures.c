// Detects departures with epoll: see departures.h.
#define _GNU_SOURCE
#include "serve/departures.h"
#include <sys/epoll.h>
#include <unistd.h>

struct departures { int epoll; };

departures *departures_open(void) {
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return NULL;
  departures *d = xcalloc(1, sizeof *d);
  d->epoll = epoll;
  return d;
}

void departures_close(departures *d) {
  close(d->epoll);
  free(d);
}

void departures_add(departures *d, int fd, uint32_t mark) {
  struct epoll_event e = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = (uint64_t)mark << 32 | (uint32_t)fd};
  epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &e);      // on failure, departures are noticed when the answer is written
}

void departures_remove(departures *d, int fd) { epoll_ctl(d->epoll, EPOLL_CTL_DEL, fd, NULL); }

int departures_wait(departures *d, struct departure *out, int most, int ms) {
  enum { MANY = 64 };
  struct epoll_event events[MANY];
  int n = epoll_wait(d->epoll, events, most < MANY ? most : MANY, ms);
  for (int i = 0; i < n; i++)
    out[i] = (struct departure){(uint32_t)events[i].data.u64, (uint32_t)(events[i].data.u64 >> 32),
                                events[i].events & (EPOLLHUP | EPOLLERR)};
  return n;
}
