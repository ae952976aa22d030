// The server from start to shutdown: see serve.h.
#define _GNU_SOURCE
#include "serve/serve.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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
#include "base/json.h"
#include "base/os.h"
#include "serve/call.h"
#include "serve/mhd.h"
#include "serve/server.h"
#include "serve/shape.h"
#include "serve/systemd.h"

// given: the socket was passed by the parent process
struct serve {
  serve_options o;
  server s;
  int fd;
  char address[256];
  bool remote, given;
  notifier notify;
  str key, certificate;                // TLS, PEM texts
};

// ---- the socket -----------------------------------------------------------------------------------------------------

static int listen_unix(serve *v, const char *path, error *err) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof a.sun_path) return error_set(err, "%s: too long for a socket", path);
  strcpy(a.sun_path, path);
  v->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  mode_t before = umask(0177);         // for this user only
  int status = v->fd < 0 || bind(v->fd, (struct sockaddr *)&a, sizeof a) || listen(v->fd, SOMAXCONN);
  umask(before);
  if (status) return error_set(err, "%s: %s", path, strerror(errno));
  snprintf(v->address, sizeof v->address, "unix:%s", path);
  return 0;
}

static bool is_loopback(const struct sockaddr *a) {
  if (a->sa_family == AF_INET)
    return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
  if (a->sa_family != AF_INET6) return false;
  // some C libraries have no const here
  struct in6_addr at = ((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&at);
}

static const char *scheme(const serve *v) { return v->o.tls_key ? "https" : "http"; }

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
  if (!strcmp(host, "*"))
    return error_set(err, "--host needs one address, not '*': 0.0.0.0 is every IPv4 address of this machine, :: every "
                     "address");
  if (getaddrinfo(host, service, &wanted, &found))
    return error_set(err, "--host needs one address, or the path of a socket, not '%.100s'%s", host,
                     strchr(host, ',') ? ": the server listens at one" : "");
  v->remote = !is_loopback(found->ai_addr);
  v->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (v->fd >= 0) setsockopt(v->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  int status = v->fd < 0 || bind(v->fd, found->ai_addr, found->ai_addrlen) || listen(v->fd, SOMAXCONN);
  bool v6 = found->ai_family == AF_INET6;
  freeaddrinfo(found);
  if (status) return error_set(err, "%s port %d: %s", host, port, strerror(errno));
  snprintf(v->address, sizeof v->address, v6 ? "%s://[%s]:%d" : "%s://%s:%d", scheme(v), host,
           bound_port(v->fd));
  return 0;
}

// For a socket that already listens.
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
  snprintf(v->address, sizeof v->address, v6 ? "%s://[%s]:%d" : "%s://%s:%d", scheme(v), host,
           bound_port(fd));
}

static int open_socket(serve *v, const char *host, error *err) {
  int given;
  if (systemd_socket(&given, err)) return -1;
  if (given >= 0) { listen_given(v, given); return 0; }
  return strchr(host, '/') ? listen_unix(v, host, err) : listen_tcp(v, host, v->o.port, err);
}

// Raises the limit of descriptors as far as allowed. each: how many a connection uses.
static int descriptors(int wanted, int each) {
  enum { REST = 128 };
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r)) return wanted;
  rlim_t need = (rlim_t)wanted * (rlim_t)each + REST;
  if (r.rlim_cur < need) r.rlim_cur = need < r.rlim_max ? need : r.rlim_max;
  setrlimit(RLIMIT_NOFILE, &r);
  return r.rlim_cur < need ? ((int)r.rlim_cur - REST) / each : wanted;
}

// ---- TLS ------------------------------------------------------------------------------------------------------------

static int read_pem(const char *path, str *to, error *err) {
  enum { MOST = 1 << 20 };
  FILE *f = fopen(path, "re");
  if (!f) return error_set(err, "%s: %s", path, strerror(errno));
  char *text = xmalloc(MOST + 1);
  size_t n = fread(text, 1, MOST + 1, f);
  int status = ferror(f)  ? error_set(err, "%s: %s", path, strerror(errno))
               : n > MOST ? error_set(err, "%s: more than %d bytes of PEM", path, MOST)
                          : 0;
  str_addn(to, text, n);
  free(text);
  fclose(f);
  if (status) return -1;
  return strstr(str_c(to), "-----BEGIN ") ? 0 : error_set(err, "%s: there is nothing in PEM in it", path);
}

