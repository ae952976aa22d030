// device: running schedules. A device owns memory, turns programs into something that runs there, and replays plans: a
// plan is a schedule on a device, with kernels compiled (or taken from the cache), intermediates placed, and everything
// recorded in a flat array in which only the values of variables change from run to run. A device is a struct of
// functions in two halves: how kernels are made (cpu.c, opencl.c, cuda.c, nv_code.c, metal.m, and the plain ones in
// device.c), and a `runtime`, which has the memory and runs the plans: host.c for all devices that are in this process,
// remote.c for those with memory of their own, each of which is a table of what its driver does (opencl_plan.c,
// cuda_plan.c and nv_plan.c, metal_plan.m, vulkan_plan.c). docs/porting.md says what a new one has to bring.
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H
#include "base/os.h"
#include "codegen/codegen.h"
#include "device/code.h"
#include "schedule/schedule.h"

typedef struct device device;
typedef OS_KERNEL_ABI void kernel_fn(unsigned char **bufs, const int64_t *vars, int64_t lo, int64_t hi);

// A kernel that a driver has: its own struct begins with this. n_bufs: buffers that it takes.
typedef struct remote_code { void (*unload)(struct remote_code *k); int n_bufs; } remote_code;

// What a device makes of a program. Exactly one of the ways to run is set; none for the null device.
typedef struct device_kernel {
  program *p;                // name, tiles, vars, estimates; for a kernel from the cache without its nodes
  // what the cache keeps (CPU: a code_blob, code.h; OpenCL: the driver's binary; CUDA: PTX; NV: a cubin; Metal: the
  // source) until the kernel is linked; may be empty
  bytes packed;
  kernel_fn *fn;             // CPU: set when the code is mapped
  struct ref_kernel *ref;
  struct remote_code *remote;        // of a device with memory of its own: what its driver has made
  void *library;             // CPU with RENDER=c: from dlopen
} device_kernel;

// How memory is best laid in pages where it is this machine's: huge ones at once, or plain ones that may become huge
// (memory.h).
enum pages { PAGES_HUGE, PAGES_PLAIN };

struct plan;
struct plan_times;
struct plan_options;
// Memory and plans of a device. Functions that return int: 0, or -1 and why not.
typedef struct runtime {
  // its memory is this process's: whoever has an address may read and write there, and no piece of memory need be
  // brought
  bool here;
  void *(*alloc)(device *d, uint64_t size, enum pages pages, error *err);
  void (*release)(device *d, void *at, uint64_t size);
  int (*write)(device *d, void *to, const void *from, size_t n, error *err);
  int (*read)(device *d, void *to, const void *from, size_t n, error *err);
  int (*copy)(device *d, void *to, const void *from, size_t n, error *err);
  int (*fill)(device *d, void *to, unsigned char value, size_t n, error *err);
  uint64_t (*room)(const device *d);               // see device_room; may be NULL
  // Whether a kernel from the cache, with so many buffers, can be used: else it is compiled anew. NULL: link sees to
  // it.
  bool (*take)(device *d, device_kernel *k, int n_bufs);
  // Makes kernels that were compiled, or came from the cache (k.packed, which is used up), ready to run. The image, if
  // there is one, is the caller's.
  int (*link)(device *d, device_kernel *kernels, int n, code_image **image, error *err);
  // Runs a filling kernel over tiles lo..hi-1: from a weight as it lies in the file (host memory, raw_bytes) to its
  // stream (the device's). No kernel: copies bytes lo..hi-1. NULL where the target has no streams.
  int (*lay_out)(struct plan *p, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes, int64_t lo,
                 int64_t hi, error *err);
  // A plan whose steps all have kernels and memory: all that need not be done again for every run. May be NULL; then so
  // is forget.
  int (*record)(struct plan *p, error *err);
  void (*forget)(struct plan *p);
  // once; the steps' variables and tiles are set
  int (*replay)(struct plan *p, error *err);
  int (*replay_timed)(struct plan *p, struct plan_times *out, error *err);     // the same, and how long all steps took
} runtime;

