// weft loadtest: measures a server under several clients. Each client sends one prompt after another and reads the
// answer as a stream. Measured are the time to the first token and the pauses between tokens.
#define _GNU_SOURCE
#include "app/app.h"
#include "base/os.h"
#include "base/json.h"
#include "app/http.h"
#include "app/json.h"
#include "app/out.h"
#include "app/settings.h"
#include "base/newfile.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const struct command command = {
  "loadtest",
  "Measures a server: tokens per second, and how long clients wait.",
  "URL [options]",
  "URL is that of an OpenAI-compatible server on this machine (http://127.0.0.1:8080); others are refused.\n"
  "A third of the prompts is long, the others have a quarter of its length. Texts are random words, so none is known "
  "to the server.\n",
  COMMAND_BIT(loadtest),
  0};

enum { LINE = 1 << 16, WAIT_S = 600 };

typedef VEC(double) seconds;

typedef struct load {
  const struct loadtest_args *o;
  char host[64], port[8], path[200];
  pthread_mutex_t lock;
  int64_t sent, ended, failed, tokens;
  seconds first, gaps, whole;            // of all answers: to the first token, between tokens, to the end
  char why[200];                         // the first failure
} load;

typedef struct client { load *l; pthread_t thread; uint64_t random; int fd; char buffer[LINE]; size_t n; } client;

// ---- addresses ------------------------------------------------------------------------------------------------------

// Splits "http://127.0.0.1:8080/any" into host, port and path. 0 or the exit status.
static int read_url(load *l, const char *url) {
  if (strncmp(url, "http://", 7)) return usage_error("'%.100s' is no address of a server: it begins with http://", url);
  const char *at = url + 7, *slash = strchr(at, '/'), *end = slash ? slash : at + strlen(at);
  bool six = *at == '[';
  const char *stop = six ? memchr(at, ']', (size_t)(end - at)) : memchr(at, ':', (size_t)(end - at));
  if (six && !stop) return usage_error("'%.100s' is no address of a server: ']' is missing", url);
  const char *host = at + six, *host_end = stop ? stop : end, *port = six ? stop + 1 : host_end;
  if (port < end && *port++ != ':') return usage_error("'%.100s' is no address of a server", url);
  if (host == host_end || (size_t)(host_end - host) >= sizeof l->host || (size_t)(end - port) >= sizeof l->port)
    return usage_error("'%.100s' is no address of a server", url);
  snprintf(l->host, sizeof l->host, "%.*s", (int)(host_end - host), host);
  snprintf(l->port, sizeof l->port, "%.*s", (int)(end - port), port);
  if (!*l->port) snprintf(l->port, sizeof l->port, "80");
  size_t n = slash ? strlen(slash) : 0;
  while (n && slash[n - 1] == '/') n--;
  if (n >= sizeof l->path - 32) return usage_error("'%.100s' is too long an address", url);
  snprintf(l->path, sizeof l->path, "%.*s/v1/completions", (int)n, n ? slash : "");
  if (strcmp(l->host, "localhost") && strcmp(l->host, "::1") && strncmp(l->host, "127.", 4))
    return usage_error("%s is another machine: a load test asks servers of this one alone (127.0.0.1, localhost)",
                       l->host);
  return 0;
}

// Opens a connection; -1 and an error.
static int connect_to(const load *l, char *why, size_t cap) {
  struct addrinfo *all, want = {.ai_socktype = SOCK_STREAM,
                                .ai_flags = AI_NUMERICSERV | (strcmp(l->host, "localhost") ? AI_NUMERICHOST : 0)};
  int fd = -1, bad = getaddrinfo(l->host, l->port, &want, &all);
  if (bad) { snprintf(why, cap, "%s: %s", l->host, gai_strerror(bad)); return -1; }
  for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
    fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen)) break;
    snprintf(why, cap, "%s, port %s: %s", l->host, l->port, strerror(errno));
    if (fd >= 0) os_close_socket(fd);
    fd = -1;
  }
  freeaddrinfo(all);
  struct timeval t = {.tv_sec = WAIT_S};
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  return fd;
}

// ---- a request ------------------------------------------------------------------------------------------------------

static uint32_t draw_below(client *c, uint32_t below) {
  c->random = c->random * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(c->random >> 33) % below;
}

// A prompt of about n tokens, of meaningless words.
static char *prompt_of(client *c, int64_t n) {
  str s = {0};
  for (int64_t i = 0; i < n; i++) {
    str_add(&s, i ? " " : "");
    for (int k = 2 + (int)draw_below(c, 2); k > 0; k--) str_addf(&s, "%c", 'a' + (int)draw_below(c, 26));
  }
  return s.at;
}

