// Replaces values of a file's keys or adds keys: see gguf_set_text.
#include "model/gguf_impl.h"
#include "base/plain.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int gguf_parse_setting(const char *asked, size_t *key_len, gguf_value *out, error *err) {
  const char *equals = strchr(asked, '='), *colon = equals ? strchr(equals, ':') : NULL, *v = colon ? colon + 1 : NULL;
  if (!colon || equals == asked) return error_set(err, "'%.100s' is not of the form key=type:value", asked);
  size_t n = (size_t)(colon - equals - 1);
  char *end = NULL;
  errno = 0;
  if (n == 3 && !memcmp(equals + 1, "int", n)) {
    *out = (gguf_value){.type = GGUF_INT64, .i = strtoll(v, &end, 10)};
    if (errno) end = NULL;
  } else if (n == 5 && !memcmp(equals + 1, "float", n)) {
    *out = (gguf_value){.type = GGUF_FLOAT64, .f = plain_strtod(v, &end)};
  } else if (n == 4 && !memcmp(equals + 1, "bool", n)) {
    *out = (gguf_value){.type = GGUF_BOOL, .b = !strcmp(v, "true")};
    end = out->b || !strcmp(v, "false") ? strchr(v, 0) : NULL;
  } else if (n == 3 && !memcmp(equals + 1, "str", n)) {
    *out = (gguf_value){.type = GGUF_STRING, .s = {v, strlen(v)}};
    end = strchr(v, 0);
  } else {
    return error_set(err, "'%.100s': the type must be int, float, bool or str", asked);
  }
  if (!end || *end || !*v) return error_set(err, "'%.100s': '%.60s' is no such value", asked, v);
  *key_len = (size_t)(equals - asked);
  return 0;
}

static void put_value(gguf *g, const char *key, gguf_value v) {
  gguf_file *f = &g->files[0];
  const gguf_value *old = gguf_find(g, key);
  if (old) { f->kv[gguf_kv_index(g, old)].value = v; return; }
  gguf_kv *kv = ARENA_ARRAY(g->arena, gguf_kv, f->n_kv + 1);
  const gguf_kv **by_key = ARENA_ARRAY(g->arena, const gguf_kv *, f->n_kv + 1);
  memcpy(kv, f->kv, f->n_kv * sizeof *kv);
  kv[f->n_kv] = (gguf_kv){.key = key, .key_len = strlen(key), .value = v};
  size_t at = 0;
  while (at < f->n_kv && strcmp(f->by_key[at]->key, key) < 0) at++;
  for (size_t i = 0; i <= f->n_kv; i++) by_key[i] = i == at ? &kv[f->n_kv] : &kv[f->by_key[i - (i > at)] - f->kv];
  f->kv = kv;
  f->by_key = by_key;
  f->n_kv++;
}

int gguf_set_text(gguf *g, const char *asked, error *err) {
  static const char of_arch[] = "{arch}.";
  gguf_value v;
  size_t n, skip = strlen(of_arch);
  str key = {0};
  if (gguf_parse_setting(asked, &n, &v, err)) return -1;
  if (strncmp(asked, of_arch, skip)) {
    str_addn(&key, asked, n);
  } else {
    gguf_string arch;
    if (gguf_str(g, "general.architecture", &arch, err)) return -1;
    str_addn(&key, arch.at, arch.n);
    str_addn(&key, asked + skip - 1, n - skip + 1);
  }
  if (v.type == GGUF_STRING) v.s.at = arena_strdup(g->arena, v.s.at);
  put_value(g, arena_strdup(g->arena, str_c(&key)), v);
  str_free(&key);
  return 0;
}
