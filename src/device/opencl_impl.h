// Declarations shared by opencl.c (driver, compiling), opencl_find.c (devices) and opencl_plan.c (memory, plans); no
// other file includes this.
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
  cl_command_queue queue, timing;  // both in order; timing: with time stamps, made by the first timed run
  pthread_mutex_t lock;            // a kernel's arguments are state of the kernel object
  char name[256], driver[120];     // name: "driver: device"
  int number;                      // of the device, among all
  bool exact_divide, unified, is_cpu, has_doubles;  // unified: its memory is the host's
  size_t max_group, local_bytes;
  uint64_t max_alloc, bytes, cache_bytes;
  int units, float_lanes;          // compute units; lanes of its float vectors
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
// Selects the device that `which` names, a number or a part of a name; "": the first one. -1, and err with all devices.
int cl_choose(cl *d, const char *which, error *err);

// A child process that can probe a compiler that may crash. Begin it before cl_open loads a driver; NULL: it could not
// be made. Unused, it costs a fork.
typedef struct cl_probe cl_probe;
struct cache;
cl_probe *cl_probe_begin(void);
void cl_probe_end(cl_probe *p);    // NULL is fine
// Are vectors of any size supported? False if unknown. The probe's answer is cached.
bool cl_knows_wide_vectors(const cl *d, cl_probe *p, struct cache *kept);

int cl_failed(const cl *d, error *err, const char *what,
              cl_int code);  // -1, with a message that names the device, the action and the code
// Arguments of a kernel in order: buffers, the byte offset at which each begins, variables, and lo and hi if it has
// tiles.
cl_int cl_set_buffer(const cl_code *k, cl_kernel to, int number, cl_mem mem, int64_t offset);
cl_int cl_set_long(const cl_code *k, cl_kernel to, int at, int64_t value);
static inline int cl_first_var(const cl_code *k) { return 2 * k->base.n_bufs; }
// The sizes of a launch; false if there is no work. `parts` work-items share the tiles.
bool cl_sizes(const cl_code *k, const int64_t *vars, int64_t tiles, int parts, size_t *global, size_t *local);
#endif

