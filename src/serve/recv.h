// recv: a look at the bytes that libmicrohttpd reads, before it takes them for a message; it has no place for that. Its
// reading functions are found in this program first, in a way of its own on each system (linux/, other/, windows/).
// first_look of http.c refuses everything if they are not.
#ifndef WEFT_SERVE_RECV_H
#define WEFT_SERVE_RECV_H
#include <sys/types.h>
#include "base/base.h"

// n > 0 bytes that came on a connection; tls: its session, or NULL. False: they are refused, and the reader is told
// that the connection is broken. Names of headers may be changed (framing.h). True for all that is none of the server's
// connections.
bool http_takes(int fd, const void *tls, char *bytes, ssize_t n);

// Sends by libmicrohttpd's library of TLS. -1: it cannot, or there is none.
ssize_t tls_send(void *session, const void *bytes, size_t n);
#endif
