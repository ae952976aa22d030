// Lines that begin with / in weft chat: a table of commands, each a function that gets the rest of the line.
#define _GNU_SOURCE
#include "app/chat.h"
#include "app/app.h"
#include "app/json.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

// ---- commands -------------------------------------------------------------------------------------------------------

typedef int (*doing)(struct chat *c, const char *rest);   // 1: the conversation ends; -1: it failed

static int do_system(struct chat *c, const char *rest) {
  chat_set_system(c, rest, strlen(rest));
  terminal_note(c->term, *rest ? "(the system prompt is set)" : "(there is no system prompt any more)");
  return 0;
}

// /set system TEXT, as in ollama.
static int do_set(struct chat *c, const char *rest) {
  if (!strncmp(rest, "system ", 7)) return do_system(c, rest + 7);
  terminal_note(c->term, "/set knows system alone; other settings are options of the command (weft chat --help)");
  return -1;
}

static int do_clear(struct chat *c, const char *rest) {
  (void)rest;
  size_t from = chat_has_role(json_array_get(c->messages, 0), "system");
  while (json_array_size(c->messages) > from) chat_drop_last(c);
  c->used = 0;
  c->pending.n = 0;
  terminal_note(c->term, "(the conversation begins anew)");
  return 0;
}

static int do_regen(struct chat *c, const char *rest) {
  (void)rest;
  if (!chat_has_role(chat_last(c), "assistant")) {
    terminal_note(c->term, "there is no answer to make again");
    return -1;
  }
  json_t *before = json_incref(chat_last(c));
  chat_drop_last(c);
  int status = chat_respond(c);
  if (status) json_array_append(c->messages, before);
  json_decref(before);
  return status;
}

// Replaces the last user message and answers again: with TEXT, or with the old message edited on the line.
static int do_edit(struct chat *c, const char *rest) {
  size_t n = json_array_size(c->messages);
  while (n && !chat_has_role(json_array_get(c->messages, n - 1), "user")) n--;
  const char *old = n ? json_string_value(json_object_get(json_array_get(c->messages, n - 1), "content")) : NULL;
  if (!old) { terminal_note(c->term, "there is no message to edit"); return -1; }
  str line = {0};
  enum input got = INPUT_TEXT;
  if (*rest) str_add(&line, rest);
  else if (terminal_edits(c->term)) got = terminal_edit(c->term, "edit > ", old, &line);
  else { terminal_note(c->term, "/edit needs the new text"); return -1; }
  int status = -1;
  if (got == INPUT_TEXT && line.n) {
    json_t *before = json_copy(c->messages);
    while (json_array_size(c->messages) >= n) chat_drop_last(c);
    status = chat_say(c, json_pack("{ss so}", "role", "user", "content", json_text(line.at, line.n)));
    if (status) { json_decref(c->messages); c->messages = json_incref(before); }
    json_decref(before);
  }
  str_free(&line);
  return status;
}

// Reads a file whose text goes before the next message.
static int do_read(struct chat *c, const char *rest) {
  error err = {0};
  char *text;
  size_t n, n_valid;
  if (!*rest || !strcmp(rest, "-")) { terminal_note(c->term, "/read needs the name of a file"); return -1; }
  if (terminal_read_file(c->term, 0, &text, &n, &err)) { terminal_note(c->term, "%s", err.text); return -1; }
  char *valid = weft_utf8(text, n, &n_valid);
  str_addn(&c->pending, valid, n_valid);
  if (n_valid && valid[n_valid - 1] != '\n') str_addc(&c->pending, '\n');
  weft_free(valid);
  free(text);
  terminal_note(c->term, "(%zu bytes of %s go before the next message)", n, rest);
  return 0;
}

