// remote: devices with memory of their own. What they have in common is here, once: the runtime (device.h) with its
// memory, copies, kernels from the cache, weights that are laid out, recording, what comes and goes with a run, and
// times. A driver (opencl_plan.c, cuda_plan.c, nv_plan.c, metal_plan.m, vulkan_plan.c) says how memory is made, copied
// and dropped, how a kernel is loaded, and how commands (remote_steps.h) are recorded, run and timed.
//
// A piece of memory is what a driver makes, and a range of addresses of this process by which parts of it are named as
// anywhere. Where the driver has no addresses of its own, nothing lies there and touching them is a fault.
#ifndef WEFT_DEVICE_REMOTE_H
#define WEFT_DEVICE_REMOTE_H
#include "base/arena.h"
#include "base/base.h"
#include "device/device.h"
#include "device/remote_steps.h"

enum { REMOTE_SLACK = 64 /* bytes behind a buffer that wide loads may read */ };

// What memory is for: the device; what comes from and goes to this process with each run; what kernels only read, and
// is filled once.
enum remote_use { REMOTE_AREA, REMOTE_GUEST, REMOTE_WEIGHT };

// Memory of the host's that a plan reads or writes, and its place on the device.
typedef struct remote_guest { unsigned char *at; uint64_t size; void *memory; bool in, out; } remote_guest;
typedef struct remote_traffic { VEC(remote_guest) guests; VEC(void *) weights; } remote_traffic;

typedef struct remote_plan {
  remote_traffic traffic;
  remote_steps steps;
  arena *mem;                      // goes with the plan
  unsigned char *vars;             // of all commands, where the driver has made memory for them (record)
  void *own;                       // the driver's
} remote_plan;

// Functions that return int: 0, or -1 and why not. All may be called by any thread, one at a time. What is asked for is
// done in order; put's bytes may be overwritten, and get's are there, when `wait` returns.
typedef struct remote_driver {
  const char *name;                // in messages
  int aligned;                     // what kernels assume of addresses of buffers; 0: nothing
  void *(*make)(void *state, uint64_t size, enum remote_use use, error *err);      // zeros; NULL and why not
  // Memory over bytes of the host's that are only read. NULL without an error: they have to be copied. May be NULL.
  void *(*wrap)(void *state, const void *from, uint64_t size, error *err);
  void (*drop)(void *state, void *memory);
  // where it begins among addresses of this process; NULL, or no such function: nowhere
  unsigned char *(*address)(const void *memory);
  int (*put)(void *state, void *memory, uint64_t at, const void *from, uint64_t n, error *err);
  int (*get)(void *state, void *to, void *memory, uint64_t at, uint64_t n, error *err);
  int (*copy)(void *state, void *to, uint64_t to_at, void *from, uint64_t from_at, uint64_t n, error *err);
  int (*fill)(void *state, void *memory, uint64_t at, unsigned char value, uint64_t n, error *err);
  int (*wait)(void *state, error *err);            // until all is done; may be NULL: it is when a call returns
  uint64_t (*room)(void *state);   // bytes that are left; UINT64_MAX: nobody knows
  // From what was compiled, or came from the cache (k->packed): sets k->remote.
  int (*load)(void *state, device_kernel *k, int n_bufs, error *err);
  // Commands whose ranges are known. forget: also of one whose recording failed.
  int (*record)(void *state, remote_plan *r, error *err);
  void (*forget)(void *state, remote_plan *r);
  // Runs all commands that are not empty, once. spans: when each began and ended, in seconds since the first one did,
  // by the device's own clock; NULL: nobody asks.
  int (*run)(void *state, remote_plan *r, double (*spans)[2], error *err);
} remote_driver;

typedef struct remote_area { unsigned char *at; uint64_t size; void *memory; bool reserved; } remote_area;
typedef struct remote_import { const void *from; uint64_t size; void *memory; int users; } remote_import;
typedef struct remote {
  const remote_driver *d;
  void *state;                     // the driver's
  int parts;                       // see remote_steps
  VEC(remote_area) areas;          // memory by its addresses
  VEC(remote_import) imports;      // weights that plans read as they lie in the host's memory, by their addresses there
} remote;

extern const runtime remote_runtime;
// dev runs on the driver d, whose state is that. r: part of the state.
void remote_start(device *dev, remote *r, const remote_driver *d, void *state);
void remote_free(remote *r);

// where a range of a command begins, for a driver with addresses
static inline uint64_t remote_at(const remote_range *r) { return (uint64_t)(uintptr_t)r->memory + r->from; }

// ---- between the files of the runtime -------------------------------------------------------------------------------

// Where a buffer of a kernel lies on the device: its memory, and *offset bytes behind its beginning. What lies on the
// host is brought: a weight at once, anything else before each run. NULL and why not.
void *remote_place(remote *r, remote_traffic *t, unsigned char *at, const plan_argument *what, uint64_t *offset,
                   error *err);
// Memory that holds bytes of the host's, which are only read. NULL and why not.
void *remote_bring(const remote *r, const void *from, uint64_t size, error *err);
// The piece that n bytes of the device's memory lie in, and how far behind its beginning.
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
#endif
