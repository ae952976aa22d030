// Connections and messages: see http.h.  libmicrohttpd parses; what it lets pass and HTTP does not (two lengths, a
// length and chunks, two hosts) is refused here, since a proxy in front may see another message in the same bytes.
#define _GNU_SOURCE
#include "serve/http.h"
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "serve/watch.h"

struct connection { int fd; watched *watch; exchange *x; };
struct http {
  struct http_options o;
  struct MHD_Daemon *daemon;
  watch *watch;
  int n_connections, n_exchanges;
  // once it accepts no more connections: keeps the number of the listening socket; or -1
  int quiet_fd;
  atomic_bool stopping;
  _Atomic size_t held;                 // bytes of all bodies and answers together
};

enum { HEADER_BYTES = 32 << 10, OUT_MAX = 8 << 20, BLOCK = 16 << 10, BODY_TOTAL_S = 600, PING_S = 15 };
// Where all together hold more than ALL_MAX, only small ones may grow.
enum { ALL_MAX = 512 << 20, SMALL = 64 << 10 };

// ---- life of an exchange --------------------------------------------------------------------------------------------

static exchange *exchange_new(http *h, struct connection *conn, struct MHD_Connection *mhd, const char *method,
                              const char *path) {
  exchange *x = xcalloc(1, sizeof *x);
  *x = (exchange){
    .h = h, .conn = conn, .mhd = mhd, .refs = 1, .key = -1, .method = xstrdup(method), .path = xstrdup(path)};
  pthread_mutex_init(&x->lock, NULL);
  __atomic_add_fetch(&h->n_exchanges, 1, __ATOMIC_RELAXED);
  return x;
}

// Adds n bytes to a body or an answer. false: there is no room for them.
static bool add_bytes(exchange *x, str *to, size_t max, const char *at, size_t n) {
  if (n > max || to->n > max - n || (to->n + n > SMALL && x->h->held + n > ALL_MAX)) return false;
  x->h->held += n;
  x->held += n;
  str_addn(to, at, n);
  return true;
}

exchange *exchange_hold(exchange *x) {
  __atomic_add_fetch(&x->refs, 1, __ATOMIC_RELAXED);
  return x;
}

void exchange_drop(exchange *x) {
  if (__atomic_sub_fetch(&x->refs, 1, __ATOMIC_ACQ_REL)) return;
  if (x->own_free) x->own_free(x->own);
  x->h->held -= x->held;
  pthread_mutex_destroy(&x->lock);
  free(x->method);
  free(x->path);
  str_free(&x->body);
  str_free(&x->out);
  free(x);
}

// Both with the lock held. false: all connections are ended (libmicrohttpd ends the program where one sleeps then).
static bool sleep_now(exchange *x) {
  if (x->h->stopping) return false;
  if (!x->asleep) MHD_suspend_connection(x->mhd);
  return x->asleep = true;
}
static void wake(exchange *x) {
  if (!x->asleep || !x->mhd) return;
  x->asleep = false;
  MHD_resume_connection(x->mhd);
}

// The client is gone, or has to be treated as if it were.  on_gone is called with the lock held:
// exchange_when_gone(NULL) waits for it.
static void depart(exchange *x) {
  pthread_mutex_lock(&x->lock);
  if (x->on_gone && !x->gone && !x->ended) x->on_gone(x->gone_ctx);
  x->on_gone = NULL;
  x->gone = true;
  wake(x);
  pthread_mutex_unlock(&x->lock);
}

void exchange_when_gone(exchange *x, void (*fn)(void *), void *ctx) {
  pthread_mutex_lock(&x->lock);
  if (x->gone && fn) fn(ctx);
  x->on_gone = x->gone ? NULL : fn;
  x->gone_ctx = ctx;
  pthread_mutex_unlock(&x->lock);
}

// ---- answers --------------------------------------------------------------------------------------------------------

