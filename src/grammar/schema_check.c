// Checks whether a value is valid. Used for enum and const, whose grammar is the list of valid values, and to prove
// that two alternatives of oneOf never match together.
#include "base/stack.h"
#include "grammar/schema_impl.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The steps of looking up each name of an object, or each text of a list, in an object.
static uint64_t names_cost(const json_t *names) {
  json_t *unshared = (json_t *)(uintptr_t)names;
  uint64_t n = 0;
  for (void *it = json_object_iter(unshared); it; it = json_object_iter_next(unshared, it))
    n += 1 + strlen(json_object_iter_key(it)) / 32;
  for (size_t i = 0; i < json_array_size(names); i++) n += 1 + json_string_length(json_array_get(names, i)) / 32;
  return n;
}

bool schema_equal(schema *s, const json_t *a, const json_t *b) {
  s->work += 1 + json_string_length(a) / 256;
  if (json_is_number(a) && json_is_number(b)) {
    if (json_is_integer(a) && json_is_integer(b)) return json_integer_value(a) == json_integer_value(b);
    return json_number_value(a) == json_number_value(b);
  }
  if (json_typeof(a) != json_typeof(b)) return false;
  if (json_is_array(a)) {
    if (json_array_size(a) != json_array_size(b)) return false;
    for (size_t i = 0; i < json_array_size(a); i++)
      if (!schema_equal(s, json_array_get(a, i), json_array_get(b, i))) return false;
    return true;
  }
  if (json_is_object(a)) {
    s->work += names_cost(a);
    json_t *unshared = (json_t *)(uintptr_t)a;
    if (json_object_size(a) != json_object_size(b)) return false;
    for (void *it = json_object_iter(unshared); it; it = json_object_iter_next(unshared, it)) {
      const json_t *other = json_object_get(b, json_object_iter_key(it));
      if (!other || !schema_equal(s, json_object_iter_value(it), other)) return false;
    }
    return true;
  }
  return json_equal(a, b);
}

// ---- lists of values ------------------------------------------------------------------------------------------------

// An index of values by hash, so that a look-up needs no scan: first[hash] is the number + 1 of one value, next[number]
// that of the next with this hash.
struct listing { smap first; uint32_t *next; hash_key key; struct listing *older; };

// Equal values have equal hashes: numbers are hashed as floats, members of an object in any order.
static uint64_t hash_of(schema *s, hash_key k, const json_t *v) {
  s->work += 1 + json_string_length(v) / 64;
  uint64_t h[3] = {json_is_number(v) ? JSON_REAL : (uint64_t)json_typeof(v)};
  if (json_is_string(v)) h[1] = hash_keyed(k, json_string_value(v), json_string_length(v));
  if (json_is_number(v)) {
    double x = json_number_value(v) + 0.0;                 // 0 and -0 are equal
    memcpy(&h[1], &x, sizeof x);
  }
  for (size_t i = 0; i < json_array_size(v); i++) {
    h[2] = hash_of(s, k, json_array_get(v, i));
    h[1] = hash_keyed(k, h, sizeof h);
  }
  json_t *unshared = (json_t *)(uintptr_t)v;
  for (void *it = json_object_iter(unshared); it; it = json_object_iter_next(unshared, it)) {
    const char *name = json_object_iter_key(it);
    s->work += strlen(name) / 64;
    uint64_t member[2] = {hash_keyed(k, name, strlen(name)), hash_of(s, k, json_object_iter_value(it))};
    h[1] += hash_keyed(k, member, sizeof member);
  }
  return hash_keyed(k, h, sizeof h);
}

static struct listing *listing_of(schema *s, const json_t *values) {
  struct listing *l = map_ptr(&s->listings, values);
  if (l) return l;
  size_t n = json_array_size(values);
  l = xcalloc(1, sizeof *l);
  l->key = hash_key_new();
  l->next = xcalloc(n, sizeof *l->next);
  l->older = s->listed;
  s->listed = l;
  map_put(&s->listings, values, l);
  for (size_t i = 0; i < n; i++) {
    uint64_t *h = ARENA_ARRAY(s->src.mem, uint64_t, 1);
    void *before = NULL;
    *h = hash_of(s, l->key, json_array_get(values, i));
    smap_get(&l->first, (const char *)h, sizeof *h, &before);
    l->next[i] = (uint32_t)(uintptr_t)before;
    smap_set(&l->first, (const char *)h, sizeof *h, (void *)(uintptr_t)(i + 1));
  }
  return l;
}

