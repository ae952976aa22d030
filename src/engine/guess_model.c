// Guesses from a second, smaller model with the same vocabulary: the token that it holds for the likeliest, and what
// follows that. See guess.h, and include/weft.h for weft_draft.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "engine/guess.h"

enum {
  TRIES = 16 /* tokens whose time guesses may lose before the first success */,
  LITTLE = 16 /* tokens that are read as part of a guess */,
  PIECE = 64 /* that are read in a row, at least */,
  MOST_PIECE = 1024
};

struct weft_draft {
  weft_model *m;
  weft_draft_options o;
  int32_t n_vocab;                      // ids that both models have
  guess_account account;
  double step_s, read_s;                // seconds of a token, lately: in a guess, in a text that is read; 0: unknown
  double all_s;                         // of everything that it has evaluated
  bool rests;
};

struct own {
  weft_draft *d;
  weft_sequence *q;                     // NULL: not begun
  VEC(int32_t) held;                    // the tokens that it holds
  bool over;                            // it cannot go on: no memory, or tokens that it does not have
};

static void blend(double *mean, double value) { *mean = *mean > 0 ? 0.8 * *mean + 0.2 * value : value; }

// ---- the draft model ------------------------------------------------------------------------------------------------

static int refuse(weft_error *err, const char *fmt, ...) PRINTF_LIKE(2, 3);
static int refuse(weft_error *err, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (err) vsnprintf(err->text, sizeof err->text, fmt, ap);
  va_end(ap);
  return -1;
}

static const char *path_of(const weft_model *m) { return weft_file_path(weft_model_file(m)); }

// The first id whose text is another one.
static int same_vocabulary(const weft_model *m, const weft_model *draft, int32_t n, weft_error *err) {
  const weft_vocab *x = weft_model_vocab(m), *y = weft_model_vocab(draft);
  int status = 0;
  for (int32_t id = 0; id < n && !status; id++) {
    size_t n_x, n_y, u, v;
    char *of_x = weft_piece(x, id, true, &n_x), *of_y = weft_piece(y, id, true, &n_y);
    if (n_x != n_y || memcmp(of_x, of_y, n_x)) {
      char *shown_x = weft_utf8(of_x, n_x, &u), *shown_y = weft_utf8(of_y, n_y, &v);
      status = refuse(err, "%s: its vocabulary is not that of %s: token %d is \"%.60s\" there and \"%.60s\" here",
                      path_of(draft), path_of(m), id, shown_x, shown_y);
      weft_free(shown_x);
      weft_free(shown_y);
    }
    weft_free(of_x);
    weft_free(of_y);
  }
  return status;
}

