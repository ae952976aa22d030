// Every stage of the sampler, in every order, against a plain implementation written from the published definitions:
// arrays, full sorts, libm.  After a draw the sampler's candidates and their weights lie open (sampler_impl.h), so that
// whole distributions are compared and not draws.  Also: Mirostat's control loop, XTC's frequency, masks, what is the
// same on every machine.
#define _GNU_SOURCE
#include "engine/sampler_impl.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "text/small_vocab.h"

enum { N = 40 };
static uint64_t rng = 2024;
static double unit(void) {
  rng = hash_u64(rng, 7);
  return (double)(rng >> 11) * 0x1p-53;
}
static int below(int n) { return (int)(unit() * n); }

static sampler *make(struct weft_sampling p, int32_t n) {
  sampler *s = NULL;
  error err = {0};
  if (sampler_new(&p, n, &s, &err)) fail_msg("%s", err.text);
  return s;
}

// ---- the plain implementation ---------------------------------------------------------------------------------------

struct tok { double x, p; int id; double key; };
struct plain { struct tok t[N]; int n; const int32_t *past; int n_past; struct weft_sampling p; };

static int descending(const void *a, const void *b) {
  const struct tok *s = a, *t = b;
  if (s->key != t->key) return s->key < t->key ? 1 : -1;
  return s->id - t->id;
}

static void softmax_sorted(struct plain *s) {
  double sum = 0;
  for (int i = 0; i < s->n; i++) s->t[i].key = s->t[i].x;
  qsort(s->t, (size_t)s->n, sizeof *s->t, descending);
  for (int i = 0; i < s->n; i++) sum += s->t[i].p = exp(s->t[i].x - s->t[0].x);
  for (int i = 0; i < s->n; i++) s->t[i].p /= sum;
}

static void p_penalties(struct plain *s) {
  int from = s->p.repeat_last_n < 0 || s->p.repeat_last_n > s->n_past ? 0 : s->n_past - s->p.repeat_last_n;
  for (int i = 0; i < s->n; i++) {
    int count = 0;
    for (int j = from; j < s->n_past; j++) count += s->past[j] == s->t[i].id;
    if (!count) continue;
    s->t[i].x = s->t[i].x > 0 ? s->t[i].x / s->p.repeat_penalty : s->t[i].x * s->p.repeat_penalty;
    s->t[i].x -= count * s->p.frequency_penalty + s->p.presence_penalty;
  }
}

// For each place before the end: how many tokens before it are the last ones of the text.
static void p_dry(struct plain *s) {
  int last = s->p.dry_last_n < 0 || s->p.dry_last_n > s->n_past ? s->n_past : s->p.dry_last_n, start = s->n_past - last,
      longest[N];
  for (int i = 0; i < N; i++) longest[i] = -1;
  for (int at = start + 1; at < s->n_past; at++) {
    int n = 0;
    while (at - 1 - n >= start && s->past[at - 1 - n] == s->past[s->n_past - 1 - n]) n++;
    if (n > longest[s->past[at]]) longest[s->past[at]] = n;
  }
  if (last <= s->p.dry_allowed_length) return;
  for (int i = 0; i < s->n; i++) {
    int n = longest[s->t[i].id];
    if (n >= s->p.dry_allowed_length)
      s->t[i].x -= s->p.dry_multiplier * pow(s->p.dry_base, n - s->p.dry_allowed_length);
  }
}

static void p_sigma(struct plain *s) {
  double mean = 0, var = 0, max = -INFINITY;
  for (int i = 0; i < s->n; i++) mean += s->t[i].x / s->n;
  for (int i = 0; i < s->n; i++) var += (s->t[i].x - mean) * (s->t[i].x - mean) / s->n;
  for (int i = 0; i < s->n; i++) max = fmax(max, s->t[i].x);
  int n = 0;
  for (int i = 0; i < s->n; i++) if (s->t[i].x >= max - s->p.top_n_sigma * sqrt(var)) s->t[n++] = s->t[i];
  s->n = n;
}

static void p_top_k(struct plain *s) {
  softmax_sorted(s);
  if (s->n > s->p.top_k) s->n = s->p.top_k;
}