static bool is_listed(schema *s, const json_t *v, const json_t *values) {
  struct listing *l = listing_of(s, values);
  uint64_t h = hash_of(s, l->key, v);
  void *at = NULL;
  smap_get(&l->first, (const char *)&h, sizeof h, &at);
  for (uint32_t i = (uint32_t)(uintptr_t)at; i; i = l->next[i - 1])
    if (schema_equal(s, v, json_array_get(values, i - 1))) return true;
  return false;
}

static bool all_differ(schema *s, const json_t *values) {
  struct listing *l = listing_of(s, values);
  for (size_t i = 0; i < json_array_size(values); i++)
    for (uint32_t k = l->next[i]; k; k = l->next[k - 1])
      if (schema_equal(s, json_array_get(values, i), json_array_get(values, k - 1))) return false;
  return true;
}

void schema_listings_free(schema *s) {
  for (struct listing *l = s->listed, *older; l; l = older) {
    older = l->older;
    smap_free(&l->first);
    free(l->next);
    free(l);
  }
  map_free(&s->listings);
}

// ---- by type --------------------------------------------------------------------------------------------------------

// Decides for decimals as they are written: 0.3 is three times 0.1.
static bool is_multiple(double x, double of) {
  double times = x / of, whole = nearbyint(times);
  return of > 0 && fabs(times - whole) <= 1e-9 * (1 + fabs(times)) && (of != floor(of) || fmod(x, of) == 0);
}

