// SentencePiece BPE: see spm.h.
#include "text/spm.h"
#include "text/utf8.h"
#include <stdlib.h>
#include <string.h>

#define JOINS_BAR 0x2581u       // a space in the tokens
#define PART_BYTES_MAX ((size_t)1 << 28)   // places of symbols are 32-bit numbers

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

// A symbol is a token; or, as a number below NO_CHARACTER, a character by its code point, or a byte that belongs to no
// character. Its text follows from that.
enum { NO_CHARACTER = -2, LONE_BYTES = 0x110000 };

static uint32_t code_of(int32_t symbol) { return (uint32_t)(NO_CHARACTER - symbol); }

static text_view symbol_text(const spm *s, int32_t symbol, char room[4]) {
  if (symbol >= 0) return s->v->token[symbol];
  uint32_t code = code_of(symbol);
  if (code < LONE_BYTES) return (text_view){room, (size_t)utf8_put(code, room)};
  room[0] = (char)(code - LONE_BYTES);
  return (text_view){room, 1};
}

static int32_t token_of(const vocab *v, const char *text, size_t n) {
  int32_t id = vocab_find(v, text, n);
  return id >= 0 && vocab_merges_to(v, id) ? id : -1;
}

static int32_t find_merged(const spm *s, int32_t left, int32_t right) {
  char a[4], b[4], joined[SPM_MERGED_BYTES_MAX];
  text_view l = symbol_text(s, left, a), r = symbol_text(s, right, b);
  if (l.n + r.n > s->longest) return -1;
  memcpy(joined, l.at, l.n);
  memcpy(joined + l.n, r.at, r.n);
  return token_of(s->v, joined, l.n + r.n);
}

// The results of recent pairs of symbols: a text that is one word asks for few of them again and again, and hashing a
// result costs up to a thousand bytes each time.
enum { KNOWN_BITS = 15, KNOWN_FROM = 1000 };
typedef struct known { int32_t left, right, id; bool used; } known;

struct merging { const spm *s; known *known; };

static bool find_pair(const void *ctx, int32_t left, int32_t right, uint32_t *rank, int32_t *id) {
  const struct merging *m = ctx;
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  known *k = m->known ? &m->known[key * 0x9E3779B97F4A7C15u >> (64 - KNOWN_BITS)] : NULL;
  bool there = k && k->used && k->left == left && k->right == right;
  int32_t found = there ? k->id : find_merged(m->s, left, right);
  if (k && !there) *k = (known){left, right, found, true};
  if (found < 0) return false;
  *id = found;
  *rank = m->s->rank[found];
  return true;
}

// One symbol per character, with spaces as in the vocabulary, and one per byte that belongs to no character. Returns
// their number.
static size_t set_up(merger *m, const char *text, size_t n, bool prefix) {
  size_t symbols = 0;
  if (prefix) m->id[symbols++] = NO_CHARACTER - (int32_t)JOINS_BAR;
  for (size_t i = 0; i < n;) {
    int len = utf8_next(text + i, n - i);
    uint32_t code = JOINS_BAR;
    if (len <= 0) code = LONE_BYTES + (uint32_t)(unsigned char)text[i];
    else if (text[i] != ' ') code = utf8_code_point(text + i, len);
    m->id[symbols++] = NO_CHARACTER - (int32_t)code;
    i += len > 0 ? (size_t)len : 1;
  }
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

static int put_symbol(const spm *s, int32_t symbol, token_list *out, error *err) {
  char room[4];
  text_view t = symbol_text(s, symbol, room);
  int32_t id = symbol >= 0 ? symbol : token_of(s->v, t.at, t.n);
  if (id >= 0) { vec_push(out, id); return 0; }
  // A vocabulary without "▁" itself: a plain space decodes correctly.
  if (code_of(symbol) == JOINS_BAR) return put_bytes(s, " ", 1, out, err);
  return put_bytes(s, t.at, t.n, out, err);
}

// A part of the text; no merge crosses its ends.
static int encode_part(const spm *s, merger *m, word_cache *words, const char *text, size_t n, bool prefix,
                       token_list *out, error *err) {
  word_entry *cached = prefix ? NULL : word_cache_slot(words, text, n);
  if (word_cache_get(cached, text, n, out)) return 0;
  if (n > PART_BYTES_MAX)
    return error_set(err, "%zu bytes of text that must be merged as a whole are too long (the limit is %zu)", n,
                     PART_BYTES_MAX);
  size_t before = out->n;
  merger_reserve(m, n + 1);
  size_t symbols = set_up(m, text, n, prefix);
  if ((words->at || symbols > KNOWN_FROM) && !m->known) m->known = xcalloc((size_t)1 << KNOWN_BITS, sizeof(known));
  symbols = merger_run(m, symbols, s->n_ranks, find_pair, &(struct merging){s, m->known});
  // allocates for a giant at once: doubling would need half as much again while it copies
  if (symbols > out->cap - out->n && symbols > KNOWN_FROM) {
    out->cap = out->n + symbols;
    out->at = xrealloc(out->at, out->cap * sizeof *out->at);
  }
  for (size_t i = 0; i < symbols; i++) if (put_symbol(s, m->id[i], out, err)) return -1;
  word_cache_put(cached, text, n, out, before);
  return 0;
}

int spm_encode(const spm *s, merger *m, word_cache *words, const char *text, size_t n, bool first, bool open,
               size_t *settled, token_list *out, error *err) {
  bool prefix = first && s->space_prefix;
  size_t from = 0, length;
  uint32_t left = 0;
  int bad = 0;
  for (size_t i = 0; i < n && !bad; i += length) {
    uint32_t symbol = joins_symbol(text + i, n - i, &length), right = symbol == ' ' ? JOINS_BAR : symbol;
    if (i > from && !joins_may(&s->joins, left, right)) {
      bad = encode_part(s, m, words, text + from, i - from, prefix && !from, out, err);
      from = i;
    }
    left = right;
  }
  if (!bad && !open && from < n) {
    bad = encode_part(s, m, words, text + from, n - from, prefix && !from, out, err);
    from = n;
  }
  *settled = from;
  return bad;
}
