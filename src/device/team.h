// The thread team: a fixed set of threads, each pinned to a processor, that run one function together.
//
// A token is one team_run: the function replays the whole plan and calls team_barrier between kernels that depend on
// each other. Waiting threads spin for a short time and then sleep: short waits cost a fraction of a microsecond, an
// idle engine costs nothing.
#ifndef WEFT_DEVICE_TEAM_H
#define WEFT_DEVICE_TEAM_H
#include "base/base.h"

typedef struct team team;
typedef void team_fn(void *ctx, int thread, int n_threads);

enum { TEAM_MAX = 1024 };

// The default number of threads: processors in the affinity mask, counting hardware threads of one core once, at most
// the control group's share of time, rounded up. At least 1.
int team_default_threads(void);
int team_cores(void);            // in that mask, ignoring the control group

// n_threads = 0: the default. Threads are pinned to distinct processors of the affinity mask if there are enough (never
// an error); the calling thread is pinned only during team_run. NULL and err if a thread cannot be made.
team *team_new(int n_threads, error *err);
void team_free(team *t);                // NULL is fine; no team_run may be in progress
int team_size(const team *t);

// Runs fn(ctx, 0..n-1, n) on all threads, the caller as thread 0. Returns when all have finished; their writes are then
// visible to the caller. One run at a time: from one thread, or under the callers' lock. fn must not call team_run.
void team_run(team *t, team_fn *fn, void *ctx);
// team_run for kernels: subnormal numbers are flushed to zero meanwhile. An operation with one takes about 150 cycles,
// and tiles of tokens also compute unused rows with arbitrary contents.
void team_compute(team *t, team_fn *fn, void *ctx);
// Only inside fn, called by every thread equally often: returns when all threads have arrived.
void team_barrier(team *t);
#endif
