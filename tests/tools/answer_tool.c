// Takes answers apart, for tests/python/test_answer.py: reads a JSON array of {"template", "prompt", "tools", "text",
// "piece"} from stdin and prints for each the parts: [["content", TEXT], ["reasoning", TEXT], ["call", NAME, ARGUMENTS,
// ID], ...].  The text is given in pieces of `piece` bytes or a little more, so that they end with a character; parts
// of one kind that follow one another are joined.
#include "chat/answer.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static text_view member(const json_t *o, const char *key) {
  const json_t *s = json_object_get(o, key);
  return (text_view){json_string_value(s), json_string_length(s)};
}

static void collect(json_t *all, const answer_part *parts, size_t n) {
  static const char *const kinds[] = {"content", "reasoning", "call"};
  for (size_t i = 0; i < n; i++) {
    const answer_part *p = &parts[i];
    json_t *last = json_array_get(all, json_array_size(all) - 1);
    if (p->kind == ANSWER_CALL) {
      json_array_append_new(all, json_pack("[ssss]", "call", p->name, p->text, p->id));
    } else if (last && !strcmp(json_string_value(json_array_get(last, 0)), kinds[p->kind])) {
      str s = {0};
      str_add(&s, json_string_value(json_array_get(last, 1)));
      str_addn(&s, p->text, p->n);
      json_array_set_new(last, 1, json_stringn(s.at, s.n));
      str_free(&s);
    } else {
      json_array_append_new(all, json_pack("[ss]", kinds[p->kind], p->text));
    }
  }
}

int main(void) {
  json_error_t e;
  json_t *cases = json_loadf(stdin, 0, &e), *results = json_array(), *one;
  size_t i;
  if (!cases) { fprintf(stderr, "stdin: %s\n", e.text); return 1; }
  json_array_foreach(cases, i, one) {
    answer *a;
    error err = {0};
    if (answer_new(member(one, "template"), member(one, "prompt"), member(one, "tools"), &a, &err)) {
      fprintf(stderr, "%s\n", err.text);
      return 1;
    }
    text_view text = member(one, "text");
    size_t piece = (size_t)json_integer_value(json_object_get(one, "piece"));
    json_t *all = json_array();
    const answer_part *parts;
    for (size_t at = 0, n; at < text.n; at += n) {
      n = piece && piece < text.n - at ? piece : text.n - at;
      while (at + n < text.n && ((unsigned char)text.at[at + n] & 0xC0) == 0x80) n++;
      size_t n_parts = answer_add(a, text.at + at, n, &parts);
      collect(all, parts, n_parts);
    }
    size_t n_parts = answer_end(a, &parts);
    collect(all, parts, n_parts);
    json_array_append_new(results, all);
    answer_free(a);
  }
  json_dumpf(results, stdout, JSON_COMPACT);
  json_decref(results);
  json_decref(cases);
  return 0;
}
