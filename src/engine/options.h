// options: checks weft_options and converts them to engine options.
#ifndef WEFT_ENGINE_OPTIONS_H
#define WEFT_ENGINE_OPTIONS_H
#include "engine/engine.h"
#include "engine/fail.h"

// own: all of opt, with defaults; out: the options for engine_open of a file. Returns 0, or -1 and the reason. The
// caller frees out's control_vectors.
int options_take(const weft_options *opt, weft_options *own, struct engine_options *out, weft_error *err);
#endif
