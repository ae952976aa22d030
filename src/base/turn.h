// turn_lock: a lock that threads get in the order in which they ask for it, so that one that takes it again and again
// keeps no other waiting for more than one of its turns. A thread may take it several times, and gives it back as
// often. If die leaves the attempt (attempt.h) in which it was taken, it is given back.
#ifndef WEFT_TURN_H
#define WEFT_TURN_H
#include <pthread.h>
#include "base/base.h"

typedef struct turn_lock {
  pthread_mutex_t lock;            // of the fields below
  pthread_cond_t changed;
  uint64_t asked, served;          // threads that have asked, and those that have given it back
  pthread_t holder;                // if depth > 0
  int depth;                       // how often the holder has taken it
} turn_lock;

void turn_init(turn_lock *t);
void turn_destroy(turn_lock *t);        // while it is free
void turn_take(turn_lock *t);
void turn_give(turn_lock *t);
bool turn_is_mine(turn_lock *t);        // does this thread hold it?
#endif
