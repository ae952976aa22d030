// weft inspect: prints the contents of a GGUF file and whether Weft can run it, for people or as JSON. Works on every
// file that passes the checks, of any architecture, with or without tensors.
#define _GNU_SOURCE
#include "app/app.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct command command = {
  "inspect",
  "Shows the metadata and the tensors of a GGUF file, and says whether it can run.",
  "FILE [--json]",
  NULL,
  COMMAND_BIT(inspect),
  0};

enum { SHOWN_ITEMS = 8, WIDEST_NAME = 56 };

static int width_of(size_t longest) { return (int)(longest < WIDEST_NAME ? longest : WIDEST_NAME); }

static void size_text(char *out, size_t cap, uint64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double x = (double)bytes;
  size_t i = 0;
  for (; x >= 1024 && i + 1 < COUNT(units); i++) x /= 1024;
  snprintf(out, cap, i ? "%.2f %s" : "%.0f %s", x, units[i]);
}

// ---- for people -----------------------------------------------------------------------------------------------------

static void type_text(char *out, size_t cap, const weft_value *v) {
  if (v->type == WEFT_ARRAY) snprintf(out, cap, "%s[%zu]", weft_type_name(v->elem), v->n);
  else snprintf(out, cap, "%s", weft_type_name(v->type));
}

// A name or a path from a file, for a table: newlines are removed because they would forge a line, and other control
// characters because they command a terminal, even after a pipe.
static const char *one_line(str *line, const char *text) {
  line->n = 0;
  str_add(line, text);
  str_blank_controls(line, false);
  return line->at;
}

static void show_metadata(struct out *o, const weft_file *f, bool full) {
  size_t n = weft_file_n_keys(f), longest = 0, longest_type = 0;
  char type[64];
  weft_value v;
  str line = {0};
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
    out_addf(o, "  %-*s  %-*s  %s%s%s%s\n", width_of(longest), one_line(&line, weft_file_key(f, i)),
             (int)longest_type, type, text, not_read ? "  (not read: " : "", not_read ? not_read : "",
             not_read ? ")" : "");
    weft_free(text);
  }
  weft_free(uses);
  str_free(&line);
}

static void show_tensors(struct out *o, const weft_file *f) {
  size_t n = weft_file_n_tensors(f), longest = 0;
  weft_tensor t;
  str line = {0};
  for (size_t i = 0; !weft_file_tensor(f, i, &t); i++) if (strlen(t.name) > longest) longest = strlen(t.name);
  if (!n) return;
  out_addf(o, "\nTensors\n");
  for (size_t i = 0; !weft_file_tensor(f, i, &t); i++) {
    char shape[96], size[32];
    int at = 0;
    for (uint32_t d = 0; d < t.n_dims; d++)
      at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%lld", d ? " x " : "", (long long)t.shape[d]);
    size_text(size, sizeof size, t.bytes);
    out_addf(o, "  %-*s  %-7s  %-22s  %12s\n", width_of(longest), one_line(&line, t.name), t.type, shape, size);
  }
  str_free(&line);
}

// Tensors, elements and bytes of each type.
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
  out_addf(o, "  %-7s  %5zu tensor%s  %14llu elements  %12s\n", type, n, n == 1 ? " " : "s",
           (unsigned long long)elements, size);
}

static void show_totals(struct out *o, const weft_file *f) {
  out_addf(o, "\nTotals\n");
  totals all = count_types(f);
  for (size_t i = 0; all.n > 1 && i < all.n; i++)
    total_line(o, all.at[i].type, all.at[i].n, all.at[i].elements, all.at[i].bytes);
  total_line(o, all.n == 1 ? all.at[0].type : "all", weft_file_n_tensors(f), weft_file_n_params(f),
             weft_file_tensor_bytes(f));
  vec_free(&all);
}

