// Tokens evaluated ahead: what follows is guessed (guess.h), and a guess costs little, since many tokens share one
// reading of the weights. See include/weft.h. Whoever draws tokens takes no notice: a guess that is not drawn is
// dropped.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "engine/caches.h"
#include "engine/engine.h"
#include "engine/guess_draft.h"
#include "weft.h"

enum {
  ROWS = 8,
  SOURCES = 2,
  FIRST = 3 /* tokens whose time the first guess costs at most */
};
#define SHARE 0.01           // of all time may go to a source whose guesses win nothing
#define MOST_WON_S 10.0      // what was won counts so far at most: it is lost again where guesses err from then on
#define STALE 32             // steps with guesses in a row, before one without shows again what those are measured by
#define READ_TOKENS 64       // tokens whose time may go to reading texts before that has paid

struct source { const guess_source *is; void *own; guess_account *account; uint64_t guessed, taken; };

struct weft_ahead {
  weft_model *m;
  weft_sequence *q;                     // NULL: weft_decode's
  int32_t n_vocab;
  enum weft_guessing how;
  struct source sources[SOURCES];
  int n_sources, by;                    // by: whose guess is there
  guess_account text;
  // logits behind ids[0 .. n - 1], evaluated from position `pos` on; the next one is `at`
  float *rows;
  int32_t next[ROWS];
  size_t n, at;
  int pos;
  // of the model when that was done: another one may have changed what the cache holds
  uint64_t evaluations;
  double one, many;                     // seconds of a step, lately; 0: unknown
  int since;                            // steps with guesses since there was one without
  // until guesses are evaluated, which takes a plan of `plan_s` seconds to begin with: a guess that was not, how much
  // of it was drawn then, and the seconds that all these would have won
  int32_t would[ROWS];
  size_t n_would, drawn;
  int would_pos;
  double plan_s, would_s;
};

double guess_compiled_s(const weft_model *m) {
  weft_stats s;
  weft_model_stats(m, &s);
  return (s.compile_ms + s.schedule_ms) / 1000;
}

static void add_source(weft_ahead *a, const guess_source *is, void *own, guess_account *account) {
  a->sources[a->n_sources++] = (struct source){.is = is, .own = own, .account = account};
}

weft_ahead *weft_ahead_of_sequence(weft_model *m, weft_sequence *q, enum weft_guessing how) {
  weft_ahead *a = xcalloc(1, sizeof *a);
  a->m = m;
  a->q = q;
  a->n_vocab = weft_model_vocab_size(m);
  a->plan_s = q ? 0 : guess_compiled_s(m);     // the plan of steps is there
  a->how = weft_model_is_recurrent(m) || weft_model_only_embeds(m) ? WEFT_GUESS_NEVER : how;
  add_source(a, &guess_from_text, guess_text_new(), &a->text);
  return a;
}

weft_ahead *weft_ahead_new(weft_model *m, enum weft_guessing how) { return weft_ahead_of_sequence(m, NULL, how); }

void weft_ahead_draft(weft_ahead *a, weft_draft *d) {
  guess_account *account;
  if (a->n_sources == SOURCES) die("weft_ahead_draft: there is a draft model already");
  void *own = d->own ? guess_mtp_new(d, a->q, &account) : guess_model_new(d, &account);
  add_source(a, d->own ? &guess_from_mtp : &guess_from_model, own, account);
}

void weft_ahead_free(weft_ahead *a) {
  if (!a) return;
  for (int i = 0; i < a->n_sources; i++) a->sources[i].is->free(a->sources[i].own);
  free(a->rows);
  free(a);
}

weft_ahead_counts weft_ahead_count(const weft_ahead *a) {
  weft_ahead_counts c = {0};
  for (int i = 0; i < a->n_sources; i++) {
    const struct source *s = &a->sources[i];
    bool drafts = s->is != &guess_from_text;
    c.guessed += s->guessed;
    c.taken += s->taken;
    c.drafted += drafts ? s->guessed : 0;
    c.drafted_taken += drafts ? s->taken : 0;
  }
  return c;
}

// ---- evaluating -----------------------------------------------------------------------------------------------------

