// The chat template and its variables from the options: see template_args.h.
#define _GNU_SOURCE
#include "app/template_args.h"
#include "app/app.h"
#include "app/chat.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int template_of_file(const char *path, struct asked_template *out, error *err) {
  out->name = path;
  return read_file(path, READ_SOURCE, &out->text, &out->n, err);
}

int template_asked(const char *named, const char *file, struct asked_template *out, error *err) {
  *out = (struct asked_template){0};
  if (file) return template_of_file(file, out, err);
  if (!named) return 0;
  bool is_text = strstr(named, "{%") || strstr(named, "{{");
  if (!is_text && !access(named, R_OK)) return template_of_file(named, out, err);
  out->name = is_text ? "--chat-template" : named;
  out->text = is_text ? xstrdup(named) : weft_template_named(named, NULL);
  out->built_in = !is_text;
  if (out->text) { out->n = strlen(out->text); return 0; }
  str names = {0};
  for (size_t i = 0; weft_template_name(i); i++) str_addf(&names, "%s%s", i ? " " : "", weft_template_name(i));
  error_set(err, "--chat-template: '%.100s' is no template in Jinja, no file, and none of these names: %.700s", named,
            str_c(&names));
  str_free(&names);
  return -1;
}

int read_json_option(const char *option, const char *arg, json_type type, char **text, size_t *n, error *err) {
  error e = {0};
  if (!arg) return 0;
  char first = arg[strspn(arg, " \t\r\n")];
  if (first != '[' && first != '{') {
    if (read_file(arg, READ_JSON, text, n, &e))
      return error_set(err, "%s: neither JSON nor a file: %s", option, e.text);
  } else {
    *text = xstrdup(arg);
    *n = strlen(arg);
  }
  json_t *o = json_read(*text, *n, JSON_ALLOW_NUL, NULL, &e);
  bool right = o && json_typeof(o) == type;
  json_decref(o);
  if (right) return 0;
  return error_set(err, "%s: %s", option,
                   o ? type == JSON_ARRAY ? "expected a JSON array" : "expected a JSON object" : e.text);
}

int template_variables(const struct settings *s, json_t **out, error *err) {
  char *text = NULL;
  size_t n = 0;
  *out = NULL;
  int thinking = s->thinking == THINKING_AUTO && !s->reasoning_budget ? THINKING_OFF : s->thinking;
  bool effort = s->effort && strcmp(s->effort, "default");         // llama.cpp's word for the template's default
  int status = read_json_option("--chat-template-kwargs", s->variables, JSON_OBJECT, &text, &n, err);
  if (!status && (text || effort || thinking != THINKING_AUTO)) {
    *out = text ? json_read(text, n, JSON_ALLOW_NUL, NULL, NULL) : json_object();
    if (thinking != THINKING_AUTO)
      json_object_set_new(*out, "enable_thinking", json_boolean(thinking == THINKING_ON));
    if (effort) json_object_set_new(*out, "reasoning_effort", json_string(s->effort));
  }
  free(text);
  return status;
}
