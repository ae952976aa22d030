// The stages of sampling: see weft.h for the parameters, sampler.c for the table, sampler_impl.h for the two forms of
// candidates. Every stage leaves at least one candidate.
#include "engine/sampler_impl.h"
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static double penalised(const sampler *s, double logit, int32_t count) {
  logit = logit <= 0 ? logit * s->p.repeat_penalty : logit / s->p.repeat_penalty;
  return logit - count * s->p.frequency_penalty - s->p.presence_penalty;
}

void stage_penalties(sampler *s) {
  size_t n = sampler_window(s, s->p.repeat_last_n);
  for (size_t i = s->past.n - n; i < s->past.n; i++) {
    int32_t id = s->past.at[i].id;
    sampler_note(s, id, s->notes[id] + 1);
  }
  sampler_apply_notes(s, penalised);
}

_Static_assert(sizeof(weft_candidate) == sizeof(struct cand) &&
                 offsetof(weft_candidate, id) == offsetof(struct cand, id),
               "candidates are handed to the program");

static bool own_leaves(sampler *s, size_t n, size_t *left) {
  enum { ROOM = sizeof s->own_fault };
  *left = 0;
  for (size_t i = 0; i < n; i++) {
    struct cand c = s->c[i];
    if (c.id < 0 || c.id >= s->n_vocab) {
      snprintf(s->own_fault, ROOM, "the program's own sampler left token %d, and there are %d", c.id, s->n_vocab);
      return false;
    }
    if (c.logit > FLT_MAX) c.logit = FLT_MAX;
    if (c.logit >= -DBL_MAX) s->c[(*left)++] = c;      // neither dropped nor NaN
  }
  return *left > 0;
}

void stage_own(sampler *s) {
  enum { ROOM = sizeof s->own_fault };
  if (s->dense) sampler_list(s, -INFINITY);
  if (!s->n) return;
  size_t had = s->n, n = s->p.own(s->p.own_ctx, (weft_candidate *)s->c, had);
  if (n > had) {
    snprintf(s->own_fault, ROOM, "the program's own sampler says that %zu of %zu candidates are left", n, had);
    s->n = 0;
  } else if (!own_leaves(s, n, &s->n)) {
    if (!s->own_fault[0]) snprintf(s->own_fault, ROOM, "the program's own sampler left none of %zu candidates", had);
    s->n = 0;
  }
  s->n_sorted = 0;
}

static double finite_logit(const sampler *s, size_t i) {
  double x = s->dense ? s->x[i] : s->c[i].logit;
  return s->dense && x > FLT_MAX ? FLT_MAX : x;
}

// Tang et al., "Top-n-sigma: Not All Logits Are You Need", 2024: most logits are noise around a mean; only those far
// above it matter.
void stage_top_n_sigma(sampler *s) {
  double sum = 0, squares = 0, n = 0, max = sampler_max(s);
  size_t count = s->dense ? (size_t)s->n_vocab : s->n;
  for (size_t i = 0; i < count; i++) {
    double x = finite_logit(s, i);
    if (x >= -DBL_MAX) { sum += x; n++; }          // neither banned nor NaN
  }
  for (size_t i = 0; i < count; i++) {
    double x = finite_logit(s, i);
    if (x >= -DBL_MAX) squares += (x - sum / n) * (x - sum / n);
  }
  sampler_keep_above(s, n ? max - s->p.top_n_sigma * sqrt(squares / n) : -INFINITY);
}

void stage_top_k(sampler *s) {
  if (s->dense && s->p.top_k > MANY) sampler_list(s, -INFINITY);
  sampler_order(s, (size_t)s->p.top_k);
  if (s->n > (size_t)s->p.top_k) s->n = (size_t)s->p.top_k;
  if (s->n_sorted > s->n) s->n_sorted = s->n;
}

// Locally typical sampling: keeps tokens whose surprise is nearest to the entropy (Meister et al., 2022).
void stage_typical(sampler *s) {
  if (s->dense) sampler_list(s, -INFINITY);
  if (s->n < 2) return;
  double max = sampler_max(s), sum = sampler_weigh(s), log_sum = portable_log(sum), entropy = 0;
  for (size_t i = 0; i < s->n; i++)
    if (s->weights[i] > 0) entropy += s->weights[i] / sum * (log_sum + max - s->c[i].logit);
  struct cand *by = sampler_spare(s);
  for (size_t i = 0; i < s->n; i++) by[i] = (struct cand){-fabs(log_sum + max - s->c[i].logit - entropy), s->c[i].id};
  sampler_keep_until(s, by, s->p.typical_p * sum, true);
}

void stage_top_p(sampler *s) {
  if (s->dense) sampler_list(s, -INFINITY);
  if (s->n < 2) return;
  double total = sampler_weigh(s);
  sampler_keep_until(s, s->c, s->p.top_p * total, false);
  sampler_order(s, s->n);
}

