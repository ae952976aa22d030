// The public API on top of an engine of this test's own: what weft.c checks before it lets anything through, and that
// everything it hands out is as weft.h says.  (The functions engine_* below take the place of the real ones.)
#include "weft.h"
#include "engine/engine.h"
#include "engine/float_rows.h"
#include "engine/trace.h"
#include "engine/profile.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { CONTEXT = 16 };

struct engine {
  gguf *g;
  tokenizer *t;
  float *logits;
  int n_calls, fail_at, pooling;
  float poison;
  bool encoder;
  float_table *rows;
};
static struct engine *last;      // so that a test can reach into the engine

int engine_open(const char *path, const struct engine_options *opt, engine **out, error *err) {
  gguf *g;
  if (gguf_open(path, &g, err)) return -1;
  engine *e = xcalloc(1, sizeof *e);
  e->g = g;
  if (tokenizer_from_gguf(g, &e->t, err)) die("no tokenizer: %s", err->text);
  e->logits = xcalloc((size_t)tokenizer_n_vocab(e->t), sizeof *e->logits);
  e->fail_at = -1;
  e->rows = float_table_new();
  if (opt->progress) opt->progress(opt->progress_ctx, "loading", 1);
  *out = last = e;
  return 0;
}

void engine_close(engine *e) {
  if (!e) return;
  tokenizer_free(e->t);
  gguf_close(e->g);
  float_table_free(e->rows);
  free(e->logits);
  free(e);
}

void engine_promote_pages(engine *e) { (void)e; }
int engine_check(const engine *e, error *err) { (void)e; (void)err; return 0; }
const gguf *engine_gguf(const engine *e) { return e->g; }
const tokenizer *engine_tokenizer(const engine *e) { return e->t; }
int engine_n_vocab(const engine *e) { return tokenizer_n_vocab(e->t); }
int engine_n_ctx(const engine *e) { (void)e; return CONTEXT; }
float_table *engine_float_table(engine *e) { return e->rows; }
int engine_n_floats(const engine *e) { (void)e; return 4; }
bool engine_has_sections(const engine *e) { (void)e; return true; }

static void make_logits(engine *e, int32_t id, int pos) {
  for (int i = 0; i < engine_n_vocab(e); i++) e->logits[i] = (float)((i * 31 + id + pos) % 97);
  if (e->poison != 0) e->logits[3] = e->poison;
}

int engine_run(engine *e, engine_batch *b, error *err) {
  engine_part *p = b->parts;
  const float sums[1] = {1};
  bool each = p->row && p->want == WANT_LOGITS, go_on = true;
  for (p->evaluated = 0; go_on && p->evaluated < (each ? p->n : 1); p->evaluated++) {
    size_t i = each ? p->evaluated : p->n - 1;
    if (e->n_calls++ == e->fail_at) return error_set(err, "the engine failed");
    if (p->want == WANT_LOGITS) make_logits(e, p->ids[i], p->pos + (each ? (int)i : 0));
    if (each && i >= p->n - p->rows) go_on = p->row(p->ctx, i, e->logits);
  }
  if (p->want == WANT_SUMS) p->see(p->ctx, 0, sums, NULL, p->n);
  for (size_t i = 0; p->want == WANT_HIDDEN && go_on && i < p->n; i++)
    go_on = p->row(p->ctx, i, (float[]){(float)p->ids[i], e->poison != 0 ? e->poison : (float)i});
  if (!each) p->evaluated = p->n;
  p->logits = e->logits;
  return 0;
}

void engine_stats(const engine *e, struct engine_stats *out) {
  (void)e;
  *out = (struct engine_stats){.load_ms = 1,
                               .compile_ms = 2,
                               .kernels_compiled = 3,
                               .plans_scheduled = 9,
                               .kernels_per_token = 4,
                               .kernels_per_block = 5,
                               .fusion_rate = 6,
                               .kv_bytes = 7,
                               .peak_rss_bytes = 8};
}

