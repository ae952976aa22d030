// Fuzzes the taking apart of answers: the input is a template, after a NUL the end of a prompt, after another one what
// a model writes.  The parts must be the same whole and in pieces, valid UTF-8 where the text is, and arguments must be
// JSON objects.
#include "chat/answer.h"
#include "text/utf8.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static text_view field(const char **at, const char *end) {
  const char *nul = memchr(*at, 0, (size_t)(end - *at));
  text_view v = {*at, (size_t)((nul ? nul : end) - *at)};
  *at = nul ? nul + 1 : end;
  return v;
}

static void add(str *out, int *kind, const answer_part *parts, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (parts[i].kind == ANSWER_CALL) {
      json_t *o = json_loadb(parts[i].text, parts[i].n, 0, NULL);
      if (!json_is_object(o) || !parts[i].name[0] || !parts[i].id[0])
        die("a call of '%s' with %s", parts[i].name, parts[i].text);
      json_decref(o);
    }
    if ((int)parts[i].kind != *kind || parts[i].kind == ANSWER_CALL)
      str_addf(out, "\n%d %s:", (int)parts[i].kind, parts[i].name ? parts[i].name : "");
    str_addn(out, parts[i].text, parts[i].n);
    *kind = (int)parts[i].kind;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
                              "\"s\":{\"type\":\"string\"}}}}}]";
  const char *at = (const char *)data, *end = at + size;
  text_view tmpl = field(&at, end), prompt = field(&at, end);
  str clean = {0}, results[2] = {{0}, {0}};
  utf8_stream u = {0};
  str_add(&clean, "");
  utf8_stream_add(&u, at, (size_t)(end - at), &clean);
  utf8_stream_end(&u, &clean);
  for (int cut = 0; cut < 2; cut++) {
    answer *a;
    const answer_part *parts;
    int kind = -1;
    size_t n_parts;
    if (answer_new(tmpl, prompt, (text_view){tools, sizeof tools - 1}, &a, NULL)) die("tools");
    for (size_t i = 0, n; i < clean.n; i += n) {
      n = cut ? 1 + (unsigned char)clean.at[i] % 7 : clean.n;
      if (n > clean.n - i) n = clean.n - i;
      n_parts = answer_add(a, clean.at + i, n, &parts);
      add(&results[cut], &kind, parts, n_parts);
    }
    n_parts = answer_end(a, &parts);
    add(&results[cut], &kind, parts, n_parts);
    answer_free(a);
  }
  if (results[0].n != results[1].n || memcmp(str_c(&results[0]), str_c(&results[1]), results[0].n))
    die("whole:%s\ncut:%s", str_c(&results[0]), str_c(&results[1]));
  str_free(&clean);
  str_free(&results[0]);
  str_free(&results[1]);
  return 0;
}
