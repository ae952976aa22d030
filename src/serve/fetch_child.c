// The fetching process and its children: see fetch.h. Each URL has its own child, so a process that has read data from
// a remote server handles nothing else. libcurl parses URLs and connects, so the checked host and port are those that
// are used.
#define _GNU_SOURCE
#include "serve/fetch.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/address.h"
#include "base/child.h"
#include "base/curl.h"
#include "base/message.h"
#include "base/str.h"

enum { CONNECT_S = 5, MOST_CHILDREN = 64 };

typedef struct fetching {
  int fd, alive;             // of the client; end of a pipe that closes with this process
  const fetch_rule *rules;
  size_t n;
  // of the current request
  curl_api api;
  CURL *curl;
  const fetch_rule *rule;    // the rule that allows its host
  struct sockaddr_storage named;         // the rule's address, if it is one
  error why;                 // reason of a refused connection
  size_t sent;
} fetching;

// ---- the child ------------------------------------------------------------------------------------------------------

static bool send_said(const fetching *f, enum fetch_said said, const void *at, size_t n) {
  struct fetch_piece p = {FETCH_MAGIC, said, (uint32_t)n};
  struct iovec parts[] = {{&p, sizeof p}, {(void *)(uintptr_t)at, n}};
  return message_send(f->fd, parts, n ? 2 : 1);
}

NORETURN static void refuse(const fetching *f, const error *why) {
  enum { MOST = 500 };
  send_said(f, FETCH_REFUSED, why->text, strnlen(why->text, MOST));
  _exit(0);
}

static size_t take_piece(char *at, size_t size, size_t count, void *ctx) {
  enum { PIECE = 1 << 16 };
  fetching *f = ctx;
  size_t n = size * count;
  long code = 0;
  f->api.get(f->curl, CURLINFO_RESPONSE_CODE, &code);
  if (code != 200) return n;                     // an error page or a redirection
  for (size_t done = 0, next; done < n; done += next) {
    next = n - done < PIECE ? n - done : PIECE;
    if ((f->sent += next) > FETCH_MOST) { error_set(&f->why, "it has more than %d bytes", FETCH_MOST); return 0; }
    if (!send_said(f, FETCH_BYTES, at + done, next)) _exit(0);
  }
  return n;
}

// Checks the address to which libcurl is about to connect.
static curl_socket_t open_checked_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *to) {
  fetching *f = ctx;
  enum address_kind kind = address_kind_of(&to->addr);
  bool named = f->rule->is_address && f->rule->port && kind == ADDRESS_PRIVATE &&
               address_same(&to->addr, (struct sockaddr *)&f->named);
  if (purpose == CURLSOCKTYPE_IPCXN && (kind == ADDRESS_PUBLIC || named))
    return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
  error_set(&f->why, "its host leads to an address that is not of the Internet");
  return CURL_SOCKET_BAD;
}

static char *url_part(const fetching *f, CURLU *u, CURLUPart part, unsigned flags) {
  char *text = NULL;
  return f->api.url_get(u, part, &text, flags) ? NULL : text;
}

// Removes brackets, and a dot at the end.
static void plain_host(char *to, size_t cap, const char *host) {
  size_t n = strlen(host);
  if (n > 1 && *host == '[' && host[n - 1] == ']') { host++; n -= 2; }
  else if (n > 1 && host[n - 1] == '.') n--;
  snprintf(to, cap, "%.*s", (int)(n < cap ? n : 0), host);
  for (char *c = to; *c; c++) if (*c >= 'A' && *c <= 'Z') *c = (char)(*c + 'a' - 'A');
}

// Is the URL in the list? https: an https URL may not redirect to http.
static void check_url(fetching *f, CURLU *u, const char *url, bool *https) {
  char host[256] = "";
  error why = {0};
  if (f->api.url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER)) {
    error_set(&why, "it is no URL, or one with a user name");
    refuse(f, &why);
  }
  char *scheme = url_part(f, u, CURLUPART_SCHEME, 0), *name = url_part(f, u, CURLUPART_HOST, 0),
       *port = url_part(f, u, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  bool safe = scheme && !strcasecmp(scheme, "https"), plain = scheme && !strcasecmp(scheme, "http");
  if (name) plain_host(host, sizeof host, name);
  f->rule = port ? fetch_rule_for(f->rules, f->n, host, atoi(port), safe) : NULL;
  if (!safe && !plain) error_set(&why, "only http and https are fetched");
  else if (*https && !safe) error_set(&why, "a redirection leads from https to http");
  else if (!f->rule)
    error_set(&why, "nothing is fetched from %.200s, port %.8s: --allow-media-from does not name it", host,
              port ? port : "-");
  if (why.text[0]) refuse(f, &why);
  if (f->rule->is_address) address_parse(f->rule->host, &f->named);
  *https = safe;
  f->api.free_text(scheme);
  f->api.free_text(name);
  f->api.free_text(port);
}

