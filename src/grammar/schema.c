// Compiles a JSON schema to a grammar: docs/grammars.md is the user's documentation.
//
// Several schemas can apply to one value: the schema at its place, those that it refers to, and those of allOf. Such a
// set of schemas becomes one rule. Sets are remembered, so a schema that refers to itself becomes a rule that calls
// itself. anyOf and oneOf split a set into several, one for each choice. The keywords of all schemas in a set are
// combined: the smallest maximum, the members of all.
//
// All texts of the grammar are valid. It is narrower than the schema where JSON has irrelevant choices: members are in
// the order of the schema, white space is bounded, numbers have a bounded number of digits, and strings with
// constraints escape only what must be escaped. What cannot be expressed in this way is an error that names schema and
// keyword.
#include "base/account.h"
#include "base/plain.h"
#include "base/stack.h"
#include "grammar/schema_impl.h"
#include "base/json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- errors ---------------------------------------------------------------------------------------------------------

// The path from `from` to `to`, as a JSON pointer.
static bool json_pointer(const json_t *from, const json_t *to, str *out) {
  size_t n = out->n;
  if (from == to) return true;
  if (json_is_array(from)) {
    for (size_t i = 0; i < json_array_size(from); i++) {
      str_addf(out, "/%zu", i);
      if (json_pointer(json_array_get(from, i), to, out)) return true;
      out->n = n;
    }
  } else if (json_is_object(from)) {
    json_t *unshared = (json_t *)(uintptr_t)from;
    for (void *it = json_object_iter(unshared); it; it = json_object_iter_next(unshared, it)) {
      str_addc(out, '/');
      for (const char *c = json_object_iter_key(it); *c; c++) {
        if (*c == '~' || *c == '/') str_add(out, *c == '~' ? "~0" : "~1");
        else str_addc(out, *c);
      }
      if (json_pointer(json_object_iter_value(it), to, out)) return true;
      out->n = n;
    }
  }
  return false;
}

// "schema at #/a/b, keyword: text". Finding the place takes a walk over the whole schema.
static void place_of_schema(const schema *s, const json_t *at, const char *keyword, const char *text, str *out) {
  str where = {0};
  str_add(&where, "#");
  if (!json_pointer(s->root, at, &where)) { where.n = 0; str_add(&where, "#"); }
  where.at[where.n] = 0;
  str_addf(out, "schema at %.300s%s%.60s: %s", where.at, keyword ? ", " : "", keyword ? keyword : "", text);
  str_free(&where);
}

static int fail_at(const schema *s, const json_t *at, const char *keyword, const char *fmt, va_list ap) {
  char text[400];
  str line = {0};
  if (s->err->text[0]) return -1;      // the first error is reported
  plain_vsnprintf(text, sizeof text, fmt, ap);
  place_of_schema(s, at, keyword, text, &line);
  error_set(s->err, "%s", line.at);
  str_free(&line);
  return -1;
}

int schema_fail(const schema *s, const json_t *at, const char *keyword, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fail_at(s, at, keyword, fmt, ap);
  va_end(ap);
  return -1;
}

static void note_at(schema *s, const json_t *at, const char *keyword, const char *fmt, va_list ap) {
  char text[400];
  if (!s->notes || s->n_notes > SCHEMA_NOTES_MAX) return;
  uint64_t key = hash_u64((uintptr_t)at, keyword ? hash_bytes(keyword, strlen(keyword), 0) : 0) >> 1;
  if (!map_add(&s->noted, key)) return;
  if (s->n_notes++ == SCHEMA_NOTES_MAX) { str_add(s->notes, "and more\n"); return; }
  plain_vsnprintf(text, sizeof text, fmt, ap);
  place_of_schema(s, at, keyword, text, s->notes);
  str_addc(s->notes, '\n');
}

void schema_note(schema *s, const json_t *at, const char *keyword, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  note_at(s, at, keyword, fmt, ap);
  va_end(ap);
}

int schema_relax(schema *s, const json_t *at, const char *keyword, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (s->strict) fail_at(s, at, keyword, fmt, ap);
  else note_at(s, at, keyword, fmt, ap);
  va_end(ap);
  return s->strict ? -1 : 0;
}

// Ends the work: everything that is charged from here on fails.
static int schema_ends(schema *s, const error *why) {
  s->work = SCHEMA_WORK_MAX + 1;
  if (!s->err->text[0]) error_set(s->err, "%s", why->text);
  return -1;
}

int schema_charge(schema *s, const json_t *at, uint64_t n) {
  enum { LOOK = SCHEMA_WORK_MAX / 64 };        // steps between two looks at the account: about 13 ms
  error why = {0};
  if (s->work <= SCHEMA_WORK_MAX) s->work += n;
  if (s->work <= SCHEMA_WORK_MAX && s->work - s->looked >= LOOK) {
    s->looked = s->work;
    if (account_check(&why)) return schema_ends(s, &why);
  }
  if (s->work <= SCHEMA_WORK_MAX) return 0;
  return schema_fail(s, at, NULL, "the schema takes more than %u steps: its parts apply to one another too often",
                     SCHEMA_WORK_MAX);
}

int schema_hold(schema *s, const json_t *at, size_t bytes) {
  error why = {0};
  if (s->held + bytes > SCHEMA_HELD_MAX) {
    s->work = SCHEMA_WORK_MAX + 1;
    return schema_fail(s, at, NULL, "what the schema's parts mean together takes more than %u MB",
                       SCHEMA_HELD_MAX >> 20);
  }
  if (account_take_here(bytes, &why)) return schema_ends(s, &why);
  s->held += bytes;
  return 0;
}

