// weft chat: a conversation, in the terminal or with one message from the command line.  chat.h says which file does
// what.
#define _GNU_SOURCE
#include "app/chat.h"
#include "app/app.h"
#include "app/json.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct command chat_options = {
  "chat", "Talks with a model, by the chat template that its file carries.",
  "FILE [-p TEXT | -f FILE] [options]",
  "With -p or -f, or where stdin is no terminal, there is one message: it is answered, and that is all.\n"
  "Otherwise lines are messages. One that ends with \\ goes on in the next one; between \"\"\" and \"\"\" a message\n"
  "has many lines, and so has one that is pasted. /help lists what lines that begin with / do.\n"
  "Ctrl-C stops the answer, Ctrl-D or /exit ends the conversation.\n"
  "With --simple-io each line of a pipe is a message. Where stdout is no terminal, it gets the answers alone.\n"
  "Names of --chat-template: chatml, llama3, gemma, mistral-v7 and the others that llama.cpp knows; none: the\n"
  "messages as they are.\n", COMMAND_BIT(chat), COMMAND_BIT(run)};

// ---- messages -------------------------------------------------------------------------------------------------------

bool chat_has_role(const json_t *message, const char *role) {
  const char *r = json_string_value(json_object_get(message, "role"));
  return r && !strcmp(r, role);
}

json_t *chat_last(const struct chat *c) { return json_array_get(c->messages, json_array_size(c->messages) - 1); }
void chat_drop_last(struct chat *c) { json_array_remove(c->messages, json_array_size(c->messages) - 1); }

void chat_set_system(struct chat *c, const char *text, size_t n) {
  if (chat_has_role(json_array_get(c->messages, 0), "system")) json_array_remove(c->messages, 0);
  if (n) json_array_insert_new(c->messages, 0, json_pack("{ss so}", "role", "system", "content", json_text(text, n)));
}

// ---- the conversation -----------------------------------------------------------------------------------------------

// Answers a text of the user, after what /read left for it.
static int answer_user(struct chat *c, const char *text, size_t n) {
  str_addn(&c->pending, text, n);
  int status = chat_say(c, json_pack("{ss so}", "role", "user", "content", json_text(c->pending.at, c->pending.n)));
  c->pending.n = 0;
  return status;
}

// Until the end of the input.  1: what came last failed.
static int converse(struct chat *c) {
  str text = {0};
  enum input got = INPUT_TEXT;
  int status = 0;
  for (;;) {
    char prompt[64];
    snprintf(prompt, sizeof prompt, "%zu/%d > ", c->used, weft_model_context(c->model));
    interrupt_catch();
    got = terminal_read(c->term, prompt, &text);
    if (got == INPUT_END) break;
    if (got == INPUT_BROKEN) { status = EXIT_FAILED; break; }
    if (got == INPUT_INTERRUPTED) {
      if (!terminal_interactive(c->term)) { status = EXIT_INTERRUPTED; break; }
      terminal_note(c->term, "(Ctrl-D or /exit ends the conversation)");
      continue;
    }
    if (!text.n) continue;
    c->broken = false;
    bool line = text.at[0] == '/' && !strchr(text.at, '\n');
    status = line ? chat_run_line(c, text.at + 1) : answer_user(c, text.at, text.n);
    if (status == 1) { status = EXIT_OK; break; }
    if (interrupted() && !terminal_interactive(c->term)) { status = EXIT_INTERRUPTED; break; }
    status = status || c->broken ? EXIT_FAILED : EXIT_OK;
    if (terminal_closed(c->term) || (c->o.single_turn && !line)) break;
  }
  str_free(&text);
  return terminal_interactive(c->term) && got != INPUT_BROKEN ? EXIT_OK : status;
}

// One message: of -p, of a file, or both, or all of stdin.
static int answer_one(struct chat *c) {
  const char *file = c->o.file ? c->o.file : c->o.prompt ? NULL : "-";
  error err = {0};
  char *text = NULL;
  size_t n = 0;
  if (file && read_file(file, &text, &n, &err)) return failed("%s", err.text);
  if (n && text[n - 1] == '\n') n--;
  str message = {0};
  str_add(&message, c->o.prompt ? c->o.prompt : "");
  if (c->o.prompt && n) str_add(&message, "\n\n");
  str_addn(&message, text, n);
  free(text);
  if (c->o.escapes) message.n = unescape(message.at, message.n);
  int status = message.n ? answer_user(c, message.at, message.n) : usage_error("no message: the text is empty");
  str_free(&message);
  if (status == EXIT_USAGE) return status;
  return interrupted() ? EXIT_INTERRUPTED : status || c->broken ? EXIT_FAILED : EXIT_OK;
}

