// Tokens evaluated ahead: logits are those of single steps, to the bit, wherever a text goes on from and whoever else
// uses the model meanwhile.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "base/base.h"
#include "engine/project.h"
#include "weft.h"

enum { N = 400, CTX = 420 };

static int32_t ids[N], n_vocab;
static uint64_t want[N];

static bool note(void *ctx, size_t i, const float *logits) {
  (void)ctx;
  want[i] = hash_of(logits, n_vocab);
  return true;
}

// Text in which pieces come again, some of them changed a little.
static void make_text(void) {
  for (int n = 0; n < N;) {
    int from = n > 30 && below(4) ? (int)below((uint32_t)n - 20) : -1, more = 3 + (int)below(40);
    for (int i = 0; i < more && n < N; i++, n++)
      ids[n] = from >= 0 && below(30) ? ids[from + i] : (int32_t)below((uint32_t)n_vocab);
  }
}

static weft_model *opened_chunk(int threads, int chunk) {
  weft_model *m;
  weft_error err;
  if (weft_model_open(project, &(weft_options){.context = CTX, .threads = threads, .chunk = chunk}, &m, &err))
    fail_msg("%s", err.text);
  n_vocab = weft_model_vocab_size(m);
  return m;
}

static weft_model *opened(int threads) { return opened_chunk(threads, 0); }

static void same_bits(void **s) {
  (void)s;
  weft_error err;
  state = 17;
  weft_model *m = opened(2);
  make_text();
  if (weft_decode_rows(m, ids, N, 0, 0, note, NULL, &err)) fail_msg("%s", err.text);
  for (int how = WEFT_SPECULATE_NEVER; how <= WEFT_SPECULATE_ALWAYS; how++) {
    weft_speculation *a = weft_speculation_new(m, (enum weft_speculating)how);
    const float *logits;
    for (int round = 0; round < 30; round++) {
      // goes back, or takes up another beginning
      int pos = (int)below(N - 1), to = pos + 1 + (int)below((uint32_t)(N - pos - 1) / 2 + 1);
      if (pos && weft_decode(m, ids, (size_t)pos, 0, NULL, &err)) fail_msg("%s", err.text);
      for (; pos < to; pos++) {
        if (weft_speculation_decode(a, ids, pos, ids[pos], &logits, &err)) fail_msg("%s", err.text);
        if (hash_of(logits, n_vocab) != want[pos])
          fail_msg("way %d, round %d: other logits behind position %d", how, round, pos);
        if (below(40) || !pos) continue;
        // somebody writes over what lies there
        int32_t other = (int32_t)below((uint32_t)n_vocab);
        if (weft_decode(m, &other, 1, pos, NULL, &err) || weft_decode(m, ids + pos, 1, pos, NULL, &err))
          fail_msg("%s", err.text);
      }
    }
    weft_speculation_counts c = weft_speculation_count(a);
    assert_true(c.accepted <= c.proposed && (how == WEFT_SPECULATE_NEVER ? !c.proposed : true));
    if (how == WEFT_SPECULATE_ALWAYS) assert_true(c.proposed > 500 && c.accepted > 200);
    weft_speculation_free(a);
  }
  weft_model_close(m);
}

// Another text at the same place, and the end of the context.
static void other_texts(void **s) {
  (void)s;
  weft_error err;
  weft_model *m = opened(1);
  weft_speculation *a = weft_speculation_new(m, WEFT_SPECULATE_ALWAYS);
  static int32_t text[CTX];
  const float *logits;
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < CTX; i++) text[i] = 5 + (i * (round + 1)) % 11;
    for (int i = 0; i < CTX; i++) {
      if (weft_speculation_decode(a, text, i, text[i], &logits, &err)) fail_msg("%s", err.text);
      uint64_t speculation = hash_of(logits, n_vocab);
      if (i % 97 != 96) continue;
      if (weft_decode(m, text, (size_t)i + 1, 0, &logits, &err)) fail_msg("%s", err.text);
      assert_int_equal(hash_of(logits, n_vocab), speculation);
    }
    assert_int_equal(weft_speculation_decode(a, text, CTX, 5, &logits, &err), -1);
  }
  assert_true(weft_speculation_count(a).accepted > CTX);
  assert_int_equal(weft_speculation_decode(a, text, 10, n_vocab, &logits, &err), -1);
  assert_non_null(strstr(err.text, "outside the vocabulary"));
  weft_speculation_free(a);
  weft_speculation_free(NULL);
  weft_model_close(m);
}

// A step has no more rows than a chunk has positions.
static void small_chunks(void **s) {
  (void)s;
  enum { LEAST = 1, MOST = 5 };
  weft_error err;
  for (int chunk = LEAST; chunk <= MOST; chunk += 2) {
    weft_model *m = opened_chunk(1, chunk);
    weft_sequence *q;
    if (weft_sequence_new(m, &q, &err)) fail_msg("%s", err.text);
    weft_speculation *a = weft_speculation_of_sequence(m, q, WEFT_SPECULATE_ALWAYS);
    static int32_t text[CTX];
    const float *logits;
    for (int i = 0; i < CTX; i++) text[i] = 5 + i % 11;
    for (int i = 0; i < CTX; i++)
      if (weft_speculation_decode(a, text, i, text[i], &logits, &err)) fail_msg("chunk %d: %s", chunk, err.text);
    assert_true((weft_speculation_count(a).accepted > CTX / 2) == (chunk > LEAST));
    weft_speculation_free(a);
    weft_sequence_free(q);
    weft_model_close(m);
  }
}

