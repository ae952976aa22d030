// The memory limit: the read bandwidth of a device's threads, which bounds the decoding speed of one sequence.
#ifndef WEFT_DEVICE_LIMIT_H
#define WEFT_DEVICE_LIMIT_H
#include "device/device.h"

// Reads 256 MiB in huge pages (less if a quarter of the free memory is less) repeatedly for about 0.3 s; *gb_s is the
// fastest pass in GB/s, or 0 for devices that compile nothing (REF, NULL). Returns 0, or -1 and the reason.
int device_read_limit(device *d, double *gb_s, error *err);
#endif
