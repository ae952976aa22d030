// Objects and arrays: members in the order of the schema, each with the schemas that apply to it, and items by
// position.
//
// Members that the schema does not name come last, with any other name. With patternProperties the schemas of such a
// member depend on the patterns that its name matches, so each combination of patterns is an alternative.
#include "grammar/schema_impl.h"
#include <stdlib.h>
#include <string.h>

#define PATTERNS_MAX 5
#define MEMBERS_MAX 2000

// ---- objects --------------------------------------------------------------------------------------------------------

struct member { const char *name; bool required; };
struct pattern { const char *text; const json_t *owner; json_t *value; };
struct object {
  const nodes *set;
  VEC(struct member) members;
  VEC(struct pattern) patterns;
  bool named, spoken, no_others;   // a schema names members; restricts others; allows no others
  bool evaluated;                  // every member must be covered by a schema (unevaluatedProperties)
  uint32_t min, max, n_required;
};

// Finds or adds a member. NULL: an error.
static struct member *member_of(schema *s, struct object *o, const json_t *node, const char *keyword,
                                const char *name) {
  if (schema_charge(s, node, 1 + o->members.n * (1 + strlen(name) / 64) / 8)) return NULL;
  for (size_t i = 0; i < o->members.n; i++)
    if (!strcmp(o->members.at[i].name, name)) return &o->members.at[i];
  if (o->members.n == MEMBERS_MAX) {
    schema_fail(s, node, keyword, "more than %d members", MEMBERS_MAX);
    return NULL;
  }
  vec_push(&o->members, ((struct member){name, false}));
  return &o->members.at[o->members.n - 1];
}

static int gather(schema *s, struct object *o) {
  for (size_t i = 0; i < o->set->n; i++) {
    json_t *node = o->set->at[i], *p = json_object_get(node, "properties"),
           *pp = json_object_get(node, "patternProperties");
    json_t *ap = json_object_get(node, "additionalProperties");
    uint32_t n;
    if (p && !json_is_object(p)) return schema_fail(s, node, "properties", "expected an object of schemas");
    if (pp && !json_is_object(pp)) return schema_fail(s, node, "patternProperties", "expected an object of schemas");
    for (void *it = json_object_iter(p); it; it = json_object_iter_next(p, it))
      if (!member_of(s, o, node, "properties", json_object_iter_key(it))) return -1;
    for (void *it = json_object_iter(pp); it; it = json_object_iter_next(pp, it))
      vec_push(&o->patterns, ((struct pattern){json_object_iter_key(it), node, json_object_iter_value(it)}));
    json_t *unevaluated = json_object_get(node, "unevaluatedProperties");
    if (unevaluated && !json_is_true(unevaluated)) {
      const char *why = !json_is_false(unevaluated) || i || !s->single
                          ? "is not enforced, unless it is false and in a schema that no other one includes"
                          : NULL;
      for (size_t k = 0; k < o->set->n && !why; k++) {
        if (json_object_get(o->set->at[k], "not") || json_object_get(o->set->at[k], "if"))
          why = "is not enforced beside not and if";
        if (json_object_get(o->set->at[k], "dependencies"))
          why = "is not enforced beside dependencies, which is a keyword of older drafts: use dependentSchemas";
      }
      if (why && schema_relax(s, node, "unevaluatedProperties", "%s", why)) return -1;
      if (!why) o->named = o->evaluated = true;
    }
    if (json_object_size(p)) o->named = true;
    if (json_is_false(ap) && !json_object_size(pp)) o->no_others = true;
    else if (ap || pp) o->spoken = true;
    int has = schema_count(s, node, "minProperties", &n);
    if (has < 0) return -1;
    if (has && n > o->min) o->min = n;
    has = schema_count(s, node, "maxProperties", &n);
    if (has < 0) return -1;
    if (has && n < o->max) o->max = n;
  }
  for (size_t i = 0; i < o->set->n; i++) {
    json_t *node = o->set->at[i], *required = json_object_get(node, "required");
    if (required && json_is_boolean(required)) {
      if (schema_relax(s, node, "required", "is not enforced: expected an array of names (draft 3 had a flag)"))
        return -1;
      continue;
    }
    if (required && !json_is_array(required)) return schema_fail(s, node, "required", "expected an array of names");
    for (size_t k = 0; k < json_array_size(required); k++) {
      const char *name = json_string_value(json_array_get(required, k));
      if (!name || strlen(name) != json_string_length(json_array_get(required, k)))
        return schema_fail(s, node, "required", "item %zu is not a name", k);
      struct member *m = member_of(s, o, node, "required", name);
      if (!m) return -1;
      m->required = true;
    }
  }
  for (size_t i = 0; i < o->members.n; i++) o->n_required += o->members.at[i].required;
  if (o->patterns.n > PATTERNS_MAX) {
    if (schema_relax(s, o->patterns.at[0].owner, "patternProperties", "only the first %d patterns are enforced",
                     PATTERNS_MAX))
      return -1;
    o->patterns.n = PATTERNS_MAX;
  }
  return 0;
}

