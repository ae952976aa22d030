// device: runs schedules. A device owns memory, compiles programs, and replays plans. A plan is a schedule on a device:
// its kernels are compiled (or taken from the cache), intermediates are placed, and everything is recorded in a flat
// array in which only the values of variables change from run to run.
//
// A device is a struct of functions in two parts: how kernels are made (cpu.c, opencl.c, cuda.c, nv_code.c, metal.m,
// and the simple ones in device.c), and a `runtime`, which owns the memory and runs plans: host.c for devices in this
// process, remote.c for devices with separate memory. Each of the latter is a table of driver functions (opencl_plan.c,
// cuda_plan.c, nv_plan.c, metal_plan.m, vulkan_plan.c). docs/porting.md says what a new device has to provide.
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H
#include "base/os.h"
#include "codegen/codegen.h"
#include "device/code.h"
#include "schedule/schedule.h"

typedef struct device device;
typedef OS_KERNEL_ABI void kernel_fn(unsigned char **bufs, const int64_t *vars, int64_t lo, int64_t hi);

// A kernel loaded by a driver: the driver's own struct begins with this. n_bufs: number of its buffers.
typedef struct remote_code { void (*unload)(struct remote_code *k); int n_bufs; } remote_code;

// A compiled kernel. One of the ways to run it is set; none for the null device.
typedef struct device_kernel {
  program *p;                // name, tiles, vars, estimates; without nodes if the kernel comes from the cache
  // what the cache stores, until the kernel is linked (CPU: a code_blob, code.h; OpenCL: the driver's binary; CUDA:
  // PTX; NV: a cubin; Metal: the source); may be empty
  bytes packed;
  kernel_fn *fn;             // CPU: set when the code is mapped
  struct ref_kernel *ref;
  struct remote_code *remote;        // for a device with separate memory: the driver's kernel
  void *library;             // CPU with RENDER=c: handle from dlopen
} device_kernel;

// Kind of pages for memory in this process: huge pages at once, or plain pages that may be promoted (memory.h).
enum pages { PAGES_HUGE, PAGES_PLAIN };

struct plan;
struct plan_times;
struct plan_options;
// Memory and plans of a device. Functions that return int: 0, or -1 and the reason. Any thread may call them: one that
// evaluates, and another one that reads what it has made, such as pages that are written to files.
typedef struct runtime {
  // its memory is in this process: addresses can be read and written directly, without copies
  bool here;
  void *(*alloc)(device *d, uint64_t size, enum pages pages, error *err);
  void (*release)(device *d, void *at, uint64_t size);
  int (*write)(device *d, void *to, const void *from, size_t n, error *err);
  int (*read)(device *d, void *to, const void *from, size_t n, error *err);
  int (*copy)(device *d, void *to, const void *from, size_t n, error *err);
  int (*fill)(device *d, void *to, unsigned char value, size_t n, error *err);
  uint64_t (*room)(const device *d);               // see device_room; may be NULL
  void (*hold)(device *d);                         // see device_hold; NULL: nothing to hold. let_go too
  void (*let_go)(device *d);
  // Can a kernel from the cache with this number of buffers be used? If not, it is compiled again. NULL: link decides.
  bool (*take)(device *d, device_kernel *k, int n_bufs);
  // Makes kernels that were compiled or came from the cache (k.packed, which it consumes) ready to run. The caller owns
  // the image, if there is one.
  int (*link)(device *d, device_kernel *kernels, int n, code_image **image, error *err);
  // Runs a packing kernel over tiles lo..hi-1: from a weight's bytes in the file (host memory, raw_bytes) to the packed
  // weight (the device's). No kernel: copies bytes lo..hi-1. NULL if the target has no packed weights.
  int (*pack_weight)(struct plan *p, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes,
                     int64_t lo, int64_t hi, error *err);
  // Records a plan whose steps have kernels and memory, so that runs repeat less work. May be NULL; then forget is NULL
  // too.
  int (*record)(struct plan *p, error *err);
  void (*forget)(struct plan *p);
  // runs the plan once; the steps' variables and tiles are set
  int (*replay)(struct plan *p, error *err);
  int (*replay_timed)(struct plan *p, struct plan_times *out, error *err);     // runs it with times of all steps
} runtime;

