// profile: the time of a token by kernel, as in normal use: whole steps of the plan with time stamps, not kernels run
// separately with warm caches.
#ifndef WEFT_ENGINE_PROFILE_H
#define WEFT_ENGINE_PROFILE_H
#include "device/counters.h"
#include "engine/engine.h"

// All launches of one kernel for one part of the model ("blk.*.ffn_down": in all layers), per step. counted:
// counters.h, 0 without counters
struct profile_row { char name[96], role[64]; int count; double us, wait_us, bytes, flops, counted[COUNTED]; };

struct profile {
  int tokens;                 // per step: 1, a chunk of a prompt, or rows of a picture
  int parts;                  // number of steps of a picture, and of what precedes them; 0 for tokens
  double before_us;
  double us, overhead_us;     // of a step; overhead: outside of kernels
  double wait_us;             // of the kernels' time: waiting at barriers
  error no_counters;          // why there are no hardware counters; empty: there are
  double limit_gb_s;          // read bandwidth of this device's threads; 0: unknown
  int dispatches, n_layer, graph_ops;
  struct profile_row *rows;   // slowest first
  size_t n_rows;
};

// Runs `steps` steps (>= 1) from position pos on, after two warm-up steps. prompt 0: a step is one token, each at the
// next position. Otherwise it is a chunk of `prompt` tokens (at most engine_chunk), always at pos. Everything must fit
// the context (the caller checks). The KV cache is invalid from pos on afterwards. Figures are means over the middle
// half of the steps by time, so that they add up and outliers do not count. Returns 0, or -1 and the reason; call
// profile_free in either case.
int profile_run(engine *e, int prompt, int steps, int pos, struct profile *out, error *err);
void profile_free(struct profile *p);

// The public form, for weft_profile_free; takes ownership of *p.
struct weft_profile *profile_shown(struct profile *p);
#endif
