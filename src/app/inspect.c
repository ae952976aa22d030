// weft inspect: what a GGUF file holds and whether it can run, for people or as JSON.  Works on any file that passes the checks, with or without
// tensors, of any architecture.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct inspect_options { const char *model; bool json, full; };

static const struct command command = {
  "inspect", "Shows the metadata and the tensors of a GGUF file, and says whether it can run.", "-m FILE [--json]", NULL};

enum { SHOWN_ITEMS = 8, WIDEST_NAME = 56 };

static int width_of(size_t longest) { return (int)(longest < WIDEST_NAME ? longest : WIDEST_NAME); }

static void size_text(char *out, size_t cap, uint64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double x = (double)bytes;
  size_t i = 0;
  for (; x >= 1024 && i + 1 < COUNT(units); i++) x /= 1024;
  snprintf(out, cap, i ? "%.2f %s" : "%.0f %s", x, units[i]);
}

// ---- for people -------------------------------------------------------------------------------------------------------

static void type_text(char *out, size_t cap, const weft_value *v) {
  if (v->type == WEFT_ARRAY) snprintf(out, cap, "%s[%zu]", weft_type_name(v->elem), v->n);
  else snprintf(out, cap, "%s", weft_type_name(v->type));
}

static void show_metadata(struct out *o, const weft_file *f, bool full) {
  size_t n = weft_file_n_keys(f), longest = 0, longest_type = 0;
  char type[64];
  weft_value v;
  for (size_t i = 0; i < n; i++) {
    if (strlen(weft_file_key(f, i)) > longest) longest = strlen(weft_file_key(f, i));
    if (!weft_file_value(f, i, &v)) type_text(type, sizeof type, &v);
    if (strlen(type) > longest_type) longest_type = strlen(type);
  }
  const char **uses = weft_file_key_uses(f);
  out_addf(o, "\nMetadata\n");
  for (size_t i = 0; i < n; i++) {
    if (weft_file_value(f, i, &v)) continue;
    type_text(type, sizeof type, &v);
    char *text = weft_file_value_text(f, i, full ? 0 : SHOWN_ITEMS);
    const char *not_read = uses[i] && strcmp(uses[i], "read") ? uses[i] : NULL;
    out_addf(o, "  %-*s  %-*s  %s%s%s%s\n", width_of(longest), weft_file_key(f, i), (int)longest_type, type, text, not_read ? "  (not read: " : "",
             not_read ? not_read : "", not_read ? ")" : "");
    weft_free(text);
  }
  weft_free(uses);
}

static void show_tensors(struct out *o, const weft_file *f) {
  size_t n = weft_file_n_tensors(f), longest = 0;
  weft_tensor t;
  for (size_t i = 0; !weft_file_tensor(f, i, &t); i++) if (strlen(t.name) > longest) longest = strlen(t.name);
  if (!n) return;
  out_addf(o, "\nTensors\n");
  for (size_t i = 0; !weft_file_tensor(f, i, &t); i++) {
    char shape[96], size[32];
    int at = 0;
    for (uint32_t d = 0; d < t.n_dims; d++)
      at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%lld", d ? " x " : "", (long long)t.shape[d]);
    size_text(size, sizeof size, t.bytes);
    out_addf(o, "  %-*s  %-7s  %-22s  %12s\n", width_of(longest), t.name, t.type, shape, size);
  }
}

// How many tensors, elements and bytes each type has.
struct total { const char *type; size_t n; uint64_t elements, bytes; };
typedef VEC(struct total) totals;

static totals count_types(const weft_file *f) {
  totals all = {0};
  weft_tensor t;
  for (size_t i = 0; !weft_file_tensor(f, i, &t); i++) {
    size_t k = 0;
    while (k < all.n && strcmp(all.at[k].type, t.type)) k++;
    if (k == all.n) vec_push(&all, ((struct total){t.type, 0, 0, 0}));
    all.at[k].n++;
    all.at[k].elements += t.n_elements;
    all.at[k].bytes += t.bytes;
  }
  return all;
}

static void total_line(struct out *o, const char *type, size_t n, uint64_t elements, uint64_t bytes) {
  char size[32];
  size_text(size, sizeof size, bytes);
  out_addf(o, "  %-7s  %5zu tensor%s  %14llu elements  %12s\n", type, n, n == 1 ? " " : "s", (unsigned long long)elements, size);
}

static void show_totals(struct out *o, const weft_file *f) {
  out_addf(o, "\nTotals\n");
  totals all = count_types(f);
  for (size_t i = 0; all.n > 1 && i < all.n; i++) total_line(o, all.at[i].type, all.at[i].n, all.at[i].elements, all.at[i].bytes);
  total_line(o, all.n == 1 ? all.at[0].type : "all", weft_file_n_tensors(f), weft_file_n_params(f), weft_file_tensor_bytes(f));
  vec_free(&all);
}

static void show(struct out *o, const weft_file *f, bool full) {
  char *summary = weft_file_summary(f), size[32];
  size_text(size, sizeof size, weft_file_bytes(f));
  out_addf(o, "%s\n%s, %s, GGUF version %u", weft_file_path(f), summary, size, weft_file_version(f));
  if (weft_file_n_parts(f) > 1) out_addf(o, ", %zu parts", weft_file_n_parts(f));
  weft_error why;
  if (weft_file_can_run(f, &why)) out_addf(o, "\ncannot run: %s\n", why.text);
  else out_addf(o, "\ncan run\n");
  weft_free(summary);
  show_metadata(o, f, full);
  show_tensors(o, f);
  show_totals(o, f);
}

// ---- as JSON ----------------------------------------------------------------------------------------------------------

