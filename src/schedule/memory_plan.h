// The memory planner: gives every intermediate a place in one arena, sharing places between those whose lives do not
// overlap.
#ifndef WEFT_MEMORY_PLAN_H
#define WEFT_MEMORY_PLAN_H
#include "schedule/schedule.h"
void plan_memory(schedule *s);                    // fills offset of every temp, and arena_bytes
#endif
