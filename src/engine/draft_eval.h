// What sources have in common that ask a model: a second one (draft_model.c), or the model itself by its block for that
// (draft_mtp.c).
#ifndef WEFT_GUESS_DRAFT_H
#define WEFT_GUESS_DRAFT_H
#include "engine/draft.h"

struct weft_draft {
  weft_model *m;                        // that is asked
  bool own;                             // it is the one that the guesses are for
  weft_draft_options o;
  int32_t n_vocab;                      // ids that both models have
  draft_account account;
  draft_record record;
  double step_s, read_s;                // seconds of a token, lately: in a guess, in a text that is read; 0: unknown
  double all_s;                         // of everything that it has evaluated, by the clock on the wall
  struct { double wall, own, compiled; } began;
  double wait_s;                        // before its first guess, which has a plan to make
  uint64_t thoughts;
  bool rests;
};

// Of a draft behind n tokens: what options and the context leave to it. false: nothing.
bool draft_limits(const weft_draft *d, size_t n, draft_estimate *out);
// What is evaluated from here on; then the seconds that it took, without those of kernels that were made.
void draft_begin(weft_draft *d);
double draft_end(weft_draft *d);
void draft_charge(weft_draft *d, double s, bool reads);
// A token was thought of. The first one touches memory, and says nothing about those that follow.
void draft_thought(weft_draft *d, double s);
// Tokens that follow, the likeliest each time, where `logits` are those before the first. think: evaluates one more;
// its logits, or NULL, and the seconds that it took.
typedef const float *draft_think(void *own, int32_t id, double *s);
size_t draft_chain(weft_draft *d, const float *logits, draft_think *think, void *own, const draft_out *out);
#endif
