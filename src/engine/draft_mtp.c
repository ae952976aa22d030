// Drafts from the model's own block for multi-token prediction (model/mtp.c), applied repeatedly. No state is kept
// here: the block's cache is stored with the sequence, wherever a text continues. See draft.h.
#include <stdlib.h>
#include "engine/engine.h"
#include "engine/draft_eval.h"

enum { TRIES = 8 /* tokens whose time drafts may lose before the first success, if not requested */ };

struct own {
  weft_draft *d;
  weft_sequence *q;                     // NULL: the sequence of weft_decode
  int pos;                              // of the next token to evaluate
  double began;                         // 0: not yet
  const float *rows;                    // of a draft file that fills a block: its logits, and the current one of them
  size_t n_rows, row;
};

void *draft_mtp_new(weft_draft *d, weft_sequence *q) {
  struct own *o = xcalloc(1, sizeof *o);
  *o = (struct own){.d = d, .q = q};
  return o;
}

// The first draft must make a plan: it waits until decoding has taken as long as plans take.
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
    .q = o->q ? weft_sequence_of(o->q) : NULL, .ids = &id, .n = 1, .pos = o->pos, .want = WANT_MTP};
  *s = 0;
  if (engine_need_mtp(e, NULL)) return NULL;         // packs weights once, which does not count as a draft's cost
  o->d->wait_s = 0;
  draft_begin(o->d);
  o->pos++;
  int failed = engine_run(e, &(engine_batch){.parts = &p, .n = 1}, NULL);
  *s = draft_end(o->d);
  return failed ? NULL : p.logits;
}

// A row of a block, whose rows were all evaluated together, after token id
static const float *row_after(struct own *o, int32_t id, double *s) {
  engine *e = weft_model_beside(o->d->m);
  engine_part p = {
    .q = o->q ? weft_sequence_of(o->q) : NULL, .ids = &id, .n = 1, .pos = (int)o->row, .want = WANT_DRAFT};
  *s = 0;
  if (!engine_draft_follows(e)) return o->rows + o->row * (size_t)o->d->n_vocab;
  draft_begin(o->d);
  int failed = engine_run(e, &(engine_batch){.parts = &p, .n = 1}, NULL);
  *s = draft_end(o->d);
  return failed ? NULL : p.logits;
}

static const float *next_row(void *own, int32_t id, double *s) {
  struct own *o = own;
  *s = 0;
  return ++o->row < o->n_rows ? row_after(o, id, s) : NULL;
}

static size_t mtp_make(void *own, const draft_context *t, double value_s, const draft_out *out) {
  struct own *o = own;
  weft_draft *d = o->d;
  double s;
  (void)value_s;
  o->pos = (int)t->n;
  o->row = 0;
  o->n_rows = (size_t)engine_draft_rows(weft_model_peek(d->m));
  o->rows = mtp_think(o, t->id, &s);
  draft_thought(d, s, o->n_rows < MODEL_BACK ? o->n_rows : MODEL_BACK);
  const float *first = o->rows && o->n_rows > 1 ? row_after(o, t->id, &s) : o->rows;
  return draft_chain(d, first, o->n_rows > 1 ? next_row : mtp_think, o, out);
}

const draft_source draft_from_mtp = {mtp_offer, mtp_make, free};
