// What an encoding gives, compared: for tests of tokenizers, which include this after cmocka.h.
#ifndef WEFT_TEST_IDS_H
#define WEFT_TEST_IDS_H
#include <stdlib.h>
#include <string.h>
#include "text/text.h"

enum { PLAIN = 0, ADD = 1, PARSE = 2 };

// Encodes and compares: the wanted ids end with -1.
static inline void wants(const tokenizer *t, const char *text, size_t n, int how, const int32_t *want) {
  int32_t *ids;
  size_t n_ids, n_want = 0;
  error err = {0};
  if (tokenizer_encode(t, text, n, how & ADD, how & PARSE, &ids, &n_ids, &err))
    fail_msg("'%.*s': %s", (int)n, text, err.text);
  while (want[n_want] != -1) n_want++;
  bool same = n_ids == n_want && !memcmp(ids, want, n_want * sizeof *want);
  if (!same) {
    print_error("'%.*s' gives", (int)n, text);
    for (size_t i = 0; i < n_ids; i++) print_error(" %d", ids[i]);
    print_error("\n");
  }
  assert_true(same);
  free(ids);
}

// Encodes and decodes: what comes back is `want`, or the text itself where that is NULL.
static inline void comes_back(const tokenizer *t, const char *text, size_t n, const str *want) {
  int32_t *ids;
  size_t n_ids;
  error err = {0};
  str back = {0};
  if (tokenizer_encode(t, text, n, false, false, &ids, &n_ids, &err)) fail_msg("%s", err.text);
  tokenizer_decode(t, ids, n_ids, false, &back);
  assert_int_equal(back.n, want ? want->n : n);
  assert_memory_equal(str_c(&back), want ? str_c(want) : text, back.n);
  str_free(&back);
  free(ids);
}
static inline void goes_round(const tokenizer *t, const char *text, size_t n) { comes_back(t, text, n, NULL); }
#endif