struct device {
  const char *name;          // CPU, CL, ...
  const char *which;         // while it starts: what follows "NAME:" in DEV; "": the default of several
  target target;
  char key[512];             // everything outside the kernel that decides about the code: part of cache keys
  char compiler[128];        // which compiler makes the code, in keys of kernels; "": the key above says it
  // what its kernels' times can be predicted from (predict.h); NULL: nothing
  const struct gpu_figures *figures;
  int n_threads;             // of team
  // the second one runs plans of prompts: the same one, unless that has another number of threads
  struct team *team, *prompt_team;
  struct cache *cache;       // NULL: kernels of this device are not cached
  const runtime *run;
  error lost;                // what failed first on the device; no text: nothing has
  void (*prepare)(device *d);                                    // compiles will follow soon; may be NULL
  int (*compile)(device *d, device_kernel *k, error *err);       // k->p is there; thread-safe
  // the texts that compile goes through (assembly may be NULL); NULL: there are none
  int (*show)(device *d, const program *p, str *source, str *assembly, error *err);
  struct remote *remote;     // memory and plans of a device with memory of its own (remote.h): part of its state
  void *state;               // the device's own, which
  void (*stop)(device *d);   // frees; NULL: free does
};

// Opens the device that DEV names. n_threads 0: the default; n_prompt, for prompts, 0: the same. 0, or -1 and why not.
int device_open(int n_threads, int n_prompt, device **out, error *err);
// The same of another name: "CPU", "CL:1".
int device_open_named(const char *name, int n_threads, int n_prompt, device **out, error *err);
// Bytes of memory that may be asked of it; UINT64_MAX: it does not say, or they are this process's.
uint64_t device_room(const device *d);
void device_close(device *d);

// What DEV may name, by number: false past the end. found: what there is of it here, in words; empty: nothing, and why
// says what is missing.
bool device_known(size_t i, const char **name, str *found, error *why);

// Memory of the device: zeros; NULL and why not, with the numbers. Its addresses are addresses of this process,
// whatever the device is, so that a part of it is named by adding to one. Where the device is not `here` nothing lies
// there, and only these functions, and plans, may look at what does.
void *device_alloc(device *d, uint64_t size, enum pages pages, error *err);
void device_release(device *d, void *at, uint64_t size);        // of device_alloc, the same size; NULL is fine
void device_write(device *d, void *to, const void *from, size_t n);
void device_read(device *d, void *to, const void *from, size_t n);
void device_copy(device *d, void *to, const void *from, size_t n);
void device_fill(device *d, void *to, unsigned char value, size_t n);
// Whether all that was asked of it until now (the above, and runs of plans) has been done: 0, or -1 and why not. A
// device that was lost stays so: it is the error of every request.
int device_check(const device *d, error *err);

typedef struct plan plan;
struct plan_var;
typedef struct plan_options {
  // Memory of buffer `id` (a number below TEMP_IDS); lives as long as the plan. The device's, or this process's: then
  // the plan brings what it reads there before each run (a weight once, when it is built), and what it writes comes
  // back behind it.
  void *(*buffer)(void *ctx, int64_t id);
  void *ctx;
  // What kernel number i of the schedule is for ("blk.*.ffn_down"), for tables; may be NULL.
  void (*role)(void *ctx, const schedule *s, int i, char *out, size_t cap);
  void (*progress)(void *ctx, double fraction);                  // compiling; may be NULL; called with `ctx`
  // Memory for weight `id` laid out in the way that `layout` (a hash) stands for: `bytes` bytes, NULL: the plan keeps
  // it itself. *filled: whether it holds the stream already. May be NULL. Then `filled` hears what has been copied,
  // from .. to as fractions of the weight, and how much of all that is to be copied is done.
  void *(*stream)(void *ctx, int64_t id, uint64_t layout, int64_t size, bool *filled);
  void (*filled)(void *ctx, int64_t id, double from, double to, double done);
  // Weights that are brought when a kernel is about to read them (demand.h), and of how many matrices weight `id` is
  // that is one of them; 0: it is not.  NULL: there are none.  On a device that is here.
  struct demand *demand;
  int64_t (*matrices)(void *ctx, int64_t id);
  // Asked on the caller's thread between kernels that are compiled and pieces that are copied; true: plan_build fails.
  // May be NULL.
  bool (*stops)(void *ctx);
  // Called before each run where there are several processes (device/ranks.h), which have to run the plan, too; and
  // after each run.
  void (*starts)(void *ctx, const struct plan *p, const struct plan_var *vars, int n_vars);
  void (*ends)(void *ctx);
  bool prompt;               // for the threads of prompts
  // numbers too small to be normal count as zeros while it runs, if the device can (team_compute)
  bool flushes;
} plan_options;

