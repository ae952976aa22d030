// weft bench: measures tokens per second, in llama-bench's terms. A test is a prompt of p tokens, then g generated
// tokens, at depth d. Its name is pp512, tg128 or pp512+tg128, with "@ d4096" if it has a depth and "x 8" if 8
// sequences run at once. That is llama-batched-bench's test: prompts one after another, then a token of each sequence
// in every step.
//
// Each test is warmed up first, so compile time never counts, and then timed -r times. Only evaluation is timed,
// without tokenizing and sampling. Options with several values give every combination; a model is opened again only if
// the model, threads or chunk change.
#define _GNU_SOURCE
#include "app/app.h"
#include "base/env.h"
#include "base/progress.h"
#include "app/json.h"
#include "app/model_args.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_SEQUENCES = 512 };
enum format { FORMAT_MD, FORMAT_JSON, FORMAT_JSONL, FORMAT_CSV, FORMAT_SQL };

static const struct command command = {
  "bench", "Measures how many tokens per second a model evaluates.", "FILE [options]",
  "LIST is 512, or 1,2,8, or a range: 16-64+16 (16 32 48 64) or 16-64*2 (16 32 64). Every combination of\n"
  "what the lists hold is measured; -m, the lists and -pg may be given several times.\n", COMMAND_BIT(bench), 0};

struct test { const char *model; int chunk, n_prompt, n_gen, n_depth, n_threads, n_sequences; };
struct result { struct test test; numbers ns; char began[24]; double avg_ns, sd_ns, avg_ts, sd_ts; };
typedef VEC(struct test) tests;

struct bench {
  struct settings o;
  weft_model *model;
  char *name;                // "llama 1.2B Q4_0"
  int model_width, test_width;       // columns of the table
  char cpu[128];
  int32_t *ids;              // random, enough for the longest test
  VEC(weft_sequence *) sequences;    // for tests with several
  bool has_source;           // a model with an encoder: the first tokens of a context are the source
  progress bar;
  double done, all;          // steps, for the progress bar
  struct out out;
  json_t *results;           // for --output json
};

// ---- figures --------------------------------------------------------------------------------------------------------

static double mean_of(const double *x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += x[i];
  return sum / (double)n;
}

static double deviation(const double *x, size_t n) {   // of a sample, hence n - 1
  double m = mean_of(x, n), sum = 0;
  for (size_t i = 0; i < n; i++) sum += (x[i] - m) * (x[i] - m);
  return n > 1 ? sqrt(sum / (double)(n - 1)) : 0;
}

static double tokens_of(const struct test *t) { return (double)t->n_sequences * (t->n_prompt + t->n_gen); }
static double tokens_per_second(const struct test *t, int64_t ns) { return 1e9 * tokens_of(t) / (double)ns; }

static void summarise(struct result *r) {
  double *ns = xmalloc(r->ns.n * sizeof *ns), *ts = xmalloc(r->ns.n * sizeof *ts);
  for (size_t i = 0; i < r->ns.n; i++) {
    ns[i] = (double)r->ns.at[i];
    ts[i] = tokens_per_second(&r->test, r->ns.at[i]);
  }
  r->avg_ns = mean_of(ns, r->ns.n);
  r->sd_ns = deviation(ns, r->ns.n);
  r->avg_ts = mean_of(ts, r->ns.n);
  r->sd_ts = deviation(ts, r->ns.n);
  free(ns);
  free(ts);
}

static void test_name(char *out, size_t cap, const struct test *t) {
  int n = 0;
  if (t->n_prompt && t->n_gen) n = snprintf(out, cap, "pp%d+tg%d", t->n_prompt, t->n_gen);
  else n = t->n_prompt ? snprintf(out, cap, "pp%d", t->n_prompt) : snprintf(out, cap, "tg%d", t->n_gen);
  if (t->n_depth) n += snprintf(out + n, cap - (size_t)n, " @ d%d", t->n_depth);
  if (t->n_sequences > 1) snprintf(out + n, cap - (size_t)n, " x %d", t->n_sequences);
}