const char *exchange_asked(const exchange *x, const char *name) {
  return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

const char *exchange_query(const exchange *x, const char *name) {
  return MHD_lookup_connection_value(x->mhd, MHD_GET_ARGUMENT_KIND, name);
}

void exchange_header(exchange *x, const char *name, const char *fmt, ...) {
  if (x->n_extra == MAX_EXTRA_HEADERS) die("serve: an answer with more than %d headers of its own", MAX_EXTRA_HEADERS);
  va_list ap;
  va_start(ap, fmt);
  x->extra[x->n_extra].name = name;
  vsnprintf(x->extra[x->n_extra].value, sizeof x->extra->value, fmt, ap);
  x->n_extra++;
  va_end(ap);
}

static void start_answer(exchange *x, int status, const char *type) {
  if (x->begun) die("serve: %s %s is answered twice", x->method, x->path);
  x->begun = true;
  x->status = status;
  x->type = type;
  x->last_out = now_s();
}

void exchange_send(exchange *x, int status, const char *type, const char *body, size_t n) {
  pthread_mutex_lock(&x->lock);
  start_answer(x, status, type);
  str_addn(&x->out, body, n);
  x->ended = true;
  wake(x);
  pthread_mutex_unlock(&x->lock);
}

void exchange_stream(exchange *x, const char *type, const char *ping) {
  pthread_mutex_lock(&x->lock);
  start_answer(x, MHD_HTTP_OK, type);
  x->streams = true;
  x->ping = ping;
  wake(x);
  pthread_mutex_unlock(&x->lock);
}

bool exchange_add(exchange *x, const char *text, size_t n) {
  pthread_mutex_lock(&x->lock);
  bool full = !x->gone && !add_bytes(x, &x->out, OUT_MAX, text, n);
  if (!x->gone && !full) x->last_out = now_s();
  bool fine = !x->gone && !full;
  wake(x);
  pthread_mutex_unlock(&x->lock);
  if (full) depart(x);
  return fine;
}

void exchange_end(exchange *x) {
  pthread_mutex_lock(&x->lock);
  x->ended = true;
  wake(x);
  pthread_mutex_unlock(&x->lock);
}

// What has been read of an answer is not kept.
static void drop_taken(exchange *x) {
  memmove(x->out.at, x->out.at + x->taken, x->out.n - x->taken);
  x->out.n -= x->taken;
  x->held -= x->taken;
  x->h->held -= x->taken;
  x->taken = 0;
}

// What libmicrohttpd reads a stream from.  Without anything to give the connection sleeps until something is added.
static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t cap) {
  (void)pos;
  exchange *x = cls;
  pthread_mutex_lock(&x->lock);
  size_t n = x->out.n - x->taken;
  ssize_t got = 0;
  if (x->gone) got = MHD_CONTENT_READER_END_WITH_ERROR;
  else if (n) {
    got = (ssize_t)(n < cap ? n : cap);
    memcpy(to, x->out.at + x->taken, (size_t)got);
    x->taken += (size_t)got;
    if (2 * x->taken >= x->out.n) drop_taken(x);
  } else if (x->ended) got = MHD_CONTENT_READER_END_OF_STREAM;
  else if (!sleep_now(x)) got = MHD_CONTENT_READER_END_WITH_ERROR;
  watch_until(x->conn->watch, got ? now_s() + x->h->o.write_s : 0);
  pthread_mutex_unlock(&x->lock);
  return got;
}

static void stream_done(void *cls) { exchange_drop(cls); }

// Takes what was begun to libmicrohttpd.  MHD_NO ends the connection.
static enum MHD_Result deliver(exchange *x) {
  struct MHD_Response *r;
  pthread_mutex_lock(&x->lock);
  bool gone = x->gone;
  pthread_mutex_unlock(&x->lock);
  if (gone) return MHD_NO;
  if (x->streams)
    r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, exchange_hold(x), stream_done);
  else r = MHD_create_response_from_buffer(x->out.n, x->out.at, MHD_RESPMEM_MUST_COPY);
  if (!r) return MHD_NO;
  if (x->type) MHD_add_response_header(r, "Content-Type", x->type);
  MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
  MHD_add_response_header(r, "Cache-Control", "no-store");
  for (int i = 0; i < x->n_extra; i++) MHD_add_response_header(r, x->extra[i].name, x->extra[i].value);
  enum MHD_Result result = MHD_queue_response(x->mhd, (unsigned)x->status, r);
  MHD_destroy_response(r);
  x->sent = true;
  watch_until(x->conn->watch, now_s() + x->h->o.write_s);
  return result;
}

// ---- messages that come in ------------------------------------------------------------------------------------------

struct seen { int hosts, lengths, codings; bool chunked, broken; uint64_t length; };