// The schemas of a member's value. matched: bits of the patterns that its name matches. 0: the member is not allowed.
static int value_schemas(schema *s, const struct object *o, const char *name, unsigned matched, nodes *out) {
  bool spoken = false;
  if (schema_charge(s, o->set->at[0], 8 + o->set->n * (1 + o->patterns.n + (name ? strlen(name) / 32 : 0))))
    return -1;
  for (size_t i = 0; i < o->set->n; i++) {
    json_t *node = o->set->at[i], *own = name ? json_object_get(json_object_get(node, "properties"), name) : NULL;
    bool known = own != NULL;
    if (own) vec_push(out, own);
    for (size_t k = 0; k < o->patterns.n; k++) {
      if (o->patterns.at[k].owner != node || !(matched >> k & 1)) continue;
      vec_push(out, o->patterns.at[k].value);
      known = true;
    }
    json_t *ap = json_object_get(node, "additionalProperties");
    if (!known && ap) vec_push(out, ap);
    spoken = spoken || known || ap;
  }
  if (o->evaluated && !spoken) return 0;
  for (size_t i = 0; i < out->n; i++) {
    if (json_is_false(out->at[i])) return 0;
    if (!json_is_object(out->at[i]) && !json_is_true(out->at[i]))
      return schema_fail(s, out->at[i], NULL, "a schema is an object, true or false");
  }
  return 1;
}

static gx *member(schema *s, gx *name, const nodes *schemas) {
  gx *value = schema_value(s, schemas);
  return value ? GX_SEQ_OF(&s->src, name, gx_text(&s->src, ":"), s->space, value) : NULL;
}

// A required member that one schema names and `additionalProperties: false` of another forbids. Strictly no value is
// valid; zod writes intersections in this form and means all members together. Returns like value_schemas().
static int closed_by_others(schema *s, const struct object *o, const char *name, unsigned matched, nodes *out) {
  struct object named = *o;
  nodes set = {0};
  for (size_t i = 0; i < o->set->n; i++)
    if (json_object_get(json_object_get(o->set->at[i], "properties"), name)) vec_push(&set, o->set->at[i]);
  named.set = &set;
  out->n = 0;
  int status = set.n && set.n < o->set->n ? value_schemas(s, &named, name, matched, out) : 0;
  if (status > 0)
    schema_note(s, o->set->at[0], "additionalProperties",
                "of schemas that apply together, each allows the required members of the others");
  vec_free(&set);
  return status;
}

