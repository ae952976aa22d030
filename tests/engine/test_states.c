// What programs that embed the engine do with it beyond text: states in memory, tokens removed from the middle,
// samplers of their own, and structs of options from headers that are older or newer than the library.  Expected logits
// are those of a sequence that was evaluated at once, to the last bit.
#include "weft.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL WEFT_SOURCE_DIR "/models/tinypy.gguf"
enum { N = 300, CONTEXT = 320, HELD = 200 };

static weft_error err;

static void must(int status) {
  if (status) fail_msg("%s", err.text);
}

static void refused(int status, int expected, const char *words) {
  assert_int_equal(status, expected);
  if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
}

static weft_model *opened(const char *cache) {
  weft_model *m;
  weft_options o = {
    .size = sizeof o, .context = CONTEXT, .chunk = 64, .threads = 2, .key_cache = cache, .value_cache = cache};
  must(weft_model_open(MODEL, &o, &m, &err));
  return m;
}

// The model of all tests but where another one is needed.
static weft_model *shared_model(void) {
  static weft_model *m;
  if (!m) m = opened(NULL);
  return m;
}

static void make_ids(int32_t ids[N], uint32_t seed) {
  for (int i = 0; i < N; i++) ids[i] = (int32_t)((seed = seed * 1664525 + 1013904223) >> 16) % 1000;
}

// Behind ids of a sequence, what one more token gives, in a copy.
static float *logits_behind(weft_model *m, weft_sequence *q) {
  size_t bytes = (size_t)weft_model_vocab_size(m) * sizeof(float);
  int32_t id = 17;
  weft_tokens t = {.sequence = q, .ids = &id, .n = 1};
  must(weft_step(m, &t, 1, NULL, NULL, &err));
  float *copy = memcpy(malloc(bytes), t.logits, bytes);
  weft_sequence_cut(q, weft_sequence_length(q) - 1);
  return copy;
}

static weft_sequence *holding(weft_model *m, const int32_t *ids, size_t n) {
  weft_sequence *q;
  must(weft_sequence_new(m, &q, &err));
  weft_tokens t = {.sequence = q, .ids = ids, .n = n};
  if (n) must(weft_step(m, &t, 1, NULL, NULL, &err));
  return q;
}

static void same_logits(weft_model *m, weft_sequence *x, weft_sequence *y) {
  float *of_x = logits_behind(m, x), *of_y = logits_behind(m, y);
  assert_memory_equal(of_x, of_y, (size_t)weft_model_vocab_size(m) * sizeof *of_x);
  free(of_x);
  free(of_y);
}

// ---- a process that was forked ------------------------------------------------------------------------------------

static void calls_in_child(weft_model *m, weft_sequence *q) {
  static const char words[] = "was forked";
  int32_t id = 17;
  weft_tokens t = {.sequence = q, .ids = &id, .n = 1};
  weft_sequence *other;
  weft_profile *profile;
  weft_tuned *tuned;
  const float *logits;
  void *bytes;
  size_t n;
  refused(weft_step(m, &t, 1, NULL, NULL, &err), -1, words);
  refused(weft_decode(m, &id, 1, 0, &logits, &err), -1, words);
  refused(weft_sequence_fork(q, HELD / 2, &other, &err), -1, words);
  refused(weft_sequence_to_memory(q, (int32_t[HELD]){0}, &bytes, &n, &err), -1, words);
  refused(weft_profile_model(m, 0, 1, 0, &profile, &err), -1, words);
  refused(weft_tune(m, NULL, &tuned, &err), -1, words);
  refused(weft_model_check(m, &err), -1, words);
  weft_sequence_cut(q, HELD / 2);
  weft_sequence_free(q);
  weft_model_close(m);
  must(weft_model_open(MODEL, NULL, &m, &err));
  must(weft_decode(m, &id, 1, 0, &logits, &err));
  weft_model_close(m);
}

// A child has neither threads nor weights: its calls are errors, and it may open the model again.
static void test_a_forked_process(void **state) {
  (void)state;
  int32_t ids[N];
  int status;
  make_ids(ids, 5);
  weft_model *m = opened(NULL);
  weft_sequence *q = holding(m, ids, HELD);
  pid_t child = fork();
  if (!child) { alarm(60); calls_in_child(m, q); _exit(0); }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  free(logits_behind(m, q));
  weft_sequence_free(q);
  weft_model_close(m);
}

// ---- states ---------------------------------------------------------------------------------------------------------

