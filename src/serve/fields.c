// Reads JSON into structs: see fields.h.
#include "serve/fields.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "weft.h"

// Copies a format with its string arguments replaced by "...".
static void without_texts(const char *fmt, char *out, size_t cap) {
  size_t n = 0;
  while (*fmt && n + 16 < cap) {
    size_t k = *fmt == '%' ? strcspn(fmt + 1, "sdizufgcxp%") + 2 : 1;
    bool text = *fmt == '%' && fmt[k - 1] == 's';
    if (text && memchr(fmt, '*', k)) break;            // its length is an argument too
    if (text) n += (size_t)snprintf(out + n, cap - n, "%%.0s...");
    else n += (size_t)snprintf(out + n, cap - n, "%.*s", (int)k, fmt);
    fmt += k;
  }
  out[n < cap ? n : cap - 1] = 0;
}

int fault_set(fault *f, int status, const char *param, const char *fmt, ...) {
  enum { OF_THE_BODY = 400, TOO_LARGE = 413 };
  if (f->status) return -1;
  va_list ap, again;
  char plain[512];
  va_start(ap, fmt);
  va_copy(again, ap);
  f->status = status;
  snprintf(f->param, sizeof f->param, "%s", param ? param : "");
  vsnprintf(f->text, sizeof f->text, fmt, ap);
  without_texts(fmt, plain, sizeof plain);
  vsnprintf(f->reason, sizeof f->reason, status == OF_THE_BODY || status == TOO_LARGE ? plain : fmt, again);
  va_end(again);
  va_end(ap);
  return -1;
}

int fault_crowded(fault *f, const account *all, const char *param, const char *what) {
  f->retry_s = 5;
  if (all->scarce)
    return fault_set(f, 429, param,
                     "%s: there is no memory left for it: the system has too little (of the machine, its control group "
                     "or ulimit)", what);
  return fault_set(f, 429, param,
                   "%s: there is no memory left for it: all requests hold %zu MB, and %zu MB is the most (%s)", what,
                   all->bytes >> 20, all->most >> 20, all->bytes_option);
}

int fault_take(fault *f, account *a, const char *param, const char *what, size_t n) {
  const account *full = account_take(a, n);
  if (!full) return 0;
  if (full != a) return fault_crowded(f, full, param, what);
  return fault_set(f, 413, param,
                   "%s: %zu MB of memory, beside %zu MB that the request holds; %zu MB is the most (%s)", what,
                   (n >> 20) + 1, a->bytes >> 20, a->most >> 20, a->bytes_option);
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
  // a value beyond the bound may round to it as a double
  if (fits && json_is_integer(v)) fits = json_integer_value(v) >= (int64_t)min && json_integer_value(v) <= (int64_t)max;
  if (!fits) return out_of_range("an integer", name, min, max, x, f);
  *out = json_is_integer(v) ? (int64_t)json_integer_value(v) : (int64_t)x;
  return 0;
}

static int wrong_kind(const char *name, const char *wanted, const json_t *v, fault *f) {
  return fault_set(f, 400, name, "'%s' must be %s, not %s", name, wanted, json_kind(v));
}

static bool asks_nothing(const struct field *row, const json_t *v) {
  json_t *all = row->shape ? json_of_shape(row->shape) : NULL, *one;
  size_t i;
  bool nothing = json_is_null(v), number = json_is_number(v);
  json_array_foreach(all, i, one) {
    bool same = number && json_is_number(one) && json_number_value(one) - json_number_value(v) == 0;
    nothing |= same || json_equal(one, v);
  }
  json_decref(all);
  return nothing;
}