// *out NULL: an optional member that is not allowed.
static int named_member(schema *s, const struct object *o, const struct member *m, gx **out) {
  nodes schemas = {0};
  unsigned matched = 0;
  int status = 1;
  *out = NULL;
  for (size_t k = 0; k < o->patterns.n && status >= 0; k++) {
    const struct pattern *p = &o->patterns.at[k];
    status =
      schema_pattern_matches(s, p->owner, "patternProperties", p->text, strlen(p->text), m->name, strlen(m->name));
    if (status > 0) matched |= 1u << k;
  }
  if (schema_charge(s, o->set->at[0], o->set->n * (1 + strlen(m->name) / 32))) return -1;
  for (size_t i = 0; i < o->set->n && status >= 0; i++) {
    json_t *names = json_object_get(o->set->at[i], "propertyNames"), *name = names ? json_string(m->name) : NULL;
    int valid = names ? schema_check(s, name, names, false, 0) : 1;
    json_decref(name);
    if (valid < 0) status = -1;
    if (valid) continue;
    if (m->required)
      *out = schema_empty(s, o->set->at[i], "propertyNames", "it does not allow a member that is required");
    vec_free(&schemas);
    return 0;
  }
  if (status >= 0) status = value_schemas(s, o, m->name, matched, &schemas);
  if (status == 0 && m->required && !s->strict) status = closed_by_others(s, o, m->name, matched, &schemas);
  if (status == 0 && m->required)
    *out = schema_empty(s, o->set->at[0], "required", "a member is required that is not allowed");
  if (status > 0) {
    str text = {0};
    schema_quoted(&text, m->name, strlen(m->name));
    *out = member(s, gx_bytes(&s->src, text.at, text.n), &schemas);
    str_free(&text);
    if (!*out) status = -1;
  }
  vec_free(&schemas);
  return status < 0 ? -1 : 0;
}

// Names of members that the schema does not name. NULL: an error.
static gx *other_names(schema *s, const struct object *o, unsigned matched) {
  grammar_source *g = &s->src;
  gx *name = schema_letters(s);
  uint32_t min = 0, max = GRAMMAR_INF;
  for (size_t i = 0; i < o->set->n; i++) {
    json_t *names = json_object_get(o->set->at[i], "propertyNames"), *target = NULL;
    for (int depth = 0; json_is_object(names) && json_object_get(names, "$ref"); depth++) {
      if (depth > SCHEMA_DEPTH_MAX) {
        schema_fail(s, names, "$ref", "these references lead to one another without end");
        return NULL;
      }
      if (json_object_size(names) != 1 &&
          schema_relax(s, names, "$ref", "in propertyNames, what stands beside it is not enforced"))
        return NULL;
      if (schema_ref(s, names, &target)) return NULL;
      names = target;
    }
    if (!names || json_is_true(names)) continue;
    if (json_is_false(names)) return gx_never(g);
    static const char *const supported[] = {"type",  "minLength",   "maxLength", "pattern", "format",
                                            "title", "description", "$comment",  "enum",    "const"};
    for (void *it = json_object_iter(names); it; it = json_object_iter_next(names, it)) {
      size_t k = 0;
      while (k < COUNT(supported) && strcmp(supported[k], json_object_iter_key(it))) k++;
      if (k == COUNT(supported) &&
          schema_relax(s, names, json_object_iter_key(it), "is not enforced in propertyNames"))
        return NULL;
    }
    unsigned types;
    gx *content;
    nodes own = {0};
    if (!json_is_object(names)) {
      schema_fail(s, o->set->at[i], "propertyNames", "a schema is an object, true or false");
      return NULL;
    }
    if (schema_types(s, names, &types)) return NULL;
    if (!(types & T_STRING)) return gx_never(g);
    vec_push(&own, names);
    uint32_t least, most;
    int status = schema_content(s, &own, &content, &least, &most);
    vec_free(&own);
    if (status) return NULL;
    if (least > min) min = least;
    if (most < max) max = most;
    if (content) name = gx_and(g, name, content);
    static const char *const lists[] = {"enum", "const"};
    for (size_t which = 0; which < COUNT(lists); which++) {
      const json_t *values = json_object_get(names, lists[which]);
      VEC(gx *) list = {0};
      str text = {0};
      for (size_t k = 0; values && k < (which ? 1 : json_array_size(values)); k++) {
        const json_t *v = which ? values : json_array_get(values, k);
        if (!json_is_string(v)) continue;
        text.n = 0;
        schema_quoted(&text, json_string_value(v), json_string_length(v));
        vec_push(&list, gx_bytes(g, text.at + 1, text.n - 2));
      }
      if (values) name = gx_and(g, name, gx_alt(g, list.at, list.n));
      vec_free(&list);
      str_free(&text);
    }
  }
  for (size_t k = 0; k < o->patterns.n; k++) {
    gx *p;
    if (schema_pattern(s, o->patterns.at[k].owner, "patternProperties", o->patterns.at[k].text,
                       strlen(o->patterns.at[k].text), &p))
      return NULL;
    if (!p) p = schema_letters(s);               // may match any name
    name = matched >> k & 1 ? gx_and(g, name, p) : gx_minus(g, name, p);
  }
  if (o->members.n) {
    VEC(gx *) list = {0};
    str text = {0};
    for (size_t i = 0; i < o->members.n; i++) {
      text.n = 0;
      schema_quoted(&text, o->members.at[i].name, strlen(o->members.at[i].name));
      vec_push(&list, gx_bytes(g, text.at + 1, text.n - 2));
    }
    name = gx_minus(g, name, gx_alt(g, list.at, list.n));
    vec_free(&list);
    str_free(&text);
  }
  return GX_SEQ_OF(g, s->quote, schema_of_length(s, name, min, max), s->quote);
}

