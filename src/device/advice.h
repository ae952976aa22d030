// advice: what about this machine makes a model slower than it has to be, and what can be done about it.
#ifndef WEFT_DEVICE_ADVICE_H
#define WEFT_DEVICE_ADVICE_H
#include "base/str.h"

// A line for each thing, "SUBJECT: what is so; what to do"; nothing if all is well.  Subjects are huge pages, threads,
// load, clock and power.  root: "" or the folder of a made-up machine;
// threads: that are to run, on so many cores.  Other programs are those of the last minute, so that it has to be asked
// before the own ones run.
void advice(const char *root, int threads, int cores, str *out);
// How the system gives huge pages: "always", "madvise" or "never"; "" if it does not say.
void advice_huge_pages(const char *root, char out[16]);
#endif
