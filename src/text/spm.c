// SentencePiece BPE: see spm.h.
#include "text/spm.h"
#include "text/utf8.h"
#include <stdlib.h>
#include <string.h>

#define NOT_LOOKED_UP (-1)      // a character as it came: whether it is a token is asked at the end
#define JOINS_BAR 0x2581u       // what a space is among the tokens
#define PART_BYTES_MAX ((size_t)1 << 28)   // offsets in a chain are 32-bit numbers

// ---- Ranks from scores ----

struct scored { float score; int32_t id; };

static int by_score(const void *pa, const void *pb) {
  const struct scored *a = pa, *b = pb;
  if (a->score != b->score) return a->score > b->score ? -1 : 1;
  return (a->id > b->id) - (a->id < b->id);
}

void spm_init(spm *s, const vocab *v, bool space_prefix, arena *mem) {
  *s = (spm){.v = v, .space_prefix = space_prefix};
  s->longest = v->longest < SPM_MERGED_BYTES_MAX ? v->longest : SPM_MERGED_BYTES_MAX;
  for (int b = 0; b < 256; b++) s->byte_id[b] = vocab_byte(v, (unsigned char)b);
  struct scored *order = xmalloc(((size_t)v->n + 1) * sizeof *order);
  size_t n = 0;
  bool sorted = true;
  for (int32_t id = 0; id < v->n; id++) {
    if (!vocab_merges_to(v, id)) continue;
    order[n] = (struct scored){v->score ? v->score[id] : 0, id};
    if (n && by_score(&order[n - 1], &order[n]) > 0) sorted = false;
    n++;
  }
  if (!sorted) qsort(order, n, sizeof *order, by_score);
  s->rank = ARENA_ARRAY(mem, uint32_t, (size_t)v->n + 1);
  for (size_t i = 0; i < n; i++) {
    if (!i || order[i].score != order[i - 1].score) s->n_ranks++;
    s->rank[order[i].id] = s->n_ranks - 1;
  }
  free(order);
  joins_init(&s->joins, v, mem);
}

// ---- Encoding ----

struct chain { const spm *s; const char *text; uint32_t n; };

static bool find_pair(const void *ctx, const merger *m, uint32_t i, uint32_t j, uint32_t *rank, int32_t *id) {
  const struct chain *c = ctx;
  uint32_t len = m->next[j] - i;
  if (len > c->s->longest) return false;
  int32_t found = vocab_find(c->s->v, c->text + i, len);
  if (found < 0 || !vocab_merges_to(c->s->v, found)) return false;
  *id = found;
  *rank = c->s->rank[found];
  return true;
}

// Writes the text with its spaces as they are in the vocabulary and sets the chain up: one symbol for each character,
// one for each byte that belongs to none.  Returns the number of symbols.
static size_t set_up(merger *m, const char *text, size_t n, bool prefix, char *out, size_t *n_out) {
  size_t at = 0, symbols = 0;
  for (size_t i = 0; i < n || prefix;) {
    int len = prefix ? 1 : utf8_next(text + i, n - i);
    if (len <= 0) len = 1;
    bool space = prefix || text[i] == ' ';
    size_t wide = space ? 3 : (size_t)len;
    memcpy(out + at, space ? SPM_SPACE : text + i, wide);
    m->id[at] = NOT_LOOKED_UP;
    m->next[at] = (uint32_t)(at + wide);
    at += wide;
    symbols++;
    if (prefix) prefix = false;
    else i += (size_t)len;
  }
  *n_out = at;
  return symbols;
}

static int put_bytes(const spm *s, const char *text, size_t n, token_list *out, error *err) {
  for (size_t i = 0; i < n; i++)
    if (s->byte_id[(unsigned char)text[i]] < 0) {
      int32_t unknown = vocab_unknown(s->v);
      if (unknown < 0)
        return error_set(err, "%stokenizer.ggml.tokens has no <0x%02X>, and no unknown token stands in for it",
                         s->v->source, (unsigned)(unsigned char)text[i]);
      vec_push(out, unknown);                              // one for the whole character
      return 0;
    }
  for (size_t i = 0; i < n; i++) vec_push(out, s->byte_id[(unsigned char)text[i]]);
  return 0;
}

static int put_symbol(const spm *s, const merger *m, uint32_t i, const char *text, token_list *out, error *err) {
  size_t len = m->next[i] - i;
  int32_t id = m->id[i];
  if (id == NOT_LOOKED_UP) {
    id = vocab_find(s->v, text + i, len);
    if (id >= 0 && !vocab_merges_to(s->v, id)) id = -1;
  }
  if (id >= 0) { vec_push(out, id); return 0; }
  // A vocabulary without "▁" itself: a plain space decodes rightly.
  if (len == 3 && !memcmp(text + i, SPM_SPACE, 3)) return put_bytes(s, " ", 1, out, err);
  return put_bytes(s, text + i, len, out, err);
}

// A part that nothing is merged across the ends of.
static int encode_part(const spm *s, merger *m, word_cache *words, const char *text, size_t n, bool prefix, str *chain,
                       token_list *out, error *err) {
  word_entry *known = prefix ? NULL : word_cache_slot(words, text, n);
  if (word_cache_get(known, text, n, out)) return 0;
  if (n > PART_BYTES_MAX)
    return error_set(err, "%zu bytes of text that must be merged as a whole are too long (the limit is %zu)", n,
                     PART_BYTES_MAX);
  size_t spaces = prefix, at = 0, room, before = out->n;
  for (size_t i = 0; i < n; i++) spaces += text[i] == ' ';
  room = n + 2 * spaces + 1;
  merger_reserve(m, room);
  if (chain->cap < room) { chain->cap = 2 * room; chain->at = xrealloc(chain->at, chain->cap); }
  size_t symbols = set_up(m, text, n, prefix, chain->at, &at);
  struct chain c = {s, chain->at, (uint32_t)at};
  merger_run(m, (uint32_t)at, symbols, s->n_ranks, find_pair, &c);
  for (uint32_t i = 0; i < at; i = m->next[i])
    if (put_symbol(s, m, i, chain->at, out, err)) return -1;
  word_cache_put(known, text, n, out, before);
  return 0;
}

int spm_encode(const spm *s, merger *m, word_cache *words, const char *text, size_t n, bool first, bool open,
               size_t *settled, token_list *out, error *err) {
  bool prefix = first && s->space_prefix;
  str chain = {0};
  size_t from = 0, length;
  uint32_t left = 0;
  int bad = 0;
  for (size_t i = 0; i < n && !bad; i += length) {
    uint32_t symbol = joins_symbol(text + i, n - i, &length), right = symbol == ' ' ? JOINS_BAR : symbol;
    if (i > from && !joins_may(&s->joins, left, right)) {
      bad = encode_part(s, m, words, text + from, i - from, prefix && !from, &chain, out, err);
      from = i;
    }
    left = right;
  }
  if (!bad && !open && from < n) {
    bad = encode_part(s, m, words, text + from, n - from, prefix && !from, &chain, out, err);
    from = n;
  }
  *settled = from;
  str_free(&chain);
  return bad;
}
