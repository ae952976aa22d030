// The answers of weft chat: see chat.h. The template turns the messages into a prompt. Its longest prefix in the KV
// cache is reused (token ids are compared), the rest is evaluated, and tokens are sampled until the model ends its
// turn. Meanwhile the text is parsed into reasoning, content and tool calls.
#define _GNU_SOURCE
#include "app/chat.h"
#include "app/app.h"
#include "app/denoise_args.h"
#include "app/json.h"
#include "base/literal.h"
#include "base/json.h"
#include "app/stats.h"
#include <stdlib.h>
#include <string.h>

// ---- the prompt -----------------------------------------------------------------------------------------------------

// Makes the ids of the conversation and the beginning of an answer; sets up the parser of the answer.
static int make_chat_prompt(struct chat *c, struct ids *out, weft_error *err) {
  char *json = json_dumps(c->messages, JSON_COMPACT), *text = NULL;
  size_t n = 0;
  weft_chat chat = {.messages = json,
                    .n_messages = strlen(json),
                    .tools = c->tools,
                    .n_tools = c->n_tools,
                    .variables = c->variables,
                    .n_variables = c->n_variables,
                    .add_bos = c->o.chat_bos,
                    .media_mark = c->media_mark,
                    .media = c->media.of.at,
                    .n_media = c->media.of.n,
                    .bos = c->bos,
                    .eos = c->eos};
  free(out->at);
  *out = (struct ids){0};
  int status = weft_template_encode(c->tmpl, c->vocab, &chat, &text, &n, &out->at, &out->n, err);
  out->cap = out->n;
  free(json);
  weft_answer_free(c->answer);
  weft_budget_free(c->budget);
  c->answer = NULL;
  c->budget = NULL;
  if (!status) status = weft_answer_new(c->tmpl, text, n, c->tools, c->n_tools, &c->answer, err);
  if (!status && c->o.reasoning_format == REASONING_IN_CONTENT) weft_answer_keep_reasoning(c->answer);
  if (!status && c->o.reasoning_budget >= 0)
    c->budget = weft_budget_new(c->vocab, c->o.reasoning_budget, c->o.reasoning_message);
  weft_free(text);
  return status;
}

// ---- evaluation -----------------------------------------------------------------------------------------------------

// Removes the oldest turn: from the first message after the system prompt to the next user message. Returns the number
// of removed messages; 0: there is only one turn.
static size_t forget_turn(struct chat *c) {
  size_t from = chat_has_role(json_array_get(c->messages, 0), "system"), n = json_array_size(c->messages),
         to = from + 1;
  while (to < n && !chat_has_role(json_array_get(c->messages, to), "user")) to++;
  if (to >= n) return 0;
  for (size_t i = from; i < to; i++) json_array_remove(c->messages, from);
  return to - from;
}

// Returns whether old turns may be removed: by --context-shift, or because the user agrees.
static bool may_forget(const struct chat *c, size_t n, size_t n_ctx) {
  str line = {0};
  if (c->o.context_shift || !terminal_interactive(c->term)) return c->o.context_shift;
  terminal_note(c->term, "The conversation has %zu tokens and the context holds %zu.", n, n_ctx);
  bool yes = terminal_read(c->term, "Forget the oldest turns? [Y/n] ", &line) == INPUT_TEXT &&
             (!line.n || line.at[0] == 'y' || line.at[0] == 'Y');
  str_free(&line);
  interrupt_catch();
  return yes;
}

static void set_messages(struct chat *c, const json_t *to) {
  json_decref(c->messages);
  c->messages = json_copy((json_t *)(uintptr_t)to);
}

// Returns whether the conversation would fit with only its last turn.
static bool would_fit(struct chat *c, const json_t *all, size_t n_ctx, weft_error *err) {
  struct ids ids = {0};
  bool less = false;
  while (forget_turn(c)) less = true;
  bool fits = less && !make_chat_prompt(c, &ids, err) && ids.n < n_ctx;
  free(ids.at);
  set_messages(c, all);
  return fits;
}

