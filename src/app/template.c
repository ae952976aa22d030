// weft template: prints a conversation as the prompt that the chat template makes of it, byte for byte.
#define _GNU_SOURCE
#include "app/app.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct command command = {
  "template",
  "Prints what a chat template makes of a conversation, and nothing else.",
  "FILE --messages JSON [options]",
  "JSON is the text itself, or the name of a file that holds it (- is stdin).\n"
  "\n  weft template model.gguf --messages '[{\"role\": \"user\", \"content\": \"Hello\"}]'\n",
  COMMAND_BIT(template),
  0};

// A pipe cannot be a model, and reading it would consume its text.
static bool is_gguf(const char *path) {
  char magic[4] = {0};
  struct stat st;
  if (!strcmp(path, "-") || stat(path, &st) || !S_ISREG(st.st_mode)) return false;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  bool yes = read(fd, magic, sizeof magic) == (ssize_t)sizeof magic && !memcmp(magic, "GGUF", 4);
  close(fd);
  return yes;
}

// Text that begins an array or an object is JSON itself; any other names a file.
static int read_json_or_file(const char *arg, char **text, size_t *n, error *err) {
  char first = arg[strspn(arg, " \t\r\n")];
  if (first != '[' && first != '{') return read_file(arg, READ_JSON, text, n, err);
  *text = xstrdup(arg);
  *n = strlen(arg);
  return 0;
}

static int open_template_of(const char *path, bool tools, weft_template **t, error *why) {
  weft_error err;
  weft_file *f;
  char *text;
  size_t n;
  int status;
  if (is_gguf(path)) {
    if (weft_file_open(path, &f, &err)) return error_set(why, "%s", err.text);
    status = weft_template_of_file(f, tools, t, &err);
    weft_file_close(f);
  } else {
    if (read_file(path, READ_SOURCE, &text, &n, why)) return -1;
    status = weft_template_open(text, n, strcmp(path, "-") ? path : "stdin", t, &err);
    free(text);
  }
  return status ? error_set(why, "%s", err.text) : 0;
}

static int render(const struct settings *o, const weft_template *t, struct out *to) {
  weft_chat chat = {.no_generation_prompt = o->no_generation_prompt, .bos = o->bos, .eos = o->eos, .now = o->now};
  const char *const from[] = {o->messages, o->tools, o->variables};
  char *json[3] = {NULL}, *text = NULL;
  size_t n[3] = {0}, n_text = 0;
  error why = {0};
  weft_error err = {{0}};
  int status = 0;
  for (int i = 0; i < 3 && !status; i++) if (from[i]) status = read_json_or_file(from[i], &json[i], &n[i], &why);
  chat.messages = json[0], chat.n_messages = n[0];
  chat.tools = json[1], chat.n_tools = n[1];
  chat.variables = json[2], chat.n_variables = n[2];
  if (!status && (status = weft_template_render(t, &chat, &text, &n_text, &err))) error_set(&why, "%s", err.text);
  if (!status) out_add(to, text, n_text);
  for (int i = 0; i < 3; i++) free(json[i]);
  weft_free(text);
  return status ? failed("%s", why.text) : 0;
}

static int apply_template(const struct settings *o) {
  weft_template *t = NULL;
  error why = {0};
  struct out to = {0};
  if (open_template_of(o->template_file, o->tools, &t, &why)) return failed("%s", why.text);
  int status = render(o, t, &to);
  weft_template_close(t);
  return out_end(&to, status);
}

static int apply(struct settings *o) {
  if (o->template_file && o->model.model)
    return usage_error("-m %s: the template is to come from one file, and '%s' was given", o->model.model,
                       o->template_file);
  if (!o->template_file) o->template_file = o->model.model;
  if (!o->template_file) return usage_error("no template; 'weft template FILE --messages JSON'");
  if (!o->messages) return usage_error("no conversation; give it with --messages");
  keep_to_files(o, NULL);
  return apply_template(o);
}

int template_command(int argc, char **argv) { return settings_run(&command, argc, argv, apply); }
