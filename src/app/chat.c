// weft chat: a conversation in the terminal, or one message from the command line. chat.h lists the files.
#define _GNU_SOURCE
#include "app/chat.h"
#include "app/app.h"
#include "app/denoise_args.h"
#include "app/json.h"
#include "app/template_args.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct command chat_options = {
  "chat", "Talks with a model, by the chat template that its file carries.",
  "FILE [-p TEXT | -f FILE] [options]",
  "With -p or -f, or if stdin is not a terminal, weft answers one message and ends.\n"
  "Otherwise each line is a message. A line that ends with \\ continues in the next one. A message of several\n"
  "lines stands between \"\"\" and \"\"\", or is pasted. Lines that begin with / are commands; /help lists them.\n"
  "Ctrl-C stops the answer, Ctrl-D or /exit ends the conversation.\n"
  "Screen readers: --simple-io prints plain lines, without colours, bars and cursor movement. This is the default\n"
  "if TERM is dumb or not set. With --simple-io each line of a pipe is a message. If stdout is not a terminal, it\n"
  "gets the answers alone.\n"
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

void chat_show_medium(struct chat *c, size_t number) { str_addf(&c->pending, "%s%zu>\n", c->media_mark, number); }

// ---- the conversation -----------------------------------------------------------------------------------------------

// Puts the pictures of the options at the markers in the text, or before the text if it has none.
static void add_with_markers(struct chat *c, const char *text, size_t n) {
  const char *end = text + n, *at;
  size_t given = c->media_told ? 0 : c->o.media.files.n, found = 0;
  for (at = text; (at = memmem(at, (size_t)(end - at), WEFT_MEDIA_MARKER, sizeof WEFT_MEDIA_MARKER - 1)); at++) found++;
  for (size_t i = 0; i < given && found != given; i++) chat_show_medium(c, i);
  for (size_t i = 0; found == given && i < given; i++) {
    at = memmem(text, (size_t)(end - text), WEFT_MEDIA_MARKER, sizeof WEFT_MEDIA_MARKER - 1);
    str_addn(&c->pending, text, (size_t)(at - text));
    str_addf(&c->pending, "%s%zu>", c->media_mark, i);
    text = at + sizeof WEFT_MEDIA_MARKER - 1;
  }
  str_addn(&c->pending, text, (size_t)(end - text));
}

// Answers a user message; text and pictures of /read and /image go before it.
static int answer_user(struct chat *c, const char *text, size_t n) {
  size_t before = c->pending.n;
  add_with_markers(c, text, n);
  int status = chat_say(c, json_pack("{ss so}", "role", "user", "content", json_text(c->pending.at, c->pending.n)));
  // a message that was withdrawn takes its pictures along
  c->pending.n = status ? before : 0;
  c->media_told |= !status;
  return status;
}

static bool has_words(const str *text, const struct span *dropped, size_t n) {
  size_t at = 0;
  for (size_t i = 0; i <= n; i++) {
    size_t end = i < n ? dropped[i].from : text->n;
    if (strspn(text->at + at, " \t") < end - at) return true;
    at = i < n ? end + dropped[i].n : end;
  }
  return false;
}

// Handles a line with files dropped on the terminal: each picture or sound goes where its path was. Without other text
// they go before the next message, as with /image.
static int answer_dropped(struct chat *c, const str *text, const struct span *dropped, size_t n) {
  bool words = has_words(text, dropped, n);
  str said = {0};
  size_t at = 0, before = c->pending.n;
  int status = 0;
  // without an encoder the line is a question about the file itself
  if (words && !c->o.media.mmproj && text->at[0] != '/') return answer_user(c, text->at, text->n);
  for (size_t i = 0; !status && i < n; i++) {
    str name = {0};
    str_addn(&name, text->at + dropped[i].from, dropped[i].n);
    status = chat_attach(c, i, name.at, words ? "are in this message" : "go before the next message");
    if (!status && !words) chat_show_medium(c, c->media.of.n - 1);
    str_addn(&said, text->at + at, dropped[i].from - at);
    str_addf(&said, "%s%zu>", c->media_mark, c->media.of.n - 1);
    at = dropped[i].from + dropped[i].n;
    str_free(&name);
  }
  str_addn(&said, text->at + at, text->n - at);
  if (status) c->pending.n = before;
  else if (words) status = answer_user(c, said.at, said.n);
  str_free(&said);
  return status;
}

// Answers lines until the end of the input. 1: the last answer failed.
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
    size_t n_dropped;
    const struct span *dropped = terminal_dropped(c->term, &n_dropped);
    bool line = text.at[0] == '/' && !strchr(text.at, '\n') && !(n_dropped && !dropped[0].from);
    status = line        ? chat_run_line(c, text.at + 1)
             : n_dropped ? answer_dropped(c, &text, dropped, n_dropped)
                         : answer_user(c, text.at, text.n);
    if (status == 1) { status = EXIT_OK; break; }
    if (interrupted() && !terminal_interactive(c->term)) { status = EXIT_INTERRUPTED; break; }
    status = status || c->broken ? EXIT_FAILED : EXIT_OK;
    if (terminal_closed(c->term) || (c->o.single_turn && !line)) break;
  }
  str_free(&text);
  return terminal_interactive(c->term) && got != INPUT_BROKEN ? EXIT_OK : status;
}

