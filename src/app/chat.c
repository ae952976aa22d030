// weft chat: a conversation in the terminal.  Every answer is made the same way: the messages become a prompt by the model's own
// template, what of it the KV cache already holds is kept (ids are compared), the rest is evaluated, and tokens are drawn until
// the model ends its turn.  The text is taken apart into reasoning, content and calls of tools while it comes.
// Invariant: `past` is what the KV cache holds; `messages` is what the next prompt says, and nothing else is.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/grammar_args.h"
#include "app/sampling_args.h"
#include "app/terminal.h"
#include "base/progress.h"
#include <errno.h>
#include "app/json.h"
#include "app/model_args.h"
#include <stdlib.h>
#include <string.h>

struct chat_options {
  struct model_args model;
  const char *system, *template_file, *variables, *tools;
  struct texts stops;
  int64_t count;
  struct sampling_args sampling;
  struct grammar_args grammar;
  int color;
};

static const struct command command = {
  "chat", "Talks with a model in the terminal, by the chat template that its file carries.",
  "-m FILE [options]",
  "A line that ends with \\ goes on in the next one; between two lines of \"\"\" a message has many lines.\n"
  "Ctrl-C stops the answer, Ctrl-D or /exit ends the conversation, /help lists the commands.\n"
  "Where stdin is no terminal, each line is a message; where stdout is none, it gets the answers alone.\n"};

struct chat {
  struct chat_options o;
  terminal *term;
  weft_model *model;
  const weft_vocab *vocab;
  weft_template *tmpl;
  weft_sampler *sampler;
  weft_grammar *grammar;     // of the content of each answer; or NULL
  weft_stream *stream;
  weft_stop *stop;           // NULL: there are no stop strings
  weft_answer *answer;       // of this turn
  int32_t n_vocab;
  char *bos, *eos, *tools, *variables;
  size_t n_tools, n_variables;
  json_t *messages;
  struct ids past;           // tokens in the KV cache
  const float *logits;       // of the token after them
  progress bar;
  // the answer that is being made
  str content, reasoning;
  json_t *calls;
  bool broken;               // the last one, by an error
  // figures: of the last answer, and of all
  size_t n_prompt, n_kept, n_answer, total_prompt, total_answer;
  double prompt_s, answer_s;
};

// ---- options ----------------------------------------------------------------------------------------------------------

static enum args_result parse(struct chat_options *o, int argc, char **argv, error *err) {
  *o = (struct chat_options){.count = -1};
  const struct option first[] = {
    O_GROUP("Model and conversation"),
    O_TEXT("-m, --model", "FILE", "model, a GGUF file (of a split one, the first part)", &o->model.model),
    O_TEXT("-sys, --system-prompt", "TEXT", "what the model is told before the conversation", &o->system),
    O_TEXT("--chat-template-file", "FILE", "another template, in Jinja", &o->template_file),
    O_TEXT("--chat-template-kwargs", "JSON", "further variables of it, such as {\"enable_thinking\": false}", &o->variables),
    O_TEXT("--tools", "JSON", "functions that the model may call, an array or a file with one", &o->tools),
    O_GROUP("Length"),
    O_INT("-n, --predict, --n-predict", "N", "tokens of an answer at most; -1: until its end (default)", &o->count, -1, INT32_MAX),
    O_CONTEXT(&o->model),
    O_TEXTS("-r, --reverse-prompt", "TEXT", "an answer stops before TEXT, more than once", &o->stops),
  }, last[] = {
    O_GROUP("Terminal and machine"),
    O_CHOICE("-co, --color", "auto|on|off", "colours (default auto: in a terminal)", &o->color),
    O_MACHINE(&o->model),
  };
  struct option sampling[SAMPLING_OPTIONS], grammar[GRAMMAR_OPTIONS];
  sampling_options(&o->sampling, sampling);
  grammar_args_options(&o->grammar, grammar);
  return args_parse_parts(&command, (struct options[]){OPTIONS(first), OPTIONS(sampling), OPTIONS(grammar), OPTIONS(last)}, 4, argc, argv, err);
}

// ---- messages ---------------------------------------------------------------------------------------------------------

static bool has_role(const json_t *message, const char *role) {
  const char *r = json_string_value(json_object_get(message, "role"));
  return r && !strcmp(r, role);
}

static json_t *last_message(const struct chat *c) { return json_array_get(c->messages, json_array_size(c->messages) - 1); }
static void drop_last(struct chat *c) { json_array_remove(c->messages, json_array_size(c->messages) - 1); }