static void schema_let_go(schema *s, size_t bytes) {
  account_give_here(bytes);
  s->held -= bytes;
}

gx *schema_empty(schema *s, const json_t *at, const char *keyword, const char *what) {
  if (!s->empty) { s->empty = at; s->empty_keyword = keyword; s->empty_what = what; }
  return gx_never(&s->src);
}

// ---- keywords -------------------------------------------------------------------------------------------------------

// REFUSED: cannot be enforced; `why` has the reason.
enum family { F_APPLIES, F_ANY, F_NOTE, F_NUMBER, F_STRING, F_ARRAY, F_OBJECT, F_REFUSED };
static const struct { const char *name; enum family family; const char *why;
} keywords[] = {
  {"$ref", F_APPLIES, 0},
  {"allOf", F_APPLIES, 0},
  {"anyOf", F_APPLIES, 0},
  {"oneOf", F_APPLIES, 0},
  {"not", F_APPLIES, 0},
  {"if", F_APPLIES, 0},
  {"nullable", F_APPLIES, 0},
  {"type", F_ANY, 0},
  {"enum", F_ANY, 0},
  {"const", F_ANY, 0},
  {"$schema", F_NOTE, 0},
  {"$id", F_NOTE, 0},
  {"id", F_NOTE, 0},
  {"$anchor", F_NOTE, 0},
  {"$comment", F_NOTE, 0},
  {"$defs", F_NOTE, 0},
  {"definitions", F_NOTE, 0},
  {"$vocabulary", F_NOTE, 0},
  {"$dynamicAnchor", F_NOTE, 0},
  {"$recursiveAnchor", F_NOTE, 0},
  {"title", F_NOTE, 0},
  {"description", F_NOTE, 0},
  {"default", F_NOTE, 0},
  {"examples", F_NOTE, 0},
  {"example", F_NOTE, 0},
  {"deprecated", F_NOTE, 0},
  {"readOnly", F_NOTE, 0},
  {"writeOnly", F_NOTE, 0},
  {"contentEncoding", F_NOTE, 0},
  {"contentMediaType", F_NOTE, 0},
  {"contentSchema", F_NOTE, 0},
  {"strict", F_NOTE, 0},
  {"discriminator", F_NOTE, 0},
  {"xml", F_NOTE, 0},
  {"externalDocs", F_NOTE, 0},
  {"propertyOrdering", F_NOTE, 0},
  {"enumNames", F_NOTE, 0},
  {"errorMessage", F_NOTE, 0},
  {"markdownDescription", F_NOTE, 0},
  {"then", F_NOTE, 0},
  {"else", F_NOTE, 0},
  {"minContains", F_NOTE, 0},
  {"maxContains", F_NOTE, 0},
  {"minimum", F_NUMBER, 0},
  {"maximum", F_NUMBER, 0},
  {"exclusiveMinimum", F_NUMBER, 0},
  {"exclusiveMaximum", F_NUMBER, 0},
  {"multipleOf", F_NUMBER, 0},
  {"minLength", F_STRING, 0},
  {"maxLength", F_STRING, 0},
  {"pattern", F_STRING, 0},
  {"format", F_STRING, 0},
  {"items", F_ARRAY, 0},
  {"prefixItems", F_ARRAY, 0},
  {"additionalItems", F_ARRAY, 0},
  {"minItems", F_ARRAY, 0},
  {"maxItems", F_ARRAY, 0},
  {"uniqueItems", F_ARRAY, 0},
  {"properties", F_OBJECT, 0},
  {"required", F_OBJECT, 0},
  {"additionalProperties", F_OBJECT, 0},
  {"patternProperties", F_OBJECT, 0},
  {"propertyNames", F_OBJECT, 0},
  {"minProperties", F_OBJECT, 0},
  {"maxProperties", F_OBJECT, 0},
  {"unevaluatedProperties", F_OBJECT, 0},
  {"dependencies", F_OBJECT, 0},
  {"dependentRequired", F_OBJECT, 0},
  {"dependentSchemas", F_OBJECT, 0},
  {"contains", F_REFUSED, "is not enforced: which of the items is meant is not known while they are written"},
  {"unevaluatedItems", F_REFUSED, "is not enforced: use items and prefixItems"},
  {"$dynamicRef", F_REFUSED, "dynamic references are not followed: use $ref"},
  {"$recursiveRef", F_REFUSED, "dynamic references are not followed: use $ref"},
};

bool schema_says(const char *keyword) {
  for (size_t i = 0; i < COUNT(keywords); i++)
    if (!strcmp(keywords[i].name, keyword)) return keywords[i].family != F_NOTE;
  return false;
}

// A negation or a condition for which expand() has no alternatives.
static bool not_expressible(schema *s, json_t *node, const char *name, const json_t *value) {
  if (!strcmp(name, "not")) return !json_is_false(value) && !schema_is_atom(value) && !schema_negation(s, node);
  if (!strcmp(name, "if")) return schema_condition(s, node) == NULL;
  return false;
}

