// spare: does this machine have spare processor time for optional work?
#ifndef WEFT_DEVICE_SPARE_H
#define WEFT_DEVICE_SPARE_H
#include "base/base.h"

enum spare_state {
  SPARE_NONE,                    // on battery, or other programs need the processors
  SPARE_SHARED,                  // this program's threads use all processors: other work takes time from them
  SPARE_FREE                     // a processor is idle while this program's threads work
};

typedef struct spare { const char *root; int cores, threads; double at, busy, own; enum spare_state state; } spare;

// root: "" for this machine; tests give a folder with proc/stat and sys/class/power_supply. threads: number of threads
// that work anyway.
void spare_open(spare *s, const char *root, int threads);
// The state since the last call; within half a second of it, the previous answer.
enum spare_state spare_look(spare *s);
bool spare_on_battery(const char *root);
// The state from figures: average processors in use by all programs and by this one.
enum spare_state spare_judge(int cores, int threads, double all, double own);
#endif
