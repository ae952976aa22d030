// Denoising: converts a text of masks to tokens in steps. Part of the public API (include/weft/denoise.h). Each step
// evaluates the whole text, draws a token for each mask, and keeps the tokens about which the model is most confident.
// Schedules and draws follow llama.cpp, in floats; two details follow the models' authors: entropy (lowest first), and
// the selection of masks, where each mask is drawn once.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "weft.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "engine/mersenne.h"
#include "engine/sampler_impl.h"
#include "engine/sized.h"

enum { USUAL_STEPS = 128, FEW_CANDIDATES = 256 };

// A mask, with the token drawn for it.
struct masked { size_t place; int32_t id; float score; };

// Places from one to another whose masks become tokens in n_steps steps; n_masked: masks at its beginning; first: steps
// before it.
typedef struct stretch { size_t from, to, n_masked; int first, n_steps; } stretch;

typedef struct weft_denoiser {
  weft_model *m;
  engine *e;
  weft_denoising o;
  int32_t *ids, *bare;               // bare: masks instead of the prompt; NULL: no guidance
  size_t n, n_prompt;
  int32_t mask, n_vocab;
  bool shifted;                      // a token's logits are in the row before it
  const float *logits;               // n rows
  float *kept, *row;  // logits of the text with its prompt; a row without the prompt; allocated with bare
  mersenne chance, draws, order;     // random numbers: order and probability of masks, tokens, masks by scores
  struct cand *c;                    // candidates, best first if sorted
  float *p;                          // their probabilities
  size_t n_c;
  struct masked *masked;
  size_t n_masked;
  stretch now;
  size_t n_parts;                    // parts begun
  int step;                          // of the current part
  error err;
} denoiser;

void weft_denoising_init(weft_denoising *d, size_t size) {
  const weft_denoising usual = {.size = size,
                                .steps = USUAL_STEPS,
                                .algorithm = WEFT_DENOISE_BY_PROBABILITY,
                                .temp = .8,
                                .top_k = 40,
                                .top_p = .95};
  memset(d, 0, size);
  memcpy(d, &usual, size < sizeof usual ? size : sizeof usual);
}

bool weft_model_denoises(const weft_model *m) { return engine_denoises(weft_model_peek(m)); }

// ---- evaluation -----------------------------------------------------------------------------------------------------

static int evaluate_whole(denoiser *d, const int32_t *ids) {
  engine_part part = {.ids = ids, .n = d->n, .rows = d->n};
  int status = engine_run(d->e, &(engine_batch){.parts = &part, .n = 1}, &d->err);
  d->logits = part.logits;
  return status;
}

static int evaluate(denoiser *d) {
  int status = evaluate_whole(d, d->ids);
  if (status || !d->bare) return status;
  memcpy(d->kept, d->logits, d->n * (size_t)d->n_vocab * sizeof *d->kept);
  memcpy(d->bare, d->ids, d->n * sizeof *d->ids);
  for (size_t i = 0; i < d->n_prompt; i++) d->bare[i] = d->mask;
  return evaluate_whole(d, d->bare);
}

// The logits of a place; NULL if they are not finite.
static const float *logits_at(denoiser *d, size_t place) {
  size_t n = (size_t)d->n_vocab, row = d->shifted && place ? place - 1 : place;
  const float *x = d->logits + row * n;
  if (weft_check_logits(d->m, x, (int)row, &d->err)) return NULL;
  if (!d->bare) return x;
  const float *with = d->kept + row * n;
  if (weft_check_logits(d->m, with, (int)row, &d->err)) return NULL;
  float by = (float)d->o.cfg_scale + 1;
  bool finite = true;
  for (size_t i = 0; i < n; i++) {
    d->row[i] = x[i] + by * (with[i] - x[i]);
    finite &= isfinite(d->row[i]);
  }
  if (finite) return d->row;
  error_set(&d->err, "cfg_scale %g is too large for these logits", d->o.cfg_scale);
  return NULL;
}

// ---- a token --------------------------------------------------------------------------------------------------------

static float float_exp(float x) { return (float)portable_exp((double)x); }

