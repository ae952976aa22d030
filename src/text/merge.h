// merge: what both BPE algorithms do with a word: again and again, join the two neighbours whose pair ranks best.
//
// A word is a chain of symbols.  A symbol is named by the offset of its first byte in the word; `next` leads to the
// symbol after it (a word's length: none), so its text is [i, next[i]).  Of all neighbouring pairs that `find` knows,
// the one with the lowest rank is merged first, of equal ones the leftmost, until no pair is left.
//
// Words of natural text are short: there, looking for the best pair anew each time is fastest.  A word may also be the
// whole text (10 MB of one letter, or any text for SentencePiece).  Then the candidates wait in one queue per rank.
// Entries come to a queue mostly in the order of their positions, where appending and taking cost a step each; strays
// wait in a small heap beside it.  So time is near-linear in practice, n log n at worst, and the order is exactly the
// one above.
//
// Invariant: id and next agree with each other after every merge; between words all queues are empty. The bytes of a
// symbol behind its first have no neighbours of their own, so the last one holds the way back.
// Look next: bpe.h and spm.h, which set up the chains and say what merges.
#ifndef WEFT_MERGE_H
#define WEFT_MERGE_H
#include "base/base.h"

// Called for neighbours i and j = next[i]: if they merge, sets *rank and *id of the result and returns true.  Must give
// the same answer each time for the same two symbols, that is for the same ids and the same spans of text.
struct merger;
typedef bool merge_find(const void *ctx, const struct merger *m, uint32_t i, uint32_t j, uint32_t *rank, int32_t *id);

// Working memory, kept from word to word.  {0} is a new one.
typedef struct merger {
  int32_t *id;                  // [offset] what the symbol is, as the caller likes: find's result for merged ones
  uint32_t *next;               // [offset] the symbol after this one; at the last of several bytes, where it begins
  size_t cap;
  struct merge_queue *queue;    // the queues in use; queue[0] is not used
  uint32_t n_queues, cap_queues;
  uint32_t *queue_of;           // [rank] index into queue, or 0
  uint32_t *ready; size_t n_ready, cap_ready;   // heap of the ranks whose queues are not empty
} merger;
#define MERGE_NONE UINT32_MAX

void merger_reserve(merger *m, size_t n);                  // room for a word of n bytes; old contents are lost
// Merges the word of n bytes and n_symbols symbols that starts at offset 0.  Ranks are below n_ranks, which is the same
// for all words that a merger sees.
void merger_run(merger *m, uint32_t n, size_t n_symbols, uint32_t n_ranks, merge_find *find, const void *ctx);
void merger_free(merger *m);
#endif
