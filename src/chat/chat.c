// Converts conversations to prompts: see chat.h. JSON is read here and checked for what every template relies on; the
// fields of a message are for the caller and the template.
#define _GNU_SOURCE
#include "chat/chat.h"
#include "base/json.h"
#include "model/gguf.h"
#include <stdlib.h>
#include <string.h>

// ---- input ----------------------------------------------------------------------------------------------------------

static int parse_json(const char *what, text_view text, json_type type, size_t *left, json_t **out, error *err) {
  error e = {0};
  if (text.n > CHAT_MAX_JSON) return error_set(err, "%s: %zu bytes of JSON, more than %u", what, text.n, CHAT_MAX_JSON);
  *out = json_read(text.at, text.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, left, &e);
  if (!*out) return error_set(err, "%s: %s", what, e.text);
  if (json_typeof(*out) == type) return 0;
  return error_set(err, "%s: expected a JSON %s", what, type == JSON_ARRAY ? "array" : "object");
}

static int check_entry(void *err, size_t i, json_t *m, size_t cost) {
  (void)cost;
  bool object = json_is_object(m);
  json_decref(m);
  return object ? 0 : error_set(err, "entry %zu is no JSON object", i);
}

static int check_messages(text_view text, error *err) {
  error e = {0};
  if (text.n > CHAT_MAX_JSON) return error_set(err, "messages: %zu bytes of JSON, more than %u", text.n, CHAT_MAX_JSON);
  return json_each(text.at, text.n, check_entry, &e, &e) ? error_set(err, "messages: %s", e.text) : 0;
}

// Parses a date with an optional time, as local time.
static int parse_now(const char *text, struct tm *out, error *err) {
  int y, mo, d, h = 0, mi = 0, s = 0, n = 0;
  bool date = sscanf(text, "%4d-%2d-%2d%n", &y, &mo, &d, &n) == 3 && n == 10;
  if (date && text[n]) {
    int k = 0, seconds = 0;
    date = (text[n] == ' ' || text[n] == 'T') && sscanf(text + n + 1, "%2d:%2d%n", &h, &mi, &k) == 2 && k == 5;
    n += 6;
    if (date && text[n]) date = sscanf(text + n, ":%2d%n", &s, &seconds) == 1 && seconds == 3 && !text[n + 3];
  }
  if (!date || y < 1 || mo < 1 || mo > 12 || d < 1 || d > 31 || h < 0 || h > 23 || mi < 0 || mi > 59 || s < 0 || s > 59)
    return error_set(err, "'%.60s' is no date: expected 2026-01-31 or 2026-01-31 23:59:59", text);
  struct tm t = {.tm_year = y - 1900, .tm_mon = mo - 1, .tm_mday = d, .tm_hour = h, .tm_min = mi, .tm_sec = s};
  time_t seconds = timegm(&t);
  if (t.tm_mday != d) return error_set(err, "'%.60s' is no date: the month has fewer days", text);
  gmtime_r(&seconds, out);
  return 0;
}

// ---- rendering ------------------------------------------------------------------------------------------------------

enum { MAX_VARS = 256 };
struct input {
  json_t *tools, *variables, *generation, *bos, *eos;
  jinja_var var[MAX_VARS];
  size_t n, n_text, bytes;             // of the JSON: bytes of its text, memory of its values
  struct tm now;
};

static void add_var(struct input *x, const char *name, const json_t *value) {
  x->var[x->n++] = (jinja_var){name, value, false};
}

static void add_trusted(struct input *x, const char *name, const json_t *value) {
  if (value) x->var[x->n++] = (jinja_var){name, value, true};
}

static void drop(struct input *x, const char *name) {
  size_t kept = 0;
  for (size_t i = 0; i < x->n; i++) if (strcmp(x->var[i].name, name)) x->var[kept++] = x->var[i];
  x->n = kept;
}

static int add_variables(struct input *x, error *err) {
  const char *name;
  json_t *value;
  json_object_foreach(x->variables, name, value) {
    static const char *const own[] = {
      "messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "loop", "caller", "self",
      "varargs",  "kwargs"};
    for (size_t i = 0; i < COUNT(own); i++)
      if (!strcmp(name, own[i])) return error_set(err, "variables: '%s' has a place of its own", name);
    if (jinja_is_global(name)) return error_set(err, "variables: '%.60s' is a function of templates", name);
    drop(x, name);                         // documents: None, unless given
    if (x->n == MAX_VARS) return error_set(err, "variables: more than %d", MAX_VARS - 6);
    add_var(x, name, value);
  }
  return 0;
}