static bool send_all(int fd, const char *at, size_t n) {
  while (n) {
    ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    n -= (size_t)sent;
  }
  return true;
}

static bool send_request(client *c, int64_t n_prompt) {
  char *text = prompt_of(c, n_prompt);
  json_t *o = json_pack("{ss sI sb sf sb s{sb}}", "prompt", text, "max_tokens", (json_int_t)c->l->o->tokens, "stream",
                        1, "temperature", 0.0, "ignore_eos", 1, "stream_options", "include_usage", 1);
  if (c->l->o->model) json_object_set_new(o, "model", json_string(c->l->o->model));
  char *body = json_dumps(o, JSON_COMPACT);
  str s = {0};
  str_addf(
    &s,
    "POST %s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %zu\r\n",
    c->l->path, c->l->host, c->l->port, strlen(body));
  if (c->l->o->key) str_addf(&s, "Authorization: Bearer %s\r\n", c->l->o->key);
  str_addf(&s, "\r\n%s", body);
  bool good = send_all(c->fd, str_c(&s), s.n);
  str_free(&s);
  free(body);
  free(text);
  json_decref(o);
  return good;
}

// The next line of the answer, without its end. Sizes of HTTP chunks are lines too; callers skip them, since they are
// no data. NULL: no more lines.
static char *next_line(client *c, char line[LINE]) {
  for (;;) {
    char *end = memchr(c->buffer, '\n', c->n);
    if (end) {
      size_t n = (size_t)(end - c->buffer);
      memcpy(line, c->buffer, n);
      line[n && line[n - 1] == '\r' ? n - 1 : n] = 0;
      c->n -= n + 1;
      memmove(c->buffer, end + 1, c->n);
      return line;
    }
    ssize_t got = c->n < LINE - 1 ? recv(c->fd, c->buffer + c->n, LINE - 1 - c->n, 0) : 0;
    if (got <= 0 && !c->n) return NULL;
    if (got <= 0) c->buffer[c->n] = '\n';                      // the last line has no end
    if (got <= 0) got = 1;
    c->n += (size_t)got;
  }
}

typedef struct answer { seconds gaps; double first, whole; int64_t tokens; bool whole_came; char why[200]; } answer;

// Reads events until the stream ends.
static void read_answer(client *c, double start, answer *a) {
  char *line = xmalloc(LINE);
  double last = start;
  int status = 0;
  // a token has an event, an empty line and two of its chunk; pings are rare
  int64_t lines = 0, most_lines = 1000 + 64 * c->l->o->tokens;
  while (next_line(c, line)) {
    if (++lines > most_lines || interrupted()) {
      snprintf(a->why, sizeof a->why, "the answer does not end: %lld lines for %lld tokens", (long long)lines,
               (long long)c->l->o->tokens);
      break;
    }
    if (!strncmp(line, "HTTP/1.", 7)) status = atoi(line + 9);
    if (status != 200 && *line == '{') snprintf(a->why, sizeof a->why, "status %d: %.150s", status, line);
    if (strncmp(line, "data:", 5)) continue;
    if (strstr(line, "[DONE]")) { a->whole_came = true; break; }
    json_t *o = json_load(line + 5, strlen(line + 5), 0, NULL), *usage = json_object_get(o, "usage");
    const char *text = json_string_value(json_object_get(json_array_get(json_object_get(o, "choices"), 0), "text"));
    double now = now_s();
    if (text) {
      if (!a->tokens++) a->first = now - start;
      else vec_push(&a->gaps, now - last);
      last = now;
    }
    json_int_t said = json_integer_value(json_object_get(usage, "completion_tokens"));
    if (json_is_object(usage) && said >= 0 && said <= INT32_MAX) a->tokens = said;      // otherwise the counted tokens
    json_decref(o);
  }
  a->whole = now_s() - start;
  if (!a->whole_came && !*a->why)
    snprintf(a->why, sizeof a->why, status ? "status %d, and the answer ended too soon" : "there was no answer",
             status);
  free(line);
}