static void p_typical(struct plain *s) {
  softmax_sorted(s);
  double entropy = 0, sum = 0;
  for (int i = 0; i < s->n; i++) if (s->t[i].p > 0) entropy -= s->t[i].p * log(s->t[i].p);
  for (int i = 0; i < s->n; i++) s->t[i].key = -fabs(-log(s->t[i].p) - entropy);
  qsort(s->t, (size_t)s->n, sizeof *s->t, descending);
  int n = 0;
  while (n < s->n && sum <= s->p.typical_p) sum += s->t[n++].p;
  s->n = n;
}

static void p_top_p(struct plain *s) {
  softmax_sorted(s);
  double sum = 0;
  int n = 0;
  while (n < s->n && (n == 0 || sum < s->p.top_p)) sum += s->t[n++].p;
  s->n = n;
}

static void p_min_p(struct plain *s) {
  softmax_sorted(s);
  while (s->n > 1 && s->t[s->n - 1].p < s->p.min_p * s->t[0].p) s->n--;
}

static void p_xtc(struct plain *s) {   // with probability 1
  softmax_sorted(s);
  int good = 0;
  while (good < s->n && s->t[good].p >= s->p.xtc_threshold) good++;
  if (good < 2) return;
  memmove(s->t, s->t + good - 1, (size_t)(s->n - good + 1) * sizeof *s->t);
  s->n -= good - 1;
}

static void p_temperature(struct plain *s) {
  softmax_sorted(s);
  double temp = s->p.temp, entropy = 0;
  if (s->p.dynatemp_range > 0 && s->n > 1) {
    for (int i = 0; i < s->n; i++) if (s->t[i].p > 0) entropy -= s->t[i].p * log(s->t[i].p);
    double low = fmax(0, temp - s->p.dynatemp_range), high = temp + s->p.dynatemp_range;
    temp = low + (high - low) * pow(entropy / log(s->n), s->p.dynatemp_exponent);
  }
  if (temp == 0) s->n = 1;
  else for (int i = 0; i < s->n; i++) s->t[i].x /= temp;
}

static const struct { const char *name; char letter; void (*run)(struct plain *s);
} plain_stages[] = {
  {"penalties", 'e', p_penalties}, {"dry", 'd', p_dry},       {"top_n_sigma", 's', p_sigma},
  {"top_k", 'k', p_top_k},         {"typ_p", 'y', p_typical}, {"top_p", 'p', p_top_p},
  {"min_p", 'm', p_min_p},         {"xtc", 'x', p_xtc},       {"temperature", 't', p_temperature},
};
enum { STAGES = COUNT(plain_stages) };

static void distribution(const sampler *s, double *out) {
  double sum = 0;
  for (size_t i = 0; i < s->n; i++) sum += s->weights[i];
  memset(out, 0, N * sizeof *out);
  for (size_t i = 0; i < s->n; i++) out[s->c[i].id] = s->weights[i] / sum;
}

// ---- distributions --------------------------------------------------------------------------------------------------

static struct weft_sampling random_params(void) {
  struct weft_sampling p = sampler_default();
  // powers of two: the same numbers in floats and in doubles
  p.repeat_penalty = (double[]){1, 2, .5}[below(3)];
  p.frequency_penalty = (double[]){0, .25, -.5}[below(3)];
  p.presence_penalty = (double[]){0, .5}[below(2)];
  p.repeat_last_n = (int32_t[]){-1, 0, 5, 20, 64}[below(5)];
  p.dry_multiplier = (double[]){0, .5}[below(2)];
  p.dry_base = (double[]){1, 2}[below(2)];
  p.dry_allowed_length = below(4);
  p.dry_last_n = (int32_t[]){-1, 0, 3, 20}[below(4)];
  p.top_n_sigma = (double[]){-1, .5, 1.5}[below(3)];
  p.top_k = (int32_t[]){0, 1, 5, 17, 100}[below(5)];
  p.typical_p = (double[]){1, .9, .4, 0}[below(4)];
  p.top_p = (double[]){1, .95, .5}[below(3)];
  p.min_p = (double[]){0, .05, .2}[below(3)];
  p.xtc_probability = (double[]){0, 1}[below(2)];
  p.xtc_threshold = (double[]){.02, .1, .3}[below(3)];
  p.temp = (double[]){.8, 1, 2.5, 0}[below(4)];
  p.dynatemp_range = (double[]){0, .3, 5}[below(3)];
  p.dynatemp_exponent = (double[]){1, .5, 2}[below(3)];
  return p;
}