static void set_system(struct chat *c, const char *text, size_t n) {
  if (has_role(json_array_get(c->messages, 0), "system")) json_array_remove(c->messages, 0);
  if (n) json_array_insert_new(c->messages, 0, json_pack("{ss so}", "role", "system", "content", json_text(text, n)));
}

// ---- the prompt -------------------------------------------------------------------------------------------------------

// The ids of the conversation, with the beginning of an answer; prepares to take that apart.
static int make_prompt(struct chat *c, struct ids *out, weft_error *err) {
  char *json = json_dumps(c->messages, JSON_COMPACT), *text = NULL;
  size_t n = 0;
  weft_chat chat = {.messages = json, .n_messages = strlen(json), .tools = c->tools, .n_tools = c->n_tools, .variables = c->variables,
                    .n_variables = c->n_variables, .bos = c->bos, .eos = c->eos};
  int status = weft_template_encode(c->tmpl, c->vocab, &chat, &text, &n, &out->at, &out->n, err);
  out->cap = out->n;
  free(json);
  weft_answer_free(c->answer);
  c->answer = NULL;
  if (!status) status = weft_answer_new(c->tmpl, text, n, c->tools, c->n_tools, &c->answer, err);
  weft_free(text);
  return status;
}

// ---- evaluation -------------------------------------------------------------------------------------------------------

static double compile_ms(const struct chat *c) {
  weft_stats s;
  weft_model_stats(c->model, &s);
  return s.compile_ms;
}

enum { PIECE = 512 };        // tokens between two looks at Ctrl-C

// Brings the KV cache to these ids.  0, -1 with an error, or 1: Ctrl-C.
static int evaluate(struct chat *c, const struct ids *ids, weft_error *err) {
  size_t keep = 0, n_ctx = (size_t)weft_model_context(c->model);
  if (ids->n >= n_ctx) {
    snprintf(err->text, sizeof err->text, "the conversation has %zu tokens and the context holds %zu: shorten it (/clear), or give more with -c", ids->n, n_ctx);
    return -1;
  }
  if (!ids->n) {
    snprintf(err->text, sizeof err->text, "the chat template makes an empty prompt of the conversation");
    return -1;
  }
  while (keep < c->past.n && keep < ids->n && c->past.at[keep] == ids->at[keep]) keep++;
  if (keep == ids->n && keep) keep--;    // the logits of the last one are wanted
  double compiled = compile_ms(c), began = now_s();
  c->past.n = keep;
  c->n_kept = keep;
  progress_begin(&c->bar);
  int status = 0;
  while (!status && c->past.n < ids->n && !interrupted()) {
    size_t left = ids->n - c->past.n, n = left < PIECE ? left : PIECE;
    progress_set(&c->bar, "prompt", (double)(c->past.n - keep) / (double)(ids->n - keep));
    status = weft_decode(c->model, ids->at + c->past.n, n, (int)c->past.n, n == left ? &c->logits : NULL, err);
    for (size_t i = 0, at = c->past.n; !status && i < n; i++) vec_push(&c->past, ids->at[at + i]);
  }
  progress_end(&c->bar);
  c->n_prompt = c->past.n - keep;
  c->total_prompt += c->n_prompt;
  c->prompt_s = now_s() - began - (compile_ms(c) - compiled) / 1000;
  if (status) { c->past.n = keep; return -1; }
  weft_sampler_reset(c->sampler);
  for (size_t i = 0; i < c->past.n; i++) weft_accept(c->sampler, c->past.at[i], NULL);
  return interrupted() ? 1 : 0;
}

// ---- an answer --------------------------------------------------------------------------------------------------------

static void show_parts(struct chat *c, const weft_part *parts, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const weft_part *p = &parts[i];
    if (p->kind == WEFT_CALL) {
      str line = {0};
      str_addf(&line, "%s %s\n", p->name, p->text);
      terminal_newline(c->term);
      terminal_show(c->term, STYLE_CALL, "-> ", 3);
      terminal_show(c->term, STYLE_CALL, line.at, line.n);
      str_free(&line);
      json_array_append_new(c->calls, json_pack("{ss ss s{ss so}}", "id", p->id, "type", "function", "function", "name", p->name,
                                                "arguments", json_loadb(p->text, p->n, 0, NULL)));
    } else if (p->kind == WEFT_REASONING) {
      str_addn(&c->reasoning, p->text, p->n);
      if (terminal_interactive(c->term)) terminal_show(c->term, STYLE_DIM, p->text, p->n);
    } else {
      if (c->reasoning.n && !c->content.n && terminal_interactive(c->term)) terminal_newline(c->term);
      str_addn(&c->content, p->text, p->n);
      terminal_show(c->term, STYLE_PLAIN, p->text, p->n);
    }
  }
}

