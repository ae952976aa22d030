// The server from its start to its end: see serve.h.
#define _GNU_SOURCE
#include "serve/serve.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "serve/server.h"
#include "serve/systemd.h"

// given: the socket is that of who started us
struct serve { serve_options o; server s; int fd; char address[256]; bool remote, given; notifier notify; };

// ---- the socket -----------------------------------------------------------------------------------------------------

static int listen_unix(serve *v, const char *path, error *err) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof a.sun_path) return error_set(err, "%s: too long for a socket", path);
  strcpy(a.sun_path, path);
  v->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  mode_t before = umask(0177);         // for this user alone
  int status = v->fd < 0 || bind(v->fd, (struct sockaddr *)&a, sizeof a) || listen(v->fd, SOMAXCONN);
  umask(before);
  if (status) return error_set(err, "%s: %s", path, strerror(errno));
  snprintf(v->address, sizeof v->address, "unix:%s", path);
  return 0;
}

static bool is_loopback(const struct sockaddr *a) {
  if (a->sa_family == AF_INET)
    return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
  return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int bound_port(int fd) {
  struct sockaddr_storage a;
  socklen_t n = sizeof a;
  if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
  return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
}

static int listen_tcp(serve *v, const char *host, int port, error *err) {
  struct addrinfo wanted = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found = NULL;
  char service[16];
  int on = 1;
  snprintf(service, sizeof service, "%d", port);
  if (!strcmp(host, "localhost")) host = "127.0.0.1";
  if (getaddrinfo(host, service, &wanted, &found))
    return error_set(err, "--host needs an address or a path, not '%.100s'", host);
  v->remote = !is_loopback(found->ai_addr);
  v->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (v->fd >= 0) setsockopt(v->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  int status = v->fd < 0 || bind(v->fd, found->ai_addr, found->ai_addrlen) || listen(v->fd, SOMAXCONN);
  bool v6 = found->ai_family == AF_INET6;
  freeaddrinfo(found);
  if (status) return error_set(err, "%s port %d: %s", host, port, strerror(errno));
  snprintf(v->address, sizeof v->address, v6 ? "http://[%s]:%d" : "http://%s:%d", host, bound_port(v->fd));
  return 0;
}

// One that listens already.
static void listen_given(serve *v, int fd) {
  struct sockaddr_storage a = {0};
  socklen_t n = sizeof a;
  char host[INET6_ADDRSTRLEN] = "";
  v->fd = fd;
  v->given = true;
  if (getsockname(fd, (struct sockaddr *)&a, &n)) return;
  if (a.ss_family == AF_UNIX) {
    snprintf(v->address, sizeof v->address, "unix:%s", ((struct sockaddr_un *)&a)->sun_path);
    return;
  }
  bool v6 = a.ss_family == AF_INET6;
  v->remote = !is_loopback((struct sockaddr *)&a);
  inet_ntop(a.ss_family,
            v6 ? (void *)&((struct sockaddr_in6 *)&a)->sin6_addr : (void *)&((struct sockaddr_in *)&a)->sin_addr, host,
            sizeof host);
  snprintf(v->address, sizeof v->address, v6 ? "http://[%s]:%d" : "http://%s:%d", host, bound_port(fd));
}

static int open_socket(serve *v, const char *host, error *err) {
  int given;
  if (systemd_socket(&given, err)) return -1;
  if (given >= 0) { listen_given(v, given); return 0; }
  return strchr(host, '/') ? listen_unix(v, host, err) : listen_tcp(v, host, v->o.port, err);
}

// As many descriptors as the system lets this process have: a connection takes one.
static int descriptors(int wanted) {
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r)) return wanted;
  rlim_t need = (rlim_t)wanted + 128;
  if (r.rlim_cur < need) r.rlim_cur = need < r.rlim_max ? need : r.rlim_max;
  setrlimit(RLIMIT_NOFILE, &r);
  return r.rlim_cur < need ? (int)r.rlim_cur - 128 : wanted;
}

int serve_open(const serve_options *o, serve **out, error *err) {
  serve *v = xcalloc(1, sizeof *v);
  v->o = *o;
  v->fd = -1;
  v->notify = systemd_notifier();
  struct guard_options g = {o->key_file, o->hosts, o->origins, o->n_hosts, o->n_origins};
  const char *host = o->host ? o->host : "127.0.0.1";
  int status = guard_open(&g, &v->s.guard, err);
  if (!status) status = open_socket(v, host, err);
  if (!status && v->remote && !guard_keys(v->s.guard) && !o->no_key)
    status = error_set(err, "%s can be reached from other machines: give keys with --api-key-file, or say --no-key",
                       v->address);
  v->o.max_connections = descriptors(o->max_connections);
  *out = v;
  if (!status) return 0;
  serve_close(v);
  return -1;
}