static void test_every_order(void **state) {
  (void)state;
  for (int round = 0; round < 20000; round++) {
    struct plain plain = {.n = N, .p = random_params()};
    float logits[N];
    int32_t past[30];
    int order[STAGES];
    char names[200] = "", letters[STAGES + 1] = "";
    int n_past = below(31), tokens = 1 + below(6), used = below(STAGES) + 1;
    for (int i = 0; i < n_past; i++) past[i] = below(tokens);
    // every other time: ties
    for (int i = 0; i < N; i++)
      logits[i] = (float)(round % 2 ? floor(unit() * 64) / 8 - 4 : floor(unit() * 65536) / 4096 - 8);
    for (int i = 0; i < STAGES; i++) order[i] = i;
    for (int i = STAGES - 1; i > 0 && round % 5; i--) {
      int j = below(i + 1), t = order[i];
      order[i] = order[j];
      order[j] = t;
    }
    if (round % 5 == 0) used = STAGES;
    for (int i = 0; i < used; i++) {
      snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ";" : "", plain_stages[order[i]].name);
      letters[i] = plain_stages[order[i]].letter;
      letters[i + 1] = 0;
    }
    if (round % 5 && round % 2) plain.p.samplers = names;
    else if (round % 5) plain.p.sampler_seq = letters;
    sampler *s = make(plain.p, N);
    for (int i = 0; i < n_past; i++) sampler_accept(s, past[i]);
    double got[N], want[N] = {0};
    sampler_sample(s, logits);
    distribution(s, got);
    const struct weft_sampling *p = &plain.p;
    const bool on[STAGES] = {true,
                             p->dry_multiplier > 0,
                             p->top_n_sigma > 0,
                             p->top_k > 0,
                             p->typical_p<1, p->top_p<1, p->min_p> 0, p->xtc_probability> 0,
                             true};
    plain.past = past;
    plain.n_past = n_past;
    for (int i = 0; i < N; i++) plain.t[i] = (struct tok){.x = logits[i], .id = i};
    for (int i = 0; i < used; i++) if (on[order[i]]) plain_stages[order[i]].run(&plain);
    softmax_sorted(&plain);
    for (int i = 0; i < plain.n; i++) want[plain.t[i].id] = plain.t[i].p;
    for (int i = 0; i < N; i++)
      if (fabs(got[i] - want[i]) > 1e-9) {
        for (int j = 0; j < N; j++)
          if (got[j] || want[j]) printf("%d: %g %.12g %.12g\n", j, (double)logits[j], got[j], want[j]);
        fail_msg("round %d, %s: token %d has probability %.12g, it should be %.12g", round, names, i, got[i], want[i]);
      }
    sampler_free(s);
  }
}

// ---- XTC, Mirostat --------------------------------------------------------------------------------------------------

static void test_xtc_sometimes(void **state) {
  (void)state;
  struct weft_sampling p = sampler_default();
  p.sampler_seq = "x";
  p.xtc_probability = .3;
  p.xtc_threshold = .2;
  sampler *s = make(p, 3);
  const float logits[] = {0, logf(.6f / .4f), -INFINITY};
  int second = 0, draws = 20000;
  for (int i = 0; i < draws; i++) second += sampler_sample(s, logits) == 1;   // of .6, unless XTC drops it
  assert_true(fabs(second - draws * .7 * .6) < 5 * sqrt(draws * .42 * .58));
  sampler_free(s);
}

// Candidates by the thousand go other ways than a few: against a full sort.  Logits have ties, and signs, and all
// sizes.
static int by_logit(const void *pa, const void *pb) {
  return cand_better(*(const struct cand *)pa, *(const struct cand *)pb) ? -1 : 1;
}

