// room: memory for the tokens that a step evaluates. On devices the cache has a fixed number of pages, which may be
// fewer than all answers need. If there are none left, unused sequences go first: what they hold for shared beginnings,
// then all of it; then the cache of evaluations without a sequence; then the sequences of the answers that began last.
// Those evaluate their tokens again when there is room. So the first answer always goes on.
#ifndef WEFT_SERVE_ROOM_H
#define WEFT_SERVE_ROOM_H
#include "serve/slots.h"

typedef VEC(run *) runs;               // in the order in which they began
// crowded: an answer waits for memory, and the callers have not reset it
typedef struct cache_room { weft_model *m; helds *rest; runs *live; bool crowded; } cache_room;

// For n more tokens of live->at[i]. 0; 1: earlier answers need it, so this one has given its own; -1: no other answer
// holds any, and err has the numbers.
int room_make(cache_room *o, size_t i, size_t n, weft_error *err);
// For an evaluation of n tokens without a sequence, at the cost of any answer, as it ends within the step. If there is
// none, that evaluation fails with the reason.
void room_beside(cache_room *o, size_t n);
#endif