static void add_answer(load *l, const answer *a) {
  pthread_mutex_lock(&l->lock);
  if (a->whole_came && a->tokens) {
    l->ended++;
    l->tokens += a->tokens;
    vec_push(&l->first, a->first);
    vec_push(&l->whole, a->whole);
    for (size_t i = 0; i < a->gaps.n; i++) vec_push(&l->gaps, a->gaps.at[i]);
  } else if (!l->failed++) {
    snprintf(l->why, sizeof l->why, "%s", a->why);
  }
  pthread_mutex_unlock(&l->lock);
}

static void *client_loop(void *arg) {
  client *c = arg;
  load *l = c->l;
  for (;;) {
    pthread_mutex_lock(&l->lock);
    int64_t number = l->sent < l->o->requests && !interrupted() ? l->sent++ : -1;
    pthread_mutex_unlock(&l->lock);
    if (number < 0) return NULL;
    answer a = {0};
    c->n = 0;
    double start = now_s();
    c->random = (uint64_t)(start * 1e9) ^ ((uint64_t)number << 40);
    c->fd = connect_to(l, a.why, sizeof a.why);
    if (c->fd >= 0 && send_request(c, number % 3 ? l->o->prompt / 4 + 1 : l->o->prompt)) read_answer(c, start, &a);
    else if (c->fd >= 0) snprintf(a.why, sizeof a.why, "the request could not be sent");
    if (c->fd >= 0) os_close_socket(c->fd);
    add_answer(l, &a);
    vec_free(&a.gaps);
  }
}

// ---- figures --------------------------------------------------------------------------------------------------------

static double quantile(const seconds *s, double part) {           // s is sorted
  return s->n ? s->at[(size_t)fmin((double)s->n - 1, floor(part * (double)s->n))] : 0;
}

static json_t *figures(const seconds *s) {
  return json_pack("{sf sf sf sf}", "p50_ms", 1e3 * quantile(s, 0.5), "p90_ms", 1e3 * quantile(s, 0.9), "p99_ms",
                   1e3 * quantile(s, 0.99), "max_ms", 1e3 * quantile(s, 1));
}

static void print_figures(struct out *o, const char *what, const seconds *s) {
  out_addf(o, "| %-21s | %9.1f | %9.1f | %9.1f | %9.1f |\n", what, 1e3 * quantile(s, 0.5), 1e3 * quantile(s, 0.9),
           1e3 * quantile(s, 0.99), 1e3 * quantile(s, 1));
}

// A curve of the share of answers (x, percent) against the time within which they came (y, up to the longest).
static void draw_curve(str *s, const char *what, const seconds *of) {
  enum { W = 640, H = 220, LEFT = 60, BOTTOM = 30, POINTS = 200 };
  double most = quantile(of, 1) > 0 ? quantile(of, 1) : 1;
  str_addf(
    s, "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s by share of all\">",
    what, W + LEFT + 10, H + BOTTOM + 10, what);
  for (int i = 0; i <= 4; i++) {
    double y = 5 + H * (1 - i / 4.0);
    str_addf(s,
             "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
             "class=\"end\">%.1f</text>",
             LEFT, LEFT + W, y, y, LEFT - 6, y + 4, 1e3 * most * i / 4);
    str_addf(s, "<text x=\"%d\" y=\"%d\" class=\"middle\">%d %%</text>", LEFT + W * i / 4, H + BOTTOM, 25 * i);
  }
  str_add(s, "<polyline points=\"");
  for (int i = 0; i <= POINTS; i++)
    str_addf(s, "%.1f,%.1f ", LEFT + W * (double)i / POINTS, 5 + H * (1 - quantile(of, (double)i / POINTS) / most));
  str_add(s, "\"/></svg></figure>\n");
}