// Makes a prompt that leaves room for an answer: a quarter of the context, or -n tokens. A longer conversation loses
// its oldest turns, if allowed, until half of the context is free: each removal means that the rest is evaluated again.
static int fit_prompt(struct chat *c, struct ids *ids, weft_error *err) {
  size_t n_ctx = (size_t)weft_model_context(c->model), room = n_ctx / 4, gone = 0, some;
  if (make_chat_prompt(c, ids, err)) return -1;
  if (c->o.count >= 0 && (size_t)c->o.count < room) room = (size_t)c->o.count;
  if (ids->n + (c->o.context_shift ? room : 0) < n_ctx) return 0;
  json_t *all = json_copy(c->messages);
  int status = 0;
  if (would_fit(c, all, n_ctx, err) && may_forget(c, ids->n, n_ctx)) {
    while (!status && ids->n > n_ctx / 2 && (some = forget_turn(c))) {
      gone += some;
      status = make_chat_prompt(c, ids, err);
    }
    if (!c->o.quiet) terminal_note(c->term, "(the %zu oldest messages are forgotten)", gone);
  }
  json_decref(all);
  return status;
}

enum { PIECE = 512 };  // tokens evaluated together; a complete piece stays in the cache if a later one is interrupted

struct reading { struct chat *c; size_t from, to; };

// Checks for Ctrl-C while a piece is evaluated, and moves the bar.
static bool watch_prompt(void *ctx, double done) {
  struct reading *r = ctx;
  progress_set(&r->c->bar, "prompt", ((double)(r->c->past.n - r->from) + done) / (double)(r->to - r->from));
  return !interrupted();
}

static int check_prompt_length(struct chat *c, const struct ids *ids, weft_error *err) {
  size_t n_ctx = (size_t)weft_model_context(c->model);
  if (ids->n >= n_ctx) {
    snprintf(err->text, sizeof err->text,
             "the conversation has %zu tokens and the context holds %zu: shorten it (/clear), or give more with -c, or "
             "--context-shift",
             ids->n, n_ctx);
    return -1;
  }
  if (!ids->n) {
    snprintf(err->text, sizeof err->text, "the chat template makes an empty prompt of the conversation");
    return -1;
  }
  return 0;
}

// Makes the KV cache contain these ids. 0, -1 with an error, or 1: Ctrl-C.
static int evaluate_prompt(struct chat *c, const struct ids *ids, weft_error *err) {
  size_t keep = weft_common(c->past.at, c->past.n, ids->at, ids->n),
         stays = (size_t)weft_invoke(c->model, ids->at, ids->n);
  if (keep > stays) keep = stays;
  if (keep == ids->n) keep = weft_before_rows(ids->at, keep - 1, ids->n);    // the logits of the last token are needed
  double compiled = stats_compile_ms(c->model), began = now_s();
  c->past.n = keep;
  c->n_kept = keep;
  if (!c->o.quiet) progress_begin(&c->bar);
  weft_model_watch(c->model, watch_prompt, &(struct reading){c, keep, ids->n});
  int status = 0;
  while (!status && c->past.n < ids->n && !interrupted()) {
    size_t left = ids->n - c->past.n, n = weft_piece_of(c->model, ids->at + c->past.n, left, PIECE);
    progress_set(&c->bar, "prompt", (double)(c->past.n - keep) / (double)(ids->n - keep));
    status = weft_decode(c->model, ids->at + c->past.n, n, (int)c->past.n, n == left ? &c->logits : NULL, err);
    if (status > 0) { status = 0; break; }
    for (size_t i = 0, at = c->past.n; !status && i < n; i++) vec_push(&c->past, ids->at[at + i]);
  }
  weft_model_watch(c->model, NULL, NULL);
  progress_end(&c->bar);
  c->n_prompt = c->past.n - keep;
  c->total_prompt += c->n_prompt;
  c->prompt_s = now_s() - began - (stats_compile_ms(c->model) - compiled) / 1000;
  if (status) { c->past.n = keep; return -1; }
  weft_sampler_reset(c->sampler);
  for (size_t i = 0; i < c->past.n; i++) weft_accept(c->sampler, c->past.at[i], NULL);
  return interrupted() ? 1 : 0;
}

// ---- an answer ------------------------------------------------------------------------------------------------------