static double planned_ms(const weft_model *m) {
  weft_stats stats;
  weft_model_stats(m, &stats);
  return stats.compile_ms + stats.schedule_ms;
}

// A plan for guesses takes as long as many tokens: a short repetition is not worth it, one that goes on is.
static void waits_until_it_pays(void **s) {
  (void)s;
  weft_error err;
  weft_model *m = opened(1);
  weft_speculation *a = weft_speculation_new(m, WEFT_SPECULATE_IF_IT_PAYS);
  static int32_t text[CTX];
  const float *logits;
  double before = planned_ms(m);
  for (int i = 0; i < 40; i++) text[i] = i + 5;
  for (int i = 0; i < 10; i++) text[40 + i] = text[10 + i];
  for (int i = 0; i < 50; i++)
    if (weft_speculation_decode(a, text, i, text[i], &logits, &err)) fail_msg("%s", err.text);
  assert_true(planned_ms(m) == before && weft_speculation_count(a).proposed == 0);
  // the plans that there are, in tokens, are more than a context: it begins again
  for (double start = now_s(); !weft_speculation_count(a).accepted;) {
    assert_true(now_s() < start + 60);
    for (int i = 0; i < CTX; i++) text[i] = 5 + i % 23;
    for (int i = 0; i < CTX; i++)
      if (weft_speculation_decode(a, text, i, text[i], &logits, &err)) fail_msg("%s", err.text);
  }
  assert_true(planned_ms(m) > before);
  weft_speculation_free(a);
  weft_model_close(m);
}

static int32_t likeliest(const float *logits) {
  int32_t best = 0;
  for (int32_t i = 1; i < n_vocab; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

// A draft model: of itself the model accepts nearly everything, and logits are the same. A text that goes on otherwise
// than it thinks, or from elsewhere, changes nothing either.
static void draft_models(void **s) {
  (void)s;
  enum { LONG = 150 };
  weft_error err;
  weft_model *m = opened(2), *second = opened(1);
  weft_draft *d;
  static int32_t text[CTX];
  static uint64_t hashes[CTX];
  const float *logits;
  state = 3;
  text[0] = 70;
  for (int i = 0; i < LONG; i++) {
    if (weft_decode(m, text + i, 1, i, &logits, &err)) fail_msg("%s", err.text);
    hashes[i] = hash_of(logits, n_vocab);
    text[i + 1] = i > 100 && !below(4) ? (int32_t)below((uint32_t)n_vocab) : likeliest(logits);
  }
  for (int most = 0; most < 4; most += 3) {
    weft_draft_options o = {.most = most, .least = most ? 1 : 0, .p_min = most ? 0.2 : 0};
    if (weft_draft_new(m, second, &o, &d, &err)) fail_msg("%s", err.text);
    weft_speculation *a = weft_speculation_new(m, WEFT_SPECULATE_ALWAYS);
    weft_speculation_draft(a, d);
    for (int round = 0; round < 3; round++)
      for (int i = round ? (int)below(100) : 0; i < LONG; i++) {
        if (weft_speculation_decode(a, text, i, text[i], &logits, &err)) fail_msg("%s", err.text);
        if (hash_of(logits, n_vocab) != hashes[i])
          fail_msg("most %d, round %d: other logits behind %d", most, round, i);
      }
    weft_speculation_counts c = weft_speculation_count(a);
    assert_true(c.drafted > 50 && c.drafted_accepted > c.drafted / 3 && c.drafted_accepted < c.drafted);
    assert_true(c.drafted <= c.proposed && c.drafted_accepted <= c.accepted);
    weft_speculation_free(a);
    weft_draft_free(d);
  }
  assert_int_equal(weft_draft_new(m, second, &(weft_draft_options){.p_min = 2}, &d, &err), -1);
  assert_non_null(strstr(err.text, "p_min is 2"));
  assert_int_equal(weft_draft_new(m, second, &(weft_draft_options){.most = -1}, &d, &err), -1);
  weft_model_close(second);
  weft_model_close(m);
}

// Where a guess cannot be as long as it has to be, nobody thinks of one.
static void too_short(void **s) {
  (void)s;
  enum { LEAST = 8, LONG = 20 };
  weft_error err;
  weft_model *m = opened(1), *second = opened(1);
  weft_draft *d;
  const float *logits;
  if (weft_draft_new(m, second, &(weft_draft_options){.least = LEAST}, &d, &err)) fail_msg("%s", err.text);
  weft_speculation *a = weft_speculation_new(m, WEFT_SPECULATE_ALWAYS);
  weft_speculation_draft(a, d);
  for (int i = 0; i < LONG; i++)
    if (weft_speculation_decode(a, ids, i, ids[i], &logits, &err)) fail_msg("%s", err.text);
  assert_true(weft_speculation_count(a).drafted == 0 && weft_draft_seconds(d) == 0);
  weft_speculation_free(a);
  weft_draft_free(d);
  weft_model_close(second);
  weft_model_close(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(other_texts),
                                     cmocka_unit_test(small_chunks), cmocka_unit_test(waits_until_it_pays),
                                     cmocka_unit_test(draft_models), cmocka_unit_test(too_short)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
