// Accounts of memory and processor time.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include <string.h>
#include "base/account.h"
#include "base/arena.h"

static account root(size_t most) { return (account){.most = most, .most_ns = INT64_MAX, .bytes_option = "--all"}; }
static account below(account *up, size_t most) {
  return (account){.up = up, .most = most, .most_ns = INT64_MAX, .bytes_option = "--one", .time_option = "--time"};
}

static void takes_and_gives(void **state) {
  (void)state;
  account all = root(100), one = below(&all, 60), other = below(&all, 60);
  assert_null(account_take(&one, 50));
  assert_int_equal(account_left(&one), 10);
  assert_int_equal(account_left(&other), 50);
  assert_ptr_equal(account_take(&one, 11), &one);            // and nothing has changed
  assert_ptr_equal(account_take(&other, 51), &all);
  assert_ptr_equal(account_take(&one, SIZE_MAX), &one);      // nor does it wrap
  assert_int_equal(one.bytes, 50);
  assert_int_equal(other.bytes, 0);
  account_add(&other, 70);                                   // what exists already counts in any case
  assert_int_equal(account_left(&other), 0);
  account_give(&other, 30);
  account_close(&one);
  assert_int_equal(all.bytes, 40);
  assert_int_equal(all.peak, 120);
  account_close(&other);
  assert_int_equal(all.bytes, 0);
}

// A part of what all have is for those that hold little.
static void some_is_for_small_ones(void **state) {
  (void)state;
  account all = root(1000), large = below(&all, 900), small = below(&all, 900);
  all.spare = 160;                                           // and little is 10
  assert_int_equal(account_left(&large), 840);
  assert_null(account_take(&large, 840));
  assert_ptr_equal(account_take(&large, 1), &all);
  assert_true(account_is_crowded(&large));
  assert_int_equal(account_left(&small), 10);
  assert_null(account_take(&small, 10));
  assert_ptr_equal(account_take(&small, 1), &all);
  assert_int_equal(account_left(&small), 0);
  account_close(&large);
  assert_int_equal(account_left(&small), 830);
  assert_null(account_take(&small, 830));
  account_close(&small);
  assert_int_equal(all.bytes, 0);
}

static uint64_t system_has;
static uint64_t ask_system(void) { return system_has; }

// What the system has left bounds those that hold much, whatever the account itself allows.
static void the_system_has_less(void **state) {
  (void)state;
  enum { MIB = 1 << 20 };
  account all = root((size_t)1 << 40), large = below(&all, SIZE_MAX), small = below(&all, SIZE_MAX);
  all.system = ask_system;
  all.keep = 10 * MIB;
  system_has = 40 * MIB;
  assert_null(account_take(&large, 10 * MIB));
  assert_ptr_equal(account_take(&large, 10 * MIB + 1), &all);
  assert_true(all.scarce);
  assert_int_equal(all.bytes, 10 * MIB);
  system_has = 9 * MIB;
  assert_ptr_equal(account_take(&large, 1), &all);
  assert_null(account_take(&small, 200 << 10));
  assert_ptr_equal(account_take(&small, 100 << 10), &all);
  error err = {0};
  assert_int_equal(account_take_for(&large, MIB, &err), -1);
  assert_non_null(strstr(err.text, "the system has too little left"));
  system_has = 40 * MIB;
  assert_null(account_take(&large, 10 * MIB));
  assert_false(all.scarce);
  account_close(&large);
  account_close(&small);
  assert_int_equal(all.bytes, 0);
}

// Why a small one is refused: by the limit, though the system had too little for a large one before.
static void the_reason_is_its_own(void **state) {
  (void)state;
  enum { MIB = 1 << 20 };
  account all = root(MIB), large = below(&all, SIZE_MAX), small[6];
  error err = {0};
  all.system = ask_system;
  system_has = 0;
  assert_int_equal(account_take_for(&large, 512 << 10, &err), -1);
  assert_non_null(strstr(err.text, "the system has too little left"));
  err.text[0] = 0;
  for (size_t i = 0; i < COUNT(small); i++) {
    small[i] = below(&all, SIZE_MAX);
    assert_int_equal(account_take_for(&small[i], 200 << 10, &err), i < 5 ? 0 : -1);
  }
  assert_null(strstr(err.text, "the system has too little left"));
  assert_non_null(strstr(err.text, "is the most"));
  for (size_t i = 0; i < COUNT(small); i++) account_close(&small[i]);
  assert_int_equal(all.bytes, 0);
}

