// keep: sequences that nobody uses, in files of a folder, so that the next run of the server finds them, however this
// one ends. One thread uses it: that which leads. A second one, of the lowest priority, writes: it has a copy of the
// sequence, which shares its pages until somebody writes to them, so that steps go on meanwhile.
#ifndef WEFT_SERVE_KEEP_H
#define WEFT_SERVE_KEEP_H
#include <pthread.h>
#include "serve/run.h"

typedef struct keep {
  const char *folder;                  // NULL: there is none, and nothing here does anything
  uint64_t bytes;                      // of all files there
  uint32_t tag;                        // names of files begin with it: those of models with other names are left alone
  weft_model *m;
  VEC(struct kept { char *path; token_ids ids; int32_t *whole; }) files; // whole: see weft_sequence_tokens
  // ---- the thread that writes, and its one job
  pthread_t writer;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool started, stop;
  enum { KEEP_FREE, KEEP_WRITES, KEEP_WRITTEN } state;
  held job;
  char *path;                          // of the job
  weft_error why;                      // it failed; empty: it did not
  double took_s, not_before;           // it rests four times as long as it has written
} keep;

// Learns which sequences of the model called `name` are there. Files that cannot be used stay, with a warning where
// they are damaged.
void keep_open(keep *k, const char *folder, uint64_t bytes, const char *name, weft_model *m);
// How many tokens of a prompt, at most `most`, can be taken up from the file that has most of them; *at: that file.
size_t keep_find(const keep *k, const token_ids *prompt, size_t most, size_t *at);
// That sequence, of the prompt's first n tokens. -1: there is no memory for it; -2: the file is of no use.
int keep_load(keep *k, size_t at, const token_ids *prompt, size_t n, held *out, weft_error *err);
void keep_drop(keep *k, size_t at);                    // removes the file
// h is to be written, and h->kept says that it is, unless the writer is at work or rests: then this does nothing. What
// is short, or in a file already, is kept as it is. Files that hold a beginning of it go, and the oldest ones where all
// are more than `bytes`.
void keep_offer(keep *k, held *h);
bool keep_busy(keep *k);                               // something is being written
void keep_collect(keep *k);                            // takes up what has been written: to be called now and then
void keep_finish(keep *k, held *h);                    // writes h at once, where it is not kept
void keep_close(keep *k);                              // waits for the writer
#endif