static int read_token(const char *what, text_view text, json_t **out, error *err) {
  if (!text.at) return 0;
  *out = json_stringn(text.at, text.n);
  return *out ? 0 : error_set(err, "%s: the text is not UTF-8", what);
}

static int read_input(const chat_input *in, struct input *x, error *err) {
  size_t left = JSON_ROOM;
  if (check_messages(in->messages, err)) return -1;
  if (in->tools.at && parse_json("tools", in->tools, JSON_ARRAY, &left, &x->tools, err)) return -1;
  if (in->variables.at && parse_json("variables", in->variables, JSON_OBJECT, &left, &x->variables, err)) return -1;
  x->n_text = in->messages.n + in->tools.n + in->variables.n;
  x->bytes = JSON_ROOM + JSON_PER_BYTE * (in->tools.n + in->variables.n) - left;
  if (read_token("bos", in->bos, &x->bos, err) || read_token("eos", in->eos, &x->eos, err)) return -1;
  if (in->now && parse_now(in->now, &x->now, err)) return -1;
  time_t seconds = time(NULL);
  if (!in->now) localtime_r(&seconds, &x->now);
  x->generation = json_boolean(!in->no_generation_prompt);
  add_var(x, "tools", x->tools);
  add_var(x, "documents", NULL);
  add_var(x, "add_generation_prompt", x->generation);
  add_trusted(x, "bos_token", x->bos);
  add_trusted(x, "eos_token", x->eos);
  return x->variables ? add_variables(x, err) : 0;
}

static void free_json(void *input) {
  struct input *x = input;
  json_t **const owned[] = {&x->tools, &x->variables, &x->generation, &x->bos, &x->eos};
  for (size_t i = 0; i < COUNT(owned); i++) { json_decref(*owned[i]); *owned[i] = NULL; }
}

// without: the name of a variable that is left undefined; NULL: none.
static int render_input(const jinja *t, const chat_input *in, const char *without, jinja_text *out, error *err,
                        error *inner) {
  static const char *const roles[] = {"system",   "developer", "user", "assistant", "tool",
                                      "function", "model",     "ipython", NULL};
  struct input *x = xcalloc(1, sizeof *x);
  int status = read_input(in, x, err);
  if (without) drop(x, without);
  jinja_vars vars = {.at = x->var,
                     .n = x->n,
                     .list_name = "messages",
                     .list = in->messages.at,
                     .n_list = in->messages.n,
                     .roles = roles,
                     .n_text = x->n_text,
                     .bytes = x->bytes,
                     .read = free_json,
                     .owner = x};
  if (!status) status = jinja_render_freeing(t, &vars, &x->now, NULL, out, inner);
  free_json(x);
  free(x);
  return status;
}

int chat_render(const jinja *t, const char *source, const chat_input *in, jinja_text *out, error *err) {
  error inner = {0};
  int status = render_input(t, in, NULL, out, err, &inner);
  // templates with a loop over tools and no check: an undefined value works there, None does not
  if (status && !in->tools.at && strstr(inner.text, "None")) status = render_input(t, in, "tools", out, NULL, NULL);
  if (status && inner.text[0]) error_set(err, "%s: %s", source, inner.text);
  return status;
}

// ---- model files ----------------------------------------------------------------------------------------------------

int chat_template_from_gguf(const gguf *g, bool tools, text_view *out, error *err) {
  static const char plain[] = "tokenizer.chat_template", for_tools[] = "tokenizer.chat_template.tool_use";
  const char *key = tools && gguf_find(g, for_tools) ? for_tools : plain;
  gguf_string s;
  if (!gguf_find(g, key)) return gguf_fail(g, key, err, "the file has no chat template");
  if (gguf_str(g, key, &s, err)) return -1;
  *out = (text_view){s.at, s.n};
  return 0;
}

int chat_token_from_gguf(const gguf *g, const char *key, text_view *out, error *err) {
  const gguf_value *tokens;
  int64_t id;
  *out = (text_view){NULL, 0};
  if (!gguf_find(g, key)) return 0;
  if (gguf_i64(g, key, &id, err) || gguf_strs_opt(g, "tokenizer.ggml.tokens", &tokens, err)) return -1;
  if (!tokens || id < 0 || (uint64_t)id >= tokens->a.n) return 0;
  gguf_string s = gguf_elem_str(tokens, (size_t)id);
  *out = (text_view){s.at, s.n};
  return 0;
}
