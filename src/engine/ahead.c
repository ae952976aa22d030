// Tokens evaluated ahead: what follows is guessed from what the text said after the same words before, and a guess
// costs little, since many tokens share one reading of the weights. See include/weft.h. Whoever draws tokens takes no
// notice: a guess that is not drawn is dropped.
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "base/map.h"
#include "engine/caches.h"
#include "engine/engine.h"
#include "weft.h"

enum {
  GRAM = 3 /* tokens that have to agree */,
  ROWS = 8,
  LOOKS = 16 /* earlier places to look at */,
  LONG = 8 /* agreeing tokens that hardly lie */,
  MOST = 32,
  FIRST = 3 /* tokens whose time the first guess costs at most */
};

struct weft_ahead {
  weft_model *m;
  weft_sequence *q;                     // NULL: weft_decode's
  int32_t n_vocab;
  enum weft_guessing how;
  // the text; of the token where a gram ends: 1 + where it ended before, 0: nowhere
  VEC(int32_t) ids, before;
  map last;                             // by the hash of a gram: 1 + where it ended last
  // logits behind ids[0 .. n - 1], evaluated from position `pos` on; the next one is `at`
  float *rows;
  int32_t next[ROWS];
  size_t n, at;
  int pos;
  // of the model when that was done: another one may have changed what the cache holds
  uint64_t evaluations;
  double one, many;                     // seconds of a step, lately; 0: unknown
  double balance;                       // seconds won so far, and a hundredth of all to spend
  // until guesses are evaluated, which takes a plan of `plan_s` seconds to begin with: a guess that was not, how much
  // of it was drawn then, and the seconds that all these would have won
  int32_t would[ROWS];
  size_t n_would, drawn;
  int would_pos;
  double plan_s, would_s;
  weft_ahead_counts counts;
};

// Seconds that went into plans: not what a step costs
static double compiled_s(const weft_ahead *a) {
  weft_stats s;
  weft_model_stats(a->m, &s);
  return (s.compile_ms + s.schedule_ms) / 1000;
}

weft_ahead *weft_ahead_of_sequence(weft_model *m, weft_sequence *q, enum weft_guessing how) {
  weft_ahead *a = xcalloc(1, sizeof *a);
  a->m = m;
  a->q = q;
  a->n_vocab = weft_model_vocab_size(m);
  a->plan_s = q ? 0 : compiled_s(a);     // the plan of steps is there
  a->how = weft_model_is_recurrent(m) || weft_model_only_embeds(m) ? WEFT_GUESS_NEVER : how;
  return a;
}

weft_ahead *weft_ahead_new(weft_model *m, enum weft_guessing how) { return weft_ahead_of_sequence(m, NULL, how); }

void weft_ahead_free(weft_ahead *a) {
  if (!a) return;
  vec_free(&a->ids); vec_free(&a->before);
  map_free(&a->last);
  free(a->rows);
  free(a);
}

weft_ahead_counts weft_ahead_count(const weft_ahead *a) { return a->counts; }

// ---- guessing -------------------------------------------------------------------------------------------------------

static void learn(weft_ahead *a, int32_t id) {
  vec_push(&a->ids, id);
  vec_push(&a->before, 0);
  size_t n = a->ids.n;
  if (n < GRAM) return;
  uint64_t gram = hash_bytes(a->ids.at + n - GRAM, GRAM * sizeof id, 1) | 1;
  void *at;
  if (map_get(&a->last, gram, &at)) a->before.at[n - 1] = (int32_t)(intptr_t)at;
  map_set(&a->last, gram, (void *)(intptr_t)n);
}

// The text is ids[0 .. n - 1]: mostly what was learned, and a little more.
static void follow(weft_ahead *a, const int32_t *ids, size_t n) {
  if (n < a->ids.n || (a->ids.n && memcmp(ids, a->ids.at, a->ids.n * sizeof *ids))) {
    a->ids.n = a->before.n = 0;
    map_free(&a->last);
    a->last = (map){0};
  }
  while (a->ids.n < n) learn(a, ids[a->ids.n]);
}

// How many tokens before and at these two places agree.
static size_t agree(const weft_ahead *a, size_t x, size_t y) {
  size_t n = 0;
  while (n < MOST && n <= x && a->ids.at[x - n] == a->ids.at[y - n]) n++;
  return n;
}

// What came behind the place that agrees longest with the end of the text. Returns how many tokens agree; 0: there is
// no such place.
static size_t guess(const weft_ahead *a, int32_t *out, size_t n_out) {
  size_t end = a->ids.n - 1, best = 0, from = 0, at = (size_t)a->before.at[end];
  for (int i = 0; at && i < LOOKS; i++, at = (size_t)a->before.at[at - 1]) {
    size_t n = agree(a, at - 1, end);
    if (n > best) { best = n; from = at; }
  }
  if (best < GRAM) return 0;
  for (size_t i = 0; i < n_out; i++) out[i] = from + i <= end ? a->ids.at[from + i] : out[from + i - end - 1];
  return best;
}

// ---- evaluating -----------------------------------------------------------------------------------------------------

static bool keep_row(void *ctx, size_t i, const float *logits) {
  weft_ahead *a = ctx;
  memcpy(a->rows + i * (size_t)a->n_vocab, logits, (size_t)a->n_vocab * sizeof *logits);
  return true;
}

