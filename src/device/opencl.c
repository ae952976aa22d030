// OpenCL through its loader: see opencl.h.
//
// The functions used are declared once, in an X-macro that makes the table and the look-up; their types come from the
// standard's headers.  Every call's status is checked; an error names the call and the code.
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 120
#include "device/opencl.h"
#include <CL/cl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "render/render.h"

#define CL_FUNCTIONS(F) \
  F(GetPlatformIDs) F(GetPlatformInfo) F(GetDeviceIDs) F(GetDeviceInfo) F(CreateContext) F(ReleaseContext) F(CreateCommandQueue) F(ReleaseCommandQueue) \
  F(CreateProgramWithSource) F(BuildProgram) F(GetProgramBuildInfo) F(ReleaseProgram) F(CreateKernel) F(ReleaseKernel) F(SetKernelArg) \
  F(CreateBuffer) F(ReleaseMemObject) F(EnqueueNDRangeKernel) F(EnqueueMapBuffer) F(EnqueueUnmapMemObject) F(Finish)

struct cl {
#define F(name) __typeof__(&cl##name) name;
  CL_FUNCTIONS(F)
#undef F
  void *library;
  cl_device_id device;
  cl_context context;
  cl_command_queue queue;
  pthread_mutex_t lock;            // a kernel's arguments are state of the kernel
  char name[256];
  bool exact_divide;
  size_t max_group, local_bytes;
};

struct cl_code {
  cl *d;
  const program *p;
  cl_program program;
  cl_kernel kernel;
  bool tiles;                      // takes lo and hi
};

static const char *code_name(cl_int code) {
  switch (code) {
  case -1: return "CL_DEVICE_NOT_FOUND";
  case -4: return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
  case -5: return "CL_OUT_OF_RESOURCES";
  case -6: return "CL_OUT_OF_HOST_MEMORY";
  case -11: return "CL_BUILD_PROGRAM_FAILURE";
  case -46: return "CL_INVALID_KERNEL_NAME";
  case -49: return "CL_INVALID_ARG_INDEX";
  case -51: return "CL_INVALID_ARG_SIZE";
  case -52: return "CL_INVALID_KERNEL_ARGS";
  case -54: return "CL_INVALID_WORK_GROUP_SIZE";
  case -55: return "CL_INVALID_WORK_ITEM_SIZE";
  case -61: return "CL_INVALID_BUFFER_SIZE";
  case -1001: return "no driver is installed";
  default: return "error";
  }
}

static int failed(error *err, const char *what, cl_int code) { return error_set(err, "OpenCL: %s: %s (%d)", what, code_name(code), (int)code); }

// ---- opening ----------------------------------------------------------------------------------------------------------

static int load(cl *d, error *err) {
  d->library = dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!d->library) return error_set(err, "OpenCL needs its loader, libOpenCL.so.1: install ocl-icd-libopencl1 and a driver such as pocl-opencl-icd");
#define F(fn) \
  { void *p = dlsym(d->library, "cl" #fn); memcpy(&d->fn, &p, sizeof p); if (!p) return error_set(err, "the OpenCL loader lacks cl" #fn); }
  CL_FUNCTIONS(F)
#undef F
  return 0;
}

static int choose_device(cl *d, error *err) {
  cl_platform_id platforms[16];
  cl_uint n = 0;
  cl_int r = d->GetPlatformIDs(COUNT(platforms), platforms, &n);
  if (r || !n) return error_set(err, "OpenCL: no driver is installed (%d): install one, such as pocl-opencl-icd", (int)r);
  for (cl_uint i = 0; i < n && i < COUNT(platforms); i++) {
    cl_uint found = 0;
    if (d->GetDeviceIDs(platforms[i], CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_CPU, 1, &d->device, &found) || !found) continue;
    char platform[120] = "", device[120] = "";
    d->GetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof platform, platform, NULL);
    d->GetDeviceInfo(d->device, CL_DEVICE_NAME, sizeof device, device, NULL);
    snprintf(d->name, sizeof d->name, "%s: %s", platform, device);
    return 0;
  }
  return error_set(err, "OpenCL: %u drivers, but no GPU or CPU among their devices", n);
}

