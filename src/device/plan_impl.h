// The internals of a plan, for the files that build it (plan.c, plan_kernels.c, plan_layouts.c), run it (replay.c,
// host.c, remote_plan.c), or search for better kernels (kernel_bench.h).
#ifndef WEFT_DEVICE_PLAN_IMPL_H
#define WEFT_DEVICE_PLAN_IMPL_H
#include <stdatomic.h>
#include "device/demand.h"
#include "device/device.h"
#include "device/ranks.h"
#include "device/team.h"

enum { MAX_VARS = 8, WATCHES = 4 };

typedef struct part { _Alignas(64) _Atomic int next; } part;      // pieces taken from a thread's last quarter

typedef struct step {
  const device_kernel *k;
  unsigned char **bufs;      // n_bufs for each thread
  const struct plan_argument *args;        // what each buffer is; NULL if the plan is not recorded
  int n_bufs;
  bool each;                     // every thread computes all of it
  part *parts;                   // per thread
  int64_t vars[MAX_VARS], tiles;
  int level, unique;             // unique: index of its kernel
  size_t reads;                  // its reads of weights on demand: in plan.reads, from here to the next step's
  bool brings;                   // loads what the steps up to the next such step read
  const struct rank_step *ranks;           // gathers what other processes have made; NULL: it computes
  int watch;                     // its time belongs to this watch, from 1 to WATCHES; 0: to none
  char role[64];
} step;

// What a step gathers, of each of its buffers. Its kernel has no code: the tiles are the number of periods.
typedef struct rank_step { gathered_buffer *of; int n; device_kernel k; } rank_step;
typedef struct own_copy { void *at; uint64_t bytes; } own_copy;
// a kernel that a search found; k.p is NULL if there is none
typedef struct alternative { device_kernel k; code_image *code; } alternative;

struct plan {
  device *d;
  struct team *team;             // the team that runs it, and its size
  int n_threads;
  bool flushes;                  // plan_options.flushes
  graph *g;
  arena *mem;
  device_kernel *kernels;
  uop **asts;                    // of the kernels
  alternative *alternatives;     // per kernel; NULL: no search was made
  step *steps;
  part *parts;
  code_image *code;
  void *arena_at;
  // of a timed run: times of thread i, from marks + i * n_marks on; NULL before the first timed run
  double *marks;
  size_t n_marks;
  void *recorded;                // of the runtime
  void (*starts)(void *ctx, const struct plan *p, const plan_var *vars, int n_vars);     // plan_options.starts, .ends
  void (*ends)(void *ctx);
  void *starts_ctx;
  bool shared;                   // other processes run it too
  uint64_t gatherings;           // a hash of what its steps gather
  plan_go_on *go_on;             // of a cancellable run; NULL: not cancellable
  void *go_on_ctx;
  atomic_bool ended;
  double asked_s;                // time of the last go_on call
  double began;                  // start of the last timed run
  double watched[WATCHES];       // seconds of the last watched run, until all threads were done
  VEC(own_copy) copies;          // packed weights that the plan owns
  demand *demand;                // weights that are loaded when a level needs them; NULL: all are resident
  VEC(demand_read) reads;        // of the steps, in order
  plan_stats stats;
};

typedef struct plan_argument { uint64_t size; bool weight, written; } plan_argument;
// the arguments of a kernel, by number: k->n_bufs entries
void plan_arguments(const sched_kernel *k, plan_argument *args);
// for a runtime that takes all times in one lane; does nothing if they exist
void plan_make_marks(plan *p);

// records the error *e if r is not 0
void device_note(device *d, int r, const error *e);
void plan_set_vars(plan *p, const plan_var *vars, int n_vars);  // after a run that plan_set_vars began
void plan_ends(plan *p);                         // behind what began with that
// on a device that is `here`: team_compute or team_run, depending on plan_options.flushes
void plan_on_team(plan *p, team_fn *fn, void *ctx);
// a team_fn: runs all steps of plan `ctx`, on a device that is `here`
void plan_replay(void *ctx, int thread, int n);
// plan_run with times of watched steps
void plan_run_watched(plan *p, const plan_var *vars, int n_vars);
// the values in the program's order
void plan_vars(const program *q, const plan_var *vars, int n_vars, int64_t *values);
// Makes kernels for the sinks `asts`, from the cache or by compiling; filling: they pack weights. Adds to *stats.
// Returns 0, or -1 and the error of the kernel that failed.
int plan_compile(device *d, graph *g, uop **asts, device_kernel *kernels, int n, bool filling, const plan_options *o,
                 plan_stats *stats, error *err);
// Compiles k->p, on any thread. A broken invariant becomes an error.
int plan_compile_kernel(device *d, device_kernel *k, error *err);
// Assigns memory to every step whose kernel reads packed weights, and packs new ones. Returns 0, or -1 with err.
int plan_bind_layouts(plan *p, const schedule *s, const plan_options *o, error *err);
// records the plan again after kernels of some steps changed, on a device that records
void plan_record_again(plan *p);
// one mapping for the code of all kernels; consumes k.packed
int plan_map_code(device_kernel *kernels, int n, code_image **out, error *err);
void plan_free_kernels(device_kernel *kernels, int n);
// The cache entry and key of a kernel given as text; opts: of a tuning, or NULL. Accepts any text: returns -1 and the
// reason if it is invalid. key, entry: the caller's, in any case.
struct plan_text { const char *ir; size_t n; const char *opts; bool filling; };
int plan_make_entry(device *d, const struct plan_text *of, str *key, str *entry, double *codegen_s, error *err);
// Stores the kernel's entry in the cache; opts: the list of a tuning, or NULL.
void plan_remember(device *d, uop *ast, const char *opts, const device_kernel *k);
// everything that determines a kernel's code except the kernel: one line
void plan_machine(const device *d, str *line);
// everything that determines a kernel's code except the tuning
void plan_key(const device *d, uop *ast, str *key);
#endif