static void test_thousands(void **state) {
  (void)state;
  enum { ALL = 6000 };
  static float logits[ALL];
  static struct cand all[ALL];
  for (int round = 0; round < 40; round++) {
    double width = (double[]){0, .5, 4, 1e30}[round % 4], sum = 0, upto = 0;
    for (int i = 0; i < ALL; i++) logits[i] = (float)((unit() - .5) * width);
    for (int i = 0; i < ALL; i++) if (below(3) == 0) logits[i] = logits[below(ALL)];
    for (int i = 0; i < ALL; i++) all[i] = (struct cand){logits[i], i};
    qsort(all, ALL, sizeof *all, by_logit);
    struct weft_sampling p = {.temp = 1, .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .dry_base = 1.75, .seed = 1};
    size_t want = 0;
    if (round & 4) p.top_k = (int32_t)(want = (size_t)(900 + below(ALL)));
    else {
      p.top_p = .3 + .69 * unit();
      for (int i = 0; i < ALL; i++) sum += exp(all[i].logit - all[0].logit);
      while (want < ALL && (!want || upto < p.top_p * sum)) upto += exp(all[want++].logit - all[0].logit);
    }
    if (want > ALL) want = ALL;
    sampler *s = make(p, ALL);
    assert_true(sampler_sample(s, logits) >= 0);
    if (s->n != want && !(p.top_k <= 0 && (s->n == want + 1 || s->n + 1 == want)))
      fail_msg("round %d: %zu are kept, not %zu", round, s->n, want);
    for (size_t i = 0; i < s->n; i++) assert_true(s->c[i].id == all[i].id && s->c[i].logit == all[i].logit);
    assert_int_equal(s->n_sorted, s->n);
    sampler_free(s);
  }
}

static void test_mirostat_2_is_a_cut(void **state) {
  (void)state;
  for (int round = 0; round < 500; round++) {
    struct weft_sampling p = sampler_default();
    p.mirostat = 2;
    p.mirostat_eta = 0;                            // mu stays 2 tau
    p.mirostat_tau = .25 + unit() * 3;
    p.temp = 1;
    struct plain plain = {.n = N, .p = p};
    float logits[N];
    for (int i = 0; i < N; i++) plain.t[i] = (struct tok){.x = logits[i] = (float)(unit() * 8), .id = i};
    sampler *s = make(p, N);
    double got[N], want[N] = {0};
    sampler_sample(s, logits);
    distribution(s, got);
    softmax_sorted(&plain);
    while (plain.n > 1 && -log2(plain.t[plain.n - 1].p) > 2 * p.mirostat_tau) plain.n--;
    softmax_sorted(&plain);
    for (int i = 0; i < plain.n; i++) want[plain.t[i].id] = plain.t[i].p;
    for (int i = 0; i < N; i++) assert_true(fabs(got[i] - want[i]) < 1e-9);
    sampler_free(s);
  }
}

// Zipf's law with exponent e over 5000 tokens: the estimate must find e, and k must be the one of the paper's formula.
static void test_mirostat_1_finds_k(void **state) {
  (void)state;
  enum { V = 5000 };
  static float logits[V];
  static const double exponents[] = {.7, 1.2, 2};
  for (size_t i = 0; i < COUNT(exponents); i++) {
    double e = exponents[i], tau = 3;
    for (int id = 0; id < V; id++) logits[(id * 7 + 3) % V] = (float)(-e * log(id + 1));
    struct weft_sampling p = sampler_default();
    p.mirostat = 1;
    p.mirostat_tau = tau;
    p.temp = 1;
    sampler *s = make(p, V);
    sampler_sample(s, logits);
    double k = pow((e - 1) * pow(2, 2 * tau) / (1 - pow(V, 1 - e)), 1 / e);
    assert_true(fabs((double)s->n - k) <= 1 + .001 * k);
    sampler_free(s);
  }
}

