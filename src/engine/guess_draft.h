// What sources have in common that ask a model: a second one (guess_model.c), or the model itself by its block for that
// (guess_mtp.c).
#ifndef WEFT_GUESS_DRAFT_H
#define WEFT_GUESS_DRAFT_H
#include "engine/guess.h"

struct weft_draft {
  weft_model *m;                        // that is asked
  bool own;                             // it is the one that the guesses are for
  weft_draft_options o;
  int32_t n_vocab;                      // ids that both models have
  guess_account account;
  double step_s, read_s;                // seconds of a token, lately: in a guess, in a text that is read; 0: unknown
  double all_s;                         // of everything that it has evaluated
  double wait_s;                        // before its first guess, which has a plan to make
  bool rests;
};

void draft_charge(weft_draft *d, double s, bool reads);
// What follows a token that may be likely, where `logits` are those before it: at most `most` tokens. think: evaluates
// one more; its logits, or NULL, and the seconds that it took.
typedef const float *draft_think(void *own, int32_t id, double *s);
size_t draft_chain(weft_draft *d, const float *logits, draft_think *think, void *own, double value_s, int32_t *out,
                   size_t most);
#endif
