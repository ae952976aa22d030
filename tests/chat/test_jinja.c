// Templates: what a hostile one can not do, the lines that errors name, and a few texts.  That the language is Jinja's
// is what tests/python/test_template.py shows, by comparing with Jinja.
//
// The list of hostile inputs, lines 47 to 55: nested parentheses and macros that call themselves, test_depth; long
// ranges, test_work; long texts and wide indents, test_memory; texts that double, test_growing_text; attributes that
// lead out, test_no_way_out; malformed tags, test_lines; arguments that would replace what templates are given,
// test_chat.  Values that contain themselves, and most of the others again through the command:
// test_hostile_templates_end and test_failures of test_template.py.
#define _GNU_SOURCE
#include "chat/chat.h"
#include "model/gguf.h"
#include "model/gguf_writer.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct tm now = {.tm_year = 126, .tm_mday = 1, .tm_wday = 4};

// Renders; the caller frees the text.  NULL: it failed, and *err says why.
static char *render_n(const char *text, size_t n, const jinja_limits *limits, error *err) {
  jinja *t = NULL;
  str out = {0};
  *err = (error){{0}};
  if (jinja_parse(text, n, &t, err)) return NULL;
  str_add(&out, "");
  json_t *words = json_pack("{s:[s, s], s:i}", "words", "one", "zwei", "n", 7), *list = json_object_get(words, "words");
  jinja_var vars[] = {{"words", list, false}, {"n", json_object_get(words, "n"), false}, {"none_here", NULL, false}};
  int status = jinja_render(t, vars, COUNT(vars), &now, limits, &out, err);
  if (status) assert_int_equal(out.n, 0);
  json_decref(words);
  jinja_free(t);
  if (status) str_free(&out);
  return status ? NULL : out.at;
}

static void gives(const char *template, const char *expected) {
  error err;
  char *text = render_n(template, strlen(template), NULL, &err);
  if (!text) fail_msg("%s: %s", template, err.text);
  assert_string_equal(text, expected);
  free(text);
}

static void fails_within(const char *template, const jinja_limits *limits, const char *expected) {
  error err;
  char *text = render_n(template, strlen(template), limits, &err);
  if (text) fail_msg("%.100s gives '%.100s'", template, text);
  if (!strstr(err.text, expected)) fail_msg("%.100s: '%s' does not mention '%s'", template, err.text, expected);
}

static void fails(const char *template, const char *expected) { fails_within(template, NULL, expected); }

static void test_texts(void **state) {
  (void)state;
  gives("{% for w in words %}\n  {{ w }}{{ loop.index }}\n{% endfor %}\n", "  one1\n  zwei2\n");
  gives("{{ words }} {{ none_here }} {{ n / 2 }} {{ 'é' | upper }}", "['one', 'zwei'] None 3.5 É");
  gives("{{ strftime_now('%A %d %b %Y') }}", "Thursday 01 Jan 2026");
  gives("", "");
  gives("{{ 'a\\0b' | length }}", "3");
}

static void test_lines(void **state) {
  (void)state;
  fails("a\nb\n{{ x.y }}", "line 3: 'x' is undefined");
  fails("a\r\nb\r{{ 1 + 'a' }}", "line 3: unsupported operand type(s) for +: 'int' and 'str'");
  fails("{% if true %}\n\n{% for x in y %}", "line 3: the template ends before 'endfor' of the 'for' in line 3");
  fails("{% macro m() %}\n{{ raise_exception('bad ' ~ n) }}{% endmacro %}\n\n{{ m() }}", "line 2: bad 7");
  fails("\n{{ 1\n+\n* }}", "line 4: expected a value, not '*'");
  fails("x\n{# y", "line 2: a comment");
  fails("x\n\n{{ 'y }}", "line 3: a string");
  fails("\n{% include 'x' %}", "line 2: 'include' is refused");
  fails("\xFF", "line 1: byte 0 of the template is not UTF-8");
  fails("a\n\xE2\x82", "line 2: byte 2");
  fails("{{ n | nofilter }}", "there is no filter 'nofilter'");
  fails("{{ 9223372036854775807 + 1 }}", "64 bits");
  fails("{{ -9223372036854775807 - 2 }}", "64 bits");
  fails("{{ (-9223372036854775807 - 1) // -1 }}", "64 bits");
  fails("{{ (-9223372036854775807 - 1) | abs }}", "64 bits");
  fails("{{ 10 ** 19 }}", "64 bits");
  fails("{{ '1e30' | int }}", "64-bit");
  gives("{{ (-9223372036854775807 - 1) % -1 }}", "0");
}

