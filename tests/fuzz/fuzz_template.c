// Fuzzes chat templates: the input is a template and, after a NUL, a text that the conversation contains.  Whatever
// they are, parsing and rendering end within their limits, with an error that names a line or with valid UTF-8.
#include "chat/jinja.h"
#include "text/utf8.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const error *e) {
  if (!strncmp(e->text, "line ", 5) || !strncmp(e->text, "the template has ", 17)) return;
  die("the error '%s' names no line", e->text);
}

// A conversation of everything that templates ask about, with the text in it where that is UTF-8.
static json_t *conversation(const char *text, size_t n) {
  json_t *said = json_stringn(text, n);
  if (!said) said = json_string("Hi \"there\"\n");
  return json_pack("[{s:s, s:o}, {s:s, s:n, s:[{s:s, s:{s:s, s:{s:i, s:f, s:[b, n]}}}]}, {s:s, s:[{s:s, s:s}]}]",
                   "role", "user", "content", said, "role", "assistant", "content", "tool_calls", "id", "c1",
                   "function", "name", "f", "arguments", "a", 1, "b", 2.5, "c", 1, "role", "tool", "content", "type",
                   "text", "text", "\xC3\xA9 <x>");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const jinja_limits limits = {.steps = 1 << 18, .memory = 8 << 20, .output = 1 << 20, .depth = 500};
  const char *text = (const char *)data, *end = memchr(text, 0, size);
  size_t n = end ? (size_t)(end - text) : size;
  jinja *t = NULL;
  error err = {0};
  if (jinja_parse(text, n, &t, &err)) { check_error(&err); return 0; }
  json_t *messages = conversation(end ? end + 1 : "", end ? size - n - 1 : 0), *yes = json_true();
  if (!messages) die("no conversation");
  jinja_var vars[] = {{"messages", messages}, {"tools", NULL}, {"add_generation_prompt", yes}};
  struct tm now = {.tm_year = 126, .tm_mday = 1, .tm_wday = 4};
  str out = {0};
  if (jinja_render(t, vars, COUNT(vars), &now, &limits, &out, &err)) check_error(&err);
  else if (utf8_valid_prefix(str_c(&out), out.n) != out.n) die("%zu bytes of output are not UTF-8", out.n);
  str_free(&out);
  json_decref(messages);
  jinja_free(t);
  return 0;
}