void engine_watch(engine *e, engine_go_on *go_on, void *ctx) { (void)e; (void)go_on; (void)ctx; }
bool engine_ended(const engine *e) { (void)e; return false; }
int engine_chunk(const engine *e) { (void)e; return 8; }
int engine_n_embd(const engine *e) { (void)e; return 2; }
bool engine_is_encoder(const engine *e) { return e->encoder; }
bool engine_denoises(const engine *e) { (void)e; return false; }
int engine_pooling(const engine *e) { return e->pooling; }

int profile_run(engine *e, int prompt, int steps, int pos, struct profile *out, error *why) {
  *out = (struct profile){.rows = xcalloc(2, sizeof *out->rows), .n_rows = 2};
  if (e->n_calls++ == e->fail_at) return error_set(why, "the profile failed");
  snprintf(out->rows[0].name, sizeof out->rows[0].name, "r_%d_%d", steps, pos);
  snprintf(out->rows[1].role, sizeof out->rows[1].role, "output");
  out->rows[0].us = 3;
  out->rows[1].us = 2;
  out->tokens = prompt ? prompt : 1;
  out->us = 6; out->overhead_us = 1; out->limit_gb_s = 40;
  out->dispatches = 12; out->n_layer = 4; out->graph_ops = 36;
  return 0;
}

int trace_run(engine *e, int prompt, int steps, int pos, str *out, error *why) {
  (void)e, (void)prompt, (void)steps, (void)pos, (void)out;
  return error_set(why, "nothing to look at");
}

void profile_free(struct profile *p) { free(p->rows); }

static const char *path = WEFT_SOURCE_DIR "/models/tinypy.gguf";
static weft_error err;

static void mentions(const char *expected) {
  if (!strstr(err.text, expected)) fail_msg("'%s' does not mention '%s'", err.text, expected);
}

static weft_model *open_model(void) {
  weft_model *m = NULL;
  if (weft_model_open(path, NULL, &m, &err)) fail_msg("%s", err.text);
  return m;
}

static void test_decode_checks(void **state) {
  (void)state;
  weft_model *m = open_model();
  const float *logits = NULL;
  int32_t ids[CONTEXT + 1] = {0}, n_vocab = weft_model_vocab_size(m);
  assert_int_equal(weft_decode(m, ids, 0, 0, &logits, &err), -1);
  mentions("no tokens");
  assert_int_equal(weft_decode(m, ids, 1, 1, &logits, &err), -1);
  mentions("position 1");
  assert_int_equal(weft_decode(m, ids, 1, -1, &logits, &err), -1);
  assert_int_equal(weft_decode(m, ids, CONTEXT + 1, 0, &logits, &err), -1);
  mentions("17 tokens");
  mentions("16");
  assert_int_equal(weft_decode(m, ids, SIZE_MAX, 0, &logits, &err), -1);
  ids[1] = -1;
  assert_int_equal(weft_decode(m, ids, 2, 0, &logits, &err), -1);
  mentions("token id -1 (number 2 of 2)");
  ids[1] = n_vocab;
  assert_int_equal(weft_decode(m, ids, 2, 0, &logits, &err), -1);
  mentions("2047");
  assert_int_equal(weft_decode(m, ids, 2, 0, &logits, NULL), -1);   // without an error text
  assert_int_equal(last->n_calls, 0);                               // nothing of this reached the engine
  assert_null(logits);
  ids[1] = n_vocab - 1;
  assert_int_equal(weft_decode(m, ids, 2, 0, &logits, &err), 0);
  assert_non_null(logits);
  assert_int_equal(weft_decode(m, ids, CONTEXT - 2, 2, NULL, &err), 0);
  assert_int_equal(weft_decode(m, ids, 1, CONTEXT, &logits, &err), -1);   // full
  mentions("context of 16");
  assert_int_equal(weft_decode(m, ids, 1, 5, &logits, &err), 0);          // back to 5 ...
  assert_int_equal(weft_decode(m, ids, 1, 7, &logits, &err), -1);         // ... so that 6 is the next
  weft_model_close(m);
}

static bool count_rows(void *ctx, size_t i, const float *logits) {
  (void)logits;
  *(size_t *)ctx += i;
  return i < 3;
}

