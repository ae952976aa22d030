// Determines the types of arguments that a model does not write as JSON, by the tool's schema, and converts them. The
// time is bounded for any schema.
#define _GNU_SOURCE
#include "chat/answer_impl.h"
#include "base/literal.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_REFS = 16, MAX_NESTED = 64, MAX_STEPS = 4096 };

text_view answer_trim(text_view v) {
  while (v.n && answer_space(v.at[0])) { v.at++; v.n--; }
  while (v.n && answer_space(v.at[v.n - 1])) v.n--;
  return v;
}

static const json_t *description(const json_t *tools, text_view tool) {
  size_t i;
  json_t *t;
  json_array_foreach(tools, i, t) {
    const json_t *f = json_object_get(t, "function");
    if (!f) f = t;
    const char *name = json_string_value(json_object_get(f, "name"));
    if (name && strlen(name) == tool.n && !memcmp(name, tool.at, tool.n)) return f;
  }
  return NULL;
}

bool answer_knows_tool(const json_t *tools, text_view name) { return description(tools, name); }

// ---- schemas --------------------------------------------------------------------------------------------------------

// Resolves "#/a/b" within root, with ~0 and ~1; percent escapes are not decoded, since tools' schemas have none.
static const json_t *referred(const json_t *root, const char *ref) {
  const json_t *at = root;
  if (*ref++ != '#') return NULL;
  while (*ref == '/' && at) {
    str key = {0};
    str_add(&key, "");
    for (ref++; *ref && *ref != '/'; ref++) {
      bool escaped = ref[0] == '~' && (ref[1] == '0' || ref[1] == '1');
      str_addc(&key, escaped ? ref[1] == '0' ? '~' : '/' : *ref);
      ref += escaped;
    }
    at = json_is_array(at) ? json_array_get(at, (size_t)atoi(key.at)) : json_object_get(at, key.at);
    str_free(&key);
  }
  return *ref ? NULL : at;
}

struct walk { const json_t *root; int steps; };

static unsigned type_of_constant(const json_t *v) {
  switch (json_typeof(v)) {
  case JSON_OBJECT: return TYPE_OBJECT;
  case JSON_ARRAY: return TYPE_ARRAY;
  case JSON_STRING: return TYPE_STRING;
  case JSON_INTEGER: return TYPE_INTEGER;
  case JSON_REAL: return TYPE_NUMBER;
  case JSON_NULL: return TYPE_NULL;
  default: return TYPE_BOOLEAN;
  }
}

static unsigned named_type(const json_t *v) {
  static const struct { const char *name; unsigned types; } names[] = {
    {"object", TYPE_OBJECT},   {"array", TYPE_ARRAY},
    {"string", TYPE_STRING},   {"number", TYPE_NUMBER | TYPE_INTEGER},
    {"integer", TYPE_INTEGER}, {"boolean", TYPE_BOOLEAN},
    {"null", TYPE_NULL}};
  const char *name = json_string_value(v);
  for (size_t i = 0; name && i < COUNT(names); i++) if (!strcmp(name, names[i].name)) return names[i].types;
  return 0;
}

// The union of the types of each element of a list; all types without a list.
static unsigned any_of(const json_t *list, unsigned (*of)(const json_t *)) {
  unsigned types = 0;
  size_t i;
  json_t *v;
  json_array_foreach(list, i, v) types |= of(v);
  return types ? types : TYPE_ALL;
}

static unsigned types_in(struct walk *w, const json_t *schema, int depth) {
  static const char *const unions[] = {"anyOf", "oneOf"};
  unsigned types = TYPE_ALL;
  const char *ref = json_string_value(json_object_get(schema, "$ref"));
  const json_t *type = json_object_get(schema, "type"), *constant = json_object_get(schema, "const"), *list, *one;
  size_t i;
  if (!json_is_object(schema) || depth > MAX_REFS || w->steps-- <= 0) return TYPE_ALL;
  if (ref) types &= types_in(w, referred(w->root, ref), depth + 1);
  if (json_is_array(type)) types &= any_of(type, named_type);
  else if (named_type(type)) types &= named_type(type);
  if (constant) types &= type_of_constant(constant);
  types &= any_of(json_object_get(schema, "enum"), type_of_constant);
  json_array_foreach(json_object_get(schema, "allOf"), i, one) types &= types_in(w, one, depth + 1);
  for (size_t k = 0; k < COUNT(unions); k++) {
    unsigned any = 0;
    list = json_object_get(schema, unions[k]);
    json_array_foreach(list, i, one) any |= types_in(w, one, depth + 1);
    if (any) types &= any;
  }
  if (types == TYPE_ALL && json_object_get(schema, "properties")) types = TYPE_OBJECT;
  if (types == TYPE_ALL && json_object_get(schema, "items")) types = TYPE_ARRAY;
  if (json_is_true(json_object_get(schema, "nullable"))) types |= TYPE_NULL;
  return types ? types : TYPE_ALL;
}

unsigned answer_types(struct shape s) {
  struct walk w = {s.root, MAX_STEPS};
  return types_in(&w, s.schema, 0);
}

