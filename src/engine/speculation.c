// Speculative decoding: evaluates draft tokens (draft.h) together with the next token; this costs little, since all
// tokens of a step share one reading of the weights. See include/weft.h. The code that samples tokens does not change:
// draft tokens that are not sampled are dropped.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "engine/caches.h"
#include "engine/engine.h"
#include "engine/draft_eval.h"
#include "engine/plans.h"
#include "weft.h"

enum {
  ROWS = DRAFT_ROWS,
  SOURCES = 2,
  FIRST = 3 /* maximum tokens whose time the first draft costs */
};
#define SHARE 0.01           // share of all time for retrying a source whose drafts lose
#define SAVED 4              // maximum tokens whose time is saved up for that
#define MARGIN 1.02          // minimum expected speed of drafting, relative to no drafts
#define MOST_WON_S 10.0      // maximum gain that is counted: it is lost again if drafts fail later
#define SURE 0.7             // if all drafts are evaluated: a source this confident is asked before others
#define STALE 32             // steps with drafts in a row, before one without measures the baseline again
#define READ_TOKENS 64       // tokens whose time may be spent on reading texts before that has paid

struct source {
  const draft_source *is;
  void *own;
  draft_account *account;
  draft_record *record;
  draft_ratio of_text;                  // acceptance in this text, relative to the record
  double saved_s;                       // saved for a retry if no gain is expected
  uint64_t proposed, accepted;
};

struct weft_speculation {
  weft_model *m;
  weft_sequence *q;                     // NULL: the sequence of weft_decode
  int32_t n_vocab;
  enum weft_speculating how;
  struct source sources[SOURCES];
  int n_sources, by;                    // by: source of the current draft
  draft_account text;
  // logits after ids[0 .. n - 1], evaluated from position `pos` on; the next one is `at`
  float *rows;
  int32_t next[ROWS];
  double p[MODEL_BACK];                 // of next[1 ...], the source's probabilities
  size_t n, at;
  int pos;
  // the model's count at that time: another evaluation may have changed the cache
  uint64_t evaluations;
  draft_rows *took, shared;  // seconds of a step of n rows: the model's, or as told to a sequence among others
  double one;                           // of one row, recently; 0: unknown
  int since;                            // steps with drafts since the last one without
  // before drafts are evaluated, which first needs a plan of `plan_s` seconds: a draft that was not evaluated, how much
  // of it was sampled, and the seconds that all of these would have gained
  int32_t would[ROWS];
  size_t n_would, drawn;
  int would_pos;
  double plan_s, would_s, won_s;        // won_s: by evaluated drafts
};

double draft_compiled_s(const weft_model *m) {
  weft_stats s;
  weft_model_stats(m, &s);
  return (s.compile_ms + s.schedule_ms) / 1000;
}

double draft_now(const weft_model *m) { return engine_on_cpu(weft_model_peek(m)) ? thread_s() : now_s(); }

static void add_source(weft_speculation *a, const draft_source *is, void *own, draft_account *account,
                       draft_record *record) {
  a->sources[a->n_sources++] = (struct source){.is = is, .own = own, .account = account, .record = record};
}

weft_speculation *weft_speculation_of_sequence(weft_model *m, weft_sequence *q, enum weft_speculating how) {
  weft_speculation *a = xcalloc(1, sizeof *a);
  a->m = m;
  a->q = q;
  a->n_vocab = weft_model_vocab_size(m);
  a->plan_s = q ? 0 : draft_compiled_s(m);          // with sequences, the plan of their steps exists already
  a->how = weft_model_only_embeds(m) || weft_model_denoises(m) ? WEFT_SPECULATE_NEVER : how;
  a->took = &weft_model_drafts(m)->rows[q != NULL];
  add_source(a, &draft_from_text, draft_text_new(), &a->text, &weft_model_drafts(m)->text);
  return a;
}

weft_speculation *weft_speculation_new(weft_model *m, enum weft_speculating how) {
  return weft_speculation_of_sequence(m, NULL, how);
}

void weft_speculation_draft(weft_speculation *a, weft_draft *d) {
  die_if(a->n_sources == SOURCES, "weft_speculation_draft: there is a draft model already");
  void *own = d->own ? draft_mtp_new(d, a->q) : draft_model_new(d);
  add_source(a, d->own ? &draft_from_mtp : &draft_from_model, own, draft_account_of(d), draft_record_of(d));
}

void weft_speculation_free(weft_speculation *a) {
  if (!a) return;
  for (int i = 0; i < a->n_sources; i++) a->sources[i].is->close(a->sources[i].own);
  free(a->rows);
  free(a);
}

