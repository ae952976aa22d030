// metal_steps: the steps of a plan as commands of an indirect command buffer, as far as that needs none of Apple's
// headers: where the variables of each lie, which commands wait for those before them, and which have to be encoded
// again before a run.
//
// All commands may run at once, but for barriers: one with a barrier waits for all that come before it. Variables lie
// in one piece of memory, so that a run with other values changes what lies there and no command; only one whose number
// of threadgroups has changed, or its barrier, is encoded again. A command without threadgroups is left empty, and its
// barrier goes to the next one that needs it.
#ifndef WEFT_DEVICE_METAL_STEPS_H
#define WEFT_DEVICE_METAL_STEPS_H
#include "device/plan_impl.h"

enum {
  METAL_VARS_ALIGNED = 256 /* what an offset in `constant` memory is a multiple of, on any GPU that runs Metal */,
  METAL_COMMANDS = 16384 /* of an indirect command buffer at most */
};

// Bytes that a step reads or writes: of a piece of memory, from .. to.
typedef struct metal_range { const void *memory; uint64_t from, to; bool written; } metal_range;

typedef struct metal_command {
  const step *s;
  const metal_range *ranges;
  int n_ranges;
  uint64_t vars_at;                // of its variables, in the memory of all
  int64_t vars[MAX_VARS];          // of the last run
  bool known;                      // there was one
  unsigned groups[3], items[3];
  bool empty, barrier, stale;      // stale: has to be encoded (again); whoever does it says so
} metal_command;

typedef struct metal_steps { metal_command *at; int n; uint64_t vars_bytes; } metal_steps;

// Commands for the n steps of a plan, in the arena; ranges are set by the caller.
void metal_steps_make(metal_steps *m, arena *mem, const step *steps, int n);
// Before a run: the steps have their variables. vars: the memory of all, of m->vars_bytes. How many commands are stale.
int metal_steps_update(metal_steps *m, unsigned char *vars);
#endif
