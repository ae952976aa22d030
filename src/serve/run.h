// run: one answer to a request. It offers the tokens to be evaluated next and receives the model's output, so that the
// scheduler can evaluate many runs in one step, switch to other work, or stop after each step.
#ifndef WEFT_SERVE_RUN_H
#define WEFT_SERVE_RUN_H
#include "serve/kv_blocks.h"
#include "serve/request.h"

// A sequence and its tokens. kept: it is in a file, or will be soon. slot: its number (slots.h); -1: none. chain: its
// blocks for routers
typedef struct held { weft_sequence *sequence; token_ids past; double used; bool kept; int slot; kv_chain chain; } held;
void held_free(held *h);
void held_cut(held *h, size_t n);      // forgets the tokens from n on
// A new sequence with the first n tokens of h; h NULL: an empty one.
int held_begin(weft_model *m, const held *h, size_t n, held *out, weft_error *err);

// Number of common leading tokens.
static inline size_t alike(const token_ids *x, const token_ids *y) {
  return weft_common(x->at, x->n, y->at, y->n);
}

// The number of leading tokens of a prompt that h has, evaluated as the request has them evaluated.
size_t request_shares(const request *r, const held *h);

// At most how many tokens of its prompt may come from the cache: the last one is evaluated, and all while the choice
// that scores them, the first, has not begun or begins.
static inline size_t request_may_share(const request *r) {
  return r->prompt_scored && r->begun <= 1 ? 0 : r->prompt.n - 1;
}

typedef struct run run;
// d: NULL: none
run *run_new(weft_model *m, weft_draft *d, enum weft_speculating speculating, request *r, int choice);
const request *run_request(const run *u);
// Call it before run_begin, and before a prefix is searched in the cache. -1 and the reason: call run_fail.
int run_read_source(run *u, weft_error *err);
// h: a beginning of its prompt, owned by the run from now on. false, here and below: the run has ended; run_free
// returns the final event, which has not been sent yet.
bool run_begin(run *u, held *h);
// Tokens of the prompt, or after run_yield, left to evaluate; 0: it generates.
size_t run_left(const run *u);
// For how many tokens it needs memory before run_offer (whose chunk may be longer: a span of rows is not cut).
size_t run_needs(const run *u, size_t most);
// Gives the memory of its sequence back: its tokens are evaluated again before it goes on. false: it has none. Either
// way it waits for memory until its next tokens are offered.
bool run_yield(run *u);
bool run_waits_for_room(const run *u);
// The tokens to evaluate next, at most `most` of a prompt. n 0: nothing in this step (a chunk of a scored prompt is
// evaluated here). false: it has ended.
bool run_offer(run *u, size_t most, weft_tokens *out);
// Evaluates an offered token of its answer together with draft tokens: only if no other run waits. 0; 1: there were
// drafts; -1 and the reason.
int run_evaluate(run *u, weft_tokens *t, weft_error *err);
// Has the sampled token already been evaluated as a draft? For run_took.
bool run_known(run *u, weft_tokens *out);
// Adds draft tokens to the tokens of a step; see weft_speculation_propose.
void run_propose(run *u, weft_tokens *t, double value_s, double extra_s);
void run_proposed(run *u, weft_tokens *t, double extra_s);        // these have been evaluated; before run_took
// Does a grammar constrain its next token? run_make_mask computes the mask in advance. Any thread, while the run is not
// used otherwise.
bool run_needs_mask(const run *u);
void run_make_mask(run *u);
double run_mask_s(const run *u);                       // seconds of the last mask
void run_settle(run *u);  // drops draft tokens, before the run's tokens are evaluated in another way
// The offered tokens have been evaluated, with these logits. false: it has ended. late: the mask is not ready; the run
// copies the logits and waits until run_resume, which returns the same value.
bool run_took(run *u, const weft_tokens *t, bool late);
bool run_waits(const run *u);
bool run_resume(run *u);
void run_fail(run *u, const weft_error *err);          // ends it; run_offer says so again
void run_cancel(run *u);                               // it ends with the next run_offer
held *run_held(run *u);                                // its sequence; NULL before run_begin
bool run_ended(const run *u, struct timing *out);      // after the end: was it an error?
// Tokens so far: of its prompt, from the cache, evaluated; sampled, and left until the request's limit (-1: none).
struct run_counts { int64_t prompt, cached, evaluated, drawn, left; };
struct run_counts run_count(const run *u);
// out (may be NULL): takes over its sequence. The caller must send the returned final event (NULL: not ended) last: its
// receiver may free the request and its grammar, which the run shares.
event *run_free(run *u, held *out);

// vector.c: embeddings of a request's texts. Initialise with {.m, .r}; a step is one text.
// last: the final event, to be sent by the caller
typedef struct vectors {
  weft_model *m;
  request *r;
  size_t i, at;
  double start;
  struct timing timing;
  event *last;
} vectors;
size_t vectors_needs(const vectors *v);        // tokens of the next text; 0: no text is left
bool vectors_step(vectors *v);         // false: it has ended
#endif