// Notes keywords that are unknown or not supported. families: a bit for each kind of keyword in the schema.
static int keywords_of(schema *s, json_t *node, unsigned *families) {
  if (schema_charge(s, node, 32 + 8 * (uint64_t)json_object_size(node))) return -1;
  for (void *it = json_object_iter(node); it; it = json_object_iter_next(node, it)) {
    const char *name = json_object_iter_key(it);
    const json_t *value = json_object_iter_value(it);
    size_t i = 0;
    while (i < COUNT(keywords) && strcmp(keywords[i].name, name)) i++;
    if (i == COUNT(keywords)) {
      if (strncmp(name, "x-", 2) && schema_relax(s, node, name, "this keyword is not known")) return -1;
      continue;
    }
    if (keywords[i].family == F_REFUSED) {
      bool no_effect = !strcmp(name, "unevaluatedItems") && json_is_true(value);
      if (!no_effect && schema_relax(s, node, name, "%s", keywords[i].why)) return -1;
      continue;
    }
    if (not_expressible(s, node, name, value) &&
        schema_relax(s, node, name, "is not enforced: what it excludes cannot be written as a schema"))
      return -1;
    unsigned of = T_STRING;
    if (!strcmp(name, "format") && json_is_string(value)) schema_format(json_string_value(value), &of);
    *families |= 1u << (of & T_STRING ? keywords[i].family : of ? F_NUMBER : F_NOTE);
  }
  return 0;
}

int schema_count(const schema *s, const json_t *node, const char *keyword, uint32_t *out) {
  const json_t *v = json_object_get(node, keyword);
  if (!v) return 0;
  double x = json_number_value(v);
  if (!json_is_number(v) || x < 0 || x > 4294967294.0 || x != (double)(uint32_t)x)
    return schema_fail(s, node, keyword, "expected a whole number from 0 to 4294967294");
  *out = (uint32_t)x;
  return 1;
}

unsigned schema_type_of(const json_t *v) {
  switch (json_typeof(v)) {
  case JSON_NULL: return T_NULL;
  case JSON_TRUE: case JSON_FALSE: return T_BOOL;
  case JSON_INTEGER: return T_INTEGER;
  case JSON_REAL: return json_real_value(v) == floor(json_real_value(v)) ? T_INTEGER : T_FRACTION;
  case JSON_STRING: return T_STRING;
  case JSON_ARRAY: return T_ARRAY;
  default: return T_OBJECT;
  }
}

static unsigned type_named(const char *name) {
  static const struct {
    const char *name;
    unsigned bits;
  } types[] = {{"null", T_NULL},     {"boolean", T_BOOL}, {"integer", T_INTEGER}, {"number", T_NUMBER},
               {"string", T_STRING}, {"array", T_ARRAY},  {"object", T_OBJECT}};
  for (size_t i = 0; name && i < COUNT(types); i++)
    if (!strcmp(types[i].name, name)) return types[i].bits;
  return 0;
}

int schema_types(schema *s, const json_t *node, unsigned *types) {
  const json_t *t = json_object_get(node, "type");
  unsigned or_null = json_is_true(json_object_get(node, "nullable")) ? T_NULL : 0;   // OpenAPI 3.0
  *types = T_ALL;
  if (!t) return 0;
  if (json_is_string(t)) {
    *types = type_named(json_string_value(t)) | or_null;
    return *types & ~or_null || *types == T_NULL
             ? 0
             : schema_fail(s, node, "type", "there is no type '%.60s'", json_string_value(t));
  }
  if (!json_is_array(t) || !json_array_size(t))
    return schema_fail(s, node, "type", "expected the name of a type, or an array of such");
  if (schema_charge(s, node, json_array_size(t) / 2)) return -1;
  *types = or_null;
  for (size_t i = 0; i < json_array_size(t); i++) {
    unsigned one = type_named(json_string_value(json_array_get(t, i)));
    if (!one) return schema_fail(s, node, "type", "item %zu is not the name of a type", i);
    *types |= one;
  }
  return 0;
}

// ---- references -----------------------------------------------------------------------------------------------------

// Finds the schemas with names ($anchor), and the references within schemas that have an $id of their own: those are
// relative to it and not to the root, so they are marked to be refused. The values of const and similar keywords are
// not schemas.
static void survey(schema *s, json_t *from, bool schemas, bool embedded) {
  static const char *const data[] = {"const", "enum", "default", "examples", "example"};
  static const char *const maps[] = {"properties",  "patternProperties", "$defs",
                                     "definitions", "dependentSchemas",  "dependencies"};
  for (size_t i = 0; i < json_array_size(from); i++) survey(s, json_array_get(from, i), true, embedded);
  if (!json_is_object(from)) return;
  if (schemas) {
    const char *id = json_string_value(json_object_get(from, "$id")),
               *names[3] = {json_string_value(json_object_get(from, "$anchor")),
                            json_string_value(json_object_get(from, "$dynamicAnchor"))};
    if (!id) id = json_string_value(json_object_get(from, "id"));      // draft 4
    if (id && *id == '#') names[2] = id + 1;                           // before draft 2019-09
    else if (id && *id && from != s->root) embedded = true;
    for (size_t i = 0; i < COUNT(names) && !embedded; i++) {
      void *other = from;
      if (!names[i]) continue;
      smap_get(&s->anchors, names[i], strlen(names[i]), &other);
      smap_set(&s->anchors, names[i], strlen(names[i]), other == from ? from : NULL);
    }
    if (embedded && json_object_get(from, "$ref")) map_put(&s->elsewhere, from, from);
  }
  for (void *it = json_object_iter(from); it; it = json_object_iter_next(from, it)) {
    const char *key = json_object_iter_key(it);
    bool is_data = false, is_map = false;
    for (size_t i = 0; i < COUNT(data) && schemas; i++) is_data = is_data || !strcmp(key, data[i]);
    for (size_t i = 0; i < COUNT(maps) && schemas; i++) is_map = is_map || !strcmp(key, maps[i]);
    if (!is_data) survey(s, json_object_iter_value(it), !is_map, embedded);
  }
}

