// The client side of fetching, the list of hosts, and the start of the process: see fetch.h.
#define _GNU_SOURCE
#include "serve/fetch.h"
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/address.h"
#include "base/child.h"
#include "base/curl.h"
#include "base/message.h"
#include "serve/guard.h"

// ---- the list -------------------------------------------------------------------------------------------------------

static int check_rule_address(const char *text, const fetch_rule *r, error *err) {
  struct sockaddr_storage a;
  if (!r->is_address) return 0;
  address_parse(r->host, &a);
  enum address_kind kind = address_kind_of((struct sockaddr *)&a);
  if (kind == ADDRESS_SPECIAL)
    return error_set(err, "--allow-media-from %s: nothing is fetched from link-local, metadata, multicast and reserved "
                          "addresses", text);
  if (kind == ADDRESS_PRIVATE && !r->port)
    return error_set(
      err, "--allow-media-from %s: an address that is not of the Internet needs its port, such as %s:8000", text, text);
  return 0;
}

// Parses HOST, *.HOST, *, 192.0.2.1, [2001:db8::1]; each with an optional port.
int fetch_rule_parse(const char *text, fetch_rule *out, error *err) {
  struct sockaddr_storage a;
  *out = (fetch_rule){0};
  text += strspn(text, " ");
  const char *host = text, *end = NULL, *port = NULL;
  if (*text == '[') { host++; end = strchr(text, ']'); port = end && end[1] == ':' ? end + 2 : NULL; }
  else if ((end = strchr(text, ':')) && !strchr(end + 1, ':')) port = end + 1;
  else end = text + strlen(text);
  size_t n = end ? (size_t)(end - host) : 0;
  bool tail = end && *text == '[' ? !end[1] || port : true, number = !port || (*port && strspn(port, "0123456789") ==
                                                                                            strlen(port));
  out->port = port && number ? atoi(port) : 0;
  bool fine = n && n < sizeof out->host && tail && number && (!port || (out->port > 0 && out->port < 65536));
  for (size_t i = 0; fine && i < n; i++) {
    out->host[i] = (char)tolower((unsigned char)host[i]);
    fine = isalnum((unsigned char)host[i]) || strchr("-_.*:", host[i]);
  }
  const char *star = strrchr(out->host, '*');
  if (star) fine = fine && star == out->host && (n == 1 || (n > 2 && star[1] == '.'));
  out->is_address = fine && address_parse(out->host, &a);
  if (strchr(out->host, ':') && !out->is_address) fine = false;
  if (!fine)
    return error_set(err,
                     "--allow-media-from %.100s: not a host: HOST, *.HOST or an address, and :PORT if it is not the "
                     "usual one",
                     text);
  return check_rule_address(text, out, err);
}

const fetch_rule *fetch_rule_for(const fetch_rule *rules, size_t n, const char *host, int port, bool https) {
  struct sockaddr_storage a, its;
  bool address = address_parse(host, &a);
  const fetch_rule *any = NULL;                  // "*" allows less than a listed address does
  for (size_t i = 0; i < n; i++) {
    const fetch_rule *r = &rules[i];
    if (r->port ? port != r->port : port != (https ? 443 : 80)) continue;
    if (!strcmp(r->host, "*")) { any = r; continue; }
    if (r->is_address != address) continue;
    if (address ? address_parse(r->host, &its) && address_same((struct sockaddr *)&a, (struct sockaddr *)&its) :
                  guard_host_matches(r->host, host))
      return r;
  }
  return any;
}

// ---- the process ----------------------------------------------------------------------------------------------------

static int read_rules(serve_fetcher *f, const char *const *hosts, size_t n, error *err) {
  f->rules = xcalloc(n, sizeof *f->rules);
  for (f->n = 0; f->n < n; f->n++) if (fetch_rule_parse(hosts[f->n], &f->rules[f->n], err)) return -1;
  return 0;
}

static int fork_fetcher(serve_fetcher *f, void (*enter)(void *ctx), void *ctx, error *err) {
  int pair[2];
  curl_api api;
  if (curl_load(&api, err)) return -1;           // fails early, before there are requests
  curl_unload(&api);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
    return error_set(err, "--allow-media-from: no process can be made: %s", strerror(errno));
  fflush(stdout);                                // otherwise buffered output is printed twice
  f->process = fork();
  if (!f->process) {
    const int keep[] = {STDERR_FILENO, pair[1]};
    child_begin("weft-fetcher", keep, (int)COUNT(keep));
    if (enter) enter(ctx);
    fetch_serve(pair[1], f->rules, f->n);
  }
  int why = errno;
  close(pair[1]);
  f->first = pair[0];
  return f->process < 0 ? error_set(err, "--allow-media-from: no process can be made: %s", strerror(why)) : 0;
}

