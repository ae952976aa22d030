// advice: settings and load of this machine that make a model slower than necessary, with remedies.
#ifndef WEFT_DEVICE_ADVICE_H
#define WEFT_DEVICE_ADVICE_H
#include "base/str.h"

// Appends one line per finding, "SUBJECT: finding; remedy"; nothing if all is well. Subjects: huge pages, threads,
// load, clock, power. root: "" or the folder of a simulated machine. threads: number of threads that will run, on
// `cores` cores. The load of the last minute counts, so call it before the program's own threads run.
void advice(const char *root, int threads, int cores, str *out);
// The system's policy for huge pages: "always", "madvise" or "never"; "" if unknown.
void advice_huge_pages(const char *root, char out[16]);
#endif
