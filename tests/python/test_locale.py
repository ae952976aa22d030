"""The library in a program that has called setlocale: decimal commas, decimal points of two bytes, and letters of other alphabets.

A C program and the Python package give the same as without a locale: grammars, templates, tool calls, overrides, kernels as C
source.  The locales are made by localedef in a folder of the test's own.
"""
import os
import subprocess
from pathlib import Path

import pytest
from conftest import program

THREADS = 2
LOCALES = {"de_DE.UTF-8": "UTF-8", "ps_AF.UTF-8": "UTF-8", "tr_TR.UTF-8": "UTF-8", "tr_TR.ISO-8859-9": "ISO-8859-9"}


@pytest.fixture(scope="module")
def env(weft, weft_env, sanitized, tmp_path_factory):
    if sanitized:
        pytest.skip("a program would have to be built with the sanitizer, too")
    if not (Path(weft).parent / "libweft.so").exists():
        pytest.skip("no libweft.so in this build")
    folder = tmp_path_factory.mktemp("locales")
    try:
        for name, characters in LOCALES.items():
            subprocess.run(["localedef", "-i", name.split(".")[0], "-f", characters, folder / name], check=True, capture_output=True, timeout=120)
    except (OSError, subprocess.CalledProcessError) as e:
        pytest.skip(f"localedef cannot make {name} here: {e}")
    return {**weft_env, "LOCPATH": str(folder), "WEFT_LIBRARY": str(Path(weft).parent / "libweft.so"), "PYTHONDONTWRITEBYTECODE": "1"}


PROGRAM = r"""
#include "weft.h"
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
static char want[64];
static int calls, wrong;
static void progress(void *ctx, const char *what, double fraction) {
  char now[64];
  (void)ctx; (void)what; (void)fraction;
  snprintf(now, sizeof now, "%g", 1.5);
  calls++;
  wrong += strcmp(now, want) != 0;
}
int main(int argc, char **argv) {
  if (argc > 2 && !setlocale(LC_ALL, argv[2])) return 2;
  snprintf(want, sizeof want, "%g", 1.5);
  fprintf(stderr, "%s %d\n", want, strcasecmp("FILE", "file") == 0);
  weft_error err;
    weft_model *model;
  weft_grammar *g;
  weft_template *t;
  const char *const settings[] = {"llama.rope.freq_base=float:12345.5"};
  weft_options o = {.size = sizeof o, .context = 64, .progress = progress, .settings = settings, .n_settings = 1};
  if (weft_model_open(argv[1], &o, &model, &err)) return puts(err.text);
  const weft_vocab *v = weft_model_vocab(model);
  static const char *const tries[][2] = {
    {"{\"enum\":[1.25]}", "1.25"}, {"{\"enum\":[1.25]}", "1,25"}, {"{\"const\":0.1}", "0.1"},
    {"{\"not\":{\"minimum\":1.75},\"type\":\"number\",\"exclusiveMinimum\":1.5}", "1.625"},
    {"{\"not\":{\"minimum\":1.75},\"type\":\"number\",\"exclusiveMinimum\":1.5}", "1.75"},
    {"{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":1}", "1.75"}, {"{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":1}", "1.7"},
    {"{\"type\":\"string\",\"pattern\":\"(?i:TITLE)\"}", "\"title\""}};
  for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
    if (weft_grammar_open_json_schema(v, tries[i][0], strlen(tries[i][0]), &g, &err)) { puts(err.text); continue; }
    int fits = !weft_grammar_accept_text(g, tries[i][1], strlen(tries[i][1]), &err) && weft_grammar_complete(g);
    printf("%s %s: %d %s\n", tries[i][0], tries[i][1], fits, weft_grammar_notes(g));
    weft_grammar_free(g);
  }
  static const char text[] = "{{ 1.5 }} {{ 3/4 }} {{ '%.2f' | format(2.25) }} {{ [0.5,1e-7]|tojson }} {{ 2.55|round(1) }} "
                             "{{ '1.5'|float + 1 }} {{ messages[0].tool_calls[0].function.arguments|tojson }} {{ messages[0].x }} {{ v }} "
                             "{{ 0.1 + 0.2 }} {{ 1e300*10 }} {{ 'I'|lower }} {{ 'i'|upper }} {{ 'INFINITY'|float }} {{ '1500000'|float|filesizeformat }}";
  static const char messages[] = "[{\"role\":\"user\",\"content\":\"a\",\"x\":0.5,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
                                 "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1.25}\"}}]}]";
  weft_chat chat = {.messages = messages, .n_messages = strlen(messages), .variables = "{\"v\":2.75}", .n_variables = 10};
  char *out;
  size_t n;
  if (weft_template_open(text, strlen(text), "t", &t, &err)) return puts(err.text);
  if (weft_template_render(t, &chat, &out, &n, &err)) return puts(err.text);
  puts(out);
  for (const char *const *at = (const char *const[]){"iq4_xs", "IQ4_NL", "F16", "nothing", NULL}; *at; at++) {
    weft_quantize_options q = {.size = sizeof q, .type = *at, .dry_run = true, .allow_requantize = true};
    weft_quantize_result r;
    printf("%s %d\n", *at, weft_quantize(argv[1], "none", &q, &r, &err));
  }
  float sum = 0;
  const float *logits;
  int32_t *ids;
  if (weft_tokenize(v, "def f(x):", 9, WEFT_ADD_SPECIAL, &ids, &n, &err) || weft_decode(model, ids, n, 0, &logits, &err)) return puts(err.text);
  for (int i = 0; i < weft_model_vocab_size(model); i++) sum += logits[i];
  setlocale(LC_ALL, "C");
  printf("%.9g %d %d\n", sum, calls > 0, wrong);
}
"""


