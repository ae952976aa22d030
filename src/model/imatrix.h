// imatrix: how much errors in the inputs of each matrix matter, measured on a text: the mean square of each input.
// llama.cpp's files, of both kinds: GGUF, and the older one.
#ifndef WEFT_IMATRIX_H
#define WEFT_IMATRIX_H
#include "base/arena.h"
#include "base/base.h"

// of a tensor: for each input, for all matrices in turn
typedef struct imatrix_entry { const char *name; const float *weights; size_t n; } imatrix_entry;
typedef struct imatrix {
  arena *mem;
  imatrix_entry *at;                       // sorted by name
  size_t n;
  const char *dataset;                     // the text's name; NULL: not known
  int64_t chunks;                          // of it; 0: not known
} imatrix;

// Weights are finite and at least 0.  0 and *out, for imatrix_close; -1 and what is wrong.
int imatrix_open(const char *path, imatrix *out, error *err);
void imatrix_close(imatrix *m);
const imatrix_entry *imatrix_find(const imatrix *m, const char *name);         // NULL: none
#endif