const char *serve_address(const serve *v) { return v->address; }

static void remove_socket(const serve *v) {
  if (!v->given && v->o.host && strchr(v->o.host, '/') && v->address[0]) unlink(v->o.host);
}

void serve_close(serve *v) {
  if (!v) return;
  if (v->fd >= 0) close(v->fd);
  remove_socket(v);
  systemd_close(&v->notify);
  guard_free(v->s.guard);
  free(v);
}

// ---- messages -------------------------------------------------------------------------------------------------------

static int refuse_with(server *s, exchange *x, int status, const char *why) {
  fault f = {0};
  fault_set(&f, status, NULL, "%s", why);
  answer_fault(s, x, &f);
  return -1;
}

static bool is_json(const char *type) {
  return type && !strncasecmp(type, "application/json", 16) && strchr("; \t", type[16]);
}

static void allow_origin(exchange *x) {
  exchange_header(x, "Access-Control-Allow-Origin", "%s", x->allowed_origin);
  exchange_header(x, "Vary", "Origin");
}

static int preflight(exchange *x) {
  exchange_header(x, "Access-Control-Allow-Methods", "GET, POST");
  exchange_header(x, "Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key");
  exchange_send(x, 204, NULL, "", 0);
  return -1;
}

static void asked_free(void *own) {
  struct asked *a = own;
  if (a->m) shelf_give(a->s->shelf, a->m);
  json_decref(a->body);
  free(a->model);
  free(a);
}

// Seconds of "Prefer: wait=10"; negative: nothing is said.
static double wait_asked(const char *prefer) {
  const char *at = prefer ? strstr(prefer, "wait=") : NULL;
  return at ? strtod(at + 5, NULL) : -1;
}

static void look_at_asked(server *s, exchange *x) {
  struct asked *a = xcalloc(1, sizeof *a);
  const char *model = exchange_query(x, "model"), *load = exchange_query(x, "autoload");
  *a = (struct asked){.s = s,
                      .model = model && *model ? xstrdup(model) : NULL,
                      .load = load ? !strcmp(load, "true") || !strcmp(load, "1") : !s->o->no_autoload,
                      .wait_s = wait_asked(exchange_asked(x, "Prefer"))};
  x->own = a;
  x->own_free = asked_free;
}

// Who asks, from where, for what: in this order, before a body is read.
static int on_begin(void *ctx, exchange *x) {
  server *s = ctx;
  const char *allow, *origin = exchange_asked(x, "Origin"), *host = exchange_asked(x, "Host"),
                     *type = exchange_asked(x, "Content-Type");
  x->route = route_find(x->method, x->path, &allow);
  if (!guard_host(s->guard, host))
    return refuse_with(s, x, 403, "this Host is not allowed here; --allow-host allows one");
  if (!guard_origin(s->guard, origin, host, &x->allowed_origin))
    return refuse_with(s, x, 403, "pages from there may not ask; --allow-origin allows them");
  if (x->allowed_origin) allow_origin(x);
  if (x->allowed_origin && !strcmp(x->method, "OPTIONS")) return preflight(x);
  x->key =
    guard_keys(s->guard) ? guard_key(s->guard, exchange_asked(x, "Authorization"), exchange_asked(x, "X-Api-Key")) : 0;
  if (x->key < 0 && !(x->route && x->route->open)) {
    exchange_header(x, "WWW-Authenticate", "Bearer");
    return refuse_with(s, x, 401, "a valid key is needed: Authorization: Bearer KEY");
  }
  if (!x->route && allow) {
    exchange_header(x, "Allow", "%s", allow);
    return refuse_with(s, x, 405, "not by this method");
  }
  if (!x->route) return refuse_with(s, x, 404, "there is nothing at this path; /openapi.json lists what there is");
  if (!strcmp(x->route->method, "POST") && (type || origin) && !is_json(type))
    return refuse_with(s, x, 415, "Content-Type must be application/json");
  look_at_asked(s, x);
  return 0;
}

struct job { server *s; exchange *x; };

static int look_at_body(exchange *x, fault *f) {
  struct asked *a = asked_of(x);
  if (!x->route->tables || a->body) return 0;
  if (!(a->body = json_body(&x->body, &a->json_left, f))) return -1;
  str_free(&x->body);
  const json_t *name = json_object_get(a->body, "model");
  if (json_string_length(name) && strlen(json_string_value(name)) != json_string_length(name))
    return fault_set(f, 400, "model", "'model' has a NUL");
  if (!a->model && json_string_length(name)) a->model = xstrdup(json_string_value(name));
  return 0;
}