// Shows what a piece of text adds.  True: a stop string ends the answer.
static bool feed(struct chat *c, const char *text, size_t n, bool last) {
  const weft_part *parts;
  int found = -1;
  if (c->stop) text = weft_stop_add(c->stop, text, n, &n, &found);
  n = weft_answer_add(c->answer, text, n, &parts);
  show_parts(c, parts, n);
  if (!last && found < 0) return false;
  if (c->stop && found < 0) {
    text = weft_stop_end(c->stop, &n);
    n = weft_answer_add(c->answer, text, n, &parts);
    show_parts(c, parts, n);
  }
  n = weft_answer_end(c->answer, &parts);
  show_parts(c, parts, n);
  return true;
}

// Draws a token.  Where content is written, the grammar says which; it follows that text alone, not reasoning.
static int draw(struct chat *c, int32_t *id, bool *constrained, weft_error *err) {
  const uint64_t *mask = NULL;
  *constrained = c->grammar && weft_answer_in_content(c->answer);
  if (*constrained && weft_grammar_mask(c->grammar, &mask, err)) return -1;
  weft_sampler_mask(c->sampler, mask);
  return weft_sample(c->sampler, c->logits, id, err);
}

enum ending { ENDED, STOPPED, CUT, FULL, BROKEN };   // of an answer: by the model; Ctrl-C; -n; the context; an error

// Draws tokens until something ends the answer.
static enum ending generate(struct chat *c, weft_error *err) {
  size_t n, n_ctx = (size_t)weft_model_context(c->model);
  enum ending why = ENDED;
  const char *text;
  double compiled = compile_ms(c), began = now_s();   // kernels for one token are made with the first one
  bool ended = false, constrained;
  if (c->grammar) weft_grammar_reset(c->grammar);
  for (c->n_answer = 0; !ended;) {
    int32_t id;
    if (interrupted()) { why = STOPPED; break; }
    if (terminal_closed(c->term)) break;
    if (c->o.count >= 0 && c->n_answer >= (size_t)c->o.count) { why = CUT; break; }
    if (draw(c, &id, &constrained, err)) { why = BROKEN; break; }
    if (!c->o.sampling.ignore_end && weft_is_end(c->vocab, id)) break;
    if (constrained && weft_grammar_accept(c->grammar, id, err)) { why = BROKEN; break; }
    weft_accept(c->sampler, id, NULL);
    c->n_answer++;
    text = weft_stream_add(c->stream, id, &n);
    ended = feed(c, text, n, false);
    if (ended) break;
    if (c->past.n == n_ctx) { why = FULL; break; }
    if (weft_decode(c->model, &id, 1, (int)c->past.n, &c->logits, err)) { why = BROKEN; break; }
    vec_push(&c->past, id);
  }
  text = weft_stream_end(c->stream, &n);
  if (!ended) feed(c, text, n, true);
  c->answer_s = now_s() - began - (compile_ms(c) - compiled) / 1000;
  c->total_answer += c->n_answer;
  return why;
}

// Adds the answer that was made to the messages.
static void keep_answer(struct chat *c) {
  json_t *m = json_pack("{ss so}", "role", "assistant", "content", json_text(str_c(&c->content), c->content.n));
  if (c->reasoning.n) json_object_set_new(m, "reasoning_content", json_text(c->reasoning.at, c->reasoning.n));
  if (json_array_size(c->calls)) json_object_set(m, "tool_calls", c->calls);
  json_array_append_new(c->messages, m);
}

// Answers the messages.  -1: could not begin, and the last message has to go.
static int respond(struct chat *c) {
  struct ids ids = {0};
  weft_error err;
  c->content.n = c->reasoning.n = 0;
  json_decref(c->calls);
  c->calls = json_array();
  interrupt_catch();
  int status = make_prompt(c, &ids, &err);
  if (!status) status = evaluate(c, &ids, &err);
  free(ids.at);
  if (status < 0) { terminal_note(c->term, "weft: error: %s", err.text); return -1; }
  if (status > 0) { terminal_note(c->term, "(stopped before the answer began: the conversation is as it was)"); return -1; }
  enum ending why = generate(c, &err);
  terminal_newline(c->term);
  switch (why) {
  case ENDED: break;
  case STOPPED: terminal_note(c->term, "(stopped after %zu tokens)", c->n_answer); break;
  case CUT: terminal_note(c->term, "(cut after %zu tokens: -n)", c->n_answer); break;
  case FULL: terminal_note(c->term, "weft: the context of %d tokens is full: the answer ends here (/clear, or more with -c)", weft_model_context(c->model)); break;
  case BROKEN: terminal_note(c->term, "weft: error: %s", err.text); break;
  }
  c->broken = why == BROKEN;
  keep_answer(c);
  return 0;
}