static float best_logit(const denoiser *d) {
  float best = -INFINITY;
  for (size_t i = 0; i < d->n_c; i++) if ((float)d->c[i].logit > best) best = (float)d->c[i].logit;
  return best;
}

// Computes unnormalised probabilities of all candidates at temp; returns their sum.
static double weigh(denoiser *d, float temp) {
  float best = best_logit(d) / temp;
  double sum = 0;
  for (size_t i = 0; i < d->n_c; i++) sum += d->p[i] = float_exp((float)d->c[i].logit / temp - best);
  return sum;
}

// How many of the first `sorted` candidates reach top_p together; 0: more than these.
static size_t reaches(const denoiser *d, size_t sorted, float best, float sum) {
  float so_far = 0;
  for (size_t i = 0; i < sorted; i++) {
    so_far += float_exp((float)d->c[i].logit - best) / sum;
    if (so_far >= (float)d->o.top_p) return i + 1;
  }
  return sorted == d->n_c ? sorted : 0;
}

static void keep_top_p(denoiser *d, size_t sorted) {
  float best = best_logit(d), sum = 0;
  for (size_t i = 0; i < d->n_c; i++) sum += float_exp((float)d->c[i].logit - best);
  if (!sorted) {
    sorted = d->n_c < FEW_CANDIDATES ? d->n_c : FEW_CANDIDATES;
    best_first(d->c, d->n_c, sorted);
  }
  size_t n = reaches(d, sorted, best, sum);
  if (!n) {
    best_first(d->c, d->n_c, d->n_c);
    n = reaches(d, d->n_c, best, sum);
  }
  d->n_c = n;
}

// The candidates that top_k and top_p leave.
static void candidates_of_row(denoiser *d, const float *x) {
  size_t sorted = 0;
  d->n_c = (size_t)d->n_vocab;
  for (size_t i = 0; i < d->n_c; i++) d->c[i] = (struct cand){x[i], (int32_t)i};
  if (d->o.gumbel_noise && d->o.temp > 0) return;
  if (d->o.top_k > 0) {
    sorted = d->n_c < (size_t)d->o.top_k ? d->n_c : (size_t)d->o.top_k;
    best_first(d->c, d->n_c, sorted);
    d->n_c = sorted;
  }
  if (d->o.top_p < 1) keep_top_p(d, sorted);
}

static size_t likeliest_left(const denoiser *d) {
  size_t best = 0;
  for (size_t i = 1; i < d->n_c; i++) if (cand_better(d->c[i], d->c[best])) best = i;
  return best;
}

// The maximum of the logits plus Gumbel noise times the temperature.
static size_t draw_by_noise(denoiser *d) {
  size_t best = 0;
  double most = -INFINITY;
  for (size_t i = 0; i < d->n_c; i++) {
    double unit = mersenne_double(&d->draws);
    double x = d->c[i].logit - d->o.temp * portable_log(-portable_log(unit > 1e-20 ? unit : 1e-20));
    if (x > most) { most = x; best = i; }
  }
  return best;
}

static size_t draw_by_weight(denoiser *d, double sum) {
  double target = sum * mersenne_double(&d->draws), so_far = 0;
  for (size_t i = 0; i < d->n_c; i++) if ((so_far += d->p[i]) >= target) return i;
  return d->n_c - 1;
}

// Draws a token from logits x, and the probabilities for its score. Returns its index among the candidates.
static size_t draw_of_row(denoiser *d, const float *x) {
  bool noisy = d->o.gumbel_noise && d->o.temp > 0;
  candidates_of_row(d, x);
  double sum = weigh(d, d->o.temp > 0 && !noisy ? (float)d->o.temp : 1);
  size_t at = noisy ? draw_by_noise(d) : d->o.temp > 0 ? draw_by_weight(d, sum) : likeliest_left(d);
  for (size_t i = 0; i < d->n_c; i++) d->p[i] = (float)(d->p[i] / sum);
  return at;
}

// The difference between the two largest probabilities.
static float margin(const denoiser *d) {
  float first = 0, second = 0;
  for (size_t i = 0; i < d->n_c; i++)
    if (d->p[i] > first) { second = first; first = d->p[i]; }
    else if (d->p[i] > second) second = d->p[i];
  return first - second;
}

