// Byte-level BPE: see bpe.h.
#include "text/bpe.h"
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES_MAX ((size_t)1 << 28)   // offsets in a chain are 32-bit numbers

// Printable bytes stand for themselves; the 68 others, in order, are the characters from U+0100 on: 0-32, 127-160 and
// 173.
int bpe_byte_char(unsigned char b, char out[4]) {
  uint32_t cp = b <= 32 ? 256u + b : b >= 127 && b <= 160 ? 256u + 33 + (b - 127u) : b == 173 ? 256u + 67 : b;
  return utf8_put(cp, out);
}

static int char_byte(uint32_t cp) {
  if (cp < 256) return cp <= 32 || (cp >= 127 && cp <= 160) || cp == 173 ? -1 : (int)cp;
  if (cp < 256 + 33) return (int)cp - 256;
  if (cp < 256 + 67) return (int)cp - 256 - 33 + 127;
  return cp == 256 + 67 ? 173 : -1;
}

void bpe_decode(text_view text, str *out) {
  for (size_t i = 0; i < text.n;) {
    int len = utf8_next(text.at + i, text.n - i);
    if (len <= 0) { str_addc(out, text.at[i++]); continue; }
    int byte = char_byte(utf8_code_point(text.at + i, len));
    if (byte >= 0) str_addc(out, (char)byte);
    else str_addn(out, text.at + i, (size_t)len);
    i += (size_t)len;
  }
}

// ---- The table of merges ----

struct bpe_pair { int32_t left, right, id; uint32_t rank; };   // rank counts from 1; 0: an empty slot

static uint64_t pair_slot(const bpe *b, int32_t left, int32_t right) {
  return hash_u64((uint64_t)(uint32_t)left << 32 | (uint32_t)right, b->seed) & b->mask;
}

// Merges are looked up in batches, so that many memory accesses run in parallel: this is most of a tokenizer's start-up
// time.
#define BATCH 32
struct pending { text_view left, right; uint64_t hash[3]; uint32_t rank; int32_t id[3]; };

static bool prepare_merge(const bpe *b, text_view merge, uint32_t rank, char *scratch, struct pending *p) {
  if (merge.n < 3 || merge.n > (size_t)b->v->longest + 1) return false;
  // a token may begin with a space, so the first byte is skipped
  const char *space = memchr(merge.at + 1, ' ', merge.n - 1);
  if (!space || space + 1 == merge.at + merge.n) return false;
  p->left = (text_view){merge.at, (size_t)(space - merge.at)};
  p->right = (text_view){space + 1, merge.n - p->left.n - 1};
  memcpy(scratch, p->left.at, p->left.n);
  memcpy(scratch + p->left.n, p->right.at, p->right.n);
  p->hash[0] = vocab_hash(b->v, p->left.at, p->left.n);
  p->hash[1] = vocab_hash(b->v, p->right.at, p->right.n);
  p->hash[2] = vocab_hash(b->v, scratch, p->left.n + p->right.n);
  p->rank = rank;
  for (int i = 0; i < 3; i++) vocab_prefetch(b->v, p->hash[i]);
  return true;
}

static void insert_pair(bpe *b, const struct pending *p) {
  uint64_t i = pair_slot(b, p->id[0], p->id[1]);
  for (; b->pair[i].rank; i = (i + 1) & b->mask)
    if (b->pair[i].left == p->id[0] && b->pair[i].right == p->id[1]) return;
  b->pair[i] = (struct bpe_pair){p->id[0], p->id[1], p->id[2], p->rank + 1};
}

static void insert_batch(bpe *b, struct pending *p, size_t n, char *joined) {
  for (size_t k = 0; k < n; k++) {
    memcpy(joined, p[k].left.at, p[k].left.n);
    memcpy(joined + p[k].left.n, p[k].right.at, p[k].right.n);
    p[k].id[0] = vocab_find_hashed(b->v, p[k].hash[0], p[k].left.at, p[k].left.n);
    p[k].id[1] = vocab_find_hashed(b->v, p[k].hash[1], p[k].right.at, p[k].right.n);
    p[k].id[2] = vocab_find_hashed(b->v, p[k].hash[2], joined, p[k].left.n + p[k].right.n);
    __builtin_prefetch(&b->pair[pair_slot(b, p[k].id[0], p[k].id[1])]);
  }
  for (size_t k = 0; k < n; k++) {
    bool usable = true;
    for (int i = 0; i < 3; i++) usable &= p[k].id[i] >= 0 && vocab_merges_to(b->v, p[k].id[i]);
    if (usable) insert_pair(b, &p[k]);
  }
}

