// imatrix: the importance of errors in the inputs of each matrix, measured on a text: the mean square of each input. It
// reads both kinds of llama.cpp's files, GGUF and the older one.
#ifndef WEFT_IMATRIX_H
#define WEFT_IMATRIX_H
#include "base/arena.h"
#include "base/base.h"

// weights: for each input, for all matrices in turn
typedef struct imatrix_entry { const char *name; const float *weights; size_t n; } imatrix_entry;
typedef struct imatrix {
  arena *mem;
  imatrix_entry *at;                       // sorted by name
  size_t n;
  const char *dataset;                     // the text's name; NULL: not known
  int64_t chunks;                          // chunks of the text; 0: not known
} imatrix;

// Weights are finite and at least 0. Returns 0 and *out, for imatrix_close; or -1 and what is wrong.
int imatrix_open(const char *path, imatrix *out, error *err);
void imatrix_close(imatrix *m);
const imatrix_entry *imatrix_find(const imatrix *m, const char *name);         // NULL: none
#endif
