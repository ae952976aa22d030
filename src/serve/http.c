// Connections and messages: see http.h. libmicrohttpd parses; what it accepts against the standard (two lengths, a
// length and chunks, two hosts) is refused here, since a proxy in front may see another message in the same bytes.
#define _GNU_SOURCE
#include "serve/http.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/os.h"
#include "serve/framing.h"
#include "serve/mhd.h"
#include "serve/recv.h"
#include "serve/watch.h"

// half_closed: the client sends no more; gone: it does not read either. answering: one of its messages is complete and
// not answered. late: at the last tick it was half closed with nothing left to do. All fields but fd and watch are
// protected by the watch's lock.
struct connection {
  int fd;
  watched *watch;
  exchange *x;
  bool half_closed, gone, answering, late;
  void *tls;                           // GnuTLS session, or NULL
  struct framing framing;              // used by the socket thread
};
struct http {
  struct http_options o;
  mhd_api api;
  struct MHD_Daemon *daemon;
  watch *watch;
  int n_connections, n_exchanges;
  // after it stops accepting: reserves the number of the listening socket; or -1
  int quiet_fd;
  atomic_bool stopping, quiet;
  atomic_int trim;                     // much memory was freed: calls of http_trim until it is returned to the system
  VEC(struct connection *) by_fd;      // used by the socket thread
  pthread_t starter;
  char reason[200];                    // why libmicrohttpd does not start
};

enum { HEADER_BYTES = 32 << 10, OUT_MAX = 8 << 20, BLOCK = 16 << 10, BODY_TOTAL_S = 600, PING_S = 15 };
// a body or an answer up to this size may grow even if all requests together hold too much
enum { SMALL = EXCHANGE_SMALL };
enum { EXCHANGE_BYTES = 8 << 10 };     // of a message and its pending answer, besides their content
// LARGE: an exchange that held this much has its memory returned, some ticks later: libmicrohttpd frees the last of it.
enum { LARGE = 4 << 20, TRIM_TICKS = 2 };

// ---- life of an exchange --------------------------------------------------------------------------------------------

static exchange *exchange_new(http *h, struct connection *conn, struct MHD_Connection *mhd, const char *method,
                              const char *path) {
  exchange *x = xcalloc(1, sizeof *x);
  *x = (exchange){
    .h = h, .conn = conn, .mhd = mhd, .refs = 1, .key = -1, .method = xstrdup(method), .path = xstrdup(path),
    .began = now_s(), .open_ends = 1};
  x->account = (account){.up = h->o.memory,
                         .most = h->o.most_bytes,
                         .most_ns = (int64_t)(1e9 * h->o.most_work_s),
                         .bytes_option = "--max-request-memory",
                         .time_option = "--max-request-work"};
  account_add(&x->account, EXCHANGE_BYTES);
  pthread_mutex_init(&x->lock, NULL);
  __atomic_add_fetch(&h->n_exchanges, 1, __ATOMIC_RELAXED);
  return x;
}

// Appends n bytes to a body or an answer. false: over the limit.
static bool add_bytes(exchange *x, str *to, size_t max, const char *at, size_t n) {
  if (n > max || to->n > max - n) return false;
  if (to->n + n <= SMALL) account_add(&x->account, n);
  else if (account_take(&x->account, n)) return false;
  str_addn(to, at, n);
  return true;
}

exchange *exchange_hold(exchange *x) {
  __atomic_add_fetch(&x->refs, 1, __ATOMIC_RELAXED);
  return x;
}

void exchange_work(exchange *x) { __atomic_add_fetch(&x->open_ends, 1, __ATOMIC_RELAXED); }
void exchange_worked(exchange *x) {
  if (!__atomic_sub_fetch(&x->open_ends, 1, __ATOMIC_ACQ_REL)) x->h->o.over(x->h->o.ctx, x);
}

