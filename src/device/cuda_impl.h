// Declarations shared by cuda.c (driver, kernels) and cuda_plan.c (memory, plans); no other file includes this.
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
  cuda_context context;            // the device's primary context: any thread may use it after making it current
  cuda_stream stream;
  char name[128];
  nvidia gpu;
  int driver, units;               // version of the driver's interface, 12040 for 12.4; number of multiprocessors
  size_t bytes;
  remote memory;
} cuda;

struct cuda_code {
  remote_code base;
  cuda *c;
  cuda_module module;
  cuda_function function;
};

int cuda_open(cuda **out, error *err);           // -1 and a message that says what to install, or what failed
void cuda_close(cuda *c);                        // after all its kernels are freed; NULL is fine
int cuda_enter(cuda *c, error *err);             // before other calls of a thread that may be new
// -1, with a message that names the device, the action and the error
int cuda_failed(const cuda *c, error *err, const char *what, cuda_status s);
// Assembles a kernel (PTX, NUL-terminated). NULL and err with the assembler's message.
cuda_code *cuda_load(cuda *c, const program *p, int n_bufs, const char *ptx, error *err);
#endif
