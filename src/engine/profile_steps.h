// profile_steps: times any plan step by step, for profile.h: plans of tokens and of encoders.
#ifndef WEFT_ENGINE_PROFILE_STEPS_H
#define WEFT_ENGINE_PROFILE_STEPS_H
#include "device/device.h"
#include "engine/profile.h"

// A plan to profile. before: called before each step with its number, to set the plan's inputs and the values of vars;
// -1: a warm-up step, `steps`: a step that counts events.
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
