// contest: a candidate against the kernel that there is (its twin), run by run in turns, while a model is in use; and
// what that may cost.
//
// Nothing here looks at a clock or a machine: times come in, decisions go out (tests/device/test_contest.c).
#ifndef WEFT_DEVICE_CONTEST_H
#define WEFT_DEVICE_CONTEST_H
#include "base/base.h"

enum { CONTEST_PAIRS = 15 };
enum contest_state { CONTEST_GOES_ON, CONTEST_LOST, CONTEST_WON };

typedef struct contest {
  bool one;                      // the candidate has not run as a whole yet: it takes the place of one launch only
  int tries;                     // so far, of one launch
  double single;                 // the least ratio of these, what is expected of all launches; 0: unknown
  enum contest_state state;
  double twin;                   // the twin's last time, 0: none yet since the candidate's
  double ratio[CONTEST_PAIRS], all[2][CONTEST_PAIRS];         // all: of the twin, of the candidate
  int n;                         // pairs
} contest;

// launches: of the kernel in one run. With more than one, the candidate's first runs are those of a single launch,
// until one is hardly slower than its twin: the kernel may be half of the run, and all of its launches are no guess
// then.
void contest_begin(contest *c, int launches);
// whether the candidate may be next: the twin has a time to compare with
bool contest_due(const contest *c);
double contest_risk(const contest *c);                    // what its next run may lose, in units of the times
// A time of the twin, or of the candidate right behind one. What the candidate lost by that run is the result (0:
// nothing).
double contest_note(contest *c, bool candidate, double time);
void contest_times(const contest *c, double out[2]);      // medians, of the twin and of the candidate; 0 without any

// What exploring has cost so far, in seconds, and may: of every second that runs take, a hundredth for candidates that
// are slower than their twins, and a hundredth for making them where that took a processor away from the runs.
typedef struct budget { double ran, lost, made; } budget;
bool budget_allows_run(const budget *b, double risk);
bool budget_allows_making(const budget *b);
#endif
