// The vocabularies in ../shared/vocabs, each with test strings (.inp) and the ids that llama.cpp gives them (.out); and
// the tokenizer inside the small trained models.  Skipped, saying so, where those files are not there.
#define _GNU_SOURCE
#include "base/base.h"
#include "model/gguf.h"
#include "text/text.h"
#include "tools/cpu.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define SEPARATOR "\n__ggml_vocab_test__\n"

// The whole file with a NUL after it, or NULL.
static char *read_file(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  str s = {0};
  char part[65536];
  size_t got;
  while ((got = fread(part, 1, sizeof part, f)) > 0) str_addn(&s, part, got);
  fclose(f);
  *n = s.n;
  return s.at ? s.at : xcalloc(1, 1);
}

static void open_tokenizer(const char *path, gguf **g, tokenizer **t) {
  error err = {0};
  if (gguf_open(path, g, &err) || tokenizer_from_gguf(*g, t, &err)) fail_msg("%s", err.text);
}

static int same_ids(const int32_t *ids, size_t n, const char *line, const char *end) {
  size_t i = 0;
  while (line < end) {
    char *after;
    long id = strtol(line, &after, 10);
    if (after == line || after > end) break;
    if (i >= n || ids[i] != id) return 0;
    i++;
    line = after;
  }
  return i == n;
}

// exact: decoding gives the strings back.
static void check_strings(const tokenizer *t, const char *name, const char *in, const char *out, bool exact) {
  error err = {0};
  size_t count = 0, wrong = 0;
  for (const char *end; (end = strstr(in, SEPARATOR)); in = end + strlen(SEPARATOR), count++) {
    const char *line_end = strchr(out, '\n');
    assert_non_null(line_end);
    int32_t *ids;
    size_t n;
    if (tokenizer_encode(t, in, (size_t)(end - in), false, false, &ids, &n, &err)) fail_msg("%s", err.text);
    if (!same_ids(ids, n, out, line_end)) {
      wrong++;
      print_error("%s: string %zu '%.*s'\n  want %.*s\n  have", name, count, (int)(end - in), in, (int)(line_end - out),
                  out);
      for (size_t i = 0; i < n; i++) print_error(" %d", ids[i]);
      print_error("\n");
    }
    str back = {0};
    tokenizer_decode(t, ids, n, false, &back);
    if (exact) assert_int_equal(back.n, end - in);
    if (exact) assert_memory_equal(str_c(&back), in, back.n);
    str_free(&back);
    free(ids);
    out = line_end + 1;
  }
  assert_true(count >= 40);
  assert_int_equal(wrong, 0);
}

static void check_vocab(const char *name, bool exact) {
  char path[4096], file[4200];
  snprintf(path, sizeof path, "%s/vocabs/ggml-vocab-%s.gguf", WEFT_SHARED_DIR, name);
  if (access(path, R_OK)) { print_message("skipped: %s is not there\n", path); skip(); }
  gguf *g = NULL;
  tokenizer *t = NULL;
  size_t n;
  open_tokenizer(path, &g, &t);
  snprintf(file, sizeof file, "%s.inp", path);
  char *in = read_file(file, &n);
  snprintf(file, sizeof file, "%s.out", path);
  char *out = read_file(file, &n);
  assert_non_null(in);
  assert_non_null(out);
  check_strings(t, name, in, out, exact);
  free(in);
  free(out);
  tokenizer_free(t);
  gguf_close(g);
}

static void test_gpt_2(void **state) { (void)state; check_vocab("gpt-2", true); }
static void test_llama_bpe(void **state) { (void)state; check_vocab("llama-bpe", true); }
static void test_qwen2(void **state) { (void)state; check_vocab("qwen2", true); }
static void test_llama_spm(void **state) { (void)state; check_vocab("llama-spm", true); }
static void test_phi_3(void **state) { (void)state; check_vocab("phi-3", true); }
static void test_falcon(void **state) { (void)state; check_vocab("falcon", true); }
static void test_deepseek_llm(void **state) { (void)state; check_vocab("deepseek-llm", true); }

static void test_bert(void **state) { (void)state; check_vocab("bert-bge", false); }

static void test_bert_additions(void **state) {
  (void)state;
  const char *path = WEFT_SHARED_DIR "/vocabs/ggml-vocab-bert-bge.gguf";
  if (access(path, R_OK)) { print_message("skipped: %s is not there\n", path); skip(); }
  gguf *g = NULL;
  tokenizer *t = NULL;
  open_tokenizer(path, &g, &t);
  error err = {0};
  int32_t *ids;
  size_t n;
  const char *text = "Hello [MASK] w\xC3\xB6rld";
  assert_int_equal(tokenizer_encode(t, text, strlen(text), true, true, &ids, &n, &err), 0);
  const int32_t want[] = {101, 7592, 103, 2088, 102};     // [CLS] hello [MASK] world [SEP]
  assert_int_equal(n, COUNT(want));
  assert_memory_equal(ids, want, sizeof want);
  str out = {0};
  tokenizer_decode(t, ids, n, false, &out);
  assert_string_equal(str_c(&out), "helloworld");         // a control token stands between them
  str_free(&out);
  free(ids);
  tokenizer_free(t);
  gguf_close(g);
}