// Both versions bring the mean surprise to tau, measured in the untruncated distribution for the second one's cut.
static void test_mirostat_controls(void **state) {
  (void)state;
  enum { V = 2000, DRAWS = 4000 };
  static float logits[V];
  for (int version = 1; version <= 2; version++) {
    struct weft_sampling p = sampler_default();
    p.mirostat = version;
    p.mirostat_tau = 4;
    p.temp = 1;
    sampler *s = make(p, V);
    double total = 0;
    for (int i = 0; i < DRAWS; i++) {
      for (int id = 0; id < V; id++) logits[id] = (float)(-1.1 * log((id * 7919 + i * 31) % V + 1));
      int32_t id = sampler_sample(s, logits);
      double sum = 0, w = 0;
      for (size_t j = 0; j < s->n; j++) { sum += s->weights[j]; if (s->c[j].id == id) w = s->weights[j]; }
      if (i >= DRAWS / 4) total -= log2(w / sum);
    }
    double mean = total / (DRAWS - DRAWS / 4);
    if (fabs(mean - 4) > .1) fail_msg("version %d: mean surprise %g bits instead of 4", version, mean);
    sampler_free(s);
  }
}

// What is drawn from follows what has been drawn: worked out anew from the ids. Their mean probability goes to the
// target.
static void test_adaptive_p_remembers(void **state) {
  (void)state;
  enum { V = 5, DRAWS = 3000 };
  static const double targets[] = {.15, .25, .35};
  for (size_t k = 0; k < COUNT(targets); k++) {
    struct weft_sampling p = sampler_default();
    p.samplers = k ? "top_k;adaptive_p" : "adaptive_p;top_k";
    p.adaptive_target = targets[k];
    p.adaptive_decay = k == 2 ? 1 : .8;            // .99 is the most
    double decay = k == 2 ? .99 : .8, of_drawn = targets[k] / (1 - decay), weight = 1 / (1 - decay), total = 0;
    sampler *s = make(p, V);
    for (int i = 0; i < DRAWS; i++) {
      float logits[V];
      double was[V], is[V], sum = 0, all = 0, got = 0;
      for (int id = 0; id < V; id++) sum += was[id] = exp(logits[id] = (float)(-1.1 * log((id + i) % V + 1)));
      double aim = fmin(fmax(2 * targets[k] - of_drawn / weight, 0), 1);
      for (int id = 0; id < V; id++) {
        double off = fabs((was[id] /= sum) - aim) / .3;
        all += is[id] = exp(5 - 10 * off * off / (1 + off));
      }
      int32_t drawn = sampler_sample(s, logits);
      for (size_t j = 0; j < s->n; j++) got += s->weights[j];
      for (size_t j = 0; j < s->n; j++) assert_true(fabs(s->weights[j] / got - is[s->c[j].id] / all) < 1e-6);
      of_drawn = was[drawn] + decay * of_drawn;
      weight = 1 + decay * weight;
      total += was[drawn];
    }
    if (fabs(total / DRAWS - targets[k]) > .05)
      fail_msg("target %g: mean probability %g", targets[k], total / DRAWS);
    sampler_free(s);
  }
}

// ---- DRY's breakers, masks ------------------------------------------------------------------------------------------

// What a draw asks of tokens of the text is known when they are accepted: a draw of a long text asks for all of them,
// and the pieces of a vocabulary are not made for it again. (Here there is nothing to make them of.) A later list of
// breakers is searched anew.
static void test_breakers_are_searched_once(void **state) {
  (void)state;
  small v;
  small_init(&v, "gpt2", "gpt-2");
  small_bytes_bpe(&v);
  tokenizer *t = small_make(&v);
  struct weft_sampling p = sampler_default();
  p.dry_multiplier = 1;
  p.dry_allowed_length = 0;
  p.dry_last_n = -1;
  p.temp = 0;
  int32_t n = tokenizer_n_vocab(t);
  sampler *s = make(p, n);
  error err = {0};
  float *logits = xcalloc((size_t)n, sizeof *logits);
  logits['q'] = .5f;
  logits['y'] = .4f;
  assert_int_equal(sampler_breakers(s, t, (const char *const[]){"q", "\n"}, 2, &err), 0);
  for (const char *c = "abqyabab"; *c; c++) sampler_accept(s, *c);
  s->vocab = NULL;
  assert_int_equal(sampler_sample(s, logits), 'q');                 // a breaker; y is in the text, too
  assert_int_equal(sampler_breakers(s, t, (const char *const[]){"y"}, 1, &err), 0);
  assert_int_equal(sampler_sample(s, logits), 'y');
  assert_int_equal(sampler_breakers(s, t, NULL, 0, &err), 0);
  assert_true(sampler_sample(s, logits) != 'y');
  sampler_free(s);
  free(logits);
  small_free(&v, t);
}

