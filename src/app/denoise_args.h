// denoise_args: the values of run's options of models that denoise, and a text that is denoised by them.
#ifndef WEFT_APP_DENOISE_ARGS_H
#define WEFT_APP_DENOISE_ARGS_H
#include "app/sampling_args.h"
#include "base/progress.h"

struct denoise_args {
  int64_t steps, block_length, algorithm, gumbel;      // 0, algorithm -1: the default
  double eps, algorithm_temp, cfg_scale;
  bool visual;
};

// Why these values cannot be; NULL: they can.
const char *denoise_args_fault(const struct denoise_args *a);
bool denoise_args_given(const struct denoise_args *a);

// A text: the first n_prompt ids are there, the others are written. rows: of each that is written, a copy of the logits
// that it was drawn from, for free(); NULL: the caller does not ask. bar NULL: nothing is shown.
struct denoised {
  weft_model *model;
  const struct denoise_args *how;
  const struct sampling_args *sampling;      // after sampling_resolve
  int32_t *ids;
  size_t n, n_prompt;
  float **rows;
  progress *bar;
};
// As weft_denoise; Ctrl-C ends it.
int denoise(struct denoised *d, weft_error *err);
#endif
