// weft cache: lists, verifies and clears the kernel cache, and exports and imports tunings.
#define _GNU_SOURCE
#include "app/app.h"
#include <errno.h>
#include "app/json.h"
#include "base/json.h"
#include "base/newfile.h"
#include "base/str.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct command command = {
  "cache",
  "Shows, checks and empties the kernel cache; takes tunings to another machine like this one.",
  "list|verify|clear|export FILE|import FILE [options]",
  "  list      every entry: what it is, its size, when it was made\n"
  "  verify    lists damaged entries; status 1 if there are any. A damaged entry is never used\n"
  "  clear     removes everything; with --tunings what 'weft tune' found, and the kernels stay\n"
  "  export    writes all tunings of this version as JSON (- for stdout)\n"
  "  import    adds tunings from such a file (- for stdin), all or none: they have to be made for the same\n"
  "            processor features and version. Each is checked again when a model needs it\n",
  COMMAND_BIT(cache),
  0};

// ---- list, verify ---------------------------------------------------------------------------------------------------

struct listing {
  struct out out;
  bool only_damaged, only_tunings;
  json_t *rows;
  size_t n, damaged, old, tunings;
  double bytes;
};

static void show_entry(struct listing *l, const weft_cache_entry *e) {
  char when[32] = "-";
  time_t t = (time_t)e->created;
  struct tm tm;
  if (localtime_r(&t, &tm)) strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
  out_addf(&l->out, "%-8s %-38.38s %-22.22s %9.1f KiB  %-16s %s%s", e->kind, e->name, e->role, (double)e->bytes / 1024,
           when, e->sound ? "" : "damaged ", e->current ? "" : "old version");
  if (e->opts && e->before_us > 0)
    out_addf(&l->out, "%.1f -> %.1f us  %s%s", e->before_us, e->after_us, e->opts, e->cut_s > 0 ? "  (cut short)" : "");
  out_addf(&l->out, "\n");
}

static bool list_entry(const weft_cache_entry *e, void *ctx) {
  struct listing *l = ctx;
  l->n++;
  l->damaged += !e->sound;
  l->old += !e->current;
  l->tunings += !strcmp(e->kind, "tuning");
  l->bytes += (double)e->bytes;
  if ((l->only_damaged && e->sound) || (l->only_tunings && strcmp(e->kind, "tuning"))) return true;
  if (!l->rows) { show_entry(l, e); return !interrupted(); }
  json_t *o = json_object();
  json_object_set_new(o, "kind", json_string(e->kind));
  json_object_set_new(o, "name", json_string(e->name));
  json_object_set_new(o, "role", json_string(e->role));
  json_object_set_new(o, "bytes", json_integer((json_int_t)e->bytes));
  json_object_set_new(o, "created", json_integer(e->created));
  json_object_set_new(o, "sound", json_boolean(e->sound));
  json_object_set_new(o, "current", json_boolean(e->current));
  if (e->opts) {
    json_object_set_new(o, "opts", json_string(e->opts));
    json_object_set_new(o, "before_us", json_real(e->before_us));
    json_object_set_new(o, "after_us", json_real(e->after_us));
    json_object_set_new(o, "cut_s", json_real(e->cut_s));
  }
  json_array_append_new(l->rows, o);
  return !interrupted();
}

static int list_entries(const struct settings *o) {
  weft_error err;
  bool verify = !strcmp(o->action, "verify");
  struct listing l = {.only_damaged = verify, .only_tunings = o->tunings, .rows = o->json ? json_array() : NULL};
  int status = weft_cache_each(list_entry, &l, &err) ? failed("%s", err.text) : EXIT_OK;
  if (!status && o->json) {
    out_json(&l.out, json_incref(l.rows), JSON_INDENT(1) | JSON_REAL_PRECISION(8));
  } else if (!status) {
    out_addf(&l.out, "%zu entr%s, %.1f MiB: %zu tuning%s, %zu of another version, %zu damaged\n", l.n,
             l.n == 1 ? "y" : "ies", l.bytes / 0x1p20, l.tunings, l.tunings == 1 ? "" : "s", l.old, l.damaged);
  }
  if (!status && verify && l.damaged) status = EXIT_FAILED;
  json_decref(l.rows);
  return out_end(&l.out, status);
}

// ---- export, import -------------------------------------------------------------------------------------------------

enum { FORM = 1, MOST_TUNINGS = 100000 };           // version of the export format

static bool collect_tuning(const weft_cache_entry *e, void *ctx) {
  if (!e->sound || !e->current || strcmp(e->kind, "tuning")) return true;
  json_t *o = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:s, s:s}", "name", e->name, "role", e->role, "opts", e->opts,
                        "before_us", e->before_us, "after_us", e->after_us, "cut_s", e->cut_s, "machine", e->machine,
                        "compiler", e->compiler);
  json_t *lines = json_array();                     // IR has many lines: readable as an array of lines
  for (const char *at = e->ir; *at;) {
    size_t n = strcspn(at, "\n");
    json_array_append_new(lines, json_stringn(at, n));
    at += n + (at[n] == '\n');
  }
  if (o) { json_object_set_new(o, "ir", lines); json_array_append_new(ctx, o); }
  else json_decref(lines);
  return true;
}

