// Whole messages over a socket: see message.h.
#define _GNU_SOURCE
#include "base/message.h"
#include <errno.h>
#include <sys/socket.h>

bool message_send(int fd, struct iovec *parts, size_t n) {
  while (n) {
    ssize_t sent = sendmsg(fd, &(struct msghdr){.msg_iov = parts, .msg_iovlen = n}, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    for (; n && (size_t)sent >= parts->iov_len; parts++, n--) sent -= (ssize_t)parts->iov_len;
    if (n) *parts = (struct iovec){(char *)parts->iov_base + sent, parts->iov_len - (size_t)sent};
  }
  return true;
}

bool message_receive(int fd, void *to, size_t n) {
  for (char *at = to; n;) {
    ssize_t got = recv(fd, at, n, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    n -= (size_t)got;
  }
  return true;
}
