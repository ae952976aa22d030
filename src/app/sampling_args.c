// Options of sampling: see sampling_args.h.  Names and defaults are llama.cpp's.
#define _GNU_SOURCE
#include "app/sampling_args.h"
#include "app/app.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void sampling_defaults(struct sampling_args *a) {
  weft_sampling d = weft_sampling_default();
  *a = (struct sampling_args){.temp = d.temp,
                              .dynatemp_exponent = d.dynatemp_exponent,
                              .top_k = d.top_k,
                              .top_p = d.top_p,
                              .min_p = d.min_p,
                              .typical_p = d.typical_p,
                              .top_n_sigma = d.top_n_sigma,
                              .xtc_threshold = d.xtc_threshold,
                              .repeat_penalty = d.repeat_penalty,
                              .repeat_last_n = d.repeat_last_n,
                              .dry_base = d.dry_base,
                              .dry_allowed_length = d.dry_allowed_length,
                              .dry_last_n = d.dry_last_n,
                              .mirostat_tau = d.mirostat_tau,
                              .mirostat_eta = d.mirostat_eta,
                              .seed = -1};
}

// "15043+2.5", "15043-1", "15043-inf".
static int read_bias(const char *text, int64_t *id, float *bias) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (end == text || errno || n < 0 || n > INT32_MAX || (*end != '+' && *end != '-') || !end[1] ||
      strchr(" +-", end[1]))
    return -1;
  double x = strtod(end, &end);
  if (*end || isnan(x) || x == INFINITY || (isfinite(x) && fabs(x) > 1e6)) return -1;
  *id = n;
  *bias = (float)x;
  return 0;
}

int sampling_check(struct sampling_args *a, bool escapes, error *err) {
  int64_t id;
  float bias;
  for (size_t i = 0; i < a->biases.n; i++)
    if (read_bias(a->biases.at[i], &id, &bias))
      return error_set(err,
                       "--logit-bias needs a token id and what to add to its logit (29892-1.5, 29892-inf), not '%s'",
                       a->biases.at[i]);
  if (a->samplers && a->sampler_seq)
    return error_set(err, "--samplers and --sampler-seq say the same thing: use one of them");
  if (escapes) unescape_texts(&a->breakers);
  if (a->seed < 0) a->seed = (int64_t)weft_random_seed();
  return 0;
}

// Of "none" among the breakers, llama.cpp says that there are none.
static int set_breakers(const struct sampling_args *a, const weft_vocab *vocab, weft_sampler *s, weft_error *err) {
  size_t first = 0;
  for (size_t i = 0; i < a->breakers.n; i++) if (!strcmp(a->breakers.at[i], "none")) first = i + 1;
  if (!a->breakers.n) return weft_sampler_breakers(s, vocab, NULL, 0, err);
  return weft_sampler_breakers(s, vocab, texts_of(&a->breakers) + first, a->breakers.n - first, err);
}

int sampling_new(const struct sampling_args *a, const weft_vocab *vocab, int32_t n_vocab, weft_sampler **out,
                 weft_error *err) {
  weft_sampling p = {.temp = a->temp,
                     .dynatemp_range = a->dynatemp_range,
                     .dynatemp_exponent = a->dynatemp_exponent,
                     .top_k = (int32_t)a->top_k,
                     .top_p = a->top_p,
                     .min_p = a->min_p,
                     .typical_p = a->typical_p,
                     .top_n_sigma = a->top_n_sigma,
                     .xtc_probability = a->xtc_probability,
                     .xtc_threshold = a->xtc_threshold,
                     .repeat_penalty = a->repeat_penalty,
                     .frequency_penalty = a->frequency_penalty,
                     .presence_penalty = a->presence_penalty,
                     .repeat_last_n = (int32_t)a->repeat_last_n,
                     .dry_multiplier = a->dry_multiplier,
                     .dry_base = a->dry_base,
                     .dry_allowed_length = (int32_t)a->dry_allowed_length,
                     .dry_last_n = (int32_t)a->dry_last_n,
                     .mirostat = (int)a->mirostat,
                     .mirostat_tau = a->mirostat_tau,
                     .mirostat_eta = a->mirostat_eta,
                     .seed = (uint64_t)a->seed,
                     .samplers = a->samplers,
                     .sampler_seq = a->sampler_seq};
  if (weft_sampler_new(n_vocab, &p, out, err)) return -1;
  if (a->dry_multiplier > 0 && set_breakers(a, vocab, *out, err)) return -1;
  for (size_t i = 0; i < a->biases.n; i++) {
    int64_t id = 0;
    float bias = 0;
    if (read_bias(a->biases.at[i], &id, &bias) || weft_sampler_bias(*out, (int32_t)id, bias, err)) return -1;
  }
  if (a->ignore_end) weft_sampler_ignore_end(*out, vocab);
  return 0;
}

void sampling_free(struct sampling_args *a) {
  texts_free(&a->biases);
  texts_free(&a->breakers);
}