static bool keep_row(void *ctx, size_t i, const float *logits) {
  weft_ahead *a = ctx;
  memcpy(a->rows + i * (size_t)a->n_vocab, logits, (size_t)a->n_vocab * sizeof *logits);
  return true;
}

// Whether a guess is worth its try: it may cost what guesses of this source have won, and a share of the time; a source
// that is trusted may owe the time of some tokens first, and more for reading a text. The first guess waits until
// guesses would have won what its plan costs, of which the others that were made are the measure.
static bool pays(const weft_ahead *a, const struct source *s, const guess_offer *o) {
  double cost = a->many > a->one ? a->many - a->one : a->one;
  if (a->how == WEFT_GUESS_ALWAYS) return true;
  if (a->one <= 0 || (!o->asked && a->many <= 0 && a->would_s < a->plan_s)) return false;
  if (o->read_s > 0 && s->account->total + READ_TOKENS * a->one < o->read_s) return false;
  return o->tries > 0 ? s->account->balance > -o->tries * a->one : s->account->balance >= cost;
}

static void add_to(guess_account *a, double s) {
  a->balance = fmin(a->balance + s, MOST_WON_S);
  a->total = fmin(a->total + s, MOST_WON_S);
}

// What a step without guesses takes. What held one up may have come to an end while there were only steps with them.
static void note_step(weft_ahead *a, double s) {
  if (a->since < STALE || a->one <= 0 || s > a->one) guess_blend(&a->one, s);
  else a->one = s;
  a->since = 0;
}

static void add_share(weft_ahead *a) {
  for (int i = 0; i < a->n_sources; i++) add_to(a->sources[i].account, SHARE * a->one);
}

// Token `id` was drawn for `pos`: if a guess said so that was not evaluated, it would have won a step.
static void look_back(weft_ahead *a, int pos, int32_t id) {
  if (a->drawn < a->n_would && a->would_pos + (int)a->drawn == pos && a->would[a->drawn] == id) {
    a->would_s += a->one;
    a->drawn++;
  } else {
    a->n_would = a->drawn = 0;
  }
}

// What the text would have said.
static void note_guess(weft_ahead *a, const guess_text *t) {
  if (a->n_would) return;
  a->n_would = a->sources[0].is->make(a->sources[0].own, t, a->one, a->would, ROWS - 1);
  a->drawn = 0;
  a->would_pos = (int)t->n + 1;
}

static int step_once(weft_ahead *a, int32_t id, int pos, const float **logits, weft_error *err) {
  weft_tokens t = {.sequence = a->q, .ids = &id, .n = 1};
  if (!a->q) return weft_decode(a->m, &id, 1, pos, logits, err);
  weft_sequence_cut(a->q, pos);
  if (weft_step(a->m, &t, 1, NULL, NULL, err)) return -1;
  *logits = t.logits;
  return 0;
}

static int many_steps(weft_ahead *a, int pos, size_t n, weft_error *err) {
  if (!a->q) return weft_decode_rows(a->m, a->next, n, pos, 0, keep_row, a, err);
  // the plan of steps, which whoever has sequences has made already
  weft_tokens t = {.sequence = a->q, .ids = a->next, .n = n, .rows = n};
  weft_sequence_cut(a->q, pos);
  if (weft_step(a->m, &t, 1, NULL, NULL, err)) return -1;
  memcpy(a->rows, t.logits, n * (size_t)a->n_vocab * sizeof *a->rows);
  return 0;
}

// The n rows for `pos` and what was guessed behind it are there, and took so much longer.
static void note_rows(weft_ahead *a, int pos, size_t n, const sequence *q, double extra_s) {
  add_to(a->sources[a->by].account, -extra_s);
  a->sources[a->by].guessed += n - 1;
  a->evaluations = q->evaluations;
  a->pos = pos;
  a->n = n;
  a->at = 1;
}

static const sequence *its_sequence(const weft_ahead *a) {
  return a->q ? weft_sequence_of(a->q) : engine_sequence(weft_model_beside(a->m));
}

