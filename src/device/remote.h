// remote: what devices with memory of their own have in common (opencl_plan.c, cuda_plan.c, metal_plan.m): which piece
// of memory an address lies in, weights brought once for all plans, what comes and goes with each run of one, and
// times.
#ifndef WEFT_DEVICE_REMOTE_H
#define WEFT_DEVICE_REMOTE_H
#include "base/base.h"
#include "device/device.h"

struct plan_argument;

enum { REMOTE_SLACK = 64 /* bytes behind a buffer that wide loads may read */ };

// Of a driver. `memory` is what it calls a piece of its memory; put and get wait for nothing but what is in the
// queue: 0, or the driver's code.
typedef struct remote_driver {
  const char *name;                                                            // in messages
  void *(*make)(void *state, uint64_t size, error *err);                       // zeros; NULL and why not
  void *(*bring)(void *state, const void *from, uint64_t size, error *err);    // only read; NULL and why not
  void (*drop)(void *state, void *memory);
  int (*put)(void *state, void *queue, void *memory, const void *from, uint64_t n);
  int (*get)(void *state, void *queue, void *to, void *memory, uint64_t n);
} remote_driver;

typedef struct remote_area { unsigned char *at; uint64_t size; void *memory; } remote_area;
typedef struct remote_import { const void *from; uint64_t size; void *memory; int users; } remote_import;
typedef struct remote {
  const remote_driver *d;
  void *state;                     // the driver's
  VEC(remote_area) areas;          // memory by its addresses
  VEC(remote_import) imports;      // weights that plans read as they lie in the host's memory, by their addresses there
} remote;

// Memory of the host's that a plan reads or writes, and its place on the device.
typedef struct remote_guest { unsigned char *at; uint64_t size; void *memory; bool in, out; } remote_guest;
typedef struct remote_traffic { VEC(remote_guest) guests; VEC(void *) weights; } remote_traffic;

void remote_free(remote *r);
// The piece of memory that an address lies in; NULL: it is the host's.
const remote_area *remote_area_of(const remote *r, const void *at);
// The same of n bytes that have to be the device's, and how far behind its beginning they lie.
const remote_area *remote_must_lie(const remote *r, const void *at, size_t n, size_t *offset);
// Forgets the piece that begins there; false: there is none.
bool remote_take(remote *r, const void *at, remote_area *out);

// Where an argument of a kernel lies on the device, *offset bytes behind the beginning of the memory that it gives.
// What lies on the host is brought: a weight at once, anything else before each run. NULL and why not.
void *remote_place(remote *r, remote_traffic *t, unsigned char *at,
                   const struct plan_argument *what, size_t *offset, error *err);
// before a run, and behind it: 0, or the driver's code
int remote_put(const remote *r, void *queue, const remote_traffic *t);
int remote_get(const remote *r, void *queue, const remote_traffic *t);
void remote_forget(remote *r, remote_traffic *t);

// spans: when each kernel began and ended, in seconds since the first one did. Lanes (plan_lane) are one, as if a
// single thread ran everything.
void remote_times(struct plan *p, const double (*spans)[2], double seconds, plan_times *out);
#endif
