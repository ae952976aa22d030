// What a broken tokenizer description gets.  Each refusal names key and value, and the file where there is one; an
// unknown algorithm is refused only when text has to be encoded.
//
// The list of hostile inputs, lines 37 to 46: arrays of different lengths, test_lengths_differ; scores of another type,
// test_wrong_types_in_a_file; BOS and EOS that are no tokens, test_roles_out_of_range; duplicate and empty tokens,
// test_duplicates_and_empties; a huge token, test_huge_token.  Elsewhere: merges of absent tokens and in circles,
// test_odd_merges_are_ignored of test_tokenizer.c; charsmaps, test_charsmap of test_models.c; bytes that are no text,
// the round trips there and in test_tokenizer.c, and any cut of them, test_stream.c; megabytes of one character, in
// both; control tokens in user text, test_control_tokens_need_leave of test_tokenizer.c.  A token's text cut anywhere
// in a character: test_utf8.c.
#define _GNU_SOURCE
#include "model/gguf_writer.h"
#include "text/small_vocab.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

// tokenizer_new must fail with all of the words in its message.
static void refused(const vocab_desc *d, const char *const *words) {
  tokenizer *t = NULL;
  error err = {0};
  assert_int_equal(tokenizer_new(d, &t, &err), -1);
  for (; *words; words++)
    if (!strstr(err.text, *words)) fail_msg("'%s' is not in: %s", *words, err.text);
}
#define REFUSED(d, ...) refused(d, (const char *const[]){__VA_ARGS__, NULL})

static void bpe_small(small *s) {
  small_init(s, "gpt2", "gpt-2");
  small_bytes_bpe(s);
  small_merges(s, "a", "b");
}

static void test_lengths_differ(void **state) {
  (void)state;
  small s;
  bpe_small(&s);
  vocab_desc *d = small_desc(&s);
  d->n_types--;
  REFUSED(d, "small.gguf", "tokenizer.ggml.token_type", "256", "tokenizer.ggml.tokens", "257");
  d->n_types += 2;
  REFUSED(d, "tokenizer.ggml.token_type", "258", "257");
  d->n_types--;
  d->n_scores = 0;
  REFUSED(d, "tokenizer.ggml.scores", "has 0", "257");
  d->n_scores = 1000;
  REFUSED(d, "tokenizer.ggml.scores", "1000", "257");
  d->n_scores = 257;
  d->n_tokens = 0;
  REFUSED(d, "tokenizer.ggml.tokens");
  small_free(&s, NULL);
}

static void test_scores_that_are_no_numbers(void **state) {
  (void)state;
  small s;
  bpe_small(&s);
  vocab_desc *d = small_desc(&s);
  s.scores.at[7] = NAN;
  REFUSED(d, "tokenizer.ggml.scores[7]");
  s.scores.at[7] = INFINITY, s.scores.at[8] = -INFINITY;  // these can be compared
  tokenizer *t = NULL;
  assert_int_equal(tokenizer_new(d, &t, NULL), 0);
  small_free(&s, t);
}

static void test_roles_out_of_range(void **state) {
  (void)state;
  small s;
  bpe_small(&s);
  vocab_desc *d = small_desc(&s);
  d->role[ROLE_bos] = 257;
  REFUSED(d, "tokenizer.ggml.bos_token_id", "257");
  d->role[ROLE_bos] = -5;
  REFUSED(d, "tokenizer.ggml.bos_token_id", "-5");
  d->role[ROLE_bos] = 256;
  d->role[ROLE_eos] = 1ll << 40;
  REFUSED(d, "tokenizer.ggml.eos_token_id", "1099511627776");
  d->role[ROLE_eos] = 0xFFFFFFFFll;                       // -1 as some writers store it
  tokenizer *t = NULL;
  assert_int_equal(tokenizer_new(d, &t, NULL), 0);
  assert_int_equal(tokenizer_role(t, ROLE_eos), -1);
  tokenizer_free(t);
  d->add_eos = 1;
  REFUSED(d, "tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id");
  small_free(&s, NULL);
}