static int say(struct chat *c, json_t *message) {
  json_array_append_new(c->messages, message);
  int status = respond(c);
  if (status) drop_last(c);
  return status;
}

// ---- commands ---------------------------------------------------------------------------------------------------------

typedef int (*doing)(struct chat *c, const char *rest);   // 1: the conversation ends; -1: it failed

static int do_system(struct chat *c, const char *rest) {
  set_system(c, rest, strlen(rest));
  terminal_note(c->term, *rest ? "(the system prompt is set)" : "(there is no system prompt any more)");
  return 0;
}

static int do_clear(struct chat *c, const char *rest) {
  (void)rest;
  size_t from = has_role(json_array_get(c->messages, 0), "system");
  while (json_array_size(c->messages) > from) drop_last(c);
  terminal_note(c->term, "(the conversation begins anew)");
  return 0;
}

static int do_regen(struct chat *c, const char *rest) {
  (void)rest;
  if (!has_role(last_message(c), "assistant")) { terminal_note(c->term, "there is no answer to make again"); return -1; }
  json_t *before = json_incref(last_message(c));
  drop_last(c);
  int status = respond(c);
  if (status) json_array_append(c->messages, before);
  json_decref(before);
  return status;
}

static int do_save(struct chat *c, const char *rest) {
  if (!*rest) { terminal_note(c->term, "/save needs the name of a file"); return -1; }
  FILE *f = fopen(rest, "we");
  bool ok = f && !json_dumpf(c->messages, f, JSON_INDENT(2)) && fputc('\n', f) != EOF;
  if (f && fclose(f)) ok = false;
  if (!ok) { terminal_note(c->term, "%s: %s", rest, strerror(errno)); return -1; }
  terminal_note(c->term, "(%zu messages are in %s)", json_array_size(c->messages), rest);
  return 0;
}

// Messages from a file: an array of objects, each with a role.
static json_t *read_messages(const char *path, error *err) {
  char *text;
  size_t n, i;
  json_error_t e;
  json_t *m;
  if (!strcmp(path, "-")) { error_set(err, "- is no file"); return NULL; }
  if (read_file(path, &text, &n, err)) return NULL;
  json_t *all = json_loadb(text, n, JSON_ALLOW_NUL, &e);
  free(text);
  if (!all) { error_set(err, "%s: line %d: %s", path, e.line, e.text); return NULL; }
  if (!json_is_array(all)) error_set(err, "%s: expected a JSON array of messages", path);
  json_array_foreach(all, i, m) if (!json_is_string(json_object_get(m, "role"))) error_set(err, "%s: message %zu has no role", path, i);
  if (!err->text[0]) return all;
  json_decref(all);
  return NULL;
}

static int do_load(struct chat *c, const char *rest) {
  error err = {0};
  json_t *all = *rest ? read_messages(rest, &err) : NULL;
  if (!all) { terminal_note(c->term, "%s", *rest ? err.text : "/load needs the name of a file"); return -1; }
  json_decref(c->messages);
  c->messages = all;
  terminal_note(c->term, "(%zu messages)", json_array_size(all));
  return 0;
}

// The result of the first call that has none.
static int do_tool(struct chat *c, const char *rest) {
  size_t n = json_array_size(c->messages), results = 0;
  while (n && has_role(json_array_get(c->messages, n - 1), "tool")) { n--; results++; }
  const json_t *calls = n ? json_object_get(json_array_get(c->messages, n - 1), "tool_calls") : NULL, *call = json_array_get(calls, results);
  if (!call) { terminal_note(c->term, "no call waits for a result"); return -1; }
  json_t *message = json_pack("{ss so sO* sO*}", "role", "tool", "content", json_text(rest, strlen(rest)), "tool_call_id", json_object_get(call, "id"),
                              "name", json_object_get(json_object_get(call, "function"), "name"));
  if (results + 1 == json_array_size(calls)) return say(c, message);
  json_array_append_new(c->messages, message);
  terminal_note(c->term, "(%zu more to come)", json_array_size(calls) - results - 1);
  return 0;
}

