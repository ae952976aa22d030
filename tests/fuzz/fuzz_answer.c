// Fuzzes the taking apart of answers: the input is a template, after a NUL the end of a prompt, after another one what
// a model writes.  The parts, joined, must be the same whole and in pieces, and arguments that are whole must be JSON
// objects.
#include "chat/answer.h"
#include "base/literal.h"
#include "text/utf8.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static text_view field(const char **at, const char *end) {
  const char *nul = memchr(*at, 0, (size_t)(end - *at));
  text_view v = {*at, (size_t)((nul ? nul : end) - *at)};
  *at = nul ? nul + 1 : end;
  return v;
}

struct joined { str out, arguments; int kind; };

// Whole arguments are an object, which comes out of the reader of values as it went in.
static void check_arguments(struct joined *j) {
  str again = {0};
  text_view v = {str_c(&j->arguments), j->arguments.n};
  if (!v.n || v.at[0] != '{' || !literal_read(v.at, v.n, &again) || again.n != v.n || memcmp(again.at, v.at, v.n))
    die("arguments: %s\nbecome %s", v.at, str_c(&again));
  str_free(&again);
}

static void add(struct joined *j, const answer_part *parts, size_t n) {
  for (size_t i = 0; i < n; i++) {
    bool call = parts[i].kind == ANSWER_CALL;
    if (call && !parts[i].name && j->kind != ANSWER_CALL) die("a call that goes on has not begun");
    if ((int)parts[i].kind != j->kind || parts[i].name)
      str_addf(&j->out, "\n%d %s:", (int)parts[i].kind, parts[i].name ? parts[i].name : "");
    if (parts[i].name) j->arguments.n = 0;
    if (parts[i].name && (!parts[i].name[0] || strlen(parts[i].id) < 9)) die("a call of '%s'", parts[i].name);
    str_addn(&j->out, parts[i].text, parts[i].n);
    if (call) str_addn(&j->arguments, parts[i].text, parts[i].n);
    if (call && parts[i].done) check_arguments(j);
    j->kind = (int)parts[i].kind;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
                              "\"s\":{\"type\":\"string\"}}}}}]";
  const char *at = (const char *)data, *end = at + size;
  text_view tmpl = field(&at, end), prompt = field(&at, end);
  str clean = {0};
  struct joined results[2] = {{.kind = -1}, {.kind = -1}};
  utf8_stream u = {0};
  str_add(&clean, "");
  utf8_stream_add(&u, at, (size_t)(end - at), &clean);
  utf8_stream_end(&u, &clean);
  for (int cut = 0; cut < 2; cut++) {
    answer *a;
    const answer_part *parts;
    size_t n_parts;
    if (answer_new(tmpl, prompt, (text_view){tools, sizeof tools - 1}, &a, NULL)) die("tools");
    for (size_t i = 0, n; i < clean.n; i += n) {
      n = cut ? 1 + (unsigned char)clean.at[i] % 7 : clean.n;
      if (n > clean.n - i) n = clean.n - i;
      n_parts = answer_add(a, clean.at + i, n, &parts);
      add(&results[cut], parts, n_parts);
    }
    n_parts = answer_end(a, false, &parts);
    add(&results[cut], parts, n_parts);
    answer_free(a);
  }
  if (results[0].out.n != results[1].out.n || memcmp(str_c(&results[0].out), str_c(&results[1].out), results[0].out.n))
    die("whole:%s\ncut:%s", str_c(&results[0].out), str_c(&results[1].out));
  str_free(&clean);
  for (int i = 0; i < 2; i++) { str_free(&results[i].out); str_free(&results[i].arguments); }
  return 0;
}