weft_speculation_counts weft_speculation_count(const weft_speculation *a) {
  weft_speculation_counts c = {0};
  for (int i = 0; i < a->n_sources; i++) {
    const struct source *s = &a->sources[i];
    bool drafts = s->is != &draft_from_text;
    c.proposed += s->proposed;
    c.accepted += s->accepted;
    c.drafted += drafts ? s->proposed : 0;
    c.drafted_accepted += drafts ? s->accepted : 0;
  }
  return c;
}

// ---- evaluating -----------------------------------------------------------------------------------------------------

static bool keep_row(void *ctx, size_t i, const float *logits) {
  weft_speculation *a = ctx;
  memcpy(a->rows + i * (size_t)a->n_vocab, logits, (size_t)a->n_vocab * sizeof *logits);
  return true;
}

// A source's offer: number of tokens, acceptance of each, and the number with the highest gain.
typedef struct offer {
  draft_estimate is;
  size_t most, best;
  double odds[MODEL_BACK], rate;
} offer;

static double draft_cost(const weft_speculation *a, const offer *o) {
  return draft_rows_s(a->took, o->best + 1) - a->one + (double)o->best * o->is.token_s;
}

static bool rows_are_known(const weft_speculation *a, size_t from) {
  for (size_t n = from; n <= ROWS; n++) if (a->took->met[n]) return true;
  return a->q;                          // with sequences, the plans of their steps exist already
}

// May this source draft? It must not have lost more than its drafts gained plus a share of the time; a requested source
// may owe the time of some tokens first, and more for reading a text. The first draft waits until drafts would have
// gained the cost of their plan, estimated from the other plans.
static bool may_pay(const weft_speculation *a, const struct source *s, const offer *o) {
  if (a->how == WEFT_SPECULATE_ALWAYS) return true;
  if (a->one <= 0 || (!o->is.asked && !rows_are_known(a, 2) && a->would_s < a->plan_s)) return false;
  if (o->is.read_s > 0 && s->account->total + READ_TOKENS * a->one < o->is.read_s) return false;
  return o->is.tries > 0 ? s->account->balance > -o->is.tries * a->one : s->account->balance >= draft_cost(a, o);
}

static void add_to(draft_account *a, double s) {
  a->balance = fmin(a->balance + s, MOST_WON_S);
  a->total = fmin(a->total + s, MOST_WON_S);
}

static void add_share(weft_speculation *a) {
  for (int i = 0; i < a->n_sources; i++) {
    struct source *s = &a->sources[i];
    add_to(s->account, SHARE * a->one);
    s->saved_s = fmin(s->saved_s + SHARE * a->one, SAVED * a->one);
  }
}

// Token `id` was sampled at `pos`: if an unevaluated draft predicted it, it would have saved a step.
static void look_back(weft_speculation *a, int pos, int32_t id) {
  if (a->drawn < a->n_would && a->would_pos + (int)a->drawn == pos && a->would[a->drawn] == id) {
    a->would_s += a->one;
    a->drawn++;
  } else {
    a->n_would = a->drawn = 0;
  }
}

static bool as_many_as_fit(void *ctx, size_t n) { return ctx && n; }

// Records the draft that the text would have given.
static void record_draft(weft_speculation *a, const draft_context *t) {
  double p[MODEL_BACK];
  if (a->n_would) return;
  a->n_would = a->sources[0].is->make(a->sources[0].own, t, a->one,
                                      &(draft_out){a->would, p, ROWS - 1, as_many_as_fit, a});
  a->drawn = 0;
  a->would_pos = (int)t->n + 1;
}

static int step_once(weft_speculation *a, int32_t id, int pos, const float **logits, weft_error *err) {
  weft_tokens t = {.sequence = a->q, .ids = &id, .n = 1};
  if (!a->q) return weft_decode(a->m, &id, 1, pos, logits, err);
  weft_sequence_cut(a->q, pos);
  if (weft_step(a->m, &t, 1, NULL, NULL, err)) return -1;
  *logits = t.logits;
  return 0;
}

static int many_steps(weft_speculation *a, int pos, size_t n, weft_error *err) {
  if (!a->q) return weft_decode_rows(a->m, a->next, n, pos, 0, keep_row, a, err);
  weft_tokens t = {.sequence = a->q, .ids = a->next, .n = n, .rows = n};
  weft_sequence_cut(a->q, pos);
  if (weft_step(a->m, &t, 1, NULL, NULL, err)) return -1;
  memcpy(a->rows, t.logits, n * (size_t)a->n_vocab * sizeof *a->rows);
  return 0;
}