void exchange_drop(exchange *x) {
  if (__atomic_sub_fetch(&x->refs, 1, __ATOMIC_ACQ_REL)) return;
  if (x->own_free) x->own_free(x->own);
  if (x->source.close) x->source.close(x->source.ctx);
  http *h = x->h;
  bool large = x->account.peak > LARGE;
  account_close(&x->account);
  pthread_mutex_destroy(&x->lock);
  free(x->method);
  free(x->path);
  str_free(&x->body);
  str_free(&x->out);
  for (int i = 0; i < x->n_extra; i++) free(x->extra[i].value);
  free(x);
  if (large) h->trim = TRIM_TICKS;
}

// The caller holds the lock. false: all connections are being closed (libmicrohttpd ends the program if one is
// suspended then).
static bool sleep_now(exchange *x) {
  if (x->h->stopping) return false;
  if (!x->asleep) x->h->api.suspend_connection(x->mhd);
  return x->asleep = true;
}
static void wake(exchange *x) {
  if (!x->asleep || !x->mhd) return;
  x->asleep = false;
  x->h->api.resume_connection(x->mhd);
}

// The caller holds the lock, so that exchange_when_gone(NULL) waits for this.
static void say_gone(exchange *x) {
  if (x->on_gone && !x->ended) x->on_gone(x->gone_ctx);
  x->on_gone = NULL;
}

// The caller holds the lock. The client has gone, or is treated as gone.
static void leave(exchange *x) {
  if (!x->copy || x->h->stopping) say_gone(x);
  x->gone = true;
  wake(x);
}

void exchange_leave(exchange *x) {
  pthread_mutex_lock(&x->lock);
  leave(x);
  pthread_mutex_unlock(&x->lock);
}

static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";