bool model_for(server *s, exchange *x) {
  struct asked *a = asked_of(x);
  fault f = {0};
  if (a->m) return true;
  int status = shelf_take(s->shelf, x, &(struct wanted){a->model, a->load, a->wait_s}, &a->m, &f);
  if (status < 0) answer_fault(s, x, &f);
  return !status;
}

static void handle(void *ctx) {
  struct job j = *(struct job *)ctx;
  fault f = {0};
  free(ctx);
  if (look_at_body(j.x, &f)) answer_fault(j.s, j.x, &f);
  else if (!j.x->route->needs_model || model_for(j.s, j.x)) j.x->route->handle(j.s, j.x);
  exchange_drop(j.x);
}

static void on_ready(void *ctx, exchange *x) {
  struct job *j = xmalloc(sizeof *j);
  *j = (struct job){ctx, x};
  pool_add(j->s->pool, handle, j);
}

// The model that it waited for is there: it goes through the pool once more.
static void on_model(void *ctx, exchange *x, served *m, const fault *f) {
  asked_of(x)->m = m;
  if (m) { on_ready(ctx, x); return; }
  answer_fault(ctx, x, f);
  exchange_drop(x);
}

// ---- start and end --------------------------------------------------------------------------------------------------

static int start_server(serve *v, error *err) {
  server *s = &v->s;
  const serve_options *o = &v->o;
  int n_keys = guard_keys(s->guard) ? guard_keys(s->guard) : 1;
  s->o = o;
  s->started = (int64_t)time(NULL);
  s->used = xcalloc((size_t)n_keys, sizeof *s->used);
  struct shelf_options so = {.o = o, .n_keys = n_keys, .ready = on_model, .ctx = s};
  struct http_options ho = {.listen_fd = v->fd,
                            .max_connections = o->max_connections,
                            .max_body = (size_t)o->max_body,
                            .header_s = 10,
                            .body_s = 30,
                            .idle_s = 75,
                            .write_s = 60,
                            .begin = on_begin,
                            .ready = on_ready,
                            .ctx = s};
  if (pool_start(o->workers, &s->pool, err) || shelf_open(&so, &s->shelf, err) || http_start(&ho, &s->http, err))
    return -1;
  v->fd = -1;                          // http's now
  return shelf_start(s->shelf, err);
}

// A signal that came within so long; 0: none.
static int wait_signal(const sigset_t *set, double seconds) {
  struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  int got = sigtimedwait(set, NULL, &t);
  return got > 0 ? got : 0;
}

static int until_signal(serve *v, const sigset_t *set, error *err) {
  bool known = false;
  while (!wait_signal(set, 0.1)) {
    int ready = known ? 1 : shelf_ready(v->s.shelf, err);
    if (ready < 0) return -1;
    systemd_tick(&v->notify, !ready, server_is_well(&v->s));
    if (ready && !known) systemd_say(&v->notify, "READY=1\nSTATUS=ready");
    if (ready && !known && !v->o.n_models) fprintf(stderr, "weft: ready: models of %s\n", v->o.models_dir);
    known = ready;
  }
  return 0;
}

// What runs may end; a second signal, or time, cuts it short.
static void drain(serve *v, const sigset_t *set) {
  double until = now_s() + v->o.drain_s;
  systemd_say(&v->notify, "STOPPING=1");
  shelf_drain(v->s.shelf);
  http_quiet(v->s.http);
  while ((shelf_busy(v->s.shelf) || http_busy(v->s.http)) && now_s() < until && !wait_signal(set, 0.05))
    systemd_tick(&v->notify, false, server_is_well(&v->s));
}

static void stop_server(serve *v) {
  server *s = &v->s;
  if (!shelf_stop(s->shelf)) {         // a model loads: that cannot be stopped, and nobody waits for it
    remove_socket(v);
    _exit(0);
  }
  http_stop(s->http);                  // from here on nobody asks for anything
  pool_stop(s->pool);
  shelf_free(s->shelf);
  http_free(s->http);                  // whoever answered held exchanges until now
  free(s->used);
}

int serve_run(serve *v, error *err) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, NULL);      // before there are threads, which inherit it
  int status = start_server(v, err);
  if (!status) {
    fprintf(stderr, "weft: listening on %s\n", v->address);
    status = until_signal(v, &set, err);
    if (!status) drain(v, &set);
  }
  stop_server(v);
  return status;
}
