// Negations. A grammar can only say what may be written, so `not` and `if` become schemas of the remaining values: "not
// an integer from 3 on" is another type, or a number below 3. A condition is "if and then" or "not if, and else".
//
// The resulting schemas may allow fewer values than are valid, never more. Their leaves are atoms: `not` of an enum, a
// const or a pattern alone. Those are subtracted from the values that the rest of a schema allows.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/stack.h"
#include "base/plain.h"
#include "grammar/schema_impl.h"

bool schema_is_atom(const json_t *node) {
  return json_object_size(node) == 1 &&
         (json_object_get(node, "const") || json_is_array(json_object_get(node, "enum")) ||
          json_is_string(json_object_get(node, "pattern")));
}

// ---- negations ------------------------------------------------------------------------------------------------------

static const char *const type_names[] = {"null", "boolean", "string", "array", "object", "number"};
static const unsigned type_bits[] = {T_NULL, T_BOOL, T_STRING, T_ARRAY, T_OBJECT, T_NUMBER};

// Any type but these; for "integer" the result has no numbers at all.
static json_t *other_types(unsigned types) {
  json_t *list = json_array();
  for (size_t i = 0; i < COUNT(type_names); i++)
    if (!(types & type_bits[i])) json_array_append_new(list, json_string(type_names[i]));
  return list;
}

int schema_made(schema *s, const json_t *at, size_t n) {
  enum { STEPS = 12 };                       // an object takes about 0.6 us
  return schema_charge(s, at, STEPS * n) || schema_hold(s, at, SCHEMA_MADE * n) ? -1 : 0;
}

// Appends a schema that was made, of n objects, and takes it over. names: bytes of the names in it. False: no room.
static bool add_schema(schema *s, const json_t *at, json_t *out, json_t *made, size_t n, size_t names) {
  if (schema_made(s, at, n + names / SCHEMA_MADE)) { json_decref(made); return false; }
  json_array_append_new(out, made);
  return true;
}

// Appends all schemas of a list and takes the list over.
static bool add_list(schema *s, const json_t *at, json_t *out, json_t *list) {
  enum { PLACE = 2 * sizeof(json_t *) };     // arrays grow by doubling
  size_t n = json_array_size(list);
  bool fits = !schema_charge(s, at, n / 4) && !schema_hold(s, at, n * PLACE);
  if (fits) json_array_extend(out, list);
  json_decref(list);
  return fits;
}

static bool add_types(schema *s, const json_t *at, json_t *out, unsigned but) {
  json_t *list = other_types(but);
  bool fits = !json_array_size(list) || add_schema(s, at, out, json_pack("{sO}", "type", list), 2, 0);
  json_decref(list);
  return fits;
}

// Keywords that count or compare, the keyword of the negation, and the step by which the bound changes.
static const struct opposite { const char *name, *type, *opposite; int step; } opposites[] = {
  {"minimum", "number", "exclusiveMaximum", 0}, {"maximum", "number", "exclusiveMinimum", 0},
  {"exclusiveMinimum", "number", "maximum", 0}, {"exclusiveMaximum", "number", "minimum", 0},
  {"minLength", "string", "maxLength", -1},     {"maxLength", "string", "minLength", 1},
  {"minItems", "array", "maxItems", -1},        {"maxItems", "array", "minItems", 1},
  {"minProperties", "object", "maxProperties", -1}, {"maxProperties", "object", "minProperties", 1},
};

static bool add_opposite(schema *s, const json_t *at, json_t *out, const char *name, const json_t *value) {
  for (size_t i = 0; i < COUNT(opposites); i++) {
    const struct opposite *o = &opposites[i];
    if (strcmp(o->name, name) || !json_is_number(value)) continue;
    double x = json_number_value(value) + o->step;
    if (o->step && x < 0) return true;               // always true, so its negation never is
    json_t *bound = json_is_integer(value) ? json_integer(json_integer_value(value) + o->step) : json_real(x);
    return add_schema(s, at, out, json_pack("{ss so}", "type", o->type, o->opposite, bound), 1, 0);
  }
  return false;
}

static json_t *negate(schema *s, json_t *node, int depth);

