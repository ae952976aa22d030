// warm_up: makes the plans and kernels of a model that has been loaded, by steps of the kinds that requests will ask
// for.
#ifndef WEFT_SERVE_WARM_UP_H
#define WEFT_SERVE_WARM_UP_H
#include "serve/sched.h"

// 0; -1 and why a step failed.
int warm_up(weft_model *m, const struct sched_options *o, weft_error *err);
#endif
