// The search for special tokens: see special.h.
#include "text/special.h"
#include <stdlib.h>

static uint32_t child_of(const special_set *s, uint32_t node, unsigned char byte) {
  if (!node) return s->first[byte];
  void *child = NULL;
  map_get(&s->child, (uint64_t)node << 8 | byte, &child);
  return (uint32_t)(uintptr_t)child;
}

static uint32_t add_child(special_set *s, uint32_t node, unsigned char byte) {
  uint32_t child = (uint32_t)s->token.n;
  vec_push(&s->token, -1);
  if (node) map_set(&s->child, (uint64_t)node << 8 | byte, (void *)(uintptr_t)child);
  else s->first[byte] = child;
  return child;
}

void special_init(special_set *s, const vocab *v) {
  *s = (special_set){.v = v};
  vec_push(&s->token, -1);
  for (int32_t id = 0; id < v->n; id++) {
    if (v->type[id] != TOKEN_CONTROL && v->type[id] != TOKEN_USER_DEFINED && v->type[id] != TOKEN_UNKNOWN) continue;
    text_view t = v->token[id];
    if (!t.n || t.n > SPECIAL_BYTES_MAX) continue;
    uint32_t node = 0;
    for (size_t i = 0; i < t.n; i++) {
      uint32_t child = child_of(s, node, (unsigned char)t.at[i]);
      node = child ? child : add_child(s, node, (unsigned char)t.at[i]);
    }
    if (s->token.at[node] < 0) s->token.at[node] = id;
  }
}

void special_free(special_set *s) {
  map_free(&s->child);
  vec_free(&s->token);
}

// *cut: the text ended before the search did.
static int32_t longest_at(const special_set *s, const char *text, size_t n, bool parse_special, bool *cut) {
  int32_t best = -1;
  uint32_t node = 0;
  *cut = false;
  for (size_t i = 0; i < n; i++) {
    if (!(node = child_of(s, node, (unsigned char)text[i]))) return best;
    int32_t id = s->token.at[node];
    if (id >= 0 && (parse_special || s->v->type[id] == TOKEN_USER_DEFINED)) best = id;
  }
  *cut = true;
  return best;
}

enum special_found special_next(const special_set *s, const char *text, size_t n, size_t from, bool parse_special, bool open, size_t *at, int32_t *id) {
  for (size_t i = from; i < n; i++) {
    if (!s->first[(unsigned char)text[i]]) continue;
    bool cut;
    int32_t found = longest_at(s, text + i, n - i, parse_special, &cut);
    if (found < 0 && !(open && cut)) continue;
    *at = i;
    *id = found;
    return open && cut ? SPECIAL_UNSURE : SPECIAL_FOUND;
  }
  return SPECIAL_NONE;
}
