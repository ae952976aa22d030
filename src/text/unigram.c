// The Unigram model: see unigram.h.
#include "text/unigram.h"
#include "text/spm.h"
#include "text/utf8.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_COSTS 10.0

static float score_of(const vocab *v, int32_t id) {
  float score = v->score ? v->score[id] : 0;
  return score > FLT_MAX ? FLT_MAX : score < -FLT_MAX ? -FLT_MAX : score;   // sums of these stay numbers
}

int unigram_init(unigram *u, const vocab *v, const charsmap *map, bool space_prefix, bool single_spaces, arena *mem,
                 error *err) {
  *u = (unigram){.v = v,
                 .map = *map,
                 .space_prefix = space_prefix,
                 .single_spaces = single_spaces,
                 .bytes = true,
                 .unknown = vocab_unknown_word(v)};
  double worst = DBL_MAX;
  u->score = ARENA_ARRAY(mem, float, (size_t)v->n + 1);
  u->score[0] = -INFINITY;
  trie_item *items = xmalloc(((size_t)v->n + 1) * sizeof *items);
  size_t n = 0;
  for (int32_t id = 0; id < v->n; id++) {
    u->score[id + 1] = score_of(v, id);
    if (v->type[id] == TOKEN_NORMAL && u->score[id + 1] < worst) worst = u->score[id + 1];
    if (vocab_merges_to(v, id)) items[n++] = (trie_item){v->token[id], id};
  }
  u->unknown_score = (worst == DBL_MAX ? 0 : worst) - UNKNOWN_COSTS;
  for (int b = 0; b < 256; b++) {
    u->byte_id[b] = vocab_byte(v, (unsigned char)b);
    u->bytes &= u->byte_id[b] >= 0;
  }
  int bad = trie_build(&u->tokens, items, n, mem, err);
  free(items);
  return bad;
}

// ---- Normalising ----

// A piece of the text as the map gives it.
static void put_mapped(const unigram *u, unigram_state *s, const char *text, size_t n, str *out) {
  for (size_t i = 0; i < n;) {
    if (text[i] == ' ') {
      if (!u->single_spaces) str_add(out, SPM_SPACE);
      s->after_space = true;
      i++;
      continue;
    }
    if (u->single_spaces && s->started ? s->after_space : u->single_spaces && u->space_prefix) str_add(out, SPM_SPACE);
    s->started = true, s->after_space = false;
    size_t end = i;
    while (end < n && text[end] != ' ') end++;
    str_addn(out, text + i, end - i);
    i = end;
  }
}

// Real maps make a character eleven times as long at most.  One that does more, from a file that wants to fill the
// memory, is refused.
int unigram_normalize(const unigram *u, unigram_state *s, const char *text, size_t n, bool open, size_t *taken,
                      str *out, error *err) {
  size_t i = 0;
  while (i < n) {
    text_view replacement;
    bool cut;
    size_t length = charsmap_longest(&u->map, text + i, n - i, &replacement, &cut);
    int len = utf8_next(text + i, n - i);
    if (open && (cut || len < 0)) break;
    if (!s->taken && u->space_prefix && !u->single_spaces) str_add(out, SPM_SPACE);
    if (length) {
      s->replaced += replacement.n;
      s->taken += length;
      if (s->replaced > 65536 + 32 * s->taken)
        return error_set(err, "%stokenizer.ggml.precompiled_charsmap makes more than %zu bytes of a text of %zu",
                         u->v->source, 65536 + 32 * s->taken, s->taken);
      put_mapped(u, s, replacement.at, replacement.n, out);
      i += length;
      continue;
    }
    if (len > 0) put_mapped(u, s, text + i, (size_t)len, out);
    else if (u->bytes) put_mapped(u, s, text + i, 1, out);    // its byte token will stand for it
    else put_mapped(u, s, "\xEF\xBF\xBD", 3, out);
    s->taken += len > 0 ? (size_t)len : 1;
    i += len > 0 ? (size_t)len : 1;
  }
  *taken = i;
  return 0;
}

// ---- The best way ----

// What is kept of a place: the length of the last token of the best way there, which takes two bytes, and as long as
// tokens may still reach it, the score of that way.  Those scores lie in a window that follows the places.
enum { UNKNOWN_CHARACTER = 1 << 15, WINDOW = 16 * TRIE_BYTES_MAX };

struct search {
  const unigram *u;
  unigram_state *state;
  const char *text;
  token_list *out;
  uint16_t *last;               // [place - base] that length, and whether it is that of an unknown character
  size_t cap, base;
  double *score;                // [place - from], -INFINITY where no way leads yet
  size_t from;
};