int chat_attach(struct chat *c, size_t file, const char *name, const char *where) {
  error err = {0};
  weft_error why;
  char *data;
  size_t n;
  if (terminal_read_file(c->term, file, &data, &n, &err)) { terminal_note(c->term, "%s", err.text); return -1; }
  int status = media_add(&c->o.media, c->model, name, data, n, &c->media, &why);
  free(data);
  if (status) { terminal_note(c->term, "%s", why.text); return -1; }
  terminal_note(c->term, "(%zu tokens of %s %s)", weft_medium_n_rows(c->media.of.at[c->media.of.n - 1]), name, where);
  return 0;
}

// Reads a picture or sound that goes before the next message.
static int do_image(struct chat *c, const char *rest) {
  if (!*rest || !strcmp(rest, "-")) { terminal_note(c->term, "/image needs the name of a file"); return -1; }
  if (chat_attach(c, 0, rest, "go before the next message")) return -1;
  chat_show_medium(c, c->media.of.n - 1);
  return 0;
}

static int do_save(struct chat *c, const char *rest) {
  error err = {0};
  if (!*rest) { terminal_note(c->term, "/save needs the name of a file"); return -1; }
  char *json = json_dumps(c->messages, JSON_INDENT(2));
  str text = {0};
  str_addf(&text, "%s\n", json);
  int status = terminal_write_file(c->term, text.at, text.n, &err);
  str_free(&text);
  free(json);
  if (status) { terminal_note(c->term, "%s", err.text); return -1; }
  terminal_note(c->term, "(%zu messages are in %s)", json_array_size(c->messages), rest);
  return 0;
}

// Reads messages from a file: an array of objects, each with a role.
static json_t *read_messages(terminal *term, const char *path, error *err) {
  char *text;
  size_t n, i;
  error e = {0};
  json_t *m;
  if (terminal_read_file(term, 0, &text, &n, err)) return NULL;
  json_t *all = json_read(text, n, JSON_ALLOW_NUL, NULL, &e);
  free(text);
  if (!all) { error_set(err, "%s: %s", path, e.text); return NULL; }
  if (!json_is_array(all)) error_set(err, "%s: expected a JSON array of messages", path);
  json_array_foreach(all, i, m) if (!json_is_string(json_object_get(m, "role")))
    error_set(err, "%s: message %zu has no role", path, i);
  if (!err->text[0]) return all;
  json_decref(all);
  return NULL;
}

static int do_load(struct chat *c, const char *rest) {
  error err = {0};
  json_t *all = *rest ? read_messages(c->term, rest, &err) : NULL;
  if (!all) { terminal_note(c->term, "%s", *rest ? err.text : "/load needs the name of a file"); return -1; }
  json_decref(c->messages);
  c->messages = all;
  c->used = 0;
  terminal_note(c->term, "(%zu messages)", json_array_size(all));
  return 0;
}

// Adds the result of the first tool call without one.
static int do_tool(struct chat *c, const char *rest) {
  size_t n = json_array_size(c->messages), results = 0;
  while (n && chat_has_role(json_array_get(c->messages, n - 1), "tool")) { n--; results++; }
  const json_t *calls = n ? json_object_get(json_array_get(c->messages, n - 1), "tool_calls") : NULL,
               *call = json_array_get(calls, results);
  if (!call) { terminal_note(c->term, "no call waits for a result"); return -1; }
  json_t *message =
    json_pack("{ss so sO* sO*}", "role", "tool", "content", json_text(rest, strlen(rest)), "tool_call_id",
              json_object_get(call, "id"), "name", json_object_get(json_object_get(call, "function"), "name"));
  if (results + 1 == json_array_size(calls)) return chat_say(c, message);
  json_array_append_new(c->messages, message);
  terminal_note(c->term, "(%zu more to come)", json_array_size(calls) - results - 1);
  return 0;
}