// Compiles all kernels of a schedule. The schedule's graph must outlive the plan. 0, or -1 and why not.
int plan_build(device *d, graph *g, const schedule *s, const plan_options *o, plan **out, error *err);
void plan_free(plan *p);

typedef struct plan_var { const char *name; int64_t value; } plan_var;
// Runs everything once, on all of the device; returns when it is done. Every variable of the graph must be given.
// device_check says whether it was done.
void plan_run(plan *p, const plan_var *vars, int n_vars);
// The same; on a device that is here go_on is asked before each group of kernels that depend on those before (part: of
// them, 0 to 1), and within long ones, on the caller's thread; on others, once. Where it says false the rest is left
// out, what the plan writes is undefined, and this is false.
typedef bool plan_go_on(void *ctx, double part);
bool plan_run_asking(plan *p, const plan_var *vars, int n_vars, plan_go_on *go_on, void *ctx);
typedef struct plan_stats {
  int kernels, dispatches, unique, compiled, tuned /* run as a search found them */, graph_ops;
  int64_t arena_bytes;
  double compile_ms, codegen_ms /* of that: rules, before any compiler */;
} plan_stats;
plan_stats plan_get_stats(const plan *p);
// Bytes of the arena that the plan of a schedule will have, without weights that are packed for it.
uint64_t plan_arena_needed(const device *d, const schedule *s, bool prompt);
// Bytes of the arena that runs have used so far: it is as large as the longest sequence asks for. All of it where the
// device does not say.
uint64_t plan_arena_used(const plan *p);
uint64_t plan_gatherings(const plan *p);         // a hash: equal where processes gather the same in the same order
struct team *plan_team(const plan *p);           // the threads that run it

// A kernel of the plan (0 .. plan_stats.kernels - 1) with the bytes that it moves and the float operations that it does
// at these values of the variables. Texts belong to the plan.
typedef struct plan_kernel_info { const char *name, *role; int dispatch; double bytes, flops; } plan_kernel_info;
plan_kernel_info plan_kernel(const plan *p, int i, const plan_var *vars, int n_vars);

// plan_run with time stamps, which cost two looks at the clock per kernel. All times are in microseconds and add up: us
// is overhead_us (before the first dispatch and behind the last) and the sum of kernel_us. A dispatch lasts until
// thread 0 is through the barrier behind it; kernels that share a dispatch share its time in proportion to what all
// threads together spent in each. kernel_wait_us is the part of kernel_us in which a thread waited for others, on
// average over the threads.
typedef struct plan_times { double us, overhead_us, *kernel_us, *kernel_wait_us; } plan_times;
void plan_run_timed(plan *p, const plan_var *vars, int n_vars,
                    plan_times *out);  // the arrays: the caller's, plan_stats.kernels entries
// plan_run with counters (counters.h) read around every kernel, on a device that is here. out: for each kernel
// counters_n sums over the threads; waiting for one another is not in them.
struct counters;
void plan_run_counted(plan *p, const plan_var *vars, int n_vars, const struct counters *c, double *out);
// When a thread began and ended its part of kernel i in the last plan_run_timed, in microseconds since that began.
void plan_lane(const plan *p, int i, int thread, double *from, double *to);
#endif