// ---- life -----------------------------------------------------------------------------------------------------------

// A template of our own: the model's BOS stands before it, where the model wants one.
static int open_named(struct chat *c, const char *name, weft_error *err) {
  int32_t *ids = NULL;
  size_t n = 0;
  if (weft_tokenize(c->vocab, "", 0, WEFT_ADD_SPECIAL, &ids, &n, err)) return -1;
  if (!n || ids[0] != weft_bos(c->vocab)) { weft_free(c->bos); c->bos = NULL; }
  weft_free(ids);
  char *text = chat_template(name);
  if (!text) {
    str names = {0};
    chat_template_names(&names);
    snprintf(err->text, sizeof err->text, "--chat-template: '%.100s' is no file, and no name that is known: %.700s",
             name, str_c(&names));
    str_free(&names);
    return -1;
  }
  int status = weft_template_open(text, strlen(text), name, &c->tmpl, err);
  free(text);
  return status;
}

static int open_file(struct chat *c, const char *path, weft_error *err) {
  error e = {0};
  char *text;
  size_t n;
  if (read_file(path, &text, &n, &e)) { memcpy(err->text, e.text, sizeof err->text); return -1; }
  int status = weft_template_open(text, n, path, &c->tmpl, err);
  free(text);
  return status;
}

static int choose_template(struct chat *c, weft_error *err) {
  size_t n;
  bool own = !c->o.template_name && !c->o.template_file && model_has_template(weft_model_file(c->model));
  if (own) return weft_template_of_file(weft_model_file(c->model), c->tools != NULL, &c->tmpl, err);
  c->bos = weft_piece(c->vocab, weft_bos(c->vocab), true, &n);    // a model file's own template knows these
  c->eos = weft_piece(c->vocab, weft_eos(c->vocab), true, &n);
  if (c->o.template_file) return open_file(c, c->o.template_file, err);
  const char *name = c->o.template_name ? c->o.template_name : "chatml";
  if (!access(name, R_OK)) return open_file(c, name, err);
  if (!c->o.template_name && !c->o.quiet)
    warning(
      "this file has no chat template: messages are written as ChatML, which the model may not know (--chat-template)");
  return open_named(c, name, err);
}

// JSON from the command line, or a file with it.
static int read_json_option(const char *option, const char *arg, json_type type, char **text, size_t *n, error *err) {
  error e = {0};
  if (!arg) return 0;
  char first = arg[strspn(arg, " \t\r\n")];
  if (first != '[' && first != '{') { if (read_file(arg, text, n, err)) return -1; }
  else { *text = xstrdup(arg); *n = strlen(arg); }
  json_t *o = json_read(*text, *n, JSON_ALLOW_NUL, NULL, &e);
  bool right = o && json_typeof(o) == type;
  json_decref(o);
  if (right) return 0;
  return error_set(err, "%s: %s", option,
                   o ? type == JSON_ARRAY ? "expected a JSON array" : "expected a JSON object" : e.text);
}

// Adds what -rea and --reasoning-effort say to the variables of the template.
static void add_reasoning(struct chat *c) {
  if (c->o.thinking == THINKING_AUTO && !c->o.effort) return;
  json_t *all = c->variables ? json_read(c->variables, c->n_variables, JSON_ALLOW_NUL, NULL, NULL) : json_object();
  if (c->o.thinking != THINKING_AUTO)
    json_object_set_new(all, "enable_thinking", json_boolean(c->o.thinking == THINKING_ON));
  if (c->o.effort) json_object_set_new(all, "reasoning_effort", json_string(c->o.effort));
  free(c->variables);
  c->variables = json_dumps(all, JSON_COMPACT);
  c->n_variables = strlen(c->variables);
  json_decref(all);
}

static int open_chat_model(struct chat *c) {
  weft_error err;
  c->o.model.mtp = !c->o.no_guess && !c->o.draft.model.model;
  if (model_args_open(&c->o.model, &c->bar, &c->model)) return EXIT_FAILED;
  if (!c->o.quiet) model_args_warn(&c->o.model, c->model);
  c->vocab = weft_model_vocab(c->model);
  c->n_vocab = weft_model_vocab_size(c->model);
  c->stream = weft_stream_new(c->vocab, true);
  c->ahead = weft_ahead_new(c->model, c->o.no_guess ? WEFT_GUESS_NEVER : WEFT_GUESS_WHERE_IT_PAYS);
  if (!c->o.no_guess && draft_args_open(&c->o.draft, c->model, &c->bar, &c->draft_model, &c->draft)) return EXIT_FAILED;
  if (c->draft) weft_ahead_draft(c->ahead, c->draft);
  if (choose_template(c, &err)) return failed("%s", err.text);
  if (sampling_new(&c->o.sampling, c->vocab, c->n_vocab, &c->sampler, &err)) return failed("%s", err.text);
  if (grammar_args_open(&c->o.grammar, c->vocab, c->n_vocab, &c->grammar, &err)) return failed("%s", err.text);
  if (c->o.stops.n && weft_stop_new(texts_of(&c->o.stops), c->o.stops.n, &c->stop, &err)) return failed("%s", err.text);
  return 0;
}