static int read_nested(json_t *v, const char *name, const struct field *row, char *to, fault *f) {
  char prefix[100];
  if (!json_is_object(v)) return wrong_kind(name, "an object", v, f);
  *(json_t **)(void *)(to + row->to) = v;
  snprintf(prefix, sizeof prefix, "%s.", name);
  for (size_t i = 0; row->in[i]; i++) if (fields_read(v, prefix, *row->in[i], to, f)) return -1;
  return 0;
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
  case F_REFUSED:
    return asks_nothing(row, v) ? 0 : fault_set(f, 400, name, "'%s' is not supported: %s", name, row->help);
  case F_IGNORED: case F_NESTED: case N_FIELD_KINDS: return 0;
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
    if (!v || json_is_null(v)) continue;
    const struct field *row = &fields.at[i];
    if (row->kind == F_NESTED ? read_nested(v, name, row, to, f) : read_field(v, name, row, (char *)to + row->to, f))
      return -1;
  }
  return 0;
}

void fields_add_unread(str *out, const char *name) {
  static const char fine[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.$[]() ";
  enum { MOST = 1000, LONGEST = 96 };
  if (out->n > MOST) return;
  if (out->n) str_add(out, ", ");
  if (out->n > MOST) { str_add(out, "..."); return; }
  for (size_t i = 0; name[i] && i < LONGEST; i++) str_addc(out, strchr(fine, name[i]) ? name[i] : '?');
  str_c(out);
}

static const struct field *find_field(const struct fields *const *tables, const char *name) {
  for (size_t i = 0; tables[i]; i++)
    for (size_t k = 0; k < tables[i]->n; k++)
      if (!strcmp(tables[i]->at[k].name, name)) return &tables[i]->at[k];
  return NULL;
}

void fields_unread(json_t *object, const char *prefix, const struct fields *const *tables, str *out) {
  const char *key;
  json_t *v;
  json_object_foreach(object, key, v) {
    char name[128];
    const struct field *row = find_field(tables, key);
    snprintf(name, sizeof name, "%s%s", prefix, key);
    if (row && row->kind == F_NESTED) {
      snprintf(name, sizeof name, "%s%s.", prefix, key);
      fields_unread(v, name, row->in, out);
    } else if (!json_is_null(v) && (!row || (row->kind == F_IGNORED && !asks_nothing(row, v)))) {
      fields_add_unread(out, name);
    }
  }
}

// ---- two names for one member ---------------------------------------------------------------------------------------

struct said { size_t to; const json_t *v; char name[112]; };
typedef VEC(struct said) said_all;

static bool says_nothing(const json_t *v) {
  return !v || json_is_null(v) || (json_is_string(v) && !json_string_length(v));
}

static bool says_same(const json_t *a, const json_t *b) {
  if (json_is_number(a) && json_is_number(b)) return json_number_value(a) - json_number_value(b) == 0;
  return json_equal(a, b);
}

static int add_said(said_all *all, size_t to, const char *name, const json_t *v, fault *f) {
  for (size_t i = 0; i < all->n; i++) {
    const struct said *other = &all->at[i];
    if (other->to == to && strcmp(other->name, name) && !says_same(other->v, v))
      return fault_set(f, 400, name, "'%s' and '%s' are two names of the same, and they differ", other->name, name);
  }
  vec_push(all, ((struct said){.to = to, .v = v}));
  snprintf(all->at[all->n - 1].name, sizeof all->at->name, "%s", name);
  return 0;
}

static int find_clash(const json_t *object, const char *prefix, const struct fields *const *tables, said_all *all,
                      fault *f) {
  for (size_t i = 0; tables[i]; i++)
    for (size_t j = 0; j < tables[i]->n; j++) {
      const struct field *row = &tables[i]->at[j];
      const json_t *v = json_object_get(object, row->name);
      char name[112];
      if (says_nothing(v) || row->kind == F_IGNORED || row->kind == F_REFUSED) continue;
      snprintf(name, sizeof name, "%s%s%s", prefix, row->name, row->kind == F_NESTED ? "." : "");
      if (row->kind == F_NESTED ? find_clash(v, name, row->in, all, f) : add_said(all, row->to, name, v, f)) return -1;
    }
  return 0;
}

int fields_clash(const json_t *object, const struct fields *const *tables, fault *f) {
  said_all all = {0};
  int status = find_clash(object, "", tables, &all, f);
  vec_free(&all);
  return status;
}

json_t *json_of_shape(const char *shape) {
  char *text = xstrdup(shape);
  for (char *at = text; *at; at++) if (*at == '\'') *at = '"';
  json_t *made = json_loads(text, JSON_DECODE_ANY, NULL);
  if (!made) die("a shape is no JSON: %s", shape);
  free(text);
  return made;
}

// An unsupported field: the reason, and the values that request nothing.
static json_t *foreign_of(const struct field *row) {
  return json_pack("{ss so}", "reason", row->help, "unless", row->shape ? json_of_shape(row->shape) : json_array());
}

static json_t *schema_of(const struct field *row) {
  static const char *const types[N_FIELD_KINDS] = {
    [F_INT] = "integer", [F_INT32] = "integer", [F_REAL] = "number", [F_BOOL] = "boolean",
    [F_TEXT] = "string", [F_OBJECT] = "object", [F_ARRAY] = "array"};
  if (row->kind == F_NESTED)
    return json_pack("{s[o{ss}] ss}", "anyOf", fields_schema(row->in), "type", "null", "description", row->help);
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

json_t *fields_values(struct fields fields, const void *from) {
  json_t *o = json_object();
  for (size_t i = 0; i < fields.n; i++) {
    const struct field *row = &fields.at[i];
    const void *at = (const char *)from + row->to;
    size_t same = 0;                     // another name of an existing member
    while (fields.at[same].to != row->to) same++;
    if (same < i) continue;
    switch (row->kind) {
    case F_INT: json_object_set_new(o, row->name, json_integer((json_int_t)*(const int64_t *)at)); break;
    case F_INT32: json_object_set_new(o, row->name, json_integer(*(const int32_t *)at)); break;
    case F_REAL: json_object_set_new(o, row->name, json_real(*(const double *)at)); break;
    case F_BOOL: json_object_set_new(o, row->name, json_boolean(*(const bool *)at)); break;
    default: break;
    }
  }
  return o;
}

json_t *fields_schema(const struct fields *const *tables) {
  json_t *properties = json_object(), *needed = json_array(), *ignored = json_object(), *refused = json_object();
  for (size_t i = 0; tables[i]; i++)
    for (size_t j = 0; j < tables[i]->n; j++) {
      const struct field *row = &tables[i]->at[j];
      if (json_object_get(properties, row->name)) continue;      // the first table has precedence
      if (row->kind == F_IGNORED || row->kind == F_REFUSED) {
        json_object_set_new(row->kind == F_IGNORED ? ignored : refused, row->name, foreign_of(row));
        continue;
      }
      json_object_set_new(properties, row->name, schema_of(row));
      if (row->needed) json_array_append_new(needed, json_string(row->name));
    }
  return json_pack("{ss so so so so}", "type", "object", "properties", properties, "required", needed, "x-ignored",
                   ignored, "x-refused", refused);
}

int json_take(const char *text, size_t n, size_t *left, account *a, const char *param, fault *f) {
  error err = {0};
  size_t had = *left + JSON_PER_BYTE * n;
  if (!json_fits(text, n, left, &err))
    return param ? fault_set(f, 413, param, "'%s': %s", param, err.text)
                 : fault_set(f, 413, NULL, "the body: %s", err.text);
  return fault_take(f, a, param, "the values of its JSON", had - *left);
}

json_t *json_body(const str *body, size_t *left, account *a, fault *f) {
  error err = {0};
  *left = JSON_ROOM;
  if (json_take(str_c(body), body->n, left, a, NULL, f)) return NULL;
  json_t *o = json_parse(str_c(body), body->n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &err);
  if (!o) fault_set(f, 400, NULL, "the body is no JSON: %s", err.text);
  if (json_is_object(o)) return o;
  if (o) fault_set(f, 400, NULL, "the body must be a JSON object, not %s", json_kind(o));
  json_decref(o);
  return NULL;
}