const float *weft_ahead_known(weft_ahead *a, int pos, int32_t id) {
  const sequence *q = its_sequence(a);
  if (a->at >= a->n || a->pos + (int)a->at != pos || a->next[a->at] != id || a->evaluations != q->evaluations ||
      q->n <= pos) {
    a->n = 0;
    return NULL;
  }
  add_to(a->sources[a->by].account, a->one);
  a->sources[a->by].taken++;
  return a->rows + a->at++ * (size_t)a->n_vocab;
}

// The source to ask: the last one whose guesses pay, but one that hardly errs before any other; -1: none.
static int choose_source(const weft_ahead *a, const guess_text *t, bool *text_offers) {
  int best = -1;
  bool sure = false;
  for (int i = 0; i < a->n_sources; i++) {
    guess_offer o = {0};
    bool offers = a->sources[i].is->offer(a->sources[i].own, t, &o);
    if (!i) *text_offers = offers;
    if (!offers || sure || !pays(a, &a->sources[i], &o)) continue;
    best = i;
    sure = o.sure;
  }
  return best;
}

// How many tokens, `id` among them, are to be evaluated: they are in `next` then.
static size_t looks_ahead(weft_ahead *a, const int32_t *past, int pos, int32_t id) {
  guess_text t = {past, (size_t)pos, id};
  bool text_offers = false;
  if (a->how == WEFT_GUESS_NEVER || pos < 0) return 1;
  if (a->since >= STALE && a->how != WEFT_GUESS_ALWAYS) return 1;
  a->next[0] = id;
  int room = weft_model_context(a->m) - pos - 1, by = room >= ROWS - 1 ? choose_source(a, &t, &text_offers) : -1;
  look_back(a, pos, id);
  if (by < 0 && text_offers) note_guess(a, &t);
  if (by < 0) return 1;
  const struct source *s = &a->sources[by];
  a->by = by;
  size_t n = 1 + s->is->make(s->own, &t, a->how == WEFT_GUESS_ALWAYS ? INFINITY : a->one, a->next + 1, ROWS - 1);
  return n == 1 || !a->q || (weft_sequence_cut(a->q, pos), !weft_sequence_reserve(a->q, n, NULL)) ? n : 1;
}

size_t weft_ahead_guess(weft_ahead *a, const int32_t *past, int pos, int32_t id, double value_s, double extra_s,
                        const int32_t **ids) {
  a->one = value_s;
  a->many = value_s + extra_s;
  a->since = 0;
  size_t n = looks_ahead(a, past, pos, id);
  if (n == 1) add_share(a);
  a->next[0] = id;
  *ids = a->next;
  return n;
}

static void make_rows(weft_ahead *a) {
  if (!a->rows) a->rows = xmalloc(ROWS * (size_t)a->n_vocab * sizeof *a->rows);
}

void weft_ahead_evaluated(weft_ahead *a, int pos, size_t n, const float *rows, double extra_s) {
  make_rows(a);
  memcpy(a->rows, rows, n * (size_t)a->n_vocab * sizeof *a->rows);
  note_rows(a, pos, n, its_sequence(a), extra_s);
}

int weft_ahead_decode(weft_ahead *a, const int32_t *past, int pos, int32_t id, const float **logits, weft_error *err) {
  if ((*logits = weft_ahead_known(a, pos, id))) return 0;
  size_t n = looks_ahead(a, past, pos, id);
  double compiled = guess_compiled_s(a->m), began = now_s();
  if (n == 1) {
    if (step_once(a, id, pos, logits, err)) return -1;
    note_step(a, now_s() - began - (guess_compiled_s(a->m) - compiled));
    add_share(a);
    return 0;
  }
  make_rows(a);
  if (many_steps(a, pos, n, err)) return -1;
  // of the first one a plan may have to be made: that counts as far as guesses can win it back soon
  double whole = now_s() - began, most = FIRST * a->one;
  note_rows(a, pos, n, its_sequence(a), a->many > 0 || whole < most ? whole - a->one : most);
  guess_blend(&a->many, whole - (guess_compiled_s(a->m) - compiled));
  a->since++;
  *logits = a->rows;
  return 0;
}