// ---- hostile templates ----------------------------------------------------------------------------------------------

static char *repeated(const char *head, const char *middle, const char *tail, size_t times) {
  str s = {0};
  str_add(&s, head);
  for (size_t i = 0; i < times; i++) str_add(&s, middle);
  str_add(&s, tail);
  return s.at;
}

static void fails_repeated(const char *head, const char *middle, const char *tail, size_t times, const char *expected) {
  char *text = repeated(head, middle, tail, times);
  fails(text, expected);
  free(text);
}

static void test_depth(void **state) {
  (void)state;
  fails_repeated("{{ ", "(", "1", 1000000, "brackets");
  fails_repeated("{{ ", "-", "1 }}", 100000, "levels");
  fails_repeated("{{ ", "not ", "1 }}", 100000, "levels");
  fails_repeated("{{ 1", " + 1", " }}", 100000, "levels");
  fails_repeated("{{ n", ".a", " }}", 100000, "levels");
  fails_repeated("{{ n", "|abs", " }}", 100000, "levels");
  fails_repeated("{{ 1 ", "if 1 else 1 ", " }}", 100000, "levels");
  fails_repeated("", "{% if 1 %}", "", 100000, "levels");
  fails_repeated("", "{% for a in b %}", "", 100000, "levels");
  fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels");
  fails("{% macro m(x) %}{{ x | map('upper') | list }}{% if 1 %}{% for i in [1] %}{{ m([m([1])]) }}{% endfor %}{% "
        "endif %}{% endmacro %}{{ m([]) }}",
        "levels");
  fails("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "levels");
  gives("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "<Namespace {'x': <Namespace {...}>}>");
  gives("{% set l = [1] %}{% set t = (l, {'a': l}) %}{% set _ = l.append(t) %}{{ l }}{{ t }}",
        "[1, ([...], {'a': [...]})]([1, (...)], {'a': [1, (...)]})");
  fails("{% set l = [1] %}{{ l.append(l) }}{{ l | tojson }}", "levels");
  fails("{% set l = [1] %}{% set m = [1] %}{{ l.append(m) }}{{ m.append(l) }}{{ l == m }}", "levels");
  fails("{% set d = {} %}{{ d.update(a=d) }}{{ d == d.a }}{% set e = {} %}{{ e.update(a=e) }}{{ d == e }}", "levels");
  fails("{% set ns = namespace(x=[]) %}{% for i in range(50000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "levels");
  fails("{% set ns = namespace(x=[]) %}{% for i in range(50000) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}",
        "levels");
}

static void test_work(void **state) {
  (void)state;
  fails("{{ range(1000000000) | list }}", "Range too big");
  fails("{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{% endfor %}{% endfor %}{% "
        "endfor %}",
        "more than");
  fails("{% for a in range(100000) %}{{ 'x' * 100000 in 'y' * 1000000 }}{% endfor %}", "more than");
  fails("{% set l = [1] %}{% for x in l %}{{ l.append(1) }}{% endfor %}", "more than");
  fails("{{ [0] * 9223372036854775807 }}", "more than");
  static const jinja_limits few = {.steps = 1000, .memory = 1 << 20, .output = 1 << 20, .depth = 100};
  fails_within("{% for a in range(1000) %}{% endfor %}", &few, "1000 steps");
  fails_within("{{ ('a' * 100000).split('a') }}", &few, "1000 steps");
  // what makes no value is paid for, too
  fails_within("{% set a = ' ' * 9000 %}{{ a | int }}", &few, "1000 steps");
  fails_within("{% set a = ' ' * 9000 %}{{ a | float }}", &few, "1000 steps");
  fails_within("{% set a = 'x' * 9000 %}{{ a.startswith(a) }}", &few, "1000 steps");
  fails_within("{% set a = 'x' * 9000 %}{{ a.removesuffix(a) }}", &few, "1000 steps");
  fails_within("{{ [0.5] * 40 }}", &few, "1000 steps");
}

static void test_memory(void **state) {
  (void)state;
  fails("{{ 'A' * 1000000000 }}", "too long");
  fails("{{ 'A' * 9223372036854775807 }}", "too long");
  fails("{% set ns = namespace(x='xx') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}", "bytes");
  fails("{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "more than");
  fails("{{ 'x' | indent(1000000000) }}", "too long");
  fails("{{ [1] | tojson(indent=1000000000) }}", "indent");
  fails("{{ 'x' | center(1000000000000) }}", "too long");
  fails("{{ '%1000000000d' % 1 }}", "width");
  fails("{{ '%.1000000000f' % 1 }}", "width");
  fails("{{ '{:1000000000}'.format(1) }}", "width");
  fails("{{ '{:.1000000000f}'.format(1) }}", "precision");
  fails("{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x.replace('a', "
        "'aaaaaaaaaaaaaaaa') %}{% endfor %}",
        "more than");
  static const jinja_limits small = {.steps = 1 << 20, .memory = 1 << 20, .output = 1000, .depth = 100};
  fails_within("{% for i in range(100) %}0123456789012{% endfor %}", &small, "1000 bytes of text");
  fails_within("{% set x %}{% for i in range(100000) %}01234567890123456789{% endfor %}{% endset %}", &small,
               "1048576 bytes");
  fails_within("{{ range(100000) | list }}", &small, "1048576 bytes");
}

// A text that grows piece by piece costs its length, not its square.
static void test_growing_text(void **state) {
  (void)state;
  error err;
  static const jinja_limits limits = {.steps = 4 << 20, .memory = 48 << 20, .output = 8 << 20, .depth = 100};
  static const char text[] =
    "{% set ns = namespace(x='') %}{% for i in range(60000) %}{% set ns.x = ns.x ~ "
    "'0123456789012345678901234567890123456789' %}"
    "{% endfor %}{% set y = ns.x ~ 'a' %}{% set z = ns.x ~ 'b' %}{{ ns.x | length }} {{ y[-2:] }} {{ z[-2:] }}";
  char *out = render_n(text, strlen(text), &limits, &err);
  if (!out) fail_msg("%s", err.text);
  assert_string_equal(out, "2400000 9a 9b");
  free(out);
}

static void test_no_way_out(void **state) {
  (void)state;
  gives("{{ ''.__class__ }}", "");
  fails("{{ ''.__class__.__mro__ }}", "unsafe");
  fails("{{ words.__class__.__base__ }}", "unsafe");
  fails("{{ range.__globals__['x'] }}", "unsafe");
  fails("{{ '{0.__class__.__mro__}'.format(1) }}", "unsafe");
  gives("{{ [] | attr('__class__') }}|{{ self is defined }}{{ _ is defined }}", "|FalseFalse");
  fails("{% macro m() %}{% endmacro %}{{ m.__call__.__globals__ }}", "unsafe");
}

// ---- who wrote what -------------------------------------------------------------------------------------------------

// x: "zwei", d: {"k": "v", "<|": "|>"}, n: 7, all of strangers; b: "<s>", trusted.  `expected` has brackets around the
// parts that the template wrote.
static void authors(const char *template, const char *expected) {
  error err = {0};
  jinja *t = NULL;
  jinja_text out = {0};
  str shown = {0};
  json_t *all = json_pack("{s:s, s:{s:s, s:s}, s:i, s:s, s:s}", "x", "zwei", "d", "k", "v", "<|", "|>", "n", 7, "b",
                          "<s>", "j", "{\"a\": \"<|\"}");
  jinja_var vars[] = {{"x", json_object_get(all, "x"), false}, {"d", json_object_get(all, "d"), false},
                      {"n", json_object_get(all, "n"), false}, {"j", json_object_get(all, "j"), false},
                      {"b", json_object_get(all, "b"), true}};
  if (jinja_parse(template, strlen(template), &t, &err)) fail_msg("%s: %s", template, err.text);
  if (jinja_render_freeing(t, &(jinja_vars){.at = vars, .n = COUNT(vars)}, &now, NULL, &out, &err))
    fail_msg("%s: %s", template, err.text);
  for (size_t i = 0, k = 0; i <= out.text.n; i++) {
    if (k < out.own.n && out.own.at[k].to == i) { str_addc(&shown, ']'); k++; }
    if (k < out.own.n && out.own.at[k].from == i) str_addc(&shown, '[');
    if (i < out.text.n) str_addc(&shown, out.text.at[i]);
  }
  if (strcmp(str_c(&shown), expected)) fail_msg("%s: '%s', not '%s'", template, str_c(&shown), expected);
  str_free(&shown);
  jinja_text_free(&out);
  json_decref(all);
  jinja_free(t);
}

static void test_authors(void **state) {
  (void)state;
  static const char *const rows[][2] = {
    {"a{{ x }}b{{ b }}", "[a]zwei[b<s>]"},
    {"{{ '<' ~ x ~ '>' }}{{ '<' + x + '>' }}", "[<]zwei[><]zwei[>]"},
    {"{% set y = '<' ~ x %}{% set z = y ~ '|' %}{% set w = y ~ '!' %}{{ z }}{{ w }}{{ y }}", "[<]zwei[|<]zwei[!<]zwei"},
    {"{% set y = '<' ~ x ~ '>' %}{{ y[0] }}{{ y[1:3] }}{{ y[-2:] }}{{ y[::-1] }}{{ y | reverse }}",
     "[<]zwi[>>]iewz[<>]iewz[<]"},
    {"{% for c in '<' ~ x %}{{ c }}.{% endfor %}", "[<.]z[.]w[.]e[.]i[.]"},
    {"{% set y = '<' ~ x ~ '>' %}{{ y | upper }}{{ y.title() }}{{ y | capitalize }}{{ y.swapcase() }}"
     "{{ y.casefold() }}",
     "[<]ZWEI[><]Zwei[><]zwei[><]ZWEI[><]zwei[>]"},
    {"{{ ('\u0149\ufb01' ~ x ~ '\u00df') | upper }}", "[\u02bcNFI]ZWEI[SS]"},
    {"{{ ('  <' ~ x ~ '> ') | trim }}{{ ('<' ~ x).strip('<i') }}", "[<]zwei[>]zwe"},
    {"{{ ('<' ~ x ~ '>').split('w') | join('+') }}{{ ('a ' ~ x ~ ' b').split() | join('-') }}",
     "[<]z[+]ei[>a-]zwei[-b]"},
    {"{{ x.replace('w', '<|') }}{{ ('a' ~ x).replace('z', x[:1]) }}{{ 'abc'.replace('b', x) }}{{ x.replace('', '.') }}",
     "z[<|]ei[a]zwei[a]zwei[c.]z[.]w[.]e[.]i[.]"},
    {"{{ '<%s|%5s|%%%d>' % (x, 'a', n) }}{{ '<{}|{:>3}{{{:<3}>'.format(x, 'a', x) }}{{ '<%s' | format(b) }}",
     "[<]zwei[|]    [a|%]7[><]zwei[|]  [a{]zwei[><<s>]"},
    {"{{ '<{}>'.format('a{}b'.format(x)) }}{{ '{!s}'.format('q') }}", "[<a]zwei[b>q]"},
    {"{{ ['<', x, n, none, true] | join(',') }}{{ '+'.join(['a', x]) }}", "[<,]zwei[,]7[,]None[,]True[a+]zwei"},
    {"{{ ['<', x] }}{{ {'a': x} | tojson }}{{ '<' | tojson }}", "['[<]', 'zwei']{\"[a]\": \"zwei\"}\"[<]\""},
    {"{{ d | tojson }}{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}{{ d.keys() | list | last }}{{ d['<|'] }}",
     "{\"k\": \"v\", \"<|\": \"|>\"}kv<||><||>"},
    {"{% set q = {'<|': 1} %}{{ q == {d.keys() | list | last: 1} }}{% for k in q %}{{ k }}{% endfor %}", "True[<|]"},
    {"{{ '<|' == d.keys() | list | last }}{{ ('<|' ~ x) == d.keys() | list | last ~ x }}{{ '<|' in d }}",
     "TrueTrueTrue"},
    {"{% macro m(a) %}<{{ a }}>{{ caller() }}{% endmacro %}{% call m(x) %}c{{ x }}{% endcall %}{{ m.name }}",
     "[<]zwei[>c]zwei[m]"},
    {"{% set ns = namespace(a='<') %}{% for i in [1, 2] %}{% set ns.a = ns.a ~ x ~ '>' %}{% endfor %}{{ ns.a }}",
     "[<]zwei[>]zwei[>]"},
    {"{% set y %}<{{ x }}>{% endset %}{{ y }}{% filter upper %}a{{ x }}{% endfilter %}", "[<]zwei[>A]ZWEI"},
    {"{{ ('<' ~ x ~ '>') * 2 }}{{ '<' * 3 }}", "[<]zwei[><]zwei[><<<]"},
    {"{{ x | indent }}{{ ('a\n' ~ x) | indent('##') }}", "zwei[a]\n[##]zwei"},
    {"{{ x | default('<') }}{{ nope | default('<') }}{{ '<' if x }}{{ x or '<' }}", "zwei[<<]zwei"},
    {"{{ ('<' ~ x) | e }}{{ ('<' ~ x) | safe }}{{ '<b>&lt;' ~ x | striptags }}", "[&lt;]zwei[<]zwei[<b>&lt;]zwei"},
    {"{{ ('<b>&lt;' ~ x) | striptags }}{{ ('&' ~ j[:0] ~ d.keys()|first) | urlencode }}", "[<]zwei[%26]k"},
    {"{{ (j | from_json).a }}{{ ('[\"<|\"]' | from_json)[0] }}{{ ('[\"' ~ x ~ '\"]') | from_json | first }}",
     "<|[<|]zwei"},
    {"{{ ('<' ~ x) | center(8) }}{{ ('<' ~ x).ljust(8, '.') }}{{ '-7'.zfill(4) }}", " [<]zwei  [<]zwei[...-]00[7]"},
    {"{{ ('<' ~ x ~ ' and >') | truncate(9, true, '..', 0) }}{{ ('<' ~ x ~ ' a') | wordwrap(5) }}",
     "[<]zwei[ a..<]zwei\n[a]"},
    {"{{ ('<' ~ x).partition('z') | join }}{{ (x ~ '<').removesuffix('<') }}{{ ('<\n' ~ x).splitlines() | last }}",
     "[<z]weizweizwei"},
    {"{{ dict(k=x) }}{{ [x, '<'] | map('upper') | join }}{{ ['b' ~ x, 'a'] | sort | join }}",
     "{'[k]': 'zwei'}ZWEI[<ab]zwei"},
    {"{{ n }}{{ n + 1 }}{{ 3 }}{{ '<' ~ 3 ~ '>' }}{{ 1.5 }}{{ true }}", "783[<]3[>]1.5True"},
    {"{{ cycler('<', x).next() }}{{ joiner('<')() }}{{ [x, '<'] | first }}{{ ('<' ~ x).expandtabs() }}",
     "[<]zwei[<]zwei"},
    {"{{ strftime_now('<%Y>') }}", "[<]2026[>]"},
  };
  for (size_t i = 0; i < COUNT(rows); i++) authors(rows[i][0], rows[i][1]);
}

// ---- conversations --------------------------------------------------------------------------------------------------

#define VIEW(text) (text_view){text, strlen(text)}

static const char *chat(const char *template, const chat_input *in, error *err) {
  static char text[400];
  jinja *t = NULL;
  jinja_text out = {0};
  *err = (error){{0}};
  if (jinja_parse(template, strlen(template), &t, err)) fail_msg("%s", err->text);
  int status = chat_render(t, "here", in, &out, err);
  snprintf(text, sizeof text, "%s", str_c(&out.text));
  jinja_text_free(&out);
  jinja_free(t);
  return status ? NULL : text;
}

static void test_chat(void **state) {
  (void)state;
  error err;
  static const char all[] = "{{ messages[0].role }} {{ tools }} {{ documents }} {{ add_generation_prompt }} {{ "
                            "bos_token }} {{ eos_token is defined }} {{ q }} {{ strftime_now('%F %T') }}";
  chat_input in = {.messages = VIEW("[{\"role\": \"user\"}]"), .bos = VIEW("<s>"), .now = "2024-02-29 01:02:03"};
  assert_string_equal(chat(all, &in, &err), "user None None True <s> False  2024-02-29 01:02:03");
  in.tools = VIEW("[{\"a\": 1}]");
  in.variables = VIEW("{\"q\": [null], \"documents\": []}");
  in.no_generation_prompt = true;
  in.now = "2026-01-01";
  assert_string_equal(chat(all, &in, &err), "user [{'a': 1}] [] False <s> False [None] 2026-01-01 00:00:00");
  in = (chat_input){.messages = VIEW("[]")};
  assert_string_equal(chat("{% for t in tools %}{% endfor %}ok", &in, &err), "ok");
  static const struct { const char *messages, *variables, *now, *expected;
  } bad[] = {
    {"{}", NULL, NULL, "messages: expected a JSON array"},
    {"[1]", NULL, NULL, "messages: entry 0"},
    {"[", NULL, NULL, "messages: line 1"},
    {"[]", "[]", NULL, "variables: expected a JSON object"},
    {"[]", "{\"messages\": 1}", NULL, "'messages' has a place"},
    {"[]", "{\"raise_exception\": 1}", NULL, "'raise_exception' is a function"},
    {"[]", "{\"bos_token\": 1}", NULL, "'bos_token'"},
    {"[]", NULL, "2026-02-29", "fewer days"},
    {"[]", NULL, "2026-1-1", "no date"},
    {"[]", NULL, "tomorrow", "no date"},
    {"[]", NULL, "2026-01-01x", "no date"},
    {"[]", NULL, "2026-01-01 25:00", "no date"},
    {"[]", NULL, "2026-01-01 05:00:", "no date"},
    {"[]", "{\"x\": 1e999}", NULL, "variables: line 1"},
  };
  for (size_t i = 0; i < COUNT(bad); i++) {
    in = (chat_input){.messages = VIEW(bad[i].messages), .now = bad[i].now};
    if (bad[i].variables) in.variables = VIEW(bad[i].variables);
    assert_null(chat("x", &in, &err));
    if (!strstr(err.text, bad[i].expected)) fail_msg("'%s' does not mention '%s'", err.text, bad[i].expected);
  }
  in = (chat_input){.messages = VIEW("[]")};
  assert_null(chat("\n{{ raise_exception('no') }}", &in, &err));
  assert_string_equal(err.text, "here: line 2: no");
}

static void test_gguf(void **state) {
  (void)state;
  str s = {0};
  w_header(&s, 0, 6);
  w_key_str(&s, "general.architecture", "llama");
  w_key_str(&s, "tokenizer.chat_template", "plain");
  w_key_str(&s, "tokenizer.chat_template.tool_use", "with tools");
  w_key_array(&s, "tokenizer.ggml.tokens", GGUF_STRING, 2);
  w_str(&s, "<s>");
  w_str(&s, "</s>");
  w_key_int(&s, "tokenizer.ggml.bos_token_id", GGUF_UINT32, 0);
  w_key_int(&s, "tokenizer.ggml.eos_token_id", GGUF_UINT32, 4294967295u);
  w_pad(&s, 32);
  gguf *g;
  error err = {0};
  text_view v;
  void *copy = aligned_alloc(16, round_up(s.n, 16));
  memcpy(copy, s.at, s.n);
  if (gguf_open_memory(copy, s.n, "t.gguf", &g, &err)) fail_msg("%s", err.text);
  assert_int_equal(chat_template_from_gguf(g, false, &v, &err), 0);
  assert_true(v.n == 5 && !memcmp(v.at, "plain", 5));
  assert_int_equal(chat_template_from_gguf(g, true, &v, &err), 0);
  assert_true(v.n == 10 && !memcmp(v.at, "with tools", 10));
  assert_int_equal(chat_token_from_gguf(g, "tokenizer.ggml.bos_token_id", &v, &err), 0);
  assert_true(v.n == 3 && !memcmp(v.at, "<s>", 3));
  assert_int_equal(chat_token_from_gguf(g, "tokenizer.ggml.eos_token_id", &v, &err), 0);
  assert_null(v.at);
  assert_int_equal(chat_token_from_gguf(g, "tokenizer.ggml.eot_token_id", &v, &err), 0);
  assert_null(v.at);
  gguf_close(g);
  free(copy);
  str_free(&s);
}

// One template, many threads.
static void *render_often(void *t) {
  for (int i = 0; i < 50; i++) {
    str out = {0};
    error err = {0};
    if (jinja_render(t, NULL, 0, &now, NULL, &out, &err) || strcmp(str_c(&out), "0123AB")) return t;
    str_free(&out);
  }
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  static const char text[] =
    "{% macro m(x) %}{{ x | upper }}{% endmacro %}{% for i in range(4) %}{{ i }}{% endfor %}{{ m('a') ~ m('b') }}";
  jinja *t;
  error err = {0};
  assert_int_equal(jinja_parse(text, strlen(text), &t, &err), 0);
  pthread_t thread[4];
  for (size_t i = 0; i < COUNT(thread); i++) assert_int_equal(pthread_create(&thread[i], NULL, render_often, t), 0);
  for (size_t i = 0; i < COUNT(thread); i++) {
    void *bad;
    pthread_join(thread[i], &bad);
    assert_null(bad);
  }
  jinja_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_texts),      cmocka_unit_test(test_lines),  cmocka_unit_test(test_depth),
    cmocka_unit_test(test_work),       cmocka_unit_test(test_memory), cmocka_unit_test(test_growing_text),
    cmocka_unit_test(test_no_way_out), cmocka_unit_test(test_chat),   cmocka_unit_test(test_gguf),
    cmocka_unit_test(test_threads),    cmocka_unit_test(test_authors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
