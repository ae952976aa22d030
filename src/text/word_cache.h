// word_cache: the tokens of earlier words. Texts repeat their words, and a look-up costs less than merging.
//
// A table of fixed size with one word per slot; a new word replaces the old one. Long words and those of many tokens
// are not kept. Invariant: a result is the one stored for exactly these bytes. Look next: bpe.h, spm.h.
#ifndef WEFT_WORD_CACHE_H
#define WEFT_WORD_CACHE_H
#include "text/vocab.h"
#include <stdlib.h>
#include <string.h>

enum { WORD_CACHE_SLOTS = 1 << 13, WORD_CACHE_BYTES = 30, WORD_CACHE_IDS = 8 };
typedef struct word_entry { uint8_t n, n_ids; char text[WORD_CACHE_BYTES]; int32_t id[WORD_CACHE_IDS]; } word_entry;
typedef struct word_cache { word_entry *at; } word_cache;  // NULL: no cache, nothing is found

static inline void word_cache_start(word_cache *c) { if (!c->at) c->at = xcalloc(WORD_CACHE_SLOTS, sizeof *c->at); }
static inline void word_cache_free(word_cache *c) { free(c->at); }

// The slot of a word, for the two below; NULL: such words are not kept.
static inline word_entry *word_cache_slot(const word_cache *c, const char *word, size_t n) {
  if (!c->at || !n || n > WORD_CACHE_BYTES) return NULL;
  return &c->at[hash_bytes(word, n, 0) & (WORD_CACHE_SLOTS - 1)];
}
static inline bool word_cache_get(const word_entry *e, const char *word, size_t n, token_list *out) {
  if (!e || e->n != n || memcmp(e->text, word, n)) return false;
  for (size_t i = 0; i < e->n_ids; i++) vec_push(out, e->id[i]);
  return true;
}
// Stores the tokens of out from `from` on, possibly none.
static inline void word_cache_put(word_entry *e, const char *word, size_t n, const token_list *out, size_t from) {
  if (!e || out->n - from > WORD_CACHE_IDS) return;
  e->n = (uint8_t)n, e->n_ids = (uint8_t)(out->n - from);
  memcpy(e->text, word, n);
  for (size_t i = 0; i < e->n_ids; i++) e->id[i] = out->at[from + i];
}
#endif
