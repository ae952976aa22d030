// sampling_args: the sampling options of run and chat, and the sampler that they describe.
#ifndef WEFT_APP_SAMPLING_ARGS_H
#define WEFT_APP_SAMPLING_ARGS_H
#include <jansson.h>
#include "app/args.h"
#include "weft.h"

struct sampling_args {
  double temp, dynatemp_range, dynatemp_exponent, top_p, min_p, typical_p, top_n_sigma, xtc_probability, xtc_threshold;
  double repeat_penalty, frequency_penalty, presence_penalty, dry_multiplier, dry_base, mirostat_tau, mirostat_eta,
    adaptive_target, adaptive_decay;
  int64_t top_k, repeat_last_n, dry_allowed_length, dry_last_n, mirostat, seed;
  const char *samplers, *sampler_seq;
  struct texts biases, breakers;
  bool ignore_end;
};

void sampling_defaults(struct sampling_args *a);          // no option given
// Numbers not given by options become the model file's recommendation, or llama.cpp's default.
void sampling_resolve(struct sampling_args *a, const weft_file *f);
// Checks what a row cannot express, and draws a random seed if none was given. escapes: \n in a sequence breaker is a
// newline. -1 and an error.
int sampling_check(struct sampling_args *a, bool escapes, error *err);
// after sampling_resolve
int sampling_new(const struct sampling_args *a, const weft_vocab *vocab, int32_t n_vocab, weft_sampler **out,
                 weft_error *err);
// The options as fields of a server request, with llama.cpp's names; for json_decref().
json_t *sampling_fields_of(const struct sampling_args *a);
void sampling_free(struct sampling_args *a);
#endif
