// Finds neighbours that may join: see joins.h.
#include "text/joins.h"

// Sets the bits of one token's pairs, or counts them if there is no table yet.
static size_t add_token_pairs(joins *j, text_view t) {
  size_t pairs = 0, length;
  uint32_t left = 0;
  for (size_t i = 0; i < t.n; i += length) {
    uint32_t symbol = joins_symbol(t.at + i, t.n - i, &length);
    if (i && j->bits) { uint64_t slot = joins_slot(j, left, symbol); j->bits[slot / 64] |= 1ull << slot % 64; }
    pairs += i > 0;
    left = symbol;
  }
  return pairs;
}

void joins_init(joins *j, const vocab *v, arena *mem) {
  *j = (joins){0};
  size_t pairs = 0;
  for (int32_t id = 0; id < v->n; id++)
    if (vocab_merges_to(v, id)) pairs += add_token_pairs(j, v->token[id]);
  unsigned log = 12;
  while (log < 23 && (size_t)1 << log < 4 * pairs) log++;  // most pairs are in several tokens: few bits are set
  j->shift = 64 - log;
  j->bits = ARENA_ARRAY(mem, uint64_t, ((size_t)1 << log) / 64);
  for (int32_t id = 0; id < v->n; id++)
    if (vocab_merges_to(v, id)) add_token_pairs(j, v->token[id]);
}
