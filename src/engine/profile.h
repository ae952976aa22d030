// profile: where the time of a token goes, kernel by kernel, as it is when the model really runs: whole steps through
// the plan with time stamps, not kernels on their own with everything in the cache.
#ifndef WEFT_ENGINE_PROFILE_H
#define WEFT_ENGINE_PROFILE_H
#include "device/counters.h"
#include "engine/engine.h"

// All launches of one kernel for one part of the model ("blk.*.ffn_down": in all layers), per step.
// counted: counters.h, 0 where there are no counters
struct profile_row { char name[96], role[64]; int count; double us, wait_us, bytes, flops, counted[COUNTED]; };

struct profile {
  int tokens;                 // of a step: 1, a chunk of a prompt, or rows of a picture
  int parts;                  // steps that a picture takes, and what comes before them; 0 of tokens
  double before_us;
  double us, overhead_us;     // of a step; overhead: outside of all kernels
  double wait_us;             // of the kernels' time: waiting at barriers
  error no_counters;          // why there are no hardware counters; empty: there are
  double limit_gb_s;          // what this device's threads can read; 0: unknown
  int dispatches, n_layer, graph_ops;
  struct profile_row *rows;   // slowest first
  size_t n_rows;
};

// Runs `steps` steps (>= 1) from position pos on, after two to warm up. prompt 0: a step is one token, each a position
// further. Otherwise it is a chunk of `prompt` tokens (at most engine_chunk), always at pos. Everything has to fit the
// context (the caller has checked). The KV cache holds nothing of use from pos on afterwards. Figures are means over
// the half of the steps whose times lie in the middle, so that they add up and a disturbance does not count. 0, or -1
// and why not; profile_free in any case.
int profile_run(engine *e, int prompt, int steps, int pos, struct profile *out, error *err);
void profile_free(struct profile *p);

// The public form, for weft_profile_free, which owns *p from now on.
struct weft_profile *profile_shown(struct profile *p);
#endif
