// Checks hosts, origins and keys: see guard.h.
#define _GNU_SOURCE
#include "serve/guard.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { KEY_BYTES = 256 };
struct key { char *name; unsigned char text[KEY_BYTES]; };     // zero-padded, so that all have equal length
struct guard { struct guard_options o; VEC(struct key) keys; };

static int keep_key(guard *g, const char *name, const char *value, error *err) {
  struct key k = {0};
  char number[32];
  size_t n = strlen(value);
  if (n >= KEY_BYTES) return error_set(err, "a key of more than %d characters", KEY_BYTES - 1);
  memcpy(k.text, value, n);
  snprintf(number, sizeof number, "key%zu", g->keys.n + 1);
  k.name = xstrdup(name ? name : number);
  vec_push(&g->keys, k);
  return 0;
}

static int add_key(guard *g, const char *path, int line, char *text, error *err) {
  char *end = text + strlen(text);
  error why = {0};
  while (end > text && strchr(" \t\r\n", end[-1])) *--end = 0;
  text += strspn(text, " \t");
  if (!*text || *text == '#') return 0;
  char *colon = strchr(text, ':'), *value = colon ? colon + 1 : text;
  if (strlen(value) < 8) return error_set(err, "%s: line %d: a key of fewer than 8 characters", path, line);
  if (colon) *colon = 0;
  return keep_key(g, colon ? text : NULL, value, &why) ? error_set(err, "%s: line %d: %s", path, line, why.text) : 0;
}

// Keys of the command line may have any length, as in llama-server.
static int keep_given_keys(guard *g, error *err) {
  error why = {0};
  for (size_t i = 0; i < g->o.n_keys; i++) {
    if (keep_key(g, NULL, g->o.keys[i], &why)) return error_set(err, "--api-key: %s", why.text);
    if (strlen(g->o.keys[i]) < 8) warning("--api-key: a key of fewer than 8 characters is too easy to find");
  }
  return 0;
}

static int read_keys(guard *g, const char *path, error *err) {
  enum { MOST = 1 << 20 };             // bytes of the file
  FILE *f = fopen(path, "re");
  struct stat st;
  if (!f) return error_set(err, "%s: %s", path, strerror(errno));
  char *text = xcalloc(MOST + 2, 1), *rest = text, *line;
  size_t n = fread(text, 1, MOST + 1, f);
  int status = ferror(f) ? error_set(err, "%s: %s", path, strerror(errno)) : 0;
  if (!status && memchr(text, 0, n < MOST ? n : MOST)) status = error_set(err, "%s: there is a NUL in it", path);
  if (n > MOST) status = error_set(err, "%s: more than %d bytes of keys", path, MOST);
  if (!status && !fstat(fileno(f), &st) && st.st_mode & 077) warning("%s: others than you can read these keys", path);
  for (int i = 1; !status && (line = strsep(&rest, "\n")) && (*line || rest); i++)
    status = add_key(g, path, i, line, err);
  free(text);
  fclose(f);
  if (!status && !g->keys.n) status = error_set(err, "%s: there is no key in it", path);
  return status;
}

int guard_open(const struct guard_options *o, guard **out, error *err) {
  guard *g = xcalloc(1, sizeof *g);
  g->o = *o;
  if ((o->key_file && read_keys(g, o->key_file, err)) || keep_given_keys(g, err)) { guard_free(g); return -1; }
  *out = g;
  return 0;
}

void guard_free(guard *g) {
  if (!g) return;
  for (size_t i = 0; i < g->keys.n; i++) free(g->keys.at[i].name);
  vec_free(&g->keys);
  free(g);
}

int guard_keys(const guard *g) { return (int)g->keys.n; }
const char *guard_key_name(const guard *g, int key) {
  return key >= 0 && (size_t)key < g->keys.n ? g->keys.at[key].name : "-";
}

static bool is_port(const char *text) {
  size_t n = strspn(text, "0123456789");
  return n && n <= 5 && !text[n];
}

