// remote_steps: the steps of a plan as commands of a device with separate memory: the ranges that each reads and
// writes, the place of its variables, the barriers, and which commands have changed since the last run.
//
// Commands may run concurrently, except for barriers: a command with a barrier waits for all earlier commands.
// Variables are in one piece of memory, so a run with other values changes only that memory; a command is stale only if
// its number of work-groups or its barrier has changed. A command without work-groups is skipped, and its barrier moves
// to the next command that needs it. A device whose barriers are fixed at recording has them as if no command were
// skipped.
#ifndef WEFT_DEVICE_REMOTE_STEPS_H
#define WEFT_DEVICE_REMOTE_STEPS_H
#include "device/plan_impl.h"

enum { REMOTE_VARS_ALIGNED = 256 /* what an offset in constant memory is a multiple of, on any GPU */ };

// A range of bytes that a step reads or writes, one for each of its buffers: from .. to of a piece of memory.
typedef struct remote_range { void *memory; uint64_t from, to; bool written; } remote_range;

typedef struct remote_command {
  const step *s;
  const remote_range *ranges;
  int n_ranges;
  uint64_t vars_at;                // offset of its variables in the common memory
  int64_t vars[MAX_VARS];          // of the last run
  bool known;                      // vars is set
  unsigned groups[3], items[3];
  int64_t tiles;                   // as vars
  bool empty, barrier;
  // since the caller last reset them: stale: sizes or barrier changed; changed: also variables
  bool stale, changed;
} remote_command;

typedef struct remote_steps {
  remote_command *at;
  int n;
  uint64_t vars_bytes;
  int parts;                       // work-items that share the tiles of a kernel without work-groups
  bool fixed;                      // barriers are fixed
} remote_steps;

// Makes commands for the n steps of a plan, in the arena; the caller sets the ranges.
void remote_steps_make(remote_steps *m, arena *mem, const step *steps, int n);
// Computes barriers from the ranges only.
void remote_steps_fix(remote_steps *m);
// Before a run, after the steps got their variables. vars: the common memory of m->vars_bytes, or NULL. Returns the
// number of stale commands.
int remote_steps_update(remote_steps *m, unsigned char *vars);
// does one of them write what the other reads or writes?
bool remote_commands_meet(const remote_command *x, const remote_command *y);
#endif