static void test_through_memory(void **state) {
  (void)state;
  int32_t ids[N], *got;
  make_ids(ids, 3);
  weft_model *m = shared_model(), *other = opened(NULL);
  weft_sequence *q = holding(m, ids, HELD), *again;
  char *bytes;
  size_t n, n_ids;
  must(weft_sequence_to_memory(q, ids, (void **)&bytes, &n, &err));
  must(weft_sequence_from_memory(other, bytes, n, &again, &got, &n_ids, &err));  // another opening of the file
  assert_int_equal(n_ids, HELD);
  assert_memory_equal(got, ids, HELD * sizeof *ids);
  assert_int_equal(weft_sequence_length(again), HELD);
  float *one = logits_behind(m, q), *two = logits_behind(other, again);
  assert_memory_equal(one, two, (size_t)weft_model_vocab_size(m) * sizeof *one);
  weft_free(got);
  weft_sequence_free(again);
  for (size_t i = 0; i < 60; i++) {  // any bit that is flipped, and any end
    size_t at = i < 30 ? i : n / 31 * (i - 30);
    bytes[at] ^= 4;
    refused(weft_sequence_from_memory(m, bytes, n, &again, NULL, NULL, &err), -2, "state: ");
    bytes[at] ^= 4;
    refused(weft_sequence_from_memory(m, bytes, at, &again, NULL, NULL, &err), -2, "state: ");
  }
  refused(weft_sequence_from_memory(m, NULL, n, &again, NULL, NULL, &err), -2, "state: is empty");
  must(weft_sequence_from_memory(m, bytes, n, &again, NULL, NULL, &err));
  same_logits(m, q, again);
  weft_sequence_free(again);
  weft_model_close(other);
  other = opened("q8_0");
  refused(weft_sequence_from_memory(other, bytes, n, &again, &got, &n_ids, &err), -2, "of another model");
  weft_free(bytes);
  free(one);
  free(two);
  weft_sequence_free(q);
  weft_model_close(other);
}

static void test_an_empty_state(void **state) {
  (void)state;
  weft_model *m = shared_model();
  weft_sequence *q = holding(m, NULL, 0), *again;
  void *bytes;
  int32_t *ids;
  size_t n, n_ids = 9;
  must(weft_sequence_to_memory(q, NULL, &bytes, &n, &err));
  must(weft_sequence_from_memory(m, bytes, n, &again, &ids, &n_ids, &err));
  assert_true(n_ids == 0 && weft_sequence_length(again) == 0);
  weft_free(ids);
  weft_free(bytes);
  weft_sequence_free(q);
  weft_sequence_free(again);
}

// ---- the middle -----------------------------------------------------------------------------------------------------

static void test_removed(void **state) {
  (void)state;
  static const int gaps[][2] = {{0, 1}, {0, HELD}, {100, 1}, {127, 2}, {10, 150}, {HELD - 1, 1}, {HELD, 0}, {50, 0}};
  int32_t ids[N], left[N];
  make_ids(ids, 5);
  weft_model *m = shared_model();
  for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++) {
    int from = gaps[i][0], n = gaps[i][1], end = from + n;
    memcpy(left, ids, (size_t)from * sizeof *ids);
    memcpy(left + from, ids + end, (size_t)(HELD - end) * sizeof *ids);
    weft_sequence *q = holding(m, ids, HELD), *direct = holding(m, left, (size_t)(HELD - n));
    must(weft_sequence_remove(q, ids, from, n, &err));
    assert_int_equal(weft_sequence_length(q), HELD - n);
    same_logits(m, q, direct);
    weft_sequence_free(q);
    weft_sequence_free(direct);
  }
}

static void test_what_cannot_be_removed(void **state) {
  (void)state;
  static const struct {
    int from, n;
    const char *words;
  } bad[] = {{-1, 1, "1 positions from -1 on"},
             {0, -1, "-1 positions"},
             {HELD, 1, "the sequence holds 200"},
             {1, HELD, "holds 200"},
             {51, 1, "part a span"},
             {40, 12, "part a span"},
             {1, 0x7fffffff, "holds 200"}};
  int32_t ids[N];
  make_ids(ids, 7);
  weft_model *m = shared_model();
  size_t width = (size_t)weft_model_row_width(m), n;
  float *floats = calloc(3 * width, sizeof *floats);
  weft_rows *rows;
  must(weft_rows_new(m, &(weft_rows_spec){.floats = floats, .n = 3}, &rows, &err));
  memcpy(ids + 50, weft_rows_ids(rows, &n), 3 * sizeof *ids);
  weft_sequence *q = holding(m, ids, HELD), *direct = holding(m, ids, HELD);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    refused(weft_sequence_remove(q, ids, bad[i].from, bad[i].n, &err), -1, bad[i].words);
    assert_int_equal(weft_sequence_length(q), HELD);
  }
  same_logits(m, q, direct);
  must(weft_sequence_remove(q, ids, 50, 3, &err));  // the whole span
  assert_int_equal(weft_sequence_length(q), HELD - 3);
  weft_sequence_free(q);
  weft_sequence_free(direct);
  weft_rows_free(rows);
  free(floats);
}

