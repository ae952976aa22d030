// Rows of floats in tokens' places: log-probabilities and ids are those that llama.cpp and transformers
// have for the same rows, and
// bits are the same however a prompt with rows is cut, batched, shared, saved and taken up again.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "engine/project.h"
#include "weft.h"

enum { MOST = 1000, SPANS = 20, STEPS = 8 };

static weft_error err;
#define must(call) do { if (call) fail_msg("%s", err.text); } while (0)

// A prompt: ids of tokens and of rows, and where calls may part it.
typedef struct prompt {
  weft_model *m;
  int32_t ids[MOST];
  bool parts[MOST];              // a call may end before this token
  size_t n, n_spans;
  weft_rows *spans[SPANS];
  json_t *record;
} prompt;

static weft_model *opened(const char *path, int chunk, const char *setting) {
  weft_model *m;
  weft_options o = {.threads = 2,
                    .chunk = chunk,
                    .key_cache = "f32",
                    .value_cache = "f32",
                    .settings = &setting,
                    .n_settings = setting != NULL};
  must(weft_model_open(path, &o, &m, &err));
  return m;
}

static void add_ids(prompt *p, const int32_t *ids, size_t n, bool together) {
  assert_true(p->n + n < MOST);
  for (size_t i = 0; i < n; i++) {
    p->parts[p->n] = !together || !i;
    p->ids[p->n++] = ids[i];
  }
}

static void add_rows(prompt *p, const weft_rows_spec *spec) {
  size_t n;
  weft_rows *r;
  must(weft_rows_new(p->m, spec, &r, &err));
  assert_true(p->n_spans < SPANS);
  p->spans[p->n_spans++] = r;
  const int32_t *ids = weft_rows_ids(r, &n);
  assert_int_equal(n, spec->n);
  add_ids(p, ids, n, spec->both_ways);
}

static void close_prompt(prompt *p) {
  for (size_t i = 0; i < p->n_spans; i++) weft_rows_free(p->spans[i]);
  json_decref(p->record);
  weft_model_close(p->m);
}

static size_t read_floats(const char *family, float **at) {
  char path[1024];
  enum { FLOATS = 1 << 18 };
  snprintf(path, sizeof path, WEFT_SOURCE_DIR "/tests/engine/rows/%s.f32", family);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("%s", path);
  *at = malloc(FLOATS * sizeof **at);
  size_t n = fread(*at, sizeof **at, FLOATS, f);
  fclose(f);
  return n;
}

// [[t, y, x]...] from the span's first position on
static int32_t *positions_of(const json_t *chunk, size_t n) {
  const json_t *all = json_object_get(chunk, "mrope_positions_t_y_x");
  int32_t first = (int32_t)json_integer_value(json_object_get(chunk, "pos0"));
  if (!all) return NULL;
  int32_t *out = malloc(3 * n * sizeof *out);
  for (size_t i = 0; i < 3 * n; i++)
    out[i] = (int32_t)json_integer_value(json_array_get(json_array_get(all, i / 3), i % 3)) - first;
  return out;
}

