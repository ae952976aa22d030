// ask_driver: lists the devices of a driver in a child process. A broken driver crashes or hangs the child, not the
// program.
#ifndef WEFT_DEVICE_ASK_DRIVER_H
#define WEFT_DEVICE_ASK_DRIVER_H
#include "base/base.h"
#include "base/str.h"

// appends a list of devices; returns -1 and the reason if there are none
typedef int driver_list(str *out, error *err);
int ask_driver(driver_list *list, str *out, error *err);   // returns what `list` returns
#endif
