// online_tuner: searches for better kernels of a plan while it is in use (WEFT_TUNE=background).
//
// Two threads. The thread that runs the plan (online_tuner_run) replaces baselines with candidates for some runs and
// takes their times (ab_trial.h); it takes no lock and compiles nothing. A low-priority thread makes candidates when
// the machine has spare time (spare.h), compares their output with that of the plan's own kernels bit by bit, and
// stores winners in the kernel cache. The threads exchange candidates through atomic pointers.
//
// Candidates read the plan's packed weights unchanged, so a list that needs another layout is not a candidate. A trial
// does not change results: candidates compute equal bits.
#ifndef WEFT_DEVICE_LIVE_H
#define WEFT_DEVICE_LIVE_H
#include "device/device.h"

typedef struct online_tuner online_tuner;
typedef struct online_tuner_stats {
  int tried, better, wrong;  // candidates whose trial ended; that replaced their baseline; that computed other bits
  // time of runs so far; of that, lost to slower candidates; processor time for making candidates, beside runs
  double ran_s, lost_s, made_s;
  const char *state;             // "on", "done", or the reason why it is off ("on battery or busy")
} online_tuner_stats;

// NULL if nothing can be tuned: no cache, or a device without kernels to tune. The plan must outlive it. always: also
// on busy machines and on battery.
online_tuner *online_tuner_open(plan *p, bool always);
// plan_run, sometimes with a trial. One thread at a time.
void online_tuner_run(online_tuner *l, const plan_var *vars, int n_vars);
void online_tuner_stats_get(online_tuner *l, online_tuner_stats *out);
// Ends all trials and the thread (at most the time of compiling one kernel); winners stay in the plan. NULL is fine.
void online_tuner_close(online_tuner *l);
#endif