struct device {
  const char *name;          // CPU, CL, ...
  const char *which;         // during the start: the text after "NAME:" in DEV; "": the default of several
  target target;
  char key[512];             // all properties outside the kernel that determine the code: part of cache keys
  char compiler[128];        // the compiler that makes the code, in keys of kernels; "": part of the key above
  // figures for predicting times of its kernels (predict.h); NULL: none
  const struct gpu_figures *figures;
  int n_threads;             // of team
  // prompt_team runs plans of prompts; equal to team unless it has another number of threads
  struct team *team, *prompt_team;
  struct cache *cache;       // NULL: kernels of this device are not cached
  const runtime *run;
  error lost;                // the first failure of the device; empty: none
  int process;               // that opened it
  void (*prepare)(device *d);                                    // called shortly before compiles; may be NULL
  int (*compile)(device *d, device_kernel *k, error *err);       // k->p is set; thread-safe
  // the texts that compile goes through (assembly may be NULL); NULL: not available
  int (*show)(device *d, const program *p, str *source, str *assembly, error *err);
  struct remote *remote;     // memory and plans of a device with separate memory (remote.h): part of its state
  void *state;               // the device's private data, freed by stop
  void (*stop)(device *d);   // frees `state`; NULL: free does
};

// Opens the device that DEV names. n_threads 0: the default; n_prompt, threads for prompts, 0: equal to n_threads.
// Returns 0, or -1 and the reason.
int device_open(int n_threads, int n_prompt, device **out, error *err);
// Opens the device of this name: "CPU", "CL:1".
int device_open_named(const char *name, int n_threads, int n_prompt, device **out, error *err);
// Bytes that can be allocated on it; UINT64_MAX: unknown, or memory of this process.
uint64_t device_room(const device *d);
void device_close(device *d);

// Name i that DEV may have: false past the end. found: what is present of it, in words; empty: nothing, and `why` says
// what is missing.
bool device_known(size_t i, const char **name, str *found, error *why);

// Allocates zeroed memory of the device; NULL and the reason, with the numbers. Its addresses are unique in this
// process for any device, so parts are named by adding to an address. If the device is not `here`, they must not be
// dereferenced: only these functions and plans access the memory.
void *device_alloc(device *d, uint64_t size, enum pages pages, error *err);
void device_release(device *d, void *at, uint64_t size);        // from device_alloc, with equal size; NULL is fine
void device_write(device *d, void *to, const void *from, size_t n);
void device_read(device *d, void *to, const void *from, size_t n);
void device_copy(device *d, void *to, const void *from, size_t n);
void device_fill(device *d, void *to, unsigned char value, size_t n);
// Other threads' requests wait from hold to let_go, so that this thread waits once for several of its own: for one run
// at most, since threads are served in the order in which they ask. Holds no other device meanwhile.
void device_hold(device *d);
void device_let_go(device *d);
// Did this process open the device? -1 and the reason if it was forked from the one that did.
int device_owned(const device *d, error *err);
// device_owned, and have all requests so far (the above, and runs of plans) succeeded? Returns 0, or -1 and the reason.
// A lost device stays lost: every later request fails.
int device_check(const device *d, error *err);