// The score: higher means that the model is more confident of the drawn token.
static float sureness_of(denoiser *d, size_t drawn) {
  float sum = 0;
  switch ((enum weft_denoise_by)d->o.algorithm) {
  case WEFT_DENOISE_BY_ENTROPY:
    for (size_t i = 0; i < d->n_c; i++) sum += d->p[i] * (float)portable_log((double)(d->p[i] + 1e-10f));
    return sum;
  case WEFT_DENOISE_BY_MARGIN: return margin(d);
  case WEFT_DENOISE_BY_RANDOM_ORDER: return mersenne_float(&d->chance);
  case WEFT_DENOISE_BY_CHANCE:
  case WEFT_DENOISE_BY_PROBABILITY: break;
  }
  return d->p[drawn];
}

// ---- a step ---------------------------------------------------------------------------------------------------------

static void find_masked(denoiser *d, size_t from, size_t to) {
  d->n_masked = 0;
  for (size_t i = from; i < to; i++) if (d->ids[i] == d->mask) d->masked[d->n_masked++].place = i;
}

// The row of logits is computed again if another place has used the buffer since.
static int become_token(denoiser *d, const struct masked *of) {
  d->ids[of->place] = of->id;
  if (!d->o.token) return 0;
  const float *x = logits_at(d, of->place);
  if (!x) return -1;
  d->o.token(d->o.ctx, of->place, of->id, x);
  return 0;
}

static int surest_first(const void *a, const void *b) {
  const struct masked *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  return x->place < y->place ? -1 : x->place > y->place;
}

// Draws the next mask by score at a temperature; masks already taken have -INFINITY.
static size_t draw_masked(denoiser *d) {
  float best = -INFINITY, temp = (float)d->o.algorithm_temp;
  double sum = 0, so_far = 0;
  size_t last = 0;
  for (size_t i = 0; i < d->n_masked; i++) if (d->masked[i].score > best) best = d->masked[i].score;
  for (size_t i = 0; i < d->n_masked; i++) sum += float_exp((d->masked[i].score - best) / temp);
  double target = sum * mersenne_double(&d->order);
  for (size_t i = 0; i < d->n_masked; i++) {
    if (d->masked[i].score == -INFINITY) continue;
    so_far += float_exp((d->masked[i].score - best) / temp);
    last = i;
    if (so_far >= target) break;
  }
  return last;
}

// Replaces n masks with the tokens drawn for them.
static int take_masks(denoiser *d, size_t n) {
  if (d->o.algorithm_temp <= 0) qsort(d->masked, d->n_masked, sizeof *d->masked, surest_first);
  for (size_t i = 0; i < n && i < d->n_masked; i++) {
    size_t at = d->o.algorithm_temp > 0 ? draw_masked(d) : i;
    if (become_token(d, &d->masked[at])) return -1;
    d->masked[at].score = -INFINITY;
  }
  return 0;
}

static int draw_for(denoiser *d, struct masked *of, bool score) {
  const float *x = logits_at(d, of->place);
  if (!x) return -1;
  size_t at = draw_of_row(d, x);
  of->id = d->c[at].id;
  if (score) of->score = sureness_of(d, at);
  return 0;
}

// Replaces each mask with equal probability: n of n_masked.
static int take_by_chance(denoiser *d, size_t n) {
  float share = (float)n / (float)d->n_masked;
  for (size_t i = 0; i < d->n_masked; i++)
    if (mersenne_float(&d->chance) < share && (draw_for(d, &d->masked[i], false) || become_token(d, &d->masked[i])))
      return -1;
  return 0;
}

// The number of masks to replace in a step of the linear schedule from time 1 to eps.
static size_t share_of_time(int step, int n_steps, size_t left, float eps) {
  float t = 1.0f - (float)step / (float)n_steps * (1.0f - eps),
        s = 1.0f - (float)(step + 1) / (float)n_steps * (1.0f - eps);
  return step < n_steps - 1 ? (size_t)((float)left * (1.0f - s / t)) : left;
}

