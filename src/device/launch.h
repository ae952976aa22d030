// launch: a kernel of a plan on a device of work-groups whose addresses are fixed when the plan is recorded
// (cuda_plan.c, nv_plan.c): where its buffers lie, and what a run's variables change about it.
#ifndef WEFT_DEVICE_LAUNCH_H
#define WEFT_DEVICE_LAUNCH_H
#include "base/arena.h"
#include "device/plan_impl.h"
#include "device/remote.h"

typedef struct launch {
  uint64_t *bufs;                  // addresses on the device
  const plan_argument *args;       // and what each of them is
  int n_bufs;
  int64_t vars[MAX_VARS];
  unsigned grid[3], block[3];
  bool known, empty;               // vars are set; there is nothing to do
} launch;

// Gives the n_bufs buffers of step t their places. -1 and why not.
int launch_place(launch *l, const step *t, int n_bufs, remote *r, remote_traffic *traffic, arena *mem, error *err);
// Takes over the step's variables: whether anything is not as it was.
bool launch_changed(launch *l, const step *t, const char *dev);
bool launches_meet(const launch *x, const launch *y);      // one of them writes where the other one reads or writes
#endif
