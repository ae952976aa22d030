// schedules: how the graph of a model, or of an encoder, becomes a schedule for a device, and the key that it is kept
// under. The process that evaluates does it, or the keeper for it (keeper.h): all that decides is in the arguments.
#ifndef WEFT_ENGINE_SCHEDULES_H
#define WEFT_ENGINE_SCHEDULES_H
#include "device/device.h"
#include "schedule/layout.h"
#include "schedule/ranks.h"

// exact: no dots in smaller numbers; layouts: of the n first buffers, the tensors of the model's file
struct schedule_how { bool exact; const enum layout_kind *layouts; size_t n; rank_split ranks; };
void schedules_make(const device *d, graph *g, uop *sink, const struct schedule_how *how, schedule *out);
void schedules_key(const device *d, uop *sink, const struct schedule_how *how, str *key);
// The same as the last time, if nothing that decides about it has changed; else it is made, and kept: by the keeper, if
// there is one. g: sink's, which becomes this function's; what comes back is the schedule's own graph. Within an
// attempt.
graph *schedules_find(device *d, graph *g, uop *sink, const struct schedule_how *how, schedule *out, bool *kept);
void schedules_print_how(const struct schedule_how *how, str *out);
// keeper_scheduler: both from what schedules_print_how wrote
bool schedules_from_text(const device *d, graph *g, uop *sink, const void *how, size_t n, str *key, schedule *out);
#endif