static int do_stats(struct chat *c, const char *rest) {
  (void)rest;
  weft_stats s;
  weft_model_stats(c->model, &s);
  terminal_note(c->term, "context  %8zu of %d tokens, %zu messages", c->past.n, weft_model_context(c->model), json_array_size(c->messages));
  terminal_note(c->term, "prompt   %8zu tokens evaluated, %zu kept, %.1f tok/s", c->n_prompt, c->n_kept, c->prompt_s > 0 ? (double)c->n_prompt / c->prompt_s : 0);
  terminal_note(c->term, "answer   %8zu tokens, %.1f tok/s", c->n_answer, c->answer_s > 0 ? (double)c->n_answer / c->answer_s : 0);
  terminal_note(c->term, "all      %8zu tokens of prompts, %zu of answers", c->total_prompt, c->total_answer);
  terminal_note(c->term, "memory   %8.1f MiB peak, %.1f MiB reserved for the KV cache", (double)s.peak_rss_bytes / 0x1p20, (double)s.kv_bytes / 0x1p20);
  if (c->o.sampling.temp > 0) terminal_note(c->term, "seed     %8lld", (long long)c->o.sampling.seed);
  return 0;
}

static int do_exit(struct chat *c, const char *rest) { (void)c; (void)rest; return 1; }
static int do_help(struct chat *c, const char *rest);

static const struct { const char *name, *value, *what; doing run; } commands[] = {
  {"help", "", "this list", do_help},
  {"system", "TEXT", "another system prompt; without TEXT none", do_system},
  {"regen", "", "another answer to the last message", do_regen},
  {"clear", "", "forget the conversation, but not the system prompt", do_clear},
  {"save", "FILE", "write the messages to a file, as JSON", do_save},
  {"load", "FILE", "go on with the messages of a file", do_load},
  {"tool", "TEXT", "the result of the call that the model made", do_tool},
  {"stats", "", "the context, and how fast the last answer was", do_stats},
  {"exit", "", "end the conversation, as Ctrl-D does", do_exit},
};

static int do_help(struct chat *c, const char *rest) {
  (void)rest;
  for (size_t i = 0; i < COUNT(commands); i++) {
    char name[32];
    snprintf(name, sizeof name, "/%s %s", commands[i].name, commands[i].value);
    terminal_note(c->term, "%-14s %s", name, commands[i].what);
  }
  terminal_note(c->term, "A line that ends with \\ goes on in the next one; \"\"\" begins and ends a message of several lines.");
  return 0;
}

static int run_command_line(struct chat *c, const char *line) {
  size_t n = strcspn(line, " ");
  const char *rest = line + n + strspn(line + n, " "), *names[COUNT(commands)];
  char word[32];
  snprintf(word, sizeof word, "%.*s", (int)n, line);
  for (size_t i = 0; i < COUNT(commands); i++) {
    names[i] = commands[i].name;
    if (!strcmp(word, names[i])) return commands[i].run(c, rest);
  }
  const char *near = args_nearest(word, names, COUNT(names));
  terminal_note(c->term, near ? "there is no /%s; did you mean /%s?" : "there is no /%s; /help lists the commands", word, near);
  return -1;
}

// ---- the conversation -------------------------------------------------------------------------------------------------

// Until the end of the input.  1: what came last failed.
static int converse(struct chat *c) {
  str text = {0};
  int status = 0;
  for (;;) {
    char prompt[64];
    snprintf(prompt, sizeof prompt, "%zu/%d > ", c->past.n, weft_model_context(c->model));
    interrupt_catch();
    enum input got = terminal_read(c->term, prompt, &text);
    if (got == INPUT_END) break;
    if (got == INPUT_INTERRUPTED) {
      if (!terminal_interactive(c->term)) { status = EXIT_INTERRUPTED; break; }
      terminal_note(c->term, "(Ctrl-D or /exit ends the conversation)");
      continue;
    }
    if (!text.n) continue;
    c->broken = false;
    if (text.at[0] == '/' && !strchr(text.at, '\n')) status = run_command_line(c, text.at + 1);
    else status = say(c, json_pack("{ss so}", "role", "user", "content", json_text(text.at, text.n)));
    if (status == 1) { status = EXIT_OK; break; }
    if (interrupted() && !terminal_interactive(c->term)) { status = EXIT_INTERRUPTED; break; }
    status = status || c->broken ? EXIT_FAILED : EXIT_OK;
    if (terminal_closed(c->term)) break;
  }
  str_free(&text);
  return terminal_interactive(c->term) ? EXIT_OK : status;
}