static void show_file(struct out *o, const weft_file *f, bool full) {
  char *summary = weft_file_summary(f), size[32];
  size_text(size, sizeof size, weft_file_bytes(f));
  str line = {0};
  out_addf(o, "%s\n%s, %s, GGUF version %u", one_line(&line, weft_file_path(f)), summary, size,
           weft_file_version(f));
  if (weft_file_n_parts(f) > 1) out_addf(o, ", %zu parts", weft_file_n_parts(f));
  weft_error why;
  char *encoders = weft_file_encoders(f, &why);
  if (encoders) out_addf(o, "\nencodes for a language model (weft chat -m MODEL.gguf --mmproj %s)\n%s\n",
                         one_line(&line, weft_file_path(f)), encoders);
  else if (weft_file_is_mmproj(f)) out_addf(o, "\ncannot encode: %s\n", one_line(&line, why.text));
  else if (weft_file_can_run(f, &why)) out_addf(o, "\ncannot run: %s\n", one_line(&line, why.text));
  else out_addf(o, "\ncan run\n");
  if (weft_file_mtp(f) >= 0)
    out_addf(o, "drafts further tokens (MTP) by block %d, if that pays\n", weft_file_mtp(f));
  weft_free(encoders);
  str_free(&line);
  weft_free(summary);
  show_metadata(o, f, full);
  show_tensors(o, f);
  show_totals(o, f);
}

// ---- as JSON --------------------------------------------------------------------------------------------------------

// Written in pieces: an array may have a hundred million elements, and a JSON tree of them would take forty times the
// memory of the file.

struct json_at { struct out *o; int depth; bool first; };
enum { PIECE = 1 << 16 };      // bytes of a text written at a time

static void comma(struct json_at *j) {
  out_addf(j->o, j->first ? "\n%*s" : ",\n%*s", j->depth, "");
  j->first = false;
}

static void open_json(struct json_at *j, char bracket) {
  out_add(j->o, &bracket, 1);
  j->depth++;
  j->first = true;
}

static void close_json(struct json_at *j, char bracket) {
  j->depth--;
  if (!j->first) out_addf(j->o, "\n%*s", j->depth, "");
  out_add(j->o, &bracket, 1);
  j->first = false;
}

// Writes a text in pieces, split between characters: escapes may make it six times as long.
static void text_json(struct json_at *j, const char *text, size_t n) {
  out_add(j->o, "\"", 1);
  for (size_t at = 0, end; at < n && !j->o->error; at = end) {
    end = n - at > PIECE ? at + PIECE : n;
    for (int back = 0; end < n && back < 3 && (text[end] & 0xC0) == 0x80; back++) end--;
    str s = {0};
    str_add_json_part(&s, text + at, end - at);
    out_add(j->o, s.at, s.n);
    str_free(&s);
  }
  out_add(j->o, "\"", 1);
}

static void add_member(struct json_at *j, const char *key) {
  comma(j);
  text_json(j, key, strlen(key));
  out_add(j->o, ": ", 2);
}

static void member_text(struct json_at *j, const char *key, const char *text) {
  add_member(j, key);
  text_json(j, text, strlen(text));
}
static void member_number(struct json_at *j, const char *key, uint64_t n) {
  add_member(j, key);
  out_addf(j->o, "%llu", (unsigned long long)n);
}

static void real_json(struct json_at *j, double x) {
  char text[40];
  snprintf(text, sizeof text, "%.17g", x);
  out_addf(j->o, strpbrk(text, ".e") ? "%s" : "%s.0", text);
}

static void scalar_json(struct json_at *j, const weft_value *v) {
  switch (v->type) {
  case WEFT_UINT8:
  case WEFT_UINT16:
  case WEFT_UINT32:
  case WEFT_UINT64: out_addf(j->o, "%llu", (unsigned long long)v->u); return;
  case WEFT_INT8: case WEFT_INT16: case WEFT_INT32: case WEFT_INT64: out_addf(j->o, "%lld", (long long)v->i); return;
  case WEFT_FLOAT32: case WEFT_FLOAT64:
    if (isfinite(v->f)) { real_json(j, v->f); return; }
    break;
  case WEFT_BOOL: out_addf(j->o, v->u ? "true" : "false"); return;
  case WEFT_STRING: text_json(j, v->text, v->n); return;
  case WEFT_ARRAY: break;
  }
  out_addf(j->o, "null");
}

static void value_json(struct json_at *j, const weft_file *f, size_t i) {
  weft_value v, elem;
  if (weft_file_value(f, i, &v)) { out_addf(j->o, "null"); return; }
  if (v.type != WEFT_ARRAY) { scalar_json(j, &v); return; }
  open_json(j, '[');
  for (size_t k = 0; !j->o->error && !weft_file_element(f, i, k, &elem); k++) { comma(j); scalar_json(j, &elem); }
  close_json(j, ']');
}

