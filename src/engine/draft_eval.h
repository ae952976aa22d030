// Common code of the draft sources that run a model: a second one (draft_model.c), or the MTP block of the model itself
// (draft_mtp.c).
#ifndef WEFT_GUESS_DRAFT_H
#define WEFT_GUESS_DRAFT_H
#include "engine/draft.h"

struct weft_draft {
  weft_model *m;                        // the drafting model
  bool own;                             // it is the model that the drafts are for
  weft_draft_options o;
  int32_t n_vocab;                      // number of ids that both models have
  draft_account account;
  draft_record record;
  double step_s, read_s;                // recent seconds per token: drafting, reading text; 0: unknown
  double all_s;                         // wall-clock seconds of all its evaluations
  struct { double wall, own, compiled; } began;
  double wait_s;                        // before its first draft, for which a plan must be made
  uint64_t thoughts;
  bool rests;
};

// Limits a draft after n tokens by options and context. false: no draft possible.
bool draft_limits(const weft_draft *d, size_t n, draft_estimate *out);
// Brackets an evaluation; draft_end returns its seconds, excluding compilation.
void draft_begin(weft_draft *d);
double draft_end(weft_draft *d);
void draft_charge(weft_draft *d, double s, bool reads);
// Records the time of n tokens that were drafted at once. The first one touches memory and is ignored.
void draft_thought(weft_draft *d, double s, size_t n);
// Drafts the most probable tokens one at a time; `logits` are those before the first. think: evaluates a token and
// returns its logits, or NULL, and the seconds (0: its row was evaluated before).
typedef const float *draft_think(void *own, int32_t id, double *s);
size_t draft_chain(weft_draft *d, const float *logits, draft_think *think, void *own, const draft_out *out);
#endif
