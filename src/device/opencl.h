// OpenCL as a device (DEV=CL): kernels from the OpenCL renderer, compiled and run by the installed driver.
//
// The loader, libOpenCL.so.1, is opened at the first cl_open, not linked. The device is selected by name among all
// drivers' devices, by default a GPU before a processor (opencl_find.c). For a single kernel, buffers are the caller's
// memory: cl_launch lends it to the driver. Plans have memory on the device (opencl_plan.c).
#ifndef WEFT_DEVICE_OPENCL_H
#define WEFT_DEVICE_OPENCL_H
#include "base/str.h"
#include "codegen/program.h"

typedef struct cl cl;                            // a device with its queue; may be used from several threads
typedef struct cl_code cl_code;                  // a compiled kernel

// which: a device's number or a part of its name; "": the first one. Returns -1 and a message: what to install, which
// devices there are, or what failed.
int cl_open(const char *which, cl **out, error *err);
void cl_close(cl *d);                            // after all its kernels are freed; NULL is fine
const char *cl_name(const cl *d);                // "driver: device", for people
void cl_target(const cl *d, target *out);        // what codegen may ask of it

// Compiles the source of p (from render_opencl). NULL and err, with the driver's build log, on failure. p must outlive
// the kernel: a launch evaluates its sizes.
cl_code *cl_compile(cl *d, const program *p, const char *source, error *err);
// The driver's binary of a kernel (the caller frees it) and its size; 0: not available. And a kernel from a binary.
size_t cl_binary(const cl_code *k, unsigned char **out);
cl_code *cl_from_binary(cl *d, const program *p, int n_bufs, const unsigned char *binary, size_t n, error *err);
void cl_code_free(cl_code *k);                   // NULL is fine

struct device;
int cl_start(struct device *d, error *err);      // DEV=CL: opencl_plan.c
// All devices of all drivers, the one that DEV=CL[:WHICH] uses first; -1 and the reason if there is none.
int cl_list(str *out, error *err);

// Runs the kernel and waits. bufs: p->n_bufs pointers to host memory; sizes: their bytes, or NULL for those of p; vars:
// p->n_vars values. lo, hi: tiles, for a program with a tile loop; one with work-groups runs all of them.
int cl_launch(cl_code *k, unsigned char *const *bufs, const size_t *sizes, const int64_t *vars, int64_t lo, int64_t hi,
              error *err);
#endif