static void show_call(struct chat *c, const weft_part *p) {
  if (p->name) {
    terminal_newline(c->term);
    terminal_show(c->term, STYLE_CALL, "-> ", 3);
    terminal_show(c->term, STYLE_CALL, p->name, strlen(p->name));
    terminal_show(c->term, STYLE_CALL, " ", 1);
  }
  terminal_show(c->term, STYLE_CALL, p->text, p->n);
  if (p->done) terminal_show(c->term, STYLE_CALL, "\n", 1);
}

// Adds to a tool call: its arguments are text until they are complete, then an object, as templates expect.
static void take_shown_call(struct chat *c, const weft_part *p) {
  if (p->name) {
    c->arguments.n = 0;
    json_array_append_new(c->calls, json_pack("{ss ss s{ss}}", "id", p->id, "type", "function", "function", "name",
                                              p->name));
  }
  str_addn(&c->arguments, p->text, p->n);
}

static void end_shown_call(struct chat *c) {
  json_t *last = json_array_get(c->calls, json_array_size(c->calls) - 1), *function = json_object_get(last, "function");
  str whole = {0};
  if (!function || json_object_get(function, "arguments")) return;
  literal_complete(str_c(&c->arguments), c->arguments.n, &whole);
  json_t *arguments = json_read(whole.at, whole.n, JSON_ALLOW_NUL, NULL, NULL);
  json_object_set_new(function, "arguments", arguments ? arguments : json_text(whole.at, whole.n));
  str_free(&whole);
}

static void show_parts(struct chat *c, const weft_part *parts, size_t n) {
  bool show = !c->o.json;
  for (size_t i = 0; i < n; i++) {
    const weft_part *p = &parts[i];
    if (p->kind == WEFT_CALL) {
      if (p->name) end_shown_call(c);
      if (show) show_call(c, p);
      take_shown_call(c, p);
    } else if (p->kind == WEFT_REASONING) {
      str_addn(&c->reasoning, p->text, p->n);
      if (show && terminal_interactive(c->term)) terminal_show(c->term, STYLE_DIM, p->text, p->n);
    } else {
      if (show && c->reasoning.n && !c->content.n && terminal_interactive(c->term)) terminal_newline(c->term);
      str_addn(&c->content, p->text, p->n);
      if (show) terminal_show(c->term, STYLE_PLAIN, p->text, p->n);
    }
  }
}

// Prints what a piece of text adds. last: it is the last piece; cut: a limit ended the text. True: a stop string ends
// the answer.
static bool feed(struct chat *c, const char *text, size_t n, bool last, bool cut) {
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
  n = weft_answer_end(c->answer, cut, &parts);
  show_parts(c, parts, n);
  end_shown_call(c);
  return true;
}

// Samples a token, or takes the next one of the end-of-reasoning text if the budget is used up. The grammar constrains
// content only, not reasoning.
static int draw_id(struct chat *c, int32_t *id, bool *constrained, weft_error *err) {
  const uint64_t *mask = NULL;
  int status = c->budget ? weft_budget_next(c->budget, c->answer, id, err) : 0;
  *constrained = false;
  if (status) return status < 0 ? -1 : 0;
  *constrained = c->grammar && weft_answer_in_content(c->answer);
  if (*constrained && weft_grammar_mask(c->grammar, &mask, err)) return -1;
  weft_sampler_mask(c->sampler, mask);
  return weft_sample(c->sampler, c->logits, id, err);
}