// Members that the schema does not name. *out NULL: not allowed.
static int other_members(schema *s, const struct object *o, gx **out) {
  *out = NULL;
  if (o->no_others || (o->named && !o->spoken)) return 0;
  VEC(gx *) list = {0};
  int status = 0;
  for (unsigned matched = 0; matched < 1u << o->patterns.n && !status; matched++) {
    nodes schemas = {0};
    int allowed = value_schemas(s, o, NULL, matched, &schemas);
    // with patterns, members that match none are allowed only if the schema says so
    if (allowed > 0 && !matched && o->patterns.n) {
      bool said = false;
      for (size_t i = 0; i < o->set->n; i++) said = said || json_object_get(o->set->at[i], "additionalProperties");
      if (!said) allowed = 0;
    }
    if (allowed < 0) status = -1;
    if (allowed > 0) {
      gx *name = other_names(s, o, matched), *x = name ? member(s, name, &schemas) : NULL;
      if (!x) status = -1;
      else vec_push(&list, x);
    }
    vec_free(&schemas);
  }
  if (!status && list.n) *out = gx_alt(&s->src, list.at, list.n);
  vec_free(&list);
  return status;
}

gx *schema_object(schema *s, const nodes *set) {
  struct object o = {.set = set, .max = GRAMMAR_INF};
  grammar_source *g = &s->src;
  gx *out = NULL, *rest = NULL;
  VEC(gx *) items = {0};
  VEC(bool) required = {0};
  int status = gather(s, &o);
  for (size_t i = 0; i < o.members.n && !status; i++) {
    gx *x;
    status = named_member(s, &o, &o.members.at[i], &x);
    if (status || !x) continue;
    vec_push(&items, x);
    vec_push(&required, o.members.at[i].required);
  }
  if (!status) status = other_members(s, &o, &rest);
  if (!status && rest && o.min > o.n_required && o.min > 1)   // a duplicate name counts as one member
    status = schema_relax(s, set->at[0], "minProperties",
                          "is enforced up to 1 and up to the number of required members, where others are allowed");
  if (!status && rest && o.min > o.n_required && o.min > 1) o.min = o.n_required ? o.n_required : 1;
  if (!status && (o.max < o.n_required || (!rest && o.min > items.n)))
    out = schema_empty(s, set->at[0], NULL,
                       "no object has enough members and not too many (required, minProperties, maxProperties)");
  else if (!status)
    out =
      GX_SEQ_OF(g, gx_text(g, "{"), s->space, gx_list(g, items.at, required.at, items.n, s->comma, rest, o.min, o.max),
                s->space, gx_text(g, "}"));
  vec_free(&items);
  vec_free(&required);
  vec_free(&o.members);
  vec_free(&o.patterns);
  return out;
}

// ---- arrays ---------------------------------------------------------------------------------------------------------

