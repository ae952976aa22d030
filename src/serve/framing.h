// framing: finds the begin and end of HTTP/1 messages, strictly. libmicrohttpd 0.9.75 accepts line ends without CR,
// folded headers, and NUL; a proxy in front may see other messages in such bytes (request smuggling). All bytes of a
// connection pass through here first, as they are read; violations of RFC 9112 are errors. Invariant: for an accepted
// message, this and libmicrohttpd see the same end, or http.c refuses it by its headers.
#ifndef WEFT_SERVE_FRAMING_H
#define WEFT_SERVE_FRAMING_H
#include "base/base.h"

struct framing {
  enum framing_state {
    FRAMING_START, FRAMING_REQUEST, FRAMING_LINE_START, FRAMING_LINE, FRAMING_BODY, FRAMING_CHUNK, FRAMING_EXTENSION,
    FRAMING_DATA, FRAMING_DATA_END, FRAMING_REST
  } state;
  // cr: the previous byte was CR; unclear: a transfer coding that http.c refuses
  bool cr, trailer, chunked, has_length, unclear;
  int spaces, arguments, hosts;        // of the request line; of the query; Host headers
  char last;                           // previous character of the request line
  int digits;                          // of a chunk's size
  uint64_t left;                       // bytes left of the body or the chunk
  size_t n;                            // length of the line's stored beginning
  char line[80];
  bool seen;                           // some bytes have arrived
};

// Returns NULL, or the error in the next n bytes, after which no more may be added. Renames Cookie headers: they are
// not used, and libmicrohttpd parses them in memory that a few hundred can fill, after which it answers not at all, or
// twice.
const char *framing_add(struct framing *f, char *bytes, size_t n);
#endif
