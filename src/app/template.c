// weft template: a conversation as the text that a model expects, byte for byte: what its chat template makes of it.
#define _GNU_SOURCE
#include "app/app.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct template_options { const char *file, *model, *messages, *tools, *variables, *bos, *eos, *now; bool no_generation_prompt; };

static const struct command command = {
  "template", "Prints what a chat template makes of a conversation, and nothing else.", "FILE --messages JSON [options]",
  "JSON is the text itself, or the name of a file that holds it (- is stdin).\n"
  "\n  weft template model.gguf --messages '[{\"role\": \"user\", \"content\": \"Hello\"}]'\n"};

// A pipe is no model, and what is read from it is gone.
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

// JSON that starts as an array or an object is taken as it is, anything else names a file.
static int read_json(const char *arg, char **text, size_t *n, error *err) {
  char first = arg[strspn(arg, " \t\r\n")];
  if (first != '[' && first != '{') return read_file(arg, text, n, err);
  *text = xstrdup(arg);
  *n = strlen(arg);
  return 0;
}

static int open_template(const char *path, bool tools, weft_template **t, error *why) {
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
    if (read_file(path, &text, &n, why)) return -1;
    status = weft_template_open(text, n, strcmp(path, "-") ? path : "stdin", t, &err);
    free(text);
  }
  return status ? error_set(why, "%s", err.text) : 0;
}

static int render(const struct template_options *o, const weft_template *t, struct out *to) {
  weft_chat chat = {.no_generation_prompt = o->no_generation_prompt, .bos = o->bos, .eos = o->eos, .now = o->now};
  const char *const from[] = {o->messages, o->tools, o->variables};
  char *json[3] = {NULL}, *text = NULL;
  size_t n[3] = {0}, n_text = 0;
  error why = {0};
  weft_error err = {{0}};
  int status = 0;
  for (int i = 0; i < 3 && !status; i++) if (from[i]) status = read_json(from[i], &json[i], &n[i], &why);
  chat.messages = json[0], chat.n_messages = n[0];
  chat.tools = json[1], chat.n_tools = n[1];
  chat.variables = json[2], chat.n_variables = n[2];
  if (!status && (status = weft_template_render(t, &chat, &text, &n_text, &err))) error_set(&why, "%s", err.text);
  if (!status) out_add(to, text, n_text);
  for (int i = 0; i < 3; i++) free(json[i]);
  weft_free(text);
  return status ? failed("%s", why.text) : 0;
}

static int work(const struct template_options *o) {
  weft_template *t = NULL;
  error why = {0};
  struct out to = {0};
  if (open_template(o->file, o->tools, &t, &why)) return failed("%s", why.text);
  int status = render(o, t, &to);
  weft_template_close(t);
  return out_end(&to, status);
}

int template_command(int argc, char **argv) {
  struct template_options o = {0};
  error err = {0};
  const struct option table[] = {
    O_GROUP("Options"),
    O_OPERAND("FILE", "a model, as a GGUF file, or a template in Jinja", &o.file),
    O_TEXT("-m, --model", "FILE", "the same", &o.model),
    O_TEXT("--messages", "JSON", "the conversation: [{\"role\": \"user\", \"content\": \"Hello\"}, ...]", &o.messages),
    O_TEXT("--tools", "JSON", "descriptions of functions that the model may call, as an array", &o.tools),
    O_TEXT("--chat-template-kwargs", "JSON", "further variables, such as {\"enable_thinking\": false}", &o.variables),
    O_FLAG("--no-generation-prompt", "end with the last message, not with the beginning of an answer", &o.no_generation_prompt),
    O_TEXT("--bos", "TEXT", "text of the BOS token (default: the model's)", &o.bos),
    O_TEXT("--eos", "TEXT", "text of the EOS token (default: the model's)", &o.eos),
    O_TEXT("--now", "DATE", "the time that templates see: 2026-01-31 or \"2026-01-31 23:59:59\"\n(default: the clock's)", &o.now),
  };
  switch (args_parse(&command, table, COUNT(table), argc, argv, &err)) {
  case ARGS_GO: break;
  case ARGS_HELP: return EXIT_OK;
  default: return usage_error("%s", err.text);
  }
  if (o.file && o.model) return usage_error("-m %s: the template is to come from one file, and '%s' was given", o.model, o.file);
  if (!o.file) o.file = o.model;
  if (!o.file) return usage_error("no template; 'weft template FILE --messages JSON'");
  if (!o.messages) return usage_error("no conversation; give it with --messages");
  return work(&o);
}
