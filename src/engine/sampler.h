// sampler: from the logits of one position to a token.
//
// First, always: what sampler_mask does not allow is banned, biases are added.  Then the stages, in the order that the
// parameters give (the table is in sampler.c; the default order is llama.cpp's), then a draw.  Candidates are ordered
// by logit and, where logits are equal, by id, so that ties never depend on the machine; the generator, exp and log are
// our own (portable_math.h), so that the same logits and the same seed give the same tokens everywhere. Look next:
// sampler.c (the chain), sampler_stages.c, sampler_dry.c; include/weft.h offers it as weft_sampler.
#ifndef WEFT_SAMPLER_H
#define WEFT_SAMPLER_H
#include "base/base.h"
#include "text/text.h"
#include "weft.h"

// What each parameter means is said in weft.h; its default, least and most are a row in sampler.c.
struct weft_sampling sampler_default(void);    // llama.cpp's
// Writes what a file recommends over *p. -1: keys whose values cannot be used are left out, and err names the first.
int sampler_of_file(const gguf *g, struct weft_sampling *p, error *err);

typedef struct sampler sampler;

// n_vocab >= 1 logits are expected at each call.  -1 and an error that names the parameter where one is out of range.
int sampler_new(const struct weft_sampling *p, int32_t n_vocab, sampler **out, error *err);
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
// What the program's own sampler did wrong in the last draw; NULL: nothing.
const char *sampler_own_fault(const sampler *s);

// Of the last draw, the natural logarithms of what it drew by: *of_id, that of id (-INFINITY: it was none of the
// candidates), and the likeliest candidates, sorted as below. How many of these there are, n_top at most.
struct logprob;
int32_t sampler_logprobs(const sampler *s, int32_t id, double *of_id, struct logprob *top, int32_t n_top);

// Natural logarithm of the softmax of n logits, in double.  *of_id: that of id.  top: the n_top likeliest, sorted by
// probability, then id (n_top <= n; 0 and NULL for none).
struct logprob { int32_t id; double logprob; };
void logprobs(const float *logits, int32_t n, int32_t id, double *of_id, struct logprob *top, int32_t n_top);
#endif
