// keep: sequences that nobody uses, in files of a folder (weft_store), so that the next run of the server finds them,
// however this one ends. One thread uses it: that which leads. A second one, of the lowest priority, writes: it has a
// copy of the sequence, which shares its pages until somebody writes to them, so that steps go on meanwhile.
#ifndef WEFT_SERVE_KEEP_H
#define WEFT_SERVE_KEEP_H
#include <pthread.h>
#include "serve/run.h"

typedef struct keep {
  weft_store *store;                   // NULL: there is none, and nothing here does anything
  // ---- the thread that writes, and its one job
  pthread_t writer;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool started, stop;
  enum keep_state { KEEP_FREE, KEEP_WRITES, KEEP_WRITTEN } state;
  held job;
  weft_error why;                      // it failed; empty: it did not
  double took_s, not_before;           // it rests four times as long as it has written
} keep;

// folder NULL: there is none. What else: weft_store_open.
void keep_open(keep *k, const char *folder, uint64_t bytes, const char *name, weft_model *m);
// How many tokens of a prompt, at most `most`, can be taken up from files.
size_t keep_find(const keep *k, const token_ids *prompt, size_t most);
// That sequence, of the prompt's first tokens, at most n. Otherwise what weft_store_load says.
int keep_load(keep *k, const token_ids *prompt, size_t n, held *out, weft_error *err);
// h is to be written, and h->kept says that it is, unless the writer is at work or rests: then this does nothing. What
// is short, or in files already, is kept as it is.
void keep_offer(keep *k, held *h);
bool keep_busy(keep *k);                               // something is being written
void keep_collect(keep *k);                            // takes up what has been written: to be called now and then
void keep_finish(keep *k, held *h);                    // writes h at once, where it is not kept
void keep_close(keep *k);                              // waits for the writer
#endif