// 0: done; 1: cancelled; -1: error.
static int one_step(denoiser *d, const stretch *of, int step) {
  if (d->o.step && !d->o.step(d->o.ctx, of->first + step, d->o.steps, d->ids)) return 1;
  find_masked(d, of->from, of->to);
  if (!d->n_masked) return 0;
  size_t steps = (size_t)of->n_steps, more = (size_t)step < of->n_masked % steps,
         n = d->o.block_length ? of->n_masked / steps + more
                               : share_of_time(step, of->n_steps, d->n_masked, (float)d->o.eps);
  int status = evaluate(d);
  if (status) return status;
  if (d->o.algorithm == WEFT_DENOISE_BY_CHANCE) return take_by_chance(d, n);
  for (size_t i = 0; i < d->n_masked; i++) if (draw_for(d, &d->masked[i], true)) return -1;
  return take_masks(d, n);
}

// Begins the next part. false: the last one is done.
static bool next_part(denoiser *d) {
  size_t length = (size_t)d->o.block_length, n = length ? d->n / length : 1, from = d->n_prompt + d->n_parts * length;
  int each = d->o.steps / (int)n;
  if (d->n_parts == n || (length && from >= d->n)) return false;
  d->now = (stretch){.to = d->n, .n_steps = each};
  if (length)
    d->now = (stretch){.from = from,
                    .to = from + length < d->n ? from + length : d->n,
                    .first = (int)d->n_parts * each,
                    .n_steps = each};
  d->n_parts++;
  d->step = 0;
  find_masked(d, d->now.from, d->now.to);
  d->now.n_masked = d->n_masked;
  return true;
}

// ---- checks ---------------------------------------------------------------------------------------------------------

// As floats, smaller temperatures would be 0, or logits divided by them infinite. Scores of masks are small numbers.
static bool is_temperature(double x, double least) { return x == 0 || (x >= least && x <= 1e6); }

static int check_numbers(const weft_denoising *o, weft_error *err) {
  enum { MOST_STEPS = 1 << 20 };
  if (o->steps < 1 || o->steps > MOST_STEPS) FAIL(err, "steps %d: it must be 1 to %d", o->steps, MOST_STEPS);
  if (!(o->eps > 0 && o->eps < 1)) FAIL(err, "eps %g: it must be above 0 and below 1", o->eps);
  if (o->algorithm < WEFT_DENOISE_BY_CHANCE || o->algorithm > WEFT_DENOISE_BY_PROBABILITY)
    FAIL(err, "algorithm %d: it must be 0 to %d", o->algorithm, WEFT_DENOISE_BY_PROBABILITY);
  if (!is_temperature(o->temp, 1e-6)) FAIL(err, "temp %g: it must be 0, or 1e-6 to 1e6", o->temp);
  if (!(o->top_p >= 0 && o->top_p <= 1)) FAIL(err, "top_p %g: it must be 0 to 1", o->top_p);
  if (!is_temperature(o->algorithm_temp, 1e-30))
    FAIL(err, "algorithm_temp %g: it must be 0, or 1e-30 to 1e6", o->algorithm_temp);
  if (!(o->cfg_scale >= 0 && o->cfg_scale <= 1e6)) FAIL(err, "cfg_scale %g: it must be 0 to 1e6", o->cfg_scale);
  return 0;
}

static int check_blocks(const weft_denoising *o, size_t n, weft_error *err) {
  size_t length = (size_t)o->block_length;
  if (o->block_length < 0) FAIL(err, "block_length %d: it must be 0 or more", o->block_length);
  if (!length) return 0;
  if (n % length) FAIL(err, "block_length %zu does not divide the %zu tokens of the text", length, n);
  if ((size_t)o->steps % (n / length))
    FAIL(err, "%d steps for %zu blocks (%zu tokens of the text, block_length %zu): the number of blocks must divide it",
         o->steps, n / length, n, length);
  return 0;
}