static void test_breakers(void **state) {
  (void)state;
  small v;
  small_init(&v, "gpt2", "gpt-2");
  small_bytes_bpe(&v);
  tokenizer *t = small_make(&v);
  // The text in single letters, once with a breaker whose two characters are two tokens.
  static const struct { const char *text, *breaker; bool repeats;
  } cases[] = {
    {"abcxabc", "\n", true}, {"abcxabc", "b", false}, {"abcxabc", "bc", false},
    {"abcxabc", "xa", true}, {"abcxabc", "cx", true}, {"abcxabc", "xabc", false},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct weft_sampling p = sampler_default();
    p.dry_multiplier = 1;
    p.temp = 0;
    int32_t n = tokenizer_n_vocab(t);
    sampler *s = make(p, n);
    error err = {0};
    assert_int_equal(sampler_breakers(s, t, &cases[i].breaker, 1, &err), 0);
    float *logits = xcalloc((size_t)n, sizeof *logits);
    int32_t x = -1;
    for (const char *c = cases[i].text; *c; c++) {
      if (*c == 'x') x = *c;
      sampler_accept(s, *c);                       // byte b is token b
    }
    // after "abc" came x: one token of penalty 1.75 for three repeated, two allowed
    logits[x] = .5f;
    assert_int_equal(sampler_sample(s, logits) != x, cases[i].repeats);
    sampler_reset(s);
    assert_int_equal(sampler_sample(s, logits), x);
    free(logits);
    sampler_free(s);
  }
  sampler *s = make(sampler_default(), 10);
  error err = {0};
  assert_int_equal(sampler_breakers(s, t, (const char *const[]){""}, 1, &err), -1);
  assert_non_null(strstr(err.text, "breaker"));
  sampler_free(s);
  small_free(&v, t);
}

static void test_mask(void **state) {
  (void)state;
  enum { V = 300 };
  float logits[V];
  for (int round = 0; round < 200; round++) {
    uint64_t mask[(V + 63) / 64] = {0};
    struct weft_sampling p = random_params();
    p.dry_multiplier = 0;
    sampler *s = make(p, V);
    int some = below(V);
    mask[some / 64] |= 1ull << some % 64;
    for (int i = 0; i < V; i++) {
      logits[i] = (float)(unit() * 10);
      if (unit() < .1) mask[i / 64] |= 1ull << i % 64;
    }
    sampler_mask(s, mask);
    for (int i = 0; i < 20; i++) {
      int32_t id = sampler_sample(s, logits);
      assert_true(id >= 0 && mask[id / 64] >> id % 64 & 1);
    }
    memset(mask, 0, sizeof mask);
    assert_int_equal(sampler_sample(s, logits), -1);
    sampler_mask(s, NULL);
    assert_true(sampler_sample(s, logits) >= 0);
    sampler_free(s);
  }
}

// ---- bad values -----------------------------------------------------------------------------------------------------

static void test_logits_of_all_kinds(void **state) {
  (void)state;
  static const float odd[] = {-INFINITY, INFINITY, NAN, 3e38f, -3e38f, 0, 1e-40f, 5};
  float logits[N];
  for (int round = 0; round < 5000; round++) {
    struct weft_sampling p = random_params();
    p.mirostat = round % 7 == 0 ? 1 + below(2) : 0;
    p.repeat_penalty = (double[]){1, 1e6, 1e-6}[below(3)];
    sampler *s = make(p, N);
    bool any = false;
    for (int i = 0; i < N; i++) {
      logits[i] = odd[below(round % 3 ? 8 : 3)];
      any |= logits[i] > -INFINITY;
    }
    for (int i = 0; i < 10; i++) {
      int32_t id = sampler_sample(s, logits);
      assert_true(id < N && (id >= 0) == any);
      if (id >= 0) { assert_true(logits[id] > -INFINITY); sampler_accept(s, id); }
    }
    sampler_free(s);
  }
}