static int set_system(struct chat *c) {
  error err = {0};
  char *text;
  size_t n;
  if (c->o.system) chat_set_system(c, c->o.system, strlen(c->o.system));
  if (!c->o.system_file) return 0;
  if (read_file(c->o.system_file, &text, &n, &err)) return failed("%s", err.text);
  chat_set_system(c, text, n);
  free(text);
  return 0;
}

// The name that a model's maker gave it, or what it is.
static void greet(const struct chat *c) {
  const weft_file *f = weft_model_file(c->model);
  weft_value name;
  size_t i;
  char *what = weft_file_summary(f);
  bool named =
    !weft_file_find(f, "general.name", &i) && !weft_file_value(f, i, &name) && name.type == WEFT_STRING && name.n;
  terminal_note(c->term, "%.*s%s%s%s, a context of %d tokens", named ? (int)(name.n < 80 ? name.n : 80) : 0,
                named ? name.text : "", named ? " (" : "", what, named ? ")" : "", weft_model_context(c->model));
  terminal_note(c->term, "/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends the conversation");
  weft_free(what);
}

static int chat(struct chat *c) {
  error err = {0};
  if (!c->o.model.model) return usage_error("no model: 'weft chat FILE', or -m FILE");
  if (c->o.text && c->o.prompt)
    return usage_error("the message is given more than once: with -p, and as '%.60s'", c->o.text);
  if (c->o.text) c->o.prompt = c->o.text;
  if (c->o.escapes) unescape_texts(&c->o.stops);
  if (grammar_args_check(&c->o.grammar, c->o.sampling.ignore_end, &err) ||
      sampling_check(&c->o.sampling, c->o.escapes, &err))
    return usage_error("%s", err.text);
  if (read_json_option("--tools", c->o.tools, JSON_ARRAY, &c->tools, &c->n_tools, &err) ||
      read_json_option("--chat-template-kwargs", c->o.variables, JSON_OBJECT, &c->variables, &c->n_variables, &err))
    return failed("%s", err.text);
  add_reasoning(c);
  c->messages = json_array();
  int status = set_system(c);
  if (status) return status;
  bool conversation = !c->o.prompt && !c->o.file && (c->o.simple_io || isatty(STDIN_FILENO));
  c->term = terminal_new((enum color)c->o.color, conversation, !c->o.simple_io, &err);
  if (!c->term) return failed("%s", err.text);
  keep_to_files(&c->o, NULL);
  status = open_chat_model(c);
  if (status) return status;
  if (!conversation) return answer_one(c);
  if (terminal_interactive(c->term) && !c->o.quiet) greet(c);
  return converse(c);
}

int chat_command(int argc, char **argv) {
  struct chat c = {0};
  int status;
  bool parsed = settings_parse(&c.o, &chat_options, argc, argv, &status);
  if (parsed && c.o.completion) {
    settings_free(&c.o);
    if (settings_are_for(&chat_options, &run_options, argc, argv))
      return usage_error("-no-cnv: among these options are some of a conversation");
    return run_command(argc, argv);
  }
  if (parsed) status = chat(&c);
  terminal_free(c.term);
  weft_answer_free(c.answer);
  weft_stream_free(c.stream);
  weft_ahead_free(c.ahead);
  weft_draft_free(c.draft);
  weft_model_close(c.draft_model);
  weft_stop_free(c.stop);
  weft_sampler_free(c.sampler);
  weft_grammar_free(c.grammar);
  weft_template_close(c.tmpl);
  viz_if_asked(c.model);
  weft_model_close(c.model);
  weft_free(c.bos);
  weft_free(c.eos);
  free(c.tools);
  free(c.variables);
  json_decref(c.messages);
  json_decref(c.calls);
  free(c.past.at);
  str_free(&c.pending);
  str_free(&c.content);
  str_free(&c.reasoning);
  settings_free(&c.o);
  return status;
}