static int write_report_page(const load *l, double took, seconds *const *all, const char *const *names, size_t n,
                             error *err) {
  static const char style[] =
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 "
    "1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid "
    "#ccc}th:first-child,td:first-child{text-align:left}"
    "figure{margin:2rem "
    "0}svg{width:100%}polyline{fill:none;stroke:#06c;stroke-width:2}.grid{stroke:#ddd}text{font-size:12px;fill:"
    "currentColor}.end{text-anchor:end}"
    ".middle{text-anchor:middle}@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}.grid{stroke:#444}"
    "polyline{stroke:#6af}}";
  str s = {0};
  newfile *f;
  str_addf(&s,
           "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
           "content=\"width=device-width, initial-scale=1\"><title>Load test</title><style>%s</style>\n",
           style);
  str_addf(&s,
           "<h1>Load test</h1><p>%lld clients, %lld answers, %lld failed, %lld tokens in %.1f s: <b>%.1f tokens per "
           "second</b></p>\n",
           (long long)l->o->clients, (long long)l->ended, (long long)l->failed, (long long)l->tokens, took,
           (double)l->tokens / took);
  str_add(&s, "<table><tr><th></th><th>median</th><th>90 %</th><th>99 %</th><th>most</th></tr>\n");
  for (size_t i = 0; i < n; i++)
    str_addf(&s, "<tr><td>%s</td><td>%.1f</td><td>%.1f</td><td>%.1f</td><td>%.1f</td></tr>\n", names[i],
             1e3 * quantile(all[i], 0.5), 1e3 * quantile(all[i], 0.9), 1e3 * quantile(all[i], 0.99),
             1e3 * quantile(all[i], 1));
  str_add(&s, "</table>\n");
  for (size_t i = 0; i < n; i++) draw_curve(&s, names[i], all[i]);
  int status = newfile_open(l->o->html, &f, err);
  if (!status && newfile_add(f, s.at, s.n, err)) { newfile_discard(f); status = -1; }
  else if (!status) status = newfile_commit(f, err);
  str_free(&s);
  return status;
}

static int report_load(load *l, double took) {
  struct out out = {0};
  const struct loadtest_args *a = l->o;
  seconds *all[] = {&l->first, &l->gaps, &l->whole};
  static const char *const names[] = {"first token, ms", "between tokens, ms", "whole answer, ms"}, *const keys[] = {
                                                                                                      "first_token",
                                                                                                      "between_tokens",
                                                                                                      "answer"};
  for (size_t i = 0; i < COUNT(all); i++) if (all[i]->n) sort_doubles(all[i]->at, all[i]->n);
  if (a->json) {
    json_t *o = json_pack("{sI sI sI sI sf sf}", "clients", (json_int_t)a->clients, "answers", (json_int_t)l->ended,
                          "failed", (json_int_t)l->failed, "tokens", (json_int_t)l->tokens, "seconds", took,
                          "tokens_per_second", (double)l->tokens / took);
    for (size_t i = 0; i < COUNT(all); i++) json_object_set_new(o, keys[i], figures(all[i]));
    out_json(&out, o, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
  } else if (l->ended) {
    out_addf(&out, "%lld clients, %lld answers, %lld tokens in %.1f s: %.1f tokens per second\n\n",
             (long long)a->clients, (long long)l->ended, (long long)l->tokens, took, (double)l->tokens / took);
    out_addf(
      &out,
      "| %-21s | %9s | %9s | %9s | %9s |\n| --------------------- | --------: | --------: | --------: | --------: |\n",
      "", "median", "90 %", "99 %", "most");
    for (size_t i = 0; i < COUNT(all); i++) print_figures(&out, names[i], all[i]);
  }
  int status = out_end(&out, EXIT_OK);
  error err = {0};
  if (a->html && write_report_page(l, took, all, names, COUNT(all), &err)) return failed("%s", err.text);
  if (l->failed)
    return failed("%lld of %lld requests failed; the first one: %s", (long long)l->failed,
                  (long long)(l->ended + l->failed), l->why);
  return status ? status : interrupted() ? EXIT_INTERRUPTED : EXIT_OK;
}

static int run_load(struct settings *all) {
  load l = {.o = &all->loadtest};
  if (!l.o->url) return usage_error("no server: 'weft loadtest http://127.0.0.1:8080'");
  if (!http_may_be_in_header(l.o->url)) return usage_error("the address has a line end or another control character");
  if (l.o->key && !http_may_be_in_header(l.o->key))
    return usage_error("--api-key has a line end or another control character");
  int status = read_url(&l, l.o->url);
  if (status) return status;
  keep_to_reading(l.o->html, NULL);
  pthread_mutex_init(&l.lock, NULL);
  interrupt_catch();
  client *c = xcalloc((size_t)l.o->clients, sizeof *c);
  double start = now_s();
  int64_t n = 0;
  for (; n < l.o->clients; n++) {
    c[n].l = &l;
    if (pthread_create(&c[n].thread, NULL, client_loop, &c[n])) break;
  }
  for (int64_t i = 0; i < n; i++) pthread_join(c[i].thread, NULL);
  status = n ? report_load(&l, now_s() - start) : failed("no thread could be made: %s", strerror(errno));
  free(c);
  vec_free(&l.first); vec_free(&l.gaps); vec_free(&l.whole);
  pthread_mutex_destroy(&l.lock);
  return status;
}

int loadtest_command(int argc, char **argv) { return settings_run(&command, argc, argv, run_load); }