static int read_tls(serve *v, error *err) {
  const serve_options *o = &v->o;
  if (!o->tls_key && !o->tls_certificate) return 0;
  if (!o->tls_key || !o->tls_certificate)
    return error_set(err, "TLS needs both a private key and its certificate: --ssl-key-file and --ssl-cert-file");
  return read_pem(o->tls_key, &v->key, err) || read_pem(o->tls_certificate, &v->certificate, err) ? -1 : 0;
}

// Whatever else keeps TLS from starting is the fault of one of its files.
static int start_http(const serve *v, const struct http_options *ho, http **out, error *err) {
  error why;
  if (!v->o.tls_key) return http_start(ho, out, err);
  if (!http_start(ho, out, &why)) return 0;
  return error_set(err, "%.300s, %.300s: %s", v->o.tls_key, v->o.tls_certificate, why.text);
}

static int check_slots(const char *folder, error *err) {
  struct stat st;
  if (!folder) return 0;
  if (stat(folder, &st)) return error_set(err, "--slot-save-path %s: %s", folder, strerror(errno));
  return S_ISDIR(st.st_mode) ? 0 : error_set(err, "--slot-save-path %s: is no folder", folder);
}

// Before the process gives up the right to open it.
static int open_static(serve *v, error *err) {
  v->s.files = v->o.files ? open(v->o.files, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  return v->o.files && v->s.files < 0 ? error_set(err, "--path %s: %s", v->o.files, strerror(errno)) : 0;
}

// Events do not name a model, so only one model is allowed.
static int open_kv_events(serve *v, const char *host, error *err) {
  const serve_options *o = &v->o;
  if (!o->kv_events) return 0;
  if (kv_events_open(o->kv_events, host, o->block_size, &v->s.kv, err)) return -1;
  if (v->s.kv && (o->models_dir || o->n_models != 1))
    return error_set(err, "--kv-events-config: events name no model, so it needs a server of one (-m FILE)");
  return 0;
}

int serve_load(const char **version, error *err) {
  mhd_api a;
  if (mhd_load(&a, err)) return -1;
  if (version) *version = a.get_version();
  return 0;
}

int serve_open(const serve_options *o, serve **out, error *err) {
  serve *v = xcalloc(1, sizeof *v);
  v->o = *o;
  v->fd = v->s.files = -1;
  v->s.log = o->log;
  v->notify = systemd_notifier();
  umask(077);                          // files of --keep-in and --slot-save-path contain prompts
  struct guard_options g = {o->key_file, o->keys, o->n_keys, o->hosts, o->origins, o->n_hosts, o->n_origins};
  const char *host = o->host ? o->host : "127.0.0.1";
  int status = guard_open(&g, &v->s.guard, err);
  if (!status) status = read_tls(v, err);
  if (!status) status = check_slots(o->slots, err);
  if (!status) status = open_static(v, err);
  if (!status) status = open_socket(v, host, err);
  if (!status) status = open_kv_events(v, host, err);
  if (!status && v->remote && !guard_keys(v->s.guard) && !o->no_key)
    status = error_set(
      err, "%s can be reached from other machines: give keys with --api-key or --api-key-file, or say --no-key",
      v->address);
  v->o.max_connections = descriptors(o->max_connections, v->s.files >= 0 ? 2 : 1);
  *out = v;
  if (!status) return 0;
  serve_close(v);
  return -1;
}

static void remove_socket(const serve *v) {
  if (!v->given && v->o.host && strchr(v->o.host, '/') && v->address[0]) unlink(v->o.host);
}

void serve_close(serve *v) {
  if (!v) return;
  if (v->fd >= 0) os_close_socket(v->fd);
  if (v->s.files >= 0) close(v->s.files);
  remove_socket(v);
  kv_events_close(v->s.kv);
  systemd_close(&v->notify);
  guard_free(v->s.guard);
  log_close(v->s.log);
  str_free(&v->key);
  str_free(&v->certificate);
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
  exchange_header(x, "Access-Control-Expose-Headers", "*");
  exchange_header(x, "Vary", "Origin");
}

// Allows any request headers that the page wants: SDKs send many of their own (x-stainless-*, anthropic-version, ...),
// and access depends on the origin.
static int preflight(exchange *x) {
  const char *wanted = exchange_asked(x, "Access-Control-Request-Headers"),
             *network = exchange_asked(x, "Access-Control-Request-Private-Network");
  exchange_header(x, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  exchange_header(x, "Access-Control-Allow-Headers", "%s",
                  wanted && *wanted ? wanted : "Authorization, Content-Type, X-Api-Key, X-Conversation-Id");
  if (network && !strcmp(network, "true")) exchange_header(x, "Access-Control-Allow-Private-Network", "true");
  exchange_header(x, "Access-Control-Max-Age", "600");
  exchange_send(x, 204, NULL, "", 0);
  return -1;
}

// Does a browser send this message for a page? Then its content type must be declared, since any page's form could send
// other types without a preflight.
static bool is_of_page(const exchange *x) {
  const char *site = exchange_asked(x, "Sec-Fetch-Site");
  return exchange_asked(x, "Origin") || (site && strcmp(site, "none"));
}

// The length of the name in NAME or NAME:PORT; 0: invalid.
static size_t name_of_host(const char *host) {
  static const char *const digits = "0123456789", *const names = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                                 "0123456789-._";
  size_t n = strspn(host, names);
  const char *port = host + n;
  return !*port || (*port == ':' && port[1] && !port[1 + strspn(port + 1, digits)]) ? n : 0;
}

static int refuse_host(server *s, exchange *x, const char *host) {
  fault f = {0};
  size_t n = host ? name_of_host(host) : 0;
  if (n)
    fault_set(&f, 403, NULL, "the Host '%.200s' is not allowed here; the server's option --allow-host %.*s allows it",
              host, (int)n, host);
  else
    fault_set(&f, 403, NULL, "the Host '%.200s' is not a name with or without a port", host ? host : "");
  answer_fault(s, x, &f);
  return -1;
}

static int refuse_origin(server *s, exchange *x, const char *origin) {
  fault f = {0};
  fault_set(&f, 403, NULL, "pages of '%.200s' may not ask; the server's option --allow-origin %.200s allows them",
            origin, origin);
  answer_fault(s, x, &f);
  return -1;
}

static void asked_free(void *own) {
  struct asked *a = own;
  if (a->m) shelf_give(a->s->shelf, a->m, !a->looks);
  json_decref(a->body);
  free(a->conversation);
  free(a->from);
  free(a->action);
  free(a->model);
  str_free(&a->ignored);
  free(a);
}

// Seconds of "Prefer: wait=10"; negative: not given.
static double wait_asked(const char *prefer) {
  const char *at = prefer ? strstr(prefer, "wait=") : NULL;
  return at ? strtod(at + 5, NULL) : -1;
}

static char *copy_of(const char *text) { return text && *text ? xstrdup(text) : NULL; }

static void look_at_asked(server *s, exchange *x, const char *conversation) {
  struct asked *a = xcalloc(1, sizeof *a);
  const char *load = exchange_query(x, "autoload");
  *a = (struct asked){.s = s,
                      .model = copy_of(exchange_query(x, "model")),
                      .looks = !strcmp(x->method, "GET"),
                      .conversation = copy_of(conversation ? conversation : exchange_query(x, "conv_id")),
                      .action = copy_of(exchange_query(x, "action")),
                      .from = copy_of(exchange_query(x, "from")),
                      .load = load ? !strcmp(load, "true") || !strcmp(load, "1") : !s->o->no_autoload,
                      .wait_s = wait_asked(exchange_asked(x, "Prefer"))};
  x->own = a;
  x->own_free = asked_free;
}

// Length without trailing slashes.
static size_t prefix_length(const char *prefix) {
  size_t n = prefix ? strlen(prefix) : 0;
  while (n && prefix[n - 1] == '/') n--;
  return n;
}

// Removes --api-prefix from the path. false: the path does not begin with it.
static bool strip_prefix(const server *s, exchange *x) {
  const char *prefix = s->o->prefix;
  size_t n = prefix_length(prefix);
  if (!n) return true;
  if (strncmp(x->path, prefix, n) || (x->path[n] && x->path[n] != '/')) return false;
  memmove(x->path, x->path + n, strlen(x->path + n) + 1);
  return true;
}

// The page's links are relative: without the slash they would lead elsewhere.
static int to_page(const server *s, exchange *x) {
  exchange_header(x, "Location", "%.*s/", (int)prefix_length(s->o->prefix), s->o->prefix);
  exchange_send(x, 308, NULL, "", 0);
  return -1;
}

// Is this for --path: a GET of the page, or of a path without a route?
static bool is_file(const server *s, const exchange *x, const char *allow) {
  const struct family *family;
  bool get = !strcmp(x->method, "GET") || !strcmp(x->method, "HEAD");
  if (s->files < 0 || !get || x->path[0] != '/') return false;
  return x->route ? x->route->handle == handle_page : !allow && !route_refusal(x->path, &family);
}

// Checks host, origin, key and route, in this order, before a body is read.
static int on_begin(void *ctx, exchange *x) {
  server *s = ctx;
  const char *allow, *origin = exchange_asked(x, "Origin"), *host = exchange_asked(x, "Host"),
                     *type = exchange_asked(x, "Content-Type");
  bool within = strip_prefix(s, x);
  x->route = route_find(x->method, x->path, &allow);
  if (within && is_file(s, x, allow)) x->route = &files_route;
  if (!within) x->route = NULL, allow = NULL;
  if (!host && !x->v1_1 && !origin) host = "localhost";        // not a browser: proxies' health checks send no Host
  if (!guard_host(s->guard, host)) return refuse_host(s, x, host);
  if (!guard_origin(s->guard, origin, host, &x->allowed_origin)) return refuse_origin(s, x, origin);
  if (x->allowed_origin) allow_origin(x);
  if (x->allowed_origin && !strcmp(x->method, "OPTIONS")) return preflight(x);
  x->key =
    guard_keys(s->guard) ? guard_key(s->guard, exchange_asked(x, "Authorization"), exchange_asked(x, "X-Api-Key")) : 0;
  if (x->key < 0 && !(x->route && x->route->open)) {
    exchange_header(x, "WWW-Authenticate", "Bearer");
    return refuse_with(s, x, 401, "a valid key is needed: Authorization: Bearer KEY");
  }
  if (within && !*x->path) return to_page(s, x);
  const struct family *family;
  const char *why = x->route || !within ? NULL : route_refusal(x->path, &family);
  if (!x->route && allow) exchange_header(x, "Allow", "%s", allow);
  if (why) {
    fault f = {0};
    fault_set(&f, allow ? 405 : 501, NULL, "%s", why);
    answer_fault_as(s, x, &f, family);
    return -1;
  }
  if (!x->route && allow) return refuse_with(s, x, 405, "not by this method");
  if (!x->route) return refuse_with(s, x, 404, "there is nothing at this path; /openapi.json lists what there is");
  if (!strcmp(x->route->method, "POST") && is_of_page(x) && !is_json(type))
    return refuse_with(s, x, 415, "Content-Type must be application/json");
  const char *conversation = exchange_asked(x, "X-Conversation-Id");
  if (conversation && strlen(conversation) > CONVERSATION_ID_MAX)
    return refuse_with(s, x, 400, "X-Conversation-Id has more than 256 bytes");
  look_at_asked(s, x, conversation);
  return 0;
}

struct job { server *s; exchange *x; };

static int look_at_body(exchange *x, fault *f) {
  struct asked *a = asked_of(x);
  if (!x->route->tables || a->body) return 0;
  if (!(a->body = json_body(&x->body, &a->json_left, &x->account, f))) return -1;
  account_give(&x->account, x->body.n);
  str_free(&x->body);
  fields_unread(a->body, "", x->route->tables, &a->ignored);
  if (fields_clash(a->body, x->route->tables, f)) return -1;
  shape_holds(a->s->shapes[x->route - routes], a->body, &a->misfit);
  const json_t *name = json_object_get(a->body, "model");
  if (name && !json_is_string(name) && !json_is_null(name))
    return fault_set(f, 400, "model", "'model' must be a string, not %s", json_kind(name));
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
  const char *conversation = asked_of(j.x)->conversation;
  if (conversation && !strcmp(j.x->method, "POST")) replay_copy(j.s->replay, j.x, conversation);
  if (look_at_body(j.x, &f)) answer_fault(j.s, j.x, &f);
  else if (!j.x->route->needs_model || model_for(j.s, j.x)) {
    account_scope before = account_enter(&j.x->account);
    j.x->route->handle(j.s, j.x);
    account_leave(before);
  }
  exchange_drop(j.x);
}

// What a body asks for may take long to read and to make: not on the threads that write streams and answer /health.
static bool has_body(const struct route *r) { return !strcmp(r->method, "POST"); }

static void on_ready(void *ctx, exchange *x) {
  struct job *j = xmalloc(sizeof *j);
  *j = (struct job){ctx, x};
  pool_add(has_body(x->route) ? j->s->makers : j->s->pool, handle, j);
}

static void on_malformed(void *ctx, const char *why) {
  server_log *l = ((server *)ctx)->log;
  if (!log_takes(l, LOG_NORMAL)) return;
  log_line e = log_begin(l, "malformed");
  log_text(&e, "reason", why);
  log_write(l, &e);
}

static void on_over(void *ctx, exchange *x) { log_request(ctx, x); }

// The model that it waited for is loaded: passes it to the pool again.
static void on_model(void *ctx, exchange *x, served *m, const fault *f) {
  asked_of(x)->m = m;
  if (m) { on_ready(ctx, x); return; }
  answer_fault(ctx, x, f);
  exchange_drop(x);
}

// ---- start and end --------------------------------------------------------------------------------------------------

static int read_server_defaults(server *s, error *err) {
  fault f = {0};
  if (!s->o->defaults) return 0;
  s->defaults = json_read(s->o->defaults, strlen(s->o->defaults), JSON_ALLOW_NUL, NULL, err);
  if (!s->defaults) return -1;
  return params_check_defaults(s, &f) ? error_set(err, "%s", f.text) : 0;
}

static void make_shapes(server *s) {
  s->shapes = xcalloc(n_routes, sizeof *s->shapes);
  for (size_t i = 0; i < n_routes; i++) {
    if (!routes[i].tables) continue;
    s->shapes[i] = fields_schema(routes[i].tables);
    shape_check(s->shapes[i]);
  }
}

// The memory limit of all requests: a quarter of the free memory; the model, its cache and unaccounted memory (at most
// twice the accounted) need the rest.
static size_t requests_room(const server *s, uint64_t left, int64_t asked) {
  enum { LEAST = 8 << 20 };
  uint64_t quarter = left / 4, most = quarter > LEAST ? quarter : LEAST;
  if ((uint64_t)asked <= most) return (size_t)asked;
  log_say(s->log, "memory", "requests may hold %llu MiB together, a quarter of the memory that is left (--max-memory)",
          (unsigned long long)(most >> 20));
  return (size_t)most;
}

static void on_warning(void *log, const char *text) { log_warn(log, "%s", text); }

static int start_server(serve *v, error *err) {
  server *s = &v->s;
  const serve_options *o = &v->o;
  int n_keys = guard_keys(s->guard) ? guard_keys(s->guard) : 1;
  memory_give_back_large();
  s->o = o;
  s->started = (int64_t)time(NULL);
  s->used = xcalloc((size_t)n_keys, sizeof *s->used);
  s->replay = replay_new();
  make_shapes(s);
  s->openapi = describe_routes();
  if (read_server_defaults(s, err)) return -1;
  if (log_start(s->log, err)) return -1;
  weft_log_to(on_warning, s->log);
  enum { KEEP = 32 << 20 };            // for threads and libraries, at all times
  // an eighth is reserved for small requests, so that large ones do not block them
  uint64_t left = weft_memory_available(), keep = left / 16 < KEEP ? left / 16 : KEEP;
  size_t room = requests_room(s, left, o->max_bytes), spare = room / 8,
         most = (size_t)min_i64((int64_t)(room - spare), o->max_request_bytes);
  s->memory = (account){.most = room, .spare = spare, .most_ns = INT64_MAX, .bytes_option = "--max-memory",
                        .system = weft_memory_available, .keep = (size_t)keep};
  struct shelf_options so = {.o = o, .log = s->log, .kv = s->kv, .n_keys = n_keys, .ready = on_model, .ctx = s};
  struct http_options ho = {.listen_fd = v->fd,
                            .given = v->given,
                            .max_connections = o->max_connections,
                            .max_body = (size_t)min_i64(o->max_body, (int64_t)most),
                            .memory = &s->memory,
                            .most_bytes = most,
                            .most_work_s = o->max_request_work_s,
                            .tls_key = o->tls_key ? v->key.at : NULL,
                            .tls_certificate = o->tls_key ? v->certificate.at : NULL,
                            .header_s = 10,
                            .body_s = o->io_s > 0 ? o->io_s : 30,
                            .idle_s = 75,
                            .write_s = o->io_s > 0 ? o->io_s : 60,
                            .begin = on_begin,
                            .ready = on_ready,
                            .over = on_over,
                            .malformed = on_malformed,
                            .ctx = s};
  if (pool_start(o->workers, &s->pool, err) || pool_start(o->workers, &s->makers, err) ||
      shelf_open(&so, &s->shelf, err) || start_http(v, &ho, &s->http, err))
    return -1;
  v->fd = -1;                          // now owned by http
  if (kv_events_start(s->kv, err)) return -1;
  if (s->kv)
    log_say(s->log, "events", "events of the KV cache at %s: anyone who connects reads the tokens of all prompts",
            kv_events_addresses(s->kv));
  return shelf_start(s->shelf, err);
}

static int until_signal(serve *v, const sigset_t *set, error *err) {
  bool known = false;
  while (!os_wait_signal(set, 0.1)) {
    replay_tick(v->s.replay);
    http_trim(v->s.http);
    int ready = known ? 1 : shelf_ready(v->s.shelf, err);
    if (ready < 0) return -1;
    systemd_tick(&v->notify, !ready, server_is_well(&v->s));
    if (ready && !known) systemd_say(&v->notify, "READY=1\nSTATUS=ready");
    if (ready && !known && !v->o.n_models) log_say(v->s.log, "ready", "ready: models of %s", v->o.models_dir);
    known = ready;
  }
  return 0;
}

#define LAST_MESSAGE_S 1.0    // grace period in which a proxy may use a kept connection, or see that it should not

static void log_drain(const serve *v) {
  server_log *l = v->s.log;
  if (!log_takes(l, LOG_NORMAL)) return;
  log_line e = log_begin(l, "draining");
  log_count(&e, "requests", http_busy(v->s.http));
  log_count(&e, "seconds", (int64_t)v->o.drain_s);
  log_write(l, &e);
}

// false: another signal arrived.
static bool pass_time(serve *v, const sigset_t *set) {
  replay_tick(v->s.replay);
  http_trim(v->s.http);
  systemd_tick(&v->notify, false, server_is_well(&v->s));
  return !os_wait_signal(set, 0.05);
}

// Running requests may end; a second signal or the timeout aborts them. First only /health reports the shutdown, for
// routers. Then new connections are refused, which makes proxies use another server. Messages on existing connections
// are still answered, because some proxies pass a 503 on to their client; each answer closes its connection. Idle
// connections stay open for a moment, since a proxy may be about to use one.
static void drain(serve *v, const sigset_t *set) {
  v->s.ending = true;
  systemd_say(&v->notify, "STOPPING=1");
  log_drain(v);
  for (double until = now_s() + v->o.drain_delay_s; now_s() < until;) if (!pass_time(v, set)) return;
  shelf_drain(v->s.shelf);
  http_quiet(v->s.http);
  double now = now_s(), until = now + v->o.drain_s;
  for (double quiet = now; now < until && pass_time(v, set); now = now_s()) {
    if (shelf_busy(v->s.shelf) || http_busy(v->s.http)) quiet = now;
    else if (!http_connections(v->s.http) || now - quiet > LAST_MESSAGE_S) return;
  }
}

static void stop_server(serve *v) {
  server *s = &v->s;
  if (!shelf_stop(s->shelf)) {         // a model is loading, which cannot be stopped: do not wait for it
    remove_socket(v);
    weft_log_to(NULL, NULL);
    log_close(s->log);
    _exit(0);
  }
  http_stop(s->http);                  // no more requests from here on
  pool_stop(s->makers);
  pool_stop(s->pool);
  shelf_free(s->shelf);
  replay_free(s->replay);
  http_free(s->http);                  // workers held exchanges until now
  weft_log_to(NULL, NULL);
  json_decref(s->defaults);
  for (size_t i = 0; s->shapes && i < n_routes; i++) json_decref(s->shapes[i]);
  free(s->shapes);
  free(s->openapi.at);
  free(s->used);
}

int serve_run(serve *v, error *err) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  struct sigaction hangup;                     // SIGHUP of a closed terminal; nohup ignores it
  if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  signal(SIGUSR1, SIG_IGN);                    // its default would end the server
  signal(SIGUSR2, SIG_IGN);
  pthread_sigmask(SIG_BLOCK, &set, NULL);      // before threads are made, which inherit the mask
  int status = start_server(v, err);
  if (!status) {
    log_say(v->s.log, "listening", "listening on %s", v->address);
    status = until_signal(v, &set, err);
    if (!status) drain(v, &set);
  }
  stop_server(v);
  return status;
}
