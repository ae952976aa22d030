// Options of sampling: see sampling_args.h.  Names and defaults are llama.cpp's.
#define _GNU_SOURCE
#include "app/sampling_args.h"
#include "app/app.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void sampling_options(struct sampling_args *a, struct option *rows) {
  weft_sampling d = weft_sampling_default();
  *a = (struct sampling_args){
    .temp = d.temp, .dynatemp_exponent = d.dynatemp_exponent, .top_k = d.top_k, .top_p = d.top_p, .min_p = d.min_p, .typical_p = d.typical_p,
    .top_n_sigma = d.top_n_sigma, .xtc_threshold = d.xtc_threshold, .repeat_penalty = d.repeat_penalty, .repeat_last_n = d.repeat_last_n,
    .dry_base = d.dry_base, .dry_allowed_length = d.dry_allowed_length, .dry_last_n = d.dry_last_n, .mirostat_tau = d.mirostat_tau,
    .mirostat_eta = d.mirostat_eta, .seed = -1};
  const struct option table[] = {
    O_GROUP("Sampling, in this order"),
    O_TEXTS("-l, --logit-bias", "ID+X|ID-X", "changes the logit of a token, more than once; ID-inf bans it", &a->biases),
    O_FLAG("--ignore-eos", "never draw an end-of-generation token", &a->ignore_end),
    O_REAL("--repeat-penalty", "X", "divides logits of repeated tokens (default 1: off)", &a->repeat_penalty, 1e-3, 1e3),
    O_REAL("--frequency-penalty", "X", "off their logits for each occurrence (default 0)", &a->frequency_penalty, -1e3, 1e3),
    O_REAL("--presence-penalty", "X", "off their logits once (default 0)", &a->presence_penalty, -1e3, 1e3),
    O_INT("--repeat-last-n", "N", "tokens these look back on; -1: the context (default 64)", &a->repeat_last_n, -1, INT32_MAX),
    O_REAL("--dry-multiplier", "X", "DRY: continuing a repetition of n tokens costs\nX * base^(n - allowed) (default 0: off)", &a->dry_multiplier, 0, 1e6),
    O_REAL("--dry-base", "X", "(default 1.75)", &a->dry_base, 1, 1e6),
    O_INT("--dry-allowed-length", "N", "repetitions shorter than that are free (default 2)", &a->dry_allowed_length, 0, INT32_MAX),
    O_INT("--dry-penalty-last-n", "N", "tokens DRY looks back on; -1: the context (default)", &a->dry_last_n, -1, INT32_MAX),
    O_TEXTS("--dry-sequence-breaker", "TEXT", "no repetition reaches back over TEXT, more than once;\nnone: over everything (default \\n : \" *)", &a->breakers),
    O_REAL("--top-nsigma, --top-n-sigma", "X", "logits within X standard deviations of the best (-1: off)", &a->top_n_sigma, -1e6, 1e6),
    O_INT("--top-k", "N", "the N likeliest tokens; 0 or -1: all (default 40)", &a->top_k, -1, INT32_MAX),
    O_REAL("--typical, --typical-p", "X", "the most typical with probability X together (1: off)", &a->typical_p, 0, 1),
    O_REAL("--top-p", "X", "the likeliest that together have probability X;\n1: all (default 0.95)", &a->top_p, 0, 1),
    O_REAL("--min-p", "X", "at least X of the likeliest one's probability;\n0: all (default 0.05)", &a->min_p, 0, 1),
    O_REAL("--xtc-probability", "X", "how often XTC drops all but the last of the tokens that\nreach its threshold (default 0: never)", &a->xtc_probability, 0, 1),
    O_REAL("--xtc-threshold", "X", "(default 0.1; above 0.5: off)", &a->xtc_threshold, 0, 1),
    O_REAL("--temp, --temperature", "X", "0: always the likeliest token (default 0.8)", &a->temp, 0, 1e6),
    O_REAL("--dynatemp-range", "X", "temperature from -X to +X of that, by entropy (0: off)", &a->dynatemp_range, 0, 1e6),
    O_REAL("--dynatemp-exp", "X", "exponent of that (default 1)", &a->dynatemp_exponent, 0, 1e3),
    O_INT("--mirostat", "N", "1 or 2: Mirostat, in place of all but the temperature", &a->mirostat, 0, 2),
    O_REAL("--mirostat-ent", "X", "surprise it aims at, in bits (default 5)", &a->mirostat_tau, 0, 1e3),
    O_REAL("--mirostat-lr", "X", "how quickly it corrects itself (default 0.1)", &a->mirostat_eta, 0, 1e3),
    O_TEXT("--samplers", "NAMES", "another order, or fewer:\npenalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", &a->samplers),
    O_TEXT("--sampler-seq, --sampling-seq", "LETTERS", "the same in letters (edskypmxt)", &a->sampler_seq),
    O_INT("-s, --seed", "N", "same seed, same tokens; -1: random (default)", &a->seed, -1, 9007199254740992.0),
  };
  _Static_assert(COUNT(table) == SAMPLING_OPTIONS, "the number in sampling_args.h");
  memcpy(rows, table, sizeof table);
}

// "15043+2.5", "15043-1", "15043-inf".
static int read_bias(const char *text, int64_t *id, float *bias) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (end == text || errno || n < 0 || n > INT32_MAX || (*end != '+' && *end != '-') || !end[1] || strchr(" +-", end[1])) return -1;
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
      return error_set(err, "--logit-bias needs a token id and what to add to its logit (29892-1.5, 29892-inf), not '%s'", a->biases.at[i]);
  if (a->samplers && a->sampler_seq) return error_set(err, "--samplers and --sampler-seq say the same thing: use one of them");
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

int sampling_new(const struct sampling_args *a, const weft_vocab *vocab, int32_t n_vocab, weft_sampler **out, weft_error *err) {
  weft_sampling p = {
    .temp = a->temp, .dynatemp_range = a->dynatemp_range, .dynatemp_exponent = a->dynatemp_exponent, .top_k = (int32_t)a->top_k,
    .top_p = a->top_p, .min_p = a->min_p, .typical_p = a->typical_p, .top_n_sigma = a->top_n_sigma, .xtc_probability = a->xtc_probability,
    .xtc_threshold = a->xtc_threshold, .repeat_penalty = a->repeat_penalty, .frequency_penalty = a->frequency_penalty,
    .presence_penalty = a->presence_penalty, .repeat_last_n = (int32_t)a->repeat_last_n, .dry_multiplier = a->dry_multiplier,
    .dry_base = a->dry_base, .dry_allowed_length = (int32_t)a->dry_allowed_length, .dry_last_n = (int32_t)a->dry_last_n,
    .mirostat = (int)a->mirostat, .mirostat_tau = a->mirostat_tau, .mirostat_eta = a->mirostat_eta, .seed = (uint64_t)a->seed,
    .samplers = a->samplers, .sampler_seq = a->sampler_seq};
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
