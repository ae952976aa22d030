// fetch: downloads pictures and sounds for requests that name them by URL. Off unless the operator allows hosts
// (--allow-media-from).
//
// A sandboxed server cannot make connections. A separate process, started before any untrusted input is read, makes
// them: it receives URLs through a socket and fetches each in a child process (fetch_child.c). The list of hosts is
// enforced there: even a compromised server can fetch only what the list allows.
//
// A URL is fetched if its host is in the list, also after each redirection. A host name may lead only to public
// addresses of the Internet: the address is checked when the connection is made, so DNS cannot redirect it in between.
// Addresses of this machine or of private networks are allowed only if the list contains them literally, with their
// port; then no name and no DNS server decides where a request goes.
#ifndef WEFT_SERVE_FETCH_H
#define WEFT_SERVE_FETCH_H
#include "base/base.h"
#include <sys/types.h>
#include "serve/serve.h"

// An entry of the list. port 0: 80 for http, 443 for https.
typedef struct fetch_rule { char host[256]; int port; bool is_address; } fetch_rule;
int fetch_rule_parse(const char *text, fetch_rule *out, error *err);
// The rule that allows a host (lower case, without brackets) at this port; NULL: not allowed.
const fetch_rule *fetch_rule_for(const fetch_rule *rules, size_t n, const char *host, int port, bool https);

// limits: bytes of a file; seconds per file; redirections; bytes of a URL; seconds for all files of a request
enum { FETCH_MOST = 32 << 20, FETCH_S = 10, FETCH_REDIRECTS = 3, FETCH_URL = 8192, FETCH_ALL_S = 30 };
// Messages of the child: pieces of the file, then the end or an error.
enum { FETCH_MAGIC = 0x46544657 };
enum fetch_said { FETCH_BYTES, FETCH_END, FETCH_REFUSED };
struct fetch_piece { uint32_t magic, said, n; };       // n bytes follow
NORETURN void fetch_serve(int fd, const fetch_rule *rules, size_t n);          // the process itself

// Receives a file: `take` is called for each piece; nonzero stops. `left` returns whether the client has gone. until:
// deadline (now_s()) for all files of a request.
typedef struct fetch_sink {
  int (*take)(void *ctx, const void *at, size_t n);
  bool (*left)(void *ctx);
  void *ctx;
  double until;
} fetch_sink;
// FETCH_TAKEN: `take` stopped it, or the client has gone.
enum { FETCH_FAILED = -1, FETCH_LATER = -2, FETCH_TAKEN = -3 };
// first: the socket that passes the process the ends of other sockets, one per URL.
struct serve_fetcher { pid_t process; int first; fetch_rule *rules; size_t n; };
int fetch_url(const serve_fetcher *f, const char *url, size_t n, const fetch_sink *to, error *err);
#endif
