// trace: everything that the compiler did with a model, as JSON for a web page (weft viz): graphs, all rewrites,
// kernels with their passes, source and assembly, the memory plan, and a timeline of one step.
#ifndef WEFT_ENGINE_LOOK_H
#define WEFT_ENGINE_LOOK_H
#include "base/str.h"
#include "engine/engine.h"

// Appends lines, each a JSON object (keys: in trace.c, at the functions that write them): an overview, the tensor
// graph, and each distinct kernel. A step is run `steps` times (>= 1) for the timeline; prompt and pos are as for
// profile_run. Returns 0, or -1 and the reason.
int trace_run(engine *e, int prompt, int steps, int pos, str *out, error *err);
#endif