int schema_ref(schema *s, const json_t *node, json_t **target) {
  const json_t *ref = json_object_get(node, "$ref");
  *target = NULL;
  if (!ref) return 0;
  const json_t *own = json_object_get(s->root, "$id");
  const char *to = json_string_value(ref), *id = json_string_value(own);
  size_t n_id = json_string_length(own);
  if (!to) return schema_fail(s, node, "$ref", "expected a text");
  if (schema_charge(s, node, json_string_length(ref) / 16)) return -1;
  if (id && *id && !strncmp(to, id, n_id) && (to[n_id] == '#' || !to[n_id])) to += n_id;
  if (*to && *to != '#') return schema_relax(s, node, "$ref", "'%.100s' points out of this document", to);
  if (map_has(&s->elsewhere, node))
    return schema_relax(s, node, "$ref", "within a schema that has an $id of its own, references are not supported");
  json_t *at = s->root;
  if (*to == '#') to++;
  if (*to && *to != '/') {
    void *named = NULL;
    bool known = smap_get(&s->anchors, to, strlen(to), &named);
    if (!named)
      return schema_fail(s, node, "$ref", "there is %s '%.100s'", known ? "more than one $anchor" : "no $anchor", to);
    at = named;
    to = "";
  }
  str part = {0};
  const char *whole = to;
  while (*to && at) {
    part.n = 0;
    str_add(&part, "");
    for (to++; *to && *to != '/'; to++) {
      int high = *to == '%' ? hex_value(to[1]) : -1, low = high < 0 ? -1 : hex_value(to[2]);
      if (*to == '~' && (to[1] == '0' || to[1] == '1')) str_addc(&part, *++to == '0' ? '~' : '/');
      else if (low >= 0) {
        str_addc(&part, (char)(high * 16 + low));
        to += 2;
      } else str_addc(&part, *to);
    }
    part.at[part.n] = 0;
    if (json_is_object(at)) at = json_object_get(at, part.at);
    else if (json_is_array(at) && part.n && strspn(part.at, "0123456789") == part.n && part.n < 10)
      at = json_array_get(at, (size_t)atol(part.at));
    else at = NULL;
  }
  str_free(&part);
  if (!at) return schema_fail(s, node, "$ref", "nothing is at '%.100s'", whole);
  *target = at;
  return 0;
}

// ---- sets of schemas ------------------------------------------------------------------------------------------------

static int by_address(const void *pa, const void *pb) {
  uintptr_t a = (uintptr_t)*(json_t *const *)pa, b = (uintptr_t)*(json_t *const *)pb;
  return (a > b) - (a < b);
}

gx *schema_value(schema *s, const nodes *set) {
  nodes sorted = {0};
  for (size_t i = 0; i < set->n; i++) vec_push(&sorted, set->at[i]);
  if (sorted.n) qsort(sorted.at, sorted.n, sizeof *sorted.at, by_address);
  size_t n = 0;
  for (size_t i = 0; i < sorted.n; i++)
    if (!n || sorted.at[n - 1] != sorted.at[i]) sorted.at[n++] = sorted.at[i];
  sorted.n = n;
  if (s->n_memo * 2 >= s->cap_memo) {
    struct memo *old = s->memo;
    size_t cap = s->cap_memo;
    s->cap_memo = cap ? cap * 2 : 64;
    s->memo = xcalloc(s->cap_memo, sizeof *s->memo);
    for (size_t i = 0; i < cap; i++) {
      if (old[i].rule < 0 || !old[i].set.at) continue;
      size_t at = hash_bytes(old[i].set.at, old[i].set.n * sizeof(json_t *), 0) & (s->cap_memo - 1);
      while (s->memo[at].set.at) at = (at + 1) & (s->cap_memo - 1);
      s->memo[at] = old[i];
    }
    free(old);
  }
  if (!sorted.n) return schema_any(s);
  size_t bytes = n * sizeof(json_t *), at = hash_bytes(sorted.at, bytes, 0) & (s->cap_memo - 1);
  while (s->memo[at].set.at && (s->memo[at].set.n != n || memcmp(s->memo[at].set.at, sorted.at, bytes)))
    at = (at + 1) & (s->cap_memo - 1);
  if (s->memo[at].set.at) {
    vec_free(&sorted);
    return gx_rule(&s->src, s->memo[at].rule);
  }
  int32_t rule = grammar_rule_new(&s->src, "schema", 6, 0);
  if (rule < 0) {
    vec_free(&sorted);
    schema_fail(s, set->at[0], NULL, "the schema needs more than %u rules", GRAMMAR_RULES_MAX);
    return NULL;
  }
  if (schema_hold(s, set->at[0], 2 * bytes + sizeof *s->memo + sizeof(struct job))) {
    vec_free(&sorted);
    return NULL;
  }
  s->memo[at] = (struct memo){sorted, rule};
  s->n_memo++;
  struct job job = {rule, {0}};
  // in the original order, which decides the order of members
  for (size_t i = 0; i < set->n; i++) vec_push(&job.set, set->at[i]);
  vec_push(&s->jobs, job);
  return gx_rule(&s->src, rule);
}

