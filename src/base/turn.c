// A lock in the order of asking: see turn.h.
#include "base/turn.h"
#include "base/attempt.h"

void turn_init(turn_lock *t) {
  *t = (turn_lock){0};
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->changed, NULL);
}

void turn_destroy(turn_lock *t) {
  pthread_mutex_destroy(&t->lock);
  pthread_cond_destroy(&t->changed);
}

static bool is_holder(const turn_lock *t) { return t->depth && pthread_equal(t->holder, pthread_self()); }

bool turn_is_mine(turn_lock *t) {
  pthread_mutex_lock(&t->lock);
  bool mine = is_holder(t);
  pthread_mutex_unlock(&t->lock);
  return mine;
}

static void give_one(void *at) {
  turn_lock *t = at;
  pthread_mutex_lock(&t->lock);
  if (!--t->depth) {
    t->served++;
    pthread_cond_broadcast(&t->changed);
  }
  pthread_mutex_unlock(&t->lock);
}

void turn_take(turn_lock *t) {
  pthread_mutex_lock(&t->lock);
  if (!is_holder(t)) {
    uint64_t mine = t->asked++;
    while (t->served != mine) pthread_cond_wait(&t->changed, &t->lock);
    t->holder = pthread_self();
  }
  t->depth++;
  pthread_mutex_unlock(&t->lock);
  attempt_holds(give_one, t);
}

void turn_give(turn_lock *t) {
  attempt_gives_back(t);
  give_one(t);
}