static json_t *json_scalar(const weft_value *v) {
  switch (v->type) {
  case WEFT_UINT8: case WEFT_UINT16: case WEFT_UINT32: case WEFT_UINT64:
    return v->u <= INT64_MAX ? json_integer((json_int_t)v->u) : json_real((double)v->u);
  case WEFT_INT8: case WEFT_INT16: case WEFT_INT32: case WEFT_INT64: return json_integer(v->i);
  case WEFT_FLOAT32: case WEFT_FLOAT64: return isfinite(v->f) ? json_real(v->f) : json_null();
  case WEFT_BOOL: return json_boolean(v->u);
  case WEFT_STRING: return json_text(v->text, v->n);
  case WEFT_ARRAY: break;
  }
  return json_null();
}

static json_t *json_value(const weft_file *f, size_t i) {
  weft_value v, elem;
  if (weft_file_value(f, i, &v)) return json_null();
  if (v.type != WEFT_ARRAY) return json_scalar(&v);
  json_t *a = json_array();
  for (size_t j = 0; !weft_file_element(f, i, j, &elem); j++) json_array_append_new(a, json_scalar(&elem));
  return a;
}

// What becomes of the keys under the architecture's name.
static json_t *json_uses(const weft_file *f) {
  json_t *all = json_object();
  const char **uses = weft_file_key_uses(f);
  for (size_t i = 0; i < weft_file_n_keys(f); i++) if (uses[i]) json_object_set_new(all, weft_file_key(f, i), json_string(uses[i]));
  weft_free(uses);
  return all;
}

static json_t *json_tensors(const weft_file *f) {
  json_t *all = json_array();
  weft_tensor t;
  for (size_t i = 0; !weft_file_tensor(f, i, &t); i++) {
    json_t *o = json_object(), *shape = json_array();
    for (uint32_t d = 0; d < t.n_dims; d++) json_array_append_new(shape, json_integer(t.shape[d]));
    json_object_set_new(o, "name", json_string(t.name));
    json_object_set_new(o, "type", json_string(t.type));
    json_object_set_new(o, "shape", shape);
    json_object_set_new(o, "elements", json_integer((json_int_t)t.n_elements));
    json_object_set_new(o, "bytes", json_integer((json_int_t)t.bytes));
    json_object_set_new(o, "offset", json_integer((json_int_t)t.offset));
    json_object_set_new(o, "part", json_integer(t.part));
    json_array_append_new(all, o);
  }
  return all;
}

static json_t *json_totals(const weft_file *f) {
  json_t *by_type = json_object();
  totals all = count_types(f);
  for (size_t i = 0; i < all.n; i++) {
    json_t *o = json_object();
    json_object_set_new(o, "tensors", json_integer((json_int_t)all.at[i].n));
    json_object_set_new(o, "elements", json_integer((json_int_t)all.at[i].elements));
    json_object_set_new(o, "bytes", json_integer((json_int_t)all.at[i].bytes));
    json_object_set_new(by_type, all.at[i].type, o);
  }
  vec_free(&all);
  return by_type;
}

static void show_json(struct out *o, const weft_file *f) {
  json_t *all = json_object(), *metadata = json_object();
  char *summary = weft_file_summary(f);
  for (size_t i = 0; i < weft_file_n_keys(f); i++) json_object_set_new(metadata, weft_file_key(f, i), json_value(f, i));
  json_object_set_new(all, "file", json_text(weft_file_path(f), strlen(weft_file_path(f))));
  json_object_set_new(all, "file_bytes", json_integer((json_int_t)weft_file_bytes(f)));
  json_object_set_new(all, "version", json_integer(weft_file_version(f)));
  json_object_set_new(all, "alignment", json_integer(weft_file_alignment(f)));
  json_object_set_new(all, "parts", json_integer((json_int_t)weft_file_n_parts(f)));
  json_object_set_new(all, "summary", json_string(summary));
  weft_error why;
  bool runs = !weft_file_can_run(f, &why);
  json_object_set_new(all, "can_run", json_boolean(runs));
  json_object_set_new(all, "why_not", runs ? json_null() : json_text(why.text, strlen(why.text)));
  json_object_set_new(all, "metadata", metadata);
  json_object_set_new(all, "key_uses", json_uses(f));
  json_object_set_new(all, "tensors", json_tensors(f));
  json_object_set_new(all, "n_tensors", json_integer((json_int_t)weft_file_n_tensors(f)));
  json_object_set_new(all, "n_params", json_integer((json_int_t)weft_file_n_params(f)));
  json_object_set_new(all, "tensor_bytes", json_integer((json_int_t)weft_file_tensor_bytes(f)));
  json_object_set_new(all, "types", json_totals(f));
  out_json(o, all, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
  weft_free(summary);
}

int inspect_command(int argc, char **argv) {
  struct inspect_options o = {0};
  error err = {0};
  const struct option table[] = {
    O_GROUP("Options"),
    O_TEXT("-m, --model", "FILE", "model, a GGUF file (of a split one, the first part)", &o.model),
    O_FLAG("--json", "as JSON, with every element of every array", &o.json),
    O_FLAG("--full", "long arrays and strings in full", &o.full),
  };
  switch (args_parse(&command, table, COUNT(table), argc, argv, &err)) {
  case ARGS_GO: break;
  case ARGS_HELP: return EXIT_OK;
  default: return usage_error("%s", err.text);
  }
  if (!o.model) return usage_error("no model: give one with -m FILE");
  weft_file *f;
  weft_error why;
  if (weft_file_open(o.model, &f, &why)) return failed("%s", why.text);
  struct out to = {0};
  if (o.json) show_json(&to, f);
  else show(&to, f, o.full);
  int status = weft_file_check(f, &why) ? failed("%s", why.text) : EXIT_OK;
  weft_file_close(f);
  return out_end(&to, status);
}
