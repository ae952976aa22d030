// merge: the core of both BPE algorithms: repeatedly joins the two neighbours of a word whose pair has the best rank.
//
// A word is a row of symbols, which are numbers chosen by the caller. Of all neighbouring pairs that `find` knows, the
// one with the lowest rank is merged first, of equal ones the leftmost, until no pair is left.
//
// Words of natural text are short: for them, searching for the best pair anew each time is fastest. A word may also be
// the whole text (10 MB of one letter, or any text for SentencePiece). Then the candidates wait in one queue per rank.
// Entries arrive mostly in the order of their positions, which costs one step each; the others wait in a small heap
// next to it. So time is near-linear in practice, n log n at worst, and the order is exactly the one above.
//
// Invariant: between words all queues are empty. In a long word a merged symbol is stored at the place of its first
// symbol. The number of its symbols is stored there and at the place of its last one, so that it can be found from both
// sides. Look next: bpe.h and spm.h, which set up the symbols and define the merges.
#ifndef WEFT_MERGE_H
#define WEFT_MERGE_H
#include "base/base.h"

// Whether two neighbours merge: then *rank and *id of the result.  Must give the same answer each time.
typedef bool merge_find(const void *ctx, int32_t left, int32_t right, uint32_t *rank, int32_t *id);

// Working memory, kept from word to word.  {0} is a new one.
typedef struct merger {
  int32_t *id;                  // [symbol] any number but INT32_MIN
  uint16_t *span;               // [symbol] the number of merged symbols, at the first and the last of them
  size_t cap;
  struct merge_queue *queue;    // the queues in use; queue[0] is not used
  uint32_t n_queues, cap_queues;
  uint32_t *queue_of;           // [rank] index into queue, or 0
  uint32_t *ready; size_t n_ready, cap_ready;   // heap of the ranks whose queues are not empty
  void *known;                  // a cache for the caller's `find`
} merger;
#define MERGE_NONE UINT32_MAX

void merger_reserve(merger *m, size_t n);                  // room for n symbols; old contents are lost
// Merges the n symbols in m->id, and returns how many are left there. None is made of more than 65,535. Ranks are below
// n_ranks. All words of a merger have the same n_ranks and the same answers of `find`.
size_t merger_run(merger *m, size_t n, uint32_t n_ranks, merge_find *find, const void *ctx);
void merger_free(merger *m);
#endif
