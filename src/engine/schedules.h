// schedules: converts the graph of a model or an encoder to a schedule for a device, and computes its cache key. The
// evaluating process or the keeper (keeper.h) calls this: the arguments contain everything that determines the result.
#ifndef WEFT_ENGINE_SCHEDULES_H
#define WEFT_ENGINE_SCHEDULES_H
#include "device/device.h"
#include "schedule/layout.h"
#include "schedule/ranks.h"

// exact: no dot products of reduced precision; many_rows: as in compile.h; layouts: of the first n buffers, the tensors
// of the model's file
struct schedule_how { bool exact, many_rows; const enum layout_kind *layouts; size_t n; rank_split ranks; };
void schedules_make(const device *d, graph *g, uop *sink, const struct schedule_how *how, schedule *out);
void schedules_key(const device *d, uop *sink, const struct schedule_how *how, str *key);
// Returns a cached schedule if nothing that determines it has changed; otherwise makes and caches it, through the
// keeper if there is one. Takes ownership of g, the graph of sink; returns the schedule's own graph. Within an attempt.
graph *schedules_find(device *d, graph *g, uop *sink, const struct schedule_how *how, schedule *out, bool *kept);
void schedules_print_how(const struct schedule_how *how, str *out);
// A keeper_scheduler: makes both from the output of schedules_print_how
bool schedules_from_text(const device *d, graph *g, uop *sink, const void *how, size_t n, str *key, schedule *out);
#endif