// The schemas of item i. 0: not allowed.
static int item_schemas(schema *s, const nodes *set, size_t i, nodes *out) {
  for (size_t k = 0; k < set->n; k++) {
    json_t *items = json_object_get(set->at[k], "items"), *prefix = json_object_get(set->at[k], "prefixItems"),
           *rest = items;
    // before draft 2020-12
    if (json_is_array(items)) { prefix = items; rest = json_object_get(set->at[k], "additionalItems"); }
    json_t *own = i < json_array_size(prefix) ? json_array_get(prefix, i) : rest;
    if (own) vec_push(out, own);
  }
  for (size_t k = 0; k < out->n; k++) {
    if (json_is_false(out->at[k])) return 0;
    if (!json_is_object(out->at[k]) && !json_is_true(out->at[k]))
      return schema_fail(s, out->at[k], NULL, "a schema is an object, true or false");
  }
  return 1;
}

// The distinct values of items, if the schema lists them, as an array for the caller to free; if there are more than
// `most`, some of them. NULL: not listed, or an error.
static json_t *item_values(schema *s, const nodes *schemas, size_t most) {
  json_t *node = schemas->n ? schemas->at[0] : NULL, *target = NULL, *from = NULL, *values = json_array();
  for (int hops = 0; node && hops < SCHEMA_DEPTH_MAX && !schema_ref(s, node, &target) && target; hops++) node = target;
  json_t *type = json_object_get(node, "type"), *constant = json_object_get(node, "const"),
         *list = json_object_get(node, "enum");
  if (constant) from = json_pack("[O]", constant);
  else if (list) from = json_incref(list);
  else if (json_is_string(type) && !strcmp(json_string_value(type), "boolean")) from = json_pack("[b, b]", 0, 1);
  int ok = from ? 1 : -1;
  for (size_t i = 0; i < json_array_size(from) && json_array_size(values) <= most && ok >= 0; i++) {
    json_t *value = json_array_get(from, i);
    ok = 1;
    for (size_t k = 0; k < schemas->n && ok > 0; k++) ok = schema_check(s, value, schemas->at[k], false, 0);
    for (size_t k = 0; k < json_array_size(values) && ok > 0; k++)
      ok = !schema_equal(s, value, json_array_get(values, k));
    if (ok > 0) json_array_append(values, value);
  }
  json_decref(from);
  if (ok < 0) { json_decref(values); return NULL; }
  return values;
}

// uniqueItems: if items have few possible values, each set of values already used is a rule that says which items may
// follow. *out NULL: not enforced.
static int distinct(schema *s, const nodes *set, size_t prefix, uint32_t min, uint32_t max, gx **out) {
  enum { MOST = 8 };
  static const char why[] =
    "is not enforced, unless items has an enum of at most 8 values: a grammar cannot compare items";
  grammar_source *g = &s->src;
  nodes schemas = {0};
  *out = NULL;
  json_t *values = NULL, *owner = set->at[0];
  for (size_t i = 0; i < set->n; i++) if (json_is_true(json_object_get(set->at[i], "uniqueItems"))) owner = set->at[i];
  int status = prefix ? 0 : item_schemas(s, set, 0, &schemas);
  // the value's rule is made for its errors only
  if (status > 0 && schema_value(s, &schemas)) values = item_values(s, &schemas, MOST);
  vec_free(&schemas);
  size_t n = json_array_size(values), sets = (size_t)1 << n;
  if (!n || n > MOST) {
    json_decref(values);
    return s->err->text[0] ? -1 : schema_relax(s, owner, "uniqueItems", why);
  }
  gx *literal[MOST];
  int32_t rule[1 << MOST];
  for (size_t i = 0; i < n; i++) literal[i] = schema_literal(s, json_array_get(values, i));
  json_decref(values);
  for (size_t used = 0; used < sets; used++)
    if ((rule[used] = grammar_rule_new(g, "items", 5, 0)) < 0) {
      schema_fail(s, owner, NULL, "the schema needs more than %u rules", GRAMMAR_RULES_MAX);
      return -1;
    }
  for (size_t used = 0; used < sets; used++) {
    gx *ways[MOST + 1];
    size_t n_ways = 0, count = (size_t)__builtin_popcountll(used);
    for (size_t i = 0; i < n && count < max; i++) {
      if (used >> i & 1) continue;
      gx *next = gx_rule(g, rule[used | (size_t)1 << i]);
      ways[n_ways++] = count ? GX_SEQ_OF(g, s->comma, literal[i], next) : GX_SEQ_OF(g, literal[i], next);
    }
    if (count >= min) ways[n_ways++] = gx_empty(g);
    g->rules.at[rule[used]].body = gx_alt(g, ways, n_ways);
  }
  *out = GX_SEQ_OF(g, gx_text(g, "["), s->space, gx_rule(g, rule[0]), s->space, gx_text(g, "]"));
  return 0;
}

