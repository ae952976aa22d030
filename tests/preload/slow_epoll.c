// Loaded before weft (LD_PRELOAD): what takes a descriptor out of an epoll set first waits, on the main thread for 0.2
// s and on others for 0.5 s. So a server's own thread is always late where it takes the listening socket out of its
// set, when the server ends.
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

int epoll_ctl(int set, int op, int fd, struct epoll_event *event) {
  if (op == EPOLL_CTL_DEL) usleep(getpid() == gettid() ? 200000 : 500000);
  return (int)syscall(SYS_epoll_ctl, set, op, fd, event);
}
