// A schedule as bytes, to be kept: kernels with their buffers and levels, layouts, places in the arena. Which tensor a
// kernel stores is left out.
#ifndef WEFT_PACK_H
#define WEFT_PACK_H
#include "schedule/schedule.h"

void schedule_pack(graph *g, const schedule *s, str *out);
// From bytes that schedule_pack made; false where they are something else. Everything is allocated in g's arena.
bool schedule_unpack(graph *g, const void *bytes, size_t n, schedule *out);
#endif