enum { ROUNDS = 3000000 };
static void *take_too_much(void *up) {
  account one = below(up, SIZE_MAX);
  for (int i = 0; i < ROUNDS; i++) if (!account_take(&one, 90)) return up;
  return NULL;
}

// While takes are refused on one thread, there is as much room as before for another one.
static void what_is_refused_takes_no_room(void **state) {
  (void)state;
  account all = root(100), other = below(&all, 60);
  pthread_t thread;
  void *took;
  assert_null(account_take(&other, 20));
  assert_int_equal(pthread_create(&thread, NULL, take_too_much, &all), 0);
  int refused = 0;
  for (int i = 0; i < ROUNDS; i++) {
    if (account_take(&other, 30)) refused++;
    else account_give(&other, 30);
  }
  pthread_join(thread, &took);
  assert_null(took);
  assert_int_equal(refused, 0);
}

static void arenas_charge_the_thread(void **state) {
  (void)state;
  account all = root(SIZE_MAX), one = below(&all, 1 << 20);
  error err = {0};
  arena *free_of_charge = arena_new();
  account_scope before = account_enter(&one);
  arena *a = arena_new();
  arena_alloc(a, 1000);
  arena_alloc(free_of_charge, 1000);
  assert_true(one.bytes >= 1000 && one.bytes == all.bytes);
  assert_int_equal(account_check(&err), 0);
  arena_alloc(a, 2 << 20);
  assert_int_equal(account_check(&err), -1);
  assert_non_null(strstr(err.text, "1 MB is the most (--one)"));
  account_leave(before);
  assert_null(account_here());
  assert_int_equal(account_check(NULL), 0);                  // whoever works for nobody may
  arena_alloc(a, 3 << 20);                                   // still charges whom it was made for
  arena_free(a);
  arena_free(free_of_charge);
  assert_int_equal(all.bytes, 0);
}

static void time_is_limited(void **state) {
  (void)state;
  account one = {.most = SIZE_MAX, .most_ns = 20000000, .time_option = "--time"};
  error err = {0};
  unsigned steps = 0;
  account_scope before = account_enter(&one), inner = account_enter(NULL);
  assert_int_equal(account_check(NULL), 0);
  account_leave(inner);
  assert_ptr_equal(account_here(), &one);
  while (!account_step(&steps, &err)) assert_true(steps < 4000000000u);
  account_leave(before);
  assert_non_null(strstr(err.text, "is the most (--time)"));
  assert_true(one.ns >= 20000000);
}

static void says_who_holds_it(void **state) {
  (void)state;
  account all = root(100), one = below(&all, 60), other = below(&all, 60);
  account_add(&other, 60);
  account_add(&one, 40);
  assert_true(account_is_crowded(&one));                     // it had 20 left, and all together none
  account_give(&other, 60);
  account_add(&one, 20);
  assert_false(account_is_crowded(&one));
  assert_false(account_is_crowded(NULL));
  // whose account is full when something is taken or looked at, whatever has come back a moment later
  for (int crowded = 0; crowded < 2; crowded++) {
    account few = root(crowded ? 50 : 1000), mine = below(&few, 100);
    account_scope before = account_enter(&mine);
    assert_int_equal(account_take_here(200, NULL), -1);
    assert_false(mine.crowded);                              // more than it may ever have
    assert_int_equal(account_take_here(80, NULL), crowded ? -1 : 0);
    assert_true(mine.crowded == crowded);
    mine.crowded = false;
    account_add(&mine, crowded ? 80 : 200);
    assert_int_equal(account_check(NULL), -1);
    assert_true(mine.crowded == crowded);
    account_leave(before);
  }
}

static void *take_often(void *arg) {
  account one = below(arg, SIZE_MAX);
  for (int i = 0; i < 20000; i++) {
    if (!account_take(&one, 3)) account_give(&one, 3);
    account_add(&one, 1);
  }
  account_close(&one);
  return NULL;
}

static void many_threads(void **state) {
  (void)state;
  account all = root(30000);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_often, &all), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_int_equal(all.bytes, 0);
  assert_true(all.peak > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(takes_and_gives),
    cmocka_unit_test(some_is_for_small_ones),
    cmocka_unit_test(the_system_has_less),
    cmocka_unit_test(the_reason_is_its_own),
    cmocka_unit_test(what_is_refused_takes_no_room),
    cmocka_unit_test(arenas_charge_the_thread),
    cmocka_unit_test(time_is_limited),
    cmocka_unit_test(says_who_holds_it),
    cmocka_unit_test(many_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