static void test_rows(void **state) {
  (void)state;
  weft_model *m = open_model();
  int32_t ids[4] = {1, 2, 3, 4};
  size_t sum = 0;
  const float *logits;
  assert_int_equal(weft_decode_rows(m, ids, 4, 0, 4, count_rows, &sum, &err), -1);
  mentions("from token 4 on");
  assert_int_equal(weft_decode_rows(m, ids, 4, 1, 0, count_rows, &sum, &err), -1);
  assert_int_equal(last->n_calls, 0);
  assert_int_equal(weft_decode_rows(m, ids, 4, 0, 1, count_rows, &sum, &err), 0);
  assert_int_equal(sum, 1 + 2 + 3);
  assert_int_equal(weft_decode(m, ids, 1, 4, &logits, &err), 0);
  last->poison = NAN;
  assert_int_equal(weft_decode_rows(m, ids, 4, 0, 0, count_rows, &sum, &err), -1);
  mentions("token 3 at position 0");
  weft_model_close(m);
}

static void test_a_failure_keeps_what_was_before(void **state) {
  (void)state;
  weft_model *m = open_model();
  int32_t ids[4] = {1, 2, 3, 4};
  const float *logits;
  assert_int_equal(weft_decode(m, ids, 4, 0, &logits, &err), 0);
  last->fail_at = last->n_calls;
  assert_int_equal(weft_decode(m, ids, 2, 2, &logits, &err), -1);
  mentions("the engine failed");
  assert_int_equal(weft_decode(m, ids, 1, 3, &logits, &err), -1);
  assert_int_equal(weft_decode(m, ids, 1, 2, &logits, &err), 0);
  weft_model_close(m);
}

static void test_logits_that_are_no_numbers(void **state) {
  (void)state;
  weft_model *m = open_model();
  int32_t id = 1;
  const float *logits;
  last->poison = NAN;
  assert_int_equal(weft_decode(m, &id, 1, 0, &logits, &err), -1);
  mentions("token 3 at position 0");
  mentions("tinypy.gguf");
  last->poison = INFINITY;
  assert_int_equal(weft_decode(m, &id, 1, 0, &logits, &err), -1);
  mentions("infinite");
  last->poison = -INFINITY;
  assert_int_equal(weft_decode(m, &id, 1, 0, &logits, &err), 0);
  weft_model_close(m);
}

static void note(void *ctx, const char *what, double fraction) {
  if (!strcmp(what, "loading") && fraction == 1) ++*(int *)ctx;
}

static void test_options(void **state) {
  (void)state;
  weft_model *m = NULL;
  int n = 0;
  weft_options bad[] = {{.context = -1}, {.threads = -1}, {.threads = 100000}, {.chunk = -1}};
  for (size_t i = 0; i < COUNT(bad); i++) assert_int_equal(weft_model_open(path, &bad[i], &m, &err), -1);
  assert_int_equal(weft_model_open("no such file.gguf", NULL, &m, &err), -1);
  mentions("no such file.gguf");
  assert_null(m);
  assert_int_equal(weft_model_open(path, &(weft_options){.threads = 3, .progress = note, .progress_ctx = &n}, &m, &err),
                   0);
  assert_int_equal(n, 1);
  assert_int_equal(weft_model_threads(m), 3);
  assert_int_equal(weft_model_context(m), CONTEXT);
  weft_stats stats;
  weft_model_stats(m, &stats);
  assert_true(stats.load_ms == 1 && stats.compile_ms == 2 && stats.kernels_compiled == 3 &&
              stats.plans_scheduled == 9 && stats.kernels_per_token == 4 && stats.kernels_per_block == 5 &&
              stats.fusion_rate == 6 && stats.kv_bytes == 7 && stats.peak_rss_bytes == 8);
  weft_model_close(m);
  weft_model_close(NULL);
}