static void test_duplicates_and_empties(void **state) {
  (void)state;
  small s;
  bpe_small(&s);
  small_add(&s, "", TOKEN_NORMAL, 0), small_add(&s, "", TOKEN_NORMAL, 0);
  tokenizer *t = NULL;
  assert_int_equal(tokenizer_new(small_desc(&s), &t, NULL), 0);      // empty ones do no harm
  tokenizer_free(t);
  small_add(&s, "ab", TOKEN_CONTROL, 0);
  REFUSED(small_desc(&s), "tokenizer.ggml.tokens", "256", "259");
  small_free(&s, NULL);
}

// Line 42.  The length alone decides: nothing is read of such a token.
static text_view huge_token(const void *ctx, uint64_t i) {
  return i == 5 ? (text_view){"x", (size_t)1 << 30} : small_token(ctx, i);
}

static void test_huge_token(void **state) {
  (void)state;
  small s;
  bpe_small(&s);
  vocab_desc *d = small_desc(&s);
  d->token = huge_token;
  REFUSED(d, "tokenizer.ggml.tokens[5]", "1073741824");
  d->token = small_token;
  d->n_tokens = d->n_types = d->n_scores = 1ull << 62;
  REFUSED(d, "tokenizer.ggml.tokens", "4611686018427387904");
  small_free(&s, NULL);
  // The longest token that is allowed works.
  small_init(&s, "gpt2", "llama-bpe");
  small_bytes_bpe(&s);
  char *text = xmalloc(65535);
  memset(text, 'x', 65535);
  int32_t id = small_addn(&s, text, 65535, TOKEN_USER_DEFINED, 0);
  small_only_merge(&s, "x x");
  tokenizer *t = small_make(&s);
  int32_t *ids;
  size_t n;
  assert_int_equal(tokenizer_encode(t, text, 65535, false, false, &ids, &n, NULL), 0);
  str back = {0};
  tokenizer_decode(t, ids, n, false, &back);
  assert_int_equal(back.n, 65535);
  tokenizer_piece(t, id, &back, false);
  assert_int_equal(back.n, 2 * 65535);
  str_free(&back);
  free(ids);
  free(text);
  small_free(&s, t);
}

static void cannot_encode(const tokenizer *t, const char *text, const char *a, const char *b) {
  int32_t *ids = NULL;
  size_t n;
  error err = {0};
  assert_int_equal(tokenizer_encode(t, text, strlen(text), false, false, &ids, &n, &err), -1);
  assert_null(ids);
  if (!strstr(err.text, a) || !strstr(err.text, b)) fail_msg("'%s' and '%s' are not in: %s", a, b, err.text);
}

static void test_unknown_algorithms_still_decode(void **state) {
  (void)state;
  static const struct { const char *model, *pre, *key, *value;
  } cases[] = {{"unigram9000", NULL, "tokenizer.ggml.model", "unigram9000"},
               {NULL, NULL, "tokenizer.ggml.model", "absent"},
               {"gpt2", "pre-of-tomorrow", "tokenizer.ggml.pre", "pre-of-tomorrow"},
               {"gpt2", "evil\x1b[31m", "tokenizer.ggml.pre", "evil?[31m"}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    small s;
    small_init(&s, cases[i].model, cases[i].pre);
    int32_t id = small_add(&s, "hello", TOKEN_NORMAL, 0);
    tokenizer *t = small_make(&s);
    error err = {0};
    assert_int_equal(tokenizer_can_encode(t, &err), -1);
    cannot_encode(t, "x", cases[i].key, cases[i].value);
    cannot_encode(t, "x", "small.gguf", "");
    str out = {0};
    tokenizer_piece(t, id, &out, false);
    assert_string_equal(str_c(&out), "hello");
    str_free(&out);
    small_free(&s, t);
  }
  small s;
  bpe_small(&s);
  vocab_desc *d = small_desc(&s);
  d->merge = NULL, d->n_merges = 0;
  tokenizer *t = NULL;
  assert_int_equal(tokenizer_new(d, &t, NULL), 0);
  cannot_encode(t, "x", "tokenizer.ggml.merges", "absent");
  small_free(&s, t);
}