typedef struct plan plan;
struct plan_var;
typedef struct plan_options {
  // Memory of buffer `id` (below TEMP_IDS); it must live as long as the plan. Device memory, or memory of this process:
  // then the plan copies what it reads to the device before each run (a weight once, when the plan is built), and
  // copies back what it writes after the run.
  void *(*buffer)(void *ctx, int64_t id);
  void *ctx;
  // The role of kernel i of the schedule ("blk.*.ffn_down"), for tables; may be NULL.
  void (*role)(void *ctx, const schedule *s, int i, char *out, size_t cap);
  void (*progress)(void *ctx, double fraction);                  // compiling; may be NULL; called with `ctx`
  // Memory of `size` bytes for weight `id` packed in the layout with hash `layout`; NULL: the plan allocates it.
  // *filled: is it already packed? May be NULL. `filled` then reports progress: the range from .. to of the weight that
  // was packed, and the fraction `done` of all packing.
  void *(*stream)(void *ctx, int64_t id, uint64_t layout, int64_t size, bool *filled);
  void (*filled)(void *ctx, int64_t id, double from, double to, double done);
  // Weights loaded on demand (demand.h), and the number of matrices of weight `id` if it is one of them, otherwise 0.
  // NULL: none. Only on a device that is `here`.
  struct demand *demand;
  int64_t (*matrices)(void *ctx, int64_t id);
  // Polled on the caller's thread between compiled kernels and copied pieces; true: plan_build fails. May be NULL.
  bool (*stops)(void *ctx);
  // Called before and after each run if there are several processes (device/ranks.h), which have to run the plan too.
  void (*starts)(void *ctx, const struct plan *p, const struct plan_var *vars, int n_vars);
  void (*ends)(void *ctx);
  bool prompt;               // runs on the threads for prompts
  // flush subnormal numbers to zero while it runs, if the device can (team_compute)
  bool flushes;
} plan_options;

// Compiles all kernels of a schedule. The schedule's graph must outlive the plan. Returns 0, or -1 and the reason.
int plan_build(device *d, graph *g, const schedule *s, const plan_options *o, plan **out, error *err);
void plan_free(plan *p);

typedef struct plan_var { const char *name; int64_t value; } plan_var;
// Runs the plan once on the whole device; returns when it is done. Every variable of the graph must be given.
// device_check reports failures.
void plan_run(plan *p, const plan_var *vars, int n_vars);
// Runs the plan with cancellation. On a device that is `here`, calls go_on on the caller's thread before each level and
// within long kernels (part: fraction done, 0 to 1); on others, once. If it returns false, the rest is skipped, the
// plan's output is undefined, and this returns false.
typedef bool plan_go_on(void *ctx, double part);
bool plan_run_asking(plan *p, const plan_var *vars, int n_vars, plan_go_on *go_on, void *ctx);
typedef struct plan_stats {
  int kernels, dispatches, unique, compiled, tuned /* run as a search found them */, graph_ops;
  int64_t arena_bytes;
  double compile_ms, codegen_ms /* of that: rules, before any compiler */;
} plan_stats;
plan_stats plan_get_stats(const plan *p);
// Bytes of the arena that a schedule's plan will need, without packed weights.
uint64_t plan_arena_needed(const device *d, const schedule *s, bool prompt);
// Bytes of the arena that runs have touched so far, which grow with the longest sequence. The whole arena if the device
// cannot tell.
uint64_t plan_arena_used(const plan *p);
uint64_t plan_gatherings(const plan *p);         // a hash: equal if processes gather equal data in an equal order
struct team *plan_team(const plan *p);           // the threads that run it

// Kernel i of the plan (0 .. plan_stats.kernels - 1), with the bytes that it moves and its float operations for these
// values of the variables. Texts belong to the plan.
typedef struct plan_kernel_info { const char *name, *role; int dispatch; double bytes, flops; } plan_kernel_info;
plan_kernel_info plan_kernel(const plan *p, int i, const plan_var *vars, int n_vars);

// plan_run with time stamps, at two clock reads per kernel. All times are in microseconds and add up: us is overhead_us
// (before the first dispatch and after the last) plus the sum of kernel_us. A dispatch ends when thread 0 has passed
// the barrier after it. Kernels that share a dispatch share its time in proportion to the time that all threads spent
// in each. kernel_wait_us is the part of kernel_us that threads waited for others, averaged over the threads.
typedef struct plan_times { double us, overhead_us, *kernel_us, *kernel_wait_us; } plan_times;
void plan_run_timed(plan *p, const plan_var *vars, int n_vars,
                    plan_times *out);  // the caller owns the arrays, of plan_stats.kernels entries
// plan_run with counters (counters.h) read around every kernel, on a device that is `here`. out: for each kernel
// counters_n sums over the threads, without waiting.
struct counters;
void plan_run_counted(plan *p, const plan_var *vars, int n_vars, const struct counters *c, double *out);
// When a thread began and ended its part of kernel i in the last plan_run_timed, in microseconds from its start.
void plan_lane(const plan *p, int i, int thread, double *from, double *to);
#endif
