// Ticket locks: see turn.h.
#include "serve/turn.h"

void turn_init(turn *t) {
  *t = (turn){.next = 0};
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->moved, NULL);
}

void turn_destroy(turn *t) {
  pthread_mutex_destroy(&t->lock);
  pthread_cond_destroy(&t->moved);
}

void turn_take(turn *t) {
  pthread_mutex_lock(&t->lock);
  uint64_t own = t->next++;
  while (own != t->now) pthread_cond_wait(&t->moved, &t->lock);
  pthread_mutex_unlock(&t->lock);
}

void turn_give(turn *t) {
  pthread_mutex_lock(&t->lock);
  t->now++;
  pthread_cond_broadcast(&t->moved);
  pthread_mutex_unlock(&t->lock);
}
