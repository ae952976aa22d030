// room: memory for the tokens that a step evaluates. On devices the cache has a fixed number of pages, which may be
// fewer than all answers need. If there are none left, the cache of evaluations without a sequence goes first, then
// unused sequences: what they hold for shared beginnings, then all of it. The first answer then takes the sequences of
// those that began last, and another one gives its own. They evaluate their tokens again when an answer has ended. So
// the first answer always goes on.
#ifndef WEFT_SERVE_ROOM_H
#define WEFT_SERVE_ROOM_H
#include "serve/slots.h"

typedef VEC(run *) runs;               // in the order in which they began
// crowded: an answer waits for memory until one ends; texts_wait: a text does, and no further answers begin. Both are
// reset by the callers.
// yields: how often answers have given theirs.
typedef struct cache_room {
  weft_model *m;
  helds *rest;
  runs *live;
  bool crowded, texts_wait;
  uint64_t yields;
} cache_room;

// For n more tokens of live->at[i]. 0; 1: others hold it, so this one has given its own; -1: no other answer holds any,
// and err has the numbers.
int room_make(cache_room *o, size_t i, size_t n, weft_error *err);
// For an evaluation of n tokens without a sequence. false: answers hold it. If there are none, that evaluation fails
// with the reason.
bool room_beside(cache_room *o, size_t n);
#endif