// Samples tokens until something ends the answer.
static enum ending generate_answer(struct chat *c, weft_error *err) {
  size_t n, n_ctx = (size_t)weft_model_context(c->model);
  enum ending why = ENDED;
  const char *text;
  double compiled = stats_compile_ms(c->model), began = now_s();  // the first token compiles the kernels for one token
  bool ended = false, constrained;
  if (c->grammar) weft_grammar_reset(c->grammar);
  for (c->n_answer = 0; !ended;) {
    int32_t id;
    if (interrupted()) { why = STOPPED; break; }
    if (terminal_closed(c->term)) break;
    if (c->o.count >= 0 && c->n_answer >= (size_t)c->o.count) { why = CUT; break; }
    if (draw_id(c, &id, &constrained, err)) { why = BROKEN; break; }
    if (!c->o.sampling.ignore_end && weft_is_end(c->vocab, id)) break;
    if (constrained && weft_grammar_accept(c->grammar, id, err)) { why = BROKEN; break; }
    weft_accept(c->sampler, id, NULL);
    c->n_answer++;
    text = weft_stream_add(c->stream, id, &n);
    ended = feed(c, text, n, false, false);
    if (ended) break;
    if (c->past.n == n_ctx) { why = FULL; break; }
    if (weft_speculation_decode(c->speculation, c->past.at, (int)c->past.n, id, &c->logits, err)) {
      why = BROKEN;
      break;
    }
    vec_push(&c->past, id);
  }
  text = weft_stream_end(c->stream, &n);
  if (!ended) feed(c, text, n, true, why != ENDED);
  c->answer_s = now_s() - began - (stats_compile_ms(c->model) - compiled) / 1000;
  c->total_answer += c->n_answer;
  c->used = c->past.n;
  return why;
}

// Makes the text a multiple of --diffusion-block-length, and the steps one of the number of blocks: a prompt has any
// length.
static void fit_blocks(struct denoise_args *how, struct denoised *d) {
  size_t length = (size_t)how->block_length, blocks = length ? d->n / length : 0;
  if (!blocks || blocks * length <= d->n_prompt) return;   // an error says so
  int64_t steps = how->steps ? how->steps : 128, n = (int64_t)blocks;
  d->n = blocks * length;
  how->steps = (steps + n - 1) / n * n;
}

// Denoises a text after the prompt, and shows its tokens up to the end of the answer. Nothing is kept for the next
// answer: the model sees the whole text in each step.
static enum ending denoise_answer(struct chat *c, const struct ids *prompt, weft_error *err) {
  enum { USUAL = 256 };
  size_t n_ctx = (size_t)weft_model_context(c->model), more = c->o.count >= 0 ? (size_t)c->o.count : USUAL, n;
  struct sampling_args sampling = c->o.sampling;
  struct denoise_args how = c->o.denoise;
  struct denoised d = {.model = c->model, .how = &how, .sampling = &sampling, .n_prompt = prompt->n};
  double compiled = stats_compile_ms(c->model), began = now_s();
  int32_t mask = weft_mask(c->vocab);
  bool fits = more < n_ctx - prompt->n, ended = false;
  enum ending why = fits ? CUT : FULL;
  const char *text;
  sampling.seed += (int64_t)c->n_denoised++;               // another answer to the same messages is another one
  d.n = fits ? prompt->n + more : n_ctx;
  fit_blocks(&how, &d);
  d.bar = c->o.quiet ? NULL : &c->bar;
  d.ids = xcalloc(d.n, sizeof *d.ids);
  memcpy(d.ids, prompt->at, prompt->n * sizeof *d.ids);
  int status = more ? denoise(&d, err) : 0;
  c->n_answer = 0;
  for (size_t i = prompt->n; status >= 0 && i < d.n && !ended && why != ENDED; i++) {
    if (d.ids[i] == mask) continue;
    if (!c->o.sampling.ignore_end && weft_is_end(c->vocab, d.ids[i])) { why = ENDED; break; }
    c->n_answer++;
    text = weft_stream_add(c->stream, d.ids[i], &n);
    ended = feed(c, text, n, false, false);
  }
  if (ended) why = ENDED;
  else if (status) why = status < 0 ? BROKEN : STOPPED;
  text = weft_stream_end(c->stream, &n);
  if (!ended) feed(c, text, n, true, why != ENDED);
  c->n_prompt = prompt->n;
  c->total_prompt += prompt->n;
  c->answer_s = now_s() - began - (stats_compile_ms(c->model) - compiled) / 1000;
  c->total_answer += c->n_answer;
  c->used = prompt->n + c->n_answer;
  free(d.ids);
  return why;
}

// The finished answer as a message.
static json_t *answer_message(struct chat *c) {
  json_t *m = json_pack("{ss so}", "role", "assistant", "content", json_text(str_c(&c->content), c->content.n));
  if (c->reasoning.n) json_object_set_new(m, "reasoning_content", json_text(c->reasoning.at, c->reasoning.n));
  if (json_array_size(c->calls)) json_object_set(m, "tool_calls", c->calls);
  return m;
}

