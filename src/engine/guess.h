// guess: who says what may follow a text. A source of guesses is a row of functions over something of its own; ahead.c
// asks its sources at each token, chooses one whose guesses pay, and has the model evaluate what that one says.
//
// guess_text.c: what came behind the same words before.  guess_model.c: what a smaller model thinks.  guess_mtp.c: what
// the model itself thinks, by a block for that.
#ifndef WEFT_GUESS_H
#define WEFT_GUESS_H
#include "base/base.h"
#include "weft.h"

// The text so far: n tokens, and `id` behind them.
typedef struct guess_text { const int32_t *past; size_t n; int32_t id; } guess_text;

// What a source could say now.
// sure: it hardly errs. asked: somebody asked for guesses of this source. tries: tokens whose time it may owe; 0: it
// spends what it has won. read_s: seconds until it has read the text, where that is long.
typedef struct guess_offer { bool sure, asked; double tries, read_s; } guess_offer;

// What guesses of a source have won so far, in seconds, and a share of all time. `balance` is of guesses alone,
// `total` counts what reading the text took, too.
typedef struct guess_account { double balance, total; } guess_account;

typedef struct guess_source {
  // Whether it may have something to say.
  bool (*offer)(void *own, const guess_text *t, guess_offer *out);
  // At most `most` tokens that may follow, where one that is right is worth so many seconds; what that takes is charged
  // to its account. Returns how many: 0 where it has nothing to say after all, or reads on first.
  size_t (*make)(void *own, const guess_text *t, double value_s, int32_t *out, size_t most);
  void (*free)(void *own);
} guess_source;

extern const guess_source guess_from_text, guess_from_model, guess_from_mtp;

void *guess_text_new(void);
// a: its account, which all of this draft model share.
void *guess_model_new(weft_draft *d, guess_account **a);
void *guess_mtp_new(weft_draft *d, weft_sequence *q, guess_account **a);         // q NULL: weft_decode's

static inline void guess_blend(double *mean, double value) {
  *mean = *mean > 0 ? 0.8 * *mean + 0.2 * value : value;
}

// Seconds that went into making kernels: not what evaluating costs
double guess_compiled_s(const weft_model *m);
#endif
