// Code books: what codes of some formats stand for, as small constant tables of I8. They are buffers like weights, in a
// range of ids of their own; whoever gives a plan its buffers answers for those ids with codebook_data. Nothing else
// knows about them.
#ifndef WEFT_CODEBOOK_H
#define WEFT_CODEBOOK_H
#include "graph/graph.h"

enum codebook {
  BOOK_IQ2_XXS, BOOK_IQ2_XS, BOOK_IQ2_S,       // magnitudes of 8 weights each
  BOOK_IQ3_XXS, BOOK_IQ3_S,                    // of 4
  BOOK_IQ1,                                    // -8, 0 and 8: eighths of 8 weights
  BOOK_COUNT
};
// buffer of a book: this plus its number. Larger than the ids of all other buffers of a caller
enum { CODEBOOK_IDS = 1 << 29 };

tensor *codebook(graph *g, enum codebook b);   // I8 {entries, weights of an entry}
static inline bool codebook_is(int64_t id) { return id >= CODEBOOK_IDS && id < CODEBOOK_IDS + BOOK_COUNT; }
// of such a buffer; never changes, and 64 bytes past its end may be read. Any thread may call it
void *codebook_data(int64_t id);
#endif
