// sequence_spill: sequences that nobody uses, in files of a folder (weft_store), so that the next run of the server
// finds them, however this one ends. One thread uses it: that which leads. A second one, of the lowest priority,
// writes: it has a copy of the sequence, which shares its pages until somebody writes to them, so that steps go on
// meanwhile. Before that it waits until the content of the model's files is known (weft_model_content): till then
// nothing is found.
#ifndef WEFT_SERVE_KEEP_H
#define WEFT_SERVE_KEEP_H
#include <pthread.h>
#include "serve/log.h"
#include "serve/run.h"

typedef struct spill {
  weft_model *model;
  server_log *log;
  char *folder;                        // NULL: there is none, and nothing here does anything
  uint64_t bytes;
  weft_store *store;                   // of the thread that leads; NULL: not yet, or there is none
  // ---- the thread that writes, and its one job
  pthread_t writer;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  weft_store *opened;                  // for the other one to take up
  bool started, stop, failed, hurries; // failed: there will be no store; hurries: the end does not wait for it any more
  enum spill_state { SPILL_FREE, SPILL_WRITES, SPILL_WRITTEN } state;
  held job;
  weft_error why;                      // it failed; empty: it did not
  double took_s, not_before;           // it rests four times as long as it has written
} spill;

// folder NULL: there is none. What else: weft_store_open. What is known of the model's files from an earlier run is
// there at once; else the other thread opens the store, later.
void spill_open(spill *k, const char *folder, uint64_t bytes, server_log *log, weft_model *m);
// How many tokens of a prompt, at most `most`, can be taken up from files.
size_t spill_find(spill *k, const token_ids *prompt, size_t most);
// That sequence, of the prompt's first tokens, at most n. Otherwise what weft_store_load says.
int spill_load(spill *k, const token_ids *prompt, size_t n, held *out, weft_error *err);
// h is to be written, and h->kept says that it is, unless the writer is at work or rests: then this does nothing. What
// is short, or in files already, is kept as it is.
void spill_offer(spill *k, held *h);
bool spill_waits(spill *k);                              // there is a folder, and something may be written to it
bool spill_busy(spill *k);                               // something is being written
void spill_collect(spill *k);                            // takes up what has been written: to be called now and then
void spill_finish(spill *k, held *h);                    // writes h at once, where it is not kept
void spill_close(spill *k);                              // waits for the writer
#endif
