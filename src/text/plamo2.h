// plamo2: the tokenizer of PLaMo-2: like unigram.h, the best sum of scores over all ways to cut a text, but in whole
// numbers (ten-thousandths), found from the end of the text, with a longer token winning where two ways are equal.
// There is no normalising; a character that is no token costs a thousand and becomes its bytes.
//
// Invariant: what is put out decodes to the text (a byte order mark at its beginning is dropped).  Look next: trie.h,
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
// Appends the tokens of a stretch of text.  -1 where a byte has no token and the model no unknown token.  first: the
// stretch begins here.  open: it may go on (after whole characters); *settled bytes have been encoded.
int plamo2_encode(const plamo2 *p, const char *text, size_t n, bool first, bool open, size_t *settled, trie_cost *steps,
                  token_list *out, error *err);
#endif
