// Stores tunings in the kernel cache: see tuning.h.
//
// An entry's key is "tuning ", a line about the machine, and the kernel's IR; its value is a few lines of text. People
// read both (weft cache export), and neither is trusted: a list of OptOps is applied only as far as search_allows
// accepts it.
#include "device/tuning.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/plain.h"
#include "device/cache.h"
#include "device/code_version.h"
#include "device/entry_kinds.h"
#include "device/plan_impl.h"
#include "schedule/layout.h"

const char *tuning_version(void) { return CODE_VERSION; }

// The key of a kernel's tuning, or (without ast) of a weight's.
static void tuning_key(const device *d, uop *ast, const char *weight, str *key) {
  entry_key_begin(ENTRY_TUNING, key);
  if (ast) plan_key(d, ast, key);
  else { plan_machine(d, key); str_addf(key, "%s\n", weight); }
}

void tuning_print(str *out, const tuning *t) {
  str_add(out, "opts ");
  if (t->better) opts_print(out, t->opts, t->n);
  else str_add(out, "heuristic");
  if (t->cut_s > 0) str_addf(out, "\ncut %.9g", t->cut_s);
  if (t->done[0]) str_addf(out, "\ndone %s", t->done);
  str_addf(out, "\nus %.9g %.9g\nname %s\nrole %s\ncompiler %s\n", t->before_us, t->after_us, t->name, t->role,
           t->compiler);
}

// The value of a line "word value", up to the end of the line.
static bool value_of_line(const char *text, const char *name, char *out, size_t cap) {
  size_t n = strlen(name);
  for (const char *at = text; at; at = strchr(at, '\n')) {
    if (*at == '\n') at++;
    if (strncmp(at, name, n) || at[n] != ' ') continue;
    size_t len = strcspn(at + n + 1, "\n");
    if (len >= cap) return false;
    memcpy(out, at + n + 1, len);
    out[len] = 0;
    return true;
  }
  return false;
}

bool tuning_parse(const char *text, size_t n, tuning *out) {
  char copy[TUNING_TEXT], opts[TUNING_TEXT], us[64];
  *out = (tuning){0};
  if (n >= sizeof copy || memchr(text, 0, n)) return false;
  memcpy(copy, text, n);
  copy[n] = 0;
  if (!value_of_line(copy, "opts", opts, sizeof opts) || !value_of_line(copy, "us", us, sizeof us) ||
      plain_sscanf(us, "%lf %lf", &out->before_us, &out->after_us) != 2)
    return false;
  if (value_of_line(copy, "cut", us, sizeof us) &&
      (plain_sscanf(us, "%lf", &out->cut_s) != 1 || !(out->cut_s >= 0 && out->cut_s < TUNING_MOST_S)))
    return false;
  if (value_of_line(copy, "done", out->done, sizeof out->done) && out->done[strspn(out->done, "01")]) return false;
  if (!(out->before_us >= 0 && out->before_us < TUNING_MOST_US && out->after_us >= 0 && out->after_us < TUNING_MOST_US))
    return false;
  if (!value_of_line(copy, "name", out->name, sizeof out->name) ||
      !value_of_line(copy, "role", out->role, sizeof out->role) ||
      !value_of_line(copy, "compiler", out->compiler, sizeof out->compiler))
    return false;
  out->better = strcmp(opts, "heuristic") != 0;
  return !out->better || opts_parse(opts, out->opts, MOST_OPTS, &out->n);
}

static bool get_tuning(const device *d, uop *ast, const char *weight, tuning *out) {
  if (!d->cache || d->target.keeps_math || env_int(ENV_NOOPT)) return false;
  str key = {0};
  bytes hit = {0};
  tuning_key(d, ast, weight, &key);
  bool found = cache_get(d->cache, key.at, key.n, &hit) && tuning_parse((const char *)hit.at, hit.n, out);
  str_free(&key);
  bytes_free(&hit);
  return found;
}

bool tuning_get(const device *d, uop *ast, tuning *out) { return get_tuning(d, ast, NULL, out); }

static bool is_layout(const tuning *t) {
  return !t->better || (t->n == 1 && t->opts[0].kind == OPT_LAYOUT && t->opts[0].amount < LAYOUT_KINDS);
}

bool tuning_get_layout(const device *d, const char *weight, tuning *out) {
  return get_tuning(d, NULL, weight, out) && is_layout(out);
}

static void put_tuning(device *d, uop *ast, const char *weight, const tuning *t) {
  if (!d->cache) return;
  str key = {0}, value = {0};
  tuning_key(d, ast, weight, &key);
  tuning_print(&value, t);
  cache_put(d->cache, key.at, key.n, value.at, value.n);
  str_free(&key); str_free(&value);
}

void tuning_put(device *d, uop *ast, const tuning *t) { put_tuning(d, ast, NULL, t); }
void tuning_put_layout(device *d, const char *weight, const tuning *t) { put_tuning(d, NULL, weight, t); }

bool tuning_key_parts(const void *key, size_t n, const char **machine, size_t *machine_n, const char **ir,
                      size_t *ir_n) {
  if (entry_kind_of(key, n) != ENTRY_TUNING) return false;
  size_t word = strlen(entry_kind_row_of(ENTRY_TUNING)->name) + 1;
  const char *at = (const char *)key + word, *line = memchr(at, '\n', n - word);
  if (!line) return false;
  *machine = at;
  *machine_n = (size_t)(line - at);
  *ir = line + 1;
  *ir_n = n - (size_t)(*ir - (const char *)key);
  return true;
}

// The IR of a tuning may name a weight instead: one line.
static bool weight_name(const char *ir, char *out, size_t cap) {
  int end = 0;
  if (sscanf(ir, "weight %*31[A-Z0-9_] %*19[0-9] %*19[0-9] %*19[0-9]%n", &end) || !end || strcmp(ir + end, "\n"))
    return false;
  snprintf(out, cap, "%.*s", end, ir);
  return (size_t)end < cap;
}

int tuning_import(device *d, const char *machine, const char *ir, const tuning *t, bool check_only, error *err) {
  if (!d->cache) return error_set(err, "the kernel cache is off");
  graph *g = graph_new(NULL);
  error e = {0};
  str key = {0};
  int r = 0;
  char name[128];
  bool weight = weight_name(ir, name, sizeof name);
  uop *ast = weight ? NULL : uop_parse(g, ir, strlen(ir), &e);
  plan_machine(d, &key);
  size_t n = key.n - 1;                              // without the end of the line
  if (n != strlen(machine) || strncmp(machine, key.at, n))
    r = error_set(err, "made for '%s', and this machine is '%.*s'", machine, (int)n, key.at);
  else if (weight) { if (!is_layout(t)) r = error_set(err, "opts: not the layout of a weight"); }
  else if (!ast) r = error_set(err, "ir: %s", e.text);
  else if (ast->op != OP_SINK || ast->nsrc != 1 || ast->src[0]->op != OP_STORE) r = error_set(err, "ir: not a kernel");
  else {
    str text = {0};
    uop_print(&text, &ast, 1);
    if (strcmp(str_c(&text), ir)) r = error_set(err, "ir: not in the form in which a kernel is printed");
    str_free(&text);
  }
  if (!r && !check_only) put_tuning(d, ast, name, t);
  str_free(&key);
  graph_free(g);
  return r;
}
