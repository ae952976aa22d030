// ab_trial: a candidate against the kernel that there is (the baseline), run by run in turns, while a model is in use;
// and what that may cost.
//
// Nothing here looks at a clock or a machine: times come in, decisions go out (tests/device/test_ab_trial.c).
#ifndef WEFT_DEVICE_CONTEST_H
#define WEFT_DEVICE_CONTEST_H
#include "base/base.h"

enum { AB_TRIAL_PAIRS = 15 };
enum ab_trial_state { AB_TRIAL_GOES_ON, AB_TRIAL_LOST, AB_TRIAL_WON };

typedef struct ab_trial {
  bool one;                      // the candidate has not run as a whole yet: it takes the place of one launch only
  int tries;                     // so far, of one launch
  double single;                 // the least ratio of these, what is expected of all launches; 0: unknown
  enum ab_trial_state state;
  double baseline;                   // the baseline's last time, 0: none yet since the candidate's
  double ratio[AB_TRIAL_PAIRS], all[2][AB_TRIAL_PAIRS];         // all: of the baseline, of the candidate
  int n;                         // pairs
} ab_trial;

// launches: of the kernel in one run. With more than one, the candidate's first runs are those of a single launch,
// until one is hardly slower than its baseline: the kernel may be half of the run, and all of its launches are no guess
// then.
void ab_trial_begin(ab_trial *c, int launches);
// whether the candidate may be next: the baseline has a time to compare with
bool ab_trial_due(const ab_trial *c);
double ab_trial_risk(const ab_trial *c);                    // what its next run may lose, in units of the times
// A time of the baseline, or of the candidate right behind one. What the candidate lost by that run is the result (0:
// nothing).
double ab_trial_record(ab_trial *c, bool candidate, double time);
// medians, of the baseline and of the candidate; 0 without any
void ab_trial_times(const ab_trial *c, double out[2]);

// What exploring has cost so far, in seconds, and may: of every second that runs take, a hundredth for candidates that
// are slower than their baselines, and a hundredth for making them where that took a processor away from the runs.
typedef struct budget { double ran, lost, made; } budget;
bool budget_allows_run(const budget *b, double risk);
bool budget_allows_making(const budget *b);
#endif
