// Answers taken apart: each format, texts that are nearly calls, and any cut of any text.  tests/python/test_answer.py
// has the templates of real models.
#include "chat/answer.h"
#include "base/account.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

static const char tools[] =
  "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},"
  "\"maybe\":{\"type\":[\"string\",\"null\"]},\"either\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},"
  "\"both\":{\"type\":[\"string\",\"integer\"]},\"o\":{\"type\":\"object\"}}}}}]";
#define SEP "<\xEF\xBD\x9Ctool\xE2\x96\x81sep\xEF\xBD\x9C>"
#define DS(what) "<\xEF\xBD\x9Ctool\xE2\x96\x81" what "\xEF\xBD\x9C>"

struct shown { str out, arguments; int kind; bool open, done; };

// The arguments of the call that is open, in one form, whatever white space and digits the model chose; ~: not done.
static void end_call(struct shown *s) {
  json_t *o = s->arguments.n < 1000 ? json_loadb(str_c(&s->arguments), s->arguments.n, 0, NULL) : NULL;
  char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
  if (s->open) str_addf(&s->out, "%s%s)", text ? text : str_c(&s->arguments), s->done ? "" : "~");
  s->open = false;
  s->arguments.n = 0;
  free(text);
  json_decref(o);
}

// One line: "c:" content, "r:" reasoning, "NAME(ARGUMENTS)" calls, with | between.
static void show(struct shown *s, const answer_part *parts, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const answer_part *p = &parts[i];
    bool joins = s->kind == (int)p->kind && !p->name;
    if (!joins) end_call(s);
    if (!joins && s->out.n) str_add(&s->out, "|");
    if (p->kind != ANSWER_CALL) {
      str_addf(&s->out, "%s%s", joins ? "" : p->kind == ANSWER_CONTENT ? "c:" : "r:", p->text);
    } else {
      assert_true(joins || (p->name && p->id && strlen(p->id) >= 9));
      if (p->name) str_addf(&s->out, "%s(", p->name);
      str_addn(&s->arguments, p->text, p->n);
      s->open = true;
      s->done = p->done;
    }
    s->kind = (int)p->kind;
  }
}

// pieces: how long each is, from a seed; 0: one piece.
static char *take_apart(const char *tmpl, const char *prompt, bool with_tools, const char *text, size_t n,
                        uint64_t seed) {
  answer *a;
  error err = {0};
  text_view t = {tmpl, tmpl ? strlen(tmpl) : 0}, p = {prompt, prompt ? strlen(prompt) : 0},
            u = {with_tools ? tools : NULL, sizeof tools - 1};
  assert_int_equal(answer_new(t, p, u, &a, &err), 0);
  struct shown s = {.kind = -1};
  str_add(&s.out, "");
  const answer_part *parts;
  for (size_t at = 0, piece; at < n; at += piece) {
    piece = seed ? 1 + hash_u64(at, seed) % 5 : n;
    if (piece > n - at) piece = n - at;
    size_t n_parts = answer_add(a, text + at, piece, &parts);
    show(&s, parts, n_parts);
  }
  size_t n_parts = answer_end(a, false, &parts);
  show(&s, parts, n_parts);
  answer_free(a);
  end_call(&s);
  str_free(&s.arguments);
  return s.out.at;
}

