// trace: everything that the compiler did with a model, as JSON for a page (weft viz): graphs, every rewrite of them,
// kernels with their passes, source and assembly, where memory is, and a timeline of one step as it really ran.
#ifndef WEFT_ENGINE_LOOK_H
#define WEFT_ENGINE_LOOK_H
#include "base/str.h"
#include "engine/engine.h"

// Appends lines, each a JSON object (their keys: trace.c, at the functions that write them): an overview, the tensor
// graph, and each different kernel. A step is run `steps` times (>= 1) for the timeline; prompt and pos are as for
// profile_run. 0, or -1 and why not.
int trace_run(engine *e, int prompt, int steps, int pos, str *out, error *err);
#endif
