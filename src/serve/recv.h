// recv: checks the bytes that libmicrohttpd reads before it parses them, for which it has no hook. Its read functions
// are replaced by this program's, in a way specific to each system (linux/, other/, windows/). If that fails,
// first_look of http.c refuses everything.
#ifndef WEFT_SERVE_RECV_H
#define WEFT_SERVE_RECV_H
#include <sys/types.h>
#include "base/base.h"

// n > 0 bytes arrived on a connection; tls: its session, or NULL. False: they are refused, and the caller reports a
// broken connection. May rename headers (framing.h). True for connections of other code.
bool http_takes(int fd, const void *tls, char *bytes, ssize_t n);

// Sends through libmicrohttpd's TLS library. -1: failed, or there is no TLS.
ssize_t tls_send(void *session, const void *bytes, size_t n);
#endif