// ---- output ---------------------------------------------------------------------------------------------------------

// The table has 100 columns. The model gets what the widest test and a usual speed leave; longer names are cut.
enum { TABLE = 100, SIZE = 10, PARAMS = 8, BACKEND = 7, THREADS = 7, SPEED = 15, BARS = 3 * 7 + 1, SHORTEST = 8 };

static void set_widths(struct bench *b, const tests *all) {
  b->test_width = 4;
  for (size_t i = 0; i < all->n; i++) {
    char name[64];
    test_name(name, sizeof name, &all->at[i]);
    b->test_width = (int)max_i64(b->test_width, (int64_t)strlen(name));
  }
  b->model_width = (int)max_i64(TABLE - SIZE - PARAMS - BACKEND - THREADS - SPEED - BARS - b->test_width, SHORTEST);
}

static void begin_md(struct bench *b) {
  static const char line[] =
    "-----------------------------------------------------------------------------------------------------";
  out_addf(&b->out, "| %-*s | %*s | %*s | %-*s | %*s | %*s | %*s |\n", b->model_width, "model", SIZE, "size", PARAMS,
           "params", BACKEND, "backend", THREADS, "threads", b->test_width, "test", SPEED, "t/s");
  out_addf(&b->out, "| %.*s | %.*s: | %.*s: | %.*s | %.*s: | %.*s: | %.*s: |\n", b->model_width, line, SIZE - 1, line,
           PARAMS - 1, line, BACKEND, line, THREADS - 1, line, b->test_width - 1, line, SPEED - 1, line);
}

static void amount(char *out, size_t cap, double x, double step, const char *const units[4]) {
  int i = 0;
  for (; x >= step && i < 3; i++) x /= step;
  snprintf(out, cap, "%.2f %s", x, units[i]);
}

// The device that computes the layers, with llama.cpp's name if it has one.
static const char *backend_of(const struct bench *b) {
  static const struct { const char *device, *name; } known[] = {
    {"CL", "OpenCL"}, {"METAL", "Metal"}, {"VK", "Vulkan"}};
  const char *device = env_str(ENV_DEV);
  if (!b->o.model.gpu_layers) return "CPU";
  for (size_t i = 0; i < COUNT(known); i++) if (env_device_is(known[i].device)) return known[i].name;
  return device;
}

static void add_md(struct bench *b, const struct result *r) {
  const weft_file *f = weft_model_file(b->model);
  char size[32], params[32], threads[16], test[64], ts[64];
  amount(size, sizeof size, (double)weft_file_tensor_bytes(f), 1024, (const char *const[4]){"B", "KiB", "MiB", "GiB"});
  amount(params, sizeof params, (double)weft_file_n_params(f), 1000, (const char *const[4]){"", "K", "M", "B"});
  snprintf(threads, sizeof threads, "%d", r->test.n_threads);
  test_name(test, sizeof test, &r->test);
  // "±" has two bytes and one column, so the field is one wider
  int digits = r->avg_ts >= 10000 ? 0 : r->avg_ts >= 1000 ? 1 : 2;
  snprintf(ts, sizeof ts, "%.*f ± %.*f", digits, r->avg_ts, digits, r->sd_ts);
  out_addf(&b->out, "| %-*.*s | %*s | %*s | %-*s | %*s | %*s | %*s |\n", b->model_width, b->model_width, b->name, SIZE,
           size, PARAMS, params, BACKEND, backend_of(b), THREADS, threads, b->test_width, test, SPEED + 1, ts);
}

static json_t *array_of(const struct result *r, bool speeds) {
  json_t *a = json_array();
  for (size_t i = 0; i < r->ns.n; i++)
    json_array_append_new(a, speeds ? json_real(tokens_per_second(&r->test, r->ns.at[i])) : json_integer(r->ns.at[i]));
  return a;
}

