// framing: where a message of HTTP/1 begins and ends, read strictly.  libmicrohttpd 0.9.75 takes line ends without CR,
// folded headers, and NUL; a proxy in front may see other messages in the same bytes (request smuggling).  All bytes of
// a connection come here first, in the pieces in which they are read; what RFC 9112 does not allow is an error.
// Invariant: of an accepted message, this and libmicrohttpd see the same end, or http.c refuses it by its headers.
#ifndef WEFT_SERVE_FRAMING_H
#define WEFT_SERVE_FRAMING_H
#include "base/base.h"

struct framing {
  enum framing_state {
    FRAMING_START, FRAMING_REQUEST, FRAMING_LINE_START, FRAMING_LINE, FRAMING_BODY, FRAMING_CHUNK, FRAMING_EXTENSION,
    FRAMING_DATA, FRAMING_DATA_END, FRAMING_REST
  } state;
  // cr: the byte before was one; unclear: a coding that http.c refuses
  bool cr, trailer, chunked, has_length, unclear;
  int spaces, arguments, hosts;        // of the request line; headers with this name
  char last;                           // character of the request line
  int digits;                          // of a chunk's size
  uint64_t left;                       // bytes of the body or the chunk
  size_t n;                            // of the line's beginning, which is kept
  char line[80];
  bool seen;                           // there were bytes
};

// NULL, or what is wrong with the next n bytes; then there may be no more. Cookies get another name: nobody here reads
// them, and libmicrohttpd takes them to pieces in memory that a few hundred fill; then it answers not at all, or twice.
const char *framing_add(struct framing *f, char *bytes, size_t n);
#endif
