// Constrained output through the public API, on the vocabulary of the model that the repository keeps.
#include "weft.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

struct rig { weft_file *f; weft_vocab *v; };

static int rig_open(void **state) {
  static struct rig r;
  *state = &r;
  return weft_file_open(WEFT_SOURCE_DIR "/models/tinypy.gguf", &r.f, NULL) || weft_vocab_open(r.f, &r.v, NULL);
}

static int rig_close(void **state) {
  struct rig *r = *state;
  weft_vocab_close(r->v);
  weft_file_close(r->f);
  return 0;
}

// Takes the first token that the mask allows until the text has to end; the text.
static char *first_text(const struct rig *r, weft_grammar *g) {
  weft_error err;
  int32_t ids[64];
  size_t n = 0, bytes;
  char *text;
  for (; !weft_grammar_ended(g) && n < 64; n++) {
    const uint64_t *mask;
    if (weft_grammar_mask(g, &mask, &err)) fail_msg("%s", err.text);
    int32_t id = 0;
    while (id < weft_vocab_size(r->v) && (!(mask[id / 64] >> id % 64 & 1) || weft_is_end(r->v, id))) id++;
    assert_true(id < weft_vocab_size(r->v));
    if (weft_grammar_accept(g, id, &err)) fail_msg("%s", err.text);
    ids[n] = id;
  }
  assert_true(weft_grammar_complete(g));
  assert_int_equal(weft_detokenize(r->v, ids, n, false, &text, &bytes, &err), 0);
  return text;
}

static void test_three_kinds(void **state) {
  const struct rig *r = *state;
  weft_grammar *g;
  weft_error err;
  char *text;
  assert_int_equal(weft_grammar_open_gbnf(r->v, "root ::= \"x = \" [7]{3}", 22, &g, &err), 0);
  text = first_text(r, g);
  assert_string_equal(text, "x = 777");
  weft_free(text);
  assert_int_equal(weft_grammar_accept_text(g, "x", 1, &err), -1);
  weft_grammar_reset(g);
  assert_int_equal(weft_grammar_accept_text(g, "x = 7", 5, &err), 0);
  weft_grammar *copy = weft_grammar_clone(g);
  assert_int_equal(weft_grammar_accept_text(g, "77", 2, &err), 0);
  assert_true(weft_grammar_ended(g));
  weft_grammar_free(g);                                    // the copy goes on without it
  assert_false(weft_grammar_complete(copy));
  assert_int_equal(weft_grammar_accept_text(copy, "77", 2, &err), 0);
  assert_true(weft_grammar_complete(copy));
  weft_grammar_free(copy);
  static const char schema[] = "{\"type\":\"boolean\",\"const\":true}", regex[] = "a{2}|a{2}b";
  assert_int_equal(weft_grammar_open_json_schema(r->v, schema, strlen(schema), &g, &err), 0);
  text = first_text(r, g);
  assert_string_equal(text, "true");
  weft_free(text);
  weft_grammar_free(g);
  assert_int_equal(weft_grammar_open_regex(r->v, regex, strlen(regex), &g, &err), 0);
  assert_int_equal(weft_grammar_accept_text(g, "aa", 2, &err), 0);
  assert_true(weft_grammar_complete(g) && !weft_grammar_ended(g));
  assert_int_equal(weft_grammar_accept(g, weft_vocab_size(r->v), &err), -1);
  assert_non_null(strstr(err.text, "outside the vocabulary"));
  weft_grammar_free(g);
}

static void test_refusals(void **state) {
  const struct rig *r = *state;
  weft_grammar *g = NULL;
  weft_error err;
  assert_int_equal(weft_grammar_open_gbnf(r->v, "root ::= x", 10, &g, &err), -1);
  assert_string_equal(err.text, "line 1: rule 'x' is not defined");
  assert_int_equal(weft_grammar_open_json_schema(r->v, "{\"not\":{}}", 10, &g, &err), -1);
  assert_non_null(strstr(err.text, "schema at #, not: "));
  assert_int_equal(weft_grammar_open_regex(r->v, "(a)\\1", 5, &g, NULL), -1);
  assert_null(g);
  weft_grammar_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_three_kinds), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, rig_open, rig_close);
}
