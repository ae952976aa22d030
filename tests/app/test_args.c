// The option parser: every kind of value, every way to be wrong, lists and ranges, and the nearest word.
#include "app/args.c"
#include <setjmp.h>
#include <stddef.h>
#include <stdarg.h>
#include <cmocka.h>

enum { THIS = 1, OTHER = 2, NEAR = 4 };
static const struct command command = {"try", "A command for this test.", "[options]", "A last paragraph.\n", THIS,
                                       NEAR};

struct values {
  bool flag;
  const char *text, *operand;
  int64_t number;
  double real;
  struct ids ids;
  int choice, color;
  struct texts texts, keys;
  double bounded;
  bool shift;
};
#define FIELD(name) offsetof(struct values, name)

static const struct option rows[] = {
  {.kind = OPT_GROUP, .commands = THIS, .names = "Options"},
  {.kind = OPT_OPERAND, .commands = THIS, .names = "WORD", .help = "a word", .to = FIELD(operand)},
  {.kind = OPT_FLAG, .commands = THIS, .names = "-x, --flag", .help = "a flag", .to = FIELD(flag)},
  {.kind = OPT_OFF, .commands = THIS, .names = "--no-flag", .help = "no flag", .to = FIELD(flag)},
  {.kind = OPT_TEXT,
   .commands = THIS,
   .names = "-m, --model",
   .value = "FILE",
   .help = "a text\nof two lines",
   .to = FIELD(text)},
  {.kind = OPT_INT,
   .commands = THIS,
   .names = "-n, --predict, --count",
   .value = "N",
   .help = "a number",
   .to = FIELD(number),
   .min = -1,
   .max = 100,
   .meant = "--max-tokens --tokens"},
  {.kind = OPT_REAL, .commands = THIS, .names = "--temp", .value = "X", .help = "a real", .to = FIELD(real), .max = 2},
  {.kind = OPT_IDS, .commands = THIS, .names = "--ids", .value = "1,2,3", .help = "ids", .to = FIELD(ids)},
  {.kind = OPT_CHOICE,
   .commands = THIS,
   .names = "-o, --output",
   .value = "md|json|jsonl",
   .help = "a choice",
   .to = FIELD(choice)},
  {.kind = OPT_CHOICE,
   .commands = THIS,
   .names = "--color",
   .value = "[auto|on|off]",
   .help = "a choice, or none",
   .to = FIELD(color)},
  {.kind = OPT_TEXTS, .commands = THIS, .names = "--each", .value = "T", .help = "texts", .to = FIELD(texts)},
  {.kind = OPT_FLAG, .commands = OTHER, .names = "--other", .help = "of another command", .to = FIELD(flag)},
  {.kind = OPT_FLAG, .commands = NEAR, .names = "--neighbour", .help = "of one nearby", .to = FIELD(flag)},
  {.kind = OPT_IDLE, .commands = THIS, .names = "-g, --gpu", .value = "N", .help = "there is none", .fine = "0|auto"},
  {.kind = OPT_IDLE, .commands = THIS, .names = "-s, --split", .value = "MODE", .help = "there is none"},
  {.kind = OPT_IDLE, .commands = THIS, .names = "--attention", .value = "[on|off]", .help = "it is on", .fine = "on"},
  {.kind = OPT_IDLE, .commands = THIS, .names = "--so", .help = "it is so", .fine = "*"},
  {.kind = OPT_REFUSED,
   .commands = THIS,
   .names = "--type",
   .value = "TYPE",
   .help = "no other types",
   .fine = "f16",
   .idle = "f32|bf16"},
  {.kind = OPT_REFUSED, .commands = THIS, .names = "--range", .value = "START END", .help = "no ranges"},
  {.kind = OPT_REAL,
   .commands = THIS,
   .names = "--top-p, --nucleus",
   .value = "X",
   .help = "bounded",
   .to = FIELD(bounded),
   .max = 1,
   .clamp = true,
   .env = "LLAMA_ARG_TRY_P LLAMA_ARG_TRY_OLD"},
  {.kind = OPT_TEXTS,
   .commands = THIS,
   .names = "--keys",
   .value = "A,B",
   .help = "a list",
   .to = FIELD(keys),
   .list = true,
   .env = "LLAMA_ARG_TRY_KEYS"},
  {.kind = OPT_FLAG,
   .commands = THIS,
   .names = "--shift",
   .help = "on",
   .to = FIELD(shift),
   .env = "LLAMA_ARG_TRY_SHIFT"},
  {.kind = OPT_OFF,
   .commands = THIS,
   .names = "--no-shift",
   .help = "off",
   .to = FIELD(shift),
   .env = "LLAMA_ARG_TRY_SHIFT"},
  {.kind = OPT_IDLE, .commands = THIS, .names = "--map", .help = "so", .fine = "*", .env = "LLAMA_ARG_TRY_MAP"},
  {.kind = OPT_IDLE, .commands = THIS, .names = "--no-map", .help = "files are mapped", .env = "LLAMA_ARG_TRY_MAP"},
};
static const struct options table = {rows, COUNT(rows)};
static str idle;                                       // of the last parse