// ---- life -------------------------------------------------------------------------------------------------------------

static int open_template(struct chat *c, weft_error *err) {
  error e = {0};
  char *text;
  size_t n;
  if (!c->o.template_file) {
    if (!weft_template_of_file(weft_model_file(c->model), c->tools != NULL, &c->tmpl, err)) return 0;
    if (strstr(err->text, "no chat template")) {
      size_t len = strlen(err->text);
      snprintf(err->text + len, sizeof err->text - len, "; give one with --chat-template-file, or use weft run");
    }
    return -1;
  }
  if (read_file(c->o.template_file, &text, &n, &e)) { memcpy(err->text, e.text, sizeof err->text); return -1; }
  int status = weft_template_open(text, n, c->o.template_file, &c->tmpl, err);
  free(text);
  return status;
}

// JSON from the command line, or a file with it.
static int read_json(const char *option, const char *arg, json_type type, char **text, size_t *n, error *err) {
  json_error_t e;
  if (!arg) return 0;
  char first = arg[strspn(arg, " \t\r\n")];
  if (first != '[' && first != '{') { if (read_file(arg, text, n, err)) return -1; }
  else { *text = xstrdup(arg); *n = strlen(arg); }
  json_t *o = json_loadb(*text, *n, JSON_ALLOW_NUL, &e);
  bool right = o && json_typeof(o) == type;
  json_decref(o);
  if (right) return 0;
  return error_set(err, "%s: %s", option, o ? type == JSON_ARRAY ? "expected a JSON array" : "expected a JSON object" : e.text);
}

static int open_model(struct chat *c) {
  weft_error err;
  if (model_args_open(&c->o.model, &c->bar, &c->model)) return EXIT_FAILED;
  c->vocab = weft_model_vocab(c->model);
  c->n_vocab = weft_model_vocab_size(c->model);
  c->stream = weft_stream_new(c->vocab, true);
  size_t n;
  if (c->o.template_file) {              // a model file's own template knows these
    c->bos = weft_piece(c->vocab, weft_bos(c->vocab), true, &n);
    c->eos = weft_piece(c->vocab, weft_eos(c->vocab), true, &n);
  }
  if (open_template(c, &err)) return failed("%s", err.text);
  if (sampling_new(&c->o.sampling, c->vocab, c->n_vocab, &c->sampler, &err)) return failed("%s", err.text);
  if (grammar_args_open(&c->o.grammar, c->vocab, c->n_vocab, &c->grammar, &err)) return failed("%s", err.text);
  if (c->o.stops.n && weft_stop_new(texts_of(&c->o.stops), c->o.stops.n, &c->stop, &err)) return failed("%s", err.text);
  return 0;
}

static int chat(struct chat *c) {
  error err = {0};
  if (!c->o.model.model) return usage_error("no model: give one with -m FILE");
  if (grammar_args_check(&c->o.grammar, c->o.sampling.ignore_end, &err) || sampling_check(&c->o.sampling, false, &err)) return usage_error("%s", err.text);
  if (read_json("--tools", c->o.tools, JSON_ARRAY, &c->tools, &c->n_tools, &err) ||
      read_json("--chat-template-kwargs", c->o.variables, JSON_OBJECT, &c->variables, &c->n_variables, &err)) return failed("%s", err.text);
  int status = open_model(c);
  if (status) return status;
  c->term = terminal_new((enum color)c->o.color);
  c->messages = json_array();
  if (c->o.system) set_system(c, c->o.system, strlen(c->o.system));
  if (terminal_interactive(c->term)) terminal_note(c->term, "/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends the conversation");
  return converse(c);
}

int chat_command(int argc, char **argv) {
  struct chat c = {0};
  error err = {0};
  int status;
  switch (parse(&c.o, argc, argv, &err)) {
  case ARGS_GO: status = chat(&c); break;
  case ARGS_HELP: return EXIT_OK;
  default: status = usage_error("%s", err.text); break;
  }
  terminal_free(c.term);
  weft_answer_free(c.answer);
  weft_stream_free(c.stream);
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
  str_free(&c.content);
  str_free(&c.reasoning);
  sampling_free(&c.o.sampling);
  texts_free(&c.o.stops);
  return status;
}
