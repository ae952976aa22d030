// The samplers against llama.cpp's: sampler_peer.json has logits, texts and what llama.cpp leaves of them; its head is
// tests/tools/record_samplers.py, which wrote it. Random numbers differ, so candidates and probabilities are compared.
#define _GNU_SOURCE
#include "engine/sampler_impl.h"
#include "model/gguf.h"
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { VOCAB_MOST = 10000 };
static gguf *file;
static tokenizer *vocab;
static json_t *peer;

static double number(const json_t *case_params, const char *key) {
  const json_t *v = json_object_get(case_params, key);
  return json_number_value(v ? v : json_object_get(json_object_get(peer, "off"), key));
}

static sampler *sampler_of(const json_t *c) {
  const json_t *p = json_object_get(c, "params"), *breakers = json_object_get(c, "breakers");
#define REAL(name) .name = number(p, #name)
#define INT(name) .name = (int32_t)number(p, #name)
  struct weft_sampling params = {REAL(temp), REAL(dynatemp_range), REAL(dynatemp_exponent), INT(top_k), REAL(top_p),
                                 REAL(min_p), REAL(typical_p), REAL(top_n_sigma), REAL(xtc_probability),
                                 REAL(xtc_threshold), REAL(repeat_penalty), REAL(frequency_penalty),
                                 REAL(presence_penalty), INT(repeat_last_n), REAL(dry_multiplier), REAL(dry_base),
                                 INT(dry_allowed_length), INT(dry_last_n), INT(mirostat), REAL(mirostat_tau),
                                 REAL(mirostat_eta), REAL(adaptive_target), REAL(adaptive_decay)};
  params.samplers = json_string_value(json_object_get(p, "samplers"));
  const char *texts[8];
  size_t n = json_array_size(breakers);
  for (size_t i = 0; i < n; i++) texts[i] = json_string_value(json_array_get(breakers, i));
  sampler *s = NULL;
  error err = {0};
  if (sampler_new(&params, (int32_t)json_integer_value(json_object_get(peer, "n_vocab")), &s, &err) ||
      sampler_breakers(s, vocab, texts, n, &err))
    fail_msg("%s", err.text);
  return s;
}

static int by_weight(const void *a, const void *b) {
  const struct cand *x = a, *y = b;
  return x->logit < y->logit ? 1 : x->logit > y->logit ? -1 : x->id - y->id;
}

// What is left, as candidates with their probabilities, best first. Returns how many have any.
static size_t candidates(sampler *s, const json_t *prompt, struct cand *out) {
  static float logits[VOCAB_MOST];
  size_t i, n = 0;
  double sum = 0;
  json_t *v;
  for (i = 0; i < (size_t)s->n_vocab; i++) logits[i] = -INFINITY;
  json_array_foreach(json_object_get(prompt, "ids"), i, v)
    logits[json_integer_value(v)] = (float)json_number_value(json_array_get(json_object_get(prompt, "logits"), i));
  json_array_foreach(json_object_get(prompt, "past"), i, v) sampler_accept(s, (int32_t)json_integer_value(v));
  assert_true(sampler_sample(s, logits) >= 0);
  for (i = 0; i < s->n; i++) sum += s->weights[i];
  for (i = 0; i < s->n; i++)
    if (s->weights[i] / sum > 1e-30) out[n++] = (struct cand){s->weights[i] / sum, s->c[i].id};
  qsort(out, n, sizeof *out, by_weight);
  return n;
}

static void test_cases(void **state) {
  (void)state;
  static struct cand left[VOCAB_MOST];
  size_t k, i, j, wrong = 0, compared = 0;
  json_t *c, *prompt, *id;
  json_array_foreach(json_object_get(peer, "cases"), k, c) {
    json_array_foreach(json_object_get(peer, "prompts"), i, prompt) {
      const json_t *seen = json_array_get(json_object_get(c, "seen"), i), *p = json_object_get(seen, "p");
      sampler *s = sampler_of(c);
      size_t n = candidates(s, prompt, left);
      bool same = n == (size_t)json_integer_value(json_object_get(seen, "n"));
      double worst = 0;
      json_array_foreach(json_object_get(seen, "ids"), j, id) {
        same = same && left[j].id == json_integer_value(id);
        worst = fmax(worst, fabs(left[j].logit - json_number_value(json_array_get(p, j))));
        compared++;
      }
      if (!same || worst > 1e-4) {
        char *params = json_dumps(json_object_get(c, "params"), JSON_COMPACT), *is = json_dumps(seen, JSON_COMPACT);
        print_message("%s, prompt %zu: %zu left, the best %d with %g, differ by %g; llama.cpp: %s\n", params, i, n,
                      left[0].id, left[0].logit, worst, is);
        free(params);
        free(is);
        wrong++;
      }
      sampler_free(s);
    }
  }
  assert_true(compared > 3000);
  assert_int_equal(wrong, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
  error err = {0};
  json_error_t at;
  peer = json_load_file(WEFT_SOURCE_DIR "/tests/engine/sampler_peer.json", 0, &at);
  if (!peer || gguf_open(WEFT_SOURCE_DIR "/models/tinypy.gguf", &file, &err) ||
      tokenizer_from_gguf(file, &vocab, &err)) {
    fprintf(stderr, "%s%s\n", peer ? "" : at.text, err.text);
    return 1;
  }
  int status = cmocka_run_group_tests(tests, NULL, NULL);
  tokenizer_free(vocab);
  gguf_close(file);
  json_decref(peer);
  return status;
}