static enum args_result parse(struct values *v, error *err, int argc, char **argv) {
  str_free(&idle);
  return args_parse(&command, table, v, argc, argv, &idle, err);
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
  texts_free(&v.texts);
  texts_free(&v.keys);
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
  good(&v, WORDS(W("--model=a=b"), W("-m"), W("b"), W("--each"), W("")));
  assert_string_equal(v.text, "b");
  assert_string_equal(v.texts.at[0], "");              // a text may be empty; a path may not
  texts_free(&v.texts);
  free(v.ids.at);
}

static void test_errors(void **state) {
  (void)state;
  bad(WORDS(W("-m"), W("")), "-m is empty: it needs the path of a file");
  bad(WORDS(W("--model=")), "--model is empty: it needs the path of a file");
  bad(WORDS(W("--modle"), W("x")), "did you mean '--model'");
  bad(WORDS(W("--nothing-like-it")), "weft try --help");
  // a short name is no likely slip of another
  bad(WORDS(W("-q")), "unknown option '-q'; 'weft try --help'");
  bad(WORDS(W("--max-tokens"), W("5")), "did you mean '--predict'");
  bad(WORDS(W("--max-token"), W("5")), "did you mean '--predict'");
  bad(WORDS(W("-temp"), W("5")), "did you mean '--temp'");
  bad(WORDS(W("--no-temp")), "weft try --help");       // the opposite is no help
  bad(WORDS(W("--no-flg")), "did you mean '--no-flag'");
  bad(WORDS(W("--flg")), "did you mean '--flag'");
  bad(WORDS(W("--othr")), "weft try --help");
  bad(WORDS(W("--other")), "unknown option '--other'");
  bad(WORDS(W("--neighbor")), "did you mean '--neighbour'");
  bad(WORDS(W("--modle=x")), "'--modle'; did you mean '--model'");
  bad(WORDS(W("word"), W("more")), "unexpected argument 'more'");
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

// What options do that do not apply.
static void idles(char **argv, const char *expected) {
  struct values v = {0};
  good(&v, argv);
  assert_string_equal(str_c(&idle), expected);
}

static void test_foreign(void **state) {
  (void)state;
  idles(WORDS(W("-g"), W("0"), W("--gpu=auto"), W("--so"), W("--attention"), W("--attention"), W("on"), W("--type"),
              W("f16")),
        "");
  idles(WORDS(W("-g"), W("99")), "-g is ignored: there is none");
  idles(WORDS(W("--gpu"), W("99"), W("-s"), W("row"), W("-s"), W("row")),
        "--gpu, -s, -s are ignored: there is none");
  idles(WORDS(W("-g"), W("9"), W("--attention"), W("off"), W("-s"), W("row")),
        "-g, -s are ignored: there is none; --attention is ignored: it is on");
  idles(WORDS(W("-g"), W("0,0,auto")), "");
  idles(WORDS(W("-g"), W("0,1")), "-g is ignored: there is none");
  idles(WORDS(W("--type"), W("f32")), "--type is ignored: no other types");
  idles(WORDS(W("--type"), W("f16,bf16")), "--type is ignored: no other types");
  bad(WORDS(W("--type"), W("q8_0")), "--type q8_0 is not supported: no other types");
  bad(WORDS(W("--type"), W("f16,q8_0")), "--type f16,q8_0 is not supported");
  bad(WORDS(W("--range"), W("1"), W("2")), "--range 1 is not supported: no ranges");
  bad(WORDS(W("--range"), W("1")), "--range needs a value: START END");
  bad(WORDS(W("--so=1")), "--so takes no value");
  struct values v = {0};
  good(&v, WORDS(W("--attention"), W("word")));        // no value of it
  assert_string_equal(v.operand, "word");
  good(&v, WORDS(W("--color"), W("--flag")));          // a choice without its value is "on"
  assert_int_equal(v.color, 1);
  good(&v, WORDS(W("--color"), W("off"), W("--no-flag")));
  assert_int_equal(v.color, 2);
  assert_false(v.flag);
}

static void test_bounds_and_lists(void **state) {
  (void)state;
  struct values v = {0};
  good(&v, WORDS(W("--top-p"), W("1.5"), W("--keys"), W("a,\"b,c\",,d"), W("--keys=e")));
  assert_true(v.bounded == 1);
  assert_int_equal(v.keys.n, 4);
  assert_string_equal(v.keys.at[1], "b,c");
  assert_string_equal(v.keys.at[3], "e");
  texts_free(&v.keys);
  good(&v, WORDS(W("--top_p"), W("-3")));              // as llama.cpp reads names
  assert_true(v.bounded == 0);
  bad(WORDS(W("--top-p"), W("nan")), "needs a number");
}

// Variables do what options do, and less than the command line.
static void test_variables(void **state) {
  (void)state;
  struct values v = {.shift = true, .bounded = 0.5};
  setenv("LLAMA_ARG_TRY_OLD", "0.25", 1);
  setenv("LLAMA_ARG_TRY_KEYS", "one,two", 1);
  setenv("LLAMA_ARG_TRY_SHIFT", "off", 1);
  setenv("LLAMA_ARG_TRY_MAP", "0", 1);
  good(&v, WORDS(NULL));
  assert_true(v.bounded == 0.25);
  assert_int_equal(v.keys.n, 2);
  assert_false(v.shift);
  assert_string_equal(str_c(&idle), "LLAMA_ARG_TRY_MAP is ignored: files are mapped");
  texts_free(&v.keys);
  good(&v, WORDS(W("--top-p"), W("0.75"), W("--keys"), W("three"), W("--shift"), W("--map")));
  assert_true(v.bounded == 0.75 && v.shift);
  assert_int_equal(v.keys.n, 1);
  assert_string_equal(str_c(&idle), "");
  texts_free(&v.keys);
  setenv("LLAMA_ARG_TRY_SHIFT", "1", 1);
  setenv("LLAMA_ARG_NO_TRY_SHIFT", "", 1);             // empty: not set
  setenv("LLAMA_ARG_NO_TRY_MAP", "x", 1);              // any value switches off
  unsetenv("LLAMA_ARG_TRY_MAP");
  v.shift = false;
  good(&v, WORDS(NULL));
  assert_true(v.shift);
  assert_string_equal(str_c(&idle), "LLAMA_ARG_NO_TRY_MAP is ignored: files are mapped");
  texts_free(&v.keys);
  setenv("LLAMA_ARG_TRY_SHIFT", "maybe", 1);
  bad(WORDS(NULL), "LLAMA_ARG_TRY_SHIFT must be 1 or 0, not 'maybe'");
  setenv("LLAMA_ARG_TRY_P", "x", 1);
  bad(WORDS(NULL), "LLAMA_ARG_TRY_P needs a number, not 'x'");
}

static void test_help(void **state) {
  (void)state;
  char *text = NULL;
  size_t n = 0;
  FILE *f = open_memstream(&text, &n);
  args_help(&command, table, f);
  fclose(f);
  assert_non_null(strstr(text, "weft try [options]"));
  assert_non_null(
    strstr(text, "\nOptions\n  WORD                            a word\n  -x, --flag                      a flag\n"));
  assert_non_null(
    strstr(text, "  -m, --model FILE                a text\n                                  of two lines\n"));
  assert_non_null(strstr(text, "-h, --help"));
  assert_non_null(
    strstr(text, "\nOf llama.cpp, ignored with a note\n  -g --gpu -s --split --attention --so --map --no-map\n"));
  assert_non_null(strstr(text, "\nOf llama.cpp, refused with a reason\n  --type --range\n"));
  assert_non_null(strstr(text, "A last paragraph."));
  assert_null(strstr(text, "--other"));
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
  for (size_t i = 0; !err.text[0] && i < n.n; i++)
    snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", (int)n.at[i]);
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
  static const char *const wrong[] = {"",
                                      ",",
                                      "1,",
                                      "x",
                                      "1x",
                                      "-1",
                                      "5-3",
                                      "1-9+0",
                                      "1-9*1",
                                      "0-9*2",
                                      "1-9+x",
                                      "1-9/2",
                                      "100001",
                                      "1-100000",
                                      "1-5+99999999999",
                                      "99999999999999999999999"};
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
    cmocka_unit_test(test_values), cmocka_unit_test(test_errors), cmocka_unit_test(test_foreign),
    cmocka_unit_test(test_help),   cmocka_unit_test(test_lists),  cmocka_unit_test(test_nearest),
    cmocka_unit_test(test_bounds_and_lists), cmocka_unit_test(test_variables),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