static int check_number(const schema *s, const json_t *v, const json_t *node) {
  static const char *const names[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
  double x = json_number_value(v);
  for (size_t i = 0; i < COUNT(names); i++) {
    const json_t *b = json_object_get(node, names[i]);
    if (!b || (json_is_boolean(b) && (i == 2 || i == 3))) continue;
    if (!json_is_number(b)) return schema_fail(s, node, names[i], "expected a number");
    double y = json_number_value(b);
    bool strict = (i == 0 && json_is_true(json_object_get(node, "exclusiveMinimum"))) ||
                  (i == 1 && json_is_true(json_object_get(node, "exclusiveMaximum")));
    bool ok = i == 0 ? x >= y : i == 1 ? x <= y : i == 2 ? x > y : i == 3 ? x < y : is_multiple(x, y);
    if (!ok || (strict && x == y)) return 0;
  }
  return 1;
}

static int check_string(schema *s, const json_t *v, const json_t *node) {
  const char *text = json_string_value(v);
  size_t n = json_string_length(v), letters = 0;
  const json_t *pattern = json_object_get(node, "pattern"), *format = json_object_get(node, "format");
  for (size_t i = 0; i < n; i++) letters += ((unsigned char)text[i] & 0xC0) != 0x80;
  uint32_t bound;
  int has = schema_count(s, node, "minLength", &bound);
  if (has < 0 || (has && letters < bound)) return has < 0 ? -1 : 0;
  has = schema_count(s, node, "maxLength", &bound);
  if (has < 0 || (has && letters > bound)) return has < 0 ? -1 : 0;
  int ok = 1;
  if (json_is_string(pattern))
    ok = schema_pattern_matches(s, node, "pattern", json_string_value(pattern), json_string_length(pattern), text, n);
  if (ok > 0 && json_is_string(format))
    ok = schema_pattern_matches(s, node, "format", json_string_value(format), 0, text, n);
  return ok;
}

static int check_array(schema *s, const json_t *v, const json_t *node, int depth) {
  json_t *items = json_object_get(node, "items"), *prefix = json_object_get(node, "prefixItems"), *rest = items;
  size_t n = json_array_size(v);
  if (json_is_array(items)) { prefix = items; rest = json_object_get(node, "additionalItems"); }
  uint32_t bound;
  int has = schema_count(s, node, "minItems", &bound);
  if (has < 0 || (has && n < bound)) return has < 0 ? -1 : 0;
  has = schema_count(s, node, "maxItems", &bound);
  if (has < 0 || (has && n > bound)) return has < 0 ? -1 : 0;
  for (size_t i = 0; i < n; i++) {
    json_t *own = i < json_array_size(prefix) ? json_array_get(prefix, i) : rest;
    int ok = own ? schema_check(s, json_array_get(v, i), own, false, depth + 1) : 1;
    if (ok <= 0) return ok;
  }
  json_t *wanted = json_object_get(node, "contains");
  uint32_t least = 1, most = GRAMMAR_INF, found = 0;
  if (schema_count(s, node, "minContains", &least) < 0 || schema_count(s, node, "maxContains", &most) < 0) return -1;
  for (size_t i = 0; i < n && wanted; i++) {
    int ok = schema_check(s, json_array_get(v, i), wanted, false, depth + 1);
    if (ok < 0) return -1;
    found += (uint32_t)ok;
  }
  if (wanted && (found < least || found > most)) return 0;
  return !json_is_true(json_object_get(node, "uniqueItems")) || all_differ(s, v);
}

// Checks what a present member requires.
static int check_dependents(schema *s, const json_t *v, const json_t *node, int depth) {
  static const char *const names[] = {"dependentRequired", "dependentSchemas", "dependencies"};
  for (size_t k = 0; k < COUNT(names); k++) {
    json_t *deps = json_object_get(node, names[k]);
    for (void *it = json_object_iter(deps); it; it = json_object_iter_next(deps, it)) {
      json_t *what = json_object_iter_value(it);
      if (!json_object_get(v, json_object_iter_key(it))) continue;
      if (json_is_array(what) && schema_charge(s, node, names_cost(what))) return -1;
      for (size_t i = 0; i < json_array_size(what); i++) {
        const char *name = json_string_value(json_array_get(what, i));
        if (name && !json_object_get(v, name)) return 0;
      }
      int ok = json_is_array(what) ? 1 : schema_check(s, v, what, false, depth + 1);
      if (ok <= 0) return ok;
    }
  }
  return 1;
}

static int check_object(schema *s, json_t *v, const json_t *node, int depth) {
  json_t *required = json_object_get(node, "required"), *p = json_object_get(node, "properties"),
         *pp = json_object_get(node, "patternProperties");
  json_t *ap = json_object_get(node, "additionalProperties"), *names = json_object_get(node, "propertyNames");
  for (size_t i = 0; i < json_array_size(required); i++) {
    const char *name = json_string_value(json_array_get(required, i));
    if (name && !json_object_get(v, name)) return 0;
  }
  uint32_t bound;
  int has = schema_count(s, node, "minProperties", &bound);
  if (has < 0 || (has && json_object_size(v) < bound)) return has < 0 ? -1 : 0;
  has = schema_count(s, node, "maxProperties", &bound);
  if (has < 0 || (has && json_object_size(v) > bound)) return has < 0 ? -1 : 0;
  for (void *it = json_object_iter(v); it; it = json_object_iter_next(v, it)) {
    const char *name = json_object_iter_key(it);
    json_t *value = json_object_iter_value(it), *own = json_object_get(p, name);
    bool known = own != NULL;
    int ok = own ? schema_check(s, value, own, false, depth + 1) : 1;
    for (void *pit = json_object_iter(pp); pit && ok > 0; pit = json_object_iter_next(pp, pit)) {
      const char *pattern = json_object_iter_key(pit);
      int matches = schema_pattern_matches(s, node, "patternProperties", pattern, strlen(pattern), name, strlen(name));
      if (matches < 0) return -1;
      if (!matches) continue;
      known = true;
      ok = schema_check(s, value, json_object_iter_value(pit), false, depth + 1);
    }
    if (ok > 0 && !known && ap) ok = schema_check(s, value, ap, false, depth + 1);
    if (ok > 0 && names) {
      json_t *text = json_string(name);
      ok = schema_check(s, text, names, false, depth + 1);
      json_decref(text);
    }
    if (ok <= 0) return ok;
  }
  return check_dependents(s, v, node, depth);
}

// Checks `not` and `if`.
static int check_conditions(schema *s, const json_t *v, const json_t *node, int depth) {
  json_t *no = json_object_get(node, "not"), *test = json_object_get(node, "if");
  int ok = no ? schema_check(s, v, no, false, depth + 1) : 0;
  if (ok) return ok < 0 ? -1 : 0;
  ok = test ? schema_check(s, v, test, false, depth + 1) : 0;
  json_t *then = test ? json_object_get(node, ok > 0 ? "then" : "else") : NULL;
  return ok < 0 ? -1 : then ? schema_check(s, v, then, false, depth + 1) : 1;
}

// The steps of checking a value by the keywords of one schema, without what is charged as it is done: the values and
// schemas within, patterns, types, references. Each of these loops runs even if no keyword says anything of its items.
static uint64_t check_cost(const json_t *v, const json_t *node) {
  uint64_t n = 16 + json_string_length(v) / 32 + json_array_size(v) / 8;
  if (json_is_object(v))
    n += names_cost(v) + names_cost(json_object_get(node, "required")) +
         names_cost(json_object_get(node, "dependentRequired")) +
         names_cost(json_object_get(node, "dependentSchemas")) + names_cost(json_object_get(node, "dependencies"));
  return n;
}

int schema_check(schema *s, const json_t *v, json_t *node, bool plain, int depth) {
  if (json_is_true(node)) return 1;
  if (json_is_false(node)) return 0;
  if (!json_is_object(node)) return schema_fail(s, node, NULL, "a schema is an object, true or false");
  if (depth > SCHEMA_DEPTH_MAX || stack_is_low())
    return schema_fail(s, node, NULL, "a value of enum or const is checked by too many schemas in one another");
  if (schema_charge(s, node, check_cost(v, node))) return -1;
  unsigned types;
  if (schema_types(s, node, &types)) return -1;
  if (!(types & schema_type_of(v))) return 0;
  json_t *constant = json_object_get(node, "const"), *values = json_object_get(node, "enum"), *target;
  if (constant && !schema_equal(s, v, constant)) return 0;
  if (values && !is_listed(s, v, values)) return 0;
  json_t *unshared = (json_t *)(uintptr_t)v;
  int ok = json_is_number(v)   ? check_number(s, v, node)
           : json_is_string(v) ? check_string(s, v, node)
           : json_is_array(v)  ? check_array(s, v, node, depth)
           : json_is_object(v) ? check_object(s, unshared, node, depth)
                               : 1;
  if (ok > 0) ok = check_conditions(s, v, node, depth);
  if (ok <= 0 || plain) return ok;
  if (schema_ref(s, node, &target)) return -1;
  if (target && (ok = schema_check(s, v, target, false, depth + 1)) <= 0) return ok;
  static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
  for (int k = 0; k < 3; k++) {
    const json_t *list = json_object_get(node, lists[k]);
    size_t valid = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
      ok = schema_check(s, v, json_array_get(list, i), false, depth + 1);
      if (ok < 0) return -1;
      valid += (size_t)ok;
    }
    if (list && (k == 0 ? valid < json_array_size(list) : k == 1 ? !valid : valid != 1)) return 0;
  }
  static const char *const beyond[] = {"unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"};
  for (size_t i = 0; i < COUNT(beyond); i++)
    if (json_object_get(node, beyond[i]) &&
        schema_relax(s, node, beyond[i], "is not enforced of the values of enum and const"))
      return -1;
  return 1;
}

