// What drafts are worth (engine/draft.h): the length is the best one of all by adding up every outcome, what is learned
// follows what happens, and what holds a step up teaches little.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include "base/base.h"
#include "engine/draft.h"

static uint64_t state = 7;
static double drawn(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 11) * 0x1p-53;
}

// Steps of one row take 1; further rows cost `first`, and `each` from then on.
static draft_rows rows_of(double first, double each) {
  draft_rows r = {0};
  for (int n = 1; n <= DRAFT_ROWS; n++)
    for (int times = 0; times < 9; times++) draft_rows_took(&r, (size_t)n, n == 1 ? 1 : first + each * (n - 2));
  return r;
}

// Expected tokens of a step with n drafted ones: of each number that may be accepted, how likely it is.
static double expected_tokens(const double *odds, size_t n) {
  double tokens = 0;
  for (size_t accepted = 0; accepted <= n; accepted++) {
    double p = accepted < n ? 1 - odds[accepted] : 1;
    for (size_t k = 0; k < accepted; k++) p *= odds[k];
    tokens += p * (double)(accepted + 1);
  }
  return tokens;
}

static void best_is_best(void **unused) {
  (void)unused;
  for (int round = 0; round < 2000; round++) {
    double first = 1 + drawn(), each = 0.3 * drawn(), token_s = round & 1 ? 0.2 * drawn() : 0, odds[MODEL_BACK];
    draft_rows r = rows_of(first, each);
    for (int i = 0; i < MODEL_BACK; i++) odds[i] = drawn();
    double rate, most = 0;
    size_t n = draft_best(&r, odds, MODEL_BACK, token_s, &rate), at = 0;
    for (size_t k = 1; k <= MODEL_BACK; k++) {
      double of = expected_tokens(odds, k) / (first + each * (double)(k - 1) + token_s * (double)k);
      if (of > most) { most = of; at = k; }
    }
    assert_true(fabs(rate - most) < 1e-9);
    assert_int_equal(n, at);
  }
}

// Tokens that are there already: evaluated as far as they win more than the rate says time is worth.
static void what_is_said_is_cut(void **unused) {
  (void)unused;
  draft_rows r = rows_of(1.4, 0.1);
  double value, sure[] = {0.95, 0.95, 0.95, 0.95}, none[] = {0.05, 0.9, 0.9, 0.9}, falls[] = {0.9, 0.8, 0.02, 0.9};
  assert_int_equal(draft_cut(&r, sure, 4, 1, &value), 4);
  assert_int_equal(draft_cut(&r, none, 4, 1, &value), 0);
  assert_int_equal(draft_cut(&r, falls, 4, 1, &value), 2);
  assert_true(fabs(value - (expected_tokens(falls, 2) - 1.5)) < 1e-9);
  assert_true(draft_goes_on(&r, sure, 2, 4, 0, 1));
  assert_false(draft_goes_on(&r, falls, 2, 4, 0, 1));
  assert_false(draft_goes_on(&r, sure, 2, 4, 10, 1));
}

// A source that is as sure as `says`, and right as often as `is`, at all places alike.
static void live(draft_record *of, draft_ratio *text, double says, double is, int drafts) {
  for (int i = 0; i < drafts; i++)
    for (size_t place = 0; place < MODEL_BACK; place++) {
      bool right = drawn() < is;
      draft_judge(of, text, place, says, right);
      if (!right) break;
    }
}

static void odds_follow_what_happens(void **unused) {
  (void)unused;
  draft_record of = {0};
  draft_ratio text = {0};
  assert_true(fabs(draft_odds(&of, &text, 0, 0.9) - 0.9) < 0.01);              // what the source says, to begin with
  live(&of, &text, 0.9, 0.3, 300);
  double low = draft_odds(&of, &text, 0, 0.9), mean = draft_mean_odds(&of, &text, 0);
  assert_true(low > 0.1 && low < 0.5 && mean > 0.1 && mean < 0.5);
  live(&of, &text, 0.9, 0.95, 300);
  double high = draft_odds(&of, &text, 0, 0.9);
  assert_true(high > 0.8 && draft_mean_odds(&of, &text, 0) > 0.7);
  draft_ratio other = {0};                       // another text begins with what all texts say
  assert_true(draft_odds(&of, &other, 0, 0.9) > 0.7);
  assert_true(draft_odds(&of, &other, 0, 0.1) < high);
}

static void what_holds_a_step_up(void **unused) {
  (void)unused;
  double mean = 0;
  for (int i = 0; i < 200; i++) draft_time(&mean, i % 10 == 9 ? 50 : 1);
  assert_true(mean < 1.3);
  draft_rows r = {0};
  for (int i = 0; i < 5; i++) draft_rows_took(&r, 1, 1);
  draft_rows_took(&r, 4, 80);                    // the first one of a plan
  assert_true(draft_rows_s(&r, 4) < 2);
  for (int i = 0; i < 5; i++) draft_rows_took(&r, 4, 1.4);
  assert_true(fabs(draft_rows_s(&r, 4) - 1.4) < 0.01);
  assert_true(draft_rows_s(&r, 3) >= 1 && draft_rows_s(&r, 3) < draft_rows_s(&r, 4));
  assert_true(draft_rows_s(&r, 6) > draft_rows_s(&r, 4));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(best_is_best),
      cmocka_unit_test(what_is_said_is_cut),
      cmocka_unit_test(odds_follow_what_happens),
      cmocka_unit_test(what_holds_a_step_up),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
