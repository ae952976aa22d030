// Drafts from a second, smaller model with the same vocabulary: its most probable tokens. See draft.h.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "engine/draft_eval.h"

enum {
  TRIES = 16 /* tokens whose time drafts may lose before the first success */,
  LITTLE = 16 /* tokens that are read as part of a draft */,
  PIECE = 64 /* minimum tokens read at once */,
  MOST_PIECE = 1024
};

struct own {
  weft_draft *d;
  weft_sequence *q;                     // NULL: not started
  VEC(int32_t) held;                    // tokens that the sequence holds
  bool over;                            // it cannot continue: out of memory, or tokens that it does not have
};

void *draft_model_new(weft_draft *d) {
  struct own *o = xcalloc(1, sizeof *o);
  o->d = d;
  return o;
}

static void draft_drop(void *own) {
  struct own *o = own;
  weft_sequence_free(o->q);
  vec_free(&o->held);
  free(o);
}

// The common prefix of the held tokens and the text; the last token is always evaluated.
static size_t known_prefix(const struct own *o, const draft_context *t) {
  size_t n = 0;
  while (n < o->held.n && n < t->n && o->held.at[n] == t->past[n]) n++;
  return n;
}

static size_t left_to_read(const struct own *o, const draft_context *t) { return t->n + 1 - known_prefix(o, t); }

static bool draft_offer(void *own, const draft_context *t, draft_estimate *out) {
  struct own *o = own;
  size_t n = left_to_read(o, t);
  *out = (draft_estimate){.asked = true, .tries = TRIES, .read_s = n > LITTLE ? (double)n * o->d->read_s : 0};
  return !o->over && draft_limits(o->d, t->n, out);
}

// Evaluates n tokens after the held ones. Returns the logits, or NULL; *s: seconds.
static const float *evaluate_ids(struct own *o, const int32_t *ids, size_t n, bool wanted, double *s) {
  weft_draft *d = o->d;
  weft_tokens part = {.sequence = o->q, .ids = ids, .n = n, .unseen = !wanted};
  draft_begin(d);
  o->over = weft_step(d->m, &part, 1, NULL, NULL, NULL) != 0;
  *s = draft_end(d);
  for (size_t i = 0; i < n && !o->over; i++) vec_push(&o->held, ids[i]);
  return part.logits;
}

static const float *think(void *own, int32_t id, double *s) { return evaluate_ids(own, &id, 1, true, s); }

// Reads missing text before `id`, at most for about the time of one token, so that other sequences are not delayed.
// false: more is left.
static bool read_on(struct own *o, const draft_context *t, double value_s) {
  weft_draft *d = o->d;
  double s, fit = d->read_s > 0 ? value_s / d->read_s : 0;
  size_t from = o->held.n, n = t->n - from, piece = (size_t)fmin(fmax(fit, PIECE), MOST_PIECE);
  if (n < LITTLE) return true;
  if (piece > n) piece = n;
  evaluate_ids(o, t->past + from, piece, false, &s);
  draft_charge(d, s, true);
  draft_time(&d->read_s, s / (double)piece);
  return piece == n && !o->over;
}

static size_t draft_make(void *own, const draft_context *t, double value_s, const draft_out *out) {
  struct own *o = own;
  weft_draft *d = o->d;
  size_t n = known_prefix(o, t);
  int32_t rest[LITTLE];
  double s;
  o->over |= !o->q && weft_sequence_new(d->m, &o->q, NULL);
  if (o->over) return 0;
  weft_sequence_cut(o->q, (int)n);
  o->held.n = n;
  if (!read_on(o, t, value_s)) return 0;
  n = t->n - o->held.n;
  memcpy(rest, t->past + o->held.n, n * sizeof *rest);
  rest[n] = t->id;
  const float *logits = evaluate_ids(o, rest, n + 1, true, &s);
  draft_charge(d, s, false);
  return o->over ? 0 : draft_chain(d, logits, think, o, out);
}

const draft_source draft_from_model = {draft_offer, draft_make, draft_drop};
