// Hosts, origins and keys: see guard.h.
#define _GNU_SOURCE
#include "serve/guard.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { KEY_BYTES = 256 };
struct key { char *name; unsigned char text[KEY_BYTES]; };     // filled up with zeros, so that all are as long
struct guard { struct guard_options o; VEC(struct key) keys; };

static int add_key(guard *g, const char *path, int line, char *text, error *err) {
  char *end = text + strlen(text);
  while (end > text && strchr(" \t\r\n", end[-1])) *--end = 0;
  text += strspn(text, " \t");
  if (!*text || *text == '#') return 0;
  char *colon = strchr(text, ':'), *value = colon ? colon + 1 : text;
  size_t n = strlen(value);
  if (n < 8) return error_set(err, "%s: line %d: a key of fewer than 8 characters", path, line);
  if (n >= KEY_BYTES) return error_set(err, "%s: line %d: a key of more than %d characters", path, line, KEY_BYTES - 1);
  struct key k = {0};
  memcpy(k.text, value, n);
  if (colon) *colon = 0;
  char number[32];
  snprintf(number, sizeof number, "key%zu", g->keys.n + 1);
  k.name = xstrdup(colon ? text : number);
  vec_push(&g->keys, k);
  return 0;
}

static int read_keys(guard *g, const char *path, error *err) {
  FILE *f = fopen(path, "re");
  struct stat st;
  char *line = NULL;
  size_t cap = 0;
  int status = 0;
  if (!f) return error_set(err, "%s: %s", path, strerror(errno));
  if (!fstat(fileno(f), &st) && st.st_mode & 077) warning("%s: others than you can read these keys", path);
  for (int i = 1; !status && getline(&line, &cap, f) >= 0; i++) status = add_key(g, path, i, line, err);
  free(line);
  fclose(f);
  if (!status && !g->keys.n) status = error_set(err, "%s: there is no key in it", path);
  return status;
}

int guard_open(const struct guard_options *o, guard **out, error *err) {
  guard *g = xcalloc(1, sizeof *g);
  g->o = *o;
  if (o->key_file && read_keys(g, o->key_file, err)) { guard_free(g); return -1; }
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
  for (size_t i = 0; i < g->o.n_hosts; i++) if (!strcasecmp(name, g->o.hosts[i])) return true;
  return false;
}

bool guard_origin(const guard *g, const char *origin, const char *host, const char **allowed) {
  *allowed = NULL;
  if (!origin) return true;
  const char *rest = !strncmp(origin, "http://", 7) ? origin + 7 : !strncmp(origin, "https://", 8) ? origin + 8 : NULL;
  if (rest && !strcasecmp(rest, host)) return true;
  for (size_t i = 0; i < g->o.n_origins; i++) {
    if (strcmp(origin, g->o.origins[i])) continue;
    *allowed = g->o.origins[i];
    return true;
  }
  return false;
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