// The client sends no more: it has left, or closed its half and waits for the answer. Sends something that is no part
// of the answer; if the client has left, its system replies with an error that the watch sees. An interim answer has no
// meaning for clients that did not request it (RFC 9110, 15.2.1); every client skips 100. Only the socket thread may
// write to a TLS session, so it is woken for that. false: nothing can be sent. The caller holds the lock.
static bool probe(exchange *x) {
  x->last_probe = now_s();
  if (x->streams) return x->ping && (x->out.n || add_bytes(x, &x->out, OUT_MAX, x->ping, strlen(x->ping)));
  // libmicrohttpd writes nothing while the connection is suspended
  if (!x->v1_1 || !x->asleep) return false;
  if (!x->conn->tls) return send(x->conn->fd, interim, sizeof interim - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  x->probes = true;
  wake(x);
  return true;
}

// Only for exchanges whose work ends when the client leaves. The caller holds the lock.
static void check_half_closed(exchange *x) {
  if (!x->half_closed || !x->on_gone || x->gone || x->ended) return;
  if (!probe(x)) leave(x);
  else if (x->streams) wake(x);
}

static void close_half(exchange *x) {
  pthread_mutex_lock(&x->lock);
  x->half_closed = true;
  check_half_closed(x);
  pthread_mutex_unlock(&x->lock);
}

void exchange_when_gone(exchange *x, void (*fn)(void *), void *ctx) {
  pthread_mutex_lock(&x->lock);
  bool over = x->cancelled || (x->gone && !x->copy);
  if (over && fn) fn(ctx);
  x->on_gone = over ? NULL : fn;
  x->gone_ctx = ctx;
  check_half_closed(x);
  pthread_mutex_unlock(&x->lock);
}

void exchange_cancel(exchange *x) {
  pthread_mutex_lock(&x->lock);
  x->cancelled = true;
  say_gone(x);
  pthread_mutex_unlock(&x->lock);
}

bool exchange_gone(exchange *x) {
  pthread_mutex_lock(&x->lock);
  bool gone = x->gone;
  pthread_mutex_unlock(&x->lock);
  return gone;
}

void exchange_copy(exchange *x, const struct exchange_copier *copier, void *ctx, const char *id) {
  x->copier = copier;
  x->copier_ctx = ctx;
  x->copy_id = id;
}

// ---- answers --------------------------------------------------------------------------------------------------------

const char *exchange_asked(const exchange *x, const char *name) {
  return x->h->api.lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

const char *exchange_query(const exchange *x, const char *name) {
  return x->h->api.lookup_connection_value(x->mhd, MHD_GET_ARGUMENT_KIND, name);
}

void exchange_header(exchange *x, const char *name, const char *fmt, ...) {
  if (x->n_extra == MAX_EXTRA_HEADERS) die("serve: an answer with more than %d headers of its own", MAX_EXTRA_HEADERS);
  va_list ap;
  va_start(ap, fmt);
  char *value;
  if (vasprintf(&value, fmt, ap) < 0) die("serve: no memory for a header");
  x->extra[x->n_extra++] = (struct exchange_header){name, value};
  va_end(ap);
}

static void start_answer(exchange *x, int status, const char *type) {
  if (x->begun) die("serve: %s %s is answered twice", x->method, x->path);
  x->begun = true;
  x->status = status;
  x->type = type;
  x->last_out = now_s();
}

void exchange_give(exchange *x, int status, const char *type, str *body) {
  pthread_mutex_lock(&x->lock);
  start_answer(x, status, type);
  if (body->n <= SMALL) account_add(&x->account, body->n);
  x->out = *body;
  *body = (str){0};
  x->ended = true;
  wake(x);
  pthread_mutex_unlock(&x->lock);
}

void exchange_send(exchange *x, int status, const char *type, const char *body, size_t n) {
  str copy = {0};
  str_addn(&copy, body, n);
  exchange_give(x, status, type, &copy);
}

void exchange_send_fixed(exchange *x, const char *type, const char *at, size_t n) {
  pthread_mutex_lock(&x->lock);
  start_answer(x, MHD_HTTP_OK, type);
  x->fixed = at;
  x->n_fixed = n;
  x->ended = true;
  wake(x);
  pthread_mutex_unlock(&x->lock);
}

void exchange_send_pieces(exchange *x, const char *type, uint64_t n, const struct exchange_source *source) {
  pthread_mutex_lock(&x->lock);
  start_answer(x, MHD_HTTP_OK, type);
  x->source = *source;
  x->size = n;
  x->streams = true;
  x->ended = !n || !strcmp(x->method, "HEAD");   // nothing is read then
  wake(x);
  pthread_mutex_unlock(&x->lock);
}

void exchange_stream(exchange *x, const char *type, const char *ping) {
  void *copy = x->copier ? x->copier->begin(x->copier_ctx, x, x->copy_id, type) : NULL;
  pthread_mutex_lock(&x->lock);
  x->copy = copy;
  start_answer(x, MHD_HTTP_OK, type);
  x->streams = true;
  x->ping = ping;
  wake(x);
  pthread_mutex_unlock(&x->lock);
}

static bool add_out(exchange *x, const char *text, size_t n) {
  pthread_mutex_lock(&x->lock);
  bool full = !x->gone && !add_bytes(x, &x->out, OUT_MAX, text, n);
  if (!x->gone && !full) x->last_out = now_s();
  bool fine = !x->gone && !full;
  wake(x);
  pthread_mutex_unlock(&x->lock);
  if (full) exchange_leave(x);
  return fine;
}

bool exchange_add(exchange *x, const char *text, size_t n) {
  if (x->copy) x->copier->add(x->copier_ctx, x->copy, text, n);
  return add_out(x, text, n);
}

void exchange_end(exchange *x) {
  if (x->copy) x->copier->end(x->copier_ctx, x->copy);
  pthread_mutex_lock(&x->lock);
  x->ended = true;
  wake(x);
  pthread_mutex_unlock(&x->lock);
}

// Drops the part of an answer that has been read.
static void drop_taken(exchange *x) {
  memmove(x->out.at, x->out.at + x->taken, x->out.n - x->taken);
  x->out.n -= x->taken;
  account_give(&x->account, x->taken);
  x->taken = 0;
}

// Aborts an answer. libmicrohttpd (0.9.75 to 1.0.1) leaks a connection whose reader returns an error until every older
// connection has ended, but closes one whose socket fails at once.
static ssize_t break_off(exchange *x, char *to) {
  shutdown(x->conn->fd, SHUT_RDWR);
  *to = '\n';
  return 1;
}

// libmicrohttpd's reader of a stream. If there is no data, the connection is suspended until some is added.
static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t cap) {
  exchange *x = cls;
  bool more = false;
  pthread_mutex_lock(&x->lock);
  size_t n = x->out.n - x->taken;
  ssize_t got = 0;
  if (x->gone) got = break_off(x, to);
  else if (n) {
    got = (ssize_t)(n < cap ? n : cap);
    memcpy(to, x->out.at + x->taken, (size_t)got);
    x->taken += (size_t)got;
    if (2 * x->taken >= x->out.n) drop_taken(x);
    x->ended |= x->source.more && pos + (uint64_t)got == x->size;
  } else if (x->ended) got = MHD_CONTENT_READER_END_OF_STREAM;
  else if (!sleep_now(x)) got = break_off(x, to);
  else more = x->source.more != NULL;
  watch_until(x->conn->watch, got ? now_s() + x->h->o.write_s : 0);
  pthread_mutex_unlock(&x->lock);
  if (more) x->source.more(x);
  return got;
}

static void stream_done(void *cls) { exchange_drop(cls); }

// Passes the beginning of an answer to libmicrohttpd. MHD_NO closes the connection.
static enum MHD_Result deliver(exchange *x) {
  const mhd_api *api = &x->h->api;
  struct MHD_Response *r;
  pthread_mutex_lock(&x->lock);
  bool gone = x->gone;
  pthread_mutex_unlock(&x->lock);
  if (gone) return MHD_NO;
  if (x->streams)
    r = api->create_response_from_callback(x->source.more ? x->size : MHD_SIZE_UNKNOWN, BLOCK, read_stream,
                                           exchange_hold(x), stream_done);
  else if (x->fixed)
    r = api->create_response_from_buffer(x->n_fixed, (void *)(uintptr_t)x->fixed, MHD_RESPMEM_PERSISTENT);
  else r = api->create_response_from_buffer(x->out.n, x->out.at, MHD_RESPMEM_MUST_FREE);
  if (!r) return MHD_NO;
  if (!x->streams) x->out = (str){0};  // owned by the response
  if (x->type) api->add_response_header(r, "Content-Type", x->type);
  api->add_response_header(r, "X-Content-Type-Options", "nosniff");
  api->add_response_header(r, "Cache-Control", "no-store");
  // otherwise nginx buffers a few kB
  if (x->streams && !x->source.more) api->add_response_header(r, "X-Accel-Buffering", "no");
  for (int i = 0; i < x->n_extra; i++) api->add_response_header(r, x->extra[i].name, x->extra[i].value);
  if (x->h->quiet && !x->refused) api->add_response_header(r, "Connection", "close");
  enum MHD_Result result = api->queue_response(x->mhd, (unsigned)x->status, r);
  api->destroy_response(r);
  x->sent = true;
  watch_until(x->conn->watch, now_s() + x->h->o.write_s);
  return result;
}

// On the socket thread, between two answers. false: the session cannot take it, or is broken.
static bool write_tls(struct connection *conn, const char *text) {
  return tls_send(conn->tls, text, strlen(text)) == (ssize_t)strlen(text);
}

// ---- messages that come in ------------------------------------------------------------------------------------------

struct seen { int hosts, lengths, codings, doubled[4]; bool chunked, broken, encoded; uint64_t length; };
static const char *const once[] = {"Origin", "Content-Type", "Authorization", "X-Api-Key"};

static enum MHD_Result look_at_header(void *cls, enum MHD_ValueKind kind, const char *key, const char *value) {
  static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  (void)kind;
  struct seen *s = cls;
  if (!*key || key[strspn(key, token)]) s->broken = true;
  for (const char *v = value ? value : ""; *v; v++) if ((unsigned char)*v < 32 && *v != '\t') s->broken = true;
  s->hosts += !strcasecmp(key, "Host");
  for (size_t i = 0; i < COUNT(once); i++) s->broken |= !strcasecmp(key, once[i]) && s->doubled[i]++;
  s->encoded |= !strcasecmp(key, "Content-Encoding") && value && strcasecmp(value, "identity");
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

// Names for exchange_query.
static const char *const asked_once[] = {"action", "autoload", "conv_id", "from", "model"};
struct asked { const char *values[sizeof asked_once / sizeof *asked_once]; bool differ; };

static enum MHD_Result look_at_argument(void *cls, enum MHD_ValueKind kind, const char *key, const char *value) {
  (void)kind;
  struct asked *a = cls;
  for (size_t i = 0; i < COUNT(asked_once); i++) {
    if (strcmp(key, asked_once[i])) continue;
    a->differ |= a->values[i] && strcmp(a->values[i], value ? value : "");
    a->values[i] = value ? value : "";
  }
  return MHD_YES;
}

static void refuse_exchange(exchange *x, int status, const char *why) {
  x->refused = true;
  snprintf(x->why, sizeof x->why, "%.*s", (int)strcspn(why, "\n"), why);
  exchange_header(x, "Connection", "close");
  exchange_send(x, status, "text/plain; charset=utf-8", why, strlen(why));
}

static void refuse_length(exchange *x, uint64_t length) {
  char why[160];
  snprintf(why, sizeof why, "the body is too large: it has %llu bytes, and --max-body allows %zu\n",
           (unsigned long long)length, x->h->o.max_body);
  refuse_exchange(x, 413, why);
}

// Checks headers that no message may have.
static void check_headers(exchange *x, const char *version) {
  struct seen s = {0};
  struct asked asked = {{0}, false};
  x->h->api.get_connection_values(x->mhd, MHD_HEADER_KIND, look_at_header, &s);
  x->h->api.get_connection_values(x->mhd, MHD_GET_ARGUMENT_KIND, look_at_argument, &asked);
  if (strcmp(version, "HTTP/1.1") && strcmp(version, "HTTP/1.0"))
    refuse_exchange(x, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here\n");
  else if (s.broken) refuse_exchange(x, 400, "a header is malformed\n");
  else if (s.hosts > 1 || (!s.hosts && x->v1_1)) refuse_exchange(x, 400, "one Host header is needed\n");
  else if (s.lengths + s.codings > 1) refuse_exchange(x, 400, "the length of the body is given more than once\n");
  else if (s.codings && !x->v1_1) refuse_exchange(x, 400, "HTTP/1.0 has no transfer codings\n");
  else if (s.codings && !s.chunked) refuse_exchange(x, 501, "of transfer codings only chunked is understood\n");
  else if (s.encoded) refuse_exchange(x, 415, "the body must have no Content-Encoding\n");
  else if (asked.differ) refuse_exchange(x, 400, "the query has a name twice, with two values\n");
  else if (strstr(x->path, "%00")) refuse_exchange(x, 400, "the path has a NUL\n");
  else if (!x->conn->framing.seen)
    refuse_exchange(x, 500, "messages cannot be checked: this libmicrohttpd does not read with recv() or GnuTLS\n");
  else if (s.length > x->h->o.max_body) refuse_length(x, s.length);
}

static enum MHD_Result first_look(http *h, exchange *x, const char *version) {
  watch_lock(h->watch);
  x->conn->x = x;
  x->half_closed = x->conn->half_closed;         // it may have left before its message was read
  x->gone = x->conn->gone;
  watch_unlock(h->watch);
  if (x->gone) return MHD_NO;
  watch_until(x->conn->watch, now_s() + h->o.body_s);
  x->v1_1 = !strcmp(version, "HTTP/1.1");
  x->last_out = now_s() + BODY_TOTAL_S;            // until an answer begins: deadline of the body
  check_headers(x, version);
  if (x->refused) return deliver(x);
  // already answered: reads the body, so that the client goes on to read
  x->swallow = h->o.begin(h->o.ctx, x) != 0;
  return MHD_YES;
}

static enum MHD_Result more_body(exchange *x, const char *data, size_t *n) {
  double now = now_s();
  watch_until(x->conn->watch, now + x->h->o.body_s < x->last_out || x->swallow ? now + x->h->o.body_s : x->last_out);
  // the length of chunks was not known before
  if (!x->swallow && !add_bytes(x, &x->body, x->h->o.max_body, data, *n)) {
    snprintf(x->why, sizeof x->why, "the body is too large");
    return MHD_NO;
  }
  *n = 0;
  return MHD_YES;
}

static void set_answering(struct connection *conn, http *h, exchange *x, bool answering) {
  watch_lock(h->watch);
  conn->x = x;
  conn->answering = answering;
  watch_unlock(h->watch);
}

static enum MHD_Result on_message(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **state) {
  http *h = cls;
  exchange *x = *state;
  if (!x) {
    const union MHD_ConnectionInfo *info = h->api.get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (!info || !info->socket_context) return MHD_NO;
    *state = x = exchange_new(h, info->socket_context, mhd, method, url);
    return first_look(h, x, version);
  }
  if (*n) return more_body(x, data, n);
  // a connection suspended just after its last bytes were read is read once more when resumed, and closed if the client
  // has closed its half. It stays active until libmicrohttpd calls again: then it waits for an answer
  if (!x->whole) { x->whole = true; return MHD_YES; }
  pthread_mutex_lock(&x->lock);
  if (x->probes && !x->begun && !x->gone && !write_tls(x->conn, interim)) leave(x);
  x->probes = false;
  bool answered = x->begun, gone = x->gone, wait = !answered && !gone;
  if (wait && !sleep_now(x)) gone = true;
  pthread_mutex_unlock(&x->lock);
  if (gone || x->sent) return MHD_NO;
  if (answered) return deliver(x);
  if (x->given) return MHD_YES;
  x->given = true;
  watch_until(x->conn->watch, 0);
  set_answering(x->conn, h, x, true);
  h->o.ready(h->o.ctx, exchange_hold(x));
  return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **state, enum MHD_RequestTerminationCode code) {
  (void)mhd;
  http *h = cls;
  exchange *x = *state;
  if (!x) return;
  set_answering(x->conn, h, NULL, false);
  pthread_mutex_lock(&x->lock);
  x->mhd = NULL;
  bool whole = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && x->ended;
  x->over = now_s();
  pthread_mutex_unlock(&x->lock);
  watch_until(x->conn->watch, now_s() + h->o.idle_s);
  if (!whole) exchange_leave(x);
  *state = NULL;
  __atomic_sub_fetch(&h->n_exchanges, 1, __ATOMIC_RELAXED);
  exchange_worked(x);
  exchange_drop(x);
}

// ---- bytes that come in ---------------------------------------------------------------------------------------------

static _Thread_local http *reading;    // set on the socket thread only

// Answers bytes that are not a message: libmicrohttpd has not begun one, so the answer is written directly.
static void refuse_bytes(http *h, struct connection *conn, const char *why) {
  exchange *x = conn->x;
  char text[512];
  if (x && x->begun) return;
  int n = snprintf(text, sizeof text,
                   "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\n"
                   "Connection: close\r\n\r\n%s\n",
                   strlen(why) + 1, why);
  if (conn->tls) write_tls(conn, text);
  else send(conn->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (x) {
    snprintf(x->why, sizeof x->why, "%s", why);
    x->status = MHD_HTTP_BAD_REQUEST;
    x->sent = true;
  } else {
    h->o.malformed(h->o.ctx, why);
  }
}

static struct connection *connection_of(int fd) {
  return reading && fd >= 0 && (size_t)fd < reading->by_fd.n ? reading->by_fd.at[fd] : NULL;
}

// false: refused.
static bool check_bytes(struct connection *conn, char *bytes, ssize_t n) {
  const char *why = framing_add(&conn->framing, bytes, (size_t)n);
  if (why) refuse_bytes(reading, conn, why);
  return !why;
}

bool http_takes(int fd, const void *tls, char *bytes, ssize_t n) {
  struct connection *conn = connection_of(fd);
  return !conn || conn->tls != tls || check_bytes(conn, bytes, n);
}

// ---- connections ----------------------------------------------------------------------------------------------------

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code) {
  http *h = cls;
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
    struct connection *conn = *context;
    if (!conn) return;
    h->by_fd.at[conn->fd] = NULL;
    watch_remove(h->watch, conn->watch);
    free(conn);
    __atomic_sub_fetch(&h->n_connections, 1, __ATOMIC_RELAXED);
    return;
  }
  const union MHD_ConnectionInfo *info = h->api.get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
  if (!info) return;
  struct connection *conn = xcalloc(1, sizeof *conn);
  conn->fd = info->connect_fd;
  info = h->o.tls_key ? h->api.get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION) : NULL;
  conn->tls = info ? info->tls_session : NULL;
  conn->watch = watch_add(h->watch, conn->fd, conn, now_s() + h->o.header_s);
  *context = conn;
  reading = h;
  while (h->by_fd.n <= (size_t)conn->fd) vec_push(&h->by_fd, NULL);
  h->by_fd.at[conn->fd] = conn;
  __atomic_add_fetch(&h->n_connections, 1, __ATOMIC_RELAXED);
}

static void *on_left(void *ctx, void *about, bool gone) {
  (void)ctx;
  struct connection *conn = about;
  conn->half_closed = true;
  conn->gone |= gone;
  return conn->x ? exchange_hold(conn->x) : NULL;
}

static void after_left(void *ctx, void *what, bool gone) {
  (void)ctx;
  (gone ? exchange_leave : close_half)(what);
  exchange_drop(what);
}

typedef VEC(exchange *) exchanges;
static void gather_exchange(void *ctx, void *about) {
  struct connection *conn = about;
  if (conn->x) vec_push((exchanges *)ctx, exchange_hold(conn->x));
}

// %00 would end the path: it stays, and is refused. Other control characters stay escaped.
static size_t unescape_path(void *cls, struct MHD_Connection *mhd, char *text) {
  (void)cls; (void)mhd;
  char *to = text;
  for (const char *p = text; *p; p++) {
    int high = *p == '%' ? hex_value(p[1]) : -1, low = high >= 0 ? hex_value(p[2]) : -1;
    if (low < 0 || high < 2 || (high == 7 && low == 15)) { *to++ = *p; continue; }
    *to++ = (char)(16 * high + low);
    p += 2;
  }
  *to = 0;
  return (size_t)(to - text);
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
  if (!x->begun && now_s() - x->last_probe > PING_S) check_half_closed(x);
  pthread_mutex_unlock(&x->lock);
  if (due) add_out(x, x->ping, strlen(x->ping));
}

// Closes a connection whose client sends no more, if everything was read and no message is pending. libmicrohttpd
// misses an end of stream that came together with the last bytes (it reads until it gets less than it asked for, and
// the kernel reports the end once). Acts at the second tick: bytes just read may complete a message.
static void close_late(void *ctx, void *about) {
  (void)ctx;
  struct connection *conn = about;
  char next;
  bool late = conn->half_closed && !conn->answering && !recv(conn->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  if (late && conn->late) shutdown(conn->fd, SHUT_RDWR);
  conn->late = late;
}

static void on_tick(void *ctx) {
  http *h = ctx;
  watch_each(h->watch, close_late, h);
  each_exchange(h, ping);
}

void http_trim(http *h) { if (h->trim && !--h->trim) memory_trim(); }

int http_busy(http *h) { return __atomic_load_n(&h->n_exchanges, __ATOMIC_RELAXED); }
int http_connections(http *h) { return __atomic_load_n(&h->n_connections, __ATOMIC_RELAXED); }

// Why libmicrohttpd does not start, which it says in the thread that starts it. Invalid input from clients is not
// logged.
static void keep_reason(void *cls, const char *fmt, va_list ap) {
  http *h = cls;
  if (!pthread_equal(pthread_self(), h->starter) || h->daemon || *h->reason) return;      // the first says most
  vsnprintf(h->reason, sizeof h->reason, fmt, ap);
  h->reason[strcspn(h->reason, "\n")] = 0;
}

// Their workers keep them alive; libmicrohttpd cannot stop with suspended connections.
static void abandon(exchange *x) { exchange_leave(x); }

int http_start(const struct http_options *o, http **out, error *err) {
  http *h = xcalloc(1, sizeof *h);
  h->o = *o;
  h->quiet_fd = -1;
  h->starter = pthread_self();
  struct watch_calls calls = {on_left, after_left, on_tick, h};
  if (mhd_load(&h->api, err) || watch_start(&calls, &h->watch, err)) { free(h); return -1; }
  bool tls = o->tls_key != NULL, has_tls = h->api.is_feature_supported(MHD_FEATURE_TLS) == MHD_YES;
  const struct MHD_OptionItem keys[] = {{MHD_OPTION_HTTPS_MEM_KEY, 0, o->tls_key},
                                        {MHD_OPTION_HTTPS_MEM_CERT, 0, o->tls_certificate},
                                        {MHD_OPTION_END, 0, NULL}};
  unsigned way = h->api.is_feature_supported(MHD_FEATURE_EPOLL) == MHD_YES ? MHD_USE_EPOLL_INTERNAL_THREAD
                                                                        : MHD_USE_AUTO_INTERNAL_THREAD;
  if (!tls || has_tls)
    h->daemon = h->api.start_daemon(
      way | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (tls ? MHD_USE_TLS : 0), 0, NULL, NULL, on_message, h,
      MHD_OPTION_EXTERNAL_LOGGER, keep_reason, h, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)o->listen_fd,
      MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->max_connections,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_UNESCAPE_CALLBACK, unescape_path, NULL,
      MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_ARRAY,
      tls ? keys : keys + 2, MHD_OPTION_END);
  if (h->daemon) { *out = h; return 0; }
  int why = errno, status = tls && !has_tls ? error_set(err, "this libmicrohttpd is built without TLS")
               : tls ? error_set(err, "TLS does not start with this key and certificate: %s",
                                 *h->reason ? h->reason : "they are not a key and its certificate")
               : why == EAGAIN ? error_set(err, "no thread could be made for the HTTP server: %s", strerror(why))
                     : error_set(err, "the HTTP server does not start: %s", strerror(why));
  watch_stop(h->watch);
  free(h);
  return status;
}

// Accepts connections that the system has established but libmicrohttpd has not accepted: closing the socket would
// reset them.
static void take_rest(http *h, int fd) {
  struct sockaddr_storage a;
  for (int conn; (conn = os_accept(fd)) >= 0;) {
    socklen_t n = sizeof a;
    if (getpeername(conn, (struct sockaddr *)&a, &n)) n = 0;
    h->api.add_connection(h->daemon, conn, (struct sockaddr *)&a, n);
  }
}

// The listening socket is closed here, so that clients are refused. libmicrohttpd's own thread may still remove its
// number from its epoll set, and ends the program if the number is not open: a placeholder keeps the number until that
// thread has ended.
void http_quiet(http *h) {
  MHD_socket fd = h->api.quiesce_daemon(h->daemon);
  if (fd == MHD_INVALID_SOCKET) return;
  h->quiet = true;
  if (!h->o.given) take_rest(h, fd);
  h->quiet_fd = os_close_and_keep(fd);
}

void http_stop(http *h) {
  if (!h) return;
  http_quiet(h);
  h->stopping = true;
  each_exchange(h, abandon);
  h->api.stop_daemon(h->daemon);
  if (h->quiet_fd >= 0) os_close_socket(h->quiet_fd);
  watch_stop(h->watch);
}

void http_free(http *h) {
  if (h) vec_free(&h->by_fd);
  free(h);
}
