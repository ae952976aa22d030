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
#include "base/account.h"
#include "base/str.h"

typedef struct http http;
typedef struct exchange exchange;

struct http_options {
  int listen_fd;                       // is closed by http_stop
  bool given;                          // by another process, which keeps it: connections that wait in it are its own
  int max_connections;
  size_t max_body;
  account *memory;                     // of all messages and answers together
  size_t most_bytes;                   // that one of them may hold, and seconds of processors that it may take
  double most_work_s;
  char *tls_key, *tls_certificate;     // their texts, in PEM; NULL: no TLS
  double header_s, body_s, idle_s,
    write_s;  // until a header is whole; between pieces of a body; between messages; between readings of an answer
  // A message is here: called on the thread of the sockets, so it may not wait.  `begin` when its header is: 0, or it
  // has answered.
  int (*begin)(void *ctx, exchange *x);
  // and when its body is: x is to be answered by somebody, who then lets it go
  void (*ready)(void *ctx, exchange *x);
  // The connection is done with it, and so are those who work for it: once, from any thread but that of the steps.
  void (*over)(void *ctx, exchange *x);
  void (*malformed)(void *ctx, const char *why);       // bytes came that are no message: on the thread of the sockets
  void *ctx;
};

struct exchange_header { const char *name; char *value; };
enum { MAX_EXTRA_HEADERS = 16 };

// Gets what a stream sends, but for pings, and lets its client leave: on_gone is not called then. begin: NULL for no
// copy; what it returns is `copy` of the others. All are called without a lock of http.c.
struct exchange_copier {
  void *(*begin)(void *ctx, exchange *x, const char *id, const char *type);
  void (*add)(void *ctx, void *copy, const char *text, size_t n);
  void (*end)(void *ctx, void *copy);
};

struct exchange {
  char *method, *path;
  str body;
  int key;                             // who asks: an index of guard's names; -1: nobody in particular
  const struct route *route;           // both set by `begin`
  const char *allowed_origin;           // only within `begin`
  void *own;                           // of those who answer, with what frees it
  void (*own_free)(void *own);
  account account;                     // of all that is made for it; it lives as long as x
  char why[320];                       // for the log: why it is refused or has failed; "": it is not, or nobody said
  double began, over;                  // when its header was there, and when its connection was done with it
  int open_ends;                       // of the connection, and of those who work for it
  // ---- the rest belongs to http.c
  http *h;
  struct connection *conn;
  struct MHD_Connection *mhd;          // NULL: libmicrohttpd has done with it
  pthread_mutex_t lock;
  int refs, status;
  bool begun, ended, streams, asleep, gone, refused, swallow, sent;
  bool v1_1;
  bool whole;                          // its body is here, and libmicrohttpd knows that it waits for us
  bool given;                          // `ready` has been called
  bool half_closed;                    // the client sends no more; it may still read
  bool probes;                         // the thread of the sockets is to find out whether it does
  const char *type, *ping;
  str out;
  size_t taken;                        // bytes of it that have been read
  double last_out, last_probe;
  struct exchange_header extra[MAX_EXTRA_HEADERS];
  int n_extra;
  void (*on_gone)(void *ctx);
  void *gone_ctx;
  bool cancelled;
  const struct exchange_copier *copier;
  void *copier_ctx, *copy;
  const char *copy_id;
};

int http_start(const struct http_options *o, http **out, error *err);
void http_quiet(http *h);              // accepts no more connections
void http_stop(http *h);               // ends every connection and all threads
void http_free(http *h);               // when it has stopped and nobody holds an exchange any more
void http_trim(http *h);               // gives back what large messages and answers have held: once in a while
int http_connections(http *h);
int http_busy(http *h);                // messages that are not answered to the end

// A header of the message, or NULL.  Only from `begin`.
const char *exchange_asked(const exchange *x, const char *name);
// the same of what stands behind the ? of its path
const char *exchange_query(const exchange *x, const char *name);
// before the answer begins
void exchange_header(exchange *x, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
void exchange_send(exchange *x, int status, const char *type, const char *body, size_t n);     // the whole answer
void exchange_give(exchange *x, int status, const char *type, str *body);      // the same; takes what is in body
// The answer comes bit by bit.  ping: text that is sent when nothing else has been for a while, or NULL.
void exchange_stream(exchange *x, const char *type, const char *ping);
bool exchange_add(exchange *x, const char *text, size_t n);     // false: the client has gone, or does not read
void exchange_end(exchange *x);
// fn is called once, from any thread, when the client goes before the answer is complete; at once if it has.  It may
// not touch x. NULL: no longer, and a call under way has returned.
void exchange_when_gone(exchange *x, void (*fn)(void *ctx), void *ctx);
// If x becomes a stream, it is copied. id lives as long as x.
void exchange_copy(exchange *x, const struct exchange_copier *copier, void *ctx, const char *id);
void exchange_cancel(exchange *x);     // calls what exchange_when_gone named, as if the client had left
bool exchange_gone(exchange *x);
// Work for x begins and has ended; `over` waits for that, also if the connection is gone.
void exchange_work(exchange *x);
void exchange_worked(exchange *x);
exchange *exchange_hold(exchange *x);
void exchange_drop(exchange *x);
#endif
