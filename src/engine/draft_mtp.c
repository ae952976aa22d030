// Guesses from the model itself, by its block that predicts a further token (model/mtp.c), and what that says behind
// its own guess, and so on. Nothing is kept here: what the block reads is kept with the sequence, in step with it,
// wherever a text goes on from. See draft.h.
#include <stdlib.h>
#include "engine/engine.h"
#include "engine/draft_eval.h"

enum { TRIES = 8 /* tokens whose time guesses may lose before the first success: nobody has asked for them */ };

struct own {
  weft_draft *d;
  weft_sequence *q;                     // NULL: weft_decode's
  int pos;                              // of the next token that it evaluates
  double began;                         // 0: not yet
};

void *draft_mtp_new(weft_draft *d, weft_sequence *q) {
  struct own *o = xcalloc(1, sizeof *o);
  *o = (struct own){.d = d, .q = q};
  return o;
}

// The first guess has a plan to make: that waits until tokens have taken as long as plans take.
static bool mtp_offer(void *own, const draft_context *t, draft_estimate *out) {
  struct own *o = own;
  if (o->began <= 0) o->began = now_s();
  *out = (draft_estimate){.asked = true, .tries = TRIES};
  return now_s() - o->began >= o->d->wait_s && draft_limits(o->d, t->n, out);
}

static const float *mtp_think(void *own, int32_t id, double *s) {
  struct own *o = own;
  weft_model *m = o->d->m;
  engine *e = weft_model_beside(m);
  engine_part p = {
    .q = o->q ? weft_sequence_of(o->q) : NULL, .ids = &id, .n = 1, .pos = o->pos, .want = WANT_GUESS};
  *s = 0;
  if (engine_need_mtp(e, NULL)) return NULL;         // once, weights are laid out for it: that is no guess's cost
  o->d->wait_s = 0;
  draft_begin(o->d);
  o->pos++;
  int failed = engine_run(e, &(engine_batch){.parts = &p, .n = 1}, NULL);
  *s = draft_end(o->d);
  return failed ? NULL : p.logits;
}

static size_t mtp_make(void *own, const draft_context *t, double value_s, const draft_out *out) {
  struct own *o = own;
  weft_draft *d = o->d;
  double s;
  (void)value_s;
  o->pos = (int)t->n;
  const float *logits = mtp_think(o, t->id, &s);
  draft_thought(d, s);
  return draft_chain(d, logits, mtp_think, o, out);
}

const draft_source draft_from_mtp = {mtp_offer, mtp_make, free};