int serve_fetcher_start(const struct serve_fetching *o, serve_fetcher **out, error *err) {
  serve_fetcher *f = xcalloc(1, sizeof *f);
  *f = (serve_fetcher){.process = -1, .first = -1};
  if (!read_rules(f, o->hosts, o->n, err) && !fork_fetcher(f, o->enter, o->ctx, err)) { *out = f; return 0; }
  serve_fetcher_stop(f);
  return -1;
}

void serve_fetcher_stop(serve_fetcher *f) {
  if (!f) return;
  if (f->first >= 0) close(f->first);
  while (f->process > 0 && waitpid(f->process, NULL, 0) < 0 && errno == EINTR) continue;
  free(f->rules);
  free(f);
}

// ---- a request ------------------------------------------------------------------------------------------------------

typedef struct waiting { int fd; double until; const fetch_sink *to; } waiting;
enum { LOOK_MS = 200 };      // interval of checks whether the client has left

// Receives exactly n bytes. Returns 0, or an error code of fetch_url.
static int receive_piece(const waiting *w, void *to, size_t n) {
  for (char *at = to; n;) {
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    if (now_s() > w->until) return FETCH_LATER;
    if (w->to->left && w->to->left(w->to->ctx)) return FETCH_TAKEN;
    if (poll(&p, 1, LOOK_MS) <= 0) continue;
    ssize_t got = recv(w->fd, at, n, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return FETCH_LATER;
    at += got;
    n -= (size_t)got;
  }
  return 0;
}

static int say_refusal(const waiting *w, uint32_t n, error *err) {
  char text[512] = "";
  if (n >= sizeof text) return FETCH_LATER;
  int status = receive_piece(w, text, n);
  if (status) return status;
  for (char *c = text; *c; c++) if (*c < ' ' || *c > '~') *c = '?';
  return error_set(err, "%s", text);
}

static int receive_file(const waiting *w, error *err) {
  enum { PIECE = 1 << 16 };
  char *piece = xmalloc(PIECE);
  size_t all = 0;
  int status = 0;
  for (bool ended = false; !status && !ended;) {
    struct fetch_piece p;
    if ((status = receive_piece(w, &p, sizeof p))) break;
    if (p.magic != FETCH_MAGIC || p.n > PIECE) { status = FETCH_LATER; break; }
    if (p.said == FETCH_REFUSED) { status = say_refusal(w, p.n, err); break; }
    ended = p.said == FETCH_END;
    if (ended) break;
    if ((status = receive_piece(w, piece, p.n))) break;
    all += p.n;
    if (all > FETCH_MOST) status = error_set(err, "it has more than %d bytes", FETCH_MOST);
    else if (w->to->take(w->to->ctx, piece, p.n)) status = FETCH_TAKEN;
  }
  free(piece);
  return status;
}

int fetch_url(const serve_fetcher *f, const char *url, size_t n, const fetch_sink *to, error *err) {
  enum { GRACE_S = 3 };
  int pair[2];
  uint32_t length = (uint32_t)n;
  if (n > FETCH_URL) return error_set(err, "the URL has %zu bytes; %d are the most", n, FETCH_URL);
  if (memchr(url, 0, n)) return error_set(err, "the URL has a NUL in it");
  bool sent = !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), lives = true;
  if (sent) {
    sent = lives = message_send_fd(f->first, pair[1]);
    close(pair[1]);
    struct iovec parts[] = {{&length, sizeof length}, {(void *)(uintptr_t)url, n}};          // iovec has no const
    sent = sent && message_send(pair[0], parts, COUNT(parts));
  } else {
    pair[0] = -1;
  }
  double own = now_s() + FETCH_S + GRACE_S;
  waiting w = {pair[0], own < to->until ? own : to->until, to};
  int status = sent ? receive_file(&w, err) : FETCH_LATER;
  if (pair[0] >= 0) close(pair[0]);
  if (status == FETCH_LATER && now_s() > to->until)
    return error_set(err, "all that a request names takes more than %d s", FETCH_ALL_S);
  if (!lives) error_set(err, "the process that fetches has ended; it is made when the server starts");
  else if (status == FETCH_LATER) error_set(err, "the process that fetches gives no answer");
  return status;
}
