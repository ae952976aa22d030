// sampler: from the logits of one position to a token.
//
// First, always: what sampler_mask does not allow is banned, biases are added.  Then the stages, in the order that the
// parameters give (the table is in sampler.c; the default order is llama.cpp's), then a draw.  Candidates are ordered
// by logit and, where logits are equal, by id, so that ties never depend on the machine; the generator, exp and log are
// our own (stable.h), so that the same logits and the same seed give the same tokens everywhere. Look next: sampler.c
// (the chain), sampler_stages.c, sampler_dry.c; include/weft.h offers it as weft_sampler.
#ifndef WEFT_SAMPLER_H
#define WEFT_SAMPLER_H
#include "base/base.h"
#include "text/text.h"

struct sampler_params {
  double temp;                           // 0 is greedy: the likeliest of what is left; otherwise 1e-6 or more
  double dynatemp_range;                 // > 0: from temp - range to temp + range, by how open the choice is
  double dynatemp_exponent;
  int32_t top_k;                         // only the k likeliest; <= 0: all
  double top_p;                          // the fewest likeliest that together have at least this probability; 1: all
  double min_p;                          // at least this fraction of the likeliest token's probability; 0: all
  double typical_p;                      // the most typical that together have more than this probability; 1: all
  double top_n_sigma;                    // logits within n standard deviations of the best; <= 0: all
  // how often all but the least likely of the tokens from xtc_threshold on are dropped; 0: never
  double xtc_probability;
  double xtc_threshold;                  // above 0.5: never
  double repeat_penalty;                 // > 0; 1: none
  double frequency_penalty, presence_penalty;   // taken off the logit: times the number of occurrences; once.  0: none
  int32_t repeat_last_n;                 // tokens that these three look back on; 0: none, -1: all
  double dry_multiplier;                 // 0: no DRY
  double dry_base;                       // a repetition of n tokens costs multiplier * base^(n - allowed length)
  int32_t dry_allowed_length;
  int32_t dry_last_n;                    // 0: none, -1: all
  int mirostat;                          // 1 or 2: in place of all stages but the temperature; 0: off
  double mirostat_tau, mirostat_eta;     // target surprise in bits, learning rate
  uint64_t seed;
  const char *samplers;                  // "top_k;top_p;temperature"; NULL: see below
  const char *sampler_seq;               // the same in letters, "kpt", where samplers is NULL; NULL: the default order
};
struct sampler_params sampler_default(void);    // llama.cpp's

typedef struct sampler sampler;

// n_vocab >= 1 logits are expected at each call.  -1 and an error that names the parameter where one is out of range.
int sampler_new(const struct sampler_params *p, int32_t n_vocab, sampler **out, error *err);
void sampler_free(sampler *s);                               // NULL is fine
void sampler_bias(sampler *s, int32_t id, float bias);       // added to this token's logit; -INFINITY bans it
// Bit id % 64 of word id / 64 says whether a token may be drawn; borrowed, and read at each draw until it is replaced.
// NULL: all may.
void sampler_mask(sampler *s, const uint64_t *allowed);
// Texts at which DRY stops to look back ("\n"); none until this is called.  t must outlive s.  -1: an empty or very
// long one.
int sampler_breakers(sampler *s, const tokenizer *t, const char *const *texts, size_t n, error *err);
void sampler_accept(sampler *s, int32_t id);                 // id is part of the text now: the penalties see it
void sampler_reset(sampler *s);                              // a new text begins; the random numbers go on
// Draws a token from n_vocab logits, which are left as they are; does not accept it.  -1: every token is banned
// (-INFINITY).
int32_t sampler_sample(sampler *s, const float *logits);

// Natural logarithm of the softmax of n logits, in double.  *of_id: that of id.  top: the n_top likeliest, sorted by
// probability, then id (n_top <= n; 0 and NULL for none).
struct logprob { int32_t id; double logprob; };
void logprobs(const float *logits, int32_t n, int32_t id, double *of_id, struct logprob *top, int32_t n_top);
#endif
