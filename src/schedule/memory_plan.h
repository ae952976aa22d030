// The memory planner: gives every intermediate an offset in one arena. Intermediates whose lives do not overlap share
// memory.
#ifndef WEFT_MEMORY_PLAN_H
#define WEFT_MEMORY_PLAN_H
#include "schedule/schedule.h"
void plan_memory(schedule *s);                    // sets the offset of every temp, and arena_bytes
#endif