static void prepare_fetch(fetching *f, CURLU *u, double left_s) {
  const curl_api *a = &f->api;
  a->reset(f->curl);
  a->set(f->curl, CURLOPT_CURLU, u);
  a->set(f->curl, CURLOPT_USERAGENT, "weft/" WEFT_VERSION_STRING);
  a->set(f->curl, CURLOPT_PROXY, "");            // a proxy would resolve names itself and bypass the checks
  a->set(f->curl, CURLOPT_OPENSOCKETFUNCTION, open_checked_socket);
  a->set(f->curl, CURLOPT_OPENSOCKETDATA, f);
  a->set(f->curl, CURLOPT_WRITEFUNCTION, take_piece);
  a->set(f->curl, CURLOPT_WRITEDATA, f);
  a->set(f->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
  a->set(f->curl, CURLOPT_QUICK_EXIT, 1L);       // does not wait for an unresponsive DNS server
  a->set(f->curl, CURLOPT_TIMEOUT_MS, (long)(left_s * 1000) + 1);
  a->set(f->curl, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)FETCH_MOST);
  a->set(f->curl, CURLOPT_NOSIGNAL, 1L);
  curl_set_authorities(a, f->curl);
  curl_set_protocols(a, f->curl, true);
}

// One request. True: it redirects to *url.
static bool fetch_once(fetching *f, double until, str *url, bool *https) {
  long code = 0;
  char *next = NULL;
  error why = {0};
  CURLU *u = f->api.url();
  check_url(f, u, str_c(url), https);
  prepare_fetch(f, u, until - now_s());
  CURLcode got = f->api.perform(f->curl);
  f->api.get(f->curl, CURLINFO_RESPONSE_CODE, &code);
  f->api.get(f->curl, CURLINFO_REDIRECT_URL, &next);
  if (f->why.text[0]) refuse(f, &f->why);
  if (got == CURLE_FILESIZE_EXCEEDED) error_set(&why, "it has more than %d bytes", FETCH_MOST);
  else if (got == CURLE_OPERATION_TIMEDOUT && now_s() < until)
    error_set(&why, "there is no connection within %d s", CONNECT_S);
  else if (got == CURLE_OPERATION_TIMEDOUT) error_set(&why, "it takes more than %d s", FETCH_S);
  else if (got) error_set(&why, "%.300s", f->api.text_of(got));
  else if (code != 200 && !next) error_set(&why, "its server answers with HTTP %ld", code);
  if (why.text[0]) refuse(f, &why);
  bool leads_on = code != 200;
  if (leads_on) { url->n = 0; str_add(url, next); }
  f->api.url_free(u);
  return leads_on;
}

static void limit_fetch(void) {
  enum { MEMORY = 256 << 20 };
  setrlimit(RLIMIT_CPU, &(struct rlimit){FETCH_S, FETCH_S + 1});
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
  child_limit_memory(MEMORY);
}

static void fetch_for(void *ctx) {
  fetching *f = ctx;
  const int keep[] = {STDERR_FILENO, f->fd, f->alive};
  uint32_t n = 0;
  str url = {0};
  bool https = false;
  error why = {0};
  child_begin("weft-fetch", keep, (int)COUNT(keep));
  limit_fetch();
  char *text = message_receive(f->fd, &n, sizeof n) && n <= FETCH_URL ? xcalloc(n + 1, 1) : NULL;
  if (!text || !message_receive(f->fd, text, n) || strlen(text) != n) _exit(0);
  str_addn(&url, text, n);
  if (curl_load(&f->api, &why)) refuse(f, &why);
  f->curl = f->api.init();
  if (!f->curl) _exit(3);
  double until = now_s() + FETCH_S;
  for (int i = 0; fetch_once(f, until, &url, &https); i++) {
    if (i < FETCH_REDIRECTS) continue;
    error_set(&why, "it leads on more than %d times", FETCH_REDIRECTS);
    refuse(f, &why);
  }
  send_said(f, FETCH_END, NULL, 0);
  _exit(0);
}

// ---- the process ----------------------------------------------------------------------------------------------------

static atomic_int n_children;

// One thread per child: waits until the child ends, and kills it if necessary.
static void *mind_child(void *ctx) {
  enum { GRACE_MS = 1000 };
  fetching *f = ctx;
  int ends[2] = {-1, -1}, status;
  struct rusage used;
  child_process *c;
  if (!pipe2(ends, O_CLOEXEC)) {
    f->alive = ends[1];
    bool made = !child_make(fetch_for, f, &c);
    close(ends[1]);
    struct pollfd p[] = {{.fd = ends[0], .events = POLLIN}, {.fd = f->fd}};        // its end, and the client's
    if (made) {
      poll(p, COUNT(p), FETCH_S * 1000 + GRACE_MS);
      child_end(c, 0.1, &status, &used);
    }
    close(ends[0]);
  }
  close(f->fd);
  free(f);
  atomic_fetch_sub(&n_children, 1);
  return NULL;
}

void fetch_serve(int fd, const fetch_rule *rules, size_t n) {
  for (bool more = true; more;) {
    pthread_t id;
    int one = message_receive_fd(fd, &more);
    if (one < 0) continue;
    if (atomic_fetch_add(&n_children, 1) >= MOST_CHILDREN) { atomic_fetch_sub(&n_children, 1); close(one); continue; }
    fetching *f = xcalloc(1, sizeof *f);
    *f = (fetching){.fd = one, .rules = rules, .n = n};
    if (!pthread_create(&id, NULL, mind_child, f)) { pthread_detach(id); continue; }
    atomic_fetch_sub(&n_children, 1);
    close(one);
    free(f);
  }
  _exit(0);
}
