// A schedule as bytes, for the schedule cache: kernels with their buffers and levels, layouts, arena offsets. The
// tensor node of each kernel is not included.
#ifndef WEFT_PACK_H
#define WEFT_PACK_H
#include "schedule/schedule.h"

void schedule_pack(graph *g, const schedule *s, str *out);
// Reads bytes that schedule_pack wrote; false if they are malformed. Everything is allocated in g's arena.
bool schedule_unpack(graph *g, const void *bytes, size_t n, schedule *out);
#endif