static const char *kv_type(const char *given) { return given ? given : "f16"; }

// All fields of llama-bench's results, with its names and order, so that programs that read its output can read this.
// Fields that do not apply have the values of llama-bench on a machine without a GPU.
static json_t *json_of(const struct bench *b, const struct result *r) {
  const weft_file *f = weft_model_file(b->model);
  json_t *o = json_pack("{ss si ss ss ss ss ss}", "build_commit", *program_commit() ? program_commit() : weft_version(),
                        "build_number", 0, "cpu_info", b->cpu, "gpu_info", "", "backends", backend_of(b),
                        "model_filename", r->test.model, "model_type", b->name);
  json_object_set_new(o, "model_size", json_integer((json_int_t)weft_file_tensor_bytes(f)));
  json_object_set_new(o, "model_n_params", json_integer((json_int_t)weft_file_n_params(f)));
  json_object_set_new(o, "n_batch", json_integer(weft_model_chunk(b->model)));
  json_object_set_new(o, "n_ubatch", json_integer(weft_model_chunk(b->model)));
  json_object_set_new(o, "n_threads", json_integer(r->test.n_threads));
  json_object_update_new(
    o,
    json_pack("{ss sb si ss ss si si ss si sb si ss ss ss ss ss sb sb si sb sb si si}", "cpu_mask", "0x0", "cpu_strict",
              0, "poll", 50, "type_k", kv_type(b->o.model.key_cache), "type_v", kv_type(b->o.model.value_cache),
              "n_gpu_layers", (int)b->o.model.gpu_layers, "n_cpu_moe", 0, "split_mode", "none", "main_gpu", 0,
              "no_kv_offload", 0, "flash_attn", 1, "devices", "auto", "tensor_split", "0.00", "tensor_buft_overrides",
              "none", "load_mode", "mmap", "lazy_mode", "auto", "use_mmap", 1, "embeddings", 0, "no_op_offload", 0,
              "no_host", 0, "repack", !b->o.model.no_repack, "fit_target", 0, "fit_min_ctx", 0));
  json_object_set_new(o, "n_prompt", json_integer(r->test.n_prompt));
  json_object_set_new(o, "n_gen", json_integer(r->test.n_gen));
  json_object_set_new(o, "n_depth", json_integer(r->test.n_depth));
  json_object_set_new(o, "n_parallel", json_integer(r->test.n_sequences));
  json_object_set_new(o, "test_time", json_string(r->began));
  json_object_set_new(o, "avg_ns", json_integer((json_int_t)llround(r->avg_ns)));
  json_object_set_new(o, "stddev_ns", json_integer((json_int_t)llround(r->sd_ns)));
  json_object_set_new(o, "avg_ts", json_real(r->avg_ts));
  json_object_set_new(o, "stddev_ts", json_real(r->sd_ts));
  json_object_set_new(o, "samples_ns", array_of(r, false));
  json_object_set_new(o, "samples_ts", array_of(r, true));
  return o;
}

static double as_number(const json_t *value) {
  return json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
}

// Quotes a text for SQL and CSV; quotation marks inside are doubled.
static void add_in_quotes(struct bench *b, const char *text, char quote) {
  out_add(&b->out, &quote, 1);
  for (const char *c = text; *c; c++) { if (*c == quote) out_add(&b->out, c, 1); out_add(&b->out, c, 1); }
  out_add(&b->out, &quote, 1);
}

// Writes the fields that are no arrays as a line: their names, or their values.
static void add_csv(struct bench *b, json_t *o, bool names) {
  const char *key, *between = "";
  json_t *value;
  json_object_foreach(o, key, value) {
    if (json_is_array(value)) continue;
    out_addf(&b->out, "%s", between);
    between = ",";
    if (names) { out_addf(&b->out, "%s", key); continue; }
    if (!json_is_string(value)) { out_addf(&b->out, "%.10g", as_number(value)); continue; }
    add_in_quotes(b, json_string_value(value), '"');
  }
  out_add(&b->out, "\n", 1);
}

