// profile_steps: any plan under the clock, step by step, for profile.h: those of tokens, and those of encoders.
#ifndef WEFT_ENGINE_PROFILE_STEPS_H
#define WEFT_ENGINE_PROFILE_STEPS_H
#include "device/device.h"
#include "engine/profile.h"

// What profile_run does with a plan. before: called before each step with its number, to set what the plan reads and
// the values of vars; -1: of a step that warms up, `steps`: of what counts events.
typedef struct profiled {
  device *d;
  plan *p;
  plan_var vars[2];
  int n_vars, steps;
  void (*before)(void *ctx, int step, plan_var *vars);       // may be NULL
  void *ctx;
} profiled;
void profile_steps(profiled *of, struct profile *out);
#endif
