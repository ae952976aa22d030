// Contests and the budget: see contest.h. Times of a machine in use are noisy, and a winner stays for good, so that
// it takes a lot to win: nearly every pair, and a median that is clearly below 1; little to lose; and at once for
// what is much slower.
#include "device/contest.h"
#include <math.h>
#include <string.h>

enum {
  TRIES = 3 /* of one launch */,
  CLEAR = 5,
  FEW = 4,
  SOME = 8,
  WINS = 12 /* of CONTEST_PAIRS: 1.8 % of tosses of a coin */
};
static const double MUCH_SLOWER = 1.3, SLOWER = 1.06, CLEARLY = 0.95, GAIN = 0.985, CAUTION = 0.05;
static const double RUNS_SHARE = 0.01, MAKING_SHARE = 0.01;        // 2 % together

void contest_begin(contest *c, int launches) { *c = (contest){.one = launches > 1}; }

bool contest_due(const contest *c) { return c->twin > 0; }

static double middle(const double *at, int n) {
  double copy[CONTEST_PAIRS];
  if (!n) return 0;
  memcpy(copy, at, (size_t)n * sizeof *at);
  return median(copy, n);
}

void contest_times(const contest *c, double out[2]) { for (int i = 0; i < 2; i++) out[i] = middle(c->all[i], c->n); }

double contest_risk(const contest *c) {
  double expected = c->n           ? fmax(middle(c->ratio, c->n) - 1, 0)
                    : c->single > 0 ? fmax(c->single - 1, 0)
                                    : MUCH_SLOWER - 1 - CAUTION;
  return c->twin * (expected + CAUTION);
}

static enum contest_state decide_state(const contest *c) {
  int wins = 0;
  double least = c->ratio[0], m = middle(c->ratio, c->n);
  for (int i = 0; i < c->n; i++) {
    wins += c->ratio[i] < 1;
    least = fmin(least, c->ratio[i]);
  }
  if (c->n >= 2 && least > SLOWER) return CONTEST_LOST;
  if (c->n >= FEW && m > 1) return CONTEST_LOST;
  if (c->n >= SOME && m > GAIN) return CONTEST_LOST;
  if (c->n >= CLEAR && wins == c->n && m < CLEARLY) return CONTEST_WON;
  if (c->n < CONTEST_PAIRS) return CONTEST_GOES_ON;
  return wins >= WINS && m < GAIN ? CONTEST_WON : CONTEST_LOST;
}

// A launch by itself, noisier than all: one that is hardly slower lets the candidate go on to all of them.
static void note_one(contest *c, double ratio) {
  c->single = c->tries ? fmin(c->single, ratio) : ratio;
  if (!c->tries++ && ratio > MUCH_SLOWER) c->state = CONTEST_LOST;
  else if (c->single <= SLOWER) c->one = false;
  else if (c->tries == TRIES) c->state = CONTEST_LOST;
}

double contest_note(contest *c, bool candidate, double time) {
  if (!candidate) { c->twin = time; return 0; }
  double ratio = time / c->twin, lost = fmax(time - c->twin, 0);
  if (c->one) note_one(c, ratio);
  else {
    c->ratio[c->n] = ratio;
    c->all[0][c->n] = c->twin;
    c->all[1][c->n++] = time;
    c->state = c->n == 1 && ratio > MUCH_SLOWER ? CONTEST_LOST : decide_state(c);
  }
  c->twin = 0;
  return lost;
}

bool budget_allows_run(const budget *b, double risk) { return b->lost + risk <= RUNS_SHARE * b->ran; }
bool budget_allows_making(const budget *b) { return b->made < MAKING_SHARE * b->ran; }
