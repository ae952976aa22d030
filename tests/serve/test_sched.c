// The scheduler while memory is short: answers that wait for it obey their limits, and give way when their clients do.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "engine/caches.h"
#include "engine/engine.h"
#include "serve/sched.h"

enum { CONTEXT = 1024, PARALLEL = 4 };
#define SECONDS 60.0                   // after which a test fails

static void nap(double s) { nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * s)}, NULL); }

static turn_lock one;
static sched *of;
static caches *kv;
static atomic_bool loaded;

static void on_loaded(void *ctx) { (void)ctx; loaded = true; }

// pages: of the cache
static const char *settings[2];        // of the model; NULL: none
static size_t n_settings;
static int chunk = 64;                 // tokens of a prompt's steps
static void begin(int n_keys, int parallel, double max_wait_s, uint64_t pages) {
  error err;
  loaded = false;
  turn_init(&one);
  struct sched_options o = {
    .path = WEFT_SOURCE_DIR "/models/tinypy.gguf",
    .model = {.context = CONTEXT, .threads = 1, .chunk = chunk, .settings = settings, .n_settings = n_settings},
    .n_keys = n_keys,
    .parallel = parallel,
    .max_wait_s = max_wait_s,
    .turn = &one,
    .loaded = on_loaded};
  if (sched_start(&o, &of, &err)) fail_msg("%s", err.text);
  for (double until = now_s() + SECONDS; !loaded; nap(0.001))
    if (now_s() > until) fail_msg("the model is not loaded");
  assert_int_equal(sched_state(of), SCHED_READY);
  kv = engine_sequence(weft_model_beside(sched_model(of)))->of;
  kv->room = pages * kv->page_bytes[0];
}

static void end(void) {
  sched_stop(of);
  sched_free(of);
  turn_destroy(&one);
}

static double yields(void) {
  struct sched_counts c;
  sched_counts(of, &c);
  return c.yields;
}

// slow: pauses after each token from the time when an answer has given way
typedef struct client {
  request r;
  bool slow;
  int32_t ids[CONTEXT];
  atomic_int tokens, ended;
  int finish, status;
  struct client *leaves;               // leaves when the third page of this one's prompt is read
} client;

static void on_event(void *ctx, event *e) {
  client *c = ctx;
  if (e->kind == EVENT_TOKEN && e->id >= 0) c->ids[c->tokens++] = e->id;
  if (e->kind == EVENT_TOKEN && c->slow && yields() > 0) nap(0.03);
  if (e->kind == EVENT_PROMPT && c->leaves && e->done > 2 * CACHE_PAGE) {
    kv->room = 3 * kv->page_bytes[0];
    sched_cancel(of, &c->leaves->r);
    c->leaves = NULL;
  }
  bool over = e->kind == EVENT_END || e->kind == EVENT_FAILED;
  if (over) c->finish = e->kind == EVENT_END ? (int)e->finish : -1, c->status = e->status;
  event_free(e);
  if (over) c->ended++;
}

static client *ask(client *c, int seed, int prompt, int64_t most) {
  *c = (client){.r = {.sampling = weft_sampling_default(), .ignore_end = true, .max_tokens = most, .n = 1, .slot = -1,
                      .event = on_event, .ctx = c}};
  c->r.sampling.temp = 0;
  for (int i = 0; i < prompt; i++) vec_push(&c->r.prompt, 100 + (7 * i + 13 * seed) % 150);
  return c;
}

static client *embed(client *c, int seed, int n) {
  ask(c, seed, n, 0)->r.embeds = true;
  c->r.pooling = WEFT_POOLING_MEAN;
  vec_push(&c->r.lengths, (size_t)n);
  return c;
}

static void submit(client *c) {
  fault f = {0};
  request *r = &c->r;
  assert_int_equal(sched_submit(of, &r, 1, &f), 0);
}

static void wait_for(const atomic_int *what, int least) {
  double until = now_s() + SECONDS;
  while (*what < least) {
    if (now_s() > until) fail_msg("it did not happen");
    nap(0.001);
  }
}

static void wait_for_yield(void) {
  double until = now_s() + SECONDS;
  while (!yields()) {
    if (now_s() > until) fail_msg("no answer gave way");
    nap(0.001);
  }
}

// Until two steps have ended with n requests.
static void steps_with(int n) {
  struct sched_counts now;
  double until = now_s() + SECONDS, first = -1;
  do {
    nap(0.001);
    sched_counts(of, &now);
    if (now.running == n && first < 0) first = now.steps;
    if (now_s() > until) fail_msg("there are not %d requests", n);
  } while (first < 0 || now.steps < first + 2);
}

