// plamo2: the tokenizer of PLaMo-2: like unigram.h, the segmentation of a text with the best sum of scores, but in
// integers (ten-thousandths), computed from the end of the text, and preferring a longer token among equals. There is
// no normalisation; a character that is not a token costs a thousand and becomes its bytes.
//
// Invariant: the output decodes to the text (a byte order mark at its beginning is dropped). Look next: trie.h,
// decode.c.
#ifndef WEFT_PLAMO2_H
#define WEFT_PLAMO2_H
#include "text/trie.h"
#include "text/vocab.h"

typedef struct plamo2 {
  const vocab *v;
  trie tokens;
  int64_t *cost;                // [id + 1] minus the score in ten-thousandths; of no token, -1, more than any
  int32_t byte_id[256];
} plamo2;

int plamo2_init(plamo2 *p, const vocab *v, arena *mem, error *err);        // v must live as long as p
// Appends the tokens of a stretch of text. -1 if a byte has no token and the model has no unknown token. first: the
// stretch begins here. open: it may continue (after whole characters); *settled bytes have been encoded.
int plamo2_encode(const plamo2 *p, const char *text, size_t n, bool first, bool open, size_t *settled, trie_cost *steps,
                  token_list *out, error *err);
#endif
