// run: one answer to a request, step by step, over a sequence.  A step is a piece of the prompt or one token, so whoever leads can turn to
// something else, or stop, after each.
#ifndef WEFT_SERVE_RUN_H
#define WEFT_SERVE_RUN_H
#include "serve/request.h"

// The positions that a model holds.  There is one for a model today; a scheduler of many will have as many of these.
typedef struct sequence {
  weft_model *model;
  token_ids past;                      // what it holds
  const float *logits;                 // of the token after that; NULL: not known
  double prompt_rate;                  // tokens of prompts per second, lately; 0: unknown
} sequence;

typedef struct run run;
run *run_new(sequence *q, request *r, int choice);
bool run_step(run *r);                 // false: it has ended, and said so in an event
bool run_ended(const run *r, struct timing *out);    // after that; whether by an error
void run_free(run *r);

// vector.c: the vectors of a request's texts.  {.q, .r} begins; a step is a text.
typedef struct vectors { sequence *q; request *r; size_t i, at; double start; struct timing timing; } vectors;
bool vectors_step(vectors *v);         // false: it has ended, and said so in an event
#endif
