// Options of sampling: see sampling_args.h. Names and defaults are llama.cpp's.
#define _GNU_SOURCE
#include "app/sampling_args.h"
#include "app/app.h"
#include "app/json.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define R(name, field) {name, offsetof(struct sampling_args, field), offsetof(weft_sampling, field), false}
#define I(name, field) {name, offsetof(struct sampling_args, field), offsetof(weft_sampling, field), true}
// Numeric parameters: the name of the request field, the offset in the options, and the offset in weft_sampling.
static const struct number { const char *name; size_t at, of; bool whole; } sampler_numbers[] = {
  R("temperature", temp), R("dynatemp_range", dynatemp_range), R("dynatemp_exponent", dynatemp_exponent),
  R("top_p", top_p), R("min_p", min_p), R("typical_p", typical_p), R("top_n_sigma", top_n_sigma),
  R("xtc_probability", xtc_probability), R("xtc_threshold", xtc_threshold), R("repeat_penalty", repeat_penalty),
  R("frequency_penalty", frequency_penalty), R("presence_penalty", presence_penalty),
  R("dry_multiplier", dry_multiplier), R("dry_base", dry_base), R("mirostat_tau", mirostat_tau),
  R("mirostat_eta", mirostat_eta), R("adaptive_target", adaptive_target), R("adaptive_decay", adaptive_decay),
  I("top_k", top_k), I("repeat_last_n", repeat_last_n),
  I("dry_allowed_length", dry_allowed_length), I("dry_penalty_last_n", dry_last_n), I("mirostat", mirostat),
};
#undef R
#undef I

static double *real_option(struct sampling_args *a, const struct number *n) {
  return (double *)(void *)((char *)a + n->at);
}
static int64_t *whole_option(struct sampling_args *a, const struct number *n) {
  return (int64_t *)(void *)((char *)a + n->at);
}

enum { NOT_SAID = INT32_MIN };             // for whole numbers; the others use NaN

void sampling_defaults(struct sampling_args *a) {
  *a = (struct sampling_args){.seed = -1};
  for (size_t i = 0; i < COUNT(sampler_numbers); i++) {
    if (sampler_numbers[i].whole) *whole_option(a, &sampler_numbers[i]) = NOT_SAID;
    else *real_option(a, &sampler_numbers[i]) = NAN;
  }
}

static bool is_said(const struct sampling_args *a, const struct number *n) {
  const char *at = (const char *)a + n->at;
  return n->whole ? *(const int64_t *)(const void *)at != NOT_SAID : !isnan(*(const double *)(const void *)at);
}

void sampling_resolve(struct sampling_args *a, const weft_file *f) {
  weft_sampling p = weft_sampling_default();
  weft_error err;
  if (weft_sampling_of_file(f, &p, &err)) warning("%s", err.text);
  for (size_t i = 0; i < COUNT(sampler_numbers); i++) {
    const struct number *n = &sampler_numbers[i];
    const char *from = (const char *)&p + n->of;
    if (is_said(a, n)) continue;
    if (n->whole) *whole_option(a, n) = *(const int32_t *)(const void *)from;
    else *real_option(a, n) = *(const double *)(const void *)from;
  }
}

// Parses "15043+2.5", "15043-1", "15043-inf".
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

// As in llama.cpp, "none" clears the sequence breakers given before it.
static size_t first_breaker(const struct sampling_args *a) {
  size_t first = 0;
  for (size_t i = 0; i < a->breakers.n; i++) if (!strcmp(a->breakers.at[i], "none")) first = i + 1;
  return first;
}

static int set_breakers(const struct sampling_args *a, const weft_vocab *vocab, weft_sampler *s, weft_error *err) {
  size_t first = first_breaker(a);
  if (!a->breakers.n) return weft_sampler_breakers(s, vocab, NULL, 0, err);
  return weft_sampler_breakers(s, vocab, texts_of(&a->breakers) + first, a->breakers.n - first, err);
}

int sampling_new(const struct sampling_args *a, const weft_vocab *vocab, int32_t n_vocab, weft_sampler **out,
                 weft_error *err) {
  weft_sampling p = weft_sampling_default();
  for (size_t i = 0; i < COUNT(sampler_numbers); i++) {
    char *to = (char *)&p + sampler_numbers[i].of;
    const char *from = (const char *)a + sampler_numbers[i].at;
    if (sampler_numbers[i].whole) *(int32_t *)(void *)to = (int32_t)*(const int64_t *)(const void *)from;
    else memcpy(to, from, sizeof(double));
  }
  p.seed = (uint64_t)a->seed;
  p.samplers = a->samplers;
  p.sampler_seq = a->sampler_seq;
  if (weft_sampler_new(n_vocab, &p, out, err)) return -1;
  if (a->dry_multiplier > 0 && set_breakers(a, vocab, *out, err)) return -1;
  for (size_t i = 0; i < a->biases.n; i++) {
    int64_t id = 0;
    float bias = 0;
    if (read_bias(a->biases.at[i], &id, &bias) || weft_sampler_bias(*out, (int32_t)id, bias, err)) return -1;
  }
  if (a->ignore_end) weft_sampler_ignore_end(*out, vocab);
  weft_sampler_suppress(*out, vocab);
  return 0;
}

// ---- for the server -------------------------------------------------------------------------------------------------

static json_t *biases_of(const struct sampling_args *a) {
  json_t *all = json_array();
  for (size_t i = 0; i < a->biases.n; i++) {
    int64_t id = 0;
    float bias = 0;
    if (read_bias(a->biases.at[i], &id, &bias)) continue;          // sampling_check has already reported it
    json_array_append_new(all, isinf(bias) ? json_pack("[Ib]", (json_int_t)id, 0)
                                           : json_pack("[If]", (json_int_t)id, (double)bias));
  }
  return all;
}

json_t *sampling_fields_of(const struct sampling_args *a) {
  json_t *o = json_object(), *names;
  for (size_t i = 0; i < COUNT(sampler_numbers); i++) {
    const char *at = (const char *)a + sampler_numbers[i].at;
    if (!is_said(a, &sampler_numbers[i])) continue;
    json_object_set_new(o, sampler_numbers[i].name,
                        sampler_numbers[i].whole ? json_integer((json_int_t) * (const int64_t *)(const void *)at)
                                         : json_real(*(const double *)(const void *)at));
  }
  json_object_set_new(o, "seed", json_integer((json_int_t)a->seed));
  if (a->ignore_end) json_object_set_new(o, "ignore_eos", json_true());
  if (a->biases.n) json_object_set_new(o, "logit_bias", biases_of(a));
  if (a->sampler_seq) json_object_set_new(o, "samplers", json_string(a->sampler_seq));
  if (a->breakers.n) json_object_set_new(o, "dry_sequence_breakers", names = json_array());
  for (size_t i = first_breaker(a); i < a->breakers.n; i++)
    json_array_append_new(names, json_text(a->breakers.at[i], strlen(a->breakers.at[i])));
  if (!a->samplers) return o;
  json_object_set_new(o, "samplers", names = json_array());
  for (const char *at = a->samplers; *at; at += strcspn(at, ";"), at += *at == ';')
    json_array_append_new(names, json_stringn(at, strcspn(at, ";")));
  return o;
}

void sampling_free(struct sampling_args *a) {
  texts_free(&a->biases);
  texts_free(&a->breakers);
}
