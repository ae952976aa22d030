// Sampling: see sampler.h.  Top-k, top-p and min-p all keep a beginning of the candidates in their order, so the sampler
// brings only as many into order as are kept: a heap gives them one by one.  On a vocabulary of 128k tokens the default
// settings cost one pass over the logits.
#include "engine/sampler.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cand { float logit; int32_t id; };

struct sampler {
  struct sampler_params p;
  int32_t n_vocab;
  uint64_t rng[4];
  float *bias;             // n_vocab; NULL until the first sampler_bias
  int32_t *recent;         // ring of the last repeat_last_n tokens
  int32_t n_recent, next_recent;
  uint64_t *seen;          // per token: the last draw for which it was penalised
  uint64_t n_draws;
  struct cand *cands;      // n_vocab
  double *weights;         // n_vocab
};

// ---- numbers that are the same on every machine -----------------------------------------------------------------------

// e^x for x <= 0.  libm's differs between versions in the last bit, which could tip a draw.
static double exp_stable(double x) {
  static const double over[] = {1, 1, 1. / 2, 1. / 3, 1. / 4, 1. / 5, 1. / 6, 1. / 7, 1. / 8, 1. / 9, 1. / 10, 1. / 11, 1. / 12, 1. / 13};
  if (!(x > -700)) return 0;
  double k = floor(x * 1.4426950408889634 + 0.5), r = x - k * 0.6931471805599453, sum = 1;
  for (int i = 13; i >= 1; i--) sum = 1 + sum * (r * over[i]);
  uint64_t bits = (uint64_t)(1023 + (int)k) << 52;   // 2^k: -1010 <= k <= 0
  double scale;
  memcpy(&scale, &bits, sizeof scale);
  return sum * scale;
}

static uint64_t rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }

// xoshiro256++, its state filled from the seed by splitmix64.
static uint64_t rng_next(uint64_t s[4]) {
  uint64_t out = rotl(s[0] + s[3], 23) + s[0], t = s[1] << 17;
  s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotl(s[3], 45);
  return out;
}

static void rng_seed(uint64_t s[4], uint64_t seed) {
  for (int i = 0; i < 4; i++) {
    uint64_t z = seed += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    s[i] = z ^ z >> 31;
  }
}

static double rng_unit(uint64_t s[4]) { return (double)(rng_next(s) >> 11) * 0x1p-53; }   // [0, 1)

// ---- order ------------------------------------------------------------------------------------------------------------

static bool better(struct cand a, struct cand b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// A heap whose root is the best candidate, or with worst = true the worst.
static void sift(struct cand *heap, size_t n, size_t at, bool worst) {
  struct cand moving = heap[at];
  for (size_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && better(heap[child + 1], heap[child]) != worst) child++;
    if (better(heap[child], moving) == worst) break;
    heap[at] = heap[child];
  }
  heap[at] = moving;
}

static void heapify(struct cand *heap, size_t n, bool worst) {
  for (size_t i = n / 2; i-- > 0;) sift(heap, n, i, worst);
}

// Puts the k best of n candidates (1 <= k <= n) in front, best first.
static void best_first(struct cand *c, size_t n, size_t k) {
  heapify(c, k, true);
  for (size_t i = k; i < n; i++) {
    if (!better(c[i], c[0])) continue;
    struct cand out = c[0];
    c[0] = c[i];
    c[i] = out;
    sift(c, k, 0, true);
  }
  for (size_t left = k; left > 1; left--) {   // the worst of the k goes to the end, and so on
    struct cand worst = c[0];
    c[0] = c[left - 1];
    c[left - 1] = worst;
    sift(c, left - 1, 0, true);
  }
}

// ---- steps ------------------------------------------------------------------------------------------------------------

static void penalise(sampler *s) {
  double penalty = s->p.repeat_penalty;
  if (penalty == 1) return;
  for (int32_t i = 0; i < s->n_recent; i++) {
    int32_t id = s->recent[i];
    if (s->seen[id] == s->n_draws) continue;
    s->seen[id] = s->n_draws;
    float *logit = &s->cands[id].logit;   // candidates are still in the order of their ids
    *logit = (float)(*logit <= 0 ? *logit * penalty : *logit / penalty);
  }
}

static double sum_of_weights(const sampler *s, size_t n, double max, double per_temp) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += s->weights[i] = exp_stable((s->cands[i].logit - max) * per_temp);
  return sum;
}

static size_t likeliest(const struct cand *c, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; i++) if (better(c[i], c[best])) best = i;
  return best;
}

