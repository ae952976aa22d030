// OpenAI's endpoints: the model, /v1/completions, /v1/chat/completions. Clients concatenate deltas, so each thing is
// sent once; an error is an HTTP status as long as the stream has not begun.
#define _GNU_SOURCE
#include "serve/call.h"
#include "serve/families.h"
#include "serve/shapes.h"
#include "serve/tools.h"
#include "serve/vector.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- errors ---------------------------------------------------------------------------------------------------------

static const char *error_type(int status) {
  switch (status) {
  case 401: return "authentication_error";
  case 403: return "permission_error";
  case 404: case 405: return "not_found_error";
  case 429: return "rate_limit_error";
  case 503: return "unavailable_error";
  default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

static json_t *openai_error(const fault *f) {
  json_t *e = json_pack("{s{so ss ss? ss?}}", "error", "message", json_of_text(f->text, strlen(f->text)), "type",
                        error_type(f->status), "param", f->param[0] ? f->param : NULL, "code", f->code);
  if (!f->n_ctx) return e;
  json_object_set_new(json_object_get(e, "error"), "n_prompt_tokens", json_integer(f->n_prompt));
  json_object_set_new(json_object_get(e, "error"), "n_ctx", json_integer(f->n_ctx));
  return e;
}

const struct family openai_family = {
  "OpenAI", openai_error,
  "{'type':'object','required':['error'],'properties':{'error':{'type':'object','required':"
  "['message','type','param','code'],'properties':{'message':{'type':'string'},'type':{'type':'string'},"
  "'param':{'type':['string','null']},'code':{'type':['string','null']}}}}}",
  "text/event-stream"};

// ---- the model ------------------------------------------------------------------------------------------------------

struct listing { server *s; json_t *all; };

// In the names of llama-server's router and OpenRouter.
static json_t *input_modalities(const served *m) {
  json_t *all = json_pack("[s]", "text");
  if (m->media_kinds & WEFT_PICTURE) json_array_append_new(all, json_string("image"));
  if (m->media_kinds & WEFT_SOUND) json_array_append_new(all, json_string("audio"));
  return all;
}

static json_t *model_object(const server *s, const served *m) {
  static const char *const states[] = {"unloaded", "loading", "loading", "loaded", "unloaded", "unloaded"};
  int64_t asked = s->o->model.context, n_ctx = m->state == SERVED_IN ? weft_model_context(m->model)
                                               : asked               ? asked
                                                                     : m->n_trained;
  json_t *o = json_pack("{ss ss sI ss sI s{ss} s{sI sI sI ss}}", "id", m->name, "object", "model", "created",
                        (json_int_t)m->changed, "owned_by", "weft", "max_model_len", (json_int_t)n_ctx, "status",
                        "value", states[m->state], "meta", "n_ctx", (json_int_t)n_ctx, "n_params",
                        (json_int_t)m->n_params, "size", (json_int_t)m->tensor_bytes, "description", m->summary);
  json_object_set_new(o, "architecture", json_pack("{so s[s]}", "input_modalities", input_modalities(m),
                                                   "output_modalities", "text"));
  json_t *aliases = json_array();
  for (size_t i = 0; i < m->aliases.n; i++) json_array_append_new(aliases, json_string(m->aliases.at[i]));
  json_object_set_new(o, "aliases", aliases);
  // a waiting request gets its error before all of the model is freed
  if (m->state == SERVED_FAILED || (m->state == SERVED_LEAVING && m->failed)) {
    json_t *status = json_object_get(o, "status");
    json_object_set_new(status, "failed", json_true());
    if (m->failed) json_object_set_new(status, "error", json_of_text(m->failed, strlen(m->failed)));
  }
  if (m->state == SERVED_IN)
    json_object_set_new(json_object_get(o, "meta"), "n_vocab", json_integer(weft_model_vocab_size(m->model)));
  return o;
}

static void add_model(void *ctx, served *m) {
  struct listing *l = ctx;
  json_array_append_new(l->all, model_object(l->s, m));
}

static json_t *models(server *s) {
  struct listing l = {s, json_array()};
  shelf_each(s->shelf, add_model, &l);
  return l.all;
}

void openai_models(server *s, exchange *x) {
  answer_json(x, 200, json_pack("{ss so}", "object", "list", "data", models(s)));
}

void openai_model(server *s, exchange *x) {
  fault f = {0};
  const char *name = asked_path(x, x->route);
  json_t *all = models(s), *one, *found = NULL;
  size_t i;
  json_array_foreach(all, i, one) if (!strcmp(name, json_string_value(json_object_get(one, "id")))) found = one;
  if (found) answer_json(x, 200, json_incref(found));
  else if (shelf_unknown(s->shelf, name, &f)) answer_fault(s, x, &f);
  json_decref(all);
}

// ---- common to both -------------------------------------------------------------------------------------------------

#define P struct params
#define SHARED \
  FI(P, max_tokens, "max_tokens", -1, INT32_MAX, "tokens of the answer at most; -1: until the context is full"), \
  FI(P, max_tokens, "n_predict", -1, INT32_MAX, "the same"), \
  FI(P, n, "n", 1, 128, "how many answers"), \
  FI(P, n, "n_cmpl", 1, 128, "the same"), \
  FO(P, nested, "stream_options", stream_tables, "{\"include_usage\": true}: a last chunk with usage")

static const struct field stream_table[] = {
  FB(P, include_usage, "include_usage", "a last chunk with usage"),
  FIGNORED("include_obfuscation", "[false]", "no padding is added"),
  FIGNORED("continuous_usage_stats", "[false]", "usage comes at the end"),
};
static const struct fields stream_fields = FIELDS(stream_table);
static const struct fields *const stream_tables[] = {&stream_fields, NULL};

static json_t *usage(const call *c) {
  json_int_t prompt = call_prompt_tokens(c), drawn = call_drawn(c);
  return json_pack("{sI sI sI s{sI} s{sI}}", "prompt_tokens", prompt, "completion_tokens", drawn, "total_tokens",
                   prompt + drawn, "prompt_tokens_details", "cached_tokens", (json_int_t)call_cached(c),
                   "completion_tokens_details", "reasoning_tokens", (json_int_t)call_reasoned(c));
}

json_t *timings_object(const struct timing *t) {
  json_int_t n = t->n_prompt - t->n_cached;
  json_t *o =
    json_pack("{sI sI sf sf sf sI sf sf sf}", "cache_n", (json_int_t)t->n_cached, "prompt_n", n, "prompt_ms",
              t->prompt_ms, "prompt_per_token_ms", n ? t->prompt_ms / (double)n : 0, "prompt_per_second",
              t->prompt_ms > 0 ? 1000 * (double)n / t->prompt_ms : 0, "predicted_n", (json_int_t)t->n_drawn,
              "predicted_ms", t->drawn_ms, "predicted_per_token_ms", t->n_drawn ? t->drawn_ms / (double)t->n_drawn : 0,
              "predicted_per_second", t->drawn_ms > 0 ? 1000 * (double)t->n_drawn / t->drawn_ms : 0);
  if (t->speculation.proposed) {
    json_object_set_new(o, "draft_n", json_integer((json_int_t)t->speculation.proposed));
    json_object_set_new(o, "draft_n_accepted", json_integer((json_int_t)t->speculation.accepted));
  }
  return o;
}

static json_t *head(const call *c, const char *object) {
  return json_pack("{ss ss sI ss ss}", "id", c->id, "object", object, "created", (json_int_t)c->created, "model",
                   c->m->name, "system_fingerprint", "b-weft-" WEFT_VERSION_STRING);
}

static void send_chunk(call *c, json_t *o) { call_line(c, "data: ", o, "\n\n"); }

static void stream_failed(call *c, const fault *why) { send_chunk(c, openai_error(why)); }

static void send_usage_and_done(call *c, const char *object) {
  if (c->p.include_usage) {
    json_t *o = head(c, object);
    json_object_set_new(o, "choices", json_array());
    json_object_set_new(o, "usage", usage(c));
    json_object_set_new(o, "timings", timings_object(&c->choices[c->n_choices - 1].timing));
    send_chunk(c, o);
  }
  exchange_add(c->x, "data: [DONE]\n\n", 14);
}

// ---- /v1/completions ------------------------------------------------------------------------------------------------

static const struct field completion_table[] = {
  FN(P, prompt, "prompt", F_ANY, SHAPE_PROMPT, "a text, token ids, an object with pictures, or an array of such"),
  SHARED,
  FI(P, top_logprobs, "logprobs", 0, 100, "log-probabilities of each token and of the N likeliest"),
  FB(P, echo, "echo", "the prompt stands before the answer; with logprobs its tokens are scored"),
  FREFUSED("suffix", "['']", "/infill takes one"),
};
static const struct fields completion_fields = FIELDS(completion_table);
const struct fields *const openai_completion_fields[] = {&completion_fields,
                                                         &sampling_fields,
                                                         &foreign_openai_fields,
                                                         &llama_own_fields,
                                                         &foreign_llama_fields,
                                                         &common_fields,
                                                         NULL};

enum { LEGACY_SCORE_BYTES = 300 };     // of a token's log-probability: a member of an object

// OpenAI's legacy form of log-probabilities. offset: characters of the text before the next token; skip: number of
// these that the text does not show (some tokenisers add a space in front).
struct legacy { json_t *tokens, *logprobs, *top, *offsets; int64_t offset, skip; };

static struct legacy legacy_new(int64_t offset) {
  return (struct legacy){json_array(), json_array(), json_array(), json_array(), offset, 0};
}

static int64_t n_characters(const char *text, size_t n) {
  int64_t characters = 0;
  for (size_t i = 0; i < n; i++) characters += ((unsigned char)text[i] & 0xc0) != 0x80;
  return characters;
}

// Characters that a token completes; control tokens have none.
static int64_t streamed(weft_stream *s, int32_t id) {
  size_t n;
  const char *text = weft_stream_add(s, id, &n);
  return n_characters(text, n);
}

static void legacy_add(const served *m, struct legacy *l, const struct score *score) {
  json_t *text = piece_text(m, score->id), *logprob = score->scored ? json_real(score->logprob) : json_null();
  json_t *top = json_object();
  for (int32_t i = 0; i < score->n_top; i++) {
    json_t *name = piece_text(m, score->top[i].id);
    if (!json_object_get(top, json_string_value(name)))
      json_object_set_new(top, json_string_value(name), json_real(score->top[i].logprob));
    json_decref(name);
  }
  if (score->scored && !json_object_get(top, json_string_value(text)))
    json_object_set(top, json_string_value(text), logprob);
  json_array_append_new(l->top, score->scored ? top : (json_decref(top), json_null()));
  json_array_append_new(l->logprobs, logprob);
  json_array_append_new(l->offsets, json_integer(l->offset > l->skip ? l->offset - l->skip : 0));
  json_array_append_new(l->tokens, text);
}

static json_t *legacy_object(struct legacy l) {
  return json_pack("{so so so so}", "tokens", l.tokens, "token_logprobs", l.logprobs, "top_logprobs", l.top,
                   "text_offset", l.offsets);
}

static void legacy_add_all(const served *m, struct legacy *l, const scores *all) {
  weft_stream *s = weft_stream_new(weft_model_vocab(m->model), false);
  for (size_t k = 0; k < all->n; k++) {
    legacy_add(m, l, &all->at[k]);
    l->offset += streamed(s, all->at[k].id);
  }
  weft_stream_free(s);
}

// The prompt of a choice as text.
static void add_prompt_text(const call *c, int i, str *out) {
  const request *r = c->requests.at[i / (int)c->p.n];
  char *text;
  size_t n;
  if (weft_detokenize(weft_model_vocab(c->m->model), r->prompt.at, r->prompt.n, false, &text, &n, NULL)) return;
  str_addn(out, text, n);
  weft_free(text);
}

// Offset of the answer in the shown text.
static int64_t shown_before(const call *c, int i) {
  str text = {0};
  if (c->p.echo) add_prompt_text(c, i, &text);
  int64_t n = n_characters(text.at, text.n);
  str_free(&text);
  return n;
}

static json_t *completion_logprobs(const call *c, int i) {
  if (!c->p.logprobs) return json_null();
  struct legacy l = legacy_new(0);
  if (c->p.echo) {
    const request *r = c->requests.at[i / (int)c->p.n];
    weft_stream *s = weft_stream_new(weft_model_vocab(c->m->model), false);
    int64_t shown = shown_before(c, i), all = 0;
    for (size_t k = 0; k < r->prompt.n; k++) all += streamed(s, r->prompt.at[k]);
    weft_stream_free(s);
    l.skip = all - shown;
    legacy_add_all(c->m, &l, &c->prompt_scores[i / (int)c->p.n]);
    l.offset = shown;
    l.skip = 0;
  }
  legacy_add_all(c->m, &l, &c->choices[i].scores);
  return legacy_object(l);
}

static json_t *completion_choice(int i, json_t *text, json_t *logprobs, const char *finish) {
  return json_pack("{so si so ss?}", "text", text, "index", i, "logprobs", logprobs, "finish_reason", finish);
}

static void send_completion(call *c, json_t *choice, const struct timing *t) {
  json_t *o = head(c, "text_completion");
  json_object_set_new(o, "choices", json_pack("[o]", choice));
  if (t) json_object_set_new(o, "timings", timings_object(t));
  send_chunk(c, o);
}

static json_t *echoed(const call *c, int i) {
  str text = {0};
  if (c->p.echo) add_prompt_text(c, i, &text);
  str_addn(&text, str_c(&c->choices[i].content), c->choices[i].content.n);
  json_t *made = json_of_text(str_c(&text), text.n);
  str_free(&text);
  return made;
}

// For a stream: characters that each choice has sent.
static int64_t *sent_characters(call *c) {
  if (c->own) return c->own;
  int64_t *all = xcalloc((size_t)c->n_choices, sizeof *all);
  for (int i = 0; i < c->n_choices; i++) all[i] = shown_before(c, i);
  return c->own = all;
}

static void completion_start(call *c) {
  for (int i = 0; c->p.echo && i < c->n_choices; i++) {
    str text = {0};
    add_prompt_text(c, i, &text);
    send_completion(c, completion_choice(i, json_of_text(str_c(&text), text.n), json_null(), NULL), NULL);
    str_free(&text);
  }
}

static void completion_event(call *c, const event *e, int i) {
  int64_t *sent = &sent_characters(c)[i];
  struct legacy l = legacy_new(*sent);
  str text = {0};
  for (size_t k = 0; k < e->parts.n; k++) str_addn(&text, str_c(&e->parts.at[k].text), e->parts.at[k].text.n);
  const scores *all = &c->choices[i].scores;
  if (e->scored && all->n) legacy_add(c->m, &l, &all->at[all->n - 1]);
  *sent += n_characters(text.at, text.n);
  json_t *logprobs = legacy_object(l);
  if (e->kind == EVENT_END)
    send_completion(c, completion_choice(i, json_string(""), json_null(), finish_name(e->finish)), &e->timing);
  else if (e->kind == EVENT_TOKEN && (text.n || e->scored))
    send_completion(
      c,
      completion_choice(i, json_of_text(str_c(&text), text.n), e->scored ? json_incref(logprobs) : json_null(), NULL),
      NULL);
  json_decref(logprobs);
  str_free(&text);
}

static void completion_finish(call *c) {
  if (c->p.stream) { send_usage_and_done(c, "text_completion"); return; }
  json_t *o = head(c, "text_completion"), *all = json_array();
  for (int i = 0; i < c->n_choices; i++)
    json_array_append_new(
      all, completion_choice(i, echoed(c, i), completion_logprobs(c, i), finish_name(c->choices[i].finish)));
  json_object_set_new(o, "choices", all);
  json_object_set_new(o, "usage", usage(c));
  json_object_set_new(o, "timings", timings_object(&c->choices[c->n_choices - 1].timing));
  call_send(c, 200, o);
}

static const struct speaker completion_speaker = {"text/event-stream", ": ping\n",        completion_start,
                                                  completion_event,    completion_finish, stream_failed};

// The prompts' texts are written for each choice: as text, as JSON, and as a part of what is sent.
static int take_echo(call *c) {
  enum { COPIES = 3 };
  for (size_t i = 0; c->p.echo && i < c->requests.n; i++) {
    str text = {0};
    add_prompt_text(c, (int)(i * (size_t)c->p.n), &text);
    int bad = call_take(c, "echo", "the prompt in each answer", text.n * (size_t)c->p.n * COPIES);
    str_free(&text);
    if (bad) return -1;
  }
  return 0;
}

void openai_completions(server *s, exchange *x) {
  call *c = call_new(s, x, &completion_speaker);
  if (!c) return;
  new_id(s, "cmpl-", c->id, sizeof c->id);
  const json_t *logprobs = json_object_get(c->body, "logprobs");
  c->p.logprobs = logprobs && !json_is_null(logprobs);
  c->p.n_top = c->p.top_logprobs;
  c->score_bytes = LEGACY_SCORE_BYTES;
  // OpenAI's default
  bool said = json_object_get(c->body, "max_tokens") || json_object_get(c->body, "n_predict");
  if (!said && c->p.max_tokens < 0) c->p.max_tokens = 16;
  if (c->p.echo && c->p.logprobs && c->p.stream)
    fault_set(&c->fault, 400, "stream", "'stream': scores of the prompt do not come as a stream");
  if (c->fault.status || call_add_prompts(c, c->p.prompt, "prompt") || take_echo(c)) call_refuse(c);
  else call_go(c);
}

// ---- /v1/chat/completions -------------------------------------------------------------------------------------------

static const struct field chat_table[] = {
  FN(P, messages, "messages", F_ARRAY, SHAPE_MESSAGES, "the conversation: [{\"role\", \"content\"}]"),
  SHARED,
  FI(P, max_tokens, "max_completion_tokens", -1, INT32_MAX, "max_tokens by another name"),
  FB(P, logprobs, "logprobs", "log-probabilities of the tokens"),
  FI(P, top_logprobs, "top_logprobs", 0, 20, "and of the N likeliest at each place"),
  FS(P, tools, "tools", F_ARRAY, SHAPE_TOOLS, "functions that the model may call"),
  FS(P, tool_choice, "tool_choice", F_ANY, SHAPE_CHOICE,
     "auto, none, required, or {\"type\": \"function\", \"function\": {\"name\": NAME}}"),
  FS(P, parallel_calls, "parallel_tool_calls", F_ANY, SHAPE_YES_OR_NO, "false: the answer ends after one call"),
  FS(P, response_format, "response_format", F_OBJECT, SHAPE_FORMAT, "{\"type\": text, json_object or json_schema}"),
  FJ(P, variables, "chat_template_kwargs", F_OBJECT, "further variables of the chat template"),
  FJ(P, effort, "reasoning_effort", F_TEXT, "the template's variable of this name; none: no reasoning"),
  FJ(P, documents, "documents", F_ARRAY, "the template's variable of this name"),
  FB(P, add_special, "add_special_tokens",
     "a BOS in front where the model's file asks for one and the template writes none (default: --chat-bos)"),
};
static const struct fields chat_fields = FIELDS(chat_table);
const struct fields *const openai_chat_fields[] = {
  &chat_fields, &sampling_fields, &foreign_chat_fields, &llama_own_fields, &foreign_llama_fields, &common_fields, NULL};

static json_t *token_object(const call *c, int32_t id, double logprob) {
  json_t *text = piece_text(c->m, id), *bytes = json_array();
  size_t n;
  char *raw = weft_piece(weft_model_vocab(c->m->model), id, true, &n);
  for (size_t i = 0; i < n; i++) json_array_append_new(bytes, json_integer((unsigned char)raw[i]));
  weft_free(raw);
  bool post = c->p.post_sampling;
  return json_pack("{so so si sf}", "token", text, "bytes", bytes, "id", (int)id, post ? "prob" : "logprob",
                   post ? exp(logprob) : logprob);
}

json_t *chat_logprob(const call *c, const struct score *score) {
  json_t *o = token_object(c, score->id, score->logprob), *top = json_array();
  for (int32_t i = 0; i < score->n_top; i++)
    json_array_append_new(top, token_object(c, score->top[i].id, score->top[i].logprob));
  json_object_set_new(o, c->p.post_sampling ? "top_probs" : "top_logprobs", top);
  return o;
}

static json_t *chat_logprobs(const call *c, int i, bool last) {
  const scores *of = &c->choices[i].scores;
  json_t *all = json_array();
  if (!c->p.logprobs) { json_decref(all); return json_null(); }
  for (size_t k = last && of->n ? of->n - 1 : 0; k < of->n; k++)
    json_array_append_new(all, chat_logprob(c, &of->at[k]));
  return json_pack("{so sn}", "content", all, "refusal");
}

static void send_delta(call *c, int i, json_t *delta, json_t *logprobs, const char *finish, const struct timing *t) {
  json_t *o = head(c, "chat.completion.chunk");
  json_object_set_new(
    o, "choices",
    json_pack("[{si so so ss?}]", "index", i, "delta", delta, "logprobs", logprobs, "finish_reason", finish));
  if (t) json_object_set_new(o, "timings", timings_object(t));
  send_chunk(c, o);
}

static void chat_start(call *c) {
  for (int i = 0; i < c->n_choices; i++)
    send_delta(c, i, json_pack("{ss sn}", "role", "assistant", "content"), json_null(), NULL, NULL);
}

static json_t *delta_of(call *c, const struct part *p, int i) {
  json_t *text = json_of_text(str_c(&p->text), p->text.n);
  if (p->kind == WEFT_CONTENT) return json_pack("{so}", "content", text);
  if (p->kind == WEFT_REASONING) return json_pack("{so}", "reasoning_content", text);
  if (!p->name)
    return json_pack("{s[{si s{so}}]}", "tool_calls", "index", c->sent_calls[i] - 1, "function", "arguments", text);
  int index = c->sent_calls[i]++;
  return json_pack("{s[{si ss ss s{ss so}}]}", "tool_calls", "index", index, "id", p->id, "type", "function",
                   "function", "name", p->name, "arguments", text);
}

static void send_progress(call *c, const event *e, int i) {
  json_t *o = head(c, "chat.completion.chunk");
  json_object_set_new(o, "choices", json_pack("[{si s{} sn}]", "index", i, "delta", "finish_reason"));
  json_object_set_new(o, "prompt_progress", call_progress(e));
  send_chunk(c, o);
}

static void chat_event(call *c, const event *e, int i) {
  if (e->kind == EVENT_PROMPT && c->p.progress) send_progress(c, e, i);
  if (e->kind == EVENT_END) send_delta(c, i, json_object(), json_null(), finish_name(e->finish), &e->timing);
  if (e->kind != EVENT_TOKEN) return;
  bool scored = e->scored;
  for (size_t k = 0; k < e->parts.n; k++)
    if (e->parts.at[k].text.n || e->parts.at[k].name) {
      send_delta(c, i, delta_of(c, &e->parts.at[k], i), scored ? chat_logprobs(c, i, true) : json_null(), NULL, NULL);
      scored = false;
    }
  if (scored)
    send_delta(c, i, json_pack("{ss}", "content", ""), chat_logprobs(c, i, true), NULL, NULL);
}

static json_t *calls_of(const struct choice *h) {
  json_t *all = json_array();
  for (size_t i = 0; i < h->calls.n; i++) {
    const struct tool_call *t = &h->calls.at[i];
    json_array_append_new(all, json_pack("{ss ss s{ss so}}", "id", t->id, "type", "function", "function", "name",
                                         t->name, "arguments", json_of_text(str_c(&t->arguments), t->arguments.n)));
  }
  return all;
}

static json_t *message_of(const struct choice *h) {
  bool calls = h->calls.n > 0;
  json_t *content = calls && !h->content.n ? json_null() : json_of_text(str_c(&h->content), h->content.n);
  json_t *m = json_pack("{ss so}", "role", "assistant", "content", content);
  if (h->reasoning.n) json_object_set_new(m, "reasoning_content", json_of_text(h->reasoning.at, h->reasoning.n));
  if (calls) json_object_set_new(m, "tool_calls", calls_of(h));
  return m;
}

static void chat_finish(call *c) {
  if (c->p.stream) { send_usage_and_done(c, "chat.completion.chunk"); return; }
  json_t *o = head(c, "chat.completion"), *all = json_array();
  for (int i = 0; i < c->n_choices; i++)
    json_array_append_new(all,
                          json_pack("{si so so ss}", "index", i, "message", message_of(&c->choices[i]), "logprobs",
                                    chat_logprobs(c, i, false), "finish_reason", finish_name(c->choices[i].finish)));
  json_object_set_new(o, "choices", all);
  json_object_set_new(o, "usage", usage(c));
  json_object_set_new(o, "timings", timings_object(&c->choices[c->n_choices - 1].timing));
  call_send(c, 200, o);
}

static const struct speaker chat_speaker = {"text/event-stream", ": ping\n",  chat_start,
                                            chat_event,          chat_finish, stream_failed};

void openai_chat_count(server *s, exchange *x) {
  call *c = call_new(s, x, &chat_speaker);
  if (!c) return;
  c->counts = true;
  if (openai_tool_choice(c) || call_add_chat(c, c->p.messages, c->p.tools)) call_refuse(c);
  else call_answer(c, json_pack("{sI}", "input_tokens", (json_int_t)call_prompt_tokens(c)));
}

void openai_chat(server *s, exchange *x) {
  call *c = call_new(s, x, &chat_speaker);
  if (!c) return;
  new_id(s, "chatcmpl-", c->id, sizeof c->id);
  c->p.n_top = c->p.top_logprobs;
  if (c->p.top_logprobs && !c->p.logprobs)
    fault_set(&c->fault, 400, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
  if (c->fault.status || openai_tool_choice(c) || call_add_chat(c, c->p.messages, c->p.tools) ||
      call_format(c, c->p.response_format, "response_format"))
    call_refuse(c);
  else call_go(c);
}

// ---- /v1/completions/render, /v1/chat/completions/render ------------------------------------------------------------

// The token ids of a request's prompts, in vLLM's form: routers use them to find the replica that has the beginning of
// a prompt.
static json_t *rendered(call *c, const request *r, const char *field) {
  enum { ID_BYTES = 48 };              // of a number as JSON, in memory and as text
  if (call_fits(c, r) || call_take(c, field, "its token ids", r->prompt.n * ID_BYTES)) return NULL;
  json_t *ids = json_array();
  for (size_t i = 0; i < r->prompt.n; i++) json_array_append_new(ids, json_integer(r->prompt.at[i]));
  return json_pack("{ss ss so}", "request_id", c->id, "model", c->m->name, "token_ids", ids);
}

void openai_chat_render(server *s, exchange *x) {
  call *c = call_new(s, x, &chat_speaker);
  json_t *o = NULL;
  if (!c) return;
  new_id(s, "chatcmpl-", c->id, sizeof c->id);
  if (!openai_tool_choice(c) && !call_add_chat(c, c->p.messages, c->p.tools))
    o = rendered(c, c->requests.at[0], "messages");
  if (o) call_answer(c, o);
  else call_refuse(c);
}

void openai_completion_render(server *s, exchange *x) {
  call *c = call_new(s, x, &completion_speaker);
  if (!c) return;
  new_id(s, "cmpl-", c->id, sizeof c->id);
  json_t *all = json_array();
  bool fine = !call_add_prompts(c, c->p.prompt, "prompt");
  for (size_t i = 0; fine && i < c->requests.n; i++) {
    json_t *o = rendered(c, c->requests.at[i], "prompt");
    fine = o && !json_array_append_new(all, o);
  }
  if (fine) { call_answer(c, all); return; }
  json_decref(all);
  call_refuse(c);
}

// ---- /v1/embeddings -------------------------------------------------------------------------------------------------

static const struct field embedding_table[] = {
  FS(P, input, "input", F_ANY, SHAPE_SEEN_TEXTS, "a text, token ids, an object with pictures, or an array of such"),
  FS(P, messages, "messages", F_ARRAY, SHAPE_MESSAGES, "a conversation instead of input, as vLLM: it has one vector"),
  FB(P, generation, "add_generation_prompt", "the conversation ends where an answer would begin (default false)"),
  FB(P, continued, "continue_final_message", "its last message, of the assistant, has no end (default false)"),
  FJ(P, variables, "chat_template_kwargs", F_OBJECT, "further variables of the chat template"),
  FB(P, add_special, "add_special_tokens",
     "a BOS in front where the model's file asks for one and the template writes none (default: --chat-bos)"),
  FS(P, encoding, "encoding_format", F_TEXT, "{'enum':['float','base64']}",
     "float (default), or base64 of 32-bit floats"),
  FI(P, dimensions, "dimensions", 1, INT32_MAX, "elements of a vector: as many as the model makes"),
  FIGNORED("user", NULL, "no reports are sent"),
  FREFUSED("truncate_prompt_tokens", NULL, "a text is never cut"),
  FREFUSED("chat_template", NULL, "--chat-template-file gives another template"),
  FIGNORED("chat_template_content_format", NULL, "contents are texts"),
  FIGNORED("mm_processor_kwargs", NULL, "--image-max-tokens and its like are options of the server"),
  FIGNORED("priority", "[0]", "requests are served alternately by key"),
};
static const struct fields embedding_fields = FIELDS(embedding_table);
const struct fields *const openai_embedding_fields[] = {&embedding_fields, &common_fields, NULL};

static json_t *base64(const void *data, size_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const unsigned char *in = data;
  str s = {0};
  for (size_t i = 0; i < n; i += 3) {
    size_t left = n - i;
    unsigned three = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) | (left > 2 ? in[i + 2] : 0);
    for (unsigned k = 0; k < 4; k++) str_addc(&s, k <= left ? digits[three >> (18 - 6 * k) & 63] : '=');
  }
  json_t *text = json_stringn(str_c(&s), s.n);
  str_free(&s);
  return text;
}

static bool is_base64(const call *c) { return c->p.encoding && !strcmp(json_string_value(c->p.encoding), "base64"); }

static void embeddings_finish(call *c) {
  json_t *data = json_array();
  size_t n = c->choices[0].vectors.n, bytes = (size_t)weft_model_embedding_size(c->m->model) * sizeof(float);
  for (size_t i = 0; i < n; i++) {
    const float *v;
    call_vectors(c, i, (int)c->p.normalize, &v);
    json_array_append_new(data, json_pack("{ss sI so}", "object", "embedding", "index", (json_int_t)i, "embedding",
                                          is_base64(c) ? base64(v, bytes) : vector_numbers(c, v)));
  }
  json_int_t read = call_prompt_tokens(c);
  call_send(c, 200,
            json_pack("{ss so ss s{sI sI}}", "object", "list", "data", data, "model", c->m->name, "usage",
                      "prompt_tokens", read, "total_tokens", read));
}

static int check_embedding(call *c) {
  const char *form = c->p.encoding ? json_string_value(c->p.encoding) : "float";
  int32_t size = weft_model_embedding_size(c->m->model);
  if (strcmp(form, "float") && strcmp(form, "base64"))
    return fault_set(&c->fault, 400, "encoding_format", "'encoding_format' must be float or base64");
  if (c->p.dimensions && c->p.dimensions != size)
    return fault_set(&c->fault, 400, "dimensions", "'dimensions' is %lld, and this model's vectors have %d elements",
                     (long long)c->p.dimensions, size);
  return 0;
}

static int add_embedded(call *c) {
  if (!c->p.messages) return call_add_texts(c, c->p.input, "input", TEXTS_ONE | TEXTS_SEEN);
  if (c->p.input) return fault_set(&c->fault, 400, "messages", "'messages' and 'input': only one of them can be given");
  c->p.no_generation = !c->p.generation;
  c->p.ended = !c->p.continued;
  return call_add_seen_chat(c);
}

static const struct speaker embedding_speaker = {.finish = embeddings_finish};

void openai_embeddings(server *s, exchange *x) {
  call *c = call_new(s, x, &embedding_speaker);
  if (!c) return;
  c->p.stream = false;
  if (check_embedding(c) || add_embedded(c)) call_refuse(c);
  else call_go(c);
}
