// Reads environment variables; no other file calls getenv. See env.h.
#include "base/env.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/os.h"
#include "base/plain.h"

static const struct { const char *name, *def, *values, *help; } table[] = {
#define E(name, def, values, help) {#name, def, values, help},
  ENV_TABLE(E)
#undef E
};
static struct { char *text; int number; } value[ENV_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void take_setting(enum env_var v, const char *s) {
  free(value[v].text);
  value[v].text = xstrdup(s);
  value[v].number = (int)strtol(s, NULL, 10);
}

static void read_one(enum env_var v) {
  const char *s = getenv(table[v].name);
  if (v == ENV_HOME && (!s || !*s)) s = getenv(os_home_variable);
  take_setting(v, s && *s ? s : table[v].def);
}

static void read_all(void) { for (int v = 0; v < ENV_COUNT; v++) read_one((enum env_var)v); }

const char *env_name(enum env_var v) { return table[v].name; }
const char *env_help(enum env_var v) { return table[v].help; }
const char *env_default(enum env_var v) { return table[v].def; }
const char *env_str(enum env_var v) { pthread_once(&once, read_all); return value[v].text; }
bool env_device_is(const char *kind) {
  const char *dev = env_str(ENV_DEV);
  size_t n = strlen(kind);
  return !strncmp(dev, kind, n) && (!dev[n] || dev[n] == ':');
}
int env_int(enum env_var v) { pthread_once(&once, read_all); return value[v].number; }

// ---- values ---------------------------------------------------------------------------------------------------------

static bool is_word_of(const char *words, const char *text) {
  size_t n = strlen(text);
  for (const char *at = words; *at; at += strcspn(at, "|"), at += *at == '|')
    if (strcspn(at, "|") == n && !memcmp(at, text, n)) return true;
  return false;
}

static bool is_number_in(const char *range, const char *text) {
  char *end;
  double from = plain_strtod(range, NULL), to = plain_strtod(strstr(range, "..") + 2, NULL),
         x = plain_strtod(text, &end);
  bool whole = !strchr(strstr(range, "..") + 2, '.');
  return end != text && !*end && x >= from && x <= to && !(whole && text[strspn(text, "0123456789")]);
}

static bool is_allowed(const char *values, const char *text) {
  if (!*values || !*text) return true;
  if (!strcmp(values, "URL")) return !strncmp(text, "http://", 7) || !strncmp(text, "https://", 8);
  return strstr(values, "..") ? is_number_in(values, text) : is_word_of(values, text);
}

int env_check(error *err) {
  for (int v = 0; v < ENV_COUNT; v++) {
    const char *values = table[v].values, *text = env_str((enum env_var)v), *range = strstr(values, "..");
    if (is_allowed(values, text)) continue;
    if (!strcmp(values, "URL"))
      return error_set(err, "%s must begin with http:// or https://, not '%.80s'", table[v].name, text);
    if (range)
      return error_set(err, "%s must be a number from %.*s to %g, not '%.80s'", table[v].name, (int)(range - values),
                       values, plain_strtod(range + 2, NULL), text);
    return error_set(err, "%s must be one of %s, not '%.80s'", table[v].name, values, text);
  }
  return 0;
}

const char *env_of_option(const char *name) { const char *s = getenv(name); return s && *s ? s : NULL; }
const char *env_library_path(void) { const char *s = getenv("LD_LIBRARY_PATH"); return s ? s : ""; }

bool env_folder(enum env_var xdg, const char *below, const char *name, str *out) {
  const char *given = env_str(xdg), *home = env_str(ENV_HOME);
  out->n = 0;
  if (os_is_absolute(given)) str_addf(out, "%s/%s", given, name);
  else if (os_is_absolute(home)) str_addf(out, "%s/%s/%s", home, below, name);
  return out->n > 0;
}

void env_set(enum env_var v, const char *s) {
  pthread_once(&once, read_all);
  if (s) take_setting(v, s);
  else read_one(v);
}
