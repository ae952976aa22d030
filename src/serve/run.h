// run: one answer to a request. It says which tokens are to be evaluated next, and gets what the model makes of them:
// so whoever leads can evaluate those of many runs at once, or turn to something else, or stop, after each step.
#ifndef WEFT_SERVE_RUN_H
#define WEFT_SERVE_RUN_H
#include "serve/kv_blocks.h"
#include "serve/request.h"

// A sequence, and the tokens that it holds.
// kept: a file has all of it, or will soon. slot: its number (slots.h); -1: none. chain: what routers know of it
typedef struct held { weft_sequence *sequence; token_ids past; double used; bool kept; int slot; kv_chain chain; } held;
void held_free(held *h);

// How many tokens both begin with.
static inline size_t alike(const token_ids *x, const token_ids *y) {
  return weft_common(x->at, x->n, y->at, y->n);
}

typedef struct run run;
run *run_new(weft_model *m, weft_draft *d, bool no_speculation, request *r, int choice);     // d: NULL: none
const request *run_request(const run *u);
// Before that, and before something is found that it can go on from. -1 and why: run_fail.
int run_read_source(run *u, weft_error *err);
// h: what it goes on from, a beginning of its prompt; it is the run's from here on. false: the run has ended, here and
// below: nobody has been told yet, run_free returns the event that does.
bool run_begin(run *u, held *h);
// Tokens of its prompt that are left to evaluate; 0: it is in its answer.
size_t run_left(const run *u);
// What is to be evaluated next, at most `most` tokens of a prompt. n 0: nothing in this step (a piece of a prompt whose
// tokens are scored is evaluated here). false: it has ended.
bool run_offer(run *u, size_t most, weft_tokens *out);
// Evaluates a token of its answer that was offered, and what is guessed to follow with it: to be used where nobody else
// is waiting. 0; 1: there were guesses; -1 and why not.
int run_evaluate(run *u, weft_tokens *t, weft_error *err);
// Whether the token that was drawn has been evaluated ahead; for run_took.
bool run_known(run *u, weft_tokens *out);
// How many tokens a step is to have of it, with those that are guessed to follow; see weft_speculation_propose.
void run_propose(run *u, weft_tokens *t, double value_s, double extra_s);
void run_proposed(run *u, weft_tokens *t, double extra_s);        // those have been evaluated, before run_took
// Whether its next token is drawn by a grammar; and finds out which there may be, so that drawing need not. Any thread,
// while nobody else uses the run.
bool run_needs_mask(const run *u);
void run_make_mask(run *u);
double run_mask_s(const run *u);                       // seconds that the last one took
void run_settle(run *u);  // before its tokens are evaluated in any other way: drops what was guessed
// That has been evaluated, with its logits. false: it has ended.  late: its mask is not made yet. Then it keeps the
// logits and waits until run_resume, which returns the same.
bool run_took(run *u, const weft_tokens *t, bool late);
bool run_waits(const run *u);
bool run_resume(run *u);
void run_fail(run *u, const weft_error *err);          // ends it
void run_cancel(run *u);                               // it ends with the next run_offer
held *run_held(run *u);                                // what it holds; NULL before run_begin
bool run_ended(const run *u, struct timing *out);      // after that; whether by an error
// Tokens so far: of its prompt, of these from the cache and evaluated; drawn, and left of the request's limit (-1:
// none).
struct run_counts { int64_t prompt, cached, evaluated, drawn, left; };
struct run_counts run_count(const run *u);
// out (may be NULL): takes over what it holds.  The event that says its end (NULL: it has not ended) is for the caller
// to say, last of all: whoever hears it may free the request, and its grammar, of which a run has a copy for one thread
// at a time.
event *run_free(run *u, held *out);

// vector.c: the vectors of a request's texts.  {.m, .r} begins; a step is a text.
// last: the event that says its end, for the caller to say
typedef struct vectors {
  weft_model *m;
  request *r;
  size_t i, at;
  double start;
  struct timing timing;
  event *last;
} vectors;
bool vectors_step(vectors *v);         // false: it has ended
#endif
