// How a model can be opened (include/weft/model.h): from a path, a descriptor or memory, on a device that is named,
// until somebody stops it; and where warnings go.  The expected logits are those of the file itself, to the last bit.
#include "weft.h"
#include "base/str.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define MODEL WEFT_SOURCE_DIR "/models/tinypy.gguf"

static const int32_t IDS[] = {0, 316, 714, 5, 9, 40};
enum { N_IDS = sizeof IDS / sizeof *IDS };

static float *logits_of(weft_model *m) {
  const float *logits;
  weft_error err;
  if (weft_decode(m, IDS, N_IDS, 0, &logits, &err)) fail_msg("%s", err.text);
  size_t bytes = (size_t)weft_model_vocab_size(m) * sizeof *logits;
  return memcpy(malloc(bytes), logits, bytes);
}

static weft_model *opened(const char *path, const weft_options *opt) {
  weft_model *m;
  weft_error err;
  if (weft_model_open(path, opt, &m, &err)) fail_msg("%s", err.text);
  return m;
}

static float *expected_logits(size_t *bytes) {
  weft_model *m = opened(MODEL, NULL);
  float *logits = logits_of(m);
  *bytes = (size_t)weft_model_vocab_size(m) * sizeof *logits;
  weft_model_close(m);
  return logits;
}

static void *whole_file(size_t *n) {
  FILE *f = fopen(MODEL, "rb");
  assert_non_null(f);
  assert_int_equal(fseek(f, 0, SEEK_END), 0);
  *n = (size_t)ftell(f);
  rewind(f);
  void *data = aligned_alloc(4096, (*n + 4095) / 4096 * 4096);
  assert_int_equal(fread(data, 1, *n, f), *n);
  fclose(f);
  return data;
}

static void test_from_memory(void **state) {
  (void)state;
  size_t n, bytes;
  char *data = whole_file(&n), *before = memcpy(malloc(n), data, n);
  float *expected = expected_logits(&bytes);
  weft_model *m;
  weft_file *file;
  weft_error err;
  assert_int_equal(weft_model_open_memory(data, n, "held", NULL, &m, &err), 0);
  float *got = logits_of(m);
  assert_memory_equal(got, expected, bytes);
  assert_string_equal(weft_file_path(weft_model_file(m)), "held");
  assert_int_equal(weft_model_content(m, -1, NULL, &err), -1);   // no file names what it computes
  assert_non_null(strstr(err.text, "held"));
  weft_model_close(m);
  assert_memory_equal(data, before, n);
  assert_int_equal(weft_file_open_memory(data, n, "held", &file, &err), 0);
  assert_int_equal(weft_file_can_run(file, &err), 0);
  weft_file_close(file);
  for (size_t size = 0; size <= n; size += n) {           // not the file that has this name
    assert_int_equal(weft_model_open_memory(NULL, size, MODEL, NULL, &m, &err), -1);
    assert_non_null(strstr(err.text, "NULL"));
    assert_int_equal(weft_file_open_memory(NULL, size, MODEL, &file, &err), -1);
    assert_non_null(strstr(err.text, "NULL"));
  }
  assert_int_equal(weft_model_open_memory(data, n / 2, "half", NULL, &m, &err), -1);
  assert_non_null(strstr(err.text, "half"));
  memmove(data + 8, data, n - 8);
  assert_int_equal(weft_file_open_memory(data + 8, n - 8, "odd", &file, &err), -1);
  assert_non_null(strstr(err.text, "aligned to 16"));
  free(data); free(before); free(expected); free(got);
}

static void test_from_a_descriptor(void **state) {
  (void)state;
  size_t bytes;
  float *expected = expected_logits(&bytes);
  int fd = open(MODEL, O_RDONLY);
  char path[32];
  snprintf(path, sizeof path, "/dev/fd/%d", fd);
  weft_model *m = opened(path, NULL);
  close(fd);                                            // the model has its own
  float *got = logits_of(m);
  assert_memory_equal(got, expected, bytes);
  weft_model_close(m);
  free(expected); free(got);
}

static int32_t best(const float *logits, size_t n) {
  size_t at = 0;
  for (size_t i = 1; i < n; i++) if (logits[i] > logits[at]) at = i;
  return (int32_t)at;
}

static void test_on_a_device(void **state) {
  (void)state;
  size_t bytes;
  float *expected = expected_logits(&bytes);
  weft_model *m = opened(MODEL, &(weft_options){.device = "REF", .context = 128});
  float *got = logits_of(m);
  assert_int_equal(best(got, bytes / 4), best(expected, bytes / 4));
  assert_memory_not_equal(got, expected, bytes);        // computed in 64 bits: it was not the CPU's kernels
  weft_model_close(m);
  weft_error err;
  assert_int_equal(weft_model_open(MODEL, &(weft_options){.device = "ABACUS"}, &m, &err), -1);
  assert_non_null(strstr(err.text, "ABACUS"));
  free(expected); free(got);
}

struct countdown { int left, asked; };

static bool at_zero(void *ctx) {
  struct countdown *c = ctx;
  c->asked++;
  return c->left-- <= 0;
}

static void test_stopped(void **state) {
  (void)state;
  struct countdown never = {1 << 30, 0};
  weft_model *m = opened(MODEL, &(weft_options){.threads = 1, .stop = at_zero, .progress_ctx = &never});
  assert_true(never.asked > 3);
  weft_model_close(m);
  for (int left = 0; left < never.asked; left += 1 + never.asked / 6) {
    struct countdown c = {left, 0};
    weft_error err;
    if (!weft_model_open(MODEL, &(weft_options){.threads = 1, .stop = at_zero, .progress_ctx = &c}, &m, &err))
      fail_msg("opened, though it was stopped at question %d of %d", left, never.asked);
    assert_non_null(strstr(err.text, "loading was stopped"));
    assert_non_null(strstr(err.text, "tinypy.gguf"));
  }
}

static void heard(void *ctx, const char *text) { snprintf(ctx, 100, "%s", text); }

static void test_warnings(void **state) {
  (void)state;
  char text[100] = "";
  weft_log_to(heard, text);
  warning("%d layers\n of %s", 3, "it");
  assert_string_equal(text, "3 layers  of it");
  weft_log_to(NULL, NULL);
  warning("this one goes to stderr");
  assert_string_equal(text, "3 layers  of it");
}

static void test_tokens(void **state) {
  (void)state;
  weft_file *file;
  weft_vocab *v;
  weft_error err;
  weft_value of;
  size_t types;
  assert_int_equal(weft_file_open(MODEL, &file, &err), 0);
  assert_int_equal(weft_vocab_open(file, &v, &err), 0);
  assert_int_equal(weft_file_find(file, "tokenizer.ggml.token_type", &types), 0);
  for (int32_t id = 0; id < weft_vocab_size(v); id++) {
    assert_int_equal(weft_file_element(file, types, (size_t)id, &of), 0);
    assert_int_equal(weft_token_type(v, id), of.i);
    assert_true(weft_token_score(v, id) == 0);          // the file has none
  }
  assert_int_equal(weft_token_type(v, weft_bos(v)), WEFT_TOKEN_CONTROL);
  assert_int_equal(weft_token_type(v, -1), WEFT_TOKEN_UNDEFINED);
  weft_vocab_close(v);
  weft_file_close(file);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_from_memory),
    cmocka_unit_test(test_from_a_descriptor),
    cmocka_unit_test(test_on_a_device),
    cmocka_unit_test(test_stopped),
    cmocka_unit_test(test_warnings),
    cmocka_unit_test(test_tokens),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
