// Determines the types of arguments that a model does not write as JSON, by the tool's schema, and converts them. What
// a schema says of a parameter is found once; the time for that is bounded for any schema and any number of parameters.
#define _GNU_SOURCE
#include "chat/answer_impl.h"
#include "base/json.h"
#include "base/literal.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REFS = 16, MAX_NESTED = 64 };
// Steps of one walk through a schema, at least and at most; of all walks beyond the least, which the clones of an
// answer share. A step is a schema, or as many bytes of a text, or as many entries of a list.
enum { LEAST_STEPS = 64, MAX_STEPS = 4096, ALL_STEPS = 1 << 17, STEP_BYTES = 32, STEP_ENTRIES = 8 };
enum { MOST_KEPT = 4096 };

// What a walk found: the schema of a member, or types.
struct found { uint64_t hash; const json_t *schema; unsigned types; };
struct answer_tools {
  atomic_int refs;
  json_t *all, *named;                   // named: descriptions by name, borrowed from `all`
  id_set ids;
  hash_key key;
  struct found *kept;                    // a table of 2 * MOST_KEPT places
  int n_kept;
  int64_t steps;                         // left of ALL_STEPS
};

text_view answer_trim(text_view v) {
  while (v.n && answer_space(v.at[0])) { v.at++; v.n--; }
  while (v.n && answer_space(v.at[v.n - 1])) v.n--;
  return v;
}

// ---- tools ----------------------------------------------------------------------------------------------------------

static const json_t *tool_function(const json_t *tool) {
  const json_t *f = json_object_get(tool, "function");
  return f ? f : tool;
}

// The first tool of a name counts.
int answer_tools_new(text_view json, text_view prompt, answer_tools **out, error *err) {
  json_t *all = json_read(json.at, json.n, 0, NULL, NULL), *one;
  size_t i;
  if (!json_is_array(all)) { json_decref(all); return error_set(err, "tools: expected a JSON array"); }
  answer_tools *t = xcalloc(1, sizeof *t);
  *t = (answer_tools){.refs = 1, .all = all, .named = json_object(), .key = hash_key_new(), .steps = ALL_STEPS};
  json_array_foreach(all, i, one) {
    const json_t *name = json_object_get(tool_function(one), "name");
    if (json_is_string(name) && !json_object_get(t->named, json_string_value(name)))
      json_object_set(t->named, json_string_value(name), (json_t *)(uintptr_t)tool_function(one));
  }
  if (ids_of_text(&t->ids, prompt, err)) { answer_tools_drop(t); return -1; }
  *out = t;
  return 0;
}

answer_tools *answer_tools_hold(answer_tools *t) {
  if (t) t->refs++;
  return t;
}

void answer_tools_drop(answer_tools *t) {
  if (!t || --t->refs) return;
  json_decref(t->named);
  json_decref(t->all);
  ids_free(&t->ids);
  free(t->kept);
  free(t);
}

const id_set *answer_tools_ids(const answer_tools *t) { return t ? &t->ids : NULL; }

static const json_t *description(const answer_tools *t, text_view tool) {
  return t ? json_object_getn(t->named, tool.at, tool.n) : NULL;
}

bool answer_knows_tool(const answer_tools *t, text_view name) { return description(t, name); }

bool answer_begins_tool(const answer_tools *t, text_view name) {
  const char *key;
  json_t *tool;
  if (t)
    json_object_foreach(t->named, key, tool) if (strlen(key) >= name.n && !memcmp(key, name.at, name.n)) return true;
  return false;
}

// ---- schemas --------------------------------------------------------------------------------------------------------

struct walk { const json_t *root; int64_t steps; };

static bool take_steps(struct walk *w, size_t n) { return (w->steps -= (int64_t)n) >= 0; }