void bpe_init(bpe *b, const vocab *v, const vocab_desc *d, bool whole_words, bool chars, arena *mem) {
  *b = (bpe){.v = v, .whole_words = whole_words, .chars = chars, .seed = v->key.a};
  for (int c = 0; c < 256; c++) {
    char text[4];
    int32_t id = chars ? -1 : vocab_find(v, text, (size_t)bpe_byte_char((unsigned char)c, text));
    b->byte_id[c] = id >= 0 && vocab_merges_to(v, id) ? id : vocab_byte(v, (unsigned char)c);
  }
  // Ranks are 32-bit numbers; real files have far fewer merges.
  b->n_ranks = d->n_merges < UINT32_MAX - 1 ? (uint32_t)d->n_merges : UINT32_MAX - 1;
  uint64_t slots = 16;
  while (slots < (uint64_t)b->n_ranks + b->n_ranks / 2) slots *= 2;
  b->mask = slots - 1;
  b->pair = ARENA_ARRAY(mem, struct bpe_pair, slots);
  char *scratch = xmalloc((size_t)v->longest + 1);
  struct pending batch[BATCH];
  size_t n = 0;
  for (uint32_t r = 0; r < b->n_ranks; r++) {
    if (prepare_merge(b, d->merge(d->ctx, r), r, scratch, &batch[n])) n++;
    if (n == BATCH) { insert_batch(b, batch, n, scratch); n = 0; }
  }
  insert_batch(b, batch, n, scratch);
  free(scratch);
  // A merge that names the unknown token joins it with its neighbour, whatever text the unknown token replaced.
  int32_t unknown = vocab_unknown(v);
  b->cuts = chars && !whole_words && (unknown < 0 || !vocab_merges_to(v, unknown));
  if (b->cuts) joins_init(&b->joins, v, mem);
}

// ---- Encoding ----

static bool find_merge(const void *ctx, int32_t left, int32_t right, uint32_t *rank, int32_t *id) {
  const bpe *b = ctx;
  for (uint64_t s = pair_slot(b, left, right); b->pair[s].rank; s = (s + 1) & b->mask)
    if (b->pair[s].left == left && b->pair[s].right == right) {
      *rank = b->pair[s].rank - 1;
      *id = b->pair[s].id;
      return true;
    }
  return false;
}

int32_t bpe_whole(const bpe *b, const char *word, size_t n) {
  char text[1024];
  size_t len = 0;
  if (n > b->v->longest) return -1;
  for (size_t i = 0; i < n && !b->chars; i++) {
    if (len + 4 > sizeof text) return -1;                 // no vocabulary has words of this length
    len += (size_t)bpe_byte_char((unsigned char)word[i], text + len);
  }
  int32_t id = b->chars ? vocab_find(b->v, word, n) : vocab_find(b->v, text, len);
  return id >= 0 && vocab_merges_to(b->v, id) ? id : -1;
}

// Makes symbols from characters that are tokens, and from bytes otherwise. Returns their number, 0 for an error.
static size_t set_up_chars(const bpe *b, merger *m, const char *word, size_t n, error *err) {
  size_t symbols = 0;
  for (size_t i = 0, next; i < n; i = next) {
    int len = utf8_next(word + i, n - i);
    if (len <= 0) len = 1;
    next = i + (size_t)len;
    int32_t id = bpe_whole(b, word + i, (size_t)len);
    // converted from a space: see PRE_BARS
    if (id < 0 && len == 3 && !memcmp(word + i, "\xE2\x96\x81", 3)) id = b->byte_id[' '];
    bool bytes = id < 0;
    for (size_t k = i; bytes && k < next; k++) bytes = b->byte_id[(unsigned char)word[k]] >= 0;
    if (id < 0 && !bytes && (id = vocab_unknown(b->v)) < 0) {
      vocab_no_token(b->v, word + i, (size_t)len, err);
      return 0;
    }
    for (size_t k = i; k < next; k += bytes ? 1 : (size_t)len)
      m->id[symbols++] = bytes ? b->byte_id[(unsigned char)word[k]] : id;
  }
  return symbols;
}

// A byte without a token, if no unknown token replaces it, is a symbol that merges with nothing and is not output.
static size_t set_up_bytes(const bpe *b, merger *m, const char *word, size_t n) {
  for (size_t i = 0; i < n; i++) {
    int32_t id = b->byte_id[(unsigned char)word[i]];
    m->id[i] = id >= 0 ? id : vocab_unknown(b->v);
  }
  return n;
}

static int encode_merged_word(const bpe *b, merger *m, word_cache *words, const char *word, size_t n, token_list *out,
                              error *err) {
  word_entry *known = word_cache_slot(words, word, n);
  if (word_cache_get(known, word, n, out)) return 0;
  size_t before = out->n;
  if (b->whole_words || (n == 1 && !b->chars)) {
    int32_t id = n == 1 && !b->chars ? b->byte_id[(unsigned char)word[0]] : bpe_whole(b, word, n);
    if (id >= 0) {
      vec_push(out, id);
      word_cache_put(known, word, n, out, before);
      return 0;
    }
  }
  if (n > WORD_BYTES_MAX)
    return error_set(err, "a word of %zu bytes is too long (the limit is %zu)", n, WORD_BYTES_MAX);
  merger_reserve(m, n);
  size_t symbols = b->chars ? set_up_chars(b, m, word, n, err) : set_up_bytes(b, m, word, n);
  if (!symbols) return -1;
  symbols = merger_run(m, symbols, b->n_ranks, find_merge, b);
  for (size_t i = 0; i < symbols; i++) if (m->id[i] >= 0) vec_push(out, m->id[i]);
  word_cache_put(known, word, n, out, before);
  return 0;
}

int bpe_encode(const bpe *b, merger *m, word_cache *words, const char *word, size_t n, token_list *out, error *err) {
  size_t from = 0, length;
  uint32_t left = 0;
  for (size_t i = 0; b->cuts && i < n; i += length) {
    uint32_t right = joins_symbol(word + i, n - i, &length);
    if (i && !joins_may(&b->joins, left, right)) {
      if (encode_merged_word(b, m, words, word + from, i - from, out, err)) return -1;
      from = i;
    }
    left = right;
  }
  return encode_merged_word(b, m, words, word + from, n - from, out, err);
}
