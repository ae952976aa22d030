// Sends and receives whole messages over a socket: see message.h.
#define _GNU_SOURCE
#include "base/message.h"
#include <errno.h>
#include <string.h>
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

int message_receive_fd(int over, bool *more) {
  char byte;
  int fd = -1;
  union { char at[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } space = {0};
  struct iovec one = {&byte, 1};
  struct msghdr m = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = space.at, .msg_controllen = sizeof space.at};
  ssize_t got = recvmsg(over, &m, MSG_CMSG_CLOEXEC);
  *more = got > 0 || (got < 0 && errno == EINTR);
  struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&m) : NULL;
  if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
  return fd;
}
