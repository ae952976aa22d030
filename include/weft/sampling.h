/* weft/sampling.h: from logits to a token; stop strings; log probabilities. */
#ifndef WEFT_API_SAMPLING_H
#define WEFT_API_SAMPLING_H
#include "vocab.h"

WEFT_BEGIN

/* ---- Sampling
 *
 * First the mask and the biases, then the samplers in their order, then a draw.  The same logits and seed give the same
 * tokens on every machine; equal logits are ordered by id.  Begin with weft_sampling_default() and change what you
 * need: a value out of range is an error that names it.
 */
typedef struct weft_sampler weft_sampler;
/* A candidate token with its current logit. */
typedef struct weft_candidate { double logit; int32_t id; } weft_candidate;
/* A sampler of the program. It gets n >= 1 candidates in an unspecified order, may change their logits and their order,
 * and returns how many it keeps: the first ones. A logit of -INFINITY or NaN also drops a candidate. It is called on
 * the thread of weft_sample, once per draw; c is valid until it returns. */
typedef size_t weft_own_sampler(void *ctx, weft_candidate *c, size_t n);
typedef struct weft_sampling {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  double temp;               /* temperature; 0: greedy, the likeliest token that is left */
  double dynatemp_range;     /* > 0: the temperature is between temp - range and temp + range, */
  double dynatemp_exponent;  /*   by entropy / highest possible entropy, to this power */
  int32_t top_k;             /* the k likeliest; 0 or less: all */
  double top_p;              /* the fewest likeliest with at least this probability together; 1: all */
  double min_p;              /* at least this fraction of the likeliest one's probability; 0: all */
  double typical_p; /* those nearest to the expected surprise, with more than this probability together; 1: all */
  double top_n_sigma;        /* logits within this many standard deviations of the best one; 0 or less: all */
  double xtc_probability;    /* how often XTC drops all tokens of at least this probability: */
  double xtc_threshold;      /*   but the least likely of them; above 0.5: never */
  /* divides positive logits of tokens in the last repeat_last_n, multiplies negative ones; 1: off */
  double repeat_penalty;
  double frequency_penalty;  /* taken off the logit, times the number of occurrences there; 0: off */
  double presence_penalty;   /* taken off once; 0: off */
  int32_t repeat_last_n;     /* 0: none; -1: all tokens accepted */
  double dry_multiplier; /* DRY: a token that would continue a repetition of n tokens loses multiplier * base^(n -
                            allowed); 0: off */
  double dry_base;
  int32_t dry_allowed_length;/* shorter repetitions cost nothing */
  int32_t dry_last_n;        /* 0: none; -1: all tokens accepted */
  int mirostat;              /* 1 or 2: that version in place of all samplers but the temperature; 0: off */
  double mirostat_tau;       /* surprise aimed at, in bits */
  double mirostat_eta;       /* how quickly it is corrected */
  double adaptive_target; /* adaptive-p: tokens of about this probability; negative: off. Only if the order names it */
  double adaptive_decay;     /* how long it remembers what was drawn: about 1 / (1 - decay) tokens, at most 100 */
  uint64_t seed;
  /* Which samplers, in which order: names ("top_k;top_p;temperature") or letters ("kpt").  Both NULL: all of them, as
   * "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature" or "edskypmxt".  "adaptive_p" ("a") is
   * only where it is named, and always the last one. */
  const char *samplers, *sampler_seq;
  /* A sampler of the program, and its ctx; NULL: none. Its name is "own", its letter "o"; if both orders are NULL, it
   * comes after "dry" and sees all tokens that are not banned. weft_sample fails if it leaves no candidate, or an
   * invalid id. */
  weft_own_sampler *own;
  void *own_ctx;
} weft_sampling;
/* temp .8, top_k 40, top_p .95, min_p .05; repeat_last_n 64, dry_base 1.75, dry_allowed_length 2, dry_last_n 64,
 * xtc_threshold .1, dynatemp_exponent 1, mirostat_tau 5, mirostat_eta .1, adaptive_decay .9; everything else off,
 * seed 0 */