// How the keys of the architecture are used.
static void uses_json(struct json_at *j, const weft_file *f) {
  const char **uses = weft_file_key_uses(f);
  open_json(j, '{');
  for (size_t i = 0; i < weft_file_n_keys(f); i++) if (uses[i]) member_text(j, weft_file_key(f, i), uses[i]);
  close_json(j, '}');
  weft_free(uses);
}

static void tensors_json(struct json_at *j, const weft_file *f) {
  weft_tensor t;
  open_json(j, '[');
  for (size_t i = 0; !weft_file_tensor(f, i, &t); i++) {
    comma(j);
    open_json(j, '{');
    member_text(j, "name", t.name);
    member_text(j, "type", t.type);
    add_member(j, "shape");
    open_json(j, '[');
    for (uint32_t d = 0; d < t.n_dims; d++) { comma(j); out_addf(j->o, "%lld", (long long)t.shape[d]); }
    close_json(j, ']');
    member_number(j, "elements", t.n_elements);
    member_number(j, "bytes", t.bytes);
    member_number(j, "offset", t.offset);
    member_number(j, "part", t.part);
    close_json(j, '}');
  }
  close_json(j, ']');
}

static void totals_json(struct json_at *j, const weft_file *f) {
  totals all = count_types(f);
  open_json(j, '{');
  for (size_t i = 0; i < all.n; i++) {
    add_member(j, all.at[i].type);
    open_json(j, '{');
    member_number(j, "tensors", all.at[i].n);
    member_number(j, "elements", all.at[i].elements);
    member_number(j, "bytes", all.at[i].bytes);
    close_json(j, '}');
  }
  close_json(j, '}');
  vec_free(&all);
}

static void show_file_json(struct out *o, const weft_file *f) {
  struct json_at at = {.o = o}, *j = &at;
  char *summary = weft_file_summary(f);
  weft_error why;
  bool runs = !weft_file_can_run(f, &why);
  open_json(j, '{');
  member_text(j, "file", weft_file_path(f));
  member_number(j, "file_bytes", weft_file_bytes(f));
  member_number(j, "version", weft_file_version(f));
  member_number(j, "alignment", weft_file_alignment(f));
  member_number(j, "parts", weft_file_n_parts(f));
  member_text(j, "summary", summary);
  add_member(j, "can_run");
  out_addf(o, runs ? "true" : "false");
  add_member(j, "why_not");
  if (runs) out_addf(o, "null");
  else text_json(j, why.text, strlen(why.text));
  add_member(j, "mtp_block");
  if (weft_file_mtp(f) >= 0) out_addf(o, "%d", weft_file_mtp(f));
  else out_addf(o, "null");
  char *encoders = weft_file_encoders(f, &why);
  add_member(j, "encodes");
  if (encoders) text_json(j, encoders, strlen(encoders));
  else out_addf(o, "null");
  weft_free(encoders);
  add_member(j, "metadata");
  open_json(j, '{');
  for (size_t i = 0; i < weft_file_n_keys(f); i++) { add_member(j, weft_file_key(f, i)); value_json(j, f, i); }
  close_json(j, '}');
  add_member(j, "key_uses");
  uses_json(j, f);
  add_member(j, "tensors");
  tensors_json(j, f);
  member_number(j, "n_tensors", weft_file_n_tensors(f));
  member_number(j, "n_params", weft_file_n_params(f));
  member_number(j, "tensor_bytes", weft_file_tensor_bytes(f));
  add_member(j, "types");
  totals_json(j, f);
  close_json(j, '}');
  out_add(o, "\n", 1);
  weft_free(summary);
}

static int inspect(struct settings *o) {
  if (!o->model.model) return usage_error("no model: give one with -m FILE");
  keep_to_files(o, NULL);
  weft_file *f;
  weft_error why;
  if (weft_file_open(o->model.model, &f, &why)) return failed("%s", why.text);
  struct out to = {0};
  if (o->json) show_file_json(&to, f);
  else show_file(&to, f, o->full);
  int status = weft_file_check(f, &why) ? failed("%s", why.text) : EXIT_OK;
  weft_file_close(f);
  return out_end(&to, status);
}

int inspect_command(int argc, char **argv) { return settings_run(&command, argc, argv, inspect); }
