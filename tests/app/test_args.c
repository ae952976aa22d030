// The option parser: every kind of value, every way to be wrong, lists and ranges, and the nearest word.
#include "app/args.c"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const struct command command = {"try", "A command for this test.", "[options]", "A last paragraph.\n"};

struct values { bool flag; const char *text; int64_t number; double real; struct ids ids; int choice; struct texts texts; };

static enum args_result parse(struct values *v, error *err, int argc, char **argv) {
  const struct option table[] = {
    O_GROUP("Options"),
    O_FLAG("-x, --flag", "a flag", &v->flag),
    O_TEXT("-m, --model", "FILE", "a text", &v->text),
    O_INT("-n, --predict, --count", "N", "a number", &v->number, -1, 100),
    O_REAL("--temp", "X", "a real", &v->real, 0, 2),
    O_IDS("--ids", "1,2,3", "ids", &v->ids),
    O_CHOICE("-o, --output", "md|json|jsonl", "a choice", &v->choice),
    O_TEXTS("--each", "T", "texts", &v->texts),
  };
  return args_parse(&command, table, COUNT(table), argc, argv, err);
}

// Parses words (NULL at the end) into *v, which starts as it is.
static enum args_result words_in(struct values *v, error *err, char **argv_after) {
  char *argv[16] = {(char[]){"try"}};
  int argc = 1;
  while (argv_after[argc - 1]) { argv[argc] = argv_after[argc - 1]; argc++; }
  *err = (error){0};
  return parse(v, err, argc, argv);
}
#define WORDS(...) (char *[]){__VA_ARGS__, NULL}
#define W(s) ((char[]){s})

static void good(struct values *v, char **argv) {
  error err;
  if (words_in(v, &err, argv) != ARGS_GO) fail_msg("refused: %s", err.text);
}

static void bad(char **argv, const char *expected) {
  struct values v = {0};
  error err;
  assert_int_equal(words_in(&v, &err, argv), ARGS_BAD);
  if (!strstr(err.text, expected)) fail_msg("'%s' does not mention '%s'", err.text, expected);
  free(v.ids.at);
}

static void test_values(void **state) {
  (void)state;
  struct values v = {.number = 7};
  good(&v, WORDS(W("-x"), W("--model"), W("a b"), W("--temp=0.5"), W("--ids"), W("[1, 2,3]"), W("--output=jsonl")));
  assert_true(v.flag);
  assert_string_equal(v.text, "a b");
  assert_int_equal(v.number, 7);                       // not given: stays
  assert_true(v.real == .5);
  assert_int_equal(v.ids.n, 3);
  assert_int_equal(v.ids.at[2], 3);
  assert_int_equal(v.choice, 2);
  good(&v, WORDS(W("--count"), W("-1"), W("--ids"), W("9 8"), W("-o"), W("md")));
  assert_int_equal(v.number, -1);                      // a negative number is a value
  assert_int_equal(v.ids.n, 2);                        // the last one counts
  assert_int_equal(v.choice, 0);
  good(&v, WORDS(W("--each"), W("a"), W("--each=b")));
  assert_int_equal(v.texts.n, 2);                      // all of them count
  assert_string_equal(v.texts.at[1], "b");
  texts_free(&v.texts);
  good(&v, WORDS(W("-m"), W("--flag"), W("-n"), W("3"), W("-n"), W("4")));
  assert_string_equal(v.text, "--flag");               // so is what looks like an option
  assert_int_equal(v.number, 4);
  good(&v, WORDS(W("--model=a=b"), W("-m"), W("")));
  assert_string_equal(v.text, "");
  free(v.ids.at);
}

