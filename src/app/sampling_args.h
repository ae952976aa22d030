// sampling_args: the values of the options of sampling that run and chat share, and the sampler that they describe.
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

void sampling_defaults(struct sampling_args *a);          // nothing is said
// Numbers that no option says become those that the model's file recommends, or llama.cpp's defaults.
void sampling_resolve(struct sampling_args *a, const weft_file *f);
// Checks what a row cannot say, and draws a seed where none was given.  escapes: \n in a sequence breaker is a newline.
// -1 and why not.
int sampling_check(struct sampling_args *a, bool escapes, error *err);
// after sampling_resolve
int sampling_new(const struct sampling_args *a, const weft_vocab *vocab, int32_t n_vocab, weft_sampler **out,
                 weft_error *err);
// What options say, as the fields of a request to a server, with llama.cpp's names; for json_decref().
json_t *sampling_fields_of(const struct sampling_args *a);
void sampling_free(struct sampling_args *a);
#endif
