// PLaMo-2's tokenizer: see plamo2.h.
#include "text/plamo2.h"
#include "text/utf8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_COST 10000000
#define WORST_COST 20000000     // tokens at this cost or above are ignored
#define NO_WAY (INT64_MAX / 4)  // more than twice the cost of any text

int plamo2_init(plamo2 *p, const vocab *v, arena *mem, error *err) {
  *p = (plamo2){.v = v, .cost = ARENA_ARRAY(mem, int64_t, (size_t)v->n + 1)};
  trie_item *items = xmalloc(((size_t)v->n + 1) * sizeof *items);
  size_t n = 0;
  p->cost[0] = NO_WAY;
  for (int32_t id = 0; id < v->n; id++) {
    double score = v->score ? round((double)v->score[id] * 1e4) : 0;
    if (!vocab_merges_to(v, id) || !isfinite(score) || score <= -WORST_COST || score > 1e9) continue;
    p->cost[id + 1] = -(int64_t)score;
    items[n++] = (trie_item){v->token[id], id};
  }
  for (int b = 0; b < 256; b++) p->byte_id[b] = vocab_byte(v, (unsigned char)b);
  int bad = trie_build(&p->tokens, items, n, mem, err);
  free(items);
  return bad;
}

static int put_byte_tokens(const plamo2 *p, const char *text, size_t n, token_list *out, error *err) {
  for (size_t i = 0; i < n; i++) {
    int32_t id = p->byte_id[(unsigned char)text[i]];
    if (id < 0) id = vocab_unknown(p->v);
    if (id < 0) return vocab_no_token(p->v, text + i, 1, err);
    vec_push(out, id);
  }
  return 0;
}

// The best segmentation of a whole text passes every place that no token crosses, and the text after such a place adds
// the same cost to all segmentations before it: the text up to there can be encoded separately. The ring holds the
// costs of places that a token from here can reach.
enum { RING = 2 * TRIE_BYTES_MAX };
#define AT(place) cost[(place) % RING]

static int encode_settled(const plamo2 *p, const char *text, size_t n, trie_cost *steps, token_list *out, error *err) {
  // For each place the least cost of the rest, and the length of the first token of that segmentation, or minus that of
  // a character.
  const trie tokens = p->tokens;                          // local copies, so that the compiler knows they do not change
  const int64_t *own = p->cost;
  int64_t cost[RING];
  int16_t *first = xmalloc((n + 1) * sizeof *first);
  AT(n) = 0;
  for (size_t at = n, from; at > 0 && !trie_too_costly(steps); at = from) {
    from = at - 1;
    for (size_t back = 2; back <= 4 && back <= at; back++)
      if (utf8_next(text + at - back, back) == (int)back) { from = at - back; break; }
    int64_t best = AT(at) + UNKNOWN_COST;
    int length = -(int)(at - from);
    // inside a character: unreachable
    for (size_t i = from + 1; i < at; i++) { AT(i) = NO_WAY; first[i] = 0; }
    uint32_t node = 0;
    size_t end = from;
    while (end < n && (node = trie_step(&tokens, node, (unsigned char)text[end]))) {
      end++;
      int64_t way = AT(end) + own[tokens.node[node].value + 1];   // without a branch, which would be unpredictable
      length = way <= best ? (int)(end - from) : length;
      best = way <= best ? way : best;
    }
    steps->steps += end - from;
    AT(from) = best;
    first[from] = (int16_t)length;
  }
  int bad = trie_too_costly(steps) ? trie_refuse(p->v->source, err) : 0;
  for (size_t at = 0; at < n && !bad;) {
    int length = first[at];
    if (length > 0) vec_push(out, p->tokens.node[trie_walk(&p->tokens, 0, text + at, (size_t)length)].value);
    else bad = put_byte_tokens(p, text + at, (size_t)-length, out, err);
    at += (size_t)abs(length);
  }
  free(first);
  return bad;
}

int plamo2_encode(const plamo2 *p, const char *text, size_t n, bool first, bool open, size_t *settled, trie_cost *steps,
                  token_list *out, error *err) {
  size_t mark = first && n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
  *settled = 0;
  steps->bytes += n;
  size_t end = open ? mark + trie_uncrossed(&p->tokens, text + mark, n - mark, steps) : n;
  if (encode_settled(p, text + mark, end - mark, steps, out, err)) return -1;
  *settled = end;
  return 0;
}
