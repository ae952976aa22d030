// denoise_args: options of run and chat for diffusion models, and the generation of a text by denoising.
#ifndef WEFT_APP_DENOISE_ARGS_H
#define WEFT_APP_DENOISE_ARGS_H
#include "app/sampling_args.h"
#include "base/progress.h"

struct denoise_args {
  int64_t steps, block_length, algorithm, gumbel;      // 0, algorithm -1: the default
  double eps, algorithm_temp, cfg_scale;
  bool visual;
};

// Returns why the values are invalid; NULL: they are valid.
const char *denoise_args_fault(const struct denoise_args *a);
bool denoise_args_given(const struct denoise_args *a);

// A text of n ids: the first n_prompt are given, the others are generated. rows: for each generated token a copy of the
// logits that it was sampled from, for free(); NULL: not requested. bar NULL: no progress bar.
struct denoised {
  weft_model *model;
  const struct denoise_args *how;
  const struct sampling_args *sampling;      // after sampling_resolve
  int32_t *ids;
  size_t n, n_prompt;
  float **rows;
  progress *bar;
};
// Calls weft_denoise; Ctrl-C ends it.
int denoise(struct denoised *d, weft_error *err);
#endif