static enum MHD_Result look_at_header(void *cls, enum MHD_ValueKind kind, const char *key, const char *value) {
  static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  (void)kind;
  struct seen *s = cls;
  if (!*key || key[strspn(key, token)]) s->broken = true;
  for (const char *v = value ? value : ""; *v; v++) if ((unsigned char)*v < 32 && *v != '\t') s->broken = true;
  s->hosts += !strcasecmp(key, "Host");
  if (!strcasecmp(key, "Content-Length")) {
    s->lengths++;
    size_t digits = value ? strspn(value, "0123456789") : 0;
    if (!digits || digits > 18 || value[digits]) s->broken = true;
    else s->length = strtoull(value, NULL, 10);
  }
  if (!strcasecmp(key, "Transfer-Encoding")) {
    s->codings++;
    s->chunked = value && !strcasecmp(value, "chunked");
  }
  return MHD_YES;
}

static void refuse_exchange(exchange *x, int status, const char *why) {
  x->refused = true;
  exchange_header(x, "Connection", "close");
  exchange_send(x, status, "text/plain; charset=utf-8", why, strlen(why));
}

// What nobody may send, whatever it is for.
static void check_headers(exchange *x, const char *version) {
  struct seen s = {0};
  MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, look_at_header, &s);
  if (strcmp(version, "HTTP/1.1") && strcmp(version, "HTTP/1.0"))
    refuse_exchange(x, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here\n");
  else if (s.broken) refuse_exchange(x, 400, "a header is malformed\n");
  else if (s.hosts != 1) refuse_exchange(x, 400, "one Host header is needed\n");
  else if (s.lengths + s.codings > 1) refuse_exchange(x, 400, "the length of the body is given more than once\n");
  else if (s.codings && !s.chunked) refuse_exchange(x, 501, "of transfer codings only chunked is understood\n");
  else if (s.length > x->h->o.max_body) refuse_exchange(x, 413, "the body is too large\n");
}

static enum MHD_Result first_look(http *h, exchange *x, const char *version) {
  watch_lock(h->watch);
  x->conn->x = x;
  watch_unlock(h->watch);
  watch_until(x->conn->watch, now_s() + h->o.body_s);
  x->last_out = now_s() + BODY_TOTAL_S;            // until an answer begins: when the body has to be here
  check_headers(x, version);
  if (x->refused) return deliver(x);
  // answered already: the body is read, so that the client gets to reading
  x->swallow = h->o.begin(h->o.ctx, x) != 0;
  return MHD_YES;
}

static enum MHD_Result more_body(exchange *x, const char *data, size_t *n) {
  double now = now_s();
  watch_until(x->conn->watch, now + x->h->o.body_s < x->last_out || x->swallow ? now + x->h->o.body_s : x->last_out);
  // of chunks the length was not known before
  if (!x->swallow && !add_bytes(x, &x->body, x->h->o.max_body, data, *n)) return MHD_NO;
  *n = 0;
  return MHD_YES;
}

static enum MHD_Result on_message(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **state) {
  http *h = cls;
  exchange *x = *state;
  if (!x) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (!info || !info->socket_context) return MHD_NO;
    *state = x = exchange_new(h, info->socket_context, mhd, method, url);
    return first_look(h, x, version);
  }
  if (*n) return more_body(x, data, n);
  pthread_mutex_lock(&x->lock);
  bool answered = x->begun, gone = x->gone, wait = !answered && !gone;
  if (wait && !sleep_now(x)) gone = true;
  pthread_mutex_unlock(&x->lock);
  if (gone || x->sent) return MHD_NO;
  if (answered) return deliver(x);
  watch_until(x->conn->watch, 0);
  h->o.ready(h->o.ctx, exchange_hold(x));
  return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **state, enum MHD_RequestTerminationCode code) {
  (void)mhd;
  http *h = cls;
  exchange *x = *state;
  if (!x) return;
  watch_lock(h->watch);
  x->conn->x = NULL;
  watch_unlock(h->watch);
  pthread_mutex_lock(&x->lock);
  x->mhd = NULL;
  bool whole = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && x->ended;
  pthread_mutex_unlock(&x->lock);
  watch_until(x->conn->watch, now_s() + h->o.idle_s);
  if (!whole) depart(x);
  *state = NULL;
  __atomic_sub_fetch(&h->n_exchanges, 1, __ATOMIC_RELAXED);
  exchange_drop(x);
}

