// Reads the configuration of KV events: see kv_config.h. Two differences from vLLM: the server listens and never
// connects to a reader; and without an endpoint, it listens only at the server's own address.
#define _GNU_SOURCE
#include "serve/kv_config.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/json.h"

enum { PORT = 5557, MOST_MESSAGES = 1000000 };

static int refuse_member(error *err, const char *member, const char *wanted) {
  return error_set(err, "--kv-events-config: '%s' must be %s", member, wanted);
}

// tcp://ADDRESS:PORT. ADDRESS: IPv4, IPv6 in brackets, or *; PORT *: any free port.
static int read_address(const char *text, struct kv_address *a) {
  const char *host = text + strlen("tcp://"), *colon = strrchr(text, ':');
  if (strncmp(text, "tcp://", strlen("tcp://")) || colon < host || !colon[1]) return -1;
  size_t n = (size_t)(colon - host);
  if (n > 1 && *host == '[' && host[n - 1] == ']') host++, n -= 2;
  if (!n || n >= sizeof a->host) return -1;
  char *end;
  long port = strcmp(colon + 1, "*") ? strtol(colon + 1, &end, 10) : 0;
  if ((port || strcmp(colon + 1, "*")) && (*end || port < 1 || port > 65535)) return -1;
  *a = (struct kv_address){.given = true, .port = (int)port};
  memcpy(a->host, host, n);
  return 0;
}

static int member_address(const json_t *v, const char *name, struct kv_address *a, error *err) {
  const char *text = json_string_value(v);
  if (json_is_null(v)) return 0;
  return text && !read_address(text, a) ? 0 : refuse_member(err, name, "an address to listen at, such as tcp://*:5557");
}

static int member_count(const json_t *v, const char *name, int *to, error *err) {
  json_int_t n = json_integer_value(v);
  if (!json_is_integer(v) || n < 1 || n > MOST_MESSAGES) return refuse_member(err, name, "a number from 1 to 1000000");
  *to = (int)n;
  return 0;
}

static int member_choice(const json_t *v, const char *name, const char *yes, const char *no, bool *to, error *err) {
  const char *text = json_string_value(v) ? json_string_value(v) : "";
  if (strcmp(text, yes) && strcmp(text, no))
    return error_set(err, "--kv-events-config: '%s' must be \"%s\" or \"%s\"", name, yes, no);
  *to = !strcmp(text, yes);
  return 0;
}

static int member_topic(const json_t *v, const char *name, char **to, error *err) {
  const char *text = json_string_value(v);
  if (!text || strlen(text) != json_string_length(v)) return refuse_member(err, name, "a string");
  free(*to);
  *to = xstrdup(text);
  return 0;
}

static int read_member(const char *name, const json_t *v, struct kv_config *o, bool *publishes, error *err) {
  if (!strcmp(name, "enable_kv_cache_events")) {
    o->wanted = json_is_true(v);
    return json_is_boolean(v) ? 0 : refuse_member(err, name, "true or false");
  }
  if (!strcmp(name, "publisher"))
    return json_is_null(v) ? 0 : member_choice(v, name, "zmq", "null", publishes, err);
  if (!strcmp(name, "event_format")) return member_choice(v, name, "map", "array", &o->maps, err);
  if (!strcmp(name, "endpoint")) return member_address(v, name, &o->endpoint, err);
  if (!strcmp(name, "replay_endpoint")) return member_address(v, name, &o->replay, err);
  if (!strcmp(name, "buffer_steps")) return member_count(v, name, &o->buffer, err);
  if (!strcmp(name, "max_queue_size")) return member_count(v, name, &o->queue, err);
  if (!strcmp(name, "hwm")) return member_count(v, name, &o->limit, err);
  if (!strcmp(name, "topic")) return member_topic(v, name, &o->topic, err);
  return error_set(err, "--kv-events-config: '%.100s' is no member of it; there are enable_kv_cache_events, publisher, "
                        "endpoint, replay_endpoint, buffer_steps, hwm, max_queue_size, topic and event_format", name);
}

int kv_config_read(const char *json, const char *host, int block_size, struct kv_config *out, error *err) {
  error why = {0};
  bool publishes = true;
  *out = (struct kv_config){
    .maps = true, .block_size = block_size, .buffer = 10000, .queue = 100000, .limit = 100000, .topic = xstrdup("")};
  json_t *o = json_read(json, strlen(json), 0, NULL, &why), *v;
  int status = o ? 0 : error_set(err, "--kv-events-config: %s", why.text);
  if (o && !json_is_object(o)) status = error_set(err, "--kv-events-config must be a JSON object, as vLLM's is");
  const char *name;
  if (!status) json_object_foreach(o, name, v) if ((status = read_member(name, v, out, &publishes, err))) break;
  json_decref(o);
  out->wanted &= publishes;
  if (status || out->endpoint.given) return status;
  out->endpoint = (struct kv_address){.given = true, .port = PORT};
  const char *own = !host || strchr(host, '/') || !strcmp(host, "localhost") ? "127.0.0.1" : host;
  snprintf(out->endpoint.host, sizeof out->endpoint.host, "%s", own);
  return 0;
}

void kv_config_free(struct kv_config *o) {
  free(o->topic);
  o->topic = NULL;
}

int kv_config_listen(struct kv_address *a, int *fd, error *err) {
  struct addrinfo wanted = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found = NULL;
  struct sockaddr_storage at;
  socklen_t n = sizeof at;
  char service[16];
  int on = 1;
  snprintf(service, sizeof service, "%d", a->port);
  if (getaddrinfo(strcmp(a->host, "*") ? a->host : "0.0.0.0", service, &wanted, &found))
    return error_set(err, "--kv-events-config: '%s' is no address of this machine: a number is needed, or *", a->host);
  *fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (*fd >= 0) setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  int status = *fd < 0 || bind(*fd, found->ai_addr, found->ai_addrlen) || listen(*fd, SOMAXCONN) ||
               getsockname(*fd, (struct sockaddr *)&at, &n);
  bool v6 = found->ai_family == AF_INET6;
  freeaddrinfo(found);
  if (status) return error_set(err, "--kv-events-config: %s port %d: %s", a->host, a->port, strerror(errno));
  a->port = ntohs(v6 ? ((struct sockaddr_in6 *)&at)->sin6_port : ((struct sockaddr_in *)&at)->sin_port);
  snprintf(a->shown, sizeof a->shown, v6 ? "tcp://[%s]:%d" : "tcp://%s:%d", a->host, a->port);
  return 0;
}