static void test_file(void **state) {
  (void)state;
  weft_file *f = NULL;
  assert_int_equal(weft_file_open("no such file", &f, &err), -1);
  assert_int_equal(weft_file_open(path, &f, &err), 0);
  size_t i;
  weft_value v, elem;
  assert_int_equal(weft_file_find(f, "no such key", &i), -1);
  assert_int_equal(weft_file_find(f, "general.architecture", &i), 0);
  assert_string_equal(weft_file_key(f, i), "general.architecture");
  assert_int_equal(weft_file_value(f, i, &v), 0);
  assert_int_equal(v.type, WEFT_STRING);
  assert_true(v.n == 5 && !memcmp(v.text, "llama", 5));
  assert_int_equal(weft_file_element(f, i, 0, &elem), -1);
  char *text = weft_file_value_text(f, i, 8);
  assert_string_equal(text, "\"llama\"");
  weft_free(text);
  assert_int_equal(weft_file_find(f, "tokenizer.ggml.tokens", &i), 0);
  assert_int_equal(weft_file_value(f, i, &v), 0);
  assert_true(v.type == WEFT_ARRAY && v.elem == WEFT_STRING && v.n == 2048);
  assert_int_equal(weft_file_element(f, i, 1, &elem), 0);
  assert_true(elem.type == WEFT_STRING && elem.n == 1 && elem.text[0] == '!');
  assert_int_equal(weft_file_element(f, i, 2048, &elem), -1);
  assert_int_equal(weft_file_value(f, weft_file_n_keys(f), &v), -1);
  assert_null(weft_file_key(f, weft_file_n_keys(f)));
  uint64_t bytes = 0, elements = 0;
  weft_tensor t;
  for (i = 0; !weft_file_tensor(f, i, &t); i++) { bytes += t.bytes; elements += t.n_elements; }
  assert_true(i == weft_file_n_tensors(f) && bytes == weft_file_tensor_bytes(f) && elements == weft_file_n_params(f));
  assert_true(weft_file_version(f) == 3 && weft_file_n_parts(f) == 1 && weft_file_alignment(f) == 32);
  text = weft_file_summary(f);
  assert_string_equal(text, "llama 5.2M Q8_0");
  weft_free(text);
  weft_file_close(f);
  weft_file_close(NULL);
}

static void test_vocab(void **state) {
  (void)state;
  weft_file *f;
  weft_vocab *v;
  assert_int_equal(weft_file_open(path, &f, &err), 0);
  assert_int_equal(weft_vocab_open(f, &v, &err), 0);
  int32_t *ids, bad[] = {1, 2048};
  size_t n, n_text;
  const char text[] = "def f(x):\n    return '\xC3\xA9'\0<|endoftext|>";
  char *back;
  assert_int_equal(weft_tokenize(v, text, sizeof text - 1, WEFT_ADD_SPECIAL, &ids, &n, &err), 0);
  assert_int_equal(ids[0], weft_bos(v));
  for (size_t i = 1; i < n; i++) assert_false(weft_is_end(v, ids[i]));
  assert_int_equal(weft_detokenize(v, ids, n, false, &back, &n_text, &err), 0);
  assert_int_equal(n_text, sizeof text - 1);
  assert_memory_equal(back, text, sizeof text);
  weft_free(back);
  // The stream gives the same text, and never a part of a character.
  weft_stream *s = weft_stream_new(v, false);
  char collected[64] = "";
  size_t at = 0;
  for (size_t i = 0; i < n; i++) {
    const char *piece = weft_stream_add(s, ids[i], &n_text);
    char *valid = weft_utf8(piece, n_text, &n_text);
    assert_memory_equal(valid, piece, n_text);
    memcpy(collected + at, piece, n_text);
    at += n_text;
    weft_free(valid);
  }
  weft_stream_end(s, &n_text);
  assert_int_equal(n_text, 0);
  assert_int_equal(at, sizeof text - 1);
  assert_memory_equal(collected, text, at);
  weft_free(ids);
  // An unfinished character is held back, and ends as U+FFFD.
  assert_int_equal(weft_tokenize(v, "\xC3\xA9", 2, 0, &ids, &n, &err), 0);
  weft_stream_add(s, ids[0], &n_text);
  if (n == 2) {
    assert_int_equal(n_text, 0);
    assert_string_equal(weft_stream_end(s, &n_text), "\xEF\xBF\xBD");
  }
  weft_free(ids);
  weft_stream_free(s);
  assert_int_equal(weft_tokenize(v, "<|endoftext|>", 13, WEFT_PARSE_SPECIAL, &ids, &n, &err), 0);
  assert_true(n == 1 && weft_is_end(v, ids[0]) && ids[0] == weft_eos(v));
  weft_free(ids);
  assert_int_equal(weft_detokenize(v, bad, 2, false, &back, &n_text, &err), -1);
  mentions("2048");
  assert_false(weft_is_end(v, -1));
  assert_false(weft_is_end(v, 1 << 30));
  weft_vocab_close(v);
  weft_file_close(f);
}