static int put_unknown(struct search *s, const char *text, size_t n, error *err) {
  const unigram *u = s->u;
  if (u->bytes) {
    for (size_t i = 0; i < n; i++) vec_push(s->out, u->byte_id[(unsigned char)text[i]]);
    return 0;
  }
  if (u->unknown < 0)
    return vocab_no_token(u->v, text, n, err);
  if (!s->state->last_unknown) vec_push(s->out, u->unknown);
  s->state->last_unknown = true;
  return 0;
}

// All ways lead through `place`: puts out the best one from base to there, and begins anew.
static int settle_up_to(struct search *s, size_t place, error *err) {
  const trie *t = &s->u->tokens;
  uint16_t *way = s->last, next = 0, own;
  // The way leads backwards; so that it can be walked from its beginning, each place on it gets the length that leads
  // on.
  for (size_t p = place - s->base;; p -= next & ~UNKNOWN_CHARACTER) {
    own = way[p], way[p] = next, next = own;
    if (!p) break;
  }
  for (size_t p = 0, n; p < place - s->base; p += n) {
    const char *at = s->text + s->base + p;
    n = way[p] & ~UNKNOWN_CHARACTER;
    if (way[p] & UNKNOWN_CHARACTER) { if (put_unknown(s, at, n, err)) return -1; continue; }
    vec_push(s->out, t->value[trie_walk(t, 0, at, n)]);
    s->state->last_unknown = false;
  }
  s->base = place;
  s->last[0] = 0;
  s->score[place - s->from] = 0;
  return 0;
}

// Room for what tokens from a place can reach.
static void room_from(struct search *s, size_t at) {
  size_t need = at - s->base + TRIE_BYTES_MAX + 1, seen = at - s->from;
  if (s->cap < need) s->last = xrealloc(s->last, (s->cap = 2 * need) * sizeof *s->last);
  if (seen + TRIE_BYTES_MAX < WINDOW) return;
  memmove(s->score, s->score + seen, (WINDOW - seen) * sizeof *s->score);
  for (size_t i = WINDOW - seen; i < WINDOW; i++) s->score[i] = -INFINITY;
  s->from = at;
}

// Without a branch: what comes out of the comparison is anybody's guess.
static inline void offer(double *best, uint16_t *last, double score, size_t how) {
  uint16_t better = (uint16_t)-(score > *best);
  *best = score > *best ? score : *best;
  *last = (uint16_t)((how & better) | (*last & ~better));
}

int unigram_encode(const unigram *u, unigram_state *state, const char *normal, size_t n, bool open, size_t *settled,
                   trie_cost *cost, token_list *out, error *err) {
  struct search s = {.u = u, .state = state, .text = normal, .out = out};
  const trie tokens = u->tokens;                          // copies, which no store changes
  const float *scores = u->score;
  size_t reach = 0;                                       // no token so far ends past reach
  int bad = 0;
  s.score = xmalloc(WINDOW * sizeof *s.score);
  for (size_t i = 0; i < WINDOW; i++) s.score[i] = i ? -INFINITY : 0;
  room_from(&s, 0);
  s.last[0] = 0;
  cost->bytes += n;
  for (size_t at = 0; at < n && !bad;) {
    if (at == reach && at > s.base && (bad = settle_up_to(&s, at, err))) break;
    int len = utf8_next(s.text + at, n - at);
    if (open && len < 0) break;
    room_from(&s, at);
    size_t own = len > 0 ? (size_t)len : 1, k = 0, longest = 0;
    bool whole = false;                                   // a token is just this character
    uint32_t node = 0;
    uint16_t *last = s.last + (at - s.base);
    double *best = s.score + (at - s.from), score = *best;   // there is always a way: a character by itself
    while (at + k < n && (node = trie_step(&tokens, node, (unsigned char)normal[at + k]))) {
      int32_t id = tokens.value[node];
      k++;
      longest = id >= 0 ? k : longest;
      whole |= (id >= 0) & (k == own);
      offer(&best[k], &last[k], score + (double)scores[id + 1], k);
    }
    cost->steps += k;
    if (trie_too_costly(cost)) bad = trie_refuse(u->v->source, err);
    if (!whole) {
      if (own > longest) longest = own;
      offer(&best[own], &last[own], score + u->unknown_score, own | UNKNOWN_CHARACTER);
    }
    if (at + longest > reach) reach = at + longest;
    if (at + k == n && open) reach = SIZE_MAX;            // a longer one may come
    at += own;
  }
  if (!bad && !open && n > s.base) bad = settle_up_to(&s, n, err);
  *settled = s.base;
  free(s.last);
  free(s.score);
  return bad;
}
