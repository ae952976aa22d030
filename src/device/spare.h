// spare: whether this machine has processor time to spare, for work that nobody waits for.
#ifndef WEFT_DEVICE_SPARE_H
#define WEFT_DEVICE_SPARE_H
#include "base/base.h"

enum spare_state {
  SPARE_NONE,                    // on battery, or other programs want the processors
  SPARE_SHARED,                  // our own threads use all of them: what is done beside these is taken from them
  SPARE_FREE                     // a processor is idle while our threads work
};

typedef struct spare { const char *root; int cores, threads; double at, busy, own; enum spare_state state; } spare;

// root: "" for this machine; tests give a folder that holds proc/stat and sys/class/power_supply. threads: those that
// work anyway.
void spare_open(spare *s, const char *root, int threads);
// What it has been like since the last look, or, where that was less than half a second ago, as it was then.
enum spare_state spare_look(spare *s);
bool spare_on_battery(const char *root);
// The same from figures: processors in use on average, by all programs and by this one.
enum spare_state spare_judge(int cores, int threads, double all, double own);
#endif
