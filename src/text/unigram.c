// The Unigram model: see unigram.h.
#include "text/unigram.h"
#include "text/spm.h"
#include "text/utf8.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_COSTS 10.0

static double score_of(const vocab *v, int32_t id) {
  double score = v->score ? v->score[id] : 0;
  return score > FLT_MAX ? FLT_MAX : score < -FLT_MAX ? -FLT_MAX : score;   // sums of these stay numbers
}

int unigram_init(unigram *u, const vocab *v, const charsmap *map, bool space_prefix, bool single_spaces, arena *mem, error *err) {
  *u = (unigram){.v = v, .map = *map, .space_prefix = space_prefix, .single_spaces = single_spaces, .bytes = true, .unknown = vocab_unknown_word(v)};
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
  return bad;
}

// ---- Normalising ----

// A piece of the text as the map gives it.
static void put_piece(const unigram *u, unigram_state *s, const char *text, size_t n, str *out) {
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

// Real maps make a character eleven times as long at most.  One that does more, from a file that wants to fill the memory, is refused.
int unigram_normalize(const unigram *u, unigram_state *s, const char *text, size_t n, bool open, size_t *taken, str *out, error *err) {
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
        return error_set(err, "%stokenizer.ggml.precompiled_charsmap makes more than %zu bytes of a text of %zu", u->v->source,
                         65536 + 32 * s->taken, s->taken);
      put_piece(u, s, replacement.at, replacement.n, out);
      i += length;
      continue;
    }
    if (len > 0) put_piece(u, s, text + i, (size_t)len, out);
    else if (u->bytes) put_piece(u, s, text + i, 1, out);     // its byte token will stand for it
    else put_piece(u, s, "\xEF\xBF\xBD", 3, out);
    s->taken += len > 0 ? (size_t)len : 1;
    i += len > 0 ? (size_t)len : 1;
  }
  *taken = i;
  return 0;
}

// ---- The best way ----

struct place { double score; uint32_t from; int32_t id; };     // id: the last token of the best way here; UNREACHED, or an unknown character
enum { UNREACHED = -2, UNKNOWN_CHARACTER = -1 };

struct search {
  const unigram *u;
  unigram_state *state;
  const char *text;
  token_list *out;
  VEC(struct place) best;       // [place - base]
  VEC(uint32_t) way;            // ends of tokens, backwards
  size_t base;
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
static int settle(struct search *s, size_t place, error *err) {
  s->way.n = 0;
  for (uint32_t p = (uint32_t)(place - s->base); p; p = s->best.at[p].from) vec_push(&s->way, p);
  for (size_t i = s->way.n; i-- > 0;) {
    struct place *p = &s->best.at[s->way.at[i]];
    if (p->id >= 0) { vec_push(s->out, p->id); s->state->last_unknown = false; }
    else if (put_unknown(s, s->text + s->base + p->from, s->way.at[i] - p->from, err)) return -1;
  }
  s->base = place;
  s->best.n = 1;
  s->best.at[0] = (struct place){0, 0, UNREACHED};
  return 0;
}

static void offer(struct search *s, size_t from, size_t to, int32_t id, double score) {
  while (s->best.n <= to - s->base) vec_push(&s->best, ((struct place){0, 0, UNREACHED}));
  struct place *p = &s->best.at[to - s->base];
  score += s->best.at[from - s->base].score;
  if (p->id == UNREACHED || score > p->score) *p = (struct place){score, (uint32_t)(from - s->base), id};
}

int unigram_encode(const unigram *u, unigram_state *state, const char *normal, size_t n, bool open, size_t *settled, token_list *out, error *err) {
  struct search s = {.u = u, .state = state, .text = normal, .out = out};
  size_t reach = 0;                                       // no token so far ends past reach
  int bad = n >= UINT32_MAX ? error_set(err, "a text of %zu bytes after normalising is too long to encode at once", n) : 0;
  vec_push(&s.best, ((struct place){0, 0, UNREACHED}));
  for (size_t at = 0; at < n && !bad;) {
    if (at == reach && at > s.base && (bad = settle(&s, at, err))) break;
    int len = utf8_next(s.text + at, n - at);
    if (open && len < 0) break;
    size_t next = at + (len > 0 ? (size_t)len : 1);
    bool whole = false;                                   // a token is just this character
    uint32_t node = 0;
    size_t end = at;
    for (; end < n && (node = trie_step(&u->tokens, node, (unsigned char)s.text[end]));) {
      int32_t id = u->tokens.value[node];
      end++;
      if (id < 0) continue;
      whole |= end == next;
      if (end > reach) reach = end;
      offer(&s, at, end, id, score_of(u->v, id));
    }
    if (end == n && open) reach = SIZE_MAX;               // a longer one may come
    if (!whole) {
      if (next > reach) reach = next;
      offer(&s, at, next, UNKNOWN_CHARACTER, u->unknown_score);
    }
    at = next;
  }
  if (!bad && !open && n > s.base) bad = settle(&s, n, err);
  *settled = s.base;
  vec_free(&s.best);
  vec_free(&s.way);
  return bad;
}