static int do_stats(struct chat *c, const char *rest) {
  weft_stats s;
  if (!strcmp(rest, "off") || !strcmp(rest, "on")) {
    c->o.rates = strcmp(rest, "off") != 0;
    terminal_note(c->term, c->o.rates ? "(the speed is shown after each answer)" : "(no speed after answers)");
    return 0;
  }
  weft_model_stats(c->model, &s);
  terminal_note(c->term, "context  %8zu of %d tokens, %zu messages", c->used, weft_model_context(c->model),
                json_array_size(c->messages));
  terminal_note(c->term, "prompt   %8zu tokens evaluated, %zu kept, %.1f tok/s", c->n_prompt, c->n_kept,
                c->prompt_s > 0 ? (double)c->n_prompt / c->prompt_s : 0);
  terminal_note(c->term, "answer   %8zu tokens, %.1f tok/s", c->n_answer,
                c->answer_s > 0 ? (double)c->n_answer / c->answer_s : 0);
  terminal_note(c->term, "all      %8zu tokens of prompts, %zu of answers", c->total_prompt, c->total_answer);
  terminal_note(c->term, "memory   %8.1f MiB peak, %.1f MiB reserved for the KV cache",
                (double)s.peak_rss_bytes / 0x1p20, (double)s.kv_bytes / 0x1p20);
  if (c->o.sampling.temp > 0) terminal_note(c->term, "seed     %8lld", (long long)c->o.sampling.seed);
  return 0;
}

static int do_exit(struct chat *c, const char *rest) { (void)c; (void)rest; return 1; }
static int do_help(struct chat *c, const char *rest);

static const struct { const char *name, *value, *what; doing run; } commands[] = {
  {"help", "", "this list", do_help},
  {"system", "TEXT", "another system prompt; without TEXT none", do_system},
  {"read", "FILE", "the text of a file, before the next message", do_read},
  {"image", "FILE", "a picture or a sound, before the next message", do_image},
  {"regen", "", "another answer to the last message", do_regen},
  {"edit", "TEXT", "the last message again; without TEXT the old one, to be changed", do_edit},
  {"clear", "", "forget the conversation, but not the system prompt", do_clear},
  {"save", "FILE", "write the messages to a file, as JSON", do_save},
  {"load", "FILE", "go on with the messages of a file", do_load},
  {"tool", "TEXT", "the result of the call that the model made", do_tool},
  {"stats", "on|off", "the context, and how fast the last answer was; after each answer", do_stats},
  {"exit", "", "end the conversation, as Ctrl-D, /bye and /quit do", do_exit},
  {"audio", NULL, NULL, do_image},
  {"set", NULL, NULL, do_set},
  {"bye", NULL, NULL, do_exit},
  {"quit", NULL, NULL, do_exit},
  {"?", NULL, NULL, do_help},
};

static int do_help(struct chat *c, const char *rest) {
  (void)rest;
  for (size_t i = 0; i < COUNT(commands) && commands[i].what; i++) {
    char name[32];
    snprintf(name, sizeof name, "/%s %s", commands[i].name, commands[i].value);
    terminal_row(c->term, 15, name, commands[i].what);
  }
  terminal_note(c->term, "A path of a picture or a sound that is dropped on the terminal attaches it.");
  terminal_note(c->term, "A line that ends with \\ goes on in the next one; \"\"\" begins and ends a message of "
                         "several lines; a paste stays together. Up brings back what was said, Tab completes the "
                         "name of a command.");
  return 0;
}

const char *chat_word(size_t i) { return i < COUNT(commands) ? commands[i].name : NULL; }

int chat_run_line(struct chat *c, const char *line) {
  size_t n = strcspn(line, " ");
  const char *rest = line + n + strspn(line + n, " "), *names[COUNT(commands)];
  char word[32];
  snprintf(word, sizeof word, "%.*s", (int)n, line);
  for (size_t i = 0; i < COUNT(commands); i++) {
    names[i] = commands[i].name;
    if (!strcmp(word, names[i])) return commands[i].run(c, rest);
  }
  const char *near = args_nearest(word, names, COUNT(names));
  terminal_note(c->term, near ? "there is no /%s; did you mean /%s?" : "there is no /%s; /help lists the commands",
                word, near);
  return -1;
}

