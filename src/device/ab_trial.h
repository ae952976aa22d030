// ab_trial: times a candidate against the current kernel (the baseline), in interleaved runs while a model is in use;
// and the budget for that.
//
// This code reads no clock and no machine: times come in, decisions go out (tests/device/test_ab_trial.c).
#ifndef WEFT_DEVICE_CONTEST_H
#define WEFT_DEVICE_CONTEST_H
#include "base/base.h"

enum { AB_TRIAL_PAIRS = 15 };
enum ab_trial_state { AB_TRIAL_GOES_ON, AB_TRIAL_LOST, AB_TRIAL_WON };

typedef struct ab_trial {
  bool one;                      // the candidate replaces one launch only, until it may replace all
  int tries;                     // runs of that one launch so far
  double single;                 // minimum ratio of these, the estimate for all launches; 0: unknown
  enum ab_trial_state state;
  double baseline;                   // last time of the baseline, 0: none since the candidate's last
  double ratio[AB_TRIAL_PAIRS], all[2][AB_TRIAL_PAIRS];         // all: times of the baseline and of the candidate
  int n;                         // pairs
} ab_trial;

// launches: of the kernel in one run. If there are several, the candidate replaces a single launch until a ratio shows
// that it is hardly slower: the kernel may take half of the run, so all of its launches are a large risk.
void ab_trial_begin(ab_trial *c, int launches);
// may the candidate run next? true if the baseline has a time to compare with
bool ab_trial_due(const ab_trial *c);
double ab_trial_risk(const ab_trial *c);                    // expected loss of its next run, in units of the times
// Records a time of the baseline, or of the candidate right after one. Returns what the candidate lost in that run (0:
// nothing).
double ab_trial_record(ab_trial *c, bool candidate, double time);
// medians of the baseline and of the candidate; 0 if there are none
void ab_trial_times(const ab_trial *c, double out[2]);

// Seconds that exploring has cost so far. Allowed: one hundredth of the run time for candidates slower than their
// baselines, and one hundredth for compiling candidates if that takes a processor away from the runs.
typedef struct budget { double ran, lost, made; } budget;
bool budget_allows_run(const budget *b, double risk);
bool budget_allows_making(const budget *b);
#endif
