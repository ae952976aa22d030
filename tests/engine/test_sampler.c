// The sampler against a plain one that sorts everything, against known values, and against its own frequencies.
#include "engine/sampler.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct weft_sampling plain = {
  .temp = 1, .top_p = 1, .typical_p = 1, .repeat_penalty = 1, .dry_base = 1.75, .seed = 1};

static sampler *make(struct weft_sampling p, int32_t n) {
  sampler *s = NULL;
  error err = {0};
  assert_int_equal(sampler_new(&p, n, &s, &err), 0);
  return s;
}

static uint64_t rng = 12345;
static double unit(void) {
  rng = hash_u64(rng, 99);
  return (double)(rng >> 11) * 0x1p-53;
}

static void test_greedy(void **state) {
  (void)state;
  struct weft_sampling p = plain;
  p.temp = 0;
  sampler *s = make(p, 5);
  assert_int_equal(sampler_sample(s, (float[]){1, 3, 2, 3, -1}), 1);   // a tie: the lower id
  assert_int_equal(sampler_sample(s, (float[]){-5, -4, -3, -2, -1}), 4);
  assert_int_equal(sampler_sample(s, (float[]){0, 0, 0, 0, 0}), 0);
  sampler_free(s);
}

static void test_penalty(void **state) {
  (void)state;
  struct weft_sampling p = plain;
  p.temp = 0;
  p.repeat_penalty = 2;
  p.repeat_last_n = 3;
  sampler *s = make(p, 4);
  float logits[] = {4, 3, -1, -1.5f};
  assert_int_equal(sampler_sample(s, logits), 0);
  sampler_accept(s, 0);
  sampler_accept(s, 0);                                    // twice in the window counts once: 4 / 2 = 2 < 3
  assert_int_equal(sampler_sample(s, logits), 1);
  sampler_accept(s, 1);                                    // 2 against 1.5
  assert_int_equal(sampler_sample(s, logits), 0);
  assert_int_equal(logits[0], 4);                          // the caller's logits stay
  float below[] = {-1, -1.5f, -9, -9};                     // below zero the penalty multiplies: -2 and -3
  assert_int_equal(sampler_sample(s, below), 0);
  float close[] = {-1, -9, -1.5f, -9};
  assert_int_equal(sampler_sample(s, close), 2);
  sampler_accept(s, 2);
  sampler_accept(s, 2);
  sampler_accept(s, 2);                                    // 0 and 1 have left the window of three
  assert_int_equal(sampler_sample(s, logits), 0);
  sampler_free(s);
}

static void test_bias(void **state) {
  (void)state;
  struct weft_sampling p = plain;
  p.temp = 0;
  sampler *s = make(p, 3);
  float logits[] = {1, 2, 3};
  sampler_bias(s, 2, -INFINITY);
  assert_int_equal(sampler_sample(s, logits), 1);
  sampler_bias(s, 0, 5);
  assert_int_equal(sampler_sample(s, logits), 0);
  for (int32_t i = 0; i < 3; i++) sampler_bias(s, i, -INFINITY);
  assert_int_equal(sampler_sample(s, logits), -1);
  sampler_free(s);
  s = make(plain, 3);
  sampler_bias(s, 1, -INFINITY);
  for (int i = 0; i < 2000; i++) assert_int_not_equal(sampler_sample(s, logits), 1);
  sampler_free(s);
}

// Which tokens a plain implementation keeps, and their probabilities after the temperature; 0 for the others.
struct ranked { double logit; int id; };
static int by_rank(const void *a, const void *b) {
  const struct ranked *x = a, *y = b;
  if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
  return x->id - y->id;
}

static void plain_probabilities(const struct weft_sampling *p, const float *logits, int n, double *out) {
  struct ranked *r = xmalloc((size_t)n * sizeof *r);
  for (int i = 0; i < n; i++) r[i] = (struct ranked){logits[i], i};
  qsort(r, (size_t)n, sizeof *r, by_rank);
  int kept = p->top_k > 0 && p->top_k < n ? p->top_k : n;
  double total = 0, sum = 0;
  for (int i = 0; i < kept; i++) total += exp(r[i].logit - r[0].logit);
  if (p->top_p < 1) {
    int k = 0;
    while (k < kept && (k == 0 || sum < p->top_p * total)) sum += exp(r[k++].logit - r[0].logit);
    kept = k;
  }
  while (kept > 1 && exp(r[kept - 1].logit - r[0].logit) < p->min_p) kept--;
  memset(out, 0, (size_t)n * sizeof *out);
  total = 0;
  for (int i = 0; i < kept; i++) total += out[r[i].id] = exp((r[i].logit - r[0].logit) / p->temp);
  for (int i = 0; i < n; i++) out[i] /= total;
  free(r);
}

