/* weft/speculation.h: drafts of tokens that are checked together. */
#ifndef WEFT_API_SPECULATION_H
#define WEFT_API_SPECULATION_H
#include "sequence.h"

WEFT_BEGIN

/* ---- Speculative decoding
 *
 * If a text repeats itself, the next tokens can be drafted and evaluated together with the drawn one, which costs
 * little more. Logits are those of weft_decode, to the last bit, so callers draw as usual.
 */
typedef struct weft_speculation weft_speculation;
enum weft_speculating {
  WEFT_SPECULATE_NEVER,
  WEFT_SPECULATE_IF_IT_PAYS,
  WEFT_SPECULATE_ALWAYS /* whenever something can be drafted */
};
/* Freed before the model is closed. */
weft_speculation *weft_speculation_new(weft_model *m, enum weft_speculating how);
/* weft_speculation_new for a sequence. The sequence may have rejected draft tokens at its end until it is cut. */
struct weft_sequence;
weft_speculation *weft_speculation_of_sequence(weft_model *m, struct weft_sequence *q, enum weft_speculating how);
void weft_speculation_free(weft_speculation *a);          /* NULL is fine */
/* Drafts of a second, smaller model (its own sequence is not touched). The vocabularies must be the same for all ids
 * that both have. d is used by everything that belongs to m, on one thread at a time, and freed after the objects that
 * use it and before both models. */
typedef struct weft_draft weft_draft;
typedef struct weft_draft_options {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  int most, least;           /* tokens of a draft; shorter drafts than `least` are dropped. most 0, or above 7: 7 */
  double p_min;              /* a draft ends before a token that is less likely than this */
} weft_draft_options;
/* opt NULL: defaults. Refuses a model that cannot draft for m, naming the first id whose text differs. */
int weft_draft_new(const weft_model *m, weft_model *draft, const weft_draft_options *opt, weft_draft **out,
                   weft_error *err);
/* Drafts by a block of m itself (weft_options.mtp), in files with nextn_predict_layers, or by a draft file
 * (weft_options.draft_file); *out NULL: none. m then caches the block's entries of each token, which is a small part of
 * a layer's work. */
int weft_draft_own(weft_model *m, const weft_draft_options *opt, weft_draft **out, weft_error *err);
/* Compiles now what the first draft would otherwise have to wait for. */
int weft_draft_prepare(weft_draft *d, weft_error *err);
void weft_draft_free(weft_draft *d);          /* NULL is fine */
/* Seconds of evaluation so far, without compilation. */
double weft_draft_seconds(const weft_draft *d);
/* Disables drafting while `rests` is set, so that other evaluations do not wait for it. */
void weft_draft_rest(weft_draft *d, int rests);
void weft_speculation_draft(weft_speculation *a, weft_draft *d);           /* once, before the first token */
/* weft_decode of one token at `pos`, after past[0 .. pos - 1], which the KV cache (the sequence) holds. *logits are
 * valid until the next evaluation. How often it drafts depends on the success so far: drafts without success cost at
 * most a hundredth of the time. */
int weft_speculation_decode(weft_speculation *a, const int32_t *past, int pos, int32_t id, const float **logits,
                            weft_error *err);
/* For steps of several sequences (weft_step), which the caller makes. Call it before one: the logits after token id at
 * pos, if a draft token was evaluated there and was right, valid until weft_speculation_evaluated; NULL: they must be
 * evaluated. */
const float *weft_speculation_known(weft_speculation *a, int pos, int32_t id);
/* Call it next: how many tokens the step is to have of this sequence (1, or more if a draft is worth it), with all of
 * their rows; *ids: the tokens, id first. value_s: the current cost of a token of this sequence in seconds; extra_s:
 * about how much longer the draft tokens make the step. Memory for them is reserved. */
size_t weft_speculation_propose(weft_speculation *a, const int32_t *past, int pos, int32_t id, double value_s,
                                double extra_s, const int32_t **ids);
/* Call it after a step with more than one: the n rows, which are copied, and the actual additional time. */
void weft_speculation_evaluated(weft_speculation *a, int pos, size_t n, const float *rows, double extra_s);
/* Numbers of tokens: proposed, and accepted ones, which were then drawn. drafted: those of them that a weft_draft
 * proposed. */
typedef struct weft_speculation_counts {
  uint64_t proposed, accepted, drafted, drafted_accepted;
} weft_speculation_counts;
weft_speculation_counts weft_speculation_count(const weft_speculation *a);

WEFT_END
#endif