static void test_sampling(void **state) {
  (void)state;
  weft_model *m = open_model();
  weft_sampler *s = NULL;
  int32_t id = 7, first;
  const float *logits;
  assert_int_equal(weft_decode(m, &id, 1, 0, &logits, &err), 0);
  weft_sampling p = weft_sampling_default();
  p.temp = -1;
  assert_int_equal(weft_sampler_new(weft_model_vocab_size(m), &p, &s, &err), -1);
  mentions("temperature");
  p.temp = 0;
  assert_int_equal(weft_sampler_new(weft_model_vocab_size(m), &p, &s, &err), 0);
  assert_int_equal(weft_sample(s, logits, &first, &err), 0);
  double of_id;
  weft_logprob top[3];
  assert_int_equal(weft_logprobs(logits, weft_model_vocab_size(m), first, &of_id, top, 3, &err), 0);
  assert_true(top[0].id == first && top[0].logprob == of_id && top[0].logprob >= top[1].logprob);
  assert_int_equal(weft_logprobs(logits, 10, 10, &of_id, NULL, 0, &err), -1);
  assert_int_equal(weft_logprobs(logits, 10, 1, &of_id, top, 11, &err), -1);
  assert_int_equal(weft_accept(s, -1, &err), -1);
  assert_int_equal(weft_accept(s, weft_model_vocab_size(m), &err), -1);
  assert_int_equal(weft_accept(s, first, &err), 0);
  assert_int_equal(weft_sampler_bias(s, first, NAN, &err), -1);
  assert_int_equal(weft_sampler_bias(s, first, -INFINITY, &err), 0);
  assert_int_equal(weft_sample(s, logits, &id, &err), 0);
  assert_int_not_equal(id, first);
  assert_int_equal(weft_sampler_bias(s, weft_eos(weft_model_vocab(m)), 1000, &err), 0);
  assert_int_equal(weft_sample(s, logits, &id, &err), 0);
  assert_true(weft_is_end(weft_model_vocab(m), id));
  weft_sampler_ignore_end(s, weft_model_vocab(m));
  assert_int_equal(weft_sample(s, logits, &id, &err), 0);
  assert_false(weft_is_end(weft_model_vocab(m), id));
  weft_sampler_free(s);
  weft_model_close(m);
}

static void test_profile(void **state) {
  (void)state;
  weft_model *m = open_model();
  weft_profile *p = NULL;
  int32_t ids[4] = {1, 2, 3, 4};
  static const struct { int prompt, steps, pos; const char *expected;
  } bad[] = {{0, 0, 0, "0 steps"},
             {0, 10001, 0, "10001 steps"},
             {-1, 1, 0, "-1 tokens"},
             {9, 1, 0, "9 tokens"},
             {0, 1, -1, "position -1"},
             {0, 1, 5, "position 5"},
             {0, 13, 4, "13 tokens from position 4"},
             {8, 1, 4, NULL},
             {0, 12, 4, NULL},
             {8, 10000, 0, NULL}};
  for (size_t i = 0; i < COUNT(bad); i++) {
    assert_int_equal(weft_decode(m, ids, 4, 0, NULL, &err), 0);
    int calls = last->n_calls, status = weft_profile_model(m, bad[i].prompt, bad[i].steps, bad[i].pos, &p, &err);
    assert_int_equal(status, bad[i].expected ? -1 : 0);
    assert_int_equal(last->n_calls, calls + !bad[i].expected);
    if (bad[i].expected) { mentions(bad[i].expected); assert_null(p); continue; }
    weft_profile_free(p);
    p = NULL;
  }
  assert_int_equal(weft_decode(m, ids, 4, 0, NULL, &err), 0);
  assert_int_equal(weft_profile_model(m, 0, 5, 3, &p, &err), 0);
  assert_true(p->n_kernels == 2 && p->tokens == 1 && p->us == p->overhead_us + p->kernels[0].us + p->kernels[1].us &&
              p->limit_gb_s == 40);
  assert_true(p->kernels_per_step == 12 && p->kernels_per_block == 3 && p->fusion_rate == 3);
  assert_string_equal(p->kernels[0].name, "r_5_3");
  assert_string_equal(p->kernels[1].role, "output");
  weft_profile_free(p);
  weft_profile_free(NULL);
  // what was profiled is lost, what lay before it is not
  assert_int_equal(weft_decode(m, ids, 1, 4, NULL, &err), -1);
  assert_int_equal(weft_decode(m, ids, 1, 3, NULL, &err), 0);
  last->fail_at = last->n_calls;
  assert_int_equal(weft_profile_model(m, 0, 5, 3, &p, &err), -1);
  mentions("the profile failed");
  weft_model_close(m);
}

