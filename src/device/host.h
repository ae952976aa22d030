// The runtime (memory and plans) of devices in this process.
#ifndef WEFT_DEVICE_HOST_H
#define WEFT_DEVICE_HOST_H
#include "device/device.h"
extern const runtime host_runtime;
#endif
