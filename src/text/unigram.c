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
  return score > FLT_MAX ? FLT_MAX : score < -FLT_MAX ? -FLT_MAX : score;   // keeps sums finite
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
  trie_item *items = xmalloc(((size_t)v->n + 1) * sizeof *items);
  size_t n = 0;
  for (int32_t id = 0; id < v->n; id++) {
    if (v->type[id] == TOKEN_NORMAL && score_of(v, id) < worst) worst = score_of(v, id);
    if (vocab_merges_to(v, id)) items[n++] = (trie_item){v->token[id], id};
  }
  u->unknown_score = (worst == DBL_MAX ? 0 : worst) - UNKNOWN_COSTS;
  for (int b = 0; b < 256; b++) {
    u->byte_id[b] = vocab_byte(v, (unsigned char)b);
    u->bytes &= u->byte_id[b] >= 0;
  }
  int bad = trie_build(&u->tokens, items, n, mem, err);
  free(items);
  if (bad) return bad;
  u->score = ARENA_ARRAY(mem, float, u->tokens.n);
  for (uint32_t i = 0; i < u->tokens.n; i++)
    u->score[i] = u->tokens.node[i].value < 0 ? -INFINITY : score_of(v, u->tokens.node[i].value);
  return 0;
}

// ---- Normalising ----

// A piece of the text after the map's replacement.
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

// Real maps make a character at most eleven times as long. A file with longer replacements, which could fill the
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
    else if (u->bytes) put_mapped(u, s, text + i, 1, out);    // its byte token will replace it
    else put_mapped(u, s, "\xEF\xBF\xBD", 3, out);
    s->taken += len > 0 ? (size_t)len : 1;
    i += len > 0 ? (size_t)len : 1;
  }
  *taken = i;
  return 0;
}

// ---- The best segmentation ----

// Per place: the length of the last token of the best segmentation up to there, in two bytes, and as long as tokens may
// still reach it, the score of that segmentation. These scores are in a window that moves with the places.
enum { UNKNOWN_CHARACTER = 1 << 15, REACH = TRIE_BYTES_MAX + 1, WINDOW = 16 * REACH, AHEAD = 4 };