// Writes a table `llama_bench` like llama-bench's, and a row of it.
static void add_sql(struct bench *b, json_t *o, bool first) {
  const char *key, *between = "";
  json_t *value;
  if (first) {
    out_addf(&b->out, "CREATE TABLE IF NOT EXISTS llama_bench (\n");
    json_object_foreach(o, key, value) if (!json_is_array(value)) {
      out_addf(&b->out, "%s  %s %s", between, key,
               json_is_string(value) ? "TEXT"
               : json_is_real(value) ? "REAL"
                                     : "INTEGER");
      between = ",\n";
    }
    out_addf(&b->out, "\n);\n\n");
  }
  out_addf(&b->out, "INSERT INTO llama_bench (");
  between = "";
  json_object_foreach(o, key, value) if (!json_is_array(value)) {
    out_addf(&b->out, "%s%s", between, key);
    between = ", ";
  }
  out_addf(&b->out, ") VALUES (");
  between = "";
  json_object_foreach(o, key, value) {
    if (json_is_array(value)) continue;
    out_addf(&b->out, "%s", between);
    between = ", ";
    if (json_is_string(value)) add_in_quotes(b, json_string_value(value), '\'');
    else out_addf(&b->out, "%.17g", as_number(value));
  }
  out_addf(&b->out, ");\n");
}

static void show_result(struct bench *b, const struct result *r, bool first) {
  json_t *o = json_of(b, r);
  switch ((enum format)b->o.format) {
  case FORMAT_MD:
    if (first) begin_md(b);
    add_md(b, r);
    break;
  case FORMAT_JSON: json_array_append(b->results, o); break;
  case FORMAT_JSONL: out_json(&b->out, json_incref(o), JSON_COMPACT | JSON_REAL_PRECISION(10)); break;
  case FORMAT_CSV:
    if (first) add_csv(b, o, true);
    add_csv(b, o, false);
    break;
  case FORMAT_SQL: add_sql(b, o, first); break;
  }
  json_decref(o);
  out_flush(&b->out);
}

// ---- measuring ------------------------------------------------------------------------------------------------------

static void step(struct bench *b, int tokens) {
  b->done += tokens;
  progress_set(&b->bar, "measuring", b->done / b->all);
}

static void drop_sequences(struct bench *b) {
  for (size_t i = 0; i < b->sequences.n; i++) weft_sequence_free(b->sequences.at[i]);
  b->sequences.n = 0;
}

// The tokens of sequence i from `at` on; the sequences differ.
static weft_tokens tokens_at(const struct bench *b, int i, int n) {
  weft_sequence *q = b->sequences.at[i];
  return (weft_tokens){.sequence = q, .ids = b->ids + i + weft_sequence_length(q), .n = (size_t)n};
}

// Makes sequences filled to the depth.
static int make_sequences(struct bench *b, const struct test *t) {
  weft_error err;
  drop_sequences(b);
  for (int i = 0; i < t->n_sequences && !interrupted(); i++) {
    weft_sequence *q;
    if (weft_sequence_new(b->model, &q, &err)) return failed("%s", err.text);
    vec_push(&b->sequences, q);
    weft_tokens depth = tokens_at(b, i, t->n_depth);
    if (t->n_depth && weft_step(b->model, &depth, 1, NULL, NULL, &err)) return failed("%s", err.text);
  }
  return 0;
}

