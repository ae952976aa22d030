// kernel_bench: a place where one kernel of a plan runs by itself, over the plan's own weights. What is no weight
// (activations, the KV cache, logits) is scratch memory with random contents, so that nothing of the engine's
// changes; what kernels wrote can be compared. For tune.c, which has all threads run, and online_tuner.c, which uses
// its own.
#ifndef WEFT_DEVICE_RIG_H
#define WEFT_DEVICE_RIG_H
#include "device/plan_impl.h"

enum { SMALL, TIMED };
enum { KERNEL_BENCH_FLUSH = 96 << 20, KERNEL_BENCH_LAUNCHES = 64, KERNEL_BENCH_PARAMS = 64 };

// mask: which bytes count at small values, and at those that are timed; NULL: all. What is written may be large (an
// intermediate of attention has room for the whole context): then only the pages that kernels touched are looked at.
typedef struct param {
  int number;
  enum dtype dt;
  uint64_t bytes;
  bool weight, written;
  unsigned char *scratch, *saved, *mask[2];
  unsigned char *pages;          // of a large one that is written: those that have been touched; NULL: it is small
} param;

typedef struct kernel_bench {
  plan *p;
  int unique;
  uop *ast;
  // the calling thread runs everything, and nothing but p's own constants is read: p may be running
  bool alone;
  // it runs on a device with memory of its own, where what is only read lies; what is written comes back (scratch)
  bool remote, failed;
  plan_argument *args;           // of remote launches
  param params[KERNEL_BENCH_PARAMS];
  int n_params, n_launches, n_steps, n_own;
  // launches, on different weights where there are; the first n_own have buffers of their own
  step *steps;
  plan row;                      // of these steps, for plan_replay
  part *parts;
  unsigned char *flush;          // NULL: weights are cold without (or alone)
  plan_var timed[MAX_VARS], small[MAX_VARS];
  int n_vars;
} kernel_bench;

// vars: values for measuring. -1 and why not: it reads what it writes, memory is short, ...; rig_close in any case.
int kernel_bench_open(kernel_bench *g, plan *p, int unique, bool alone, const plan_var *vars, int n_vars, error *err);
void kernel_bench_close(kernel_bench *g);
void kernel_bench_set_up(step *t, const device_kernel *k, const plan_var *vars, int n_vars, int n_threads);
void kernel_bench_run(kernel_bench *g, const device_kernel *k, const plan_var *vars);  // the first launch, once
// Of a remote one: the first n steps, which are set up, and what each took by the device's clock. -1: it failed.
int kernel_bench_launch(kernel_bench *g, int n, double *us);
// all that kernels write
void kernel_bench_background(const kernel_bench *g, int byte);
void kernel_bench_save(const kernel_bench *g);  // what has been written
// The bytes of it that are worth a look, from one piece to the next: *to is where the last piece ended (0: begin), then
// the
// piece is *from .. *to. False: that was the last one.
bool kernel_bench_piece(const param *w, uint64_t *from, uint64_t *to);
// both write the same bits, where they count
bool kernel_bench_same(kernel_bench *g, const device_kernel *base, const device_kernel *k, const plan_var *vars,
                       int mask);
#endif
