// Sends and receives whole messages over a socket: see message.h.
#define _GNU_SOURCE
#include "base/message.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

bool message_send_now(int fd, char byte) {
  struct iovec one = {&byte, 1};
  ssize_t sent;
  do sent = sendmsg(fd, &(struct msghdr){.msg_iov = &one, .msg_iovlen = 1}, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent == 1;
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

bool message_send_fd(int over, int fd) {
  char byte = 0;
  union { char at[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } space = {0};
  struct iovec one = {&byte, 1};
  struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = space.at, .msg_controllen = sizeof space.at};
  struct cmsghdr *c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  ssize_t sent;
  do sent = sendmsg(over, &m, MSG_NOSIGNAL); while (sent < 0 && errno == EINTR);
  return sent == 1;
}

// Descriptors of a message, which this process has from now on: how many there are, and the last one.
static size_t take_descriptors(struct msghdr *m, int *fd) {
  size_t n = 0;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof *fd <= c->cmsg_len; at += sizeof *fd, n++) {
      if (n) close(*fd);
      memcpy(fd, (unsigned char *)c + at, sizeof *fd);
    }
  }
  return n;
}

// The space is rounded up and has room for two; the system closes others.
int message_receive_fd(int over, bool *more) {
  char byte;
  int fd = -1;
  union { char at[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } space = {0};
  struct iovec one = {&byte, 1};
  struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = space.at, .msg_controllen = sizeof space.at};
  ssize_t got = recvmsg(over, &m, MSG_CMSG_CLOEXEC);
  *more = got > 0 || (got < 0 && errno == EINTR);
  size_t n = got > 0 ? take_descriptors(&m, &fd) : 0;
  if (n == 1 && !(m.msg_flags & MSG_CTRUNC)) return fd;
  if (n) close(fd);
  return -1;
}
