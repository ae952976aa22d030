// Conversations as tokens, as a filter, for tests/python/test_authors.py.
//
//     chat_tool VOCABULARY TEMPLATE < lines > lines
//
// A line in is a JSON object: messages, and perhaps tools, variables and no_generation_prompt.  A line out is one, too:
// text, ids, and own: [from, to] of the bytes that the template wrote; or error.
#define _GNU_SOURCE
#include "base/json.h"
#include "base/str.h"
#include "chat/jinja.h"
#include "engine/engine.h"
#include "weft.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *dump(const json_t *o, const char *key, size_t *n) {
  const json_t *v = json_object_get(o, key);
  char *text = v && !json_is_null(v) ? json_dumps(v, JSON_COMPACT) : NULL;
  *n = text ? strlen(text) : 0;
  return text;
}

static json_t *own_of(const weft_template *t, const weft_chat *c) {
  jinja_text made;
  json_t *all = json_array();
  if (template_render(t, c, &made, NULL)) return all;
  for (size_t i = 0; i < made.own.n; i++)
    json_array_append_new(all, json_pack("[II]", (json_int_t)made.own.at[i].from, (json_int_t)made.own.at[i].to));
  jinja_text_free(&made);
  return all;
}

static json_t *answer(const weft_vocab *v, const weft_template *t, const json_t *line) {
  weft_chat c = {.bos = "<s>", .eos = "</s>", .now = "2026-01-01 09:05:07"};
  char *messages = dump(line, "messages", &c.n_messages), *tools = dump(line, "tools", &c.n_tools),
       *variables = dump(line, "variables", &c.n_variables), *text;
  c.messages = messages, c.tools = tools, c.variables = variables;
  c.no_generation_prompt = json_is_true(json_object_get(line, "no_generation_prompt"));
  int32_t *ids;
  size_t n, n_ids;
  weft_error err;
  json_t *out = json_object();
  if (weft_template_encode(t, v, &c, &text, &n, &ids, &n_ids, &err)) {
    json_object_set_new(out, "error", json_string(err.text));
  } else {
    json_t *list = json_array();
    for (size_t i = 0; i < n_ids; i++) json_array_append_new(list, json_integer(ids[i]));
    json_object_set_new(out, "ids", list);
    json_object_set_new(out, "text", json_stringn(text, n));
    json_object_set_new(out, "own", own_of(t, &c));
    weft_free(text);
    weft_free(ids);
  }
  free(messages);
  free(tools);
  free(variables);
  return out;
}

static weft_template *open_template(const char *path) {
  str text = {0};
  char some[4096];
  FILE *f = fopen(path, "rb");
  weft_template *t = NULL;
  for (size_t n; f && (n = fread(some, 1, sizeof some, f));) str_addn(&text, some, n);
  if (f && !fclose(f)) weft_template_open(str_c(&text), text.n, path, &t, NULL);
  str_free(&text);
  return t;
}

int main(int argc, char **argv) {
  weft_file *f = NULL;
  weft_vocab *v = NULL;
  weft_template *t = argc == 3 ? open_template(argv[2]) : NULL;
  weft_error err = {"the template cannot be read"};
  if (!t || weft_file_open(argv[1], &f, &err) || weft_vocab_open(f, &v, &err)) {
    fprintf(stderr, "chat_tool: %s\n", err.text);
    return 1;
  }
  char *line = NULL;
  size_t room = 0;
  for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
    json_t *in = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL), *out = answer(v, t, in);
    char *text = json_dumps(out, JSON_COMPACT);
    puts(text);
    free(text);
    json_decref(out);
    json_decref(in);
  }
  free(line);
  weft_template_close(t);
  weft_vocab_close(v);
  weft_file_close(f);
  return 0;
}
