// remote: the common part of devices with separate memory: the runtime (device.h) with memory, copies, kernels from the
// cache, packing of weights, recording, transfers of a run, and times. A driver (opencl_plan.c, cuda_plan.c, nv_plan.c,
// metal_plan.m, vulkan_plan.c) says how memory is allocated, copied and freed, how a kernel is loaded, and how commands
// (remote_steps.h) are recorded, run and timed.
//
// A piece of memory is a driver's allocation, plus a range of addresses of this process that names its parts. If the
// driver has no addresses of its own, the range has no access, and touching it is a fault.
#ifndef WEFT_DEVICE_REMOTE_H
#define WEFT_DEVICE_REMOTE_H
#include "base/arena.h"
#include "base/base.h"
#include "base/turn.h"
#include "device/device.h"
#include "device/remote_steps.h"

enum { REMOTE_SLACK = 64 /* bytes after a buffer that wide loads may read */ };

// Use of memory: device data; data exchanged with this process in each run; read-only data that is written once.
enum remote_use { REMOTE_AREA, REMOTE_GUEST, REMOTE_WEIGHT };

// Host memory that a plan reads or writes, and its copy on the device.
typedef struct remote_guest { unsigned char *at; uint64_t size; void *memory; bool in, out; } remote_guest;
typedef struct remote_traffic { VEC(remote_guest) guests; VEC(void *) weights; } remote_traffic;

typedef struct remote_plan {
  remote_traffic traffic;
  remote_steps steps;
  arena *mem;                      // lives as long as the plan
  unsigned char *vars;             // of all commands, if the driver has allocated it (record)
  void *own;                       // of the driver
} remote_plan;

// Functions that return int: 0, or -1 and the reason. Any thread calls them, one at a time: the one that holds
// remote.turn, which remote_turns.c takes for every function of the runtime. Requests are executed in order; when
// `wait` returns, put's source may be overwritten and get's data is there. Without the turn: address, and what compiles
// kernels (device.compile) or frees them (remote_code.unload), so a driver takes the turn there if these use its state.
typedef struct remote_driver {
  const char *name;                // for messages
  int aligned;                     // alignment of buffers that kernels assume; 0: none
  void *(*make)(void *state, uint64_t size, enum remote_use use, error *err);  // zeroed; NULL and the reason on failure
  // Memory over read-only host bytes. NULL without an error: they have to be copied. May be NULL.
  void *(*wrap)(void *state, const void *from, uint64_t size, error *err);
  void (*drop)(void *state, void *memory);
  // its address in this process; NULL, or no such function: none
  unsigned char *(*address)(const void *memory);
  int (*put)(void *state, void *memory, uint64_t at, const void *from, uint64_t n, error *err);
  int (*get)(void *state, void *to, void *memory, uint64_t at, uint64_t n, error *err);
  int (*copy)(void *state, void *to, uint64_t to_at, void *from, uint64_t from_at, uint64_t n, error *err);
  int (*fill)(void *state, void *memory, uint64_t at, unsigned char value, uint64_t n, error *err);
  int (*wait)(void *state, error *err);            // until all requests are done; NULL: each call waits
  uint64_t (*room)(void *state);   // free bytes; UINT64_MAX: unknown
  // Sets k->remote from compiled code or from the cache (k->packed).
  int (*load)(void *state, device_kernel *k, int n_bufs, error *err);
  // Records commands whose ranges are known. forget: also after a failed record.
  int (*record)(void *state, remote_plan *r, error *err);
  void (*forget)(void *state, remote_plan *r);
  // Runs all commands with work, once. spans: start and end of each, in seconds from the first start, by the device's
  // own clock; NULL: not wanted.
  int (*run)(void *state, remote_plan *r, double (*spans)[2], error *err);
} remote_driver;

typedef struct remote_area { unsigned char *at; uint64_t size; void *memory; bool reserved; } remote_area;
typedef struct remote_import { const void *from; uint64_t size; void *memory; int users; } remote_import;
typedef struct remote {
  const remote_driver *d;
  void *state;                     // of the driver
  turn_lock turn;                  // of all that follows, and of the driver's functions
  int parts;                       // see remote_steps
  VEC(remote_area) areas;          // memory by address
  VEC(remote_import) imports;      // weights that plans read directly in host memory, by address
} remote;

extern const runtime remote_runtime;
// Makes dev run on driver d with this state. r: part of the state.
void remote_start(device *dev, remote *r, const remote_driver *d, void *state);
void remote_free(remote *r);

// the address of a command's range, for a driver with addresses
static inline uint64_t remote_at(const remote_range *r) { return (uint64_t)(uintptr_t)r->memory + r->from; }

// ---- between the files of the runtime -------------------------------------------------------------------------------
//
// All of these are called in the thread's turn.

// The place of a kernel's buffer on the device: its memory, and *offset in it. Host memory is copied: a weight at once,
// other buffers before each run. NULL and the reason on failure.
void *remote_place(remote *r, remote_traffic *t, unsigned char *at, const plan_argument *what, uint64_t *offset,
                   error *err);
// Memory with read-only host bytes. NULL and the reason on failure.
void *remote_bring(const remote *r, const void *from, uint64_t size, error *err);
// The piece that contains n bytes of device memory, and the offset in it.
const remote_area *remote_must_lie(const remote *r, const void *at, uint64_t n, uint64_t *offset);
void remote_forget_traffic(remote *r, remote_traffic *t);
int remote_wait(const remote *r, error *err);

void *remote_alloc(device *dev, uint64_t bytes_wanted, enum pages pages, error *err);
void remote_release(device *dev, void *at, uint64_t size);
int remote_write(device *dev, void *to, const void *from, size_t n, error *err);
int remote_read(device *dev, void *to, const void *from, size_t n, error *err);
int remote_copy(device *dev, void *to, const void *from, size_t n, error *err);
int remote_fill(device *dev, void *to, unsigned char value, size_t n, error *err);
uint64_t remote_room(const device *dev);
bool remote_take(device *dev, device_kernel *k, int n_bufs);
int remote_link(device *dev, device_kernel *k, error *err);
int remote_record(plan *p, error *err);
void remote_forget(plan *p);
int remote_replay(plan *p, error *err);
int remote_replay_timed(plan *p, struct plan_times *out, error *err);
int remote_pack_weight(plan *p, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes, int64_t lo,
                       int64_t hi, error *err);
#endif
