// sampler: from the logits of one position to a token.
//
// The order is that of llama.cpp: bias, repetition penalty, top-k, top-p, min-p, temperature, draw.  Candidates are ordered
// by logit and, where logits are equal, by id, so that ties never depend on the machine; the generator and the exponential
// function are our own, so that the same logits and the same seed give the same tokens everywhere.
// Look next: sampler.c; include/weft.h offers it as weft_sampler.
#ifndef WEFT_SAMPLER_H
#define WEFT_SAMPLER_H
#include "base/base.h"

struct sampler_params {
  double temp;             // >= 0; 0 is greedy: the likeliest token, nothing drawn
  int32_t top_k;           // only the k likeliest; <= 0: all
  double top_p;            // the fewest likeliest that together have at least this probability; >= 1: all
  double min_p;            // at least this fraction of the likeliest token's probability; 0: all
  double repeat_penalty;   // > 0; 1: none
  int32_t repeat_last_n;   // tokens that the penalty looks back on; 0: none
  uint64_t seed;
};

typedef struct sampler sampler;

// n_vocab >= 1 logits are expected at each call.  -1 and an error that names the parameter where one is out of range.
int sampler_new(const struct sampler_params *p, int32_t n_vocab, sampler **out, error *err);
void sampler_free(sampler *s);                               // NULL is fine
void sampler_bias(sampler *s, int32_t id, float bias);       // added to this token's logit; -INFINITY bans it
void sampler_accept(sampler *s, int32_t id);                 // id is part of the text now: the penalty sees it
// Draws a token from n_vocab logits, which are left as they are; does not accept it.  -1: every token is banned (-INFINITY).
int32_t sampler_sample(sampler *s, const float *logits);

// Natural logarithm of the softmax of n logits, in double.  *of_id: that of id.  top: the n_top likeliest, sorted by
// probability, then id (n_top <= n; 0 and NULL for none).
struct logprob { int32_t id; double logprob; };
void logprobs(const float *logits, int32_t n, int32_t id, double *of_id, struct logprob *top, int32_t n_top);
#endif