// The n rows for `pos` and the draft after it were computed, in extra_s more seconds.
static void note_rows(weft_speculation *a, int pos, size_t n, const sequence *q, double extra_s) {
  add_to(a->sources[a->by].account, -extra_s);
  a->sources[a->by].proposed += n - 1;
  a->evaluations = q->evaluations;
  a->pos = pos;
  a->n = n;
  a->at = 1;
}

static const sequence *its_sequence(const weft_speculation *a) {
  return a->q ? weft_sequence_of(a->q) : engine_sequence(weft_model_beside(a->m));
}

const float *weft_speculation_known(weft_speculation *a, int pos, int32_t id) {
  const sequence *q = its_sequence(a);
  struct source *s = &a->sources[a->by];
  bool drafted = a->at < a->n && a->pos + (int)a->at == pos, right = drafted && a->next[a->at] == id;
  if (drafted) draft_judge(s->record, &s->of_text, a->at - 1, a->p[a->at - 1], right);
  if (!right || a->evaluations != q->evaluations || q->n <= pos) {
    a->n = 0;
    return NULL;
  }
  add_to(s->account, a->one);
  a->won_s += a->one;
  s->accepted++;
  return a->rows + a->at++ * (size_t)a->n_vocab;
}

// Source s's offer, if it may be evaluated now; at most `most` rows after the first.
static bool find_offer(weft_speculation *a, struct source *s, const draft_context *t, size_t most, offer *o) {
  *o = (offer){0};
  if (!s->is->offer(s->own, t, &o->is)) return false;
  o->most = o->is.most && o->is.most < most ? o->is.most : most;
  for (size_t i = 0; i < o->most; i++)
    o->odds[i] = o->is.p > 0 ? draft_odds(s->record, &s->of_text, i, o->is.p)
                             : draft_mean_odds(s->record, &s->of_text, i);
  if (a->one > 0) o->best = draft_best(a->took, o->odds, o->most, o->is.token_s, &o->rate);
  return true;
}

// Chooses a source: the one with the highest expected gain, or one due for a retry; -1: none.
static int choose_source(weft_speculation *a, const draft_context *t, size_t most, offer *chosen, bool *text_offers) {
  bool all = a->how == WEFT_SPECULATE_ALWAYS, tries = true;
  int by = -1;
  for (int i = 0; i < a->n_sources; i++) {
    struct source *s = &a->sources[i];
    offer o;
    bool offers = find_offer(a, s, t, most, &o);
    if (!i) *text_offers = offers;
    if (!offers || o.is.least > o.most) continue;
    bool good = all || (o.rate > MARGIN && may_pay(a, s, &o));
    bool again = a->one > 0 && (o.is.asked || rows_are_known(a, 2)) && s->saved_s >= draft_cost(a, &o);
    if (!good && !(tries && again)) continue;
    if (by >= 0 && tries == !good && (all ? chosen->is.p > SURE : o.rate < chosen->rate)) continue;
    by = i;
    *chosen = o;
    tries = !good;
  }
  if (by >= 0 && tries) a->sources[by].saved_s -= draft_cost(a, chosen);
  // 0: the best number of tokens, without comparing further
  chosen->rate = by < 0 || tries ? 0 : fmax(chosen->rate, 1);
  return by;
}

typedef struct drafting { weft_speculation *a; offer *o; } drafting;

static void set_odds(const drafting *d, size_t n) {
  const struct source *s = &d->a->sources[d->a->by];
  for (size_t i = 0; i < n; i++) d->o->odds[i] = draft_odds(s->record, &s->of_text, i, d->a->p[i]);
}

static bool wants_more(void *ctx, size_t n) {
  const drafting *d = ctx;
  if (d->a->how == WEFT_SPECULATE_ALWAYS) return true;
  if (d->o->rate <= 0) return n < d->o->best;
  set_odds(d, n);
  return draft_goes_on(d->a->took, d->o->odds, n, d->o->most, d->o->is.token_s, d->o->rate);
}

// Makes the draft after next[0]. Returns the number of tokens to evaluate.
static size_t make_draft(weft_speculation *a, const draft_context *t, offer *o) {
  const struct source *s = &a->sources[a->by];
  drafting d = {a, o};
  bool all = a->how == WEFT_SPECULATE_ALWAYS;
  double value;
  size_t n = s->is->make(s->own, t, all ? INFINITY : a->one, &(draft_out){a->next + 1, a->p, o->most, wants_more, &d});
  for (size_t i = 0; i < n; i++) if (a->next[1 + i] < 0) n = i;        // a row of floats cannot be sampled
  set_odds(&d, n);
  if (!all && o->rate > 0) n = draft_cut(a->took, o->odds, n, o->rate, &value);
  else if (!all && n > o->best) n = o->best;
  return n < o->is.least ? 0 : n;
}