static void blend(double *mean, double value) { *mean = *mean > 0 ? 0.8 * *mean + 0.2 * value : value; }

// Whether a guess is worth its try: it may cost what guesses have won, and a hundredth of the time; one that hardly
// lies may owe the time of a token. The first one waits until guesses would have won what its plan costs, of which the
// others that were made are the measure.
static bool pays(const weft_ahead *a, size_t agrees) {
  double cost = a->many > a->one ? a->many - a->one : a->one;
  if (a->how == WEFT_GUESS_ALWAYS) return true;
  if (a->one <= 0 || (a->many <= 0 && a->would_s < a->plan_s)) return false;
  return agrees >= LONG ? a->balance > -a->one : a->balance >= cost;
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

static void note_guess(weft_ahead *a, int pos) {
  if (a->n_would) return;
  memcpy(a->would, a->next + 1, (ROWS - 1) * sizeof *a->would);
  a->n_would = ROWS - 1;
  a->drawn = 0;
  a->would_pos = pos + 1;
}

static int one_step(weft_ahead *a, int32_t id, int pos, const float **logits, weft_error *err) {
  weft_tokens t = {.sequence = a->q, .ids = &id, .n = 1};
  if (!a->q) return weft_decode(a->m, &id, 1, pos, logits, err);
  weft_sequence_cut(a->q, pos);
  if (weft_step(a->m, &t, 1, NULL, NULL, err)) return -1;
  *logits = t.logits;
  return 0;
}

static int many_steps(weft_ahead *a, int pos, weft_error *err) {
  if (!a->q) return weft_decode_rows(a->m, a->next, ROWS, pos, 0, keep_row, a, err);
  // the plan of steps, which whoever has sequences has made already
  weft_tokens t = {.sequence = a->q, .ids = a->next, .n = ROWS, .rows = ROWS};
  weft_sequence_cut(a->q, pos);
  if (weft_step(a->m, &t, 1, NULL, NULL, err)) return -1;
  memcpy(a->rows, t.logits, ROWS * (size_t)a->n_vocab * sizeof *a->rows);
  return 0;
}

// The rows for `pos` and what was guessed behind it are there.
static void keep_rows(weft_ahead *a, int pos, const sequence *q) {
  a->counts.guessed += ROWS - 1;
  a->evaluations = q->evaluations;
  a->pos = pos;
  a->n = ROWS;
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
  a->balance += a->one;
  a->counts.taken++;
  return a->rows + a->at++ * (size_t)a->n_vocab;
}

// Whether what is guessed behind `id` is to be evaluated, too: it is in `next` then.
static bool looks_ahead(weft_ahead *a, const int32_t *past, int pos, int32_t id) {
  if (a->how == WEFT_GUESS_NEVER || pos < 0) return false;
  follow(a, past, (size_t)pos);
  learn(a, id);
  a->next[0] = id;
  size_t agrees = weft_model_context(a->m) - pos >= ROWS ? guess(a, a->next + 1, ROWS - 1) : 0;
  look_back(a, pos, id);
  if (!agrees) return false;
  if (!pays(a, agrees)) { note_guess(a, pos); return false; }
  return !a->q || (weft_sequence_cut(a->q, pos), !weft_sequence_reserve(a->q, ROWS, NULL));
}

size_t weft_ahead_guess(weft_ahead *a, const int32_t *past, int pos, int32_t id, double value_s, double extra_s,
                        const int32_t **ids) {
  a->one = value_s;
  a->many = value_s + extra_s;
  bool ahead = looks_ahead(a, past, pos, id);
  if (!ahead) a->balance += 0.01 * value_s;
  a->next[0] = id;
  *ids = a->next;
  return ahead ? ROWS : 1;
}

void weft_ahead_evaluated(weft_ahead *a, int pos, const float *rows, double extra_s) {
  if (!a->rows) a->rows = xmalloc(ROWS * (size_t)a->n_vocab * sizeof *a->rows);
  memcpy(a->rows, rows, ROWS * (size_t)a->n_vocab * sizeof *a->rows);
  a->balance -= extra_s;
  keep_rows(a, pos, its_sequence(a));
}

int weft_ahead_decode(weft_ahead *a, const int32_t *past, int pos, int32_t id, const float **logits, weft_error *err) {
  if ((*logits = weft_ahead_known(a, pos, id))) return 0;
  bool ahead = looks_ahead(a, past, pos, id);
  double compiled = compiled_s(a), began = now_s();
  if (!ahead) {
    if (one_step(a, id, pos, logits, err)) return -1;
    blend(&a->one, now_s() - began - (compiled_s(a) - compiled));
    a->balance += 0.01 * a->one;
    return 0;
  }
  if (!a->rows) a->rows = xmalloc(ROWS * (size_t)a->n_vocab * sizeof *a->rows);
  if (many_steps(a, pos, err)) return -1;
  // of the first one a plan may have to be made: that counts as far as guesses can win it back soon
  double whole = now_s() - began, most = FIRST * a->one;
  a->balance -= a->many > 0 || whole < most ? whole - a->one : most;
  blend(&a->many, whole - (compiled_s(a) - compiled));
  keep_rows(a, pos, its_sequence(a));
  *logits = a->rows;
  return 0;
}
