// remote_steps: the steps of a plan as commands of a device with memory of its own: what each of them reads and writes,
// where its variables lie, which commands wait for those before them, and which have changed since the last run.
//
// All commands may run at once, but for barriers: one with a barrier waits for all that come before it. Variables lie
// in one piece of memory, so that a run with other values changes what lies there; only a command whose number of
// work-groups has changed, or its barrier, is stale. A command without work-groups is left out, and its barrier goes to
// the next one that needs it; a device whose barriers are fixed when a plan is recorded has them as if no command were
// left out.
#ifndef WEFT_DEVICE_REMOTE_STEPS_H
#define WEFT_DEVICE_REMOTE_STEPS_H
#include "device/plan_impl.h"

enum { REMOTE_VARS_ALIGNED = 256 /* what an offset in constant memory is a multiple of, on any GPU */ };

// Bytes that a step reads or writes, one range for each of its buffers: of a piece of memory, from .. to.
typedef struct remote_range { void *memory; uint64_t from, to; bool written; } remote_range;

typedef struct remote_command {
  const step *s;
  const remote_range *ranges;
  int n_ranges;
  uint64_t vars_at;                // of its variables, in the memory of all
  int64_t vars[MAX_VARS];          // of the last run
  bool known;                      // there was one
  unsigned groups[3], items[3];
  int64_t tiles;                   // as vars
  bool empty, barrier;
  // since somebody has taken it over, who says so: sizes or barrier are others; variables, too
  bool stale, changed;
} remote_command;

typedef struct remote_steps {
  remote_command *at;
  int n;
  uint64_t vars_bytes;
  int parts;                       // work-items that share out the tiles of a kernel without work-groups
  bool fixed;                      // barriers have been placed for good
} remote_steps;

// Commands for the n steps of a plan, in the arena; ranges are set by the caller.
void remote_steps_make(remote_steps *m, arena *mem, const step *steps, int n);
// Barriers from the ranges alone.
void remote_steps_fix(remote_steps *m);
// Before a run: the steps have their variables. vars: the memory of all, of m->vars_bytes, or NULL. How many commands
// are stale.
int remote_steps_update(remote_steps *m, unsigned char *vars);
// whether one of them writes where the other one reads or writes
bool remote_commands_meet(const remote_command *x, const remote_command *y);
#endif
