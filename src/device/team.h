// The thread team: a fixed set of threads, each on a processor of its own, that run one function together.
//
// A token is one team_run: the function replays the whole plan and uses team_barrier between kernels that depend on one
// another. Threads of a team spin while there is something to wait for and sleep when there is not: short waits cost a
// fraction of a microsecond, an idle engine costs nothing.
#ifndef WEFT_DEVICE_TEAM_H
#define WEFT_DEVICE_TEAM_H
#include "base/base.h"

typedef struct team team;
typedef void team_fn(void *ctx, int thread, int n_threads);

enum { TEAM_MAX = 1024 };

// What a team gets by default: the processors that the affinity mask allows, hardware threads of one core counted once,
// and no more than the control group's share of time, rounded up.  At least 1.
int team_default_threads(void);
int team_cores(void);            // of that mask, whatever the control group allows

// n_threads = 0: the default.  Threads are pinned to distinct processors of the affinity mask if there are enough
// (never a failure); the calling thread is pinned only while team_run lasts.  NULL and err if a thread cannot be made.
team *team_new(int n_threads, error *err);
void team_free(team *t);                // NULL is fine; no team_run may be in progress
int team_size(const team *t);

// Runs fn(ctx, 0..n-1, n) on all threads, the caller being thread 0, and returns when all have finished; what they
// wrote is then visible to the caller.  One at a time: from one thread, or under the callers' lock.  fn must not call
// team_run.
void team_run(team *t, team_fn *fn, void *ctx);
// The same for kernels: numbers too small to be normal count as zeros meanwhile. A sum with one takes some 150 cycles,
// and tiles of tokens compute rows that belong to none with whatever lies there.
void team_compute(team *t, team_fn *fn, void *ctx);
// For use inside of fn only, by every thread equally often: returns when all threads have arrived.
void team_barrier(team *t);
#endif