static int evaluate_many(struct bench *b, const struct test *t, int64_t *ns) {
  weft_error err;
  weft_tokens *parts = xcalloc((size_t)t->n_sequences, sizeof *parts);
  int status = 0;
  for (int i = 0; i < t->n_sequences; i++) weft_sequence_cut(b->sequences.at[i], t->n_depth);
  double began = now_s();
  for (int i = 0; i < t->n_sequences && t->n_prompt && !status && !interrupted(); i++) {
    parts[0] = tokens_at(b, i, t->n_prompt);
    status = weft_step(b->model, parts, 1, NULL, NULL, &err);
  }
  for (int k = 0; k < t->n_gen && !status && !interrupted(); k++) {
    for (int i = 0; i < t->n_sequences; i++) parts[i] = tokens_at(b, i, 1);
    status = weft_step(b->model, parts, (size_t)t->n_sequences, NULL, NULL, &err);
  }
  *ns = (int64_t)llround(1e9 * (now_s() - began));
  free(parts);
  step(b, (int)tokens_of(t));
  return status ? failed("%s", err.text) : 0;
}

// Evaluates the next n tokens of a prompt, from position pos on.
static int decode_prompt(const struct bench *b, int n, int pos, weft_error *err) {
  weft_rows *rows;
  int32_t *ids;
  size_t n_ids;
  if (!n) return 0;
  if (pos || !b->has_source) return weft_decode(b->model, b->ids + pos, (size_t)n, pos, NULL, err);
  if (weft_encode_source(b->model, b->ids, (size_t)n, &rows, &ids, &n_ids, err)) return -1;
  int status = weft_decode(b->model, ids, (size_t)n, 0, NULL, err);
  weft_free(ids);
  weft_rows_free(rows);
  return status;
}

// Positions filled before a test. An encoder-decoder model needs a source of one token at least.
static int depth_of(const struct bench *b, const struct test *t) {
  return t->n_depth || t->n_prompt || !b->has_source ? t->n_depth : 1;
}

static int run_test(struct bench *b, const struct test *t, int64_t *ns) {
  weft_error err;
  if (t->n_sequences > 1) return evaluate_many(b, t, ns);
  double began = now_s();
  int pos = depth_of(b, t);
  if (decode_prompt(b, t->n_prompt, pos, &err)) return failed("%s", err.text);
  pos += t->n_prompt;
  for (int i = 0; i < t->n_gen && !interrupted(); i++, pos++)
    if (weft_decode(b->model, b->ids + pos, 1, pos, NULL, &err)) return failed("%s", err.text);
  *ns = (int64_t)llround(1e9 * (now_s() - began));
  if (*ns < 1) *ns = 1;
  step(b, t->n_prompt + t->n_gen);
  return 0;
}

