// Checks JSON against a shape: see shape.h. A keyword is a row of a table.
#include "serve/shape.h"
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

struct look {
  char path[96];                       // of the value, for the message
  size_t top;                          // bytes of it that name the request's field
  fault *f;                            // NULL: no message needed
};
typedef bool keyword(struct look *l, const json_t *says, const json_t *shape, const json_t *v);

static bool fits(struct look *l, const json_t *shape, const json_t *v);

// ---- sentences ------------------------------------------------------------------------------------------------------

static bool json_type_is(const char *type, const json_t *v) {
  static const char *const names[] = {"object", "array", "string", "integer", "number", "boolean", "boolean", "null"};
  if (!strcmp(type, names[json_typeof(v)]) || (!strcmp(type, "number") && json_is_number(v))) return true;
  return !strcmp(type, "integer") && json_is_real(v) && json_real_value(v) == floor(json_real_value(v));
}

static void add_or(str *out, const char *text) { str_addf(out, "%s%s", out->n ? " or " : "", text); }

static void add_json_of(str *out, const json_t *v) {
  char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
  add_or(out, text);
  free(text);
}

static void add_type(str *out, const char *type) {
  char text[32];
  if (!strcmp(type, "null")) return;     // not suggested in messages
  snprintf(text, sizeof text, "%s %s", strchr("aio", *type) ? "an" : "a", type);
  add_or(out, text);
}

// Describes the values of a shape in a few words.
static void describe_shape(str *out, const json_t *shape) {
  const json_t *type = json_object_get(shape, "type"), *all = json_object_get(shape, "anyOf"), *one;
  const json_t *values = json_object_get(shape, "enum"), *value = json_object_get(shape, "const");
  size_t i;
  json_array_foreach(all, i, one) describe_shape(out, one);
  json_array_foreach(values, i, one) add_json_of(out, one);
  if (value) add_json_of(out, value);
  if (json_is_string(type)) add_type(out, json_string_value(type));
  json_array_foreach(type, i, one) add_type(out, json_string_value(one));
}