static void test_every_parameter_is_checked(void **state) {
  (void)state;
#define REAL(f, name) {offsetof(struct weft_sampling, f), true, name}
#define INT(f, name) {offsetof(struct weft_sampling, f), false, name}
  static const struct { size_t at; bool real; const char *name;
  } rows[] = {
    REAL(temp, "temperature"),
    REAL(dynatemp_range, "dynamic temperature"),
    REAL(dynatemp_exponent, "dynamic temperature"),
    REAL(top_p, "top-p"),
    REAL(min_p, "min-p"),
    REAL(typical_p, "typical-p"),
    REAL(top_n_sigma, "top-n-sigma"),
    REAL(xtc_probability, "XTC probability"),
    REAL(xtc_threshold, "XTC threshold"),
    REAL(repeat_penalty, "repeat penalty"),
    REAL(frequency_penalty, "frequency penalty"),
    REAL(presence_penalty, "presence penalty"),
    INT(repeat_last_n, "repeat-last-n"),
    REAL(dry_multiplier, "DRY multiplier"),
    REAL(dry_base, "DRY base"),
    INT(dry_allowed_length, "DRY allowed length"),
    INT(dry_last_n, "DRY's last-n"),
    INT(mirostat, "mirostat"),
    REAL(mirostat_tau, "tau"),
    REAL(mirostat_eta, "eta"),
  };
  static const double bad[] = {NAN, INFINITY, -INFINITY, 1e9, -1e9};
  for (size_t i = 0; i < COUNT(rows); i++) for (size_t j = 0; j < COUNT(bad); j++) {
    struct weft_sampling p = sampler_default();
    if (rows[i].real) memcpy((char *)&p + rows[i].at, &bad[j], sizeof bad[j]);
    else memcpy((char *)&p + rows[i].at, &(int){-1000}, sizeof(int));
    sampler *s = NULL;
    error err = {0};
    if (sampler_new(&p, 10, &s, &err) != -1 || !strstr(err.text, rows[i].name))
      fail_msg("%s = %g: '%s'", rows[i].name, bad[j], err.text);
  }
  static const struct { const char *names, *letters, *says;
  } orders[] = {
    {"top_k;bogus", NULL, "bogus"},
    {NULL, "kq", "'q'"},
    {"top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;"
     "top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k",
     NULL, "more than"},
  };
  for (size_t i = 0; i < COUNT(orders); i++) {
    struct weft_sampling p = sampler_default();
    p.samplers = orders[i].names;
    p.sampler_seq = orders[i].letters;
    sampler *s = NULL;
    error err = {0};
    assert_int_equal(sampler_new(&p, 10, &s, &err), -1);
    assert_non_null(strstr(err.text, orders[i].says));
  }
}

// ---- numbers --------------------------------------------------------------------------------------------------------

static void test_stable_functions(void **state) {
  (void)state;
  for (int i = 0; i < 200000; i++) {
    double x = (unit() - .5) * 1300, y = exp((unit() - .5) * 1300), e = portable_exp(x), l = portable_log(y);
    assert_true(fabs(e / exp(x) - 1) < 1e-13 + 2e-16 * fabs(x));
    assert_true(fabs(l - log(y)) < 1e-15 + 4e-16 * fabs(log(y)));
  }
  assert_true(portable_exp(0) == 1 && portable_log(1) == 0 && portable_exp(-INFINITY) == 0 && portable_exp(NAN) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_order),
    cmocka_unit_test(test_xtc_sometimes), cmocka_unit_test(test_thousands),
    cmocka_unit_test(test_mirostat_2_is_a_cut),
    cmocka_unit_test(test_mirostat_1_finds_k),
    cmocka_unit_test(test_mirostat_controls),
    cmocka_unit_test(test_adaptive_p_remembers),
    cmocka_unit_test(test_breakers),
    cmocka_unit_test(test_breakers_are_searched_once),
    cmocka_unit_test(test_mask),
    cmocka_unit_test(test_logits_of_all_kinds),
    cmocka_unit_test(test_every_parameter_is_checked),
    cmocka_unit_test(test_stable_functions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