// The first answer takes the third page when the other one has begun, and lasts for some four seconds more.
static void the_time_of_an_answer_passes_while_it_waits(void **s) {
  (void)s;
  client a, b;
  begin(1, PARALLEL, 0, 3);
  ask(&a, 1, 210, 170)->slow = true;
  submit(&a);
  ask(&b, 2, 60, 400)->r.max_answer_s = 2;
  wait_for(&a.tokens, 1);
  submit(&b);
  wait_for(&b.ended, 1);
  assert_int_equal(a.ended, 0);
  assert_true(yields() > 0 && b.tokens > 0);
  assert_int_equal(b.finish, FINISH_TIME);
  wait_for(&a.ended, 1);
  assert_int_equal(a.tokens, 170);
  end();
  request_clear(&a.r);
  request_clear(&b.r);
}

// A text waits for memory, so no answer begins; this one's place is free when its client leaves.
static void who_leaves_before_the_beginning_gives_the_place_back(void **s) {
  (void)s;
  client a, b, text, c;
  begin(1, 3, 0, 3);
  ask(&a, 1, 250, 130)->slow = true;
  ask(&b, 2, 120, 400);
  submit(&a);
  wait_for(&a.tokens, 1);
  submit(&b);
  wait_for_yield();
  sched_cancel(of, &b.r);
  wait_for(&b.ended, 1);
  submit(embed(&text, 3, 300));
  steps_with(2);
  submit(ask(&c, 4, 50, 5));
  steps_with(3);
  sched_cancel(of, &c.r);
  wait_for(&c.ended, 1);
  assert_int_equal(a.ended, 0);
  assert_int_equal(text.ended, 0);
  assert_int_equal(c.finish, FINISH_GONE);
  wait_for(&text.ended, 1);
  assert_int_equal(text.finish, FINISH_STOP);
  assert_int_equal(a.tokens, 130);
  end();
  request_clear(&a.r); request_clear(&b.r); request_clear(&text.r); request_clear(&c.r);
}

static void what_waits_for_memory_waits_no_longer_than_it_may(void **s) {
  (void)s;
  client a, b, text[2], c;
  begin(1, 5, 0.4, 3);
  ask(&a, 1, 250, 130)->slow = true;
  submit(&a);
  wait_for(&a.tokens, 1);
  submit(ask(&b, 2, 120, 400));
  wait_for_yield();
  sched_cancel(of, &b.r);
  wait_for(&b.ended, 1);
  submit(embed(&text[0], 3, 300));
  steps_with(2);
  submit(ask(&c, 4, 50, 5));
  nap(0.2);                            // so that this one still waits when c has waited too long
  submit(embed(&text[1], 5, 300));
  wait_for(&text[1].ended, 1);
  wait_for(&c.ended, 1);
  assert_int_equal(a.ended, 0);
  assert_int_equal(text[0].ended, 1);
  assert_true(text[0].status == 429 && text[1].status == 429 && c.status == 429);
  wait_for(&a.ended, 1);
  assert_int_equal(a.tokens, 130);
  end();
  request_clear(&a.r); request_clear(&b.r); request_clear(&text[0].r); request_clear(&text[1].r); request_clear(&c.r);
}

// b is older and shorter than a, but began after it and finds no page: a is read on.
static void a_prompt_without_memory_does_not_stop_the_first_one(void **s) {
  (void)s;
  client x, y, a, b;
  fault f = {0};
  request *both[2] = {&b.r, &a.r};
  begin(2, 2, 0, 100);
  submit(ask(&x, 1, 10, -1));
  submit(ask(&y, 2, 10, -1));
  wait_for(&y.tokens, 1);
  wait_for(&x.tokens, 1);
  ask(&a, 3, 380, 2)->leaves = &y;
  ask(&b, 4, 100, 2)->r.key = 1;
  assert_int_equal(sched_submit(of, both, 2, &f), 0);
  sched_cancel(of, &x.r);
  wait_for(&a.ended, 1);
  wait_for(&b.ended, 1);
  assert_true(y.ended && a.tokens == 2 && b.tokens == 2);
  end();
  request_clear(&x.r); request_clear(&y.r); request_clear(&a.r); request_clear(&b.r);
}

// With windows of 40, of which a sequence holds six pages and a longer one no more; and without.
static void who_gives_way_says_what_it_would_say_alone(void **s) {
  enum { N = 5, ANSWER = 300 };
  static client alone[N], c[N];
  for (int windows = 0; windows < 2; windows++) {
    settings[0] = "{arch}.attention.sliding_window=int:40";
    n_settings = (size_t)windows;
    begin(1, N, 0, 1000);
    for (int i = 0; i < N; i++) {
      submit(ask(&alone[i], i, 500 + 40 * i, ANSWER));
      wait_for(&alone[i].ended, 1);
    }
    assert_true(!yields());
    end();
    begin(1, N, 0, 15);
    for (int i = 0; i < N; i++) submit(ask(&c[i], i, 500 + 40 * i, ANSWER));
    for (int i = 0; i < N; i++) {
      wait_for(&c[i].ended, 1);
      assert_int_equal(c[i].finish, FINISH_LENGTH);
      assert_int_equal(c[i].tokens, ANSWER);
      assert_memory_equal(c[i].ids, alone[i].ids, ANSWER * sizeof *c->ids);
      request_clear(&c[i].r);
      request_clear(&alone[i].r);
    }
    assert_true(yields() > 0);
    end();
  }
  n_settings = 0;
  (void)s;
}

