// turn: step threads of models run one at a time, in order of arrival, because the processors suffice for one: two
// teams with barriers would delay each other. Loading takes no turn: it shares the processors with steps like any
// program (the longest pause of steps was 20 to 77 ms, and 120 ms if loading took turns in pieces).
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
