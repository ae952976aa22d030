// Guesses from the model itself, by its block that predicts a further token (model/mtp.c), and what that says behind
// its own guess, and so on. Nothing is kept here: what the block reads is kept with the sequence, in step with it,
// wherever a text goes on from. See guess.h.
#include <stdlib.h>
#include "engine/engine.h"
#include "engine/guess_draft.h"

enum { TRIES = 8 /* tokens whose time guesses may lose before the first success: nobody has asked for them */ };

struct own {
  weft_draft *d;
  weft_sequence *q;                     // NULL: weft_decode's
  int pos;                              // of the next token that it evaluates
  double began;                         // 0: not yet
};

void *guess_mtp_new(weft_draft *d, weft_sequence *q, guess_account **a) {
  struct own *o = xcalloc(1, sizeof *o);
  *o = (struct own){.d = d, .q = q};
  *a = &d->account;
  return o;
}

// The first guess has a plan to make: that waits until tokens have taken as long as plans take.
static bool mtp_offer(void *own, const guess_text *t, guess_offer *out) {
  struct own *o = own;
  if (o->began <= 0) o->began = now_s();
  *out = (guess_offer){.asked = true, .tries = TRIES};
  return !o->d->rests && now_s() - o->began >= o->d->wait_s && t->n + 2 <= (size_t)weft_model_context(o->d->m);
}

static const float *mtp_think(void *own, int32_t id, double *s) {
  struct own *o = own;
  weft_model *m = o->d->m;
  engine *e = weft_model_beside(m);
  const float *logits = NULL;
  *s = 0;
  if (engine_need_mtp(e, NULL)) return NULL;         // once, weights are laid out for it: that is no guess's cost
  double began = now_s();
  int failed = engine_predict(e, o->q ? weft_sequence_of(o->q) : NULL, id, o->pos++, &logits, NULL);
  *s = now_s() - began;
  return failed ? NULL : logits;
}

static size_t mtp_make(void *own, const guess_text *t, double value_s, int32_t *out, size_t most) {
  struct own *o = own;
  weft_draft *d = o->d;
  size_t room = (size_t)weft_model_context(d->m) - t->n - 1;
  double s;
  if (d->o.most && most > (size_t)d->o.most) most = (size_t)d->o.most;
  if (most > room) most = room;
  o->pos = (int)t->n;
  const float *logits = mtp_think(o, t->id, &s);
  draft_charge(d, s, false);
  guess_blend(&d->step_s, s);
  size_t n = draft_chain(d, logits, mtp_think, o, value_s, out, most);
  return n < (size_t)d->o.least ? 0 : n;
}

const guess_source guess_from_mtp = {mtp_offer, mtp_make, free};
