// DEV=NV needs the Linux kernel driver: see nv.h.
#include "device/nv.h"
#include "base/base.h"

int nv_start(struct device *d, error *err) {
  (void)d;
  return error_set(err, "DEV=NV: NVIDIA's GPUs are driven without a library on Linux only; DEV=CUDA uses the driver's");
}

int nv_list(str *out, error *err) {
  (void)out;
  return error_set(err, "on Linux only");
}

void nv_code_free(nv_code *k) { (void)k; }
