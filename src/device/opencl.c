// Calls OpenCL through its loader: see opencl.h. opencl_find.c selects the device.
//
// The functions are declared once, in an X-macro that makes the table and the lookup; their types come from the
// standard's headers. Every call's status is checked; an error names the call and the code.
#define _GNU_SOURCE
#include "device/opencl_impl.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "render/render.h"

static const char *code_name(cl_int code) {
  switch (code) {
  case -2: return "CL_DEVICE_NOT_AVAILABLE, the device is gone";
  case -36: return "CL_INVALID_COMMAND_QUEUE, the device is gone";
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

int cl_failed(const cl *d, error *err, const char *what, cl_int code) {
  const char *then =
    code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY
      ? "; a smaller model, context (-c) or chunk (-ub) needs less memory"
      : "";
  return error_set(err, "OpenCL: %s: %s: %s (%d)%s", *d->name ? d->name : "no device yet", what, code_name(code),
                   (int)code, then);
}

// ---- opening --------------------------------------------------------------------------------------------------------

// Does the device have IEEE 754 doubles?
static bool has_exact_doubles(const cl *d) {
  const cl_device_fp_config exact = CL_FP_FMA | CL_FP_ROUND_TO_NEAREST | CL_FP_INF_NAN | CL_FP_DENORM;
  cl_device_fp_config has = 0;
  size_t n = 0;
  if (d->GetDeviceInfo(d->device, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof has, &has, NULL) || (has & exact) != exact)
    return false;
  if (d->GetDeviceInfo(d->device, CL_DEVICE_EXTENSIONS, 0, NULL, &n) || !n) return false;
  char *names = xcalloc(n + 1, 1);
  d->GetDeviceInfo(d->device, CL_DEVICE_EXTENSIONS, n, names, NULL);
  bool named = strstr(names, "cl_khr_fp64");
  free(names);
  return named;
}

#define ASK(d, what, to) ((d)->GetDeviceInfo((d)->device, what, sizeof (to), &(to), NULL))

// Reads the device's limits; unknown ones stay 0.
static void ask_limits(cl *d) {
  cl_device_fp_config fp = 0;
  cl_device_type type = 0;
  cl_bool unified = CL_FALSE;
  cl_ulong local = 0, most = 0, memory = 0, cache = 0;
  cl_uint units = 0, lanes = 0;
  ASK(d, CL_DEVICE_SINGLE_FP_CONFIG, fp);
  ASK(d, CL_DEVICE_TYPE, type);
  ASK(d, CL_DEVICE_HOST_UNIFIED_MEMORY, unified);
  ASK(d, CL_DEVICE_LOCAL_MEM_SIZE, local);
  ASK(d, CL_DEVICE_MAX_MEM_ALLOC_SIZE, most);
  ASK(d, CL_DEVICE_GLOBAL_MEM_SIZE, memory);
  ASK(d, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, cache);
  ASK(d, CL_DEVICE_MAX_COMPUTE_UNITS, units);
  ASK(d, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, lanes);
  ASK(d, CL_DEVICE_MAX_WORK_GROUP_SIZE, d->max_group);
  d->GetDeviceInfo(d->device, CL_DRIVER_VERSION, sizeof d->driver, d->driver, NULL);
  d->driver[sizeof d->driver - 1] = 0;
  d->exact_divide = fp & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
  d->is_cpu = type & CL_DEVICE_TYPE_CPU;
  d->has_doubles = has_exact_doubles(d);
  d->unified = unified;
  d->local_bytes = (size_t)local;
  d->max_alloc = most;
  d->bytes = memory;
  d->cache_bytes = cache;
  d->units = (int)units;
  d->float_lanes = (int)lanes;
}

int cl_open(const char *which, cl **out, error *err) {
  cl *d = xcalloc(1, sizeof *d);
  *out = NULL;
  pthread_mutex_init(&d->lock, NULL);
  if (cl_load_loader(d, err) || cl_choose(d, which, err)) { cl_close(d); return -1; }
  cl_int r = 0;
  d->context = d->CreateContext(NULL, 1, &d->device, NULL, NULL, &r);
  if (!d->context) { cl_failed(d, err, "creating a context", r); cl_close(d); return -1; }
  d->queue = d->CreateCommandQueue(d->context, d->device, 0, &r);
  if (!d->queue) { cl_failed(d, err, "creating a queue", r); cl_close(d); return -1; }
  ask_limits(d);
  *out = d;
  return 0;
}

void cl_close(cl *d) {
  if (!d) return;
  if (d->queue) d->ReleaseCommandQueue(d->queue);
  if (d->timing) d->ReleaseCommandQueue(d->timing);
  if (d->context) d->ReleaseContext(d->context);
  // The loader stays loaded: drivers have threads and exit handlers that do not survive dlclose.
  pthread_mutex_destroy(&d->lock);
  remote_free(&d->memory);
  free(d);
}

const char *cl_name(const cl *d) { return d->name; }

void cl_target(const cl *d, target *out) {
  *out = render_find("opencl")->target;
  out->max_local_bytes = (int)min_i64((int64_t)d->local_bytes, 65536);
  out->max_group = (int)min_i64((int64_t)d->max_group, 1024);
}

// ---- compiling ------------------------------------------------------------------------------------------------------

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

static const char *options(const cl *d) {
  return d->exact_divide ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt" : "-cl-std=CL1.2";
}

static int finish_code(cl_code *k, const char *source, error *err) {
  cl *d = k->d;
  cl_uint n = 0;
  cl_int r = d->BuildProgram(k->program, 1, &d->device, options(d), NULL, NULL);
  if (r) return build_failed(k, source, r, err);
  k->kernel = d->CreateKernel(k->program, k->p->name, &r);
  if (!k->kernel) return cl_failed(d, err, k->p->name, r);
  r = d->GetKernelInfo(k->kernel, CL_KERNEL_NUM_ARGS, sizeof n, &n, NULL);
  if (r) return cl_failed(d, err, k->p->name, r);
  k->tiles = (int)n == cl_first_var(k) + k->p->n_vars + 2;
  return 0;
}

static void unload_code(remote_code *k) { cl_code_free((cl_code *)k); }

static cl_code *code_new(cl *d, const program *p, int n_bufs) {
  cl_code *k = xcalloc(1, sizeof *k);
  k->base = (remote_code){unload_code, n_bufs};
  k->d = d;
  k->p = p;
  return k;
}

cl_code *cl_compile(cl *d, const program *p, const char *source, error *err) {
  cl_code *k = code_new(d, p, p->n_bufs);
  cl_int r = 0;
  pthread_mutex_lock(&d->lock);
  k->program = d->CreateProgramWithSource(d->context, 1, &source, NULL, &r);
  r = k->program ? finish_code(k, source, err) : cl_failed(d, err, "taking the source", r);
  pthread_mutex_unlock(&d->lock);
  if (!r) return k;
  cl_code_free(k);
  return NULL;
}

cl_code *cl_from_binary(cl *d, const program *p, int n_bufs, const unsigned char *binary, size_t n, error *err) {
  cl_code *k = code_new(d, p, n_bufs);
  cl_int r = 0, status = 0;
  pthread_mutex_lock(&d->lock);
  k->program = d->CreateProgramWithBinary(d->context, 1, &d->device, &n, &binary, &status, &r);
  r = k->program ? finish_code(k, "", err) : cl_failed(d, err, "taking a binary", r);
  pthread_mutex_unlock(&d->lock);
  if (!r) return k;
  cl_code_free(k);
  return NULL;
}

size_t cl_binary(const cl_code *k, unsigned char **out) {
  const cl *d = k->d;
  size_t n = 0;
  *out = NULL;
  if (d->GetProgramInfo(k->program, CL_PROGRAM_BINARY_SIZES, sizeof n, &n, NULL) || !n) return 0;
  *out = xmalloc(n);
  if (!d->GetProgramInfo(k->program, CL_PROGRAM_BINARIES, sizeof *out, out, NULL)) return n;
  free(*out);
  *out = NULL;
  return 0;
}

void cl_code_free(cl_code *k) {
  if (!k) return;
  if (k->kernel) k->d->ReleaseKernel(k->kernel);
  if (k->program) k->d->ReleaseProgram(k->program);
  free(k);
}

// ---- launching ------------------------------------------------------------------------------------------------------

cl_int cl_set_long(const cl_code *k, cl_kernel to, int at, int64_t value) {
  cl_long v = value;
  return k->d->SetKernelArg(to, (cl_uint)at, sizeof v, &v);
}

cl_int cl_set_buffer(const cl_code *k, cl_kernel to, int number, cl_mem mem, int64_t offset) {
  cl_int r = k->d->SetKernelArg(to, (cl_uint)number, sizeof mem, &mem);
  return r ? r : cl_set_long(k, to, k->base.n_bufs + number, offset);
}

bool cl_sizes(const cl_code *k, const int64_t *vars, int64_t tiles, int parts, size_t *global, size_t *local) {
  for (int i = 0; i < 3; i++) {
    int64_t l = k->p->local[i] ? program_eval(k->p, k->p->local[i], vars) : 1,
            g = k->p->global[i] ? program_eval(k->p, k->p->global[i], vars) : 1;
    if (!i && k->tiles) g = min_i64(tiles, parts);
    if (l < 1 || g < 0) die("OpenCL: %s: %lld work-groups of %lld", k->p->name, (long long)g, (long long)l);
    if (!g) return false;
    local[i] = (size_t)l;
    global[i] = (size_t)l * (size_t)g;
  }
  return true;
}

static int enqueue_code(cl_code *k, const cl_mem *mem, const int64_t *vars, int64_t lo, int64_t hi, error *err) {
  cl *d = k->d;
  size_t global[3], local[3];
  cl_int r = 0;
  int at = cl_first_var(k);
  if (!cl_sizes(k, vars, hi - lo, d->units, global, local)) return 0;
  for (int i = 0; i < k->base.n_bufs && !r; i++) r = cl_set_buffer(k, k->kernel, i, mem[i], 0);
  for (int i = 0; i < k->p->n_vars && !r; i++) r = cl_set_long(k, k->kernel, at++, vars[i]);
  for (int i = 0; i < (k->tiles ? 2 : 0) && !r; i++) r = cl_set_long(k, k->kernel, at++, i ? hi : lo);
  if (r) return cl_failed(d, err, "setting an argument", r);
  r = d->EnqueueNDRangeKernel(d->queue, k->kernel, 3, NULL, global, local, 0, NULL, NULL);
  return r ? cl_failed(d, err, k->p->name, r) : 0;
}

// Mapping a buffer makes the host's memory current.
static int take_back(cl *d, cl_mem mem, size_t size, error *err) {
  cl_int r = 0;
  void *p = d->EnqueueMapBuffer(d->queue, mem, CL_TRUE, CL_MAP_READ, 0, size, 0, NULL, NULL, &r);
  if (!p) return cl_failed(d, err, "reading a buffer back", r);
  r = d->EnqueueUnmapMemObject(d->queue, mem, p, 0, NULL, NULL);
  return r ? cl_failed(d, err, "reading a buffer back", r) : 0;
}

static int launch(cl_code *k, cl_mem *mem, unsigned char *const *bufs, const size_t *sizes, const int64_t *vars,
                  int64_t lo, int64_t hi, error *err) {
  cl *d = k->d;
  cl_int r = 0;
  for (int i = 0; i < k->p->n_bufs; i++) {
    mem[i] = d->CreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, sizes[i], bufs[i], &r);
    if (!mem[i]) return cl_failed(d, err, "giving a buffer to the device", r);
  }
  if (enqueue_code(k, mem, vars, lo, hi, err)) return -1;
  r = d->Finish(d->queue);
  if (r) return cl_failed(d, err, k->p->name, r);
  for (int i = 0; i < k->p->n_bufs; i++)
    if (k->p->bufs[i].written && take_back(d, mem[i], sizes[i], err)) return -1;
  r = d->Finish(d->queue);
  return r ? cl_failed(d, err, k->p->name, r) : 0;
}

int cl_launch(cl_code *k, unsigned char *const *bufs, const size_t *sizes, const int64_t *vars, int64_t lo, int64_t hi,
              error *err) {
  const program *p = k->p;
  cl_mem *mem = xcalloc((size_t)p->n_bufs + 1, sizeof *mem);
  size_t *lengths = xcalloc((size_t)p->n_bufs + 1, sizeof *lengths);
  for (int i = 0; i < p->n_bufs; i++)
    lengths[i] = sizes ? sizes[i] : (size_t)p->bufs[i].elems * (size_t)dtype_size(p->bufs[i].dt);
  pthread_mutex_lock(&k->d->lock);
  int r = launch(k, mem, bufs, lengths, vars, lo, hi, err);
  for (int i = 0; i < p->n_bufs; i++)
    if (mem[i]) k->d->ReleaseMemObject(mem[i]);
  pthread_mutex_unlock(&k->d->lock);
  free(mem);
  free(lengths);
  return r;
}