// Adds schemas of objects that lack one of these members.
static bool add_lacking(schema *s, const json_t *at, json_t *out, const json_t *required) {
  for (size_t i = 0; i < json_array_size(required); i++) {
    const char *name = json_string_value(json_array_get(required, i));
    json_t *made = name ? json_pack("{ss s{sb}}", "type", "object", "properties", name, 0) : NULL;
    if (made && !add_schema(s, at, out, made, 2, strlen(name))) return false;
  }
  return true;
}

// Adds schemas of objects in which one of these members violates its schema.
static bool add_otherwise(schema *s, const json_t *at, json_t *out, json_t *properties, int depth) {
  bool any = !json_object_size(properties);
  for (void *it = json_object_iter(properties); it; it = json_object_iter_next(properties, it)) {
    const char *name = json_object_iter_key(it);
    json_t *other = negate(s, json_object_iter_value(it), depth + 1);
    if (!other) continue;
    any = true;
    json_t *made = json_array_size(other) ? json_pack("{ss s[s] s{s{sO}}}", "type", "object", "required", name,
                                                      "properties", name, "anyOf", other)
                                          : NULL;
    json_decref(other);
    if (made && !add_schema(s, at, out, made, 4, 2 * strlen(name))) return false;
  }
  return any;
}

// Adds schemas of values that violate one keyword. False: not expressible.
static bool add_negated(schema *s, json_t *out, json_t *node, const char *name, json_t *value, int depth) {
  json_t *target = NULL, *list;
  if (!strcmp(name, "type")) {
    unsigned types;
    return !schema_types(s, node, &types) && add_types(s, node, out, types);
  }
  if (!strcmp(name, "const") || (!strcmp(name, "enum") && json_is_array(value))) {
    return add_schema(s, node, out, json_pack("{s{sO}}", "not", name, value), 2, 0);
  }
  if (!strcmp(name, "pattern") && json_is_string(value)) {
    return add_schema(s, node, out, json_pack("{ss s{sO}}", "type", "string", "not", name, value), 2, 0);
  }
  if (!strcmp(name, "required")) return add_lacking(s, node, out, value);
  if (!strcmp(name, "properties") && json_is_object(value)) return add_otherwise(s, node, out, value, depth);
  if (!strcmp(name, "not")) { json_array_append(out, value); return true; }
  if (!strcmp(name, "$ref")) {
    if (schema_ref(s, node, &target) || !target || !(list = negate(s, target, depth + 1))) return false;
    return add_list(s, node, out, list);
  }
  if (!strcmp(name, "allOf")) {
    bool any = false;
    for (size_t i = 0; i < json_array_size(value); i++) {
      if (!(list = negate(s, json_array_get(value, i), depth + 1))) continue;
      if (!add_list(s, node, out, list)) return false;
      any = true;
    }
    return any;
  }
  if (!strcmp(name, "anyOf") || !strcmp(name, "oneOf")) {        // none of them
    json_t *all = json_array();
    bool known = true, never = false;
    for (size_t i = 0; i < json_array_size(value) && known; i++) {
      list = negate(s, json_array_get(value, i), depth + 1);
      known = list != NULL;
      never = never || (list && !json_array_size(list));
      known = known && add_schema(s, node, all, json_pack("{so}", "anyOf", list), 2, 0);
    }
    if (known && !never) known = add_schema(s, node, out, json_pack("{sO}", "allOf", all), 1, 0);
    json_decref(all);
    return known;
  }
  return add_opposite(s, node, out, name, value);
}

// NULL: not expressible. Empty: no value is left.
static json_t *negate(schema *s, json_t *node, int depth) {
  if (schema_made(s, node, 1)) return NULL;
  if (json_is_true(node)) return json_array();
  if (json_is_false(node)) return json_pack("[b]", 1);
  if (!json_is_object(node) || depth > 20 || stack_is_low() || schema_charge(s, node, 16)) return NULL;
  json_t *out = json_array();
  bool any = false, speaks = false;
  for (void *it = json_object_iter(node); it; it = json_object_iter_next(node, it)) {
    const char *name = json_object_iter_key(it);
    if (!schema_says(name)) continue;
    speaks = true;
    if (add_negated(s, out, node, name, json_object_iter_value(it), depth)) any = true;
  }
  if (any || !speaks) return out;
  json_decref(out);
  return NULL;
}

static json_t *keep_made(schema *s, map *where, const json_t *owner, json_t *made) {
  map_put(where, owner, made);
  if (made) vec_push(&s->made, made);
  return made;
}

