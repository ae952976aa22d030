// The search for special tokens: see special.h.
#include "text/special.h"
#include <stdlib.h>

int special_init(special_set *s, const vocab *v, arena *mem, error *err) {
  *s = (special_set){.v = v};
  VEC(trie_item) items = {0};
  for (int32_t id = 0; id < v->n; id++) {
    if (v->type[id] != TOKEN_CONTROL && v->type[id] != TOKEN_USER_DEFINED && v->type[id] != TOKEN_UNKNOWN) continue;
    text_view t = v->token[id];
    if (t.n && t.n <= SPECIAL_BYTES_MAX) vec_push(&items, ((trie_item){t, id}));
  }
  int bad = trie_build(&s->tokens, items.at, items.n, mem, err);
  vec_free(&items);
  for (int b = 0; !bad && b < 256; b++) s->first[b] = trie_step(&s->tokens, 0, (unsigned char)b);
  return bad;
}

// *cut: the text ended before the search did.
static int32_t longest_at(const special_set *s, const char *text, size_t n, bool parse_special, trie_cost *cost,
                          bool *cut) {
  int32_t best = -1;
  uint32_t node = s->first[(unsigned char)text[0]];
  *cut = false;
  for (size_t i = 1; node; node = trie_step(&s->tokens, node, (unsigned char)text[i++]), cost->steps++) {
    int32_t id = s->tokens.node[node].value;
    if (id >= 0 && (parse_special || s->v->type[id] == TOKEN_USER_DEFINED)) best = id;
    if (i == n) { *cut = true; break; }
  }
  return best;
}

enum special_found special_next(const special_set *s, const char *text, size_t n, size_t from, bool parse_special,
                                bool open, trie_cost *cost, size_t *at, int32_t *id) {
  for (size_t i = from; i < n; i++) {
    if (!s->first[(unsigned char)text[i]]) continue;
    bool cut;
    int32_t found = longest_at(s, text + i, n - i, parse_special, cost, &cut);
    if (trie_too_costly(cost)) return SPECIAL_COSTLY;
    if (found < 0 && !(open && cut)) continue;
    *at = i;
    *id = found;
    return open && cut ? SPECIAL_UNSURE : SPECIAL_FOUND;
  }
  return SPECIAL_NONE;
}