void stage_min_p(sampler *s) { sampler_keep_above(s, sampler_max(s) + portable_log(s->p.min_p)); }

// Exclude top choices: of all tokens above the threshold, only the least probable is kept.
void stage_xtc(sampler *s) {
  if (s->dense) sampler_list(s, -INFINITY);
  if (s->n < 2 || rng_unit(&s->rng) >= s->p.xtc_probability) return;
  double floor = s->p.xtc_threshold * sampler_weigh(s);
  size_t good = 0, least = 0;
  for (size_t i = 0; i < s->n; i++)
    if (s->weights[i] >= floor && (good++ == 0 || cand_better(s->c[least], s->c[i]))) least = i;
  if (good < 2) return;
  for (size_t i = 0; i < s->n; i++) if (s->weights[i] >= floor && i != least) s->weights[i] = -1;
  sampler_keep_marked(s);
}

// temp - range if one token has all the probability, temp + range if all tokens are equally probable.
static double dynamic_temperature(sampler *s) {
  double range = s->p.dynatemp_range, low = s->p.temp > range ? s->p.temp - range : 0, high = s->p.temp + range;
  if (s->n < 2) return s->p.temp;
  double max = sampler_max(s), sum = sampler_weigh(s), log_sum = portable_log(sum), entropy = 0;
  for (size_t i = 0; i < s->n; i++)
    if (s->weights[i] > 0) entropy += s->weights[i] / sum * (log_sum + max - s->c[i].logit);
  double openness = entropy / portable_log((double)s->n);
  return low + (high - low) * (openness > 0                 ? portable_pow(openness, s->p.dynatemp_exponent)
                               : s->p.dynatemp_exponent > 0 ? 0
                                                            : 1);
}

void stage_temperature(sampler *s) {
  double temp = s->p.temp;
  if (s->dense && (temp > 0 || s->p.dynatemp_range > 0)) sampler_list(s, -INFINITY);
  if (s->p.dynatemp_range > 0) temp = dynamic_temperature(s);
  if (temp < 1e-6) {
    sampler_order(s, 1);
    if (s->n > 1) s->n = s->n_sorted = 1;
    return;
  }
  for (size_t i = 0; i < s->n; i++) s->c[i].logit /= temp;
}

// Mirostat (Basu et al., 2021) keeps the surprise of drawn tokens near tau bits. Version 1 estimates the exponent of
// Zipf's law from the 100 most probable tokens and takes the k whose expected surprise is mu; version 2 takes all
// tokens with less surprise than mu. The draw then updates mu.
void stage_mirostat(sampler *s) {
  enum { LOOK = 100 };
  if (s->dense) sampler_list(s, -INFINITY);
  sampler_order(s, LOOK);
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < LOOK && i + 1 < s->n; i++) {
    double t = portable_log((double)(i + 2) / (double)(i + 1)), b = s->c[i].logit - s->c[i + 1].logit;
    products += t * b;
    squares += t * t;
  }
  double zipf = products / squares, eps = zipf - 1;
  if (s->n < 2 || !(zipf > 1e-9)) return;          // no slope: all are equally probable
  double base = fabs(eps) < 1e-9 ? portable_pow(2, s->mu) / portable_log(s->n_vocab)
                                 : eps * portable_pow(2, s->mu) / (1 - portable_pow(s->n_vocab, -eps));
  double k = portable_pow(base, 1 / zipf);
  if (!(k < (double)s->n)) return;
  size_t kept = k > 1 ? (size_t)k : 1;
  sampler_order(s, kept);
  s->n = s->n_sorted = kept;
}

void stage_mirostat_2(sampler *s) {
  if (s->dense) sampler_list(s, -INFINITY);
  if (!s->n) return;
  double max = sampler_max(s), log_sum = portable_log(sampler_weigh(s));
  sampler_keep_above(s, max + log_sum - s->mu * 0.6931471805599453);
}

// Adaptive-p (llama.cpp's pull request 17927) prefers tokens whose probability is near a target. The target of a draw
// compensates for the deviation of earlier draws, weighting older ones less.
void stage_adaptive(sampler *s) {
  const double peak = 5, sharpness = 10, width = .3;
  if (s->dense) sampler_list(s, -INFINITY);
  double target = 2 * s->p.adaptive_target - s->drawn_p / s->drawn_weight, sum = sampler_weigh(s);
  struct cand *was = sampler_spare(s);
  target = target < 0 ? 0 : target > 1 ? 1 : target;
  for (size_t i = 0; i < s->n; i++) {
    was[i] = (struct cand){s->weights[i] / sum, s->c[i].id};
    double off = fabs(was[i].logit - target) / width;
    s->c[i].logit = peak - sharpness * off * off / (1 + off);
  }
  s->n_sorted = 0;
}
