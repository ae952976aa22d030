// The only file that calls getenv: see env.h.
#include "base/env.h"
#include <pthread.h>
#include <stdlib.h>

static const struct { const char *name, *def, *help; } table[] = {
#define E(name, def, help) {#name, def, help},
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
  take_setting(v, s && *s ? s : table[v].def);
}

static void read_all(void) { for (int v = 0; v < ENV_COUNT; v++) read_one((enum env_var)v); }

const char *env_name(enum env_var v) { return table[v].name; }
const char *env_help(enum env_var v) { return table[v].help; }
const char *env_default(enum env_var v) { return table[v].def; }
const char *env_str(enum env_var v) { pthread_once(&once, read_all); return value[v].text; }
int env_int(enum env_var v) { pthread_once(&once, read_all); return value[v].number; }

const char *env_certificate_file(void) { const char *s = getenv("SSL_CERT_FILE"); return s ? s : ""; }
const char *env_certificate_folders(void) { const char *s = getenv("SSL_CERT_DIR"); return s ? s : ""; }
const char *env_library_path(void) { const char *s = getenv("LD_LIBRARY_PATH"); return s ? s : ""; }

void env_set(enum env_var v, const char *s) {
  pthread_once(&once, read_all);
  if (s) take_setting(v, s);
  else read_one(v);
}