static bool misfit_is(struct look *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool misfit_is(struct look *l, const char *fmt, ...) {
  char field[96], text[512];
  va_list ap;
  if (!l->f) return false;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  snprintf(field, sizeof field, "%.*s", (int)l->top, l->path);
  fault_set(l->f, 400, field, "'%s' %s", l->path, text);
  return false;
}

static bool is_none_of(struct look *l, const json_t *shape, const json_t *v) {
  str what = {0};
  if (!l->f) return false;
  describe_shape(&what, shape);
  if (json_is_string(v) && strchr(str_c(&what), '"'))
    misfit_is(l, "must be %s, not \"%.100s\"", str_c(&what), json_string_value(v));
  else misfit_is(l, "must be %s, not %s", str_c(&what), json_kind(v));
  str_free(&what);
  return false;
}

// ---- keywords -------------------------------------------------------------------------------------------------------

static bool of_type(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  const json_t *one;
  size_t i;
  if (json_is_string(says) && json_type_is(json_string_value(says), v)) return true;
  json_array_foreach(says, i, one) if (json_type_is(json_string_value(one), v)) return true;
  (void)shape;
  if (!l->f) return false;
  str what = {0};
  json_t *only = json_pack("{sO}", "type", says);
  describe_shape(&what, only);
  misfit_is(l, "must be %s, not %s", str_c(&what), json_kind(v));
  json_decref(only);
  str_free(&what);
  return false;
}

static bool of_values(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  const json_t *one;
  size_t i;
  json_array_foreach(says, i, one) if (json_equal(one, v)) return true;
  return is_none_of(l, shape, v);
}

static bool the_value(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  return json_equal(says, v) || is_none_of(l, shape, v);
}

// Can a value of this kind match this shape? Then its error is the one to report.
static bool may_be(const json_t *shape, const json_t *v) {
  const json_t *all = json_object_get(shape, "anyOf"), *type = json_object_get(shape, "type"), *one;
  const json_t *values = json_object_get(shape, "enum");
  bool may = json_is_string(type) && json_type_is(json_string_value(type), v);
  size_t i;
  json_array_foreach(type, i, one) may |= json_type_is(json_string_value(one), v);
  json_array_foreach(all, i, one) may |= may_be(one, v);
  json_array_foreach(values, i, one) may |= json_typeof(one) == json_typeof(v);
  return may;
}

static bool of_any(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  const json_t *one, *near = NULL;
  size_t i;
  struct look silent = *l;
  silent.f = NULL;
  json_array_foreach(says, i, one) {
    if (fits(&silent, one, v)) return true;
    if (!near && may_be(one, v)) near = one;
  }
  return near ? fits(l, near, v) : is_none_of(l, shape, v);
}

static bool of_not(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  struct look silent = *l;
  str what = {0};
  (void)shape;
  silent.f = NULL;
  if (!fits(&silent, says, v)) return true;
  describe_shape(&what, says);
  misfit_is(l, "must not be %s here", str_c(&what));
  str_free(&what);
  return false;
}

static bool reaches_minimum(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  (void)shape;
  if (!json_is_number(v) || json_number_value(v) >= json_number_value(says)) return true;
  return misfit_is(l, "must be at least %g", json_number_value(says));
}

static bool keeps_maximum(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  (void)shape;
  if (!json_is_number(v) || json_number_value(v) <= json_number_value(says)) return true;
  return misfit_is(l, "must be at most %g", json_number_value(says));
}

// Checks characters of a text, or elements of an array.
static bool of_size(struct look *l, bool most, size_t n, const json_t *says, const char *what) {
  size_t bound = (size_t)json_integer_value(says);
  if (most ? n <= bound : n >= bound) return true;
  return misfit_is(l, "must have at %s %zu %s, not %zu", most ? "most" : "least", bound, what, n);
}

static size_t characters_of_text(const json_t *v) {
  const char *text = json_string_value(v);
  size_t n = 0;
  for (size_t i = 0; i < json_string_length(v); i++) n += (text[i] & 0xc0) != 0x80;
  return n;
}

static bool long_enough(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  (void)shape;
  return !json_is_string(v) || of_size(l, false, characters_of_text(v), says, "characters");
}

static bool short_enough(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  (void)shape;
  return !json_is_string(v) || of_size(l, true, characters_of_text(v), says, "characters");
}

static bool enough_items(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  (void)shape;
  return !json_is_array(v) || of_size(l, false, json_array_size(v), says, "entries");
}

static bool few_items(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  (void)shape;
  return !json_is_array(v) || of_size(l, true, json_array_size(v), says, "entries");
}

// Shapes use only expressions that POSIX and ECMA interpret alike.
static bool fits_pattern(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  regex_t re;
  (void)shape;
  if (!json_is_string(v)) return true;
  int status = regcomp(&re, json_string_value(says), REG_EXTENDED | REG_NOSUB);
  if (status && status != REG_ESPACE) die("a shape has a wrong pattern");
  bool compiled = !status, whole = strlen(json_string_value(v)) == json_string_length(v);
  if (compiled) status = whole ? regexec(&re, json_string_value(v), 0, NULL, 0) : REG_NOMATCH;
  if (compiled) regfree(&re);
  if (status && status != REG_NOMATCH) return misfit_is(l, "cannot be checked: there is no memory");
  return !status || misfit_is(l, "must match %s", json_string_value(says));
}

// Checks a member, one level down; restores the path.
static bool member_fits(struct look *l, const char *name, const json_t *shape, const json_t *v) {
  size_t n = strlen(l->path), top = l->top;
  snprintf(l->path + n, sizeof l->path - n, "%s%s", n ? "." : "", name);
  if (!n) l->top = strlen(l->path);
  bool fine = fits(l, shape, v);
  l->path[n] = 0;
  l->top = top;
  return fine;
}

static bool have_items(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  const json_t *one;
  size_t i, n = strlen(l->path);
  (void)shape;
  json_array_foreach(v, i, one) {
    if (l->f) snprintf(l->path + n, sizeof l->path - n, "[%zu]", i);
    bool fine = fits(l, says, one);
    l->path[n] = 0;
    if (!fine) return false;
  }
  return true;
}

static bool have_members(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  const char *name;
  json_t *one;
  (void)shape;
  json_object_foreach((json_t *)(uintptr_t)v, name, one) {
    const json_t *of = json_object_get(says, name);
    if (of && !member_fits(l, name, of, one)) return false;
  }
  return true;
}

static bool have_others(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  const json_t *named = json_object_get(shape, "properties");
  const char *name;
  json_t *one;
  json_object_foreach((json_t *)(uintptr_t)v, name, one)
    if (!json_object_get(named, name) && !member_fits(l, name, says, one)) return false;
  return true;
}

static bool have_needed(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  const json_t *one;
  size_t i, n = strlen(l->path);
  (void)shape;
  if (!json_is_object(v)) return true;
  json_array_foreach(says, i, one) {
    if (json_object_get(v, json_string_value(one))) continue;
    snprintf(l->path + n, sizeof l->path - n, "%s%s", n ? "." : "", json_string_value(one));
    if (!n) l->top = strlen(l->path);
    misfit_is(l, "is missing");
    l->path[n] = 0;
    return false;
  }
  return true;
}

static bool says_no_rule(struct look *l, const json_t *says, const json_t *shape, const json_t *v) {
  (void)l, (void)says, (void)shape, (void)v;
  return true;
}

// in: what contains further shapes: itself ('o'), the elements ('a') or the members ('m') of its value
static const struct { const char *name; keyword *fits; char in; } keywords[] = {
  {"type", of_type, 0},
  {"anyOf", of_any, 'a'},
  {"required", have_needed, 0},
  {"properties", have_members, 'm'},
  {"items", have_items, 'o'},
  {"enum", of_values, 0},
  {"const", the_value, 0},
  {"minimum", reaches_minimum, 0},
  {"maximum", keeps_maximum, 0},
  {"minLength", long_enough, 0},
  {"maxLength", short_enough, 0},
  {"minItems", enough_items, 0},
  {"maxItems", few_items, 0},
  {"pattern", fits_pattern, 0},
  {"not", of_not, 'o'},
  {"additionalProperties", have_others, 'o'},
  {"description", says_no_rule, 0},
  {"x-ignored", says_no_rule, 0},
  {"x-refused", says_no_rule, 0},
};

static size_t find_keyword(const char *name) {
  size_t i = 0;
  while (i < COUNT(keywords) && strcmp(keywords[i].name, name)) i++;
  if (i == COUNT(keywords)) die("a shape has the keyword '%s', which is not known", name);
  return i;
}

static bool fits(struct look *l, const json_t *shape, const json_t *v) {
  const char *name;
  json_t *says;
  json_object_foreach((json_t *)(uintptr_t)shape, name, says)
    if (!keywords[find_keyword(name)].fits(l, says, shape, v)) return false;
  return true;
}

void shape_check(const json_t *shape) {
  const char *name, *member;
  json_t *says, *one;
  size_t i;
  json_object_foreach((json_t *)(uintptr_t)shape, name, says) {
    char in = keywords[find_keyword(name)].in;
    if (in == 'o') shape_check(says);
    if (in == 'a') json_array_foreach(says, i, one) shape_check(one);
    if (in == 'm') json_object_foreach(says, member, one) shape_check(one);
  }
}

int shape_holds(const json_t *shape, const json_t *v, fault *f) {
  return fits(&(struct look){.f = f}, shape, v) ? 0 : -1;
}