static void test_roles_and_ends(void **state) {
  (void)state;
  if (access(WEFT_SHARED_DIR "/vocabs/ggml-vocab-llama-bpe.gguf", R_OK)) {
    print_message("skipped: no shared vocabularies\n");
    skip();
  }
  gguf *g = NULL;
  tokenizer *t = NULL;
  int32_t *ids;
  size_t n;
  open_tokenizer(WEFT_SHARED_DIR "/vocabs/ggml-vocab-llama-bpe.gguf", &g, &t);
  assert_int_equal(tokenizer_role(t, ROLE_bos), 128000);
  assert_true(tokenizer_is_eog(t, 128001));               // <|end_of_text|>
  assert_true(tokenizer_is_eog(t, 128009));               // <|eot_id|>
  assert_false(tokenizer_is_eog(t, 128000));
  assert_false(tokenizer_is_eog(t, -1));
  assert_false(tokenizer_is_eog(t, 1 << 30));
  assert_true(tokenizer_adds_bos(t));
  error err = {0};
  const char *chat = "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>";
  assert_int_equal(tokenizer_encode(t, chat, strlen(chat), true, true, &ids, &n, &err), 0);
  const int32_t want[] = {128000, 128006, 882, 128007, 271, 13347, 128009};
  assert_int_equal(n, COUNT(want));
  assert_memory_equal(ids, want, sizeof want);
  free(ids);
  // The same text from a user holds no control token.
  assert_int_equal(tokenizer_encode(t, chat, strlen(chat), false, false, &ids, &n, &err), 0);
  for (size_t i = 0; i < n; i++) assert_int_not_equal(tokenizer_token_type(t, ids[i]), TOKEN_CONTROL);
  free(ids);
  tokenizer_free(t);
  gguf_close(g);
}

static void test_tinypy_round_trip(void **state) {
  (void)state;
  size_t n_text, n;
  char *text = read_file(WEFT_SHARED_DIR "/models/tinypy-heldout.txt", &n_text);
  if (!text || access(WEFT_SHARED_DIR "/models/tinypy-q4_0.gguf", R_OK)) {
    free(text);
    print_message("skipped: no tinypy model under %s\n", WEFT_SHARED_DIR);
    skip();
  }
  gguf *g = NULL;
  tokenizer *t = NULL;
  int32_t *ids;
  error err = {0};
  open_tokenizer(WEFT_SHARED_DIR "/models/tinypy-q4_0.gguf", &g, &t);
  if (tokenizer_encode(t, text, n_text, true, false, &ids, &n, &err)) fail_msg("%s", err.text);
  assert_int_equal(ids[0], tokenizer_role(t, ROLE_bos));
  assert_true(n > n_text / 10 && n < n_text / 2);         // it compresses: merges are at work
  str back = {0};
  tokenizer_decode(t, ids, n, false, &back);
  assert_int_equal(back.n, n_text);
  assert_memory_equal(back.at, text, n_text);
  str_free(&back);
  free(ids);
  free(text);
  tokenizer_free(t);
  gguf_close(g);
}

// From an open file to the first ids: 280,147 merges have to be read before.  The bound is far above what it takes, so
// that a busy machine does not fail the test, and another one with sanitizers; the time is printed.
static void test_start_is_quick(void **state) {
  (void)state;
  const char *path = WEFT_SHARED_DIR "/vocabs/ggml-vocab-llama-bpe.gguf";
  if (access(path, R_OK)) { print_message("skipped: %s is not there\n", path); skip(); }
  gguf *g = NULL;
  tokenizer *t = NULL;
  error err = {0};
  assert_int_equal(gguf_open(path, &g, &err), 0);
  double start = cpu_s();
  assert_int_equal(tokenizer_from_gguf(g, &t, &err), 0);
  double made = cpu_s();
  int32_t *ids;
  size_t n;
  assert_int_equal(tokenizer_encode(t, "Hello world", 11, true, false, &ids, &n, &err), 0);
  print_message("llama-bpe: made in %.1f ms, first encoding %.1f ms\n", (made - start) * 1e3, (cpu_s() - made) * 1e3);
  assert_true(cpu_s() - start < (getenv("WEFT_SANITIZED") ? 20 : 2));
  free(ids);
  tokenizer_free(t);
  gguf_close(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_gpt_2),
    cmocka_unit_test(test_llama_bpe),
    cmocka_unit_test(test_qwen2),
    cmocka_unit_test(test_llama_spm),
    cmocka_unit_test(test_phi_3),
    cmocka_unit_test(test_falcon),
    cmocka_unit_test(test_deepseek_llm),
    cmocka_unit_test(test_bert),
    cmocka_unit_test(test_bert_additions),
    cmocka_unit_test(test_roles_and_ends),
    cmocka_unit_test(test_tinypy_round_trip),
    cmocka_unit_test(test_start_is_quick),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