// Maximum rows after the first. More rows need another plan, which is made once shorter drafts have paid for it.
static size_t rows_after(const weft_speculation *a, int pos) {
  int most = sequence_ahead(its_sequence(a), pos, ROWS), room = weft_model_context(a->m) - pos;
  if (a->q && most > weft_model_chunk(a->m)) most = weft_model_chunk(a->m);
  bool many = a->how == WEFT_SPECULATE_ALWAYS || rows_are_known(a, FEW + 1) ||
              a->won_s + a->would_s >= 2 * a->plan_s;
  if (!many && most > FEW) most = FEW;
  return room < ROWS ? 0 : (size_t)most - 1;
}

// The number of tokens to evaluate, including `id`; they are in `next`.
static size_t looks_ahead(weft_speculation *a, const int32_t *past, int pos, int32_t id) {
  draft_context t = {past, (size_t)pos, id};
  bool text_offers = false;
  offer o = {0};
  if (a->how == WEFT_SPECULATE_NEVER || pos < 0) return 1;
  if (a->since >= STALE && a->how != WEFT_SPECULATE_ALWAYS) return 1;
  size_t most = rows_after(a, pos);
  int by = most ? choose_source(a, &t, most, &o, &text_offers) : -1;
  look_back(a, pos, id);
  if (by < 0 && text_offers) record_draft(a, &t);
  if (by < 0) return 1;
  a->by = by;
  a->next[0] = id;
  size_t n = 1 + make_draft(a, &t, &o);
  return n == 1 || !a->q || (weft_sequence_cut(a->q, pos), !weft_sequence_reserve(a->q, n, NULL)) ? n : 1;
}

// One more row costs less than the average when batched with others' rows, of which extra_s are shared.
static void set_shared(weft_speculation *a, double value_s, double extra_s) {
  const draft_rows *alone = &weft_model_drafts(a->m)->rows[1];
  if (alone->s[1] > 0) extra_s = fmin(extra_s, draft_rows_s(alone, ROWS) - alone->s[1]);
  for (size_t n = 1; n <= ROWS; n++) {
    a->shared.met[n] = 1;
    a->shared.s[n] = value_s + extra_s * (double)(n - 1) / (ROWS - 1);
  }
  a->took = &a->shared;
  a->one = value_s;
}

size_t weft_speculation_propose(weft_speculation *a, const int32_t *past, int pos, int32_t id, double value_s,
                                double extra_s, const int32_t **ids) {
  set_shared(a, value_s, extra_s);
  a->since = 0;
  size_t n = looks_ahead(a, past, pos, id);
  if (n == 1) add_share(a);
  a->next[0] = id;
  *ids = a->next;
  return n;
}

static void make_rows(weft_speculation *a) {
  if (!a->rows) a->rows = xmalloc(ROWS * (size_t)a->n_vocab * sizeof *a->rows);
}

void weft_speculation_evaluated(weft_speculation *a, int pos, size_t n, const float *rows, double extra_s) {
  make_rows(a);
  memcpy(a->rows, rows, n * (size_t)a->n_vocab * sizeof *a->rows);
  note_rows(a, pos, n, its_sequence(a), extra_s);
}

int weft_speculation_decode(weft_speculation *a, const int32_t *past, int pos, int32_t id, const float **logits,
                            weft_error *err) {
  if ((*logits = weft_speculation_known(a, pos, id))) return 0;
  a->took = &weft_model_drafts(a->m)->rows[a->q != NULL];
  a->one = a->took->s[1];
  size_t n = looks_ahead(a, past, pos, id);
  double compiled = draft_compiled_s(a->m), began = draft_now(a->m);
  if (n > 1) make_rows(a);
  if (n == 1 ? step_once(a, id, pos, logits, err) : many_steps(a, pos, n, err)) return -1;
  double whole = draft_now(a->m) - began, made = draft_compiled_s(a->m) - compiled;
  bool first = !a->took->met[n] || made > 0;
  if (made <= 0) draft_rows_took(a->took, n, whole);
  else a->took->met[n]++;
  if (n == 1) {
    a->since = 0;
    add_share(a);
    return 0;
  }
  // the first draft may make a plan: counted as far as drafts can soon regain it
  note_rows(a, pos, n, its_sequence(a), first ? fmin(fmax(whole, made) - a->one, FIRST * a->one)
                                              : draft_rows_s(a->took, n) - a->one);
  a->since++;
  *logits = a->rows;
  return 0;
}