int cl_open(cl **out, error *err) {
  cl *d = xcalloc(1, sizeof *d);
  *out = NULL;
  pthread_mutex_init(&d->lock, NULL);
  if (load(d, err) || choose_device(d, err)) { cl_close(d); return -1; }
  cl_int r = 0;
  d->context = d->CreateContext(NULL, 1, &d->device, NULL, NULL, &r);
  if (!d->context) { failed(err, "creating a context", r); cl_close(d); return -1; }
  d->queue = d->CreateCommandQueue(d->context, d->device, 0, &r);
  if (!d->queue) { failed(err, "creating a queue", r); cl_close(d); return -1; }
  cl_device_fp_config fp = 0;
  cl_ulong local = 0;
  d->GetDeviceInfo(d->device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof fp, &fp, NULL);
  d->GetDeviceInfo(d->device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
  d->GetDeviceInfo(d->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof d->max_group, &d->max_group, NULL);
  d->exact_divide = fp & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
  d->local_bytes = (size_t)local;
  *out = d;
  return 0;
}

void cl_close(cl *d) {
  if (!d) return;
  if (d->queue) d->ReleaseCommandQueue(d->queue);
  if (d->context) d->ReleaseContext(d->context);
  // The loader stays loaded: drivers have threads and exit handlers that do not survive dlclose.
  pthread_mutex_destroy(&d->lock);
  free(d);
}

const char *cl_name(const cl *d) { return d->name; }

void cl_target(const cl *d, target *out) {
  *out = render_find("opencl")->target;
  out->max_local_bytes = (int)min_i64((int64_t)d->local_bytes, 65536);
  out->max_group = (int)min_i64((int64_t)d->max_group, 1024);
}

// ---- compiling --------------------------------------------------------------------------------------------------------

static int build_failed(cl_code *k, const char *source, cl_int code, error *err) {
  char log[800] = "";
  size_t n = 0;
  cl *d = k->d;
  if (!d->GetProgramBuildInfo(k->program, d->device, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) && n) {
    char *full = xcalloc(n + 1, 1);
    d->GetProgramBuildInfo(k->program, d->device, CL_PROGRAM_BUILD_LOG, n, full, NULL);
    snprintf(log, sizeof log, "%s", full);
    free(full);
  }
  if (debug_level() >= 4) fprintf(stderr, "%s\n", source);
  return error_set(err, "OpenCL: %s does not compile (%d): %s", k->p->name, (int)code, log);
}

static int build(cl_code *k, const char *source, error *err) {
  cl *d = k->d;
  cl_int r = 0;
  k->program = d->CreateProgramWithSource(d->context, 1, &source, NULL, &r);
  if (!k->program) return failed(err, "taking the source", r);
  r = d->BuildProgram(k->program, 1, &d->device, d->exact_divide ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt" : "-cl-std=CL1.2", NULL, NULL);
  if (r) return build_failed(k, source, r, err);
  k->kernel = d->CreateKernel(k->program, k->p->name, &r);
  return k->kernel ? 0 : failed(err, k->p->name, r);
}

cl_code *cl_compile(cl *d, const program *p, const char *source, error *err) {
  cl_code *k = xcalloc(1, sizeof *k);
  k->d = d;
  k->p = p;
  for (size_t i = 0; i < p->n; i++) k->tiles |= p->at[i]->op == OP_RANGE && p->at[i]->b == AXIS_GLOBAL;
  pthread_mutex_lock(&d->lock);
  int r = build(k, source, err);
  pthread_mutex_unlock(&d->lock);
  if (!r) return k;
  cl_code_free(k);
  return NULL;
}

void cl_code_free(cl_code *k) {
  if (!k) return;
  if (k->kernel) k->d->ReleaseKernel(k->kernel);
  if (k->program) k->d->ReleaseProgram(k->program);
  free(k);
}

// ---- launching --------------------------------------------------------------------------------------------------------

static int set_arguments(cl_code *k, const cl_mem *mem, const int64_t *vars, int64_t lo, int64_t hi, error *err) {
  cl *d = k->d;
  cl_uint at = 0;
  cl_int r = 0;
  for (int i = 0; i < k->p->n_bufs && !r; i++) r = d->SetKernelArg(k->kernel, at++, sizeof mem[i], &mem[i]);
  for (int i = 0; i < k->p->n_vars && !r; i++) { cl_long v = vars[i]; r = d->SetKernelArg(k->kernel, at++, sizeof v, &v); }
  for (int i = 0; i < (k->tiles ? 2 : 0) && !r; i++) { cl_long v = i ? hi : lo; r = d->SetKernelArg(k->kernel, at++, sizeof v, &v); }
  return r ? failed(err, "setting an argument", r) : 0;
}

static int enqueue(cl_code *k, const int64_t *vars, error *err) {
  size_t global[3] = {1, 1, 1}, local[3] = {1, 1, 1};
  for (int i = 0; i < 3; i++) {
    int64_t l = k->p->local[i] ? program_eval(k->p, k->p->local[i], vars) : 1, g = k->p->global[i] ? program_eval(k->p, k->p->global[i], vars) : 1;
    if (l < 1 || g < 0) return error_set(err, "OpenCL: %s: %lld work-groups of %lld", k->p->name, (long long)g, (long long)l);
    if (!g) return 0;                                        // nothing to do
    local[i] = (size_t)l;
    global[i] = (size_t)l * (size_t)g;
  }
  cl_int r = k->d->EnqueueNDRangeKernel(k->d->queue, k->kernel, 3, NULL, global, local, 0, NULL, NULL);
  return r ? failed(err, k->p->name, r) : 0;
}

// Mapping a buffer makes the host's memory current.
static int take_back(cl *d, cl_mem mem, size_t size, error *err) {
  cl_int r = 0;
  void *p = d->EnqueueMapBuffer(d->queue, mem, CL_TRUE, CL_MAP_READ, 0, size, 0, NULL, NULL, &r);
  if (!p) return failed(err, "reading a buffer back", r);
  r = d->EnqueueUnmapMemObject(d->queue, mem, p, 0, NULL, NULL);
  return r ? failed(err, "reading a buffer back", r) : 0;
}

static int launch(cl_code *k, cl_mem *mem, unsigned char *const *bufs, const size_t *sizes, const int64_t *vars, int64_t lo, int64_t hi, error *err) {
  cl *d = k->d;
  cl_int r = 0;
  for (int i = 0; i < k->p->n_bufs; i++) {
    mem[i] = d->CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, sizes[i], bufs[i], &r);
    if (!mem[i]) return failed(err, "giving a buffer to the device", r);
  }
  if (set_arguments(k, mem, vars, lo, hi, err) || enqueue(k, vars, err)) return -1;
  r = d->Finish(d->queue);
  if (r) return failed(err, k->p->name, r);
  for (int i = 0; i < k->p->n_bufs; i++)
    if (k->p->bufs[i].written && take_back(d, mem[i], sizes[i], err)) return -1;
  r = d->Finish(d->queue);
  return r ? failed(err, k->p->name, r) : 0;
}

int cl_launch(cl_code *k, unsigned char *const *bufs, const size_t *sizes, const int64_t *vars, int64_t lo, int64_t hi, error *err) {
  const program *p = k->p;
  cl_mem *mem = xcalloc((size_t)p->n_bufs + 1, sizeof *mem);
  size_t *bytes = xcalloc((size_t)p->n_bufs + 1, sizeof *bytes);
  for (int i = 0; i < p->n_bufs; i++) bytes[i] = sizes ? sizes[i] : (size_t)p->bufs[i].elems * (size_t)dtype_size(p->bufs[i].dt);
  pthread_mutex_lock(&k->d->lock);
  int r = launch(k, mem, bufs, bytes, vars, lo, hi, err);
  for (int i = 0; i < p->n_bufs; i++)
    if (mem[i]) k->d->ReleaseMemObject(mem[i]);
  pthread_mutex_unlock(&k->d->lock);
  free(mem);
  free(bytes);
  return r;
}