// Applies top-k, top-p and min-p to the n candidates.  Those that stay are in front; their number is returned.
static size_t filter(sampler *s, size_t n, double max) {
  const struct sampler_params *p = &s->p;
  struct cand *c = s->cands;
  bool top_k = p->top_k > 0 && (size_t)p->top_k < n, top_p = p->top_p < 1, min_p = p->min_p > 0;
  size_t kept = 0;
  if (!top_k && !top_p && !min_p) return n;
  if (top_k) { best_first(c, n, (size_t)p->top_k); n = (size_t)p->top_k; }
  double total = top_p ? sum_of_weights(s, n, max, 1) : 0, sum = 0;
  if (!top_k) heapify(c, n, false);
  // Without top-k the candidates leave the heap one by one, best first; the kept ones are collected behind its end.
  for (size_t left = n; left > 0; left--) {
    struct cand best = top_k ? c[kept] : c[0];
    double weight = exp_stable(best.logit - max);
    if (kept > 0 && ((min_p && weight < p->min_p) || (top_p && sum >= p->top_p * total))) break;
    sum += weight;
    if (!top_k) {
      c[0] = c[left - 1];
      c[left - 1] = best;
      sift(c, left - 1, 0, false);
    }
    kept++;
  }
  if (!top_k) {   // best is last: turn round
    for (size_t i = 0; i < kept; i++) {
      struct cand swap = c[i];
      size_t from = n - 1 - i;
      if (from <= i) break;
      c[i] = c[from];
      c[from] = swap;
    }
  }
  return kept;
}

static int32_t draw(sampler *s, size_t n, double max) {
  double target = rng_unit(s->rng) * sum_of_weights(s, n, max, 1 / s->p.temp), sum = 0;
  size_t last = 0;
  for (size_t i = 0; i < n; i++) {
    if (s->weights[i] <= 0) continue;
    last = i;
    if ((sum += s->weights[i]) > target) break;
  }
  return s->cands[last].id;
}

int32_t sampler_sample(sampler *s, const float *logits) {
  s->n_draws++;
  size_t n = (size_t)s->n_vocab;
  for (size_t i = 0; i < n; i++) s->cands[i] = (struct cand){logits[i] + (s->bias ? s->bias[i] : 0), (int32_t)i};
  penalise(s);
  size_t best = likeliest(s->cands, n);
  double max = s->cands[best].logit;
  if (!(max > -INFINITY)) return -1;
  if (s->p.temp <= 0) return s->cands[best].id;
  return draw(s, filter(s, n, max), max);
}

// ---- life -------------------------------------------------------------------------------------------------------------

int sampler_new(const struct sampler_params *p, int32_t n_vocab, sampler **out, error *err) {
  if (n_vocab < 1) return error_set(err, "sampling needs a vocabulary; this one has %d tokens", n_vocab);
  if (!(p->temp >= 0 && p->temp < INFINITY)) return error_set(err, "the temperature is %g; it must be 0 or more", p->temp);
  if (!(p->top_p >= 0)) return error_set(err, "top-p is %g; it must be 0 or more", p->top_p);
  if (!(p->min_p >= 0 && p->min_p <= 1)) return error_set(err, "min-p is %g; it must lie between 0 and 1", p->min_p);
  if (!(p->repeat_penalty > 0 && p->repeat_penalty < INFINITY))
    return error_set(err, "the repeat penalty is %g; it must be more than 0", p->repeat_penalty);
  if (p->repeat_last_n < 0) return error_set(err, "repeat-last-n is %d; it must be 0 or more", p->repeat_last_n);
  sampler *s = xcalloc(1, sizeof *s);
  s->p = *p;
  s->n_vocab = n_vocab;
  rng_seed(s->rng, p->seed);
  if (p->repeat_last_n > 0) s->recent = xcalloc((size_t)p->repeat_last_n, sizeof *s->recent);
  s->seen = xcalloc((size_t)n_vocab, sizeof *s->seen);
  s->cands = xcalloc((size_t)n_vocab, sizeof *s->cands);
  s->weights = xcalloc((size_t)n_vocab, sizeof *s->weights);
  *out = s;
  return 0;
}

void sampler_free(sampler *s) {
  if (!s) return;
  free(s->bias);
  free(s->recent);
  free(s->seen);
  free(s->cands);
  free(s->weights);
  free(s);
}

void sampler_bias(sampler *s, int32_t id, float bias) {
  if (id < 0 || id >= s->n_vocab) die("sampler: bias for token %d of %d", id, s->n_vocab);
  if (!s->bias) s->bias = xcalloc((size_t)s->n_vocab, sizeof *s->bias);
  s->bias[id] = bias;
}

void sampler_accept(sampler *s, int32_t id) {
  if (id < 0 || id >= s->n_vocab) die("sampler: token %d of %d accepted", id, s->n_vocab);
  if (!s->recent) return;
  s->recent[s->next_recent] = id;
  s->next_recent = (s->next_recent + 1) % s->p.repeat_last_n;
  if (s->n_recent < s->p.repeat_last_n) s->n_recent++;
}

// ---- log-probabilities ------------------------------------------------------------------------------------------------

void logprobs(const float *logits, int32_t n, int32_t id, double *of_id, struct logprob *top, int32_t n_top) {
  double max = -INFINITY, sum = 0;
  for (int32_t i = 0; i < n; i++) if (logits[i] > max) max = logits[i];
  for (int32_t i = 0; i < n; i++) sum += exp(logits[i] - max);
  double log_sum = max + log(sum);
  *of_id = logits[id] - log_sum;
  if (n_top <= 0) return;
  struct cand *c = xmalloc((size_t)n * sizeof *c);
  for (int32_t i = 0; i < n; i++) c[i] = (struct cand){logits[i], i};
  best_first(c, (size_t)n, (size_t)n_top);
  for (int32_t i = 0; i < n_top; i++) top[i] = (struct logprob){c[i].id, c[i].logit - log_sum};
  free(c);
}
