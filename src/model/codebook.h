// Code books: the values that codes of some formats stand for, as small constant tables of I8. They are buffers like
// weights, with ids of their own; callers that give a plan its buffers get those with codebook_data.
#ifndef WEFT_CODEBOOK_H
#define WEFT_CODEBOOK_H
#include "graph/graph.h"

enum codebook {
  BOOK_IQ2_XXS, BOOK_IQ2_XS, BOOK_IQ2_S,       // magnitudes of 8 weights each
  BOOK_IQ3_XXS, BOOK_IQ3_S,                    // of 4
  BOOK_IQ1,                                    // -8, 0 and 8: eighths, of 8 weights
  BOOK_COUNT
};
// A book's buffer id is this plus its number. It is larger than all other buffer ids of a caller.
enum { CODEBOOK_IDS = 1 << 29 };

tensor *codebook(graph *g, enum codebook b);   // I8 {entries, weights per entry}
static inline bool codebook_is(int64_t id) { return id >= CODEBOOK_IDS && id < CODEBOOK_IDS + BOOK_COUNT; }
// The contents of such a buffer: constant, and readable for 64 bytes past the end. Any thread may call it.
void *codebook_data(int64_t id);
#endif