// Kernels of single tokens, of a few and of prompts are made before anybody waits for a guess.
static int warm_up(weft_model *m, weft_error *err) {
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

int weft_draft_new(const weft_model *m, weft_model *draft, const weft_draft_options *options, weft_draft **out,
                   weft_error *err) {
  weft_draft_options o = options ? *options : (weft_draft_options){0};
  int32_t n = weft_model_vocab_size(m), n_draft = weft_model_vocab_size(draft);
  if (weft_model_only_embeds(m) || weft_model_only_embeds(draft))
    return refuse(err, "%s: it makes vectors and no tokens, so that nothing can be guessed",
                  path_of(weft_model_only_embeds(m) ? m : draft));
  if (weft_model_is_recurrent(m) || weft_model_is_recurrent(draft))
    return refuse(err, "%s: it has recurrent layers, which cannot go back to before a wrong guess",
                  path_of(weft_model_is_recurrent(m) ? m : draft));
  if (o.most < 0 || o.least < 0) return refuse(err, "a guess of %d tokens, or of %d", o.most, o.least);
  if (!(o.p_min >= 0 && o.p_min <= 1)) return refuse(err, "p_min is %g; a probability is between 0 and 1", o.p_min);
  if (same_vocabulary(m, draft, n < n_draft ? n : n_draft, err) || warm_up(draft, err)) return -1;
  *out = xcalloc(1, sizeof **out);
  **out = (weft_draft){.m = draft, .o = o, .n_vocab = n < n_draft ? n : n_draft};
  return 0;
}

void weft_draft_free(weft_draft *d) { free(d); }
double weft_draft_seconds(const weft_draft *d) { return d->all_s; }
void weft_draft_rest(weft_draft *d, int rests) { d->rests = rests; }

// ---- a sequence of it -----------------------------------------------------------------------------------------------

void *guess_model_new(weft_draft *d, guess_account **a) {
  struct own *o = xcalloc(1, sizeof *o);
  o->d = d;
  *a = &d->account;
  return o;
}

static void drop(void *own) {
  struct own *o = own;
  weft_sequence_free(o->q);
  vec_free(&o->held);
  free(o);
}

// How much of what it holds the text begins with; the last token is evaluated in any case.
static size_t known(const struct own *o, const guess_text *t) {
  size_t n = 0;
  while (n < o->held.n && n < t->n && o->held.at[n] == t->past[n]) n++;
  return n;
}

static size_t left(const struct own *o, const guess_text *t) { return t->n + 1 - known(o, t); }

static bool offer(void *own, const guess_text *t, guess_offer *out) {
  struct own *o = own;
  size_t n = left(o, t);
  *out = (guess_offer){.asked = true, .tries = TRIES, .read_s = n > LITTLE ? (double)n * o->d->read_s : 0};
  return !o->over && !o->d->rests && t->n + 2 <= (size_t)weft_model_context(o->d->m);
}

// Evaluates n tokens behind those that are held. Returns the logits, or NULL; *s: what it took.
static const float *evaluate(struct own *o, const int32_t *ids, size_t n, bool wanted, double *s) {
  weft_draft *d = o->d;
  weft_tokens part = {.sequence = o->q, .ids = ids, .n = n, .unseen = !wanted};
  double compiled = guess_compiled_s(d->m), began = now_s();
  o->over = weft_step(d->m, &part, 1, NULL, NULL, NULL) != 0;
  *s = now_s() - began - (guess_compiled_s(d->m) - compiled);
  for (size_t i = 0; i < n && !o->over; i++) vec_push(&o->held, ids[i]);
  return part.logits;
}

static void charge(weft_draft *d, double s, bool reads) {
  d->all_s += s;
  if (!reads) d->account.balance -= s;
  d->account.total -= s;
}

// Reads what it does not hold of the text before `id`, as much as takes about as long as a token: whoever waits for
// other answers should not wait for that. false: something is left.
static bool read_on(struct own *o, const guess_text *t, double value_s) {
  weft_draft *d = o->d;
  double s, fit = d->read_s > 0 ? value_s / d->read_s : 0;
  size_t from = o->held.n, n = t->n - from, piece = (size_t)fmin(fmax(fit, PIECE), MOST_PIECE);
  if (n < LITTLE) return true;
  if (piece > n) piece = n;
  evaluate(o, t->past + from, piece, false, &s);
  charge(d, s, true);
  blend(&d->read_s, s / (double)piece);
  return piece == n && !o->over;
}

// The likeliest token that both models have, and how likely it is.
static int32_t likeliest(const float *logits, int32_t n, double *p) {
  enum { FAR = 20 };                    // what lies so far below adds nothing
  int32_t best = 0;
  double sum = 0;
  for (int32_t i = 1; i < n; i++) if (logits[i] > logits[best]) best = i;
  for (int32_t i = 0; i < n; i++) if (logits[i] > logits[best] - FAR) sum += exp((double)(logits[i] - logits[best]));
  *p = sum > 0 ? 1 / sum : 0;
  return best;
}

// Each token is worth what it wins if all before it are right, too; where that is less than it costs, it ends.
static size_t chain(struct own *o, const float *logits, double value_s, int32_t *out, size_t most) {
  weft_draft *d = o->d;
  double all = 1, p, s;
  size_t n = 0;
  while (n < most && logits) {
    int32_t id = likeliest(logits, d->n_vocab, &p);
    all *= p;
    if (p < d->o.p_min || all * value_s < d->step_s) break;
    out[n++] = id;
    if (n == most || weft_is_end(weft_model_vocab(d->m), id)) break;
    logits = evaluate(o, &id, 1, true, &s);
    charge(d, s, false);
    blend(&d->step_s, s);
  }
  return n;
}

static size_t make(void *own, const guess_text *t, double value_s, int32_t *out, size_t most) {
  struct own *o = own;
  weft_draft *d = o->d;
  size_t n = known(o, t), room = (size_t)weft_model_context(d->m) - t->n - 1;
  int32_t rest[LITTLE];
  double s;
  if (d->o.most && most > (size_t)d->o.most) most = (size_t)d->o.most;
  if (most > room) most = room;
  o->over |= !o->q && weft_sequence_new(d->m, &o->q, NULL);
  if (o->over) return 0;
  weft_sequence_cut(o->q, (int)n);
  o->held.n = n;
  if (!read_on(o, t, value_s)) return 0;
  n = t->n - o->held.n;
  memcpy(rest, t->past + o->held.n, n * sizeof *rest);
  rest[n] = t->id;
  const float *logits = evaluate(o, rest, n + 1, true, &s);
  charge(d, s, false);
  n = o->over ? 0 : chain(o, logits, value_s, out, most);
  return n < (size_t)d->o.least ? 0 : n;
}

const guess_source guess_from_model = {offer, make, drop};
