// turn: threads that take steps of models take turns, in the order in which they came, since the processors are enough
// for one of them only: two that wait at barriers beside each other would hold each other up. Who loads a model takes
// none: that shares the processors with the steps of others as any program does (their largest pause was 20 to 77 ms,
// and 120 where loading took turns, piece by piece).
#ifndef WEFT_SERVE_TURN_H
#define WEFT_SERVE_TURN_H
#include <pthread.h>
#include <stdint.h>

typedef struct turn { pthread_mutex_t lock; pthread_cond_t moved; uint64_t next, now; } turn;
void turn_init(turn *t);
void turn_destroy(turn *t);
void turn_take(turn *t);
void turn_give(turn *t);
#endif