static void test_template(void **state) {
  (void)state;
  static const char text[] = "{% for m in messages %}[{{ m.content }}]{% endfor %}{{ x }}{{ tools[0].name if tools "
                             "}}{{ bos_token }}{{ eos_token }}{% if add_generation_prompt %}>{% endif %}";
  static const char messages[] = "[{\"content\": \"a\"}, {\"content\": \"\\u00e9\"}]trailing",
                    tools[] = "[{\"name\": \"f\"}]", variables[] = "{\"x\": 1}";
  weft_template *t;
  weft_chat chat = {.messages = messages, .n_messages = sizeof messages - 9};
  char *out;
  size_t n;
  assert_int_equal(weft_template_open(text, sizeof text - 1, "mine", &t, &err), 0);
  assert_int_equal(weft_template_render(t, &chat, &out, &n, &err), 0);
  assert_string_equal(out, "[a][\xC3\xA9]>");
  assert_int_equal(n, strlen(out));
  weft_free(out);
  chat = (weft_chat){.messages = messages,
                     .n_messages = sizeof messages - 9,
                     .tools = tools,
                     .n_tools = sizeof tools - 1,
                     .variables = variables,
                     .n_variables = sizeof variables - 1,
                     .no_generation_prompt = true,
                     .bos = "B",
                     .eos = "E"};
  assert_int_equal(weft_template_render(t, &chat, &out, &n, &err), 0);
  assert_string_equal(out, "[a][\xC3\xA9]1fBE");
  weft_free(out);
  chat.n_messages++;
  assert_int_equal(weft_template_render(t, &chat, &out, &n, &err), -1);
  mentions("messages: line 1");
  assert_int_equal(weft_template_render(t, &(weft_chat){0}, &out, &n, NULL), -1);
  weft_template_close(t);
  weft_template_close(NULL);
  assert_int_equal(weft_template_open("{{ x", 4, "mine", &t, &err), -1);
  mentions("mine: line 1: ");
  assert_int_equal(weft_template_open(NULL, 0, "empty", &t, &err), 0);
  weft_template_close(t);
  weft_file *f;
  assert_int_equal(weft_file_open(path, &f, &err), 0);
  assert_int_equal(weft_template_of_file(f, false, &t, &err), -1);
  mentions("tokenizer.chat_template");
  weft_file_close(f);
}