// Measures one test. The depth is filled once, since every repetition starts again after it. Returns 0 or the exit
// status.
static int measure_test(struct bench *b, struct result *r) {
  weft_error err;
  struct test *t = &r->test, warm = *t;
  int64_t ns;
  time_t now = time(NULL);
  struct tm utc;
  strftime(r->began, sizeof r->began, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  if (t->n_sequences > weft_model_chunk(b->model))
    return failed("-npl: %d sequences; a step has %d at most (-ub)", t->n_sequences, weft_model_chunk(b->model));
  if (t->n_sequences > 1 && b->has_source)
    return failed("-npl %d: of a model with an encoder one sequence is measured at a time", t->n_sequences);
  if (t->n_sequences > 1 && make_sequences(b, t)) return EXIT_FAILED;
  if (t->n_sequences == 1 && decode_prompt(b, depth_of(b, t), 0, &err)) return failed("%s", err.text);
  if (warm.n_gen > 1) warm.n_gen = 2;
  int status = run_test(b, &warm, &ns);
  weft_model_promote_pages(b->model);
  for (int64_t i = 0; !status && i < b->o.repetitions && !interrupted(); i++) {
    status = run_test(b, t, &ns);
    if (!interrupted()) vec_push(&r->ns, ns);
  }
  if (!status && interrupted()) status = EXIT_INTERRUPTED;
  if (!status) summarise(r);
  return status;
}

// Opens the model with a context of n_ctx tokens. An encoder-decoder model gets one more: a source must leave room for
// an answer, and an answer needs a source.
static int open_for_test(struct bench *b, const struct test *t, int n_ctx) {
  struct model_args how = b->o.model;
  how.model = t->model;
  how.context = n_ctx;
  how.threads = t->n_threads;
  how.chunk = t->chunk;
  if (model_args_open(&how, &b->bar, &b->model)) return EXIT_FAILED;
  if (weft_model_has_source(b->model)) {
    weft_model_close(b->model);
    b->model = NULL;
    how.context = n_ctx + 1;
    if (model_args_open(&how, &b->bar, &b->model)) return EXIT_FAILED;
  }
  b->has_source = weft_model_has_source(b->model);
  free(b->name);
  b->name = weft_file_summary(weft_model_file(b->model));
  free(b->ids);
  int n_ids = n_ctx + MOST_SEQUENCES;
  b->ids = xmalloc((size_t)n_ids * sizeof *b->ids);
  uint64_t seed = 1;
  for (int i = 0; i < n_ids; i++)
    b->ids[i] = (int32_t)((seed = hash_u64(seed, 7)) % (uint64_t)weft_model_vocab_size(b->model));
  return 0;
}

static int measure_all(struct bench *b, const tests *all) {
  int n_ctx = 0, status = 0;
  for (size_t i = 0; i < all->n; i++) {
    const struct test *t = &all->at[i];
    n_ctx = (int)max_i64(n_ctx, (int64_t)t->n_depth + t->n_prompt + t->n_gen);
    b->all +=
      tokens_of(t) * (double)b->o.repetitions + (double)t->n_sequences * (t->n_prompt + (t->n_gen > 1 ? 2 : t->n_gen));
  }
  const struct test *opened = NULL;
  for (size_t i = 0; !status && i < all->n; i++) {
    const struct test *t = &all->at[i];
    if (!opened || opened->model != t->model || opened->n_threads != t->n_threads || opened->chunk != t->chunk) {
      drop_sequences(b);
      weft_model_close(b->model);
      b->model = NULL;
      if ((status = open_for_test(b, t, n_ctx))) break;
      opened = t;
      interrupt_catch();
      progress_begin(&b->bar);
    }
    struct result r = {.test = *t};
    for (double until = now_s() + (double)b->o.delay; now_s() < until && !interrupted();)
      nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    status = measure_test(b, &r);
    progress_end(&b->bar);
    if (!status) show_result(b, &r, i == 0);
    vec_free(&r.ns);
    if (b->out.error) break;
  }
  return status;
}

// ---- tests ----------------------------------------------------------------------------------------------------------

static int add_pairs(tests *all, struct test t, const char *text, error *err) {
  long long p, g;
  char after;
  if (sscanf(text, "%lld,%lld%c", &p, &g, &after) != 2 || p < 0 || g < 0 || p > INT32_MAX / 4 || g > INT32_MAX / 4 ||
      p + g == 0)
    return error_set(err, "-pg needs two lengths, such as 512,128, not '%s'", text);
  t.n_prompt = (int)p;
  t.n_gen = (int)g;
  vec_push(all, t);
  return 0;
}

// Reads all numbers of an option; `otherwise` if it was not given.
static int get_numbers(const char *name, const struct texts *given, int64_t otherwise, int64_t max, numbers *out,
                       error *err) {
  for (size_t i = 0; i < given->n; i++) if (args_numbers(name, given->at[i], 0, max, out, err)) return -1;
  if (!given->n) vec_push(out, otherwise);
  return 0;
}

struct lists { numbers prompt, gen, depth, threads, chunk, sequences; };

// Adds the tests of one model, thread count, chunk and depth, in llama-bench's order: prompts, then generations, then
// -pg.
static int add_tests(const struct settings *o, const struct lists *l, struct test base, tests *all, error *err) {
  for (size_t k = 0; k < l->prompt.n; k++)
    if (l->prompt.at[k]) {
      struct test t = base;
      t.n_prompt = (int)l->prompt.at[k];
      vec_push(all, t);
    }
  for (size_t k = 0; k < l->gen.n; k++)
    if (l->gen.at[k]) {
      struct test t = base;
      t.n_gen = (int)l->gen.at[k];
      vec_push(all, t);
    }
  for (size_t k = 0; k < o->both.n; k++) if (add_pairs(all, base, o->both.at[k], err)) return -1;
  return all->n > 100000 ? error_set(err, "these lists make more than 100000 tests") : 0;
}

// Lists every combination.
static int list_tests(const struct settings *o, tests *all, error *err) {
  enum { MOST = INT32_MAX / 4 };
  struct lists l = {0};
  int status = get_numbers("-p", &o->prompts, 512, MOST, &l.prompt, err) ||
                   get_numbers("-n", &o->generations, 128, MOST, &l.gen, err) ||
                   get_numbers("-d", &o->depths, 0, MOST, &l.depth, err) ||
                   get_numbers("-t", &o->threads, 0, 1024, &l.threads, err) ||
                   get_numbers("-npl", &o->sequences, 1, MOST_SEQUENCES, &l.sequences, err) ||
                   get_numbers("-ub", &o->chunks, 0, 65536, &l.chunk, err)
                 ? -1
                 : 0;
  for (size_t m = 0; !status && m < o->models.n; m++)
    for (size_t c = 0; !status && c < l.chunk.n; c++)
      for (size_t i = 0; !status && i < l.threads.n; i++)
        for (size_t j = 0; !status && j < l.depth.n; j++)
          for (size_t k = 0; !status && k < l.sequences.n; k++)
            status =
              add_tests(o, &l,
                        (struct test){.model = o->models.at[m],
                                      .chunk = (int)l.chunk.at[c],
                                      .n_depth = (int)l.depth.at[j],
                                      .n_sequences = l.sequences.at[k] ? (int)l.sequences.at[k] : 1,
                                      .n_threads = l.threads.at[i] ? (int)l.threads.at[i] : weft_default_threads()},
                        all, err);
  vec_free(&l.prompt);
  vec_free(&l.gen);
  vec_free(&l.depth);
  vec_free(&l.threads);
  vec_free(&l.chunk);
  vec_free(&l.sequences);
  if (!status && !all->n) status = error_set(err, "nothing to measure: -p and -n are both 0");
  return status;
}

static int bench(struct bench *b) {
  error err = {0};
  tests all = {0};
  if (b->o.model.model) {                // the model given as an operand comes first
    vec_push(&b->o.models, xstrdup(b->o.model.model));
    for (size_t i = b->o.models.n - 1; i; i--) {
      char *last = b->o.models.at[i];
      b->o.models.at[i] = b->o.models.at[i - 1];
      b->o.models.at[i - 1] = last;
    }
  }
  if (!b->o.models.n) return usage_error("no model: give one with -m FILE");
  if (list_tests(&b->o, &all, &err)) { vec_free(&all); return usage_error("%s", err.text); }
  if (b->o.format == FORMAT_JSON) b->results = json_array();
  weft_cpu_name(b->cpu, sizeof b->cpu);
  set_widths(b, &all);
  keep_to_evaluating(&b->o, NULL);
  int status = measure_all(b, &all);
  if (b->results && status != EXIT_FAILED)
    out_json(&b->out, json_incref(b->results), JSON_INDENT(2) | JSON_REAL_PRECISION(10));
  vec_free(&all);
  return status;
}

int bench_command(int argc, char **argv) {
  struct bench b = {0};
  int status;
  if (settings_parse(&b.o, &command, argc, argv, &status)) status = bench(&b);
  status = out_end(&b.out, status);
  json_decref(b.results);
  status = viz_if_asked(b.model, status);
  drop_sequences(&b);
  vec_free(&b.sequences);
  weft_model_close(b.model);
  free(b.name);
  free(b.ids);
  settings_free(&b.o);
  return status;
}