// ---- connections ----------------------------------------------------------------------------------------------------

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code) {
  http *h = cls;
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
    struct connection *conn = *context;
    if (!conn) return;
    watch_remove(h->watch, conn->watch);
    free(conn);
    __atomic_sub_fetch(&h->n_connections, 1, __ATOMIC_RELAXED);
    return;
  }
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
  if (!info) return;
  struct connection *conn = xcalloc(1, sizeof *conn);
  conn->fd = info->connect_fd;
  conn->watch = watch_add(h->watch, conn->fd, conn, now_s() + h->o.header_s);
  *context = conn;
  __atomic_add_fetch(&h->n_connections, 1, __ATOMIC_RELAXED);
}

static void *on_left(void *ctx, void *about) {
  (void)ctx;
  struct connection *conn = about;
  return conn->x ? exchange_hold(conn->x) : NULL;
}

static void after_left(void *ctx, void *what) {
  (void)ctx;
  depart(what);
  exchange_drop(what);
}

typedef VEC(exchange *) exchanges;
static void gather_exchange(void *ctx, void *about) {
  struct connection *conn = about;
  if (conn->x) vec_push((exchanges *)ctx, exchange_hold(conn->x));
}

static void each_exchange(http *h, void (*fn)(exchange *)) {
  exchanges all = {0};
  watch_each(h->watch, gather_exchange, &all);
  for (size_t i = 0; i < all.n; i++) {
    fn(all.at[i]);
    exchange_drop(all.at[i]);
  }
  vec_free(&all);
}

static void ping(exchange *x) {
  pthread_mutex_lock(&x->lock);
  bool due = x->begun && !x->ended && x->ping && !x->out.n && now_s() - x->last_out > PING_S;
  pthread_mutex_unlock(&x->lock);
  if (due) exchange_add(x, x->ping, strlen(x->ping));
}

static void on_tick(void *ctx) { each_exchange(ctx, ping); }

int http_busy(http *h) { return __atomic_load_n(&h->n_exchanges, __ATOMIC_RELAXED); }
int http_connections(http *h) { return __atomic_load_n(&h->n_connections, __ATOMIC_RELAXED); }

// what strangers send is no news
static void no_log(void *cls, const char *fmt, va_list ap) { (void)cls; (void)fmt; (void)ap; }

// Their answers are kept alive by who makes them; libmicrohttpd cannot stop with connections asleep.
static void abandon(exchange *x) { depart(x); }

int http_start(const struct http_options *o, http **out, error *err) {
  http *h = xcalloc(1, sizeof *h);
  h->o = *o;
  h->quiet_fd = -1;
  struct watch_calls calls = {on_left, after_left, on_tick, h};
  if (watch_start(&calls, &h->watch, err)) { free(h); return -1; }
  h->daemon = MHD_start_daemon(
    MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_message, h,
    MHD_OPTION_EXTERNAL_LOGGER, no_log, NULL, MHD_OPTION_LISTEN_SOCKET, o->listen_fd, MHD_OPTION_STRICT_FOR_CLIENT, 1,
    MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
    MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_END);
  if (h->daemon) { *out = h; return 0; }
  watch_stop(h->watch);
  free(h);
  return error_set(err, "the HTTP server does not start: %s", strerror(errno));
}

// The listening socket is closed here, so that clients are refused. libmicrohttpd's own thread may still be about to
// take its number out of its epoll set, and ends the program where that fails for a number that is not open: something
// else takes the number until that thread has ended.
void http_quiet(http *h) {
  MHD_socket fd = MHD_quiesce_daemon(h->daemon);
  if (fd == MHD_INVALID_SOCKET) return;
  int nothing = eventfd(0, EFD_CLOEXEC);
  if (nothing >= 0 && dup3(nothing, fd, O_CLOEXEC) == fd) h->quiet_fd = fd;
  else close(fd);
  if (nothing >= 0) close(nothing);
}

void http_stop(http *h) {
  if (!h) return;
  http_quiet(h);
  h->stopping = true;
  each_exchange(h, abandon);
  MHD_stop_daemon(h->daemon);
  if (h->quiet_fd >= 0) close(h->quiet_fd);
  watch_stop(h->watch);
}

void http_free(http *h) { free(h); }