// Alternatives of which one must be chosen, and the schemas on the way to them.
struct way { const json_t *node; const struct way *from; };
struct choice { json_t *array, *owner; bool one; const struct way *way; };
struct plan { nodes plain; VEC(struct choice) choices; bool never; size_t held; };   // held: for schema_let_go

// Members that depend on others: each becomes a choice between an object without that member and one with its
// dependencies, written as schemas.
static int dependent(schema *s, struct plan *p, json_t *node, const struct way *way) {
  static const char *const names[] = {"dependentRequired", "dependentSchemas", "dependencies"};
  void *known = map_ptr(&s->made_of, node);
  json_t *all = known ? known : json_array();
  int failed = 0;
  for (size_t k = 0; k < COUNT(names) && !known && !failed; k++) {
    json_t *deps = json_object_get(node, names[k]);
    if (deps && !json_is_object(deps)) {
      json_decref(all);
      return schema_fail(s, node, names[k], "expected an object");
    }
    for (void *it = json_object_iter(deps); it && !failed; it = json_object_iter_next(deps, it)) {
      const char *name = json_object_iter_key(it);
      json_t *what = json_object_iter_value(it),
             *asked = json_is_array(what) ? json_pack("{s:O}", "required", what) : json_incref(what);
      json_array_append_new(
        all, json_pack("[{s:{s:b}}, {s:[{s:[s]}, o]}]", "properties", name, 0, "allOf", "required", name, asked));
      failed = schema_made(s, node, 3 + 2 * strlen(name) / SCHEMA_MADE);
    }
  }
  if (!known) {
    map_put(&s->made_of, node, all);
    vec_push(&s->made, all);
  }
  if (failed || schema_charge(s, node, 1 + json_array_size(all) / 4)) return -1;
  for (size_t i = 0; i < json_array_size(all); i++)
    vec_push(&p->choices, ((struct choice){json_array_get(all, i), node, false, way}));
  return 0;
}

// The choices for `not` and `if`. An empty choice: nothing is valid.
static int written_choices(schema *s, struct plan *p, json_t *node, const struct way *way) {
  json_t *no = json_object_get(node, "not"), *made[2] = {NULL, NULL};
  if (no && !json_is_false(no) && !schema_is_atom(no)) made[0] = schema_negation(s, node);
  if (json_object_get(node, "if")) made[1] = schema_condition(s, node);
  for (size_t i = 0; i < COUNT(made); i++) {
    if (!made[i]) continue;
    if (schema_charge(s, node, 1 + json_array_size(made[i]) / 4)) return -1;
    if (!json_array_size(made[i])) {
      p->never = true;
      schema_empty(s, node, i ? "if" : "not", "no value is left");
    } else vec_push(&p->choices, ((struct choice){made[i], node, false, way}));
  }
  return 0;
}

static int expand(schema *s, struct plan *p, json_t *node, const struct way *from) {
  int depth = 0;
  if (schema_charge(s, node, 1)) return -1;
  if (json_is_true(node)) return 0;
  if (json_is_false(node)) {
    p->never = true;
    schema_empty(s, from ? from->node : s->root, NULL, "false allows no value");
    return 0;
  }
  if (!json_is_object(node)) return schema_fail(s, node, NULL, "a schema is an object, true or false");
  for (const struct way *w = from; w; w = w->from) {
    if (w->node == node)
      return schema_fail(s, node, NULL, "this schema applies itself to the same value, without end ($ref)");
    if (++depth > SCHEMA_DEPTH_MAX)
      return schema_fail(s, node, NULL, "more than %d schemas that lead to one another for one value",
                         SCHEMA_DEPTH_MAX);
  }
  if (schema_charge(s, node, 8 + (uint64_t)depth / 4 + p->plain.n / 8)) return -1;
  struct way *way = ARENA_NEW(s->src.mem, struct way);
  *way = (struct way){node, from};
  bool known = false;
  for (size_t i = 0; i < p->plain.n && !known; i++) known = p->plain.at[i] == node;
  if (known) return 0;
  vec_push(&p->plain, node);
  json_t *target;
  if (schema_ref(s, node, &target) || (target && expand(s, p, target, way))) return -1;
  if ((json_object_get(node, "dependentRequired") || json_object_get(node, "dependentSchemas") ||
       json_object_get(node, "dependencies")) &&
      dependent(s, p, node, way))
    return -1;
  if (written_choices(s, p, node, way)) return -1;
  static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
  for (int k = 0; k < 3; k++) {
    json_t *list = json_object_get(node, lists[k]);
    if (!list) continue;
    if (!json_is_array(list) || !json_array_size(list))
      return schema_fail(s, node, lists[k], "expected an array of schemas");
    if (k) vec_push(&p->choices, ((struct choice){list, node, k == 2, way}));
    for (size_t i = 0; !k && i < json_array_size(list); i++)
      if (expand(s, p, json_array_get(list, i), way)) return -1;
  }
  return 0;
}

static gx *leaf_of_set(schema *s, const nodes *set);

