// JSON into structs: see fields.h.
#include "serve/fields.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "weft.h"

int fault_set(fault *f, int status, const char *param, const char *fmt, ...) {
  if (f->status) return -1;
  va_list ap;
  va_start(ap, fmt);
  f->status = status;
  snprintf(f->param, sizeof f->param, "%s", param ? param : "");
  vsnprintf(f->text, sizeof f->text, fmt, ap);
  va_end(ap);
  return -1;
}

json_t *json_of_text(const char *text, size_t n) {
  json_t *made = json_stringn(text, n);
  if (made) return made;
  size_t n_valid;
  char *valid = weft_utf8(text, n, &n_valid);
  made = json_stringn(valid, n_valid);
  weft_free(valid);
  return made;
}

const char *json_kind(const json_t *v) {
  static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                      "a number",  "true",     "false",    "null"};
  return v ? names[json_typeof(v)] : "nothing";
}

bool json_is_of(const json_t *o, const char *type) {
  const char *t = json_string_value(json_object_get(o, "type"));
  return t && !strcmp(t, type);
}

static void show_number(double x, char *out, size_t cap) {
  if (fabs(x) < 1e15 && x == floor(x)) snprintf(out, cap, "%.0f", x);
  else snprintf(out, cap, "%g", x);
}

static int out_of_range(const char *what, const char *name, double min, double max, double x, fault *f) {
  char a[32], b[32], c[32];
  show_number(min, a, sizeof a), show_number(max, b, sizeof b), show_number(x, c, sizeof c);
  return fault_set(f, 400, name, "'%s' must be %s from %s to %s, not %s", name, what, a, b, c);
}

int read_real(const json_t *v, const char *name, double min, double max, double *out, fault *f) {
  if (!json_is_number(v)) return fault_set(f, 400, name, "'%s' must be a number, not %s", name, json_kind(v));
  double x = json_number_value(v);
  if (!(x >= min && x <= max)) return out_of_range("a number", name, min, max, x, f);
  *out = x;
  return 0;
}

int read_int(const json_t *v, const char *name, double min, double max, int64_t *out, fault *f) {
  if (!json_is_number(v)) return fault_set(f, 400, name, "'%s' must be an integer, not %s", name, json_kind(v));
  double x = json_number_value(v);
  bool fits = x >= min && x <= max && x == floor(x);
  // a double may round to the bound what lies beyond it
  if (fits && json_is_integer(v)) fits = json_integer_value(v) >= (int64_t)min && json_integer_value(v) <= (int64_t)max;
  if (!fits) return out_of_range("an integer", name, min, max, x, f);
  *out = json_is_integer(v) ? (int64_t)json_integer_value(v) : (int64_t)x;
  return 0;
}

static int wrong_kind(const char *name, const char *wanted, const json_t *v, fault *f) {
  return fault_set(f, 400, name, "'%s' must be %s, not %s", name, wanted, json_kind(v));
}

static int read_field(json_t *v, const char *name, const struct field *row, char *to, fault *f) {
  int64_t i;
  switch (row->kind) {
  case F_INT: return read_int(v, name, row->min, row->max, (int64_t *)(void *)to, f);
  case F_INT32:
    if (read_int(v, name, row->min, row->max, &i, f)) return -1;
    *(int32_t *)(void *)to = (int32_t)i;
    return 0;
  case F_REAL: return read_real(v, name, row->min, row->max, (double *)(void *)to, f);
  case F_BOOL:
    if (!json_is_boolean(v)) return wrong_kind(name, "true or false", v, f);
    *(bool *)to = json_is_true(v);
    return 0;
  case F_TEXT: if (!json_is_string(v)) return wrong_kind(name, "a string", v, f); break;
  case F_OBJECT: if (!json_is_object(v)) return wrong_kind(name, "an object", v, f); break;
  case F_ARRAY: if (!json_is_array(v)) return wrong_kind(name, "an array", v, f); break;
  case F_ANY: break;
  }
  *(json_t **)(void *)to = v;
  return 0;
}

int fields_read(const json_t *object, const char *prefix, struct fields fields, void *to, fault *f) {
  for (size_t i = 0; i < fields.n; i++) {
    json_t *v = json_object_get(object, fields.at[i].name);
    char name[96];
    snprintf(name, sizeof name, "%s%s", prefix, fields.at[i].name);
    if (v && !json_is_null(v) && read_field(v, name, &fields.at[i], (char *)to + fields.at[i].to, f)) return -1;
  }
  return 0;
}

json_t *json_of_shape(const char *shape) {
  char *text = xstrdup(shape);
  for (char *at = text; *at; at++) if (*at == '\'') *at = '"';
  json_t *made = json_loads(text, JSON_DECODE_ANY, NULL);
  if (!made) die("a shape is no JSON: %s", shape);
  free(text);
  return made;
}

static json_t *schema_of(const struct field *row) {
  static const char *const types[] = {
    [F_INT] = "integer", [F_INT32] = "integer", [F_REAL] = "number", [F_BOOL] = "boolean",
    [F_TEXT] = "string", [F_OBJECT] = "object", [F_ARRAY] = "array"};
  json_t *s = json_object();
  if (row->shape && row->needed) { json_decref(s); s = json_of_shape(row->shape); }
  else if (row->shape) json_object_set_new(s, "anyOf", json_pack("[o{ss}]", json_of_shape(row->shape), "type", "null"));
  else if (types[row->kind] && row->needed) json_object_set_new(s, "type", json_string(types[row->kind]));
  else if (types[row->kind]) json_object_set_new(s, "type", json_pack("[ss]", types[row->kind], "null"));
  if (row->kind <= F_INT32) json_object_set_new(s, "minimum", json_integer((json_int_t)row->min));
  if (row->kind <= F_INT32) json_object_set_new(s, "maximum", json_integer((json_int_t)row->max));
  if (row->kind == F_REAL) json_object_set_new(s, "minimum", json_real(row->min));
  if (row->kind == F_REAL) json_object_set_new(s, "maximum", json_real(row->max));
  if (row->kind == F_ARRAY && !row->shape) json_object_set_new(s, "items", json_object());
  json_object_set_new(s, "description", json_string(row->help));
  return s;
}

json_t *fields_schema(const struct fields *fields, size_t n) {
  json_t *properties = json_object(), *needed = json_array();
  for (size_t i = 0; i < n; i++)
    for (size_t j = 0; j < fields[i].n; j++) {
      const struct field *row = &fields[i].at[j];
      if (json_object_get(properties, row->name)) continue;      // the first table speaks
      json_object_set_new(properties, row->name, schema_of(row));
      if (row->needed) json_array_append_new(needed, json_string(row->name));
    }
  return json_pack("{ss so so}", "type", "object", "properties", properties, "required", needed);
}

json_t *json_body(const str *body, size_t *left, fault *f) {
  error err = {0};
  *left = JSON_ROOM;
  if (!json_fits(str_c(body), body->n, left, &err)) { fault_set(f, 413, NULL, "the body: %s", err.text); return NULL; }
  json_t *o = json_parse(str_c(body), body->n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &err);
  if (!o) fault_set(f, 400, NULL, "the body is no JSON: %s", err.text);
  if (json_is_object(o)) return o;
  if (o) fault_set(f, 400, NULL, "the body must be a JSON object, not %s", json_kind(o));
  json_decref(o);
  return NULL;
}
