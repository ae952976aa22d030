// options: what programs ask for (weft_options), checked, as the engine has it.
#ifndef WEFT_ENGINE_OPTIONS_H
#define WEFT_ENGINE_OPTIONS_H
#include "engine/engine.h"
#include "engine/fail.h"

// own: all of opt, with defaults; out: the same for engine_open, of a file. 0, or -1 and why not. control_vectors of
// out is the caller's, for free.
int options_take(const weft_options *opt, weft_options *own, struct engine_options *out, weft_error *err);
#endif
