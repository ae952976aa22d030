// Turns (base/turn.h): one thread at a time, in the order of asking, several times by one thread, and given back when
// die leaves the attempt.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include "base/attempt.h"
#include "base/turn.h"

enum { THREADS = 4, ROUNDS = 20000 };

static turn_lock one;
static long counted;                         // not atomic
static int order[THREADS];
static atomic_int n_order;

static void *count_in_turn(void *ctx) {
  (void)ctx;
  for (int i = 0; i < ROUNDS; i++) {
    turn_take(&one);
    counted++;
    turn_give(&one);
  }
  return NULL;
}

static void one_at_a_time(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  turn_init(&one);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, count_in_turn, NULL), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(counted, THREADS * ROUNDS);
  turn_destroy(&one);
}

static void *note_turn(void *ctx) {
  turn_take(&one);
  order[n_order++] = (int)(intptr_t)ctx;
  turn_give(&one);
  return NULL;
}

static uint64_t asked_now(void) {
  pthread_mutex_lock(&one.lock);
  uint64_t n = one.asked;
  pthread_mutex_unlock(&one.lock);
  return n;
}

// Also this thread, which asks last and gave it back just before.
static void in_order(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  turn_init(&one);
  turn_take(&one);
  turn_take(&one);                           // by its holder
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, note_turn, (void *)(intptr_t)i), 0);
    while (asked_now() < (uint64_t)i + 2) sched_yield();
  }
  turn_give(&one);
  assert_true(turn_is_mine(&one));
  assert_int_equal(n_order, 0);
  turn_give(&one);
  assert_int_equal(asked_now(), 1 + THREADS);
  turn_take(&one);
  assert_int_equal(n_order, THREADS);
  for (int i = 0; i < THREADS; i++) assert_int_equal(order[i], i);
  turn_give(&one);
  assert_false(turn_is_mine(&one));
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  turn_destroy(&one);
}

static void *is_its_turn(void *ctx) { (void)ctx; return turn_is_mine(&one) ? &one : NULL; }

static void take_and_break(void *ctx) {
  (void)ctx;
  turn_take(&one);
  turn_take(&one);
  die("with both");
}

static void break_inside(void *ctx) {
  turn_take(&one);
  assert_int_equal(attempt(ATTEMPT_LEAVES, take_and_break, NULL, ctx), -1);
  assert_true(turn_is_mine(&one));           // what it had taken before
  turn_give(&one);
}

static void given_back(void **state) {
  (void)state;
  error e = {0};
  pthread_t other;
  void *its = &one;
  turn_init(&one);
  assert_int_equal(attempt(ATTEMPT_LEAVES, take_and_break, NULL, &e), -1);
  assert_false(turn_is_mine(&one));
  assert_int_equal(attempt(ATTEMPT_OWNS, break_inside, &e, NULL), 0);
  assert_false(turn_is_mine(&one));
  turn_take(&one);
  pthread_create(&other, NULL, is_its_turn, NULL);
  pthread_join(other, &its);
  assert_null(its);                          // it is this thread's
  turn_give(&one);
  turn_destroy(&one);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_at_a_time), cmocka_unit_test(in_order),
                                     cmocka_unit_test(given_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