static void add_chunk(prompt *p, const json_t *chunk, const float *floats, size_t *row) {
  size_t n = (size_t)json_integer_value(json_object_get(chunk, "n_tokens"));
  const json_t *ids = json_object_get(chunk, "ids");
  if (ids) {
    int32_t all[MOST];
    for (size_t i = 0; i < n; i++) all[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    add_ids(p, all, n, false);
    return;
  }
  int32_t *positions = positions_of(chunk, n);
  add_rows(p, &(weft_rows_spec){.floats = floats + *row * (size_t)weft_model_row_width(p->m),
                                .n = n,
                                .positions = positions,
                                .n_positions = (int)json_integer_value(json_object_get(chunk, "n_pos")),
                                .both_ways = json_integer_value(json_object_get(chunk, "noncausal"))});
  free(positions);
  *row += n;
}

#define ROWS_DIR WEFT_SOURCE_DIR "/tests/engine/rows"
static const struct family { const char *name, *record, *model, *by; double tolerance;
} families[] = {
  // the records' rows differ from these by 3e-3 at most (llama.cpp's GELU is a table), and logits by no more
  {"qwen2.5vl", WEFT_SHARED_DIR "/vision/qwen2.5vl/a.png.json", WEFT_SHARED_DIR "/vision/qwen2.5vl/model.gguf",
   "llama_cpp", 5e-3},
  {"gemma3", WEFT_SHARED_DIR "/vision/gemma3/a.png.json", WEFT_SHARED_DIR "/vision/gemma3/model.gguf", "llama_cpp",
   5e-3},
  {"idefics3", WEFT_SHARED_DIR "/vision/idefics3/a.png.json", WEFT_SHARED_DIR "/vision/idefics3/model.gguf",
   "llama_cpp", 5e-3},
  {"qwen3vl", ROWS_DIR "/qwen3vl.json", ROWS_DIR "/qwen3vl.gguf", "transformers", 1e-4},
};

static const struct family *family_of(const char *name) {
  size_t i = 0;
  while (strcmp(families[i].name, name)) i++;
  return &families[i];
}

// The prompt of a family's record
static void recorded(prompt *p, const char *name, int chunk, const char *setting) {
  const struct family *of = family_of(name);
  float *floats;
  size_t n = read_floats(name, &floats), row = 0, i;
  json_t *part;
  *p = (prompt){0};
  if (!(p->record = json_load_file(of->record, 0, NULL))) {
    print_message("skipped: there is no %s\n", of->record);
    free(floats);
    skip();
  }
  p->m = opened(of->model, chunk, setting);
  json_array_foreach(json_object_get(p->record, "sequence"), i, part) add_chunk(p, part, floats, &row);
  assert_int_equal(row * (size_t)weft_model_row_width(p->m), n);
  free(floats);
}

static int32_t likeliest(const float *logits, int32_t n) {
  int32_t best = 0;
  for (int32_t i = 1; i < n; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

// ---- what others have for the same rows -----------------------------------------------------------------------------

static void same_as_recorded(const json_t *top, const float *logits, int32_t n, double tolerance) {
  const json_t *pair;
  size_t i;
  json_array_foreach(top, i, pair) {
    double want = json_real_value(json_array_get(pair, 1)), have;
    must(weft_logprobs(logits, n, (int32_t)json_integer_value(json_array_get(pair, 0)), &have, NULL, 0, &err));
    if (fabs(want - have) > tolerance) fail_msg("log-probability %zu: %.6f, recorded %.6f", i, have, want);
  }
}

static void of_record(const char *family) {
  prompt p;
  recorded(&p, family, 0, NULL);
  const json_t *of = json_object_get(p.record, family_of(family)->by);
  int32_t n_vocab = weft_model_vocab_size(p.m);
  const float *logits;
  must(weft_decode(p.m, p.ids, p.n, 0, &logits, &err));
  for (int i = 0; i < STEPS; i++) {
    same_as_recorded(json_array_get(json_object_get(of, "steps_top20"), (size_t)i), logits, n_vocab,
                     family_of(family)->tolerance);
    int32_t id = likeliest(logits, n_vocab);
    assert_int_equal(id, json_integer_value(json_array_get(json_object_get(of, "greedy"), (size_t)i)));
    must(weft_decode(p.m, &id, 1, (int)p.n + i, &logits, &err));
  }
  close_prompt(&p);
}

static void of_mrope(void **s) { (void)s; of_record("qwen2.5vl"); }
static void of_both_ways(void **s) { (void)s; of_record("gemma3"); }
static void of_plain_rows(void **s) { (void)s; of_record("idefics3"); }
static void of_mixed_sections(void **s) { (void)s; of_record("qwen3vl"); }

// ---- the same bits --------------------------------------------------------------------------------------------------

typedef struct hashes { uint64_t of[MOST]; int32_t n_vocab; } hashes;

static bool note(void *ctx, size_t i, const float *logits) {
  hashes *h = ctx;
  h->of[i] = hash_of(logits, h->n_vocab);
  return true;
}

static void all_hashes(prompt *p, hashes *h) {
  h->n_vocab = weft_model_vocab_size(p->m);
  must(weft_decode_rows(p->m, p->ids, p->n, 0, 0, note, h, &err));
}

// Calls of random lengths, with what they return compared
static void cut_anywhere(prompt *p, const hashes *h, int times) {
  for (int k = 0; k < times; k++)
    for (size_t at = 0, to; at < p->n; at = to) {
      const float *logits;
      to = at + 1 + below((uint32_t)(p->n - at));
      while (to < p->n && !p->parts[to]) to++;
      must(weft_decode(p->m, p->ids + at, to - at, (int)at, &logits, &err));
      if (hash_of(logits, h->n_vocab) != h->of[to - 1]) fail_msg("token %zu, call from %zu", to - 1, at);
    }
}

static size_t ends_at(const prompt *p, size_t at) {
  size_t to = at + 1 + below((uint32_t)(p->n - at));
  while (to < p->n && !p->parts[to]) to++;
  return to;
}

// Several sequences in one step, at different places of the prompt; forks, and cuts on the way.
static void in_steps(prompt *p, const hashes *h, int steps) {
  enum { N = 3 };
  weft_sequence *q[N];
  for (int i = 0; i < N; i++) must(weft_sequence_new(p->m, &q[i], &err));
  for (int k = 0; k < steps; k++) {
    weft_tokens parts[N];
    size_t n = 0;
    for (int i = 0; i < N; i++) {
      size_t at = (size_t)weft_sequence_length(q[i]);
      if (at == p->n || !below(6)) {
        do at = below((uint32_t)at + 1); while (!p->parts[at]);
        weft_sequence_cut(q[i], (int)at);
      }
      size_t to = ends_at(p, at), rows = to - at > 1 && p->ids[to - 1] >= 0 && p->ids[to - 2] >= 0 ? 1 + below(2) : 1;
      parts[n++] = (weft_tokens){.sequence = q[i], .ids = p->ids + at, .n = to - at, .rows = rows};
    }
    must(weft_step(p->m, parts, n, NULL, NULL, &err));
    for (size_t i = 0; i < n; i++) {
      size_t end = (size_t)weft_sequence_length(parts[i].sequence);
      for (size_t r = 0; r < parts[i].rows; r++)
        if (hash_of(parts[i].logits + r * (size_t)h->n_vocab, h->n_vocab) != h->of[end - parts[i].rows + r])
          fail_msg("token %zu of a step", end - parts[i].rows + r);
    }
    int from = (int)below(N), to = (int)below(N);
    if (from == to || below(3)) continue;
    weft_sequence_free(q[to]);
    must(weft_sequence_fork(q[from], weft_sequence_length(q[from]), &q[to], &err));
  }
  for (int i = 0; i < N; i++) weft_sequence_free(q[i]);
}

// A sequence that ends at `at` goes to a file, and on from there.
static void through_a_file(prompt *p, const hashes *h, size_t at) {
  char path[] = "/tmp/weft-rows-XXXXXX";
  int fd = mkstemp(path);
  weft_sequence *q;
  weft_tokens t = {.ids = p->ids, .n = at};
  assert_true(fd >= 0);
  close(fd);
  must(weft_sequence_new(p->m, &t.sequence, &err));
  must(weft_step(p->m, &t, 1, NULL, NULL, &err));
  must(weft_sequence_save(t.sequence, p->ids, path, &err));
  weft_sequence_free(t.sequence);
  must(weft_sequence_load(p->m, p->ids, p->n, path, &q, &err));
  assert_int_equal(weft_sequence_length(q), at);
  t = (weft_tokens){.sequence = q, .ids = p->ids + at, .n = p->n - at};
  must(weft_step(p->m, &t, 1, NULL, NULL, &err));
  assert_true(hash_of(t.logits, h->n_vocab) == h->of[p->n - 1]);
  weft_sequence_free(q);
  unlink(path);
}

static void same_bits_of(const char *family, const char *setting, bool other_chunk) {
  static hashes h, other;
  prompt p;
  recorded(&p, family, 0, setting);
  all_hashes(&p, &h);
  cut_anywhere(&p, &h, 15);
  in_steps(&p, &h, 60);
  through_a_file(&p, &h, p.n - 3);
  close_prompt(&p);
  if (!other_chunk) return;
  recorded(&p, family, 7, setting);
  all_hashes(&p, &other);
  assert_memory_equal(h.of, other.of, p.n * sizeof *h.of);
  in_steps(&p, &h, 30);
  close_prompt(&p);
}

static void bits_of_mrope(void **s) { (void)s; state = 1; same_bits_of("qwen2.5vl", NULL, false); }
static void bits_of_both_ways(void **s) { (void)s; state = 2; same_bits_of("gemma3", NULL, true); }
static void bits_of_mixed_sections(void **s) { (void)s; state = 6; same_bits_of("qwen3vl", NULL, true); }
static void bits_of_plain_rows(void **s) { (void)s; state = 3; same_bits_of("idefics3", NULL, false); }
// going back is to evaluate once more
static void bits_of_windows(void **s) {
  (void)s;
  state = 4;
  same_bits_of("gemma3", "{arch}.attention.sliding_window=int:8", false);
}

// ---- made up --------------------------------------------------------------------------------------------------------

static void make_up(float *floats, size_t n) {
  for (size_t i = 0; i < n; i++) floats[i] = (float)(below(2001)) / 1000 - 1;
}

// Spans that are longer than a chunk go through at once.
static void a_long_span(void **s) {
  (void)s;
  enum { LONG = 300 };
  static hashes h[2];
  for (int i = 0; i < 2; i++) {
    prompt p = {.m = opened(project, i ? 512 : 64, NULL)};
    float *floats = malloc(LONG * (size_t)weft_model_row_width(p.m) * sizeof *floats);
    const float *logits;
    state = 5;
    make_up(floats, LONG * (size_t)weft_model_row_width(p.m));
    add_ids(&p, (int32_t[]){5, 6, 7}, 3, false);
    add_rows(&p, &(weft_rows_spec){.floats = floats, .n = LONG, .both_ways = true});
    add_ids(&p, (int32_t[]){8, 9, 10, 11}, 4, false);
    h[i].n_vocab = weft_model_vocab_size(p.m);
    must(weft_decode_rows(p.m, p.ids, p.n, 0, LONG + 3, note, &h[i], &err));
    must(weft_decode(p.m, p.ids, LONG + 3, 0, &logits, &err));      // a row of floats is the last one
    h[i].of[0] = hash_of(logits, h[i].n_vocab);
    must(weft_decode(p.m, p.ids + LONG + 3, 4, LONG + 3, &logits, &err));
    assert_true(hash_of(logits, h[i].n_vocab) == h[i].of[p.n - 1]);
    free(floats);
    close_prompt(&p);
  }
  assert_memory_equal(h[0].of, h[1].of, sizeof h[0].of);
}

static void ids_and_errors(void **s) {
  (void)s;
  weft_model *m = opened(project, 0, NULL);
  int width = weft_model_row_width(m);
  float *floats = calloc(4 * (size_t)width, sizeof *floats);
  weft_rows *a, *b, *c;
  size_t n;
  const float *logits;
  must(weft_rows_new(m, &(weft_rows_spec){.floats = floats, .n = 4, .both_ways = true}, &a, &err));
  must(weft_rows_new(m, &(weft_rows_spec){.floats = floats, .n = 4, .both_ways = true}, &b, &err));
  must(weft_rows_new(m, &(weft_rows_spec){.floats = floats, .n = 4}, &c, &err));
  const int32_t *x = weft_rows_ids(a, &n), *y = weft_rows_ids(c, &n);
  assert_memory_equal(x, weft_rows_ids(b, &n), 4 * sizeof *x);      // the same span
  for (int i = 0; i < 4; i++) assert_true(x[i] < -1 && x[i] != y[i]);
  // prompts are compared by whole spans
  int32_t p[] = {1, 2, x[0], x[1], x[2], x[3], 3}, q[] = {1, 2, x[0], x[1], x[2], 7, 3};
  assert_int_equal(weft_common(p, 7, q, 7), 2);
  assert_int_equal(weft_common(p, 7, p, 6), 6);
  assert_int_equal(weft_common(p, 7, p, 4), 2);
  // part of a span that sees itself both ways, rows out of order, ids of nobody
  assert_int_equal(weft_decode(m, p, 4, 0, &logits, &err), -1);
  assert_non_null(strstr(err.text, "must be evaluated together"));
  assert_int_equal(weft_decode(m, (int32_t[]){y[0], y[2]}, 2, 0, &logits, &err), -1);
  assert_non_null(strstr(err.text, "does not follow"));
  // the first one that is wrong is named
  assert_int_equal(weft_decode(m, (int32_t[]){1, y[0], y[1], 1 << 30}, 4, 0, &logits, &err), -1);
  assert_non_null(strstr(err.text, "token id 1073741824 (number 4 of 4) is outside the vocabulary"));
  must(weft_decode(m, p, 7, 0, &logits, &err));
  weft_rows_free(a);
  must(weft_decode(m, p, 7, 0, &logits, &err));
  weft_rows_free(b);
  assert_int_equal(weft_decode(m, p, 7, 0, &logits, &err), -1);
  assert_non_null(strstr(err.text, "outside the vocabulary"));
  assert_int_equal(weft_decode(m, (int32_t[]){-1}, 1, 0, &logits, &err), -1);
  // named by a key, and filled later
  must(weft_rows_new(m, &(weft_rows_spec){.n = 4, .key = "a picture", .n_key = 9}, &a, &err));
  x = weft_rows_ids(a, &n);
  assert_int_equal(weft_decode(m, x, 4, 0, &logits, &err), -1);
  assert_non_null(strstr(err.text, "have not been given"));
  assert_false(weft_rows_filled(a));
  must(weft_rows_fill(a, floats, &err));
  must(weft_decode(m, x, 4, 0, &logits, &err));
  floats[5] = NAN;
  assert_int_equal(weft_rows_new(m, &(weft_rows_spec){.floats = floats, .n = 1}, &b, &err), -1);
  assert_non_null(strstr(err.text, "float 5 of row 0"));
  assert_int_equal(weft_rows_new(m, &(weft_rows_spec){.n = 1}, &b, &err), -1);
  assert_int_equal(weft_rows_new(m, &(weft_rows_spec){.floats = floats}, &b, &err), -1);
  weft_rows_free(a);
  weft_rows_free(c);
  weft_model_close(m);
  free(floats);
}

// The logits behind n ids at pos.
static uint64_t behind(weft_model *m, const int32_t *ids, size_t n, int pos) {
  const float *logits;
  must(weft_decode(m, ids, n, pos, &logits, &err));
  return hash_of(logits, weft_model_vocab_size(m));
}

static void refused(weft_model *m, const int32_t *ids, size_t n, int pos) {
  const float *logits;
  assert_int_equal(weft_decode(m, ids, n, pos, &logits, &err), -1);
  assert_non_null(strstr(err.text, "does not follow"));
}

// A span that is cut: what follows its first rows are the others, a token or another span, in any call.
static void in_its_place(void **s) {
  (void)s;
  weft_model *m = opened(project, 0, NULL);
  size_t width = (size_t)weft_model_row_width(m), n;
  float *floats = malloc(8 * width * sizeof *floats);
  weft_rows *a, *b;
  state = 7;
  make_up(floats, 8 * width);
  must(weft_rows_new(m, &(weft_rows_spec){.floats = floats, .n = 4}, &a, &err));
  must(weft_rows_new(m, &(weft_rows_spec){.floats = floats + 4 * width, .n = 4}, &b, &err));
  const int32_t *x = weft_rows_ids(a, &n), *y = weft_rows_ids(b, &n);
  int32_t whole[] = {1, 2, x[0], x[1], x[2], x[3], 3}, cut[] = {1, 2, x[0], x[1], y[0], y[1], y[2], y[3], 3};
  // at the beginning, behind tokens, behind rows of another span or other rows of its own
  refused(m, x + 1, 3, 0);
  must(weft_decode(m, whole, 2, 0, NULL, &err));
  refused(m, x + 1, 3, 2);
  must(weft_decode(m, whole, 3, 0, NULL, &err));
  refused(m, x + 2, 2, 3);
  refused(m, y + 1, 3, 3);
  uint64_t of_whole = behind(m, whole, 7, 0), of_cut = behind(m, cut, 9, 0);
  must(weft_decode(m, whole, 6, 0, NULL, &err));
  refused(m, y + 2, 2, 4);
  assert_true(behind(m, cut + 4, 5, 4) == of_cut);
  refused(m, x + 2, 2, 6);
  must(weft_decode(m, whole, 4, 0, NULL, &err));
  assert_true(behind(m, whole + 4, 3, 4) == of_whole);
  weft_rows_free(a);
  weft_rows_free(b);
  weft_model_close(m);
  free(floats);
}

typedef struct leaving { weft_rows **r; int n; } leaving;

static bool leave_rows(void *ctx, double done) {
  leaving *l = ctx;
  (void)done;
  weft_rows_free(*l->r);
  *l->r = NULL;
  l->n++;
  return true;
}

static bool leave_and_go_on(void *ctx) { return !leave_rows(ctx, 0); }

// ids with n rows of a span in them, which r holds alone.
static void with_rows(weft_model *m, int32_t *ids, int all, int at, int n, weft_rows **r) {
  size_t floats = (size_t)n * (size_t)weft_model_row_width(m), n_ids;
  float *made = malloc(floats * sizeof *made);
  make_up(made, floats);
  must(weft_rows_new(m, &(weft_rows_spec){.floats = made, .n = (size_t)n}, r, &err));
  for (int i = 0; i < all; i++) ids[i] = 1 + (int32_t)below(100);
  memcpy(ids + at, weft_rows_ids(*r, &n_ids), (size_t)n * sizeof *ids);
  free(made);
}

// Rows that are let go of while they are evaluated stay until that has ended.
static void let_go(void **s) {
  (void)s;
  enum { BEFORE = 200, ROWS = 40, ALL = BEFORE + ROWS + 60 };
  weft_model *m = opened(project, 0, NULL);
  weft_rows *r, *other;
  int32_t ids[ALL], others[ALL];
  leaving l = {&r, 0};
  state = 8;
  with_rows(m, ids, ALL, BEFORE, ROWS, &r);
  with_rows(m, others, ALL, BEFORE, ROWS, &other);
  uint64_t want = behind(m, ids, ALL, 0);
  assert_true(behind(m, others, ALL, 0) != want);
  weft_model_watch(m, leave_rows, &l);
  assert_true(behind(m, ids, ALL, 0) == want);
  assert_true(l.n && !r);
  weft_rows_free(other);
  weft_model_close(m);
}

// So do those that a sequence from a file evaluates once more: it holds none.
static void let_go_again(void **s) {
  (void)s;
  enum { AT = 100, ROWS = 20, MORE = 140, ALL = 900 };
  char path[] = "/tmp/weft-rows-XXXXXX";
  prompt p;
  weft_rows *r, *other;
  int32_t ids[ALL], others[ALL];
  recorded(&p, "gemma3", 16, "{arch}.attention.sliding_window=int:8");
  leaving l = {&r, 0};
  weft_sequence *q;
  weft_tokens t = {.ids = ids, .n = ALL};
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  state = 9;
  with_rows(p.m, ids, ALL, AT, ROWS, &r);
  with_rows(p.m, others, ALL, AT, ROWS, &other);
  uint64_t want = behind(p.m, ids, MORE + 1, 0);
  must(weft_sequence_new(p.m, &t.sequence, &err));
  must(weft_step(p.m, &t, 1, NULL, NULL, &err));
  must(weft_sequence_save(t.sequence, ids, path, &err));
  weft_sequence_free(t.sequence);
  must(weft_sequence_load(p.m, ids, ALL, path, &q, &err));
  behind(p.m, others, ALL, 0);
  assert_true(weft_sequence_whole(q, MORE) < AT);
  weft_sequence_cut(q, MORE);
  t = (weft_tokens){.sequence = q, .ids = ids + MORE, .n = 1};
  must(weft_step(p.m, &t, 1, leave_and_go_on, &l, &err));
  assert_true(l.n && hash_of(t.logits, weft_model_vocab_size(p.m)) == want);
  weft_sequence_free(q);
  weft_rows_free(other);
  unlink(path);
  close_prompt(&p);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(of_mrope),
    cmocka_unit_test(of_both_ways),
    cmocka_unit_test(of_plain_rows),
    cmocka_unit_test(of_mixed_sections),
    cmocka_unit_test(bits_of_mrope),
    cmocka_unit_test(bits_of_both_ways),
    cmocka_unit_test(bits_of_plain_rows),
    cmocka_unit_test(bits_of_mixed_sections),
    cmocka_unit_test(bits_of_windows),
    cmocka_unit_test(a_long_span),
    cmocka_unit_test(ids_and_errors),
    cmocka_unit_test(in_its_place),
    cmocka_unit_test(let_go),
    cmocka_unit_test(let_go_again),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
