// Values that config.json lacks, or has under another name, computed from those that it has: a class's row lists them
// as "KEY=PRODUCT ..." (hf_class.derived). A product is numbers and keys of config.json joined by * and /. A key that
// is present stays, and a product with an absent key sets nothing, so one key may have several products.
#include <stdlib.h>
#include <string.h>
#include "model/hf_impl.h"

// The value of a number or key. *found false: the key is absent.
static int derived_term(const hf *h, const char *at, size_t n, uint32_t *out, bool *found, error *err) {
  char *end, *name = arena_strndup(h->arena, at, n);
  *found = true;
  *out = (uint32_t)strtoul(name, &end, 10);
  return *end ? hf_u32(h, name, out, found, err) : 0;
}

static int derived_product(const hf *h, const char *at, size_t n, uint64_t *out, bool *found, error *err) {
  uint64_t value = 1;
  char op = '*';
  *found = true;
  for (const char *end = at + n; at < end;) {
    size_t length = 0;
    uint32_t term;
    while (at + length < end && at[length] != '*' && at[length] != '/') length++;
    if (derived_term(h, at, length, &term, found, err)) return -1;
    if (!*found || (op == '/' && !term)) {
      *found = false;
      return 0;
    }
    value = op == '*' ? value * term : value / term;
    if (value > INT32_MAX)
      return hf_fail(h, "config.json", arena_strndup(h->arena, at, length), err, "%u is too much", term);
    at += length;
    if (at < end) op = *at++;
  }
  *out = value;
  return 0;
}

int hf_derive(hf *h, const char *list, error *err) {
  for (const char *at = list; at && *at; at += strspn(at, " ")) {
    size_t n = strcspn(at, " "), k = strcspn(at, "=");
    const char *name, *key = arena_strndup(h->arena, at, k);
    uint64_t value = 0;
    bool found;
    if (!hf_value(h, key, &name)) {
      if (derived_product(h, at + k + 1, n - k - 1, &value, &found, err)) return -1;
      if (found) json_object_set_new(h->text, key, json_integer((json_int_t)value));
    }
    at += n;
  }
  return 0;
}
