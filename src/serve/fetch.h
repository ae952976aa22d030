// fetch: pictures and sounds from the network, for requests that name them by a URL. Off unless the operator names
// hosts (--allow-media-from).
//
// A server whose sandbox is on can make no connections. A process that is made before it has read anything makes them:
// it gets URLs through a socket, and each is fetched by a child of its own (fetch_child.c). What decides is in it, not
// here: a server that is somebody else's by now can fetch what the list allows, and nothing else.
//
// A URL is fetched if its host is in the list, also after each redirection. A name leads to addresses of the Internet
// only: the address of each connection is checked when the connection is made, so that a name cannot lead elsewhere in
// between. Addresses of a machine's own or of private networks are fetched from only if the list has them literally,
// with their port: then no name and no DNS server decides where a request goes.
#ifndef WEFT_SERVE_FETCH_H
#define WEFT_SERVE_FETCH_H
#include "base/base.h"
#include <sys/types.h>
#include "serve/serve.h"

// One of the list. port 0: 80 for http, 443 for https.
typedef struct fetch_rule { char host[256]; int port; bool is_address; } fetch_rule;
int fetch_rule_parse(const char *text, fetch_rule *out, error *err);
// Whether a host, in small letters and without brackets, is fetched from at this port.
const fetch_rule *fetch_rule_for(const fetch_rule *rules, size_t n, const char *host, int port, bool https);

// bytes of a file; of a URL; seconds for all that a request names
enum { FETCH_MOST = 32 << 20, FETCH_S = 10, FETCH_REDIRECTS = 3, FETCH_URL = 8192, FETCH_ALL_S = 30 };
// What the child says: pieces of the file, then its end, or why not.
enum { FETCH_MAGIC = 0x46544657 };
enum fetch_said { FETCH_BYTES, FETCH_END, FETCH_REFUSED };
struct fetch_piece { uint32_t magic, said, n; };       // n bytes follow
NORETURN void fetch_serve(int fd, const fetch_rule *rules, size_t n);          // the process itself

// What comes: `take` is called for each piece; not 0 ends it. `left` says whether the asker has gone meanwhile. until:
// of now_s(), when the time for all files of a request is over.
typedef struct fetch_sink {
  int (*take)(void *ctx, const void *at, size_t n);
  bool (*left)(void *ctx);
  void *ctx;
  double until;
} fetch_sink;
// FETCH_TAKEN: `take` ended it, or the asker has left.
enum { FETCH_FAILED = -1, FETCH_LATER = -2, FETCH_TAKEN = -3 };
// first: the socket through which it gets the ends of other sockets, one for each URL.
struct serve_fetcher { pid_t process; int first; fetch_rule *rules; size_t n; };
int fetch_url(const serve_fetcher *f, const char *url, size_t n, const fetch_sink *to, error *err);
#endif
