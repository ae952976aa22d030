// PLaMo-2's tokenizer: see plamo2.h.
#include "text/plamo2.h"
#include "text/utf8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_COST 10000000
#define WORST_COST 20000000     // tokens at this cost or above take no part

int plamo2_init(plamo2 *p, const vocab *v, arena *mem, error *err) {
  *p = (plamo2){.v = v, .cost = ARENA_ARRAY(mem, int64_t, (size_t)v->n + 1)};
  trie_item *items = xmalloc(((size_t)v->n + 1) * sizeof *items);
  size_t n = 0;
  for (int32_t id = 0; id < v->n; id++) {
    double score = v->score ? round((double)v->score[id] * 1e4) : 0;
    if (!vocab_merges_to(v, id) || !isfinite(score) || score <= -WORST_COST || score > 1e9) continue;
    p->cost[id] = -(int64_t)score;
    items[n++] = (trie_item){v->token[id], id};
  }
  for (int b = 0; b < 256; b++) p->byte_id[b] = vocab_byte(v, (unsigned char)b);
  int bad = trie_build(&p->tokens, items, n, mem, err);
  free(items);
  return bad;
}

static int put_bytes(const plamo2 *p, const char *text, size_t n, token_list *out, error *err) {
  for (size_t i = 0; i < n; i++) {
    int32_t id = p->byte_id[(unsigned char)text[i]];
    if (id < 0) id = vocab_unknown(p->v);
    if (id < 0) return vocab_no_token(p->v, text + i, 1, err);
    vec_push(out, id);
  }
  return 0;
}

// The best way through a whole text leads through every place that no token crosses, and what follows such a place adds the same
// cost to all ways before it: the text up to there can be encoded by itself.
static int encode_settled(const plamo2 *p, const char *text, size_t n, token_list *out, error *err) {
  // For each place the least cost of what follows, and the length of the first token of the way there.
  int64_t *cost = xmalloc((n + 1) * sizeof *cost);
  int32_t *first = xmalloc((n + 1) * sizeof *first);      // a token, or minus the length of a character
  cost[n] = 0;
  for (size_t at = n, from; at > 0; at = from) {
    from = at - 1;
    for (size_t back = 2; back <= 4 && back <= at; back++)
      if (utf8_next(text + at - back, back) == (int)back) { from = at - back; break; }
    int64_t best = cost[at] + UNKNOWN_COST;
    first[from] = -(int32_t)(at - from);
    for (size_t i = from + 1; i < at; i++) { cost[i] = INT64_MAX; first[i] = 0; }   // inside of a character: no way leads here
    uint32_t node = 0;
    for (size_t end = from; end < n && (node = trie_step(&p->tokens, node, (unsigned char)text[end]));) {
      int32_t id = p->tokens.value[node];
      if (cost[++end] == INT64_MAX || id < 0 || cost[end] + p->cost[id] > best) continue;
      best = cost[end] + p->cost[id];
      first[from] = id;
    }
    cost[from] = best;
  }
  int bad = 0;
  for (size_t at = 0; at < n && !bad;) {
    int32_t id = first[at];
    if (id >= 0) { vec_push(out, id); at += p->v->token[id].n; }
    else { bad = put_bytes(p, text + at, (size_t)-id, out, err); at += (size_t)-id; }
  }
  free(cost);
  free(first);
  return bad;
}

int plamo2_encode(const plamo2 *p, const char *text, size_t n, bool first, bool open, size_t *settled, token_list *out, error *err) {
  size_t mark = first && n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
  *settled = 0;
  size_t end = open ? mark + trie_uncrossed(&p->tokens, text + mark, n - mark) : n;
  if (encode_settled(p, text + mark, end - mark, out, err)) return -1;
  *settled = end;
  return 0;
}