// Reads from the file the mask token, and which row has a token's logits.
static int see_file(denoiser *d, weft_error *err) {
  const gguf *g = engine_gguf(d->e);
  d->mask = tokenizer_role(engine_tokenizer(d->e), ROLE_mask);
  if (d->mask < 0)
    FAIL(err, "%s: key 'tokenizer.ggml.mask_token_id' is missing, and denoising begins with masks", gguf_path(g));
  error e = {0};
  return gguf_bool_opt(g, "diffusion.shift_logits", true, &d->shifted, &e) ? fail(err, &e) : 0;
}

static int check_text(const denoiser *d, weft_error *err) {
  int n_ctx = engine_n_ctx(d->e);
  if (!d->n_prompt || d->n_prompt >= d->n)
    FAIL(err, "a prompt of %zu tokens, and a text of %zu with it: each must have at least one", d->n_prompt, d->n);
  if (d->n > (size_t)n_ctx) FAIL(err, "a text of %zu tokens does not fit the context of %d", d->n, n_ctx);
  return weft_check_ids(d->ids, d->n_prompt, d->n_vocab, err);
}

static int open_denoiser(denoiser *d, const weft_denoising *how, weft_error *err) {
  if (TAKE_OPTIONS(&d->o, weft_denoising, ctx, how, err)) return -1;
  if (!d->o.steps) d->o.steps = USUAL_STEPS;
  if (d->o.eps == 0) d->o.eps = 0.001;
  if (!engine_denoises(d->e))
    FAIL(err, "%s: this model goes on token by token; it does not denoise", gguf_path(engine_gguf(d->e)));
  return see_file(d, err) || check_text(d, err) || check_numbers(&d->o, err) || check_blocks(&d->o, d->n, err) ? -1 : 0;
}

int weft_denoiser_new(weft_model *m, weft_text *text, const weft_denoising *how, weft_denoiser **out, weft_error *err) {
  denoiser *d = xcalloc(1, sizeof *d);
  *d = (denoiser){.m = m, .e = weft_model_engine(m), .ids = text->ids, .n = text->n, .n_prompt = text->n_prompt};
  d->n_vocab = engine_n_vocab(d->e);
  d->o = weft_denoising_default();
  *out = NULL;
  if (open_denoiser(d, how, err)) { free(d); return -1; }
  size_t n_vocab = (size_t)d->n_vocab;
  for (size_t i = d->n_prompt; i < d->n; i++) d->ids[i] = d->mask;
  mersenne_seed(&d->chance, d->o.seed);
  d->draws = d->order = d->chance;
  d->c = xcalloc(n_vocab, sizeof *d->c);
  d->p = xcalloc(n_vocab, sizeof *d->p);
  d->masked = xcalloc(d->n, sizeof *d->masked);
  if (d->o.cfg_scale > 0) {
    d->bare = xcalloc(d->n, sizeof *d->bare);
    d->kept = xcalloc(d->n * n_vocab, sizeof *d->kept);
    d->row = xcalloc(n_vocab, sizeof *d->row);
  }
  next_part(d);
  *out = d;
  return 0;
}

int weft_denoiser_step(weft_denoiser *d, weft_error *err) {
  int status = one_step(d, &d->now, d->step++);
  if (status < 0) return fail(err, &d->err);
  if (status > 0) return WEFT_DENOISE_ENDED;
  return d->step < d->now.n_steps || next_part(d) ? WEFT_DENOISE_GOES_ON : WEFT_DENOISE_DONE;
}

void weft_denoiser_free(weft_denoiser *d) {
  if (!d) return;
  free(d->c); free(d->p); free(d->masked); free(d->bare); free(d->kept); free(d->row);
  free(d);
}

int weft_denoise(weft_model *m, int32_t *ids, size_t n, size_t n_prompt, const weft_denoising *how, weft_error *err) {
  weft_denoiser *d;
  int status = WEFT_DENOISE_GOES_ON;
  if (weft_denoiser_new(m, &(weft_text){ids, n, n_prompt}, how, &d, err)) return -1;
  while (status == WEFT_DENOISE_GOES_ON) status = weft_denoiser_step(d, err);
  weft_denoiser_free(d);
  return status == WEFT_DENOISE_ENDED ? 1 : status;
}