gx *schema_array(schema *s, const nodes *set) {
  grammar_source *g = &s->src;
  uint32_t min = 0, max = GRAMMAR_INF;
  size_t prefix = 0;
  for (size_t i = 0; i < set->n; i++) {
    json_t *node = set->at[i], *p = json_object_get(node, "prefixItems"), *items = json_object_get(node, "items"),
           *unique = json_object_get(node, "uniqueItems");
    uint32_t n;
    if (p && !json_is_array(p)) { schema_fail(s, node, "prefixItems", "expected an array of schemas"); return NULL; }
    if (json_is_array(items)) p = items;
    if (json_array_size(p) > prefix) prefix = json_array_size(p);
    int has = schema_count(s, node, "minItems", &n);
    if (has > 0 && n > min) min = n;
    if (has >= 0) has = schema_count(s, node, "maxItems", &n);
    if (has > 0 && n < max) max = n;
    if (has < 0) return NULL;
    if (unique && !json_is_boolean(unique)) {
      schema_fail(s, node, "uniqueItems", "expected true or false");
      return NULL;
    }
  }
  for (size_t i = 0; i < set->n; i++)
    if (max > 1 && json_is_true(json_object_get(set->at[i], "uniqueItems"))) {
      gx *x;
      if (distinct(s, set, prefix, min, max, &x)) return NULL;
      if (x) return x;
      break;
    }
  if (prefix > 150) { schema_fail(s, set->at[0], "prefixItems", "more than 150 are not supported"); return NULL; }
  // Items up to the first one that is not allowed.
  VEC(gx *) items = {0};
  gx *rest = NULL, *out = NULL;
  int allowed = 1;
  for (size_t i = 0; i <= prefix && allowed > 0; i++) {
    nodes schemas = {0};
    allowed = schema_charge(s, set->at[0], 8 + 2 * (uint64_t)set->n) ? -1 : item_schemas(s, set, i, &schemas);
    gx *x = allowed > 0 ? schema_value(s, &schemas) : NULL;
    vec_free(&schemas);
    if (allowed > 0 && !x) allowed = -1;
    if (allowed <= 0) continue;
    if (i < prefix) vec_push(&items, x);
    else rest = x;
  }
  if (!allowed && items.n < max) max = (uint32_t)items.n;
  if (allowed >= 0 && min > max)
    out = schema_empty(s, set->at[0], NULL, "no array has enough items and not too many (minItems, maxItems)");
  else if (allowed >= 0) {
    uint32_t n = (uint32_t)items.n < max ? (uint32_t)items.n : max;
    gx *tail = gx_empty(g);
    if (rest && max > n) {         // after the first n: each with a comma, except the very first item
      uint32_t least = min > n ? min - n : 0, most = max == GRAMMAR_INF ? max : max - n;
      gx *more = GX_SEQ_OF(g, s->comma, rest);
      if (n) tail = gx_repeat(g, more, least, most);
      else {
        tail = GX_SEQ_OF(g, rest, gx_repeat(g, more, least ? least - 1 : 0, most == GRAMMAR_INF ? most : most - 1));
        if (!least) tail = gx_repeat(g, tail, 0, 1);
      }
    }
    for (uint32_t i = n; i-- > 0;) {
      tail = i ? GX_SEQ_OF(g, s->comma, items.at[i], tail) : GX_SEQ_OF(g, items.at[i], tail);
      if (i >= min) tail = gx_repeat(g, tail, 0, 1);
    }
    out = GX_SEQ_OF(g, gx_text(g, "["), s->space, tail, s->space, gx_text(g, "]"));
  }
  vec_free(&items);
  return out;
}
