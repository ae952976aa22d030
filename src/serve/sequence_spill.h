// sequence_spill: saves unused sequences in files of a folder (weft_store), so that the next run of the server finds
// them, however this one ends. The step thread uses it. A second thread with the lowest priority writes: it has a copy
// of the sequence, which shares its pages until they are written to, so that steps continue meanwhile. It first waits
// until the content of the model's files is known (weft_model_content); until then nothing is found.
#ifndef WEFT_SERVE_KEEP_H
#define WEFT_SERVE_KEEP_H
#include <pthread.h>
#include "serve/log.h"
#include "serve/run.h"

typedef struct spill {
  weft_model *model;
  server_log *log;
  char *folder;                        // NULL: disabled
  uint64_t bytes;
  weft_store *store;                   // of the step thread; NULL: not yet, or none
  // ---- the writing thread, and its single job
  pthread_t writer;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  weft_store *opened;                  // to be taken over by the step thread
  bool started, stop, failed, hurries; // failed: there will be no store; hurries: the shutdown does not wait any longer
  enum spill_state { SPILL_FREE, SPILL_WRITES, SPILL_WRITTEN } state;
  held job;
  weft_error why;                      // its error; empty: none
  double took_s, not_before;           // it pauses four times as long as it has written
} spill;

// folder NULL: disabled. Otherwise as weft_store_open. If an earlier run knows the content of the model's files, the
// store is available at once; otherwise the other thread opens it later.
void spill_open(spill *k, const char *folder, uint64_t bytes, server_log *log, weft_model *m);
// Number of prompt tokens, at most `most`, that can be loaded from files.
size_t spill_find(spill *k, const token_ids *prompt, size_t most);
// Loads that sequence, at most n of the prompt's tokens. Other results as weft_store_load.
int spill_load(spill *k, const token_ids *prompt, size_t n, held *out, weft_error *err);
// Offers h for writing and sets h->kept, unless the writer is busy or pauses. Short sequences and those already in
// files only set h->kept.
void spill_offer(spill *k, held *h);
bool spill_waits(spill *k);                              // there is a folder, and something may be written
bool spill_busy(spill *k);                               // a write is in progress
void spill_collect(spill *k);                            // takes over finished writes: call it periodically
void spill_finish(spill *k, held *h);                    // writes h now, unless it is kept
void spill_close(spill *k);                              // waits for the writer
#endif