// ---- samplers -------------------------------------------------------------------------------------------------------

enum { VOCAB = 50 };
struct own {
  size_t calls, seen, returned;
  int32_t ban, bad;
};

static size_t bans(void *ctx, weft_candidate *c, size_t n) {
  struct own *o = ctx;
  o->calls++;
  o->seen = n;
  for (size_t i = 0; i < n; i++)
    if (c[i].id == o->ban) c[i].logit = n % 2 ? NAN : -INFINITY;
  if (o->bad) c[0].id = o->bad;
  return o->returned != SIZE_MAX ? o->returned : n;
}

static weft_sampler *sampler_with(struct own *o, const char *samplers, int mirostat) {
  weft_sampler *s;
  weft_sampling p = weft_sampling_default();
  assert_int_equal(p.size, sizeof p);
  p.temp = mirostat ? 1 : 0;
  p.mirostat = mirostat;
  p.samplers = samplers;
  p.own = bans;
  p.own_ctx = o;
  must(weft_sampler_new(VOCAB, &p, &s, &err));
  return s;
}

static void test_a_sampler_of_its_own(void **state) {
  (void)state;
  static const struct {
    const char *samplers;
    size_t seen;
    int mirostat;
  } orders[] = {{NULL, VOCAB, 0},
                {"top_k;own;temperature", 40, 0},
                {"own;top_k;temperature", VOCAB, 0},
                {NULL, VOCAB, 1},
                {NULL, VOCAB, 2}};
  float logits[VOCAB];
  for (int i = 0; i < VOCAB; i++) logits[i] = (float)(i * 7 % VOCAB);  // 43 is the likeliest (7 * 43 = 301), then 36
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    struct own o = {.returned = SIZE_MAX, .ban = -1};
    weft_sampler *s = sampler_with(&o, orders[i].samplers, orders[i].mirostat);
    int32_t best, next;
    must(weft_sample(s, logits, &best, &err));
    assert_true(o.calls == 1 && o.seen == orders[i].seen);
    o.ban = best;
    for (int k = 0; k < 20; k++) {
      must(weft_sample(s, logits, &next, &err));
      assert_int_not_equal(next, best);
      if (!orders[i].mirostat) assert_true(logits[next] == logits[best] - 1);
    }
    weft_sampler_free(s);
  }
}

static void test_a_sampler_that_does_wrong(void **state) {
  (void)state;
  static const struct {
    size_t returned;
    int32_t bad;
    const char *words;
  } faults[] = {
    {0, 0, "left none of 50"}, {VOCAB + 1, 0, "51 of 50"}, {SIZE_MAX, VOCAB, "token 50"}, {SIZE_MAX, -3, "token -3"}};
  float logits[VOCAB] = {0};
  int32_t id;
  weft_sampler *s;
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
    struct own o = {.returned = faults[i].returned, .ban = -1, .bad = faults[i].bad};
    s = sampler_with(&o, NULL, 0);
    refused(weft_sample(s, logits, &id, &err), -1, faults[i].words);
    o = (struct own){.returned = SIZE_MAX, .ban = -1};
    must(weft_sample(s, logits, &id, &err));  // the next draw is not concerned
    weft_sampler_free(s);
  }
  weft_sampling p = weft_sampling_default();
  p.samplers = "top_k;own";
  refused(weft_sampler_new(VOCAB, &p, &s, &err), -1, "no sampler 'own'");
  p.own = bans;
  p.samplers = "top_k";
  refused(weft_sampler_new(VOCAB, &p, &s, &err), -1, "does not name it");
}

// ---- sizes ----------------------------------------------------------------------------------------------------------