static double per_second(size_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }

// --json: the answer, why it ended, and its speed.
static void show_answer_json(struct chat *c, enum ending why) {
  static const char *const reasons[] = {"stop", "stopped", "length", "length", "error"};
  json_t *m = answer_message(c);
  json_object_set_new(m, "finish_reason",
                      json_string(why == ENDED && json_array_size(c->calls) ? "tool_calls" : reasons[why]));
  json_object_set_new(m, "timings",
                      json_pack("{sI sf sI sf}", "prompt_n", (json_int_t)c->n_prompt, "prompt_per_second",
                                per_second(c->n_prompt, c->prompt_s), "predicted_n", (json_int_t)c->n_answer,
                                "predicted_per_second", per_second(c->n_answer, c->answer_s)));
  char *line = json_dumps(m, JSON_COMPACT | JSON_REAL_PRECISION(6));
  terminal_show(c->term, STYLE_PLAIN, line, strlen(line));
  terminal_show(c->term, STYLE_PLAIN, "\n", 1);
  free(line);
  json_decref(m);
}

static void say_ending(struct chat *c, enum ending why, const weft_error *err) {
  bool quiet = c->o.quiet;
  if (why == BROKEN) terminal_note(c->term, "weft: error: %s", err->text);
  else if (why == STOPPED && !quiet) terminal_note(c->term, "(stopped after %zu tokens)", c->n_answer);
  else if (why == CUT && !quiet) terminal_note(c->term, "(cut after %zu tokens: -n)", c->n_answer);
  else if (why == FULL && !quiet)
    terminal_note(c->term, "weft: the context of %d tokens is full: the answer ends here (/clear, or more with -c)",
                  weft_model_context(c->model));
  char read[32], written[32];
  if (quiet || !(c->o.verbose || (terminal_interactive(c->term) && c->o.rates))) return;
  terminal_note(c->term, "(%zu tokens read%s, %zu written%s)", c->n_prompt,
                stats_rate(read, sizeof read, c->n_prompt, c->prompt_s), c->n_answer,
                stats_rate(written, sizeof written, c->n_answer, c->answer_s));
  weft_speculation_counts n = weft_speculation_count(c->speculation);
  if (c->draft_model || n.drafted)
    terminal_note(c->term, "(so far %s has proposed %llu tokens; %llu were right)",
                  c->draft_model ? "the draft model" : "the model's own block for that", (unsigned long long)n.drafted,
                  (unsigned long long)n.drafted_accepted);
}

// Makes and evaluates the prompt, but does not restore messages that were removed for an answer that could not begin.
static int prepare_answer(struct chat *c, struct ids *ids, weft_error *err) {
  interrupt_catch();
  int status = fit_prompt(c, ids, err);
  if (!status && c->o.verbose_prompt) show_tokens(c->vocab, ids->at, ids->n);
  if (!status) status = check_prompt_length(c, ids, err);
  if (status || weft_model_denoises(c->model)) return status;
  return evaluate_prompt(c, ids, err);
}

int chat_respond(struct chat *c) {
  weft_error err;
  c->content.n = c->reasoning.n = 0;
  json_decref(c->calls);
  c->calls = json_array();
  json_t *before = json_copy(c->messages);
  struct ids prompt = {0};
  int status = prepare_answer(c, &prompt, &err);
  if (status) { json_decref(c->messages); c->messages = json_incref(before); }
  json_decref(before);
  if (status < 0) terminal_note(c->term, "weft: error: %s", err.text);
  if (status > 0) terminal_note(c->term, "(stopped before the answer began: the conversation is as it was)");
  if (status) { free(prompt.at); return -1; }
  enum ending why = weft_model_denoises(c->model) ? denoise_answer(c, &prompt, &err) : generate_answer(c, &err);
  free(prompt.at);
  terminal_newline(c->term);
  if (c->o.json) show_answer_json(c, why);
  say_ending(c, why, &err);
  c->broken = why == BROKEN;
  json_array_append_new(c->messages, answer_message(c));
  return 0;
}

int chat_say(struct chat *c, json_t *message) {
  json_array_append_new(c->messages, message);
  int status = chat_respond(c);
  if (status) chat_drop_last(c);
  return status;
}