// Checks that the alternatives of oneOf exclude one another: while a value is being written, it is unknown whether it
// matches only one of them.
static int tell_apart(schema *s, const struct plan *p, const struct choice *c) {
  const json_t *around = p->plain.n == 1 && p->choices.n == 1 ? c->owner : NULL;
  unsigned within = T_ALL, types;
  if (schema_charge(s, c->owner, p->plain.n)) return -1;
  for (size_t i = 0; i < p->plain.n; i++) {
    if (schema_types(s, p->plain.at[i], &types)) return -1;
    within &= types;
  }
  for (size_t i = 0; i < json_array_size(c->array); i++)
    for (size_t k = 0; k < json_array_size(c->array); k++) {
      if (i == k) continue;
      int apart = schema_excludes(s, json_array_get(c->array, i), json_array_get(c->array, k), within, around, 0);
      if (apart < 0) return -1;
      if (s->compared > SCHEMA_COMPARED_MAX)
        return schema_relax(s, c->owner, "oneOf",
                            "read as anyOf: the alternatives are too many to be compared with one "
                            "another");
      if (!apart)
        return schema_relax(
          s, c->owner, "oneOf",
          "read as anyOf: alternatives %zu and %zu are not seen to exclude one another: use anyOf, or a member with "
          "different const values",
          i < k ? i : k, i < k ? k : i);
    }
  return 0;
}

static void plan_free(schema *s, struct plan *p) {
  schema_let_go(s, p->held);
  vec_free(&p->plain);
  vec_free(&p->choices);
}

// The plan with alternative i of one choice; free it even on failure.
static int plan_with(schema *s, const struct plan *p, size_t choice, size_t i, struct plan *out) {
  const struct choice *c = &p->choices.at[choice];
  *out = (struct plan){.never = false};
  if (schema_charge(s, c->owner, 4 + (p->plain.n + p->choices.n) / 8)) return -1;
  if (stack_is_low())
    return schema_fail(s, c->owner, NULL, "the stack has no room for %zu choices for one value", p->choices.n);
  // as many plans are in memory as there are choices, each with all of them
  size_t bytes = p->plain.n * sizeof *p->plain.at + p->choices.n * sizeof *p->choices.at;
  if (schema_hold(s, c->owner, bytes)) return -1;
  out->held = bytes;
  for (size_t k = 0; k < p->plain.n; k++) vec_push(&out->plain, p->plain.at[k]);
  for (size_t k = 0; k < p->choices.n; k++) vec_push(&out->choices, p->choices.at[k]);
  return expand(s, out, json_array_get(c->array, i), c->way);
}

// Counts the combinations. Counting is cheap compared with making one, so too many are an error before the first is
// made.
static int count_branches(schema *s, const struct plan *p, size_t done, size_t *count) {
  if (p->never) return 0;
  if (done == p->choices.n) {
    if (++*count <= SCHEMA_BRANCHES_MAX) return 0;
    return schema_fail(s, p->plain.at[0], NULL, "more than %d combinations of alternatives for one value",
                       SCHEMA_BRANCHES_MAX);
  }
  int status = 0;
  for (size_t i = 0; i < json_array_size(p->choices.at[done].array) && !status; i++) {
    struct plan next;
    status = plan_with(s, p, done, i, &next);
    if (!status) status = count_branches(s, &next, done + 1, count);
    plan_free(s, &next);
  }
  return status;
}

static gx *branches(schema *s, const struct plan *p, size_t done) {
  if (p->never) return gx_never(&s->src);
  if (done == p->choices.n) return leaf_of_set(s, &p->plain);
  const struct choice *c = &p->choices.at[done];
  if (c->one && tell_apart(s, p, c)) return NULL;
  VEC(gx *) list = {0};
  gx *out = NULL;
  for (size_t i = 0; i < json_array_size(c->array); i++) {
    struct plan next;
    out = plan_with(s, p, done, i, &next) ? NULL : branches(s, &next, done + 1);
    plan_free(s, &next);
    if (!out || s->src.too_large) break;
    vec_push(&list, out);
  }
  if (out) out = gx_alt(&s->src, list.at, list.n);
  vec_free(&list);
  return out;
}

// ---- values ---------------------------------------------------------------------------------------------------------

gx *schema_any(schema *s) {
  if (s->any >= 0) return gx_rule(&s->src, s->any);
  s->any = grammar_rule_new(&s->src, "value", 5, 0);
  if (s->any < 0) {
    schema_fail(s, s->root, NULL, "the schema needs more than %u rules", GRAMMAR_RULES_MAX);
    return NULL;
  }
  nodes none = {0};
  grammar_source *g = &s->src;
  gx *self = gx_rule(g, s->any), *string = schema_string(s, &none);
  if (!string) return NULL;
  gx *member = GX_SEQ_OF(g, string, gx_text(g, ":"), s->space, self);
  gx *object = GX_SEQ_OF(g, gx_text(g, "{"), s->space, gx_list(g, NULL, NULL, 0, s->comma, member, 0, GRAMMAR_INF),
                         s->space, gx_text(g, "}"));
  gx *array = GX_SEQ_OF(g, gx_text(g, "["), s->space, gx_list(g, NULL, NULL, 0, s->comma, self, 0, GRAMMAR_INF),
                        s->space, gx_text(g, "]"));
  gx *number = schema_number(s, &none, false);
  if (!number) return NULL;
  s->src.rules.at[s->any].body =
    GX_ALT_OF(g, object, array, string, number, gx_text(g, "true"), gx_text(g, "false"), gx_text(g, "null"));
  return gx_rule(g, s->any);
}

