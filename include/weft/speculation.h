/* weft/speculation.h: drafts of tokens that are checked together. */
#ifndef WEFT_API_SPECULATION_H
#define WEFT_API_SPECULATION_H
#include "sequence.h"

WEFT_BEGIN

/* ---- Speculative decoding
 *
 * If a text repeats what it said before, the tokens that follow can be proposed and evaluated
 * together with the one that was drawn, which costs little more.  Logits are those of weft_decode, to the last bit, so
 * callers draw as usual.
 */
typedef struct weft_speculation weft_speculation;
enum weft_speculating {
  WEFT_SPECULATE_NEVER,
  WEFT_SPECULATE_IF_IT_PAYS,
  WEFT_SPECULATE_ALWAYS /* wherever something can be guessed: for tests */
};
/* Freed before the model is closed. */
weft_speculation *weft_speculation_new(weft_model *m, enum weft_speculating how);
/* The same for a sequence (below).  It may hold guesses that were wrong, behind what was asked for, until it is cut. */
struct weft_sequence;
weft_speculation *weft_speculation_of_sequence(weft_model *m, struct weft_sequence *q, enum weft_speculating how);
void weft_speculation_free(weft_speculation *a);          /* NULL is fine */
/* Guesses of a second, smaller model, too (its own sequence is not touched): what it holds for likely.  The
 * vocabularies have to be the same, as far as both have ids.  d is used by all that belongs to m, on one thread at a
 * time, and freed after what was made with it and before both models. */
typedef struct weft_draft weft_draft;
typedef struct weft_draft_options {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  int most, least;           /* tokens of a guess; fewer than `least` are dropped. most 0, or above 7: 7 */
  double p_min;              /* a guess ends before a token that is less likely than this */
} weft_draft_options;
/* opt NULL: defaults.  Refuses what cannot guess for m, with the first id whose text is another one. */
int weft_draft_new(const weft_model *m, weft_model *draft, const weft_draft_options *opt, weft_draft **out,
                   weft_error *err);
/* The same of a block that m itself has for that (weft_options.mtp), as files with nextn_predict_layers have it;
 * *out NULL: it has none. m keeps what this needs of each token, which is a small part of what a layer computes. */
int weft_draft_own(weft_model *m, const weft_draft_options *opt, weft_draft **out, weft_error *err);
/* What is otherwise made for its first guess, which waits for that, is made now. */
int weft_draft_prepare(weft_draft *d, weft_error *err);
void weft_draft_free(weft_draft *d);          /* NULL is fine */
/* Seconds that it has evaluated so far, without those in which kernels were made. */
double weft_draft_seconds(const weft_draft *d);
/* While it rests, nobody asks it: where others would wait for what it thinks. */
void weft_draft_rest(weft_draft *d, int rests);
void weft_speculation_draft(weft_speculation *a, weft_draft *d);           /* once, before the first token */
/* weft_decode of one token at `pos`, behind past[0 .. pos - 1], which the KV cache (the sequence) holds.  *logits are
 * valid until the model evaluates something else.  How often it guesses depends on what guesses have won: they may cost
 * a hundredth of the time where they win nothing. */
int weft_speculation_decode(weft_speculation *a, const int32_t *past, int pos, int32_t id, const float **logits,
                            weft_error *err);
/* The same in steps of several sequences (weft_step), which the caller takes.  Before one: logits behind token id at
 * pos, where a guess has been evaluated and was right, valid until weft_speculation_evaluated; NULL: they have to be
 * evaluated. */
const float *weft_speculation_known(weft_speculation *a, int pos, int32_t id);
/* Then: how many tokens the step is to have of this sequence (1, or more where the guess is worth it), all of their
 * rows, and which (*ids, with id first). value_s: seconds that a token of this sequence costs now; extra_s: about what
 * the guessed ones would make the step longer by.  Memory for them is reserved. */
size_t weft_speculation_propose(weft_speculation *a, const int32_t *past, int pos, int32_t id, double value_s,
                                double extra_s, const int32_t **ids);
/* And after it, where there were more: the n rows, which are copied, and what it really was longer by. */
void weft_speculation_evaluated(weft_speculation *a, int pos, size_t n, const float *rows, double extra_s);
/* Tokens; taken: that were drawn indeed. drafted: of these, what a weft_draft guessed. */
typedef struct weft_speculation_counts {
  uint64_t proposed, accepted, drafted, drafted_accepted;
} weft_speculation_counts;
weft_speculation_counts weft_speculation_count(const weft_speculation *a);

WEFT_END
#endif
