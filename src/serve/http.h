// http: connections, messages and answers, on top of libmicrohttpd.  What comes in is an `exchange`: one message with
// its whole body, already checked for what HTTP forbids.  What goes out is either a whole answer or a stream that grows
// as somebody adds to it.
//
// One thread reads and writes all sockets; it never waits for anybody: while an answer is being made its connection
// sleeps.  A second thread watches the same sockets for clients that leave and for deadlines, neither of which
// libmicrohttpd sees of a connection that sleeps. Invariant: an exchange is answered once; whatever is added to one
// whose client has gone is dropped.
#ifndef WEFT_SERVE_HTTP_H
#define WEFT_SERVE_HTTP_H
#include <pthread.h>
#include "base/str.h"

typedef struct http http;
typedef struct exchange exchange;

struct http_options {
  int listen_fd;                       // is closed by http_stop
  int max_connections;
  size_t max_body;
  double header_s, body_s, idle_s,
    write_s;  // until a header is whole; between pieces of a body; between messages; between readings of an answer
  // A message is here: called on the thread of the sockets, so it may not wait.  `begin` when its header is: 0, or it
  // has answered.
  int (*begin)(void *ctx, exchange *x);
  // and when its body is: x is to be answered by somebody, who then lets it go
  void (*ready)(void *ctx, exchange *x);
  void *ctx;
};

struct exchange_header { const char *name; char value[192]; };
enum { MAX_EXTRA_HEADERS = 8 };

struct exchange {
  char *method, *path;
  str body;
  int key;                             // who asks: an index of guard's names; -1: nobody in particular
  const struct route *route;           // both set by `begin`
  const char *allowed_origin;
  void *own;                           // of those who answer, with what frees it
  void (*own_free)(void *own);
  // ---- the rest belongs to http.c
  http *h;
  struct connection *conn;
  struct MHD_Connection *mhd;          // NULL: libmicrohttpd has done with it
  pthread_mutex_t lock;
  int refs, status;
  bool begun, ended, streams, asleep, gone, refused, swallow, sent;
  const char *type, *ping;
  str out;
  size_t taken;                        // bytes of it that have been read
  size_t held;                         // bytes that are counted for it
  double last_out;
  struct exchange_header extra[MAX_EXTRA_HEADERS];
  int n_extra;
  void (*on_gone)(void *ctx);
  void *gone_ctx;
};

int http_start(const struct http_options *o, http **out, error *err);
void http_quiet(http *h);              // accepts no more connections
void http_stop(http *h);               // ends every connection and all threads
void http_free(http *h);               // when it has stopped and nobody holds an exchange any more
int http_connections(http *h);
int http_busy(http *h);                // messages that are not answered to the end

// A header of the message, or NULL.  Only from `begin`.
const char *exchange_asked(const exchange *x, const char *name);
// the same of what stands behind the ? of its path
const char *exchange_query(const exchange *x, const char *name);
// before the answer begins
void exchange_header(exchange *x, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
void exchange_send(exchange *x, int status, const char *type, const char *body, size_t n);     // the whole answer
// The answer comes bit by bit.  ping: text that is sent when nothing else has been for a while, or NULL.
void exchange_stream(exchange *x, const char *type, const char *ping);
bool exchange_add(exchange *x, const char *text, size_t n);     // false: the client has gone, or does not read
void exchange_end(exchange *x);
// fn is called once, from any thread, when the client goes before the answer is complete; at once if it has.  It may
// not touch x. NULL: no longer, and a call under way has returned.
void exchange_when_gone(exchange *x, void (*fn)(void *ctx), void *ctx);
exchange *exchange_hold(exchange *x);
void exchange_drop(exchange *x);
#endif