gx *schema_literal(schema *s, const json_t *v) {
  grammar_source *g = &s->src;
  str text = {0};
  if (json_is_array(v) || json_is_object(v)) {
    VEC(gx *) list = {0};
    bool array = json_is_array(v);
    json_t *unshared = (json_t *)(uintptr_t)v;
    vec_push(&list, gx_text(g, array ? "[" : "{"));
    vec_push(&list, s->space);
    if (array)
      for (size_t i = 0; i < json_array_size(v); i++) {
        if (i) vec_push(&list, s->comma);
        vec_push(&list, schema_literal(s, json_array_get(v, i)));
      }
    else
      for (void *it = json_object_iter(unshared), *first = it; it; it = json_object_iter_next(unshared, it)) {
        if (it != first) vec_push(&list, s->comma);
        text.n = 0;
        schema_quoted(&text, json_object_iter_key(it), strlen(json_object_iter_key(it)));
        str_addc(&text, ':');
        vec_push(&list, gx_bytes(g, text.at, text.n));
        vec_push(&list, s->space);
        vec_push(&list, schema_literal(s, json_object_iter_value(it)));
      }
    vec_push(&list, s->space);
    vec_push(&list, gx_text(g, array ? "]" : "}"));
    gx *x = gx_seq(g, list.at, list.n);
    vec_free(&list);
    str_free(&text);
    return x;
  }
  switch (json_typeof(v)) {
  case JSON_NULL: str_add(&text, "null"); break;
  case JSON_TRUE: str_add(&text, "true"); break;
  case JSON_FALSE: str_add(&text, "false"); break;
  case JSON_INTEGER: str_addf(&text, "%lld", (long long)json_integer_value(v)); break;
  case JSON_REAL:
    for (int digits = 15; digits <= 17; digits++) {
      text.n = 0;
      str_addf(&text, "%.*g", digits, json_real_value(v));
      if (plain_strtod(text.at, NULL) == json_real_value(v)) break;
    }
    if (!strpbrk(text.at, ".e")) str_add(&text, ".0");
    break;
  default: schema_quoted(&text, json_string_value(v), json_string_length(v)); break;
  }
  gx *x = gx_bytes(g, text.at, text.n);
  str_free(&text);
  return x;
}

// The values of enum and const that satisfy the rest of the set. *out NULL: there is no enum and no const.
static int listed(schema *s, const nodes *set, gx **out) {
  json_t *from = NULL, *owner = NULL;
  bool one = false;
  *out = NULL;
  for (size_t i = 0; i < set->n && !one; i++) {
    json_t *constant = json_object_get(set->at[i], "const"), *values = json_object_get(set->at[i], "enum");
    if (values && (!json_is_array(values))) return schema_fail(s, set->at[i], "enum", "expected an array of values");
    if (constant || (values && !from)) {
      from = constant ? constant : values;
      owner = set->at[i];
      one = constant != NULL;
    }
  }
  if (!from) return 0;
  for (size_t i = 0; i < set->n; i++) {
    const json_t *unevaluated = json_object_get(set->at[i], "unevaluatedProperties");
    if (unevaluated && !json_is_true(unevaluated) &&
        schema_relax(s, set->at[i], "unevaluatedProperties", "is not enforced beside enum and const"))
      return -1;
  }
  VEC(gx *) list = {0};
  for (size_t i = 0; i < (one ? 1 : json_array_size(from)); i++) {
    const json_t *value = one ? from : json_array_get(from, i);
    int valid = 1;
    for (size_t k = 0; k < set->n && valid == 1; k++) valid = schema_check(s, value, set->at[k], true, 0);
    if (valid < 0) { vec_free(&list); return -1; }
    if (valid) vec_push(&list, schema_literal(s, value));
  }
  *out = list.n ? gx_alt(&s->src, list.at, list.n)
                : schema_empty(s, owner, one ? "const" : "enum", "no value of it is allowed by the rest of the schema");
  vec_free(&list);
  return 0;
}

// Subtracts what `not` excludes from part i of these types. Returns -1 on failure.
static int subtract(schema *s, const nodes *set, unsigned types, size_t i, gx **part) {
  static const unsigned order[] = {T_OBJECT, T_ARRAY, T_STRING, T_NUMBER};
  for (size_t k = 0; k < COUNT(order); k++) {
    if (!(types & order[k]) || i--) continue;
    unsigned type = order[k] == T_NUMBER && !(types & T_FRACTION) ? T_INTEGER : order[k];
    return type == T_STRING ? 0 : schema_minus(s, set, type, part);          // already done for strings
  }
  return 0;
}

// The values that a set of schemas accepts, after $ref, allOf, anyOf and oneOf have been followed.
static gx *leaf_of_set(schema *s, const nodes *set) {
  unsigned types = T_ALL, families = 0;
  grammar_source *g = &s->src;
  gx *out, *list[8];
  size_t n = 0;
  for (size_t i = 0; i < set->n; i++) {
    unsigned own;
    if (keywords_of(s, set->at[i], &families) || schema_types(s, set->at[i], &own)) return NULL;
    types &= own;
  }
  bool atoms = schema_has_atoms(set, &types);
  if (listed(s, set, &out)) return NULL;
  if (out) return out;
  if (!types) return schema_empty(s, set->at[0], "type", "no type is allowed by all of the schemas that apply here");
  // keywords of a single type without `type` imply that type
  if (types == T_ALL) {
    unsigned of = families & (1u << F_NUMBER | 1u << F_STRING | 1u << F_ARRAY | 1u << F_OBJECT);
    types = of == 1u << F_NUMBER   ? T_NUMBER
            : of == 1u << F_STRING ? T_STRING
            : of == 1u << F_ARRAY  ? T_ARRAY
            : of == 1u << F_OBJECT ? T_OBJECT
                                   : T_ALL;
    if (!of && !atoms) return schema_any(s);
  }
  if (types & T_OBJECT && !(list[n++] = schema_object(s, set))) return NULL;
  if (types & T_ARRAY && !(list[n++] = schema_array(s, set))) return NULL;
  if (types & T_STRING && !(list[n++] = schema_string(s, set))) return NULL;
  if (types & T_NUMBER && !(list[n++] = schema_number(s, set, !(types & T_FRACTION)))) return NULL;
  for (size_t i = 0; i < n && atoms; i++)
    if (subtract(s, set, types, i, &list[i])) return NULL;
  json_t *const single[] = {json_true(), json_false(), json_null()};
  for (size_t i = 0; i < COUNT(single); i++)
    if (types & schema_type_of(single[i]) && !(atoms && schema_excluded(s, set, single[i])))
      list[n++] = schema_literal(s, single[i]);
  return gx_alt(g, list, n);
}