json_t *schema_negation(schema *s, json_t *owner) {
  void *known = NULL;
  if (map_get(&s->made_not, (uintptr_t)owner, &known)) return known;
  return keep_made(s, &s->made_not, owner, negate(s, json_object_get(owner, "not"), 0));
}

json_t *schema_condition(schema *s, json_t *owner) {
  void *known = NULL;
  if (map_get(&s->made_if, (uintptr_t)owner, &known)) return known;
  json_t *test = json_object_get(owner, "if"), *then = json_object_get(owner, "then"),
         *otherwise = json_object_get(owner, "else"), *made = NULL;
  if (!then && !otherwise) return keep_made(s, &s->made_if, owner, json_pack("[b]", 1));
  json_t *no = negate(s, test, 0);
  if (no && schema_made(s, owner, 2 * (1 + json_array_size(no)))) {
    json_decref(no);
    return keep_made(s, &s->made_if, owner, NULL);
  }
  if (no) {
    made = json_array();
    json_array_append_new(made, then ? json_pack("{s[OO]}", "allOf", test, then) : json_incref(test));
    for (size_t i = 0; i < json_array_size(no); i++) {
      json_t *alternative = json_array_get(no, i);
      json_array_append_new(
        made, otherwise ? json_pack("{s[OO]}", "allOf", alternative, otherwise) : json_incref(alternative));
    }
    json_decref(no);
  }
  return keep_made(s, &s->made_if, owner, made);
}

// ---- atoms ----------------------------------------------------------------------------------------------------------

static json_t *atom_of(json_t *node) {
  json_t *no = json_object_get(node, "not");
  return schema_is_atom(no) ? no : NULL;
}

bool schema_has_atoms(const nodes *set, unsigned *types) {
  bool any = false;
  for (size_t i = 0; i < set->n; i++) {
    const json_t *atom = atom_of(set->at[i]);
    any = any || atom;
    if (json_object_get(atom, "pattern")) *types &= T_STRING;     // values of other types match every pattern
  }
  return any;
}

// The values that an atom excludes, as an array for the caller to free.
static json_t *excluded(const json_t *atom) {
  json_t *constant = json_object_get(atom, "const"), *list = json_object_get(atom, "enum");
  return constant ? json_pack("[O]", constant) : list ? json_incref(list) : json_array();
}

bool schema_excluded(schema *s, const nodes *set, const json_t *value) {
  bool found = false;
  for (size_t i = 0; i < set->n && !found; i++) {
    json_t *list = excluded(atom_of(set->at[i]));
    for (size_t k = 0; k < json_array_size(list) && !found; k++)
      found = schema_equal(s, value, json_array_get(list, k));
    json_decref(list);
  }
  return found;
}

int schema_minus(schema *s, const nodes *set, unsigned type, gx **x) {
  grammar_source *g = &s->src;
  for (size_t i = 0; i < set->n; i++) {
    json_t *atom = atom_of(set->at[i]), *list = excluded(atom), *pattern = json_object_get(atom, "pattern");
    VEC(gx *) texts = {0};
    bool in_vain = false;
    if (schema_charge(s, set->at[i], 1 + json_array_size(list) / 4)) { json_decref(list); return -1; }
    for (size_t k = 0; k < json_array_size(list); k++) {
      const json_t *value = json_array_get(list, k);
      if (!(schema_type_of(value) & type)) continue;
      if (type == T_STRING) {
        str text = {0};
        schema_quoted(&text, json_string_value(value), json_string_length(value));
        vec_push(&texts, gx_bytes(g, text.at + 1, text.n - 2));
        str_free(&text);
      } else if (type == T_INTEGER) {
        char text[32];
        plain_snprintf(text, sizeof text, "%.0f", json_number_value(value));
        if (json_is_integer(value)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        vec_push(&texts, gx_text(g, text));
      } else in_vain = true;
    }
    json_decref(list);
    if (texts.n) *x = gx_minus(g, *x, gx_alt(g, texts.at, texts.n));
    vec_free(&texts);
    if (in_vain && schema_relax(s, set->at[i], "not", "is enforced only of strings, integers, true, false and null"))
      return -1;
    if (!pattern || type != T_STRING) continue;
    gx *p = NULL;
    if (schema_pattern(s, atom, "pattern", json_string_value(pattern), json_string_length(pattern), &p)) return -1;
    if (p) *x = gx_minus(g, *x, p);
  }
  return 0;
}
