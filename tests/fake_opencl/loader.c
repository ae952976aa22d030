// A libOpenCL.so.1 before the real one (FAKE_CL_REAL, a path): it hands calls on, and makes devices worse than they
// are.
//
// FAKE_CL is a list of words. no-doubles: the device says that it has none, and a source that writes the type's name
// does not compile. dies: the process ends if a source has vectors of 64 lanes. apart: its memory is not the host's,
// and a call for memory or a queue ends the process while another thread is in one, which OpenCL allows and Weft does
// not do (device/remote.h). FAKE_CL_LOG: a file that gets a line
// for each source that is compiled. The calls that are handed on have at most ten arguments, integers or pointers.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DOUBLE_CONFIG = 0x1032 /* CL_DEVICE_DOUBLE_FP_CONFIG */, EXTENSIONS = 0x1030 /* CL_DEVICE_EXTENSIONS */,
       UNIFIED = 0x1035 /* CL_DEVICE_HOST_UNIFIED_MEMORY */ };
typedef intptr_t word;
typedef word any_call(word, word, word, word, word, word, word, word, word, word);

static any_call *real(const char *name) {
  const char *path = getenv("FAKE_CL_REAL");
  void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL, *at = library ? dlsym(library, name) : NULL;
  any_call *to;
  if (!at) {
    fprintf(stderr, "fake_opencl: no %s in FAKE_CL_REAL=%s\n", name, path ? path : "");
    abort();
  }
  memcpy(&to, &at, sizeof to);
  return to;
}

#define ARGUMENTS word a, word b, word c, word d, word e, word f, word g, word h, word i, word j
#define PASS(name) \
  word name(ARGUMENTS); \
  word name(ARGUMENTS) { return real(#name)(a, b, c, d, e, f, g, h, i, j); }
PASS(clGetPlatformIDs) PASS(clGetPlatformInfo) PASS(clGetDeviceIDs) PASS(clCreateContext) PASS(clReleaseContext)
PASS(clCreateCommandQueue) PASS(clReleaseCommandQueue) PASS(clCreateProgramWithBinary) PASS(clBuildProgram)
PASS(clGetProgramBuildInfo) PASS(clGetProgramInfo) PASS(clReleaseProgram) PASS(clCreateKernel) PASS(clReleaseKernel)
PASS(clSetKernelArg) PASS(clGetKernelInfo) PASS(clGetEventProfilingInfo) PASS(clReleaseEvent)

static bool has_word(const char *one) {
  const char *all = getenv("FAKE_CL");
  return all && strstr(all, one);
}

// The calls for memory and queues.
static word one_at_a_time(const char *name, ARGUMENTS) {
  static atomic_int inside;
  if (atomic_fetch_add(&inside, 1) && has_word("apart")) {
    fprintf(stderr, "fake_opencl: %s, and another thread is in such a call\n", name);
    _exit(70);
  }
  word r = real(name)(a, b, c, d, e, f, g, h, i, j);
  atomic_fetch_sub(&inside, 1);
  return r;
}
#define ALONE(name) \
  word name(ARGUMENTS); \
  word name(ARGUMENTS) { return one_at_a_time(#name, a, b, c, d, e, f, g, h, i, j); }
ALONE(clCreateBuffer) ALONE(clReleaseMemObject) ALONE(clEnqueueNDRangeKernel) ALONE(clEnqueueMapBuffer)
ALONE(clEnqueueUnmapMemObject) ALONE(clEnqueueReadBuffer) ALONE(clEnqueueWriteBuffer) ALONE(clEnqueueCopyBuffer)
ALONE(clEnqueueFillBuffer) ALONE(clFinish)

int clGetDeviceInfo(void *device, unsigned what, size_t cap, void *to, size_t *n);
int clGetDeviceInfo(void *device, unsigned what, size_t cap, void *to, size_t *n) {
  word r = real("clGetDeviceInfo")((word)device, what, (word)cap, (word)to, (word)n, 0, 0, 0, 0, 0);
  bool asked = to && !r && has_word("no-doubles");
  if (to && !r && what == UNIFIED && has_word("apart")) memset(to, 0, cap);
  if (asked && what == DOUBLE_CONFIG) memset(to, 0, cap);
  char *at = asked && what == EXTENSIONS ? strstr(to, "cl_khr_fp64") : NULL;
  if (at) memset(at, ' ', strlen("cl_khr_fp64"));
  return (int)r;
}

// The type's name as a word, or the beginning of one: double2.
static bool writes_doubles(const char *text) {
  static const char name[] = "double";
  for (const char *at = text; (at = strstr(at, name)); at += strlen(name))
    if (at == text || strchr(" (\n_", at[-1])) return true;
  return false;
}

static void note_source(const char *text) {
  const char *log = getenv("FAKE_CL_LOG"), *kernel = strstr(text, "void ");
  int fd = log ? open(log, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
  if (fd < 0) return;
  dprintf(fd, "%.*s\n", (int)strcspn(kernel ? kernel : "void ?", "("), kernel ? kernel : "void ?");
  close(fd);
}

void *clCreateProgramWithSource(void *context, unsigned n, const char **text, const size_t *sizes, int *status);
void *clCreateProgramWithSource(void *context, unsigned n, const char **text, const size_t *sizes, int *status) {
  static const char *refused = "#error this device has no doubles\n";
  note_source(*text);
  if (has_word("dies") && strstr(*text, "ext_vector_type(64)")) abort();
  if (has_word("no-doubles") && writes_doubles(*text)) text = &refused;
  return (void *)real("clCreateProgramWithSource")((word)context, n, (word)text, (word)sizes, (word)status, 0, 0, 0, 0,
                                                   0);
}
