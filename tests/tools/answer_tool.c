// Takes answers apart, for tests/python/test_answer.py: reads a JSON array of {"template", "prompt", "tools", "text",
// "piece", "cut", "cuts"} from stdin and prints for each the parts: [["content", TEXT], ["reasoning", TEXT], ["call",
// NAME, ARGUMENTS, ID, "done" or "open", NUMBER OF PARTS], ...].  The text is given in pieces of `piece` bytes or a
// little more, so that they end with a character; parts of one kind that follow one another are joined.  With "cut"
// true a limit ends the text; with "cuts" true: an array of such results, of the text as a limit cuts it behind its
// first character, its second, and so on.
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
    if (p->kind == ANSWER_CALL && p->name) {
      json_array_append_new(all, json_pack("[sssssi]", "call", p->name, p->text, p->id, p->done ? "done" : "open", 1));
    } else if (p->kind == ANSWER_CALL) {
      str s = {0};
      str_add(&s, json_string_value(json_array_get(last, 2)));
      str_addn(&s, p->text, p->n);
      json_array_set_new(last, 2, json_stringn(s.at, s.n));
      json_array_set_new(last, 4, json_string(p->done ? "done" : "open"));
      json_array_set_new(last, 5, json_integer(json_integer_value(json_array_get(last, 5)) + 1));
      str_free(&s);
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

// All parts of the first n bytes of a case's text.
static json_t *parts_of(const json_t *one, size_t n_text, bool cut) {
  answer *a;
  error err = {0};
  if (answer_new(member(one, "template"), member(one, "prompt"), member(one, "tools"), &a, &err)) die("%s", err.text);
  text_view text = {member(one, "text").at, n_text};
  size_t piece = (size_t)json_integer_value(json_object_get(one, "piece")), n_parts;
  json_t *all = json_array();
  const answer_part *parts;
  for (size_t at = 0, n; at < text.n; at += n) {
    n = piece && piece < text.n - at ? piece : text.n - at;
    while (at + n < text.n && ((unsigned char)text.at[at + n] & 0xC0) == 0x80) n++;
    n_parts = answer_add(a, text.at + at, n, &parts);
    collect(all, parts, n_parts);
  }
  n_parts = answer_end(a, cut, &parts);
  collect(all, parts, n_parts);
  answer_free(a);
  return all;
}

// The same where a limit ends it behind each character.
static json_t *all_cuts(const json_t *one) {
  text_view text = member(one, "text");
  json_t *all = json_array();
  for (size_t n = 1; n <= text.n; n++)
    if (n == text.n || ((unsigned char)text.at[n] & 0xC0) != 0x80) json_array_append_new(all, parts_of(one, n, true));
  return all;
}

int main(void) {
  json_error_t e;
  json_t *cases = json_loadf(stdin, 0, &e), *results = json_array(), *one;
  size_t i;
  if (!cases) { fprintf(stderr, "stdin: %s\n", e.text); return 1; }
  json_array_foreach(cases, i, one) {
    bool cuts = json_is_true(json_object_get(one, "cuts"));
    bool cut = json_is_true(json_object_get(one, "cut"));
    json_array_append_new(results, cuts ? all_cuts(one) : parts_of(one, member(one, "text").n, cut));
  }
  json_dumpf(results, stdout, JSON_COMPACT);
  json_decref(results);
  json_decref(cases);
  return 0;
}