// Programs of an older header: what lies behind their struct is no field.
static void test_an_older_program(void **state) {
  (void)state;
  weft_options o = {.size = offsetof(weft_options, settings), .context = 99, .chunk = 64, .threads = 1};
  memset((char *)&o + o.size, 0xA5, sizeof o - o.size);
  weft_model *m;
  must(weft_model_open(MODEL, &o, &m, &err));
  assert_int_equal(weft_model_context(m), 99);
  weft_model_close(m);
  struct {
    weft_sampling p;
    unsigned char after[8];
  } s;
  memset(&s, 0xA5, sizeof s);
  weft_sampling_init(&s.p, offsetof(weft_sampling, own));
  const unsigned char *behind = (unsigned char *)&s + offsetof(weft_sampling, own);
  for (const unsigned char *at = behind; at < (unsigned char *)(&s + 1); at++) assert_int_equal(*at, 0xA5);
  weft_sampler *made;
  must(weft_sampler_new(VOCAB, &s.p, &made, &err));  // and the pointer to a sampler is not read
  float logits[VOCAB] = {0};
  int32_t id;
  must(weft_sample(made, logits, &id, &err));
  weft_sampler_free(made);
}

// Programs of a newer header: a field that the library does not know may be 0 only.
static void test_a_newer_program(void **state) {
  (void)state;
  struct {
    weft_options o;
    int more[4];
  } newer = {.o = {.size = sizeof newer, .context = 99, .chunk = 64, .threads = 1}};
  weft_model *m = NULL;
  must(weft_model_open(MODEL, &newer.o, &m, &err));
  weft_model_close(m);
  m = NULL;
  newer.more[2] = 1;
  refused(weft_model_open(MODEL, &newer.o, &m, &err), -1, "weft_options: byte");
  assert_null(m);
  assert_non_null(strstr(err.text, "older than the program"));
}

// Each struct that has a size is taken by it.
static void test_every_struct(void **state) {
  (void)state;
  enum { WRONG = 3 };
  weft_model *m = shared_model();
  weft_template *t;
  void *out[4] = {NULL};
  size_t n[2];
  must(weft_template_open("{{ messages }}", 14, "t", &t, &err));
  refused(weft_model_open(MODEL, &(weft_options){.size = WRONG}, (weft_model **)out, &err), -1,
          "weft_options: its size");
  refused(weft_model_open_memory("", 1, "x", &(weft_options){.size = WRONG}, (weft_model **)out, &err), -1,
          "weft_options: its size");
  refused(weft_sampler_new(VOCAB, &(weft_sampling){.size = WRONG}, (weft_sampler **)out, &err), -1,
          "weft_sampling: its size");
  refused(weft_template_render(t, &(weft_chat){.size = WRONG}, (char **)out, n, &err), -1, "weft_chat: its size");
  refused(weft_template_encode(t, weft_model_vocab(m), &(weft_chat){.size = WRONG}, (char **)out, n,
                               (int32_t **)(out + 1), n + 1, &err),
          -1, "weft_chat: its size");
  refused(weft_tokenize_pair(m, &(weft_pair){.size = WRONG}, (int32_t **)out, n, &err), -1, "weft_pair: its size");
  refused(weft_rows_new(m, &(weft_rows_spec){.size = WRONG}, (weft_rows **)out, &err), -1, "weft_rows_spec: its size");
  refused(weft_media_open(m, "absent", &(weft_media_options){.size = WRONG}, (weft_media **)out, &err), -1,
          "weft_media_options: its size");
  refused(weft_tune(m, &(weft_tune_options){.size = WRONG}, (weft_tuned **)out, &err), -1,
          "weft_tune_options: its size");
  refused(weft_quantize("absent", "x", &(weft_quantize_options){.size = WRONG}, NULL, &err), -1,
          "weft_quantize_options: its size");
  refused(weft_draft_new(m, m, &(weft_draft_options){.size = WRONG}, (weft_draft **)out, &err), -1,
          "weft_draft_options: its size");
  refused(weft_convert("absent", "x", &(weft_convert_options){.size = WRONG}, NULL, &err), -1,
          "weft_convert_options: its size");
  for (int i = 0; i < 4; i++) assert_null(out[i]);
  weft_template_close(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_forked_process),
    cmocka_unit_test(test_through_memory),
    cmocka_unit_test(test_an_empty_state),
    cmocka_unit_test(test_removed),
    cmocka_unit_test(test_what_cannot_be_removed),
    cmocka_unit_test(test_a_sampler_of_its_own),
    cmocka_unit_test(test_a_sampler_that_does_wrong),
    cmocka_unit_test(test_an_older_program),
    cmocka_unit_test(test_a_newer_program),
    cmocka_unit_test(test_every_struct),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  weft_model_close(shared_model());
  return failed;
}
