// Flags of Linux's sockets. They are set after the call; until then a started program would inherit the descriptor, and
// ptxas is the only one that Weft starts. Writing to a closed socket is an error and no signal, since SIGPIPE is
// ignored.
#ifndef WEFT_MACOS_SOCKET_H
#define WEFT_MACOS_SOCKET_H
#include_next <sys/socket.h>
#include <fcntl.h>
enum { SOCK_CLOEXEC = 0x10000, SOCK_NONBLOCK = 0x20000, MSG_CMSG_CLOEXEC = 0 };
static inline int posix_socket(int family, int type, int protocol) {
  int fd = socket(family, type & 0xffff, protocol);
  if (fd >= 0 && type & SOCK_CLOEXEC) fcntl(fd, F_SETFD, FD_CLOEXEC);
  if (fd >= 0 && type & SOCK_NONBLOCK) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}
static inline int posix_socketpair(int family, int type, int protocol, int fds[2]) {
  int failed = socketpair(family, type & 0xffff, protocol, fds);
  for (int i = 0; !failed && type & SOCK_CLOEXEC && i < 2; i++) fcntl(fds[i], F_SETFD, FD_CLOEXEC);
  return failed;
}
#define socket posix_socket
#define socketpair posix_socketpair
#endif
