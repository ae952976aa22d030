// How a plan looks inside, for the files that build it (plan.c, plan_kernels.c, plan_layouts.c) or run it (replay.c,
// host.c, remote_plan.c), and for those that look for better kernels (kernel_bench.h).
#ifndef WEFT_DEVICE_PLAN_IMPL_H
#define WEFT_DEVICE_PLAN_IMPL_H
#include <stdatomic.h>
#include "device/demand.h"
#include "device/device.h"
#include "device/ranks.h"
#include "device/team.h"

enum { MAX_VARS = 8, WATCHES = 4 };

typedef struct part { _Alignas(64) _Atomic int next; } part;      // pieces of a thread's last quarter that are taken

typedef struct step {
  const device_kernel *k;
  unsigned char **bufs;      // n_bufs for each thread
  const struct plan_argument *args;        // what each of them is; NULL where a plan is not recorded
  int n_bufs;
  bool each;                     // every thread does all of it
  part *parts;                   // per thread
  int64_t vars[MAX_VARS], tiles;
  int level, unique;             // unique: number of its kernel
  size_t reads;                  // what it reads of weights on demand: plan.reads from there to the next step's
  bool brings;                   // what steps from here to the next one of these read is brought first
  const struct rank_step *ranks;           // it gathers what other processes have made; NULL: it computes
  int watch;                     // whose time it is part of: a number below WATCHES, counted from 1; 0: nobody's
  char role[64];
} step;

// What a step gathers, and the bytes of an element. Its kernel has no code: the tiles are the number of periods.
typedef struct rank_step { gathering what; size_t size; device_kernel k; } rank_step;
typedef struct own_copy { void *at; uint64_t bytes; } own_copy;
// of a kernel, found by a search; no k.p: none
typedef struct alternative { device_kernel k; code_image *code; } alternative;

struct plan {
  device *d;
  struct team *team;             // that runs it, and how many those are
  int n_threads;
  bool flushes;                  // plan_options.flushes
  graph *g;
  arena *mem;
  device_kernel *kernels;
  uop **asts;                    // of the kernels
  alternative *alternatives;     // per kernel; NULL: there was no search
  step *steps;
  part *parts;
  code_image *code;
  void *arena_at;
  // of a timed run: the times that thread i noted, from marks + i * n_marks on; NULL until there is one
  double *marks;
  size_t n_marks;
  void *recorded;                // the runtime's
  void (*starts)(void *ctx, const struct plan *p, const plan_var *vars, int n_vars);     // plan_options.starts, .ends
  void (*ends)(void *ctx);
  void *starts_ctx;
  bool shared;                   // other processes run it, too
  uint64_t gatherings;           // a hash of what its steps gather
  plan_go_on *go_on;             // of a run that may end early, and whether it does; NULL: it may not
  void *go_on_ctx;
  atomic_bool ended;
  double asked_s;                // when that was asked last
  double began;                  // the last timed run
  double watched[WATCHES];       // seconds of the last watched run, until all threads were through
  VEC(own_copy) copies;          // of weights, that nobody else keeps
  demand *demand;                // weights that are brought when a level needs them; NULL: all are there
  VEC(demand_read) reads;        // of the steps, in their order
  plan_stats stats;
};

typedef struct plan_argument { uint64_t size; bool weight, written; } plan_argument;
// of a kernel, by number: k->n_bufs entries
void plan_arguments(const sched_kernel *k, plan_argument *args);
// for a runtime that takes all times in one lane; does nothing where they are there
void plan_make_marks(plan *p);

// r: not 0 if *e says what failed
void device_note(device *d, int r, const error *e);
void plan_set_vars(plan *p, const plan_var *vars, int n_vars);                         // in all steps
void plan_ends(plan *p);                         // behind what began with that
// on a device that is here: team_compute or team_run, as plan_options.flushes says
void plan_on_team(plan *p, team_fn *fn, void *ctx);
// team_fn: all steps of the plan `ctx`, on a device that is here
void plan_replay(void *ctx, int thread, int n);
// plan_run that takes the time of steps that have a watch
void plan_run_watched(plan *p, const plan_var *vars, int n_vars);
// the values in the program's order
void plan_vars(const program *q, const plan_var *vars, int n_vars, int64_t *values);
// Kernels for the sinks `asts`, from the cache or compiled; filling: such as lay weights out. Adds to *stats. 0; -1:
// err says which failed.
int plan_compile(device *d, graph *g, uop **asts, device_kernel *kernels, int n, bool filling, const plan_options *o,
                 plan_stats *stats, error *err);
// k->p becomes code, on any thread. A broken invariant on the way is an error, too.
int plan_compile_kernel(device *d, device_kernel *k, error *err);
// Gives every step whose kernel reads weights in layouts their memory, and fills those that are new. 0, or -1 with err.
int plan_bind_layouts(plan *p, const schedule *s, const plan_options *o, error *err);
// where the kernels of some steps are others now, on a device that records
void plan_record_again(plan *p);
// one mapping for the code of all; k.packed is used up
int plan_map_code(device_kernel *kernels, int n, code_image **out, error *err);
void plan_free_kernels(device_kernel *kernels, int n);
// An entry of the cache and its key, from a kernel that came as text; opts: of a tuning, or NULL. Any text may be
// given: -1 and why not. key, entry: the caller's, whatever comes of it.
struct plan_text { const char *ir; size_t n; const char *opts; bool filling; };
int plan_make_entry(device *d, const struct plan_text *of, str *key, str *entry, double *codegen_s, error *err);
// The kernel's entry in the cache; opts: the list of a tuning, or NULL.
void plan_remember(device *d, uop *ast, const char *opts, const device_kernel *k);
// all of that but the kernel: a line
void plan_machine(const device *d, str *line);
// what decides about a kernel's code, but for the tuning
void plan_key(const device *d, uop *ast, str *key);
#endif
