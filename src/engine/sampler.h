// sampler: chooses a token from the logits of one position.
//
// First, sampler_mask bans tokens and biases are added. Then the stages run in the order given by the parameters (the
// table is in sampler.c; the default order is llama.cpp's), then a token is drawn. Candidates are ordered by logit and,
// for equal logits, by id, so ties do not depend on the machine; generator, exp and log are portable (portable_math.h),
// so equal logits and seeds give equal tokens everywhere. Look next: sampler.c (the chain), sampler_stages.c,
// sampler_dry.c; include/weft.h exports it as weft_sampler.
#ifndef WEFT_SAMPLER_H
#define WEFT_SAMPLER_H
#include "base/base.h"
#include "text/text.h"
#include "weft.h"

// weft.h explains each parameter; its default, minimum and maximum are a row in sampler.c.
struct weft_sampling sampler_default(void);    // llama.cpp's
// Overwrites *p with the file's recommended values. -1: invalid keys are skipped, and err names the first.
int sampler_of_file(const gguf *g, struct weft_sampling *p, error *err);

typedef struct sampler sampler;

// Each call expects n_vocab >= 1 logits. -1 and an error that names the parameter if one is out of range.
int sampler_new(const struct weft_sampling *p, int32_t n_vocab, sampler **out, error *err);
void sampler_free(sampler *s);                               // NULL is fine
void sampler_bias(sampler *s, int32_t id, float bias);       // added to this token's logit; -INFINITY bans it
// Bit id % 64 of word id / 64: may the token be drawn? Borrowed, and read at each draw until replaced. NULL: all tokens
// may.
void sampler_mask(sampler *s, const uint64_t *allowed);
// Sequence breakers of DRY, such as "\n"; none by default. t must outlive s. -1: a breaker is empty or very long.
int sampler_breakers(sampler *s, const tokenizer *t, const char *const *texts, size_t n, error *err);
void sampler_accept(sampler *s, int32_t id);                 // appends id to the text, which penalties use
void sampler_reset(sampler *s);                              // a new text begins; random numbers continue
// Draws a token from n_vocab logits, which do not change; does not accept it. -1: every token is banned (-INFINITY).
int32_t sampler_sample(sampler *s, const float *logits);
// The error of the program's own sampler in the last draw; NULL: none.
const char *sampler_own_fault(const sampler *s);
// Tokens that the mask bans, and tokens that biases ban.
void sampler_bans(const sampler *s, int32_t *by_mask, int32_t *by_bias);

// Log-probabilities of the last draw: *of_id, of id (-INFINITY: not a candidate), and of the most probable candidates,
// sorted as below. Returns their number, at most n_top.
struct logprob;
int32_t sampler_logprobs(const sampler *s, int32_t id, double *of_id, struct logprob *top, int32_t n_top);

// Natural logarithms of the softmax of n logits, in double. *of_id: of id. top: the n_top most probable, sorted by
// probability, then id (n_top <= n; 0 and NULL for none).
struct logprob { int32_t id; double logprob; };
void logprobs(const float *logits, int32_t n, int32_t id, double *of_id, struct logprob *top, int32_t n_top);
#endif