// n rows of floats that see each other both ways, whose ids follow in the prompt; they are evaluated at once.
static weft_rows *span_of(int n, const int32_t **ids) {
  weft_model *m = sched_model(of);
  weft_rows *rows;
  weft_error err;
  size_t width = (size_t)weft_model_row_width(m), k;
  float *f = xcalloc((size_t)n * width, sizeof *f);
  for (size_t i = 0; i < (size_t)n * width; i++) f[i] = (float)((i * 2654435761u >> 7) % 13) * 0.05f - 0.3f;
  weft_rows_spec spec = {.floats = f, .n = (size_t)n, .both_ways = true};
  if (weft_rows_new(m, &spec, &rows, &err)) fail_msg("%s", err.text);
  free(f);
  *ids = weft_rows_ids(rows, &k);
  assert_int_equal(k, n);
  return rows;
}

// An answer goes on while another prompt, which begins with a span, has no memory for it; that one follows.
static void a_span_without_memory_waits(void **s) {
  (void)s;
  static client a, b;
  const int32_t *ids;
  chunk = 512;
  begin(1, PARALLEL, 0, 4);
  weft_rows *rows = span_of(300, &ids);
  ask(&a, 1, 200, 200);
  submit(&a);
  wait_for(&a.tokens, 60);             // three pages
  ask(&b, 2, 0, 5);
  for (int i = 0; i < 300; i++) vec_push(&b.r.prompt, ids[i]);
  vec_push(&b.r.prompt, 102);
  submit(&b);
  wait_for(&a.ended, 1);
  wait_for(&b.ended, 1);
  assert_int_equal(a.finish, FINISH_LENGTH);
  assert_int_equal(a.tokens, 200);
  assert_int_equal(b.finish, FINISH_LENGTH);
  weft_rows_free(rows);
  end();
  chunk = 64;
  request_clear(&a.r);
  request_clear(&b.r);
}

// What is reserved for windows and short steps serves a long step as if nothing had been reserved.
static void a_span_after_a_reservation(void **s) {
  (void)s;
  enum { SPAN = 900 };
  const int32_t *ids, after[] = {102, 103, 104};
  weft_error err;
  settings[0] = "{arch}.attention.sliding_window=int:40";
  settings[1] = "{arch}.attention.sliding_window_pattern=int:2";
  n_settings = 2;
  begin(1, PARALLEL, 0, 1000);
  weft_model *m = sched_model(of);
  weft_rows *rows = span_of(SPAN, &ids);
  size_t n = (size_t)weft_model_vocab_size(m);
  float *out[2];
  for (int t = 0; t < 2; t++) {
    weft_sequence *q;
    if (weft_sequence_new(m, &q, &err)) fail_msg("%s", err.text);
    // in a model of its own each would meet the chunk that it begins with: the reservation comes first
    if (!t && weft_sequence_reserve(q, SPAN + COUNT(after), &err)) fail_msg("%s", err.text);
    weft_tokens x = {.sequence = q, .ids = ids, .n = SPAN};
    if (weft_step(m, &x, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
    x = (weft_tokens){.sequence = q, .ids = after, .n = COUNT(after)};
    if (weft_step(m, &x, 1, NULL, NULL, &err)) fail_msg("%s", err.text);
    out[t] = xmalloc(n * sizeof *out[t]);
    memcpy(out[t], x.logits, n * sizeof *out[t]);
    weft_sequence_free(q);
  }
  assert_memory_equal(out[0], out[1], n * sizeof *out[0]);
  free(out[0]);
  free(out[1]);
  weft_rows_free(rows);
  end();
  n_settings = 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_time_of_an_answer_passes_while_it_waits),
    cmocka_unit_test(who_leaves_before_the_beginning_gives_the_place_back),
    cmocka_unit_test(what_waits_for_memory_waits_no_longer_than_it_may),
    cmocka_unit_test(a_prompt_without_memory_does_not_stop_the_first_one),
    cmocka_unit_test(who_gives_way_says_what_it_would_say_alone),
    cmocka_unit_test(a_span_without_memory_waits),
    cmocka_unit_test(a_span_after_a_reservation),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
