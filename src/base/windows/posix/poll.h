// poll for sockets.
#ifndef WEFT_WINDOWS_POLL_H
#define WEFT_WINDOWS_POLL_H
#include "base/windows/posix/sys/socket.h"
#define POLLRDHUP 0
typedef unsigned long nfds_t;
int posix_poll(struct pollfd *fds, nfds_t n, int ms);
#define poll posix_poll
#endif
