// ask_driver: what drivers say of their devices, asked in a child: a driver that is broken ends that child, or hangs
// there, and not the program that wants to list them.
#ifndef WEFT_DEVICE_ASK_DRIVER_H
#define WEFT_DEVICE_ASK_DRIVER_H
#include "base/base.h"
#include "base/str.h"

typedef int driver_list(str *out, error *err);             // appends what there is; -1 and why there is nothing
int ask_driver(driver_list *list, str *out, error *err);   // as list does it
#endif