// The schema of a member (items: of array elements), through references and combinations.
static const json_t *member_in(struct walk *w, const json_t *schema, text_view key, bool items, int depth) {
  static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
  const char *ref = json_string_value(json_object_get(schema, "$ref"));
  size_t i;
  json_t *one;
  if (!json_is_object(schema) || depth > MAX_REFS || w->steps-- <= 0) return NULL;
  const json_t *found = items ? json_object_get(schema, "items")
                              : json_object_getn(json_object_get(schema, "properties"), key.at, key.n);
  if (!found && ref) found = member_in(w, referred(w->root, ref), key, items, depth + 1);
  for (size_t k = 0; k < COUNT(lists); k++)
    json_array_foreach(json_object_get(schema, lists[k]), i, one)
      if (!found) found = member_in(w, one, key, items, depth + 1);
  if (!found && !items) found = json_object_get(schema, "additionalProperties");
  return json_is_object(found) ? found : NULL;
}

static struct shape shape_of_member(struct shape s, text_view key, bool items) {
  struct walk w = {s.root, MAX_STEPS};
  return (struct shape){s.root, member_in(&w, s.schema, key, items, 0)};
}

struct shape answer_parameter(const json_t *tools, text_view tool, text_view key) {
  const json_t *d = description(tools, tool), *p = json_object_get(d, "parameters");
  if (!p) p = json_object_get(d, "input_schema");
  return shape_of_member((struct shape){p, p}, key, false);
}

// ---- values ---------------------------------------------------------------------------------------------------------

static unsigned type_of_json(const str *json) {
  switch (json->at[0]) {
  case '{': return TYPE_OBJECT;
  case '[': return TYPE_ARRAY;
  case '"': return TYPE_STRING;
  case 't': case 'f': return TYPE_BOOLEAN;
  case 'n': return TYPE_NULL;
  default: return strpbrk(json->at, ".eE") ? TYPE_NUMBER : TYPE_INTEGER;
  }
}

// Returns whether unquoted text is read as this type instead of as a string.
static bool is_meant(unsigned types, unsigned type) {
  if (!(types & TYPE_STRING)) return true;
  return type != TYPE_STRING && types & type;
}

void answer_put_string(str *out, text_view v) {
  str_addc(out, '"');
  for (size_t i = 0; i < v.n; i++) literal_put(out, v.at[i]);
  str_addc(out, '"');
}

void answer_put_value(str *out, text_view v, unsigned types) {
  str json = {0};
  text_view bare = answer_trim(v);
  bool tuple = bare.n && bare.at[0] == '(' && types & TYPE_STRING;
  if (types != TYPE_STRING && !tuple && literal_read(bare.at, bare.n, &json) && is_meant(types, type_of_json(&json))) {
    str_addn(out, json.at, json.n);
  } else {                               // values may be on lines of their own
    if (v.n && v.at[0] == '\n') v = (text_view){v.at + 1, v.n - 1};
    if (v.n && v.at[v.n - 1] == '\n') v.n--;
    answer_put_string(out, v);
  }
  str_free(&json);
}

static bool take_tag(text_view *v, text_view *tag) {
  const char *end;
  if (!v->n || v->at[0] != '<' || !(end = memchr(v->at, '>', v->n))) return false;
  *tag = (text_view){v->at + 1, (size_t)(end - v->at - 1)};
  *v = (text_view){end + 1, v->n - tag->n - 2};
  return tag->n && tag->n < 256;
}

static bool upto_end(text_view *v, text_view tag, text_view *inside) {
  str end = {0};
  str_addf(&end, "</%.*s>", (int)tag.n, tag.at);
  const char *at = memmem(v->at, v->n, end.at, end.n);
  if (at) {
    *inside = (text_view){v->at, (size_t)(at - v->at)};
    *v = (text_view){at + end.n, v->n - inside->n - end.n};
  }
  str_free(&end);
  return at;
}

// Writes elements <KEY>V</KEY> as an object, or as an array if all are called item.
static bool put_elements(str *out, text_view v, struct shape s, int depth) {
  text_view tag, inside;
  bool items = v.n > 5 && !memcmp(v.at, "<item>", 6);
  for (size_t n = 0; (v = answer_trim(v)).n; n++) {
    if (!take_tag(&v, &tag) || !upto_end(&v, tag, &inside)) return false;
    if (items != (tag.n == 4 && !memcmp(tag.at, "item", 4))) return false;
    str_addc(out, n ? ',' : items ? '[' : '{');
    if (!items) { answer_put_string(out, tag); str_addc(out, ':'); }
    answer_put_nested(out, inside, shape_of_member(s, tag, items), depth + 1);
  }
  str_addc(out, items ? ']' : '}');
  return true;
}

void answer_put_nested(str *out, text_view v, struct shape s, int depth) {
  unsigned types = answer_types(s);
  text_view bare = answer_trim(v);
  size_t had = out->n;
  if (types & (TYPE_OBJECT | TYPE_ARRAY) && depth < MAX_NESTED && bare.n && bare.at[0] == '<') {
    if (put_elements(out, bare, s, depth)) return;
    out->n = had;
  }
  answer_put_value(out, v, types);
}
