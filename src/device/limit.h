// The memory limit: how fast the threads of a device can read, which is what bounds the decoding of one sequence.
#ifndef WEFT_DEVICE_LIMIT_H
#define WEFT_DEVICE_LIMIT_H
#include "device/device.h"

// Reads 256 MiB in huge pages again and again for about 0.3 s, and says what the fastest pass reached, in GB/s. Less
// where a quarter of the free memory is less. 0 for devices that compile nothing (REF, NULL): there is nothing to
// compare with. 0, or -1 and why not.
int device_read_limit(device *d, double *gb_s, error *err);
#endif
