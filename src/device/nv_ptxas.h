// ptxas compiles PTX to GPU code: the only program that DEV=NV needs besides the kernel driver. It runs as a separate
// process.
#ifndef WEFT_DEVICE_NV_PTXAS_H
#define WEFT_DEVICE_NV_PTXAS_H
#include "base/str.h"
#include "device/code.h"

// Finds ptxas (WEFT_PTXAS, the PATH, or CUDA's default folder) and its version ("12.9.86"). Returns -1 and how to get
// it.
int nv_ptxas_find(str *path, str *version, error *err);
// Compiles PTX to a cubin for `sm` ("sm_89"); the caller frees it (bytes_free). Returns -1 and ptxas' message. Any
// thread may call.
int nv_ptxas_run(const char *path, const char *sm, const char *kernel, const void *ptx, size_t n, bytes *cubin,
                 error *err);
#endif
