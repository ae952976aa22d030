// advice: what about this machine makes a model slower than it has to be, and what can be done about it.
#ifndef WEFT_DEVICE_ADVICE_H
#define WEFT_DEVICE_ADVICE_H
#include "base/str.h"

// A line for each thing, with what to do; nothing where all is well.  root: "" or the folder of a made-up machine;
// threads: that are to run, on so many cores.  Other programs are those of the last minute, so that it has to be asked
// before the own ones run.
void advice(const char *root, int threads, int cores, str *out);
#endif