static void test_errors(void **state) {
  (void)state;
  bad(WORDS(W("--modle"), W("x")), "did you mean '--model'");
  bad(WORDS(W("--nothing-like-it")), "weft try --help");
  bad(WORDS(W("-q")), "unknown option '-q'");
  bad(WORDS(W("--modle=x")), "'--modle'; did you mean '--model'");
  bad(WORDS(W("word")), "unexpected argument 'word'");
  bad(WORDS(W("-")), "unexpected argument '-'");
  bad(WORDS(W("-m")), "-m needs a value: FILE");
  bad(WORDS(W("-x"), W("--count")), "--count needs a value: N");
  bad(WORDS(W("--flag=1")), "--flag takes no value");
  bad(WORDS(W("-n"), W("three")), "-n needs a whole number, not 'three'");
  bad(WORDS(W("-n"), W("1.5")), "whole number");
  bad(WORDS(W("-n"), W("")), "whole number");
  bad(WORDS(W("-n"), W("99999999999999999999")), "whole number");
  bad(WORDS(W("-n"), W("101")), "-n must lie between -1 and 100, not 101");
  bad(WORDS(W("-n"), W("-2")), "between -1 and 100");
  bad(WORDS(W("--temp"), W("nan")), "--temp needs a number, not 'nan'");
  bad(WORDS(W("--temp"), W("inf")), "needs a number");
  bad(WORDS(W("--temp"), W("1x")), "needs a number");
  bad(WORDS(W("--temp"), W("2.1")), "between 0 and 2");
  bad(WORDS(W("-o"), W("xml")), "one of md|json|jsonl, not 'xml'");
  bad(WORDS(W("-o"), W("js")), "one of");
  bad(WORDS(W("--ids"), W("1,x")), "--ids: 'x' is not a token id");
  bad(WORDS(W("--ids"), W("-1")), "'-1' is not a token id");
  bad(WORDS(W("--ids"), W("4294967296")), "not a token id");
  bad(WORDS(W("--ids"), W("2147483648")), "not a token id");
  bad(WORDS(W("--ids"), W("")), "--ids needs token ids");
  bad(WORDS(W("--ids"), W("1,,2")), "--ids: no token id stands before ',2'");
  bad(WORDS(W("--ids"), W(",1")), "no token id stands before ',1'");
  bad(WORDS(W("--ids"), W("1,2,")), "no token id stands after the last comma");
  bad(WORDS(W("--ids"), W("[1,2")), "the bracket '[' is not closed");
  bad(WORDS(W("--ids"), W("1]")), "no token id stands before ']'");
  bad(WORDS(W("--ids"), W("[1] 2")), "nothing may stand after the last token id");
  bad(WORDS(W("--ids"), W("[]")), "--ids needs token ids");
}

static void test_help(void **state) {
  (void)state;
  struct values v = {0};
  char *text = NULL;
  size_t n = 0;
  const struct option table[] = {O_GROUP("Group"), O_FLAG("-x, --flag", "first\nsecond", &v.flag), O_TEXT("--hidden", "X", "", &v.text)};
  FILE *f = open_memstream(&text, &n);
  args_help(&command, table, COUNT(table), f);
  fclose(f);
  assert_non_null(strstr(text, "weft try [options]"));
  assert_non_null(strstr(text, "\nGroup\n  -x, --flag                      first\n                                  second\n"));
  assert_non_null(strstr(text, "-h, --help"));
  assert_non_null(strstr(text, "A last paragraph."));
  assert_null(strstr(text, "hidden"));
  free(text);
  error err;
  struct values w = {0};
  good(&w, WORDS(W("-m"), W("-h")));                   // the value of an option is no call for help
  assert_string_equal(w.text, "-h");
  fflush(stdout);
  assert_int_equal(words_in(&w, &err, WORDS(W("--nonsense"), W("-h"))), ARGS_HELP);
}

static void list(const char *text, const char *expected) {
  numbers n = {0};
  error err = {0};
  char got[256] = "";
  if (args_numbers("-p", text, 0, 100000, &n, &err)) snprintf(got, sizeof got, "error");
  for (size_t i = 0; !err.text[0] && i < n.n; i++) snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", (int)n.at[i]);
  assert_string_equal(got, expected);
  vec_free(&n);
}

static void test_lists(void **state) {
  (void)state;
  list("512", "512");
  list("1,2,8", "1 2 8");
  list("0", "0");
  list("16-64+16", "16 32 48 64");
  list("16-64*2", "16 32 64");
  list("3-5", "3 4 5");
  list("1,10-30+10,7", "1 10 20 30 7");
  list("5-12+5", "5 10");
  list("7-7+3", "7");
  static const char *const wrong[] = {"", ",", "1,", "x", "1x", "-1", "5-3", "1-9+0", "1-9*1", "0-9*2", "1-9+x", "1-9/2", "100001", "1-100000",
                                      "1-5+99999999999", "99999999999999999999999"};
  for (size_t i = 0; i < COUNT(wrong); i++) list(wrong[i], "error");
}

static void test_nearest(void **state) {
  (void)state;
  static const char *const known[] = {"run", "bench", "inspect", "tokenize", "env", "help"};
  assert_string_equal(args_nearest("rnu", known, COUNT(known)), "run");
  assert_string_equal(args_nearest("tokenise", known, COUNT(known)), "tokenize");
  assert_string_equal(args_nearest("inspcet", known, COUNT(known)), "inspect");
  assert_null(args_nearest("xyz", known, COUNT(known)));
  assert_null(args_nearest("", known, COUNT(known)));
  char longer[200];
  memset(longer, 'a', sizeof longer - 1);
  longer[sizeof longer - 1] = 0;
  assert_null(args_nearest(longer, known, COUNT(known)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_values), cmocka_unit_test(test_errors), cmocka_unit_test(test_help),
    cmocka_unit_test(test_lists), cmocka_unit_test(test_nearest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