static void test_against_a_plain_sampler(void **state) {
  (void)state;
  enum { N = 60, DRAWS = 3000 };
  static const int32_t ks[] = {0, 1, 2, 7, 40, 60, 1000};
  static const double ps[] = {1, .95, .5, .05, 0}, ms[] = {0, .05, .3, 1}, temps[] = {.3, 1, 2.5};
  float logits[N];
  double expected[N];
  for (size_t a = 0; a < COUNT(ks); a++) for (size_t b = 0; b < COUNT(ps); b++) for (size_t c = 0; c < COUNT(ms); c++) {
    struct weft_sampling p = plain;
    p.top_k = ks[a];
    p.top_p = ps[b];
    p.min_p = ms[c];
    p.temp = temps[(a + b + c) % COUNT(temps)];
    p.seed = a * 100 + b * 10 + c;
    for (int i = 0; i < N; i++) logits[i] = (float)(floor(unit() * 40) / 8);   // coarse: there are ties
    plain_probabilities(&p, logits, N, expected);
    sampler *s = make(p, N);
    int seen[N] = {0};
    for (int i = 0; i < DRAWS; i++) seen[sampler_sample(s, logits)]++;
    for (int i = 0; i < N; i++) {
      if (expected[i] == 0) { assert_int_equal(seen[i], 0); continue; }
      double sigma = sqrt(DRAWS * expected[i] * (1 - expected[i]));
      if (fabs(seen[i] - DRAWS * expected[i]) > 5 * sigma + 2)
        fail_msg("top-k %d top-p %g min-p %g temp %g: token %d drawn %d times of %d, its probability is %g", p.top_k,
                 p.top_p, p.min_p, p.temp, i, seen[i], DRAWS, expected[i]);
    }
    sampler_free(s);
  }
}

// These draws are promised: the same on every machine and in every version.
static void test_same_seed_same_tokens(void **state) {
  (void)state;
  enum { N = 1000 };
  static const int32_t expected[2][8] = {{630, 531, 840, 346, 272, 741, 284, 704},
                                         {767, 630, 460, 174, 520, 149, 531, 754}};
  float logits[N];
  for (int i = 0; i < N; i++) logits[i] = (float)((i * 7919) % 1000) / 100;
  for (int k = 0; k < 2; k++) {
    struct weft_sampling p = sampler_default();
    if (k) p.top_k = 0;
    p.repeat_penalty = 1.1;
    p.seed = 42;
    sampler *s = make(p, N);
    for (int i = 0; i < 8; i++) {
      int32_t id = sampler_sample(s, logits);
      assert_int_equal(id, expected[k][i]);
      sampler_accept(s, id);
    }
    sampler_free(s);
  }
}

static void test_other_seed_other_tokens(void **state) {
  (void)state;
  enum { N = 1000 };
  float logits[N] = {0};
  int equal = 0;
  struct weft_sampling p = plain, q = plain;
  q.seed = 2;
  sampler *s = make(p, N), *t = make(q, N);
  for (int i = 0; i < 100; i++) equal += sampler_sample(s, logits) == sampler_sample(t, logits);
  assert_true(equal < 5);
  sampler_free(s);
  sampler_free(t);
}

static void refused(struct weft_sampling p, const char *expected) {
  sampler *s = NULL;
  error err = {0};
  assert_int_equal(sampler_new(&p, 10, &s, &err), -1);
  if (!strstr(err.text, expected)) fail_msg("'%s' does not mention %s", err.text, expected);
  assert_null(s);
}

static void test_bad_parameters(void **state) {
  (void)state;
  struct weft_sampling p;
  p = plain; p.temp = -1; refused(p, "temperature");
  p = plain; p.temp = NAN; refused(p, "temperature");
  p = plain; p.temp = INFINITY; refused(p, "temperature");
  p = plain; p.top_p = NAN; refused(p, "top-p");
  p = plain; p.top_p = -.1; refused(p, "top-p");
  p = plain; p.min_p = 1.5; refused(p, "min-p");
  p = plain; p.repeat_penalty = 0; refused(p, "repeat penalty");
  p = plain; p.repeat_last_n = -2; refused(p, "repeat-last-n");
}

static void test_logprobs(void **state) {
  (void)state;
  enum { N = 500 };
  float logits[N];
  double sum = 0, of_id;
  struct logprob top[N];
  for (int i = 0; i < N; i++) logits[i] = (float)(floor(unit() * 100) / 7) + 5000;   // far from 0: nothing overflows
  for (int i = 0; i < N; i++) sum += exp((double)logits[i] - 5000);
  logprobs(logits, N, 17, &of_id, top, N);
  assert_true(fabs(of_id - (logits[17] - 5000 - log(sum))) < 1e-9);
  double all = 0;
  for (int i = 0; i < N; i++) {
    all += exp(top[i].logprob);
    assert_true(fabs(top[i].logprob - (logits[top[i].id] - 5000 - log(sum))) < 1e-9);
    if (i)
      assert_true(top[i - 1].logprob > top[i].logprob ||
                  (top[i - 1].logprob == top[i].logprob && top[i - 1].id < top[i].id));
  }
  assert_true(fabs(all - 1) < 1e-9);
  struct logprob few[3];
  logprobs(logits, N, 17, &of_id, few, 3);
  for (int i = 0; i < 3; i++) assert_int_equal(few[i].id, top[i].id);
  logprobs(logits, N, 17, &of_id, NULL, 0);
  float banned[] = {0, -INFINITY};
  logprobs(banned, 2, 1, &of_id, few, 2);
  assert_true(of_id == -INFINITY && few[0].logprob == 0 && few[1].id == 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_greedy),
    cmocka_unit_test(test_penalty),
    cmocka_unit_test(test_bias),
    cmocka_unit_test(test_against_a_plain_sampler),
    cmocka_unit_test(test_same_seed_same_tokens),
    cmocka_unit_test(test_other_seed_other_tokens),
    cmocka_unit_test(test_bad_parameters),
    cmocka_unit_test(test_logprobs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