// ---- alternatives ---------------------------------------------------------------------------------------------------

static bool only_has(const json_t *node, const char *const *names, size_t n) {
  static const char *const notes[] = {"title",      "description", "default", "examples",    "$comment",
                                      "deprecated", "$schema",     "$defs",   "definitions", "$anchor"};
  json_t *unshared = (json_t *)(uintptr_t)node;
  for (void *it = json_object_iter(unshared); it; it = json_object_iter_next(unshared, it)) {
    bool known = false;
    for (size_t i = 0; i < COUNT(notes) && !known; i++) known = !strcmp(json_object_iter_key(it), notes[i]);
    for (size_t i = 0; i < n && !known; i++) known = !strcmp(json_object_iter_key(it), names[i]);
    if (!known) return false;
  }
  return true;
}

// Follows references. *pure: the schemas on the way have no other keywords.
static json_t *resolved(schema *s, json_t *node, bool *pure) {
  static const char *const ref = "$ref";
  json_t *target;
  *pure = true;
  for (int i = 0; i < 20 && json_is_object(node); i++) {
    if (schema_ref(s, node, &target) || !target) break;
    *pure = *pure && only_has(node, &ref, 1);
    node = target;
  }
  return node;
}

static bool requires(const json_t *node, const char *name) {
  const json_t *required = json_object_get(node, "required");
  for (size_t i = 0; i < json_array_size(required); i++) {
    const char *r = json_string_value(json_array_get(required, i));
    if (r && !strcmp(r, name)) return true;
  }
  return false;
}

static bool bounds_of_keywords(const json_t *node, const char *least, const char *most, double *lo, double *hi) {
  const json_t *a = json_object_get(node, least), *b = json_object_get(node, most);
  *lo = json_is_number(a) ? json_number_value(a) : -INFINITY;
  *hi = json_is_number(b) ? json_number_value(b) : INFINITY;
  return a || b;
}

static bool consts_differ(schema *s, const json_t *a, const json_t *b) {
  const json_t *x = json_object_get(a, "const"), *y = x ? json_object_get(b, "const") : NULL;
  return y && !schema_equal(s, x, y);
}