static void test_no_tokenizer_at_all(void **state) {
  (void)state;
  vocab_desc d;
  vocab_desc_init(&d);
  d.role[ROLE_bos] = 1;                                   // nothing to compare it with
  tokenizer *t = NULL;
  assert_int_equal(tokenizer_new(&d, &t, NULL), 0);
  assert_int_equal(tokenizer_n_vocab(t), 0);
  cannot_encode(t, "", "tokenizer.ggml.model", "absent");
  str out = {0};
  const int32_t ids[] = {0, 1, -7};
  tokenizer_decode(t, ids, COUNT(ids), true, &out);
  assert_int_equal(out.n, 0);
  str_free(&out);
  tokenizer_free(t);
  tokenizer_free(NULL);
}

static void test_vocabulary_without_a_byte(void **state) {
  (void)state;
  small s;
  small_init(&s, "gpt2", "gpt-2");
  small_add(&s, "a", TOKEN_NORMAL, 0);
  int32_t unk = small_add(&s, "?", TOKEN_NORMAL, 0), control = small_add(&s, "<|end|>", TOKEN_CONTROL, 0);
  small_only_merge(&s, "a a");
  int32_t *ids;
  size_t n;
  tokenizer *t;
  for (int round = 0; round < 2; round++) {               // the byte is left out, and nothing merges across it
    if (round) s.d.role[ROLE_unk] = control;              // text must not become that one
    t = small_make(&s);
    assert_int_equal(tokenizer_encode(t, "abab", 4, false, false, &ids, &n, NULL), 0);
    assert_int_equal(n, 2);
    assert_true(ids[0] == 0 && ids[1] == 0);
    free(ids);
    tokenizer_free(t);
  }
  s.d.role[ROLE_unk] = unk;
  t = small_make(&s);
  assert_int_equal(tokenizer_encode(t, "aba", 3, false, false, &ids, &n, NULL), 0);
  assert_int_equal(n, 3);
  assert_int_equal(ids[1], unk);
  free(ids);
  small_free(&s, t);

  small_init(&s, "llama", NULL);
  small_add(&s, "a", TOKEN_NORMAL, 0);
  t = small_make(&s);
  cannot_encode(t, "a", "tokenizer.ggml.tokens", "<0x20>");
  small_free(&s, t);
}

// ---- Through a file: wrong types are found by the reader, and messages name the file ----

struct file { str bytes; gguf *g; };

static void begin(struct file *f, uint64_t n_kv) {
  *f = (struct file){0};
  w_header(&f->bytes, 0, n_kv);
  w_key_str(&f->bytes, "general.architecture", "llama");
}
static void write_tokens(struct file *f, const char *model, uint64_t n) {
  w_key_str(&f->bytes, "tokenizer.ggml.model", model);
  w_key_array(&f->bytes, "tokenizer.ggml.tokens", GGUF_STRING, n);
  for (uint64_t i = 0; i < n; i++) { char c = (char)('a' + i); w_strn(&f->bytes, &c, 1); }
}
static int from_file(struct file *f, tokenizer **t, error *err) {
  w_pad(&f->bytes, 32);
  f->bytes.at = xrealloc(f->bytes.at, f->bytes.n + 1);
  if (gguf_open_memory(f->bytes.at, f->bytes.n, "evil.gguf", &f->g, err)) fail_msg("%s", err->text);
  return tokenizer_from_gguf(f->g, t, err);
}
static void end(struct file *f) { gguf_close(f->g); str_free(&f->bytes); }

static void file_refused(struct file *f, const char *key, const char *value) {
  tokenizer *t = NULL;
  error err = {0};
  assert_int_equal(from_file(f, &t, &err), -1);
  if (!strstr(err.text, "evil.gguf") || !strstr(err.text, key) || !strstr(err.text, value))
    fail_msg("%s, %s: %s", key, value, err.text);
  end(f);
}