// Answers one message: from -p, from a file, from both, or all of stdin.
static int answer_one(struct chat *c) {
  const char *file = c->o.file ? c->o.file : c->o.prompt ? NULL : "-";
  error err = {0};
  char *text = NULL;
  size_t n = 0;
  if (file && read_file(file, READ_PROMPT, &text, &n, &err)) return failed("%s", err.text);
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

// ---- setup and cleanup ----------------------------------------------------------------------------------------------

// Drops the BOS token that built-in templates begin with if the model does not add one itself.
static int drop_unwanted_bos(struct chat *c, weft_error *err) {
  int32_t *ids = NULL;
  size_t n = 0;
  if (weft_tokenize(c->vocab, "", 0, WEFT_ADD_SPECIAL, &ids, &n, err)) return -1;
  if (!n || ids[0] != weft_bos(c->vocab)) { weft_free(c->bos); c->bos = NULL; }
  weft_free(ids);
  return 0;
}

static int choose_template(struct chat *c, weft_error *err) {
  size_t n;
  struct asked_template asked;
  error e = {0};
  bool said = c->o.template_name || c->o.template_file;
  if (!said && model_has_template(weft_model_file(c->model)))
    return weft_template_of_file(weft_model_file(c->model), c->tools != NULL, &c->tmpl, err);
  // only for built-in templates: a model file's own template has its BOS
  c->bos = weft_piece(c->vocab, weft_bos(c->vocab), true, &n);
  c->eos = weft_piece(c->vocab, weft_eos(c->vocab), true, &n);
  if (!said && !c->o.quiet)
    warning(
      "this file has no chat template: messages are written as ChatML, which the model may not know (--chat-template)");
  if (template_asked(said ? c->o.template_name : "chatml", c->o.template_file, &asked, &e)) {
    memcpy(err->text, e.text, sizeof err->text);
    return -1;
  }
  int status = asked.built_in ? drop_unwanted_bos(c, err) : 0;
  if (!status) status = weft_template_open(asked.text, asked.n, asked.name, &c->tmpl, err);
  free(asked.text);
  return status;
}

static int read_variables_of_chat(struct chat *c, error *err) {
  json_t *all;
  if (template_variables(&c->o, &all, err)) return -1;
  if (!all) return 0;
  c->variables = json_dumps(all, JSON_COMPACT);
  c->n_variables = strlen(c->variables);
  json_decref(all);
  return 0;
}

static int open_chat_model(struct chat *c) {
  weft_error err;
  c->o.model.mtp = !c->o.no_speculation && !c->o.draft.model.model;
  if (model_args_open(&c->o.model, &c->bar, &c->model)) return EXIT_FAILED;
  if (weft_model_has_source(c->model))
    return failed("%s: this model answers one text with another, and has no chat: 'weft run' asks it",
                  c->o.model.model);
  if (!c->o.quiet) model_args_warn(&c->o.model, c->model);
  if (!weft_model_denoises(c->model) && denoise_args_given(&c->o.denoise))
    return failed("options --diffusion-* are of models that denoise, and this model goes on token by token");
  if (weft_model_denoises(c->model) && grammar_args_given(&c->o.grammar))
    return failed("this model denoises texts as a whole: a grammar does not apply");
  c->vocab = weft_model_vocab(c->model);
  c->n_vocab = weft_model_vocab_size(c->model);
  c->stream = weft_stream_new(c->vocab, true);
  c->speculation = weft_speculation_new(c->model, settings_speculating(&c->o));
  if (!c->o.no_speculation && draft_args_open(&c->o.draft, c->model, &c->bar, &c->draft_model, &c->draft))
    return EXIT_FAILED;
  if (c->draft) weft_speculation_draft(c->speculation, c->draft);
  if (choose_template(c, &err)) return failed("%s", err.text);
  if (media_args_open(&c->o.media, c->model, &c->media)) return EXIT_FAILED;
  sampling_resolve(&c->o.sampling, weft_model_file(c->model));
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
  if (read_file(c->o.system_file, READ_PROMPT, &text, &n, &err)) return failed("%s", err.text);
  chat_set_system(c, text, n);
  free(text);
  return 0;
}

// The name that the model's maker gave it, or else its architecture and size.
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
  if (denoise_args_fault(&c->o.denoise)) return usage_error("%s", denoise_args_fault(&c->o.denoise));
  if (c->o.escapes) unescape_texts(&c->o.stops);
  if (grammar_args_check(&c->o.grammar, c->o.sampling.ignore_end, &err) ||
      sampling_check(&c->o.sampling, c->o.escapes, &err))
    return usage_error("%s", err.text);
  if (read_json_option("--tools", c->o.tools, JSON_ARRAY, &c->tools, &c->n_tools, &err) ||
      read_variables_of_chat(c, &err))
    return failed("%s", err.text);
  if (c->o.simple_io) progress_off();
  c->messages = json_array();
  if (!weft_media_mark(c->media_mark)) return failed("the system gives no random numbers");
  int status = set_system(c);
  if (status) return status;
  bool conversation = !c->o.prompt && !c->o.file && (c->o.simple_io || isatty(STDIN_FILENO));
  c->term = terminal_new((enum color)c->o.color, conversation, c->o.simple_io, &err);
  if (!c->term) return failed("%s", err.text);
  status = media_args_find(&c->o.media, &c->o.model);
  if (status) return status;
  keep_to_evaluating(&c->o, NULL);
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
  weft_budget_free(c.budget);
  weft_stream_free(c.stream);
  weft_speculation_free(c.speculation);
  weft_draft_free(c.draft);
  weft_model_close(c.draft_model);
  weft_stop_free(c.stop);
  weft_sampler_free(c.sampler);
  weft_grammar_free(c.grammar);
  weft_template_close(c.tmpl);
  status = viz_if_asked(c.model, status);
  media_free(&c.media);
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
  str_free(&c.arguments);
  str_free(&c.reasoning);
  settings_free(&c.o);
  return status;
}
