// online_tuner: searching for better kernels of a plan while it is in use (WEFT_TUNE=background).
//
// Two threads. The one that runs the plan (online_tuner_run) puts candidates in the place of their baselines for some
// runs and takes their times (ab_trial.h); it takes no lock and makes nothing. A thread of low priority makes
// candidates when the machine has time to spare (spare.h), compares what they write with what the plan's own kernels
// write, bit by bit, and puts what won into the kernel cache. They hand candidates to one another through atomic
// pointers.
//
// Candidates read the plan's streams as they are: one that wants another layout of a weight is none. What is under
// trial is part of no result: a candidate computes the same bits.
#ifndef WEFT_DEVICE_LIVE_H
#define WEFT_DEVICE_LIVE_H
#include "device/device.h"

typedef struct online_tuner online_tuner;
typedef struct online_tuner_stats {
  int tried, better, wrong;  // candidates that were judged; that took their baseline's place; that computed other bits
  // runs so far; of that, lost by slower candidates; processor time for making candidates, beside runs
  double ran_s, lost_s, made_s;
  const char *state;             // "on", "done", or why not ("on battery or busy")
} online_tuner_stats;

// NULL where there is nothing to be had: no cache, or a device without kernels to tune. The plan outlives it. always:
// busy machines and batteries do not matter.
online_tuner *online_tuner_open(plan *p, bool always);
// plan_run, which now and then is a trial. From one thread at a time.
void online_tuner_run(online_tuner *l, const plan_var *vars, int n_vars);
void online_tuner_stats_get(online_tuner *l, online_tuner_stats *out);
// Ends all trials and the thread (which takes as long as the compiler needs for a kernel, at most); what won stays in
// the plan. NULL is fine.
void online_tuner_close(online_tuner *l);
#endif