static void test_wrong_types_in_a_file(void **state) {
  (void)state;
  struct file f;
  begin(&f, 4), write_tokens(&f, "llama", 3);
  w_key_array(&f.bytes, "tokenizer.ggml.scores", GGUF_INT8, 3), w_u8(&f.bytes, 1), w_u8(&f.bytes, 2), w_u8(&f.bytes, 3);
  file_refused(&f, "tokenizer.ggml.scores", "INT8");
  begin(&f, 4), write_tokens(&f, "llama", 3);
  w_key_array(&f.bytes, "tokenizer.ggml.scores", GGUF_FLOAT32, 2), w_f32(&f.bytes, 1), w_f32(&f.bytes, 2);
  file_refused(&f, "tokenizer.ggml.scores", "2");
  begin(&f, 4), write_tokens(&f, "gpt2", 3);
  w_key_array(&f.bytes, "tokenizer.ggml.merges", GGUF_UINT32, 1), w_u32(&f.bytes, 1);
  file_refused(&f, "tokenizer.ggml.merges", "UINT32");
  begin(&f, 4), write_tokens(&f, "llama", 3);
  w_key_str(&f.bytes, "tokenizer.ggml.token_type", "normal");
  file_refused(&f, "tokenizer.ggml.token_type", "STRING");
  begin(&f, 4), write_tokens(&f, "llama", 3);
  w_key_int(&f.bytes, "tokenizer.ggml.bos_token_id", GGUF_UINT32, 3);
  file_refused(&f, "tokenizer.ggml.bos_token_id", "3");
  begin(&f, 4), write_tokens(&f, "llama", 3);
  w_key_int(&f.bytes, "tokenizer.ggml.add_bos_token", GGUF_UINT32, 1);
  file_refused(&f, "tokenizer.ggml.add_bos_token", "UINT32");
  begin(&f, 3), w_key_int(&f.bytes, "tokenizer.ggml.model", GGUF_UINT32, 1),
    w_key_str(&f.bytes, "tokenizer.ggml.pre", "x");
  file_refused(&f, "tokenizer.ggml.model", "UINT32");
  begin(&f, 2), w_key_str(&f.bytes, "tokenizer.ggml.model", "gpt2");
  file_refused(&f, "tokenizer.ggml.tokens", "absent");
}

static void test_good_and_missing_keys_in_a_file(void **state) {
  (void)state;
  struct file f;
  tokenizer *t = NULL;
  error err = {0};
  begin(&f, 5), write_tokens(&f, "gpt2", 3);
  w_key_array(&f.bytes, "tokenizer.ggml.merges", GGUF_STRING, 0);
  w_key_int(&f.bytes, "tokenizer.ggml.eos_token_id", GGUF_UINT32, 2);
  assert_int_equal(from_file(&f, &t, &err), 0);
  int32_t *ids;
  size_t n;
  assert_int_equal(tokenizer_encode(t, "cab", 3, true, false, &ids, &n, &err), 0);
  assert_int_equal(n, 3);
  assert_int_equal(ids[0], 2);
  assert_true(tokenizer_is_eog(t, 2));
  free(ids);
  tokenizer_free(t);
  end(&f);
  begin(&f, 1);
  assert_int_equal(from_file(&f, &t, &err), 0);           // no tokenizer keys: loads, cannot encode
  cannot_encode(t, "x", "evil.gguf", "tokenizer.ggml.model is absent");
  tokenizer_free(t);
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_lengths_differ),
    cmocka_unit_test(test_scores_that_are_no_numbers),
    cmocka_unit_test(test_roles_out_of_range),
    cmocka_unit_test(test_duplicates_and_empties),
    cmocka_unit_test(test_huge_token),
    cmocka_unit_test(test_unknown_algorithms_still_decode),
    cmocka_unit_test(test_no_tokenizer_at_all),
    cmocka_unit_test(test_vocabulary_without_a_byte),
    cmocka_unit_test(test_wrong_types_in_a_file),
    cmocka_unit_test(test_good_and_missing_keys_in_a_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
