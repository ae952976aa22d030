// libmicrohttpd is linked into the program, so it calls this recv(). There is no TLS. See recv.h.
#include "serve/recv.h"
#include <errno.h>
#include <sys/socket.h>

ssize_t recv(int fd, void *to, size_t n, int flags) {
  ssize_t got = recvfrom(fd, to, n, flags, NULL, NULL);
  if (got <= 0 || http_takes(fd, NULL, to, got)) return got;
  errno = ECONNRESET;
  return -1;
}

ssize_t tls_send(void *session, const void *bytes, size_t n) { return (void)session, (void)bytes, (void)n, -1; }
