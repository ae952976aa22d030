// Fuzzes chat templates: the input is a template and, after a NUL, a text that the conversation contains.  Whatever
// they are, parsing and rendering end within their limits, with an error that names a line or with valid UTF-8.  What
// counts as written by the template holds nothing of what strangers wrote: their letters are none of the template's.
#include "base/str.h"
#include "chat/jinja.h"
#include "text/utf8.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const error *e) {
  if (!strncmp(e->text, "line ", 5) || !strncmp(e->text, "the template has ", 17)) return;
  die("the error '%s' names no line", e->text);
}

#define LEAD 0xEA             // the first byte of every letter of strangers

// A Hangul syllable for each byte: printed as it is by everything that escapes what cannot be printed.
static char *in_their_letters(const char *text, size_t n) {
  str s = {0};
  str_add(&s, "\xEA\xB0\x80");
  for (size_t i = 0; i < n; i++) {
    char b[4];
    str_addn(&s, b, (size_t)utf8_put(0xAC00 + (unsigned char)text[i], b));
  }
  return s.at;
}

// A conversation of everything that templates ask about, with the text in it where that is UTF-8.
static json_t *conversation(const char *text, size_t n, const char *theirs) {
  json_t *said = json_stringn(text, n);
  if (!said) said = json_string("Hi \"there\"\n");
  return json_pack("[{s:s, s:o}, {s:s, s:n, s:[{s:s, s:{s:s, s:{s:i, s:f, s:[b, n], s:s}}}]},"
                   " {s:s, s:[{s:s, s:s}], s:s}, {s:s, s:s}]",
                   "role", "user", "content", said, "role", "assistant", "content", "tool_calls", "id", theirs,
                   "function", "name", theirs, "arguments", "a", 1, "b", 2.5, "c", 1, theirs, theirs, "role", "tool",
                   "content", "type", "text", "text", theirs, "name", theirs, "role", "user", "content", theirs);
}

static json_t *tool_list(const char *theirs) {
  return json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:[s, i]}}}}}]", "type", "function", "function", "name",
                   theirs, "description", theirs, "parameters", "type", "object", "properties", theirs, "type",
                   "string", "enum", theirs, 5);
}

// As they are, or by number.
static bool has_their_letters(const char *text, size_t n) {
  for (size_t i = 0; i + 1 < n; i++) if (text[i] == '\\' && strchr("uUx01234567", text[i + 1])) return true;
  return memchr(text, LEAD, n);
}

static void check_authors(const jinja_text *out) {
  for (size_t i = 0; i < out->own.n; i++) {
    text_span own = out->own.at[i];
    bool first = !i || own.from > out->own.at[i - 1].to;
    if (own.from >= own.to || own.to > out->text.n || !first) die("the parts of the text are not in order");
    if (memchr(out->text.at + own.from, LEAD, own.to - own.from)) die("text of strangers counts as the template's");
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const jinja_limits limits = {.steps = 1 << 18, .memory = 8 << 20, .output = 1 << 20, .depth = 500};
  const char *text = (const char *)data, *end = memchr(text, 0, size);
  size_t n = end ? (size_t)(end - text) : size, n_said = end ? size - n - 1 : 0;
  jinja *t = NULL;
  error err = {0};
  if (jinja_parse(text, n, &t, &err)) { check_error(&err); return 0; }
  char *theirs = in_their_letters(end ? end + 1 : "", n_said < 64 ? n_said : 64);
  json_t *messages = conversation(end ? end + 1 : "", n_said, theirs), *tools = tool_list(theirs), *yes = json_true(),
         *bos = json_string("<s>"), *said = json_string(theirs);
  if (!messages || !tools) die("no conversation");
  jinja_var vars[] = {{"messages", messages, false},         {"tools", n_said % 2 ? tools : NULL, false},
                      {"add_generation_prompt", yes, false}, {"bos_token", bos, true},
                      {"eos_token", bos, true},              {"x", said, false}};
  struct tm now = {.tm_year = 126, .tm_mday = 1, .tm_wday = 4};
  jinja_text out = {0};
  bool apart = !has_their_letters(text, n);
  const jinja_vars given = {.at = vars, .n = COUNT(vars)};
  if (jinja_render_freeing(t, &given, &now, &limits, &out, &err)) check_error(&err);
  else if (utf8_valid_prefix(str_c(&out.text), out.text.n) != out.text.n) die("the output is not UTF-8");
  else if (apart) check_authors(&out);
  jinja_text_free(&out);
  free(theirs);
  json_t *const made[] = {messages, tools, said, bos};
  for (size_t i = 0; i < COUNT(made); i++) json_decref(made[i]);
  jinja_free(t);
  return 0;
}