static void test_embedding(void **state) {
  (void)state;
  weft_model *m = open_model();
  const int32_t ids[] = {3, 5, 10};
  float v[6];
  enum weft_pooling how;
  assert_int_equal(weft_model_embedding_size(m), 2);
  assert_false(weft_model_only_embeds(m));
  assert_int_equal(weft_embed(m, ids, 3, WEFT_POOLING_MEAN, v, &err), 0);
  assert_true(v[0] == 6 && v[1] == 1);
  assert_int_equal(weft_embed(m, ids, 3, WEFT_POOLING_CLS, v, &err), 0);
  assert_true(v[0] == 3 && v[1] == 0);
  assert_int_equal(weft_embed(m, ids, 3, WEFT_POOLING_LAST, v, &err), 0);
  assert_true(v[0] == 10 && v[1] == 2);
  last->pooling = WEFT_POOLING_MODEL;                   // the file says nothing: none
  assert_int_equal(weft_embed(m, ids, 3, WEFT_POOLING_MODEL, v, &err), 0);
  assert_true(v[0] == 3 && v[2] == 5 && v[5] == 2);
  last->pooling = WEFT_POOLING_LAST;
  assert_int_equal(weft_model_pooling(m, &how, &err), 0);
  assert_int_equal(how, WEFT_POOLING_LAST);
  last->pooling = WEFT_POOLING_RANK;                    // scores, of what the last token saw
  assert_int_equal(weft_embed(m, ids, 3, WEFT_POOLING_MODEL, v, &err), 0);
  assert_true(v[0] == 10 && v[1] == 2);
  assert_int_equal(weft_embed(m, ids, 3, WEFT_POOLING_MEAN, v, &err), -1);
  mentions("ranks texts, and makes no vectors");
  last->pooling = WEFT_POOLING_LAST;
  assert_int_equal(weft_embed(m, ids, 3, WEFT_POOLING_RANK, v, &err), -1);
  mentions("does not rank texts");
  assert_int_equal(weft_embed(m, ids, 0, WEFT_POOLING_MEAN, v, &err), -1);
  mentions("no tokens");
  assert_int_equal(weft_embed(m, (int32_t[CONTEXT + 1]){0}, CONTEXT + 1, WEFT_POOLING_MEAN, v, &err), -1);
  mentions("17 tokens does not fit the context of 16");
  assert_int_equal(weft_embed(m, (const int32_t[]){-1}, 1, WEFT_POOLING_MEAN, v, &err), -1);
  mentions("outside the vocabulary");
  assert_int_equal(weft_embed(m, ids, 3, 7, v, &err), -1);
  mentions("pooling 7");
  last->poison = NAN;
  assert_int_equal(weft_embed(m, ids, 3, WEFT_POOLING_MEAN, v, &err), -1);
  mentions("weights are damaged");
  last->poison = 0;
  last->fail_at = last->n_calls;
  assert_int_equal(weft_embed(m, ids, 3, WEFT_POOLING_MEAN, v, &err), -1);
  mentions("the engine failed");
  last->encoder = true;
  assert_true(weft_model_only_embeds(m));
  assert_int_equal(weft_decode(m, ids, 3, 0, NULL, &err), -1);
  mentions("weft embed");
  weft_model_close(m);
}

static void normalized(int p, float x, float y) {
  float v[] = {3, -4};
  weft_embedding_normalize(v, 2, p);
  if (fabsf(v[0] - x) > 1e-6f * fabsf(x) || fabsf(v[1] - y) > 1e-6f * fabsf(y))
    fail_msg("%d: %g %g", p, (double)v[0], (double)v[1]);
}

static void test_normalized(void **state) {
  (void)state;
  float zeros[2] = {0};
  normalized(-1, 3, -4);
  normalized(0, 24570, -32760);
  normalized(1, 3 / 7.0f, -4 / 7.0f);
  normalized(2, 0.6f, -0.8f);
  normalized(3, 3 / 4.4979414f, -4 / 4.4979414f);
  for (int p = -1; p < 4; p++) {
    weft_embedding_normalize(zeros, 2, p);
    assert_true(zeros[0] == 0 && zeros[1] == 0);
  }
}

static void test_machine(void **state) {
  (void)state;
  assert_true(weft_default_threads() >= 1);
  assert_true(weft_random_seed() < 1ull << 32);
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
  assert_string_equal(weft_version(), version);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_decode_checks),
    cmocka_unit_test(test_rows), cmocka_unit_test(test_a_failure_keeps_what_was_before),
    cmocka_unit_test(test_logits_that_are_no_numbers),
    cmocka_unit_test(test_options),
    cmocka_unit_test(test_file),
    cmocka_unit_test(test_vocab),
    cmocka_unit_test(test_sampling),
    cmocka_unit_test(test_profile),
    cmocka_unit_test(test_template),
    cmocka_unit_test(test_embedding),
    cmocka_unit_test(test_normalized),
    cmocka_unit_test(test_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
