// unigram: SentencePiece's Unigram model (T5, XLM-RoBERTa and similar): of all segmentations of a text into tokens, the
// one with the best sum of scores. The text is first normalised by the model's charsmap, its spaces become "▁", and one
// is prepended.
//
// Segmentations are compared from left to right: best[p] is the best one that ends at place p. If no token crosses a
// place, the text before it is settled; it is output at once, and sums begin anew, so that memory and rounding do not
// grow with the text. A character that is not a token costs ten more than the worst token and becomes its bytes, if the
// vocabulary has all of them, or the unknown token, one for all such characters in a row.
//
// Replacements are bounded by the model, and the steps through the trie are counted (trie.h), so time is linear in the
// text. Invariant: only NORMAL tokens and similar ones (vocab_merges_to) come from text. Look next: charsmap.h, trie.h,
// decode.c.
#ifndef WEFT_UNIGRAM_H
#define WEFT_UNIGRAM_H
#include "text/charsmap.h"
#include "text/trie.h"
#include "text/vocab.h"

typedef struct unigram {
  const vocab *v;
  charsmap map;
  trie tokens;
  int32_t unknown;              // or -1
  int32_t byte_id[256];         // "<0xXX>", or -1
  bool bytes;                   // all 256 exist
  bool space_prefix;            // a space goes before the text and after each special token
  bool single_spaces;           // runs of spaces become one; those at the ends are dropped
  float *score;                 // of the token that ends at a node of the trie; the worst of all if none does
  double unknown_score;
} unigram;

// The state of a stretch of text. {0}: at its beginning.
typedef struct unigram_state {
  bool after_space, started;    // normalising: spaces wait to be output; output has begun
  bool last_unknown;            // encoding: the last token is the unknown one
  size_t taken, replaced;       // bytes so far: of the text, and of the replacements
} unigram_state;

// v and the map's bytes must live as long as u.
int unigram_init(unigram *u, const vocab *v, const charsmap *map, bool space_prefix, bool single_spaces, arena *mem,
                 error *err);
// Appends the normalised form of the next n bytes of a stretch of text between special tokens. open: it may continue;
// *taken bytes have been normalised.
int unigram_normalize(const unigram *u, unigram_state *s, const char *text, size_t n, bool open, size_t *taken,
                      str *out, error *err);
// Appends the tokens of normalised text. -1 if a character has no token and the model has no unknown token. open: the
// text may continue; *settled bytes have been encoded.
int unigram_encode(const unigram *u, unigram_state *state, const char *normal, size_t n, bool open, size_t *settled,
                   trie_cost *cost, token_list *out, error *err);
#endif