void weft_sampling_init(weft_sampling *p, size_t size); /* size: sizeof *p; sets p->size, too */
static inline weft_sampling weft_sampling_default(void) {
  weft_sampling p;
  weft_sampling_init(&p, sizeof p);
  return p;
}
/* Writes the recommended values of a model's authors to *p: the keys general.sampling.temp, top_k, top_p, min_p,
 * xtc_probability, xtc_threshold, penalty_last_n, penalty_repeat, mirostat, mirostat_tau and mirostat_eta of its file.
 * Other values stay. -1: a value cannot be used; it is left out, and err names the file and the key. */
int weft_sampling_of_file(const weft_file *f, weft_sampling *p, weft_error *err);
uint64_t weft_random_seed(void);              /* below 2^32, from the system's entropy */
/* NULL: defaults */
int weft_sampler_new(int32_t vocab_size, const weft_sampling *params, weft_sampler **out, weft_error *err);
void weft_sampler_free(weft_sampler *s);      /* NULL is fine */
/* added to the logit; -INFINITY bans */
int weft_sampler_bias(weft_sampler *s, int32_t id, float bias, weft_error *err);
/* Bans every end-of-generation token of v. */
void weft_sampler_ignore_end(weft_sampler *s, const weft_vocab *v);
/* Bans the tokens that the model's file says are never drawn (its key tokenizer.ggml.suppress_tokens), also those that
 * had a bias. */
void weft_sampler_suppress(weft_sampler *s, const weft_vocab *v);
/* Bit id % 64 of word id / 64 says whether a token may be drawn.  Borrowed, and read at each draw until it is replaced;
 * NULL: all may. */
void weft_sampler_mask(weft_sampler *s, const uint64_t *allowed);
/* n texts at which DRY stops looking for repetitions; a token that contains one is not penalised. NULL: "\n", ":", "\""
 * and "*". There are none until this is called. v must stay open as long as s. */
int weft_sampler_breakers(weft_sampler *s, const weft_vocab *v, const char *const *texts, size_t n, weft_error *err);
/* Draws the next token from vocab_size logits; does not change them.  Fails if every token is banned, or as
 * weft_sampling.own says. */
int weft_sample(weft_sampler *s, const float *logits, int32_t *id, weft_error *err);
/* Tells the sampler that id is now part of the text (from the prompt, or drawn): penalties and DRY use it. */
int weft_accept(weft_sampler *s, int32_t id, weft_error *err);
void weft_sampler_reset(weft_sampler *s); /* a new text begins: forgets what was accepted; the random numbers go on */

typedef struct weft_logprob { int32_t id; double logprob; } weft_logprob;
/* The distribution of the last weft_sample after all samplers, as natural logarithms of probabilities. *of_id: that of
 * token id, -INFINITY if it could not be drawn. top (n_top entries; NULL when 0): the most likely of those that could
 * be drawn, sorted by probability, then id; *n_out: their number, at most n_top. */
int weft_sampler_logprobs(const weft_sampler *s, int32_t id, double *of_id, weft_logprob *top, int32_t n_top,
                          int32_t *n_out, weft_error *err);

/* Looks for stop strings in text that comes piece by piece. A possible beginning of one is held back until that is
 * decided. */
typedef struct weft_stop weft_stop;
/* none may be empty or longer than 1024 bytes */
int weft_stop_new(const char *const *texts, size_t n, weft_stop **out, weft_error *err);
/* The text that can be shown now, terminated, *n_out bytes, borrowed until the next call. *found: the index of the stop
 * string that ended the text; neither it nor later text is returned; -1: none. */
const char *weft_stop_add(weft_stop *s, const char *text, size_t n, size_t *n_out, int *found);
/* no more text comes: what was held back; a new text may begin */
const char *weft_stop_end(weft_stop *s, size_t *n_out);
void weft_stop_free(weft_stop *s);            /* NULL is fine */

/* Natural logarithms of the softmax of n logits, before any sampler.  *of_id: that of token id.  top (n_top entries,
 * n_top at most n; may be NULL when 0): the likeliest tokens, sorted by probability, then id. */
int weft_logprobs(const float *logits, int32_t n, int32_t id, double *of_id, weft_logprob *top, int32_t n_top,
                  weft_error *err);

WEFT_END
#endif
