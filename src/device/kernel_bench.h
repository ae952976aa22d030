// kernel_bench: runs one kernel of a plan by itself over the plan's own weights. Its other buffers (activations, the KV
// cache, logits) are scratch memory with random contents, so the engine's data does not change; outputs of kernels can
// be compared. Used by tune.c, which runs it on all threads, and by online_tuner.c, which uses its own thread.
#ifndef WEFT_DEVICE_RIG_H
#define WEFT_DEVICE_RIG_H
#include "device/plan_impl.h"

enum { SMALL, TIMED };
enum { KERNEL_BENCH_FLUSH = 96 << 20, KERNEL_BENCH_LAUNCHES = 64, KERNEL_BENCH_PARAMS = 64 };

// mask: the bytes that count at small values and at timed values; NULL: all. An output may be large (an intermediate of
// attention has space for the whole context): then only the pages that kernels touch are compared.
typedef struct param {
  int number;
  enum dtype dt;
  uint64_t bytes;
  bool weight, written;
  unsigned char *scratch, *saved, *mask[2];
  unsigned char *pages;          // touched pages of a large output; NULL: it is small
} param;

typedef struct kernel_bench {
  plan *p;
  int unique;
  uop *ast;
  // the calling thread runs everything and reads only constants of p: p may be running
  bool alone;
  // runs on a device with separate memory, which holds its inputs; outputs are copied back (scratch)
  bool remote, failed;
  plan_argument *args;           // arguments of remote launches
  param params[KERNEL_BENCH_PARAMS];
  int n_params, n_launches, n_steps, n_own;
  // launches, on different weights if there are several; the first n_own have their own buffers
  step *steps;
  plan row;                      // a plan of these steps, for plan_replay
  part *parts;
  unsigned char *flush;          // NULL: weights are cold without flushing (or alone)
  plan_var timed[MAX_VARS], small[MAX_VARS];
  int n_vars;
} kernel_bench;

// vars: values for timing. Returns -1 and the reason: it reads what it writes, memory is short, ...; call
// kernel_bench_close in either case.
int kernel_bench_open(kernel_bench *g, plan *p, int unique, bool alone, const plan_var *vars, int n_vars, error *err);
void kernel_bench_close(kernel_bench *g);
void kernel_bench_set_up(step *t, const device_kernel *k, const plan_var *vars, int n_vars, int n_threads);
void kernel_bench_run(kernel_bench *g, const device_kernel *k, const plan_var *vars);  // runs the first launch once
// Remote: runs the first n prepared steps; us: time of each by the device's clock. -1: it failed.
int kernel_bench_launch(kernel_bench *g, int n, double *us);
// fills all outputs with this byte
void kernel_bench_background(const kernel_bench *g, int byte);
void kernel_bench_save(const kernel_bench *g);  // saves the outputs
// Iterates over the pieces of an output that are worth comparing: *to is the end of the last piece (0: begin), then the
// piece is *from .. *to. False: that was the last one.
bool kernel_bench_piece(const param *w, uint64_t *from, uint64_t *to);
// do both kernels write equal bits where they count?
bool kernel_bench_same(kernel_bench *g, const device_kernel *base, const device_kernel *k, const plan_var *vars,
                       int mask);
#endif
