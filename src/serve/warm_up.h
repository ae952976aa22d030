// warm_up: makes the plans and kernels of a loaded model, by running the kinds of steps that requests need.
#ifndef WEFT_SERVE_WARM_UP_H
#define WEFT_SERVE_WARM_UP_H
#include "serve/sched.h"

// 0; -1 and the reason why a step failed.
int warm_up(weft_model *m, const struct sched_options *o, weft_error *err);
#endif
