// POSIX's socket functions over Winsock: see posix/sys/socket.h.
#include <poll.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>
#undef socket
#undef accept
#undef bind
#undef listen
#undef connect
#undef send
#undef recvfrom
#undef setsockopt
#undef getsockopt

static int fail_with_socket(void) {
  switch (WSAGetLastError()) {
  case WSAEWOULDBLOCK: errno = EWOULDBLOCK; break;
  case WSAEADDRINUSE: errno = EADDRINUSE; break;
  case WSAEADDRNOTAVAIL: errno = EADDRNOTAVAIL; break;
  case WSAEACCES: errno = EACCES; break;
  case WSAECONNREFUSED: errno = ECONNREFUSED; break;
  case WSAECONNRESET: case WSAECONNABORTED: errno = ECONNRESET; break;
  case WSAETIMEDOUT: errno = EAGAIN; break;            // SO_RCVTIMEO or SO_SNDTIMEO expired
  case WSAEINTR: errno = EINTR; break;
  case WSAEMFILE: errno = EMFILE; break;
  case WSAEAFNOSUPPORT: errno = EAFNOSUPPORT; break;
  default: errno = EIO;
  }
  return -1;
}

__attribute__((constructor)) static void start_winsock(void) {
  WSADATA data;
  WSAStartup(MAKEWORD(2, 2), &data);
}

static int done(int failed) { return failed ? fail_with_socket() : 0; }

int posix_socket(int family, int type, int protocol) {
  SOCKET s = socket(family, type & ~SOCK_NONBLOCK, protocol);
  u_long on = 1;
  if (s == INVALID_SOCKET) return fail_with_socket();
  if (type & SOCK_NONBLOCK) ioctlsocket(s, FIONBIO, &on);
  return (int)s;
}

int posix_accept(int fd, struct sockaddr *a, socklen_t *n) {
  SOCKET s = accept((SOCKET)fd, a, n);
  return s == INVALID_SOCKET ? fail_with_socket() : (int)s;
}

int posix_bind(int fd, const struct sockaddr *a, socklen_t n) { return done(bind((SOCKET)fd, a, n)); }
int posix_listen(int fd, int most) { return done(listen((SOCKET)fd, most)); }
int posix_connect(int fd, const struct sockaddr *a, socklen_t n) { return done(connect((SOCKET)fd, a, n)); }

ssize_t posix_send(int fd, const void *from, size_t n, int flags) {
  int sent = send((SOCKET)fd, from, n > INT32_MAX ? INT32_MAX : (int)n, flags);
  return sent < 0 ? fail_with_socket() : sent;
}

ssize_t posix_recvfrom(int fd, void *to, size_t n, int flags, struct sockaddr *a, socklen_t *size) {
  int got = recvfrom((SOCKET)fd, to, n > INT32_MAX ? INT32_MAX : (int)n, flags, a, size);
  return got < 0 ? fail_with_socket() : got;
}

// Winsock's timeouts are in milliseconds, and its exclusive use of an address has another name.
int posix_setsockopt(int fd, int level, int name, const void *at, socklen_t n) {
  DWORD ms;
  if (level == SOL_SOCKET && name == SO_REUSEADDR) name = SO_EXCLUSIVEADDRUSE;
  if (level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO) && n == (socklen_t)sizeof(struct timeval)) {
    const struct timeval *t = at;
    ms = (DWORD)(t->tv_sec * 1000 + t->tv_usec / 1000);
    at = &ms;
    n = sizeof ms;
  }
  return done(setsockopt((SOCKET)fd, level, name, at, n));
}

int posix_getsockopt(int fd, int level, int name, void *at, socklen_t *n) {
  return done(getsockopt((SOCKET)fd, level, name, at, n));
}

int posix_poll(struct pollfd *fds, nfds_t n, int ms) {
  if (!n) return Sleep((DWORD)ms), 0;
  int got = WSAPoll(fds, n, ms);
  return got < 0 ? fail_with_socket() : got;
}

int socketpair(int family, int type, int protocol, int fds[2]) {
  (void)family, (void)type, (void)protocol, (void)fds;
  errno = ENOSYS;
  return -1;
}