// "*" matches any name; "*.example.com" any name below that one. A port in the pattern is ignored, as in Host.
bool guard_host_matches(const char *pattern, const char *name) {
  size_t n = strcspn(pattern, ":"), k = strlen(name);
  if (n == 1 && *pattern == '*') return true;
  if (n > 2 && !strncmp(pattern, "*.", 2)) return k > n - 1 && !strncasecmp(name + k - (n - 1), pattern + 1, n - 1);
  return k == n && !strncasecmp(name, pattern, n);
}

bool guard_host(const guard *g, const char *host) {
  char name[256];
  unsigned char address[16];
  size_t n = host ? strlen(host) : 0;
  if (!n || n >= sizeof name) return false;
  if (*host == '[') {
    const char *close = strchr(host, ']');
    if (!close || (close[1] && (close[1] != ':' || !is_port(close + 2)))) return false;
    snprintf(name, sizeof name, "%.*s", (int)(close - host - 1), host + 1);
    return inet_pton(AF_INET6, name, address) == 1;
  }
  const char *colon = strchr(host, ':');
  if (colon && !is_port(colon + 1)) return false;
  snprintf(name, sizeof name, "%.*s", (int)(colon ? colon - host : (ptrdiff_t)n), host);
  if (!strcasecmp(name, "localhost") || inet_pton(AF_INET, name, address) == 1) return true;
  for (size_t i = 0; i < g->o.n_hosts; i++) if (guard_host_matches(g->o.hosts[i], name)) return true;
  return false;
}

// Is it "localhost:3000" or similar? host: the text after http:// in an origin, or Host.
static bool is_local(const char *host) {
  static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
  for (size_t i = 0; i < COUNT(names); i++) {
    size_t n = strlen(names[i]);
    if (!strncasecmp(host, names[i], n) && (!host[n] || (host[n] == ':' && is_port(host + n + 1)))) return true;
  }
  return false;
}

static const char *host_of(const char *origin) {
  return !strncmp(origin, "http://", 7) ? origin + 7 : !strncmp(origin, "https://", 8) ? origin + 8 : NULL;
}

static bool is_local_origin(const char *origin) { return host_of(origin) && is_local(host_of(origin)); }

// "*" matches any origin; "localhost" any page of the browser's own machine; "http://name:*" any port of that one.
static bool origin_matches(const char *pattern, const char *origin) {
  size_t n = strlen(pattern);
  if (!strcmp(pattern, "*")) return true;
  if (!strcmp(pattern, "localhost")) return is_local_origin(origin);
  if (n < 2 || strcmp(pattern + n - 2, ":*")) return !strcmp(pattern, origin);
  return !strncmp(pattern, origin, n - 2) && (!origin[n - 2] || (origin[n - 2] == ':' && is_port(origin + n - 1)));
}

bool guard_origin(const guard *g, const char *origin, const char *host, const char **allowed) {
  *allowed = NULL;
  if (!origin) return true;
  const char *rest = host_of(origin);
  if (rest && !strcasecmp(rest, host)) return true;
  bool fine = rest && is_local(rest) && is_local(host);
  for (size_t i = 0; i < g->o.n_origins && !fine; i++) fine = origin_matches(g->o.origins[i], origin);
  if (fine) *allowed = origin;
  return fine;
}

int guard_key(const guard *g, const char *authorization, const char *api_key) {
  unsigned char given[KEY_BYTES] = {0};
  const char *text = authorization && !strncasecmp(authorization, "Bearer ", 7) ? authorization + 7 : api_key;
  int found = -1;
  if (!text || strlen(text) >= KEY_BYTES) return -1;
  memcpy(given, text, strlen(text));
  for (size_t i = 0; i < g->keys.n; i++) {
    unsigned differs = 0;
    for (int k = 0; k < KEY_BYTES; k++) differs |= given[k] ^ ((const volatile unsigned char *)g->keys.at[i].text)[k];
    found = differs ? found : (int)i;
  }
  return found;
}
