// What cuda.c (the driver, kernels) and cuda_plan.c (memory, plans) share. Nobody else includes this.
#ifndef WEFT_DEVICE_CUDA_IMPL_H
#define WEFT_DEVICE_CUDA_IMPL_H
#include "codegen/program.h"
#include "device/cuda.h"
#include "device/cuda_driver.h"
#include "device/nvidia.h"
#include "device/remote.h"

typedef struct cuda {
#define F(name, symbol, arguments) cuda_status (*name) arguments;
  CUDA_FUNCTIONS(F)
#undef F
  void *library;
  cuda_device device;
  cuda_context context;            // the device's primary one: all threads may use it, after making it current
  cuda_stream stream;
  char name[128];
  nvidia gpu;
  int driver, units;               // of the driver's interface, 12040 for 12.4
  size_t bytes;
  remote memory;
} cuda;

struct cuda_code {
  remote_code base;
  cuda *c;
  cuda_module module;
  cuda_function function;
};

int cuda_open(cuda **out, error *err);           // -1 and a sentence that says what to install, or what failed
void cuda_close(cuda *c);                        // after all its kernels are freed; NULL is fine
int cuda_enter(cuda *c, error *err);             // before any other call of a thread that may be new
// -1, and a sentence that names the device, what it was about and the error
int cuda_failed(const cuda *c, error *err, const char *what, cuda_status s);
// Has the driver assemble a kernel (PTX, with a NUL at its end). NULL and err, with what the assembler says.
cuda_code *cuda_load(cuda *c, const program *p, int n_bufs, const char *ptx, error *err);
#endif