// Returns whether only a and around apply to the value. Then the grammar of a accepts fewer values than a does: without
// a type but with keywords of objects it accepts only objects, and only the named members.
static bool speaks_alone(const json_t *a, const json_t *around, bool pure_a) {
  static const char *const of_objects[] = {
    "type",          "properties",    "required",     "additionalProperties", "patternProperties",
    "propertyNames", "minProperties", "maxProperties"};
  static const char *const of_owners[] = {"oneOf", "type", "required", "minProperties", "maxProperties", "$id"};
  return around && pure_a && only_has(a, of_objects, COUNT(of_objects)) &&
         only_has(around, of_owners, COUNT(of_owners));
}

int schema_excludes(schema *s, json_t *a, json_t *b, unsigned within, const json_t *around, int depth) {
  unsigned ta, tb;
  bool pure_a, pure_b;
  a = resolved(s, a, &pure_a);
  b = resolved(s, b, &pure_b);
  const json_t *ra = json_object_get(a, "required"), *rb = json_object_get(b, "required");
  uint64_t na = json_array_size(ra), nb = json_array_size(rb),
           nc = json_array_size(json_object_get(around, "required"));
  s->compared += 1 + (na + nb) / 8 + (na + nc) * nb / 128;
  if (s->compared > SCHEMA_COMPARED_MAX) return 0;
  if (json_is_false(a) || json_is_false(b)) return 1;
  if (!json_is_object(a) || !json_is_object(b) || depth > 8) return 0;
  if (schema_types(s, a, &ta) || schema_types(s, b, &tb)) return -1;
  json_t *constant = json_object_get(a, "const"), *values = json_object_get(a, "enum");
  if (consts_differ(s, a, b)) return schema_charge(s, a, 1) ? -1 : 1;
  if (constant || json_is_array(values)) {                 // if b accepts no value of a
    size_t n = constant ? 1 : json_array_size(values);
    for (size_t i = 0; i < n; i++) {
      int valid = schema_check(s, constant ? constant : json_array_get(values, i), b, false, 0);
      if (valid) return valid < 0 ? -1 : 0;
    }
    return 1;
  }
  if (json_object_get(b, "const") || json_object_get(b, "enum"))
    return schema_excludes(s, b, a, within, NULL, depth + 1);
  if (ta == T_ALL && within == T_ALL && json_object_get(a, "properties") && speaks_alone(a, around, pure_a))
    ta = T_OBJECT;
  ta &= within;
  if (!(ta & tb)) return 1;
  double al, ah, bl, bh;
  if (!(ta & tb & ~(unsigned)T_NUMBER) && bounds_of_keywords(a, "minimum", "maximum", &al, &ah) &&
      bounds_of_keywords(b, "minimum", "maximum", &bl, &bh) && (ah < bl || bh < al))
    return 1;
  if ((ta & tb) == T_STRING && bounds_of_keywords(a, "minLength", "maxLength", &al, &ah) &&
      bounds_of_keywords(b, "minLength", "maxLength", &bl, &bh) && (ah < bl || bh < al))
    return 1;
  if ((ta & tb) == T_ARRAY && bounds_of_keywords(a, "minItems", "maxItems", &al, &ah) &&
      bounds_of_keywords(b, "minItems", "maxItems", &bl, &bh) && (ah < bl || bh < al))
    return 1;
  if ((ta & tb) != T_OBJECT) return 0;
  json_t *pa = json_object_get(a, "properties"), *pb = json_object_get(b, "properties");
  // a member that both require, with schemas that exclude each other
  for (size_t i = 0; i < na; i++) {
    const char *name = json_string_value(json_array_get(ra, i));
    json_t *own = name ? json_object_get(pa, name) : NULL, *other = own ? json_object_get(pb, name) : NULL;
    if (!other || !requires(b, name)) continue;
    if (consts_differ(s, own, other)) return schema_charge(s, a, 1) ? -1 : 1;
    int apart = schema_excludes(s, own, other, T_ALL, NULL, depth + 1);
    if (apart) return apart;
  }
  // a member that b requires and a cannot have
  bool alone = speaks_alone(a, around, pure_a);
  for (size_t i = 0; i < nb; i++) {
    const char *name = json_string_value(json_array_get(rb, i));
    const json_t *ap = json_object_get(a, "additionalProperties");
    bool closed = json_is_false(ap) ||
                  (alone && !ap && json_object_size(pa) && name && !requires(a, name) && !requires(around, name));
    if (name && closed && !json_object_get(pa, name) && !json_object_get(a, "patternProperties")) return 1;
  }
  // a member that a requires and b forbids
  for (size_t i = 0; i < na; i++) {
    const char *name = json_string_value(json_array_get(ra, i));
    if (name && json_is_false(json_object_get(b, "additionalProperties")) && !json_object_get(pb, name) &&
        !json_object_get(b, "patternProperties"))
      return 1;
  }
  return 0;
}