// Resolves "#/a/b" within root, with ~0 and ~1; percent escapes are not decoded, since tools' schemas have none.
static const json_t *referred(struct walk *w, const json_t *reference) {
  const json_t *at = w->root;
  const char *ref = json_string_value(reference);
  if (*ref++ != '#' || !take_steps(w, json_string_length(reference) / STEP_BYTES)) return NULL;
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
static unsigned any_of(struct walk *w, const json_t *list, unsigned (*of)(const json_t *)) {
  unsigned types = 0;
  size_t i;
  json_t *v;
  if (!take_steps(w, json_array_size(list) / STEP_ENTRIES)) return TYPE_ALL;
  json_array_foreach(list, i, v) types |= of(v);
  return types ? types : TYPE_ALL;
}

static unsigned types_in(struct walk *w, const json_t *schema, int depth) {
  static const char *const unions[] = {"anyOf", "oneOf"};
  unsigned types = TYPE_ALL;
  if (!json_is_object(schema) || depth > MAX_REFS || !take_steps(w, 1)) return TYPE_ALL;
  const json_t *type = json_object_get(schema, "type"), *constant = json_object_get(schema, "const"), *list, *one,
               *ref = json_object_get(schema, "$ref");
  size_t i;
  if (json_is_string(ref)) types &= types_in(w, referred(w, ref), depth + 1);
  if (json_is_array(type)) types &= any_of(w, type, named_type);
  else if (named_type(type)) types &= named_type(type);
  if (constant) types &= type_of_constant(constant);
  types &= any_of(w, json_object_get(schema, "enum"), type_of_constant);
  json_array_foreach(json_object_get(schema, "allOf"), i, one) {
    if (w->steps <= 0) break;
    types &= types_in(w, one, depth + 1);
  }
  for (size_t k = 0; k < COUNT(unions); k++) {
    unsigned any = 0;
    list = json_object_get(schema, unions[k]);
    json_array_foreach(list, i, one) any |= w->steps > 0 ? types_in(w, one, depth + 1) : TYPE_ALL;
    if (any) types &= any;
  }
  if (types == TYPE_ALL && json_object_get(schema, "properties")) types = TYPE_OBJECT;
  if (types == TYPE_ALL && json_object_get(schema, "items")) types = TYPE_ARRAY;
  if (json_is_true(json_object_get(schema, "nullable"))) types |= TYPE_NULL;
  return types ? types : TYPE_ALL;
}

// The schema of a member (items: of array elements), through references and combinations.
static const json_t *member_in(struct walk *w, const json_t *schema, text_view key, bool items, int depth) {
  static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
  size_t i;
  json_t *one;
  if (!json_is_object(schema) || depth > MAX_REFS || !take_steps(w, 1 + key.n / STEP_BYTES)) return NULL;
  const json_t *ref = json_object_get(schema, "$ref");
  const json_t *found = items ? json_object_get(schema, "items")
                              : json_object_getn(json_object_get(schema, "properties"), key.at, key.n);
  if (!found && json_is_string(ref)) found = member_in(w, referred(w, ref), key, items, depth + 1);
  for (size_t k = 0; k < COUNT(lists); k++)
    json_array_foreach(json_object_get(schema, lists[k]), i, one) {
      if (found || w->steps <= 0) break;
      found = member_in(w, one, key, items, depth + 1);
    }
  if (!found && !items) found = json_object_get(schema, "additionalProperties");
  return json_is_object(found) ? found : NULL;
}

// Where what was found of a schema is kept; NULL: it is not, and the table is full. what: the member, or its kind.
static struct found *place_in(answer_tools *t, const json_t *schema, text_view what, int kind, uint64_t *hash) {
  const struct { uint64_t what; uintptr_t schema; uint64_t kind; } of = {hash_keyed(t->key, what.at, what.n),
                                                                         (uintptr_t)schema, (uint64_t)kind};
  *hash = hash_keyed(t->key, &of, sizeof of) | 1;
  if (!t->kept) t->kept = xcalloc(2 * MOST_KEPT, sizeof *t->kept);
  size_t i = (size_t)*hash % (2 * MOST_KEPT);
  while (t->kept[i].hash && t->kept[i].hash != *hash) i = (i + 1) % (2 * MOST_KEPT);
  if (!t->kept[i].hash && t->n_kept == MOST_KEPT) return NULL;
  return &t->kept[i];
}

enum { KIND_TYPES, KIND_MEMBER, KIND_ITEMS };

static struct found find_in_schema(struct shape s, text_view what, int kind) {
  answer_tools *t = s.of;
  if (!t || !s.schema) return (struct found){.types = TYPE_ALL};
  uint64_t hash;
  struct found *kept = place_in(t, s.schema, what, kind, &hash), now = {.types = TYPE_ALL};
  if (kept && kept->hash) return *kept;
  struct walk w = {s.root, LEAST_STEPS + (t->steps < MAX_STEPS - LEAST_STEPS ? t->steps : MAX_STEPS - LEAST_STEPS)};
  int64_t before = w.steps;
  if (kind == KIND_TYPES) now.types = types_in(&w, s.schema, 0);
  else now.schema = member_in(&w, s.schema, what, kind == KIND_ITEMS, 0);
  int64_t beyond = before - (w.steps > 0 ? w.steps : 0) - LEAST_STEPS;
  if (beyond > 0) t->steps -= beyond;
  if (!kept) return now;
  *kept = now;
  kept->hash = hash;
  t->n_kept++;
  return now;
}

unsigned answer_types(struct shape s) { return find_in_schema(s, (text_view){"", 0}, KIND_TYPES).types; }

static struct shape shape_of_member(struct shape s, text_view key, bool items) {
  return (struct shape){s.of, s.root, find_in_schema(s, key, items ? KIND_ITEMS : KIND_MEMBER).schema};
}

struct shape answer_parameter(answer_tools *t, text_view tool, text_view key) {
  const json_t *d = description(t, tool), *p = json_object_get(d, "parameters");
  if (!p) p = json_object_get(d, "input_schema");
  return shape_of_member((struct shape){t, p, p}, key, false);
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
