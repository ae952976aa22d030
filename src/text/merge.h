// merge: what both BPE algorithms do with a word: again and again, join the two neighbours whose pair ranks best.
//
// A word is a row of symbols, each a number of its caller's.  Of all neighbouring pairs that `find` knows, the one with
// the lowest rank is merged first, of equal ones the leftmost, until no pair is left.
//
// Words of natural text are short: there, looking for the best pair anew each time is fastest.  A word may also be the
// whole text (10 MB of one letter, or any text for SentencePiece).  Then the candidates wait in one queue per rank.
// Entries come to a queue mostly in the order of their positions, where appending and taking cost a step each; strays
// wait in a small heap beside it.  So time is near-linear in practice, n log n at worst, and the order is exactly the
// one above.
//
// Invariant: between words all queues are empty. In a long word a symbol stands at the place of its first one; how many
// it was made of stands there and at the place of its last one, which is the way back.
// Look next: bpe.h and spm.h, which set up the symbols and say what merges.
#ifndef WEFT_MERGE_H
#define WEFT_MERGE_H
#include "base/base.h"

// Whether two neighbours merge: then *rank and *id of the result.  Must give the same answer each time.
typedef bool merge_find(const void *ctx, int32_t left, int32_t right, uint32_t *rank, int32_t *id);

// Working memory, kept from word to word.  {0} is a new one.
typedef struct merger {
  int32_t *id;                  // [symbol] any number but INT32_MIN
  uint16_t *span;               // [symbol] how many it was made of, there and at the last of them
  size_t cap;
  struct merge_queue *queue;    // the queues in use; queue[0] is not used
  uint32_t n_queues, cap_queues;
  uint32_t *queue_of;           // [rank] index into queue, or 0
  uint32_t *ready; size_t n_ready, cap_ready;   // heap of the ranks whose queues are not empty
  void *known;                  // what the caller's `find` remembers, for free
} merger;
#define MERGE_NONE UINT32_MAX

void merger_reserve(merger *m, size_t n);                  // room for n symbols; old contents are lost
// Merges the n symbols in m->id, and returns how many are left there.  None is made of more than 65,535.  Ranks are
// below n_ranks.  All words that a merger sees have the same n_ranks and the same answers of `find`.
size_t merger_run(merger *m, size_t n, uint32_t n_ranks, merge_find *find, const void *ctx);
void merger_free(merger *m);
#endif
