// Two LLVMs in one process: ours, and the one that an OpenCL driver (PoCL) brings.  Each compiles before and after the
// other.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "device/cpu_info.h"
#include "device/elf.h"
#include "device/llvm.h"

// The few OpenCL functions that it takes to have a program compiled, declared here so that no headers are needed.
static int (*get_platforms)(unsigned, void **, unsigned *);
static int (*get_devices)(void *, uint64_t, unsigned, void **, unsigned *);
static void *(*create_context)(const intptr_t *, unsigned, void **, void *, void *, int *);
static void *(*create_program)(void *, unsigned, const char **, const size_t *, int *);
static int (*build_program)(void *, unsigned, void **, const char *, void *, void *);
static int (*release_program)(void *);
static int (*release_context)(void *);

static bool find(void *library, const char *name, void *slot) {
  void *p = dlsym(library, name);
  memcpy(slot, &p, sizeof p);
  return p != NULL;
}

static void *context, *device;

static bool open_opencl(void) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL), *platform;
  unsigned n = 0;
  int e;
  if (!library || !find(library, "clGetPlatformIDs", &get_platforms) ||
      !find(library, "clGetDeviceIDs", &get_devices) || !find(library, "clCreateContext", &create_context) ||
      !find(library, "clCreateProgramWithSource", &create_program) ||
      !find(library, "clBuildProgram", &build_program) || !find(library, "clReleaseProgram", &release_program) ||
      !find(library, "clReleaseContext", &release_context))
    return false;
  if (get_platforms(1, &platform, &n) || !n || get_devices(platform, 0xffffffff, 1, &device, &n) || !n) return false;
  context = create_context(NULL, 1, &device, NULL, NULL, &e);
  return context != NULL;
}

static int serial;
static void opencl_compiles(void) {
  char text[256];                       // a new text each time, or the driver takes it from its own cache
  snprintf(text, sizeof text,
           "kernel void f(global float *x) { x[get_global_id(0)] = sin(x[get_global_id(0)]) * %d.0f + %d.0f; }",
           ++serial, (int)getpid());
  const char *source = text;
  int e;
  void *built = create_program(context, 1, &source, NULL, &e);
  assert_non_null(built);
  assert_int_equal(build_program(built, 1, &device, "", NULL, NULL), 0);
  release_program(built);
}

static void we_compile(void) {
  error err = {0};
  cpu_target cpu;
  bytes object;
  code_blob blob;
  assert_int_equal(cpu_target_from_env(&cpu, &err), 0);
  if (llvm_compile("define i32 @f(i32 %x) {\n  %y = mul i32 %x, 7\n  ret i32 %y\n}\n", cpu.cpu, cpu.features, &object,
                   NULL, &err))
    fail_msg("%s", err.text);
  if (elf_link(object.at, object.n, &blob, &err)) fail_msg("%s", err.text);
  const code_blob *batch[] = {&blob};
  code_image *image = code_map(batch, 1, &err);
  assert_non_null(image);
  assert_int_equal(((int32_t (*)(int32_t))code_find(image, 0, "f"))(6), 42);
  code_unmap(image);
  code_blob_free(&blob);
  bytes_free(&object);
}

static void both_work(void **state) {
  (void)state;
  if (!open_opencl()) skip();
  opencl_compiles();
  we_compile();
  opencl_compiles();
  we_compile();
  release_context(context);
}

static void both_work_ours_first(void **state) {
  (void)state;
  we_compile();
  if (!open_opencl()) skip();
  opencl_compiles();
  we_compile();
  release_context(context);
}

int main(int argc, char **argv) {
  // The order matters, and a library is loaded once per process: the second test runs in a process of its own.
  const struct CMUnitTest first[] = {cmocka_unit_test(both_work)}, second[] = {cmocka_unit_test(both_work_ours_first)};
  if (argc > 1) return cmocka_run_group_tests_name("ours first", second, NULL, NULL);
  int failed = cmocka_run_group_tests_name("theirs first", first, NULL, NULL);
  char command[4096];
  snprintf(command, sizeof command, "'%s' second", argv[0]);
  return failed || system(command);
}
