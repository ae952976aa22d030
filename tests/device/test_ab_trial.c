// Contests and the budget of tuning in the background: what wins, what loses and when, and what it may cost. All
// times are made up.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "device/ab_trial.h"

// Runs a contest of a candidate that takes `ratio` of its baseline's time, with noise of so many percent; the runs of
// the candidate that it took.
static int run(double ratio, double noise, uint64_t seed, int launches, enum ab_trial_state *end) {
  ab_trial c;
  int runs = 0;
  ab_trial_begin(&c, launches);
  while (c.state == AB_TRIAL_GOES_ON && runs < 100) {
    for (int candidate = 0; candidate < 2; candidate++) {
      seed = hash_u64(seed, 3);
      double time = (candidate ? ratio : 1) * (1 + noise * (double)(seed >> 11) * 0x1p-53);
      if (candidate) assert_true(ab_trial_due(&c));
      ab_trial_record(&c, candidate, time);
      runs += candidate;
    }
  }
  *end = c.state;
  return runs;
}

static void winners_win(void **state) {
  (void)state;
  enum ab_trial_state end;
  for (uint64_t seed = 1; seed <= 50; seed++) {
    int runs = run(.8, .05, seed, 16, &end);
    assert_int_equal(end, AB_TRIAL_WON);
    assert_in_range(runs, 2, 8);
    run(.96, .02, seed, 16, &end);
    assert_int_equal(end, AB_TRIAL_WON);
  }
}

static void what_is_equal_loses(void **state) {
  (void)state;
  enum ab_trial_state end;
  int won = 0;
  for (uint64_t seed = 1; seed <= 1000; seed++) {
    run(1, .1, seed, 16, &end);
    won += end == AB_TRIAL_WON;
  }
  assert_in_range(won, 0, 20);
}

// At once: after a single launch where there are several, after one run otherwise; those that are somewhat slower after
// a few.
static void slow_ones_are_dropped(void **state) {
  (void)state;
  enum ab_trial_state end;
  for (int launches = 1; launches <= 16; launches += 15) {
    assert_int_equal(run(1.5, 0, 1, launches, &end), 1);
    assert_int_equal(end, AB_TRIAL_LOST);
    assert_in_range(run(1.15, .01, 1, launches, &end), 2, 3);
    assert_int_equal(end, AB_TRIAL_LOST);
  }
}

static void first_run_is_one_launch(void **state) {
  (void)state;
  ab_trial c;
  ab_trial_begin(&c, 16);
  assert_true(c.one && !ab_trial_due(&c));
  ab_trial_record(&c, false, 1);
  ab_trial_record(&c, true, .9);
  assert_true(!c.one && !c.n && c.state == AB_TRIAL_GOES_ON && !ab_trial_due(&c));
  ab_trial_record(&c, false, 16);
  assert_true(ab_trial_due(&c));
  assert_true(ab_trial_record(&c, true, 17) == 1);              // what it cost
  assert_true(c.n == 1 && ab_trial_risk(&c) == 0);            // nothing to compare with yet
  ab_trial_begin(&c, 1);
  assert_false(c.one);
}

// What a single launch showed is what all are expected to cost: a kernel that is half of a run must get its turn, too.
static void risk_follows_single_launch(void **state) {
  (void)state;
  ab_trial c;
  ab_trial_begin(&c, 16);
  ab_trial_record(&c, false, 1);
  assert_float_equal(ab_trial_risk(&c), .3, 1e-9);
  ab_trial_record(&c, true, .9);
  ab_trial_record(&c, false, 16);
  assert_float_equal(ab_trial_risk(&c), 16 * .05, 1e-9);
  ab_trial_begin(&c, 16);
  for (int i = 0; i < 3; i++) {                              // noise: again, alone; the least counts
    assert_true(c.one && c.state == AB_TRIAL_GOES_ON);
    ab_trial_record(&c, false, 1);
    ab_trial_record(&c, true, i < 2 ? 1.2 : 1.04);
  }
  assert_true(!c.one && c.state == AB_TRIAL_GOES_ON);
  ab_trial_record(&c, false, 16);
  assert_float_equal(ab_trial_risk(&c), 16 * .09, 1e-9);
}

// A model that runs on and on with candidates that are all 20 % slower loses no more than its budget.
static void budget_is_kept(void **state) {
  (void)state;
  budget b = {0};
  int runs = 0, tried = 0;
  ab_trial c;
  ab_trial_begin(&c, 1);
  for (; runs < 100000; runs++) {
    bool candidate = ab_trial_due(&c) && budget_allows_run(&b, ab_trial_risk(&c));
    double time = candidate ? 1.2 : 1;
    b.lost += ab_trial_record(&c, candidate, time);
    b.ran += time;
    if (budget_allows_making(&b)) { b.made += 5; b.ran += 5; }
    if (c.state != AB_TRIAL_GOES_ON) { tried++; ab_trial_begin(&c, 1); }
    assert_true(b.lost <= .01 * b.ran + .2 && b.made <= .01 * b.ran + 5);
  }
  assert_true(tried > 1000);                                 // and yet many have had their turn
  assert_true(b.lost > .005 * b.ran);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(winners_win), cmocka_unit_test(what_is_equal_loses), cmocka_unit_test(slow_ones_are_dropped),
        cmocka_unit_test(first_run_is_one_launch), cmocka_unit_test(risk_follows_single_launch),
        cmocka_unit_test(budget_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
