// keep: sequences that nobody uses, in files of a folder from one run of the server to the next. One thread uses it: that which leads.
#ifndef WEFT_SERVE_KEEP_H
#define WEFT_SERVE_KEEP_H
#include "serve/run.h"

typedef struct keep {
  const char *folder;                  // NULL: there is none, and nothing here does anything
  weft_model *m;
  VEC(struct kept { char *path; token_ids ids; }) files;
} keep;

// Learns which sequences of this model are there. Files that cannot be used stay, with a warning where they are damaged.
void keep_open(keep *k, const char *folder, weft_model *m);
void keep_close(keep *k);
// How many tokens of a prompt, at most `most`, the file that has most of them has; *at: that file.
size_t keep_find(const keep *k, const token_ids *prompt, size_t most, size_t *at);
// That sequence, of the prompt's first n tokens. -1: there is no memory for it; -2: the file is of no use.
int keep_load(keep *k, size_t at, const token_ids *prompt, size_t n, held *out, weft_error *err);
void keep_drop(keep *k, size_t at);                    // removes the file
// Writes h to a file, unless it is short or there is one that has all of it; files that hold a beginning of it go.
void keep_save(keep *k, const held *h);
// Removes files, those first that were written first, until no more than `bytes` are left.
void keep_trim(keep *k, uint64_t bytes);
#endif
