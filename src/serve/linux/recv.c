// libmicrohttpd reads with recv(), or with gnutls_record_recv() for TLS. The dynamic linker finds both in the program
// first, which exports them (cmake/command.cmake): these functions then replace the originals, for libmicrohttpd and
// any other caller, such as a libcurl with GnuTLS. See recv.h.
#define _GNU_SOURCE
#include "serve/recv.h"
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

ssize_t recv(int fd, void *to, size_t n, int flags) {
  ssize_t got = recvfrom(fd, to, n, flags, NULL, NULL);
  if (got <= 0 || http_takes(fd, NULL, to, got)) return got;
  errno = ECONNRESET;
  return -1;
}

// A function of GnuTLS, which the calling library has loaded: it is not in the program's scope.
static void *find_tls(const char *name) {
  void *library = dlopen("libgnutls.so.30", RTLD_LAZY | RTLD_NOLOAD);
  return library ? dlsym(library, name) : NULL;
}

ssize_t gnutls_record_recv(void *session, void *to, size_t n);
ssize_t gnutls_record_recv(void *session, void *to, size_t n) {
  enum { PULL_ERROR = -54 };           // GNUTLS_E_PULL_ERROR
  static ssize_t (*next)(void *, void *, size_t);
  static int (*fd_of)(void *);
  if (!next) *(void **)&next = find_tls("gnutls_record_recv");
  if (!fd_of) *(void **)&fd_of = find_tls("gnutls_transport_get_int");
  if (!next || !fd_of) return PULL_ERROR;
  ssize_t got = next(session, to, n);
  return got <= 0 || http_takes(fd_of(session), session, to, got) ? got : PULL_ERROR;
}

ssize_t tls_send(void *session, const void *bytes, size_t n) {
  static ssize_t (*next)(void *, const void *, size_t);
  if (!next) *(void **)&next = find_tls("gnutls_record_send");
  return next ? next(session, bytes, n) : -1;
}