def test_a_c_program(env, weft, repo, tinypy, tmp_path):
    (tmp_path / "own.c").write_text(PROGRAM)
    folder = Path(weft).parent
    subprocess.run(["cc", "-Wall", "-Werror", "-o", tmp_path / "own", tmp_path / "own.c", f"-I{repo}/include", f"-L{folder}", f"-Wl,-rpath,{folder}", "-lweft"], check=True, timeout=60)

    def run(*args, **more):
        done = subprocess.run([tmp_path / "own", tinypy, *args], env={**env, **more}, capture_output=True, timeout=250)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout.decode(), done.stderr.decode().splitlines()[0]

    plain, own = run()
    assert own == "1.5 1" and "1.5 0.75 2.25 [0.5, 1e-07] 2.5 2.5" in plain and plain.endswith(" 1 0\n"), plain
    assert [line.split()[-1] for line in plain.splitlines() if line.startswith("{")] == ["1", "0", "1", "1", "0", "1", "0", "1"], plain
    seen = set()
    for name in LOCALES:
        text, own = run(name)
        assert text == plain, name
        seen.add(own)
    assert {"1,5 1", "1٫5 1", "1,5 0"} <= seen           # the locales are what they should be, and the callback saw them
    if program("cc"):
        assert run("de_DE.UTF-8", RENDER="c")[0] == run(RENDER="c", )[0]


PYTHON = """
import json, locale, sys
if len(sys.argv) > 2: locale.setlocale(locale.LC_ALL, sys.argv[2])
from weft import Llama, LlamaGrammar
llm = Llama(sys.argv[1], n_ctx=512, verbose=False, kv_overrides={"llama.rope.freq_base": 12345.5})
for schema in ({"type": "number", "minimum": 1.5, "maximum": 1.75}, {"enum": [1.25]}, {"const": 0.1}):
    grammar = LlamaGrammar.from_json_schema(json.dumps(schema))
    print(json.loads(llm("x", max_tokens=12, grammar=grammar, seed=3, temperature=1.1)["choices"][0]["text"]))
number = {"type": "object", "properties": {"x": {"type": "number", "minimum": 0.5, "maximum": 0.75}}, "required": ["x"]}
answer = llm.create_chat_completion(messages=[{"role": "user", "content": "a"}], tool_choice="required", seed=3, max_tokens=60,
                                    tools=[{"type": "function", "function": {"name": "f", "parameters": number}}])
print(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
"""


def test_the_python_package(env, repo, tinypy):
    pytest.importorskip("cffi", reason="no cffi in this Python (scripts/setup.sh test installs it from PyPI)")
    import sys

    def run(*args):
        done = subprocess.run([sys.executable, "-c", PYTHON, str(tinypy), *args], env={**env, "PYTHONPATH": f"{repo}/python"}, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr
        return done.stdout
    plain = run()
    assert 1.5 <= float(plain.split()[0]) <= 1.75 and plain.split()[1:3] == ["1.25", "0.1"], plain
    for name in LOCALES:
        assert run(name) == plain, name