static const struct { const char *tmpl, *prompt, *text, *expected; bool no_tools;
} cases[] = {
  // reasoning
  {NULL, NULL, "Hello\n world", "c:Hello\n world", false},
  {NULL, NULL, "\n\n Hello \n", "c:\n\n Hello \n", false},
  {NULL, NULL, "<think>\n a b \n</think>\n\nc", "r:a b|c:c", false},
  {NULL, "assistant\n<think>\n", "a</think>b", "r:a|c:b", false},
  {NULL, "user says <think>", "a</think>b", "r:a|c:b", false},
  {NULL, "assistant\n<think>\n\n</think>\n\n", "a</think>b", "c:a</think>b", false},
  {NULL, NULL, "what <think> means", "c:what <think> means", false},
  {NULL, NULL, "<think>never ended", "r:never ended", false},
  {"[THINK]", NULL, "[THINK]a[/THINK]b[THINK]c[/THINK]", "r:a|c:b|r:c", false},
  {"x", NULL, "[THINK]a[/THINK]b", "c:[THINK]a[/THINK]b", false},
  // Hermes, Qwen
  {"<tool_call>", NULL,
   "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, 0.1, -2.5e-7]}}\n</tool_call>",
   "c:I look.|f({\"x\":[1,0.1,-2.5e-7]})", false},
  {"<tool_call>", NULL,
   "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>\n<tool_call>{\"name\": "
   "\"g\"}</tool_call>",
   "f({\"x\":1})|g({})", false},
  {"<tool_call>", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "f({})", false},
  {"<tool_call>", NULL, "a<tool_call>{\"name\": \"f\", \"arguments\": {</tool_call>b",
   "c:a<tool_call>{\"name\": \"f\", \"arguments\": {</tool_call>b", false},
  {"<tool_call>", NULL,
   "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call><tool_call>{\"name\": \"g\", \"arguments\": "
   "\"\"}</tool_call>",
   "f({})|g({})", false},
  {"<tool_call>", NULL, "<tool_call>{\"name\": 7}</tool_call>", "c:<tool_call>{\"name\": 7}</tool_call>", false},
  {"<tool_call>", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
   "c:<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", true},
  {"<tool_call>", NULL, "a < b <tool <tool_cal l", "c:a < b <tool <tool_cal l", false},
  // arguments pass through as text
  {"<tool_call>", NULL,
   "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 123456789012345678901234567890, \"x\": 1e400, \"s\": "
   "\"\\ud800\"}}</tool_call>",
   "f({\"n\": 123456789012345678901234567890, \"x\": 1e400, \"s\": \"\\ud800\"})", false},
  {"<tool_call>", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a\n\tb\"}}}</tool_call>c",
   "f({\"s\":\"a\\n\\tb\"})|c:c", false},
  {"<tool_call>", NULL, "<tool_call>{\"arguments\": {\"a\": [1, 2,], 'b': True}, \"name\": \"f\"}</tool_call>",
   "f({\"a\":[1,2],\"b\":true})", false},
  {"<tool_call>", NULL, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": oops}}</tool_call>c",
   "f({\"a\": 1, \"b\": ~)|c:c", false},
  {"<tool_call>", NULL,
   "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"a\": {}}}}</tool_call>",
   "f({\"a\":{}})", false},
  {"<tool_call>", NULL, "<tool_call>{\"f\": {\"a\": 1}}, {\"g\": {}}</tool_call>", "f({\"a\":1})|g({})", false},
  {"<tool_call>", NULL, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a</arg_val>\n\n</arg_value></tool_call>",
   "f({\"s\":\"a</arg_val>\\n\"})", false},
  // values in XML have the type that the tool describes
  {"<function=", NULL,
   "<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n<parameter=t>\na\n\nb\n</"
   "parameter>\n</function>",
   "f({\"s\":\"12\",\"n\":12,\"t\":\"a\\n\\nb\"})", false},
  {"<function=", NULL,
   "<function=f><parameter=maybe>12</parameter><parameter=either>null</parameter><parameter=both>12</parameter></"
   "function>",
   "f({\"maybe\":\"12\",\"either\":null,\"both\":12})", false},
  {"<function=", NULL, "<function=f>{\"s\": \"x\"}</function> ok", "f({\"s\":\"x\"})|c:ok", false},
  // the text ends within JSON: the call is not whole
  {"<function=", NULL, "<function=f>{\"s\": \"x\", \"n\": ", "f({\"s\": \"x\", \"n\":~)", false},
  {"<function=", NULL, "<function=f>{\"s\": \"x\"}", "f({\"s\":\"x\"})", false},
  {"<function=", NULL, "<function=f><parameter=o>{\"a\": [1,", "f({\"o\":{\"a\": [1~)", false},
  {"<function=", NULL, "<function=f><parameter=s>x", "f({\"s\":\"x\"})", false},
  {"<tool_call>", NULL,
   "<tool_call>f<arg_key>s</arg_key><arg_value>true</arg_value><arg_key>b</arg_key><arg_value>true</arg_value></"
   "tool_call>",
   "f({\"s\":\"true\",\"b\":true})", false},
  {"<tool_call>", NULL, "<tool_call>f\n</tool_call>", "f({})", false},
  {"<minimax:tool_call>", NULL,
   "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a b\">x y</parameter>\n</invoke>\n</minimax:tool_call>",
   "f({\"a b\":\"x y\"})", false},
  // Mistral
  {"[TOOL_CALLS]", NULL, "ok [TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}]",
   "c:ok|f({\"a\":1})", false},
  {"[TOOL_CALLS]", NULL, "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]x[ARGS]{}", "f({\"a\":1})|g({})", false},
  // Llama 3, without markers and with one
  {"{\"name\": function name", NULL, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "f({\"a\":1})", false},
  {"{\"name\": function name", NULL, "{\"answer\": 42}", "c:{\"answer\": 42}", false},
  {"{\"name\": function name", NULL, "{\"name\": \"Bob\", \"age\": 5}", "c:{\"name\": \"Bob\", \"age\": 5}", false},
  {"{\"name\": function name", NULL, "{\"person\": {\"age\": 5}}", "c:{\"person\": {\"age\": 5}}", false},
  {"{\"name\": function name", NULL, "No {\"name\": \"f\", \"parameters\": {}}",
   "c:No {\"name\": \"f\", \"parameters\": {}}", false},
  {"<|python_tag|>", NULL, "<|python_tag|>brave_search.call(query=\"a \\\"b\\\"\")",
   "brave_search({\"query\":\"a \\\"b\\\"\"})", false},
  {"<|python_tag|>", NULL, "<|python_tag|>print(1 + 2)", "python({\"code\":\"print(1 + 2)\"})", false},
  // LFM2, granite, DeepSeek, Kimi, gemma
  {"<|tool_list_start|>", NULL,
   "<|tool_call_start|>[f(a='x', b=[1, -2.5e1, None], c={'k': True}), g()]<|tool_call_end|>ok",
   "f({\"a\":\"x\",\"b\":[1,-25.0,null],\"c\":{\"k\":true}})|g({})|c:ok", false},
  {"<|tool_call|>", NULL, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "f({})", false},
  {NULL, NULL, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", "f({})", false},
  {"<function_calls>", NULL,
   "<function_calls>\nf(s=\"a\\u00e9\\ud83d\\ude00\\/\\d\\'\")\ng(x=[1], y=null)\n</function_calls>",
   "f({\"s\":\"aé😀/\\\\d'\"})|g({\"x\":[1],\"y\":null})", false},
  {DS("call\xE2\x96\x81"
      "begin"),
   NULL,
   DS("calls\xE2\x96\x81"
      "begin") DS("call\xE2\x96\x81"
                  "begin") "function" SEP "f\n```json\n{\"a\": 1}\n```" DS("call\xE2\x96\x81"
                                                                           "end") DS("calls\xE2\x96\x81"
                                                                                     "end"),
   "f({\"a\":1})", false},
  {DS("call\xE2\x96\x81"
      "begin"),
   NULL,
   DS("call\xE2\x96\x81"
      "begin") "f" SEP "{\"a\": 1}" DS("call\xE2\x96\x81"
                                       "end"),
   "f({\"a\":1})", false},
  {"<|tool_calls_section_begin|>", NULL,
   "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_"
   "calls_section_end|>",
   "f({})", false},
  {"<|tool_call>", NULL, "<|tool_call>call:f{a:<|\"|>x, }<|\"|>,b:[1,true]}<tool_call|>",
   "f({\"a\":\"x, }\",\"b\":[1,true]})", false},
  // headers
  {"<|channel|>", "<|start|>assistant",
   "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "r:a|c:b", false},
  {"<|channel|>", "<|start|>assistant", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":1}",
   "f({\"a\":1})", false},
  {"<|channel|>", "<|start|>assistant", "plain", "c:plain", false},
  {">>>", "\n\n>>>", "all\nHello\n>>>f\n{\"a\": 1}", "c:Hello|f({\"a\":1})", false},
  {">>>", "\n\n>>>", "all\nWrite\n\n>>> print(1)\n1\n and x >>> y", "c:Write\n\n>>> print(1)\n1\n and x >>> y", false},
  {">>>", "\n\n>>>", "all\n>>> f\n>>>f x\n>>>all of it\nb", "c:>>> f\n>>>f x\n>>>all of it\nb", false},
  {">>>", "\n\n>>>", "f\n{}\n>>>python\nprint(1)\n", "f({})|python({\"input\":\"print(1)\"})", false},
  {">>>", "\n\n>>>", "f\n{}", "c:f\n{}", true},
  {"<|channel|>", "<|start|>assistant", "<|channel|>final<|message|>a<|end|><|start|>assistant<|chan", "c:a", false},
  // what is no call comes back whole, once
  {"[TOOL_CALLS]", NULL, "a [TOOL_CALLS]b c\n[TOOL_CALLS]f[ARGS]{}", "c:a [TOOL_CALLS]b c|f({})", false},
  {"[TOOL_CALLS]", NULL, "[TOOL_CALLS]b c[TOOL_CALLS] d e", "c:[TOOL_CALLS]b c[TOOL_CALLS] d e", false},
  {"<tool_call>", NULL, "like so:\n\n<tool_call>{}</tool_call> \n", "c:like so:\n\n<tool_call>{}</tool_call> \n",
   false},
  // no template
  {NULL, NULL, "{\"name\": \"f\", \"arguments\": {\"a\": 1}}", "f({\"a\":1})", false},
  {NULL, NULL, "{\"name\": \"f\"} and more", "f({})|c:and more", false},
};

static void test_formats(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    for (uint64_t seed = 0; seed < 8; seed++) {
      char *got =
        take_apart(cases[i].tmpl, cases[i].prompt, !cases[i].no_tools, cases[i].text, strlen(cases[i].text), seed);
      if (strcmp(got, cases[i].expected))
        fail_msg("case %zu (%s), cut %d:\n  got      %s\n  expected %s", i, cases[i].text, (int)seed, got,
                 cases[i].expected);
      free(got);
    }
  }
}

// Pieces of the cases' texts in any order, against any template.
static void test_any_cut_of_anything(void **state) {
  (void)state;
  uint64_t r = 1;
  for (int round = 0; round < 20000; round++) {
    str text = {0};
    str_add(&text, "");
    for (int i = 0; i < 4; i++) {
      const char *from = cases[(r = hash_u64(r, 5)) % COUNT(cases)].text;
      size_t n = strlen(from), a = (r >> 20) % (n + 1), b = a + (r >> 40) % (n - a + 1);
      str_addn(&text, from + a, b - a);
    }
    const char *tmpl = cases[(r = hash_u64(r, 6)) % COUNT(cases)].tmpl,
               *prompt = cases[(r >> 30) % COUNT(cases)].prompt;
    char *whole = take_apart(tmpl, prompt, r & 1, text.at, text.n, 0),
         *cut = take_apart(tmpl, prompt, r & 1, text.at, text.n, r | 1);
    if (strcmp(whole, cut)) fail_msg("%s:\n  whole %s\n  cut   %s", text.at, whole, cut);
    free(whole);
    free(cut);
    str_free(&text);
  }
}

static void test_bad_tools(void **state) {
  (void)state;
  answer *a;
  error err = {0};
  assert_int_equal(answer_new((text_view){0}, (text_view){0}, (text_view){"{}", 2}, &a, &err), -1);
  assert_non_null(strstr(err.text, "tools"));
}

// What becomes of a call with arguments so deep: no depth takes the stack.
static void *deep_call(void *depth) {
  size_t n = *(const size_t *)depth;
  str text = {0};
  str_add(&text, "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": ");
  for (size_t i = 0; i < n; i++) str_addc(&text, '[');
  for (size_t i = 0; i < n; i++) str_addc(&text, ']');
  str_add(&text, "}}</tool_call>");
  char *got = take_apart("<tool_call>", NULL, true, text.at, text.n, 0);
  str_free(&text);
  return got;
}

static void test_deep_arguments(void **state) {
  (void)state;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 << 10);
  for (size_t depth = 20; depth <= 2000; depth += 1980) {
    pthread_t thread;
    void *got;
    assert_int_equal(pthread_create(&thread, &small, deep_call, &depth), 0);
    pthread_join(thread, &got);
    if (strncmp(got, depth == 20 ? "f({\"x\":[[" : "f({\"x\": [[", 9) || strstr(got, "~)")) fail_msg("%s", (char *)got);
    free(got);
  }
  pthread_attr_destroy(&small);
}

// Parses a text with clones of one answer, and gives what became of it with the first. The answer is freed before them.
static char *with_clones(const char *json, const char *prompt, const str *text, size_t n, double *took) {
  answer *first, *all[8];
  error err = {0};
  const answer_part *parts;
  struct shown s = {.kind = -1};
  double began = processor_s();
  assert_int_equal(
    answer_new((text_view){0}, (text_view){prompt, strlen(prompt)}, (text_view){json, strlen(json)}, &first, &err), 0);
  for (size_t i = 0; i < n; i++) all[i] = answer_clone(first);
  answer_free(first);
  for (size_t i = 0; i < n; i++) {
    size_t n_parts = answer_add(all[i], text->at, text->n, &parts);
    if (!i) show(&s, parts, n_parts);
    n_parts = answer_end(all[i], false, &parts);
    if (!i) show(&s, parts, n_parts);
    answer_free(all[i]);
  }
  end_call(&s);
  str_free(&s.arguments);
  *took = processor_s() - began;
  return s.out.at;
}

// Each parameter is a union of unions of references of 10 KB that lead nowhere, and each has elements: a walk costs
// what it reads, what it found is kept, and further walks become short.
static void test_schemas_that_take_long(void **state) {
  (void)state;
  enum { WIDE = 60, LONG = 10000, PARAMETERS = 1000 };
  str json = {0}, text = {0};
  double took;
  str_add(&json, "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
                 "\"s\":{\"type\":\"string\"},\"n\":{\"$ref\":\"#/$defs/n\"}");
  for (int i = 0; i < PARAMETERS; i++) str_addf(&json, ",\"k%d\":{\"$ref\":\"#/$defs/a\"}", i);
  str_add(&json, "},\"$defs\":{\"n\":{\"type\":\"integer\"},\"a\":{\"anyOf\":[");
  for (int i = 0; i < WIDE; i++) str_addf(&json, "%s{\"$ref\":\"#/$defs/b\"}", i ? "," : "");
  str_add(&json, "]},\"b\":{\"anyOf\":[");
  for (int i = 0; i < WIDE; i++) str_addf(&json, "%s{\"$ref\":\"#/$defs/l\"}", i ? "," : "");
  str_add(&json, "]},\"l\":{\"$ref\":\"#/");
  for (int i = 0; i < LONG; i++) str_addc(&json, 'x');
  str_add(&json, "\"}}}}}]");
  str_add(&text, "<tool_call>\n<function=f>\n<parameter=s>1</parameter>\n");
  for (int i = 0; i < PARAMETERS; i++)
    str_addf(&text, "<parameter=k%d><a%d>1</a%d><b>2</b></parameter>\n", i, i, i);
  str_add(&text, "<parameter=n>2</parameter>\n</function>\n</tool_call>");
  char *got = with_clones(json.at, "", &text, 8, &took);
  if (took > 4) fail_msg("%.1f s", took);
  if (strncmp(got, "f({\"s\":\"1\",", 11) || !strstr(got, "\"n\":2}")) fail_msg("%.200s", got);
  free(got);
  str_free(&text);
  str_free(&json);
}

// Calls with an id that is used, as are those that follow it: no call looks through the prompt.
static void test_ids_in_a_long_prompt(void **state) {
  (void)state;
  enum { USED = 300, CALLS = 1000 };
  str prompt = {0}, text = {0};
  double took;
  for (int i = 0; i < 200000; i++) str_addf(&prompt, "%d words ", i);
  for (int i = 0; i < USED; i++) str_addf(&prompt, "<|id|>functions.f:%d<|end|>\n## Return of functions.f:%d\n", i, i);
  str_add(&prompt, "{\"id\": \"call_AbCdEf012\"} (id:toolu_0123456789).");
  for (int i = 0; i < CALLS; i++)
    str_addf(&text, "<tool_call>{\"name\": \"f\", \"id\": \"functions.f:%d\", \"arguments\": {}}</tool_call>", i % 9);
  free(with_clones(tools, prompt.at, &text, 8, &took));
  if (took > 4) fail_msg("%.1f s", took);
  static const struct { const char *id; const char *becomes;
  } ids[] = {// NULL: another one
             {"functions.f:30", NULL},
             {"functions.f:299", "functions.f:300"},
             {"functions.f:301", "functions.f:301"},
             {"call_AbCdEf012", NULL},
             {"call_AbCdEf01", "call_AbCdEf01"},
             {"toolu_0123456789", NULL},
             {"fresh_id_1", "fresh_id_1"},
             {"two words", NULL},
             {"short", NULL}};
  for (size_t i = 0; i < COUNT(ids); i++) {
    answer *a;
    error err = {0};
    const answer_part *parts;
    text.n = 0;
    str_addf(&text, "<tool_call>{\"name\": \"f\", \"id\": \"%s\", \"arguments\": {}}</tool_call>", ids[i].id);
    assert_int_equal(
      answer_new((text_view){0}, (text_view){prompt.at, prompt.n}, (text_view){tools, sizeof tools - 1}, &a, &err), 0);
    for (int again = 0; again < 2; again++) {                            // its own id is used, too
      size_t n = answer_add(a, text.at, text.n, &parts);
      assert_true(n > 0 && parts[0].id);
      bool kept = !strcmp(parts[0].id, ids[i].becomes ? ids[i].becomes : ids[i].id);
      if (kept != (ids[i].becomes && !again)) fail_msg("%s: %s", ids[i].id, parts[0].id);
    }
    answer_free(a);
  }
  str_free(&text);
  str_free(&prompt);
}

// Words of which each has 17 parts that may be ids: the table of them is several times the prompt, and charged.
static void test_ids_are_charged(void **state) {
  (void)state;
  enum { WORDS = 40000, PARTS = 17 };
  str prompt = {0};
  for (int i = 0; i < WORDS; i++) str_addf(&prompt, "................%09d ", i);
  for (int enough = 0; enough < 2; enough++) {
    account a = {.most = (size_t)(enough ? 256 : 4) << 20, .most_ns = INT64_MAX, .bytes_option = "--most"};
    account_scope before = account_enter(&a);
    answer *made = NULL;
    error err = {0};
    int status = answer_new((text_view){0}, (text_view){prompt.at, prompt.n}, (text_view){tools, sizeof tools - 1},
                            &made, &err);
    account_leave(before);
    assert_int_equal(status, enough ? 0 : -1);
    if (enough) assert_true(a.bytes >= (size_t)WORDS * PARTS * sizeof(uint64_t));
    else assert_non_null(strstr(err.text, "4 MB is the most (--most)"));
    answer_free(made);
  }
  str_free(&prompt);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_formats),
    cmocka_unit_test(test_any_cut_of_anything),
    cmocka_unit_test(test_bad_tools),
    cmocka_unit_test(test_deep_arguments),
    cmocka_unit_test(test_schemas_that_take_long),
    cmocka_unit_test(test_ids_in_a_long_prompt),
    cmocka_unit_test(test_ids_are_charged),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
