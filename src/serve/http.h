// http: connections, messages and answers, on top of libmicrohttpd. Input is an `exchange`: one message with its whole
// body, checked for violations of HTTP. Output is either a whole answer or a stream that grows as workers add to it.
//
// One thread reads and writes all sockets and never blocks: while an answer is made its connection is suspended. A
// second thread watches the sockets for clients that leave and for deadlines, which libmicrohttpd does not see on a
// suspended connection. Invariant: an exchange is answered once; output for a client that has gone is dropped.
#ifndef WEFT_SERVE_HTTP_H
#define WEFT_SERVE_HTTP_H
#include <pthread.h>
#include "base/account.h"
#include "base/str.h"

typedef struct http http;
typedef struct exchange exchange;

struct http_options {
  int listen_fd;                       // closed by http_stop
  bool given;                          // owned by another process: pending connections remain that process's
  int max_connections;
  size_t max_body;
  account *memory;                     // for all messages and answers together
  size_t most_bytes;                   // per message: maximum bytes, and seconds of processor time
  double most_work_s;
  char *tls_key, *tls_certificate;     // PEM texts; NULL: no TLS
  double header_s, body_s, idle_s,
    write_s;  // seconds: for a header; between pieces of a body; between messages; between reads of an answer
  // A message has arrived; called on the socket thread, which must not block. `begin` after its header: returns 0, or
  // nonzero if it has answered.
  int (*begin)(void *ctx, exchange *x);
  // after its body: a worker must answer x and then release it
  void (*ready)(void *ctx, exchange *x);
  // The connection and all workers are done with it: called once, from any thread except the step thread.
  void (*over)(void *ctx, exchange *x);
  void (*malformed)(void *ctx, const char *why);       // bytes that are not a message; on the socket thread
  void *ctx;
};

struct exchange_header { const char *name; char *value; };
enum { MAX_EXTRA_HEADERS = 16 };

// Receives a copy of a stream without pings, and lets its client leave: on_gone is then not called. begin: NULL for no
// copy; its result is `copy` of the other functions. All are called without a lock of http.c.
struct exchange_copier {
  void *(*begin)(void *ctx, exchange *x, const char *id, const char *type);
  void (*add)(void *ctx, void *copy, const char *text, size_t n);
  void (*end)(void *ctx, void *copy);
};

// Makes an answer in pieces. more: called on the socket thread, which it must not block, whenever all pieces are sent;
// then exchange_add adds one, on any thread, or exchange_leave ends the connection.
struct exchange_source { void (*more)(exchange *x); void (*close)(void *ctx); void *ctx; };

struct exchange {
  char *method, *path;
  str body;
  int key;                             // the client's key: an index of guard's names; -1: none
  const struct route *route;           // both set by `begin`
  const char *allowed_origin;           // valid only within `begin`
  void *own;                           // of the worker, with its destructor
  void (*own_free)(void *own);
  account account;                     // of everything made for it; lives as long as x
  char why[320];                       // for the log: why it was refused or failed; "": no reason given
  double began, over;                  // time of its header, and when its connection was done
  int open_ends;                       // references: of the connection, and of workers
  // ---- private to http.c
  http *h;
  struct connection *conn;
  struct MHD_Connection *mhd;          // NULL: libmicrohttpd is done with it
  pthread_mutex_t lock;
  int refs, status;
  bool begun, ended, streams, asleep, gone, refused, swallow, sent;
  bool v1_1;
  bool whole;                          // the body is complete, and libmicrohttpd knows that an answer is pending
  bool given;                          // `ready` has been called
  bool half_closed;                    // the client sends no more; it may still read
  bool probes;                         // the socket thread must probe whether it does
  const char *type, *ping;
  str out;
  size_t taken;                        // bytes of it that have been read
  const char *fixed;                   // the whole answer instead of `out`; n_fixed bytes that outlive x
  size_t n_fixed;
  struct exchange_source source;       // of an answer of `size` bytes in pieces; the rest is NULL otherwise
  uint64_t size;
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
void http_quiet(http *h);              // stops accepting connections
void http_stop(http *h);               // closes every connection and ends all threads
void http_free(http *h);               // after http_stop, when no exchange is held any more
void http_trim(http *h);               // returns memory of large messages to the system: call it periodically
int http_connections(http *h);
int http_busy(http *h);                // messages without a complete answer

// A header of the message, or NULL. Only from `begin`.
const char *exchange_asked(const exchange *x, const char *name);
// a parameter of its query, or NULL
const char *exchange_query(const exchange *x, const char *name);
// before the answer begins
void exchange_header(exchange *x, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);
void exchange_send(exchange *x, int status, const char *type, const char *body, size_t n);     // sends the whole answer
// Takes the text in body. One of more than EXCHANGE_SMALL bytes is charged to x's account already.
void exchange_give(exchange *x, int status, const char *type, str *body);
enum { EXCHANGE_SMALL = 64 << 10 };
void exchange_send_fixed(exchange *x, const char *type, const char *at, size_t n);     // the bytes are not copied
void exchange_send_pieces(exchange *x, const char *type, uint64_t n, const struct exchange_source *source);
// Begins a streamed answer. ping: text sent when nothing else was sent for a while, or NULL.
void exchange_stream(exchange *x, const char *type, const char *ping);
bool exchange_add(exchange *x, const char *text, size_t n);     // false: the client has gone, or does not read
void exchange_end(exchange *x);
// Calls fn once, from any thread, when the client leaves before the answer is complete; at once if it has left. fn must
// not touch x. NULL: cancels, and a running call has returned.
void exchange_when_gone(exchange *x, void (*fn)(void *ctx), void *ctx);
// If x becomes a stream, it is copied. id lives as long as x.
void exchange_copy(exchange *x, const struct exchange_copier *copier, void *ctx, const char *id);
void exchange_leave(exchange *x);      // as if the client had left; an answer that has begun is cut
void exchange_cancel(exchange *x);     // calls the function of exchange_when_gone, as if the client had left
bool exchange_gone(exchange *x);
// Work for x begins and ends; `over` waits for it, even if the connection is gone.
void exchange_work(exchange *x);
void exchange_worked(exchange *x);
exchange *exchange_hold(exchange *x);
void exchange_drop(exchange *x);
#endif
