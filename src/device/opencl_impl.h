// What opencl.c (the driver, compiling), opencl_find.c (devices) and opencl_plan.c (memory, plans) share. No other file
// includes this.
#ifndef WEFT_DEVICE_OPENCL_IMPL_H
#define WEFT_DEVICE_OPENCL_IMPL_H
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include "device/opencl.h"
#include "device/remote.h"

#define CL_FUNCTIONS(F) \
  F(GetPlatformIDs) F(GetPlatformInfo) F(GetDeviceIDs) F(GetDeviceInfo) F(CreateContext) F(ReleaseContext) \
  F(CreateCommandQueue) F(ReleaseCommandQueue) \
  F(CreateProgramWithSource) F(CreateProgramWithBinary) F(BuildProgram) F(GetProgramBuildInfo) F(GetProgramInfo) \
  F(ReleaseProgram) \
  F(CreateKernel) F(ReleaseKernel) F(SetKernelArg) F(GetKernelInfo) F(GetEventProfilingInfo) F(ReleaseEvent) \
  F(CreateBuffer) F(ReleaseMemObject) F(EnqueueNDRangeKernel) F(EnqueueMapBuffer) F(EnqueueUnmapMemObject) \
  F(EnqueueReadBuffer) F(EnqueueWriteBuffer) F(EnqueueCopyBuffer) F(EnqueueFillBuffer) F(Finish)

struct cl {
#define F(name) __typeof__(&cl##name) name;
  CL_FUNCTIONS(F)
#undef F
  void *library;
  cl_device_id device;
  cl_context context;
  cl_command_queue queue, timing;  // in order, both; timing: made by the first run that is timed, with time stamps
  pthread_mutex_t lock;            // a kernel's arguments are state of the kernel
  char name[256], driver[120];     // name: "driver: device"
  int number;                      // of the device, among all
  bool exact_divide, unified, is_cpu, has_doubles;  // unified: its memory is the host's
  size_t max_group, local_bytes;
  uint64_t max_alloc, bytes, cache_bytes;
  int units, float_lanes;          // that compute; that its vectors have
  remote memory;
};

struct cl_code {
  remote_code base;
  cl *d;
  const program *p;
  cl_program program;
  cl_kernel kernel;
  bool tiles;                      // takes lo and hi
};

int cl_load_loader(cl *d, error *err);    // the loader and its functions
// The device that `which` names, a number or a part of a name; "": the first one. -1, and err with all that there are.
int cl_choose(cl *d, const char *which, error *err);

// A child that may ask a compiler what would end this process. Begun before cl_open loads a driver; NULL: none could be
// made. Ended without an answer, it costs a fork.
typedef struct cl_probe cl_probe;
struct cache;
cl_probe *cl_probe_begin(void);
void cl_probe_end(cl_probe *p);    // NULL is fine
// Whether vectors of any size are known; false as well if nothing can be said. What the probe says is kept.
bool cl_knows_wide_vectors(const cl *d, cl_probe *p, struct cache *kept);

int cl_failed(const cl *d, error *err, const char *what,
              cl_int code);  // -1, and a sentence that names the device, what it was about and the code
// The arguments of a kernel stand in this order: buffers, the bytes by which each begins later, variables, and lo and
// hi if it has tiles.
cl_int cl_set_buffer(const cl_code *k, cl_kernel to, int number, cl_mem mem, int64_t offset);
cl_int cl_set_long(const cl_code *k, cl_kernel to, int at, int64_t value);
static inline int cl_first_var(const cl_code *k) { return 2 * k->base.n_bufs; }
// The sizes of a launch; false where there is nothing to do. Tiles are shared out among `parts` work-items.
bool cl_sizes(const cl_code *k, const int64_t *vars, int64_t tiles, int parts, size_t *global, size_t *local);
#endif