// ---- the whole ------------------------------------------------------------------------------------------------------

static void pieces(schema *s) {
  grammar_source *g = &s->src;
  charset blank = {0};
  charset_add(&blank, ' ', ' ');
  charset_add(&blank, '\t', '\t');
  charset_normalise(&blank);
  gx *newline = gx_text(g, "\n");
  s->space = GX_ALT_OF(g, gx_empty(g), gx_text(g, " "),
                       GX_SEQ_OF(g, newline, gx_repeat(g, newline, 0, 1), gx_repeat(g, gx_class(g, &blank), 0, 20)));
  charset_free(&blank);
  int32_t space = grammar_rule_new(g, "space", 5, 0);
  s->src.rules.at[space].body = s->space;
  s->space = gx_rule(g, space);
  s->quote = gx_text(g, "\"");
  s->comma = GX_SEQ_OF(g, gx_text(g, ","), s->space);
  s->any = s->string = -1;
}

// 1: it exceeds a limit and has patterns, one of which may be the cause.
static int compile_schema(const char *text, size_t n, bool strict, bool tries, str *notes, grammar **out,
                          error *err) {
  if (n > GRAMMAR_SOURCE_MAX) return error_set(err, "a schema of %zu bytes (the limit is %u)", n, GRAMMAR_SOURCE_MAX);
  error json = {0};
  if (!json_fits(text, n, NULL, &json)) return error_set(err, "the schema: %s", json.text);
  schema s = {.err = err,
              .strict = strict,
              .tries_patterns = tries,
              .notes = notes,
              .root = json_parse(text, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &json)};
  if (!s.root) return error_set(err, "the schema is not JSON: %s", json.text);
  grammar_source_init(&s.src);
  int32_t root = grammar_rule_new(&s.src, "the schema", 10, 0);
  pieces(&s);
  survey(&s, s.root, true, false);
  nodes first = {0};
  vec_push(&first, s.root);
  gx *x = schema_value(&s, &first);
  int status = x ? 0 : -1;
  s.src.rules.at[root].body = x;
  for (size_t i = 0; i < s.jobs.n && !status; i++) {
    struct job job = s.jobs.at[i];
    struct plan plan = {.never = false};
    size_t count = 0;
    gx *body = NULL;
    s.single = job.set.n == 1;
    for (size_t k = 0; k < job.set.n && !status; k++) status = expand(&s, &plan, job.set.at[k], NULL);
    if (!status && !plan.never && !plan.plain.n) body = schema_any(&s);
    else if (!status && !count_branches(&s, &plan, 0, &count)) body = branches(&s, &plan, 0);
    if (!body) status = -1;
    else if (s.src.too_large)
      status = schema_fail(&s, job.set.at[0], NULL, "the schema's grammar has more than %u parts", GRAMMAR_NODES_MAX);
    s.src.rules.at[job.rule].body = body;
    plan_free(&s, &plan);
  }
  error why = {0};
  if (!status && grammar_compile(&s.src, root, out, &why)) {
    status = s.empty ? schema_fail(&s, s.empty, s.empty_keyword, "%s", s.empty_what) : error_set(err, "%s", why.text);
    if (!s.empty && s.has_patterns && !strict && !tries) status = 1;
  }
  for (size_t i = 0; i < s.jobs.n; i++) vec_free(&s.jobs.at[i].set);
  for (size_t i = 0; i < s.cap_memo; i++) vec_free(&s.memo[i].set);
  for (size_t i = 0; i < s.made.n; i++) json_decref(s.made.at[i]);
  schema_let_go(&s, s.held);
  vec_free(&s.made);
  schema_patterns_free(&s);
  schema_fits_free(&s);
  schema_listings_free(&s);
  map_free(&s.made_of);
  map_free(&s.made_not);
  map_free(&s.made_if);
  map_free(&s.noted);
  map_free(&s.elsewhere);
  smap_free(&s.anchors);
  free(s.memo);
  vec_free(&s.jobs);
  vec_free(&first);
  json_decref(s.root);
  grammar_source_free(&s.src);
  return status;
}

int grammar_from_schema(const char *text, size_t n, bool strict, str *notes, grammar **out, error *err) {
  error first = {0};
  size_t noted = notes ? notes->n : 0;
  int status = compile_schema(text, n, strict, false, notes, out, &first);
  if (status > 0) {                      // second try: a pattern that is too large becomes a note
    if (notes && notes->at) notes->at[notes->n = noted] = 0;
    first = (error){0};
    status = compile_schema(text, n, strict, true, notes, out, &first);
  }
  if (status && err) *err = first;
  return status;
}
