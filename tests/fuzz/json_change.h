// Changes to a JSON value that know what JSON is: one place is drawn, and has another value afterwards, none, or two.
// Most results still have the members that a reader looks for.  fuzz_hf.c uses it.
#ifndef WEFT_FUZZ_JSON_CHANGE_H
#define WEFT_FUZZ_JSON_CHANGE_H
#include <jansson.h>
#include <string.h>
#include "base/base.h"

typedef struct json_change {
  uint64_t random;
  const char *const *words;      // texts that readers know
  size_t n_words;
} json_change;

static inline uint64_t json_draw(json_change *c, uint64_t below) {
  c->random = c->random * 6364136223846793005u + 1442695040888963407u;
  return (c->random >> 33) % below;
}

// A place: a member of `in`, by its key or its number.
typedef struct json_place { json_t *in; const char *key; size_t i; json_t *value; } json_place;

static inline bool json_children(json_t *of, size_t n, json_place *out) {
  if (json_is_array(of)) {
    *out = (json_place){of, NULL, n, json_array_get(of, n)};
    return out->value;
  }
  void *at = json_object_iter(of);
  for (size_t i = 0; i < n && at; i++) at = json_object_iter_next(of, at);
  if (at) *out = (json_place){of, json_object_iter_key(at), 0, json_object_iter_value(at)};
  return at;
}

static inline size_t json_size(const json_t *of) {
  return json_is_array(of) ? json_array_size(of) : json_is_object(of) ? json_object_size(of) : 0;
}

// Any place below `root`; half of the steps down stop. false: it has none.
static inline bool json_pick(json_change *c, json_t *root, json_place *out) {
  json_t *at = root;
  bool found = false;
  for (size_t n; (n = json_size(at)) && (!found || json_draw(c, 3)); at = out->value) {
    if (!json_children(at, json_draw(c, n), out)) break;
    found = true;
  }
  return found;
}

static inline void json_put(const json_place *p, json_t *value) {
  if (p->key) json_object_set_new(p->in, p->key, value);
  else json_array_set_new(p->in, p->i, value);
}

static inline json_t *json_any(json_change *c) {
  static const int64_t whole[] = {0, 1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 127, 128, 255, 256, 4096, 65535, 65536,
                                  -1, -2, INT32_MAX, 1ll << 31, UINT32_MAX, 1ll << 32, 1ll << 53, INT64_MAX, INT64_MIN};
  static const double real[] = {0, -0.0, 0.5, 1, 1e-6, 1e-300, 1e38, 1e300, -1, 3e9, 1.8e19};
  switch (json_draw(c, 10)) {
  case 0: return json_null();
  case 1: return json_boolean(json_draw(c, 2));
  case 2: return json_real(real[json_draw(c, COUNT(real))]);
  case 3: return json_array();
  case 4: return json_object();
  case 5: return json_string("");
  case 6:
  case 7: return json_string(c->words[json_draw(c, c->n_words)]);
  default: return json_integer(whole[json_draw(c, COUNT(whole))]);
  }
}

static inline json_t *json_near(json_change *c, int64_t n) {
  static const int64_t by[] = {1, -1, 32, -32, 128};
  uint64_t u = (uint64_t)n;
  switch (json_draw(c, 4)) {
  case 0: return json_integer((int64_t)(u * 2));
  case 1: return json_integer(n / 2);
  default: return json_integer((int64_t)(u + (uint64_t)by[json_draw(c, COUNT(by))]));
  }
}

static inline void json_remove(const json_place *p) {
  if (p->key) json_object_del(p->in, p->key);
  else json_array_remove(p->in, p->i);
}

// A copy of the value beside it, under a name that is known, or at another index.
static inline void json_repeat(json_change *c, const json_place *p) {
  json_t *copy = json_deep_copy(p->value);
  if (p->key) json_object_set_new(p->in, c->words[json_draw(c, c->n_words)], copy);
  else json_array_insert_new(p->in, json_draw(c, json_array_size(p->in) + 1), copy);
}

// A text with a part of it doubled, cut, or replaced.
static inline json_t *json_other_text(json_change *c, const json_t *of) {
  char text[256];
  size_t n = json_string_length(of);
  const char *s = json_string_value(of), *word = c->words[json_draw(c, c->n_words)];
  if (n > 100 || !n) return json_string(word);
  switch (json_draw(c, 4)) {
  case 0: snprintf(text, sizeof text, "%s%s", s, s); break;
  case 1: snprintf(text, sizeof text, "%s", s + n / 2); break;
  case 2: snprintf(text, sizeof text, "%.*s%.100s", (int)(n / 2), s, word); break;
  default: return json_string(word);
  }
  json_t *made = json_string(text);          // NULL: it was cut inside of a character
  return made ? made : json_string(word);
}

static inline void json_change_place(json_change *c, json_t *root, const json_place *p) {
  json_place o;
  switch (json_draw(c, 8)) {
  case 0: json_remove(p); return;
  case 1: json_repeat(c, p); return;
  case 2: json_put(p, json_any(c)); return;
  case 3:                                    // what stands in another place
    if (json_pick(c, root, &o)) json_put(p, json_deep_copy(o.value));
    return;
  default:
    if (json_is_integer(p->value)) json_put(p, json_near(c, json_integer_value(p->value)));
    else if (json_is_string(p->value)) json_put(p, json_other_text(c, p->value));
    else if (json_is_boolean(p->value)) json_put(p, json_boolean(!json_is_true(p->value)));
    else json_put(p, json_any(c));
  }
}

static inline void json_change_one(json_change *c, json_t *root) {
  json_place p;
  if (json_pick(c, root, &p)) json_change_place(c, root, &p);
}
#endif
