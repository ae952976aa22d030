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

// allowed: the most bytes of a control token from here. *cut: the text ended before the search.
static int32_t longest_at(const special_set *s, text_view text, size_t allowed, trie_cost *cost, bool *cut) {
  int32_t best = -1;
  uint32_t node = s->first[(unsigned char)text.at[0]];
  *cut = false;
  for (size_t i = 1; node; node = trie_step(&s->tokens, node, (unsigned char)text.at[i++]), cost->steps++) {
    int32_t id = s->tokens.node[node].value;
    if (id >= 0 && (i <= allowed || s->v->type[id] == TOKEN_USER_DEFINED)) best = id;
    if (i == text.n) { *cut = true; break; }
  }
  return best;
}

static size_t allowed_at(special_search *how, size_t i) {
  if (!how->parse_special) return 0;
  if (!how->within) return SIZE_MAX;
  size_t end = spans_end_at(how->within, how->before + i, &how->next);
  return end ? end - (how->before + i) : 0;
}

enum special_found special_next(const special_set *s, special_search *how, text_view text, size_t from, bool open,
                                size_t *at, int32_t *id) {
  for (size_t i = from; i < text.n; i++) {
    if (!s->first[(unsigned char)text.at[i]]) continue;
    bool cut;
    int32_t found = longest_at(s, (text_view){text.at + i, text.n - i}, allowed_at(how, i), &how->cost, &cut);
    if (trie_too_costly(&how->cost)) return SPECIAL_COSTLY;
    if (found < 0 && !(open && cut)) continue;
    *at = i;
    *id = found;
    return open && cut ? SPECIAL_UNSURE : SPECIAL_FOUND;
  }
  return SPECIAL_NONE;
}
