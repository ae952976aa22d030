// Evaluates models that make drafts: see draft_eval.h, and include/weft.h for weft_draft.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "engine/engine.h"
#include "base/plain.h"
#include "engine/draft_eval.h"
#include "engine/sized.h"

static int refuse_draft(weft_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
static int refuse_draft(weft_error *err, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (err) plain_vsnprintf(err->text, sizeof err->text, fmt, ap);
  va_end(ap);
  return -1;
}

static const char *path_of(const weft_model *m) { return weft_file_path(weft_model_file(m)); }

// Finds the first id with different texts.
static int same_vocabulary(const weft_model *m, const weft_model *draft, int32_t n, weft_error *err) {
  const weft_vocab *x = weft_model_vocab(m), *y = weft_model_vocab(draft);
  int status = 0;
  for (int32_t id = 0; id < n && !status; id++) {
    size_t n_x, n_y, u, v;
    char *of_x = weft_piece(x, id, true, &n_x), *of_y = weft_piece(y, id, true, &n_y);
    if (n_x != n_y || memcmp(of_x, of_y, n_x)) {
      char *shown_x = weft_utf8(of_x, n_x, &u), *shown_y = weft_utf8(of_y, n_y, &v);
      status = refuse_draft(err, "%s: its vocabulary is not that of %s: token %d is \"%.60s\" there and \"%.60s\" here",
                            path_of(draft), path_of(m), id, shown_x, shown_y);
      weft_free(shown_x);
      weft_free(shown_y);
    }
    weft_free(of_x);
    weft_free(of_y);
  }
  return status;
}

// Makes the plans for single tokens, a few tokens, and prompts before the first draft is needed.
static int warm_up_draft(weft_model *m, weft_error *err) {
  enum { N = 16 };
  static const int32_t ids[N];
  weft_tokens t = {.ids = ids, .n = N};
  if (weft_model_context(m) < N + 3) return 0;
  if (weft_sequence_new(m, &t.sequence, err)) return -1;
  int status = weft_step(m, &t, 1, NULL, NULL, err);
  t.n = 2;
  if (!status) status = weft_step(m, &t, 1, NULL, NULL, err);
  t.n = 1;
  if (!status) status = weft_step(m, &t, 1, NULL, NULL, err);
  weft_sequence_free(t.sequence);
  return status;
}

static int check_options(const weft_draft_options *o, weft_error *err) {
  if (o->most < 0 || o->least < 0) return refuse_draft(err, "a draft of %d tokens, or of %d", o->most, o->least);
  if (!(o->p_min >= 0 && o->p_min <= 1))
    return refuse_draft(err, "p_min is %g; a probability is between 0 and 1", o->p_min);
  return 0;
}

static bool sees_whole(const weft_model *m) { return weft_model_only_embeds(m) || weft_model_denoises(m); }

int weft_draft_new(const weft_model *m, weft_model *draft, const weft_draft_options *options, weft_draft **out,
                   weft_error *err) {
  weft_draft_options o = {0};
  if (TAKE_OPTIONS(&o, weft_draft_options, p_min, options, err)) return -1;
  int32_t n = weft_model_vocab_size(m), n_draft = weft_model_vocab_size(draft);
  if (sees_whole(m))
    return refuse_draft(err, "%s: it does not make one token after another, so none can be drafted for it", path_of(m));
  if (sees_whole(draft))
    return refuse_draft(err, "%s: it does not make one token after another, so it cannot draft any", path_of(draft));
  const weft_model *answers = weft_model_has_source(m) ? m : weft_model_has_source(draft) ? draft : NULL;
  if (answers)
    return refuse_draft(err, "%s: a model with an encoder and a decoder neither drafts tokens nor takes drafts",
                        path_of(answers));
  if (weft_model_is_recurrent(draft))
    return refuse_draft(err, "%s: a draft model with recurrent layers cannot go back to before a wrong draft",
                        path_of(draft));
  if (check_options(&o, err) || same_vocabulary(m, draft, n < n_draft ? n : n_draft, err) || warm_up_draft(draft, err))
    return -1;
  *out = xcalloc(1, sizeof **out);
  **out = (weft_draft){.m = draft, .o = o, .n_vocab = n < n_draft ? n : n_draft};
  return 0;
}

int weft_draft_own(weft_model *m, const weft_draft_options *options, weft_draft **out, weft_error *err) {
  weft_draft_options o = {0};
  if (TAKE_OPTIONS(&o, weft_draft_options, p_min, options, err)) return -1;
  *out = NULL;
  if (!engine_has_mtp(weft_model_peek(m))) return 0;
  if (check_options(&o, err)) return -1;
  *out = xcalloc(1, sizeof **out);
  **out = (weft_draft){
    .m = m, .own = true, .o = o, .n_vocab = weft_model_vocab_size(m), .wait_s = draft_compiled_s(m)};
  return 0;
}

int weft_draft_prepare(weft_draft *d, weft_error *err) {
  error e = {0};
  if (!d->own) return 0;
  d->wait_s = 0;
  return engine_need_mtp(weft_model_beside(d->m), &e) ? refuse_draft(err, "%s", e.text) : 0;
}

void weft_draft_free(weft_draft *d) { free(d); }
double weft_draft_seconds(const weft_draft *d) { return d->all_s; }
void weft_draft_rest(weft_draft *d, int rests) { d->rests = rests; }

// ---- what it says ---------------------------------------------------------------------------------------------------

bool draft_limits(const weft_draft *d, size_t n, draft_estimate *out) {
  size_t n_ctx = (size_t)weft_model_context(d->m), most = (size_t)(d->o.most ? d->o.most : MODEL_BACK);
  if (d->rests || n + 2 > n_ctx) return false;
  out->token_s = d->step_s;
  out->least = (size_t)d->o.least;
  out->most = most < n_ctx - n - 1 ? most : n_ctx - n - 1;
  return out->least <= out->most;
}

draft_account *draft_account_of(weft_draft *d) { return &d->account; }
draft_record *draft_record_of(weft_draft *d) { return &d->record; }

void draft_begin(weft_draft *d) {
  d->began.wall = now_s();
  d->began.own = draft_now(d->m);
  d->began.compiled = draft_compiled_s(d->m);
}

double draft_end(weft_draft *d) {
  double made = draft_compiled_s(d->m) - d->began.compiled;
  d->all_s += fmax(now_s() - d->began.wall - made, 0);
  return fmax(draft_now(d->m) - d->began.own - made, 0);
}

void draft_charge(weft_draft *d, double s, bool reads) {
  if (!reads) d->account.balance -= s;
  d->account.total -= s;
}

// The most probable token that both models have, and its probability.
static int32_t likeliest(const float *logits, int32_t n, double *p) {
  enum { FAR = 20 };                    // lower logits contribute nothing
  int32_t best = 0;
  double sum = 0;
  for (int32_t i = 1; i < n; i++) if (logits[i] > logits[best]) best = i;
  for (int32_t i = 0; i < n; i++) if (logits[i] > logits[best] - FAR) sum += exp((double)(logits[i] - logits[best]));
  *p = sum > 0 ? 1 / sum : 0;
  return best;
}

void draft_thought(weft_draft *d, double s, size_t n) {
  if (!d->thoughts++) return;
  draft_charge(d, s, false);
  draft_time(&d->step_s, s / (double)n);
}

size_t draft_chain(weft_draft *d, const float *logits, draft_think *think, void *own, const draft_out *out) {
  double s;
  size_t n = 0;
  while (n < out->most && logits) {
    int32_t id = likeliest(logits, d->n_vocab, &out->p[n]);
    if (out->p[n] < d->o.p_min) break;
    out->ids[n++] = id;
    if (n == out->most || weft_is_end(weft_model_vocab(d->m), id) || !out->more(out->ctx, n)) break;
    logits = think(own, id, &s);
    if (s > 0) draft_thought(d, s, 1);
  }
  return n;
}