struct search {
  const unigram *u;
  unigram_state *state;
  const char *text;
  token_list *out;
  uint16_t *last;               // [place - base] that length, and whether it is that of an unknown character
  size_t cap, base;
  double *score;                // [place - from], -INFINITY if it is not reachable yet
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

// All segmentations pass `place`: outputs the best one from base to there, and begins anew.
static int settle_up_to(struct search *s, size_t place, error *err) {
  const trie *t = &s->u->tokens;
  uint16_t *way = s->last, next = 0, own;
  // The lengths lead backwards. To walk from the beginning, each place of the segmentation gets the length of the next
  // token.
  for (size_t p = place - s->base;; p -= next & ~UNKNOWN_CHARACTER) {
    own = way[p], way[p] = next, next = own;
    if (!p) break;
  }
  for (size_t p = 0, n; p < place - s->base; p += n) {
    const char *at = s->text + s->base + p;
    n = way[p] & ~UNKNOWN_CHARACTER;
    if (way[p] & UNKNOWN_CHARACTER) { if (put_unknown(s, at, n, err)) return -1; continue; }
    vec_push(s->out, t->node[trie_walk(t, 0, at, n)].value);
    s->state->last_unknown = false;
  }
  s->base = place;
  s->last[0] = 0;
  s->score[place - s->from] = 0;
  return 0;
}

// Makes room for the places that tokens from here can reach.
static void room_from(struct search *s, size_t at) {
  size_t need = at - s->base + REACH, seen = at - s->from;
  if (s->cap < need) s->last = xrealloc(s->last, (s->cap = 2 * need) * sizeof *s->last);
  if (seen + REACH < WINDOW) return;
  memmove(s->score, s->score + seen, (WINDOW - seen) * sizeof *s->score);
  for (size_t i = WINDOW - seen; i < WINDOW; i++) s->score[i] = -INFINITY;
  s->from = at;
}

// Extends the segmentation at a place by tokens of 1 to n bytes; token: their scores. Without a branch, which would be
// unpredictable.
static void offer(double *restrict best, uint16_t *restrict last, double score, const float *restrict token, size_t n) {
  for (size_t k = 0; k < n; k++) {
    double sum = score + (double)token[k];
    uint16_t better = (uint16_t)-(sum > best[k]);
    best[k] = sum > best[k] ? sum : best[k];
    last[k] = (uint16_t)(((k + 1) & better) | (last[k] & ~better));
  }
}

// A place where a character begins, and the tokens that begin there.
struct place {
  size_t at;
  int length;                   // of the character; negative: incomplete or invalid
  size_t n;                     // bytes of the longest string that begins tokens
  float token[REACH];           // their scores, by length
};

// The tokens at the next places, searched in parallel, since a walk waits for memory at each of its steps. Returns the
// places.
static size_t look_ahead(const unigram *u, const char *text, size_t at, size_t n, struct place *p) {
  const trie t = u->tokens;                               // local copies, so that the compiler knows they do not change
  const float *score = u->score;
  uint32_t node[AHEAD] = {0};
  size_t places = 0, index[AHEAD];
  for (; places < AHEAD && at < n; places++) {
    int length = utf8_next(text + at, n - at);
    p[places].at = at, p[places].length = length;
    index[places] = places;
    at += length > 0 ? (size_t)length : 1;
  }
  for (size_t k = 0, walking = places, going; walking; walking = going, k++) {
    going = 0;
    for (size_t w = 0; w < walking; w++) {
      size_t i = index[w];
      uint32_t to = p[i].at + k < n ? trie_step(&t, node[i], (unsigned char)text[p[i].at + k]) : 0;
      if (!to) { p[i].n = k; continue; }
      node[i] = to;
      p[i].token[k] = score[to];
      index[going++] = i;
    }
  }
  return places;
}

int unigram_encode(const unigram *u, unigram_state *state, const char *normal, size_t n, bool open, size_t *settled,
                   trie_cost *cost, token_list *out, error *err) {
  struct search s = {.u = u, .state = state, .text = normal, .out = out};
  struct place *ahead = xmalloc(AHEAD * sizeof *ahead), *p = ahead, *end = ahead;
  size_t reach = 0;                                       // no token so far ends after reach
  int bad = 0;
  s.score = xmalloc(WINDOW * sizeof *s.score);
  for (size_t i = 0; i < WINDOW; i++) s.score[i] = i ? -INFINITY : 0;
  room_from(&s, 0);
  s.last[0] = 0;
  cost->bytes += n;
  for (size_t at = 0; at < n && !bad;) {
    if (at == reach && at > s.base && (bad = settle_up_to(&s, at, err))) break;
    if (p == end) p = ahead, end = p + look_ahead(u, normal, at, n, p);
    if (open && p->length < 0) break;
    room_from(&s, at);
    size_t own = p->length > 0 ? (size_t)p->length : 1, k = p->n, longest = k;
    uint16_t *last = s.last + (at - s.base);
    double *best = s.score + (at - s.from), score = *best;   // reachable: by single characters
    const float *token = (p++)->token;
    offer(best + 1, last + 1, score, token, k);
    while (longest && token[longest - 1] < -FLT_MAX) longest--;
    cost->steps += k;
    if (trie_too_costly(cost)) bad = trie_refuse(u->v->source, err);
    if (k < own || token[own - 1] < -FLT_MAX) {           // no token is just this character
      if (own > longest) longest = own;
      if (score + u->unknown_score > best[own]) {
        best[own] = score + u->unknown_score;
        last[own] = (uint16_t)(own | UNKNOWN_CHARACTER);
      }
    }
    if (at + longest > reach) reach = at + longest;
    if (at + k == n && open) reach = SIZE_MAX;            // a longer one may follow
    at += own;
  }
  if (!bad && !open && n > s.base) bad = settle_up_to(&s, n, err);
  *settled = s.base;
  free(s.last);
  free(s.score);
  free(ahead);
  return bad;
}
