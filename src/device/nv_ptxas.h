// ptxas, which makes GPU code of PTX: the one program that DEV=NV needs beside the kernel driver. It is run as a
// process of its own.
#ifndef WEFT_DEVICE_NV_PTXAS_H
#define WEFT_DEVICE_NV_PTXAS_H
#include "base/str.h"
#include "device/code.h"

// path, version: WEFT_PTXAS, or the one in the PATH, or in CUDA's usual folder, and what it says it is ("12.9.86").
// -1 and a sentence that says how to get one.
int nv_ptxas_find(str *path, str *version, error *err);
// A cubin for `sm` ("sm_89") of PTX; the caller's (bytes_free). -1: err has what ptxas says. Any thread may call it.
int nv_ptxas_run(const char *path, const char *sm, const char *kernel, const void *ptx, size_t n, bytes *cubin,
                 error *err);
#endif