static int export_to(const char *path) {
  weft_error err;
  json_t *all = json_object(), *rows = json_array();
  if (weft_cache_each(collect_tuning, rows, &err)) {
    json_decref(rows);
    json_decref(all);
    return failed("%s", err.text);
  }
  size_t n = json_array_size(rows);
  json_object_set_new(all, "weft_tunings", json_integer(FORM));
  json_object_set_new(all, "tunings", rows);
  char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
  json_decref(all);
  int status = EXIT_OK;
  if (!strcmp(path, "-")) {
    struct out to = {0};
    out_addf(&to, "%s\n", text);
    status = out_end(&to, EXIT_OK);
  } else {
    error why = {0};
    str whole = {0};
    str_addf(&whole, "%s\n", text);
    if (newfile_whole(path, whole.at, whole.n, &why)) status = failed("%s", why.text);
    str_free(&whole);
    if (!status) say("%zu tuning%s written to %s", n, n == 1 ? "" : "s", path);
  }
  free(text);
  return status;
}

static const char *text_member(const json_t *o, const char *key) {
  const json_t *v = json_object_get(o, key);
  return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v) ? json_string_value(v) : NULL;
}

// Checks one tuning of the file and, if `add`, adds it. -1 and an error.
static int import_one(const json_t *o, size_t i, bool add, error *why) {
  weft_error err;
  static const char *const keys[] = {"name", "role", "opts", "machine", "compiler"};
  const char *text[COUNT(keys)];
  for (size_t k = 0; k < COUNT(keys); k++)
    if (!(text[k] = text_member(o, keys[k])))
      return error_set(why, "tunings[%zu]: '%s' is missing, or no text", i, keys[k]);
  const json_t *lines = json_object_get(o, "ir"), *before = json_object_get(o, "before_us"),
               *after = json_object_get(o, "after_us"), *cut = json_object_get(o, "cut_s");
  if (!json_is_array(lines)) return error_set(why, "tunings[%zu]: 'ir' is missing, or no array of lines", i);
  if (!json_is_number(before) || !json_is_number(after))
    return error_set(why, "tunings[%zu]: 'before_us' or 'after_us' is missing, or no number", i);
  if (cut && !json_is_number(cut)) return error_set(why, "tunings[%zu]: 'cut_s' is no number", i);
  str ir = {0};
  str_add(&ir, "");
  for (size_t k = 0; k < json_array_size(lines); k++) {
    const json_t *line = json_array_get(lines, k);
    if (!json_is_string(line) || strlen(json_string_value(line)) != json_string_length(line)) {
      str_free(&ir);
      return error_set(why, "tunings[%zu]: 'ir' has a line that is no text", i);
    }
    str_addf(&ir, "%s\n", json_string_value(line));
  }
  weft_cache_entry e = {.name = text[0],
                        .role = text[1],
                        .opts = text[2],
                        .machine = text[3],
                        .compiler = text[4],
                        .ir = ir.at,
                        .before_us = json_number_value(before),
                        .after_us = json_number_value(after),
                        .cut_s = json_number_value(cut)};
  int r = weft_cache_add_tuning(&e, !add, &err);
  str_free(&ir);
  return r ? error_set(why, "tunings[%zu] (%.40s): %s", i, text[0], err.text) : 0;
}

static int import_from(const char *path) {
  error why = {0};
  json_error_t at;
  char *text;
  size_t n;
  if (read_file(path, READ_JSON, &text, &n, &why)) return failed("%s", why.text);
  json_t *all = json_load(text, n, JSON_REJECT_DUPLICATES, &at);
  free(text);
  if (!all) return failed("%s: line %d: %s", path, at.line, at.text);
  const json_t *rows = json_object_get(all, "tunings"), *form = json_object_get(all, "weft_tunings");
  int status = EXIT_OK;
  size_t count = json_array_size(rows);
  if (!json_is_array(rows) || !json_is_integer(form))
    error_set(&why, "not a file of tunings ('weft_tunings' and 'tunings' are expected)");
  else if (json_integer_value(form) != FORM)
    error_set(&why, "tunings in form %lld, and this version knows %d", (long long)json_integer_value(form), FORM);
  else if (count > MOST_TUNINGS) error_set(&why, "%zu tunings; more than %d are not taken", count, MOST_TUNINGS);
  for (int add = 0; add < 2 && !why.text[0]; add++)          // all are checked before the first is added
    for (size_t i = 0; i < count && !why.text[0]; i++) import_one(json_array_get(rows, i), i, add, &why);
  if (why.text[0]) status = failed("%s: %s", path, why.text);
  else fprintf(stderr, "weft: %zu tuning%s added\n", count, count == 1 ? "" : "s");
  json_decref(all);
  return status;
}

static int clear(bool tunings) {
  weft_error err;
  int64_t n;
  if (weft_cache_clear(tunings, &n, &err)) return failed("%s", err.text);
  fprintf(stderr, "weft: %lld entr%s removed\n", (long long)n, n == 1 ? "y" : "ies");
  return EXIT_OK;
}

static int act(struct settings *o) {
  if (!o->action) o->action = "list";
  bool takes_file = !strcmp(o->action, "export") || !strcmp(o->action, "import");
  if (takes_file && !o->exchange) return usage_error("weft cache %s: which file?", o->action);
  if (!takes_file && o->exchange)
    return usage_error("weft cache %s takes no file, and '%s' was given", o->action, o->exchange);
  if (!strcmp(o->action, "import")) keep_to_evaluating(o, NULL);
  else keep_to_cache(o, strcmp(o->action, "export") ? NULL : o->exchange);
  if (!strcmp(o->action, "list") || !strcmp(o->action, "verify")) return list_entries(o);
  if (!strcmp(o->action, "clear")) return clear(o->tunings);
  if (!strcmp(o->action, "export")) return export_to(o->exchange);
  if (!strcmp(o->action, "import")) return import_from(o->exchange);
  return usage_error("weft cache '%s': it is list, verify, clear, export or import", o->action);
}

int cache_command(int argc, char **argv) { return settings_run(&command, argc, argv, act); }
