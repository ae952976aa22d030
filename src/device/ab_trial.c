// Decisions of A/B trials, and their budget: see ab_trial.h. Times on a machine in use are noisy, and a winner is kept
// permanently. So a win needs a gain in nearly every pair and a median clearly below 1; a loss needs little, and a much
// slower candidate loses at once.
#include "device/ab_trial.h"
#include <math.h>
#include <string.h>

enum {
  TRIES = 3 /* of one launch */,
  CLEAR = 5,
  FEW = 4,
  SOME = 8,
  WINS = 12 /* of AB_TRIAL_PAIRS: 1.8 % of tosses of a coin */
};
static const double MUCH_SLOWER = 1.3, SLOWER = 1.06, CLEARLY = 0.95, GAIN = 0.985, CAUTION = 0.05;
static const double RUNS_SHARE = 0.01, MAKING_SHARE = 0.01;        // 2 % together

void ab_trial_begin(ab_trial *c, int launches) { *c = (ab_trial){.one = launches > 1}; }

bool ab_trial_due(const ab_trial *c) { return c->baseline > 0; }

static double middle(const double *at, int n) {
  double copy[AB_TRIAL_PAIRS];
  if (!n) return 0;
  memcpy(copy, at, (size_t)n * sizeof *at);
  return median(copy, n);
}

void ab_trial_times(const ab_trial *c, double out[2]) { for (int i = 0; i < 2; i++) out[i] = middle(c->all[i], c->n); }

double ab_trial_risk(const ab_trial *c) {
  double expected = c->n           ? fmax(middle(c->ratio, c->n) - 1, 0)
                    : c->single > 0 ? fmax(c->single - 1, 0)
                                    : MUCH_SLOWER - 1 - CAUTION;
  return c->baseline * (expected + CAUTION);
}

static enum ab_trial_state decide_state(const ab_trial *c) {
  int wins = 0;
  double least = c->ratio[0], m = middle(c->ratio, c->n);
  for (int i = 0; i < c->n; i++) {
    wins += c->ratio[i] < 1;
    least = fmin(least, c->ratio[i]);
  }
  if (c->n >= 2 && least > SLOWER) return AB_TRIAL_LOST;
  if (c->n >= FEW && m > 1) return AB_TRIAL_LOST;
  if (c->n >= SOME && m > GAIN) return AB_TRIAL_LOST;
  if (c->n >= CLEAR && wins == c->n && m < CLEARLY) return AB_TRIAL_WON;
  if (c->n < AB_TRIAL_PAIRS) return AB_TRIAL_GOES_ON;
  return wins >= WINS && m < GAIN ? AB_TRIAL_WON : AB_TRIAL_LOST;
}

// A single launch is noisier than all of them: a candidate that is hardly slower may go on to all launches.
static void note_one(ab_trial *c, double ratio) {
  c->single = c->tries ? fmin(c->single, ratio) : ratio;
  if (!c->tries++ && ratio > MUCH_SLOWER) c->state = AB_TRIAL_LOST;
  else if (c->single <= SLOWER) c->one = false;
  else if (c->tries == TRIES) c->state = AB_TRIAL_LOST;
}

double ab_trial_record(ab_trial *c, bool candidate, double time) {
  if (!candidate) { c->baseline = time; return 0; }
  double ratio = time / c->baseline, lost = fmax(time - c->baseline, 0);
  if (c->one) note_one(c, ratio);
  else {
    c->ratio[c->n] = ratio;
    c->all[0][c->n] = c->baseline;
    c->all[1][c->n++] = time;
    c->state = c->n == 1 && ratio > MUCH_SLOWER ? AB_TRIAL_LOST : decide_state(c);
  }
  c->baseline = 0;
  return lost;
}

bool budget_allows_run(const budget *b, double risk) { return b->lost + risk <= RUNS_SHARE * b->ran; }
bool budget_allows_making(const budget *b) { return b->made < MAKING_SHARE * b->ran; }
