// ollama's endpoints: JSON lines, streamed by default; errors are plain texts, times are in nanoseconds.
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/json.h"
#include "serve/media.h"
#include "serve/call.h"
#include "serve/caps.h"
#include "serve/families.h"
#include "serve/shapes.h"
#include "serve/tools.h"
#include "serve/vector.h"

static json_t *ollama_error(const fault *f) {
  return json_pack("{so}", "error", json_of_text(f->text, strlen(f->text)));
}
const struct family ollama_family = {
  "ollama", ollama_error,
  "{'type':'object','required':['error'],'properties':{'error':{'type':'string'}}}", "application/x-ndjson"};

// ---- the model ------------------------------------------------------------------------------------------------------

static json_t *time_text(int64_t seconds) {
  char text[64];
  time_t t = (time_t)seconds;
  struct tm tm;
  gmtime_r(&t, &tm);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S+00:00", &tm);
  return json_string(text);
}

static const json_t *file_value(const weft_file *f, const char *key, json_t **made) {
  size_t i;
  weft_value v;
  *made = NULL;
  if (weft_file_find(f, key, &i) || weft_file_value(f, i, &v)) return NULL;
  switch (v.type) {
  case WEFT_STRING: *made = json_of_text(v.text, v.n); break;
  case WEFT_FLOAT32: case WEFT_FLOAT64: *made = isfinite(v.f) ? json_real(v.f) : NULL; break;
  case WEFT_BOOL: *made = json_boolean(v.u != 0); break;
  case WEFT_INT8: case WEFT_INT16: case WEFT_INT32: case WEFT_INT64: *made = json_integer(v.i); break;
  case WEFT_ARRAY: break;
  default: *made = json_integer((json_int_t)v.u); break;
  }
  return *made;
}

static json_t *details(const served *m) {
  char size[32];
  double n = (double)m->n_params;
  const char *last = strrchr(m->summary, ' ');
  snprintf(size, sizeof size, n >= 1e9 ? "%.1fB" : "%.1fM", n >= 1e9 ? n / 1e9 : n / 1e6);
  return json_pack("{ss ss ss s[s] ss ss}", "parent_model", "", "format", "gguf", "family", m->arch, "families",
                   m->arch, "parameter_size", size, "quantization_level", last ? last + 1 : "");
}

// A value that changes with the file; not a hash of its bytes, which would require reading all of them.
static void digest(const served *m, char *out, size_t cap) {
  uint64_t h = hash_bytes(m->summary, strlen(m->summary), m->file_bytes), k = hash_u64(h, m->n_keys ^ m->stamp);
  snprintf(out, cap, "%016llx%016llx%016llx%016llx", (unsigned long long)h, (unsigned long long)k,
           (unsigned long long)hash_u64(k, h), (unsigned long long)hash_u64(h, k));
}

static json_t *model_entry(const served *m) {
  char sum[72];
  digest(m, sum, sizeof sum);
  return json_pack("{ss ss so sI ss so}", "name", m->name, "model", m->name, "modified_at", time_text(m->changed),
                   "size", (json_int_t)m->file_bytes, "digest", sum, "details", details(m));
}

// Clients require a minimum version of ollama (0.6.4 to 0.13.4 were seen) and refuse an older one.
#define OLLAMA_VERSION "0.18.2"

void ollama_version(server *s, exchange *x) {
  (void)s;
  answer_json(x, 200, json_pack("{ss ss}", "version", OLLAMA_VERSION, "weft", weft_version()));
}

static void add_tag(void *ctx, served *m) { json_array_append_new(ctx, model_entry(m)); }

void ollama_tags(server *s, exchange *x) {
  json_t *all = json_array();
  shelf_each(s->shelf, add_tag, all);
  answer_json(x, 200, json_pack("{so}", "models", all));
}

static void add_loaded(void *ctx, served *m) {
  enum { CENTURY = 1000000000 };       // seconds; longer means: as long as the server runs
  if (m->state != SERVED_IN) return;
  json_t *o = model_entry(m);
  double until = shelf_until(m);
  json_object_set_new(o, "expires_at",
                      time_text(until > 0 ? (int64_t)until : (int64_t)time(NULL) + 3 * (int64_t)CENTURY));
  json_object_set_new(o, "size_vram", json_integer(0));
  json_object_set_new(o, "context_length", json_integer(weft_model_context(m->model)));
  json_array_append_new(ctx, o);
}

void ollama_ps(server *s, exchange *x) {
  json_t *all = json_array();
  shelf_each(s->shelf, add_loaded, all);
  answer_json(x, 200, json_pack("{so}", "models", all));
}

#define P struct params
static const struct field show_table[] = {
  FJ(P, model, "model", F_TEXT, "the model; where the server has one, any name is taken"),
  FJ(P, input, "name", F_TEXT, "the same"),
  FIGNORED("verbose", "[false]", "answers always have all figures"),
  FREFUSED("system", "['']", "a model is used as its file has it"),
  FIGNORED("options", NULL, "a model is used as its file has it"),
  FREFUSED("template", "['']", "a model is used as its file has it")};
static const struct fields show_fields = FIELDS(show_table);
const struct fields *const ollama_show_fields[] = {&show_fields, NULL};

static json_t *model_info(const weft_file *f) {
  json_t *o = json_object(), *v;
  for (size_t i = 0; i < weft_file_n_keys(f); i++) {
    const char *key = weft_file_key(f, i);
    if (strncmp(key, "tokenizer.", 10) && file_value(f, key, &v)) json_object_set_new(o, key, v);
  }
  return o;
}

// ollama's names.
static json_t *capabilities(const served *m, const weft_file *f, const weft_template *t, const shelf *sh) {
  struct caps c = caps_of(f, t);
  weft_template *with_tools;
  weft_error none;
  if (t && !c.tools && !shelf_template(sh, f, true, &with_tools, &none)) {
    c.tools = true;
    weft_template_close(with_tools);
  }
  const struct { bool can; const char *name; } all[] = {{c.completes, "completion"},
                                                        {c.tools, "tools"},
                                                        {c.inserts, "insert"},
                                                        {m->media_kinds & WEFT_PICTURE, "vision"},
                                                        {m->media_kinds & WEFT_SOUND, "audio"},
                                                        {c.thinks, "thinking"},
                                                        {c.embeds, "embedding"}};
  json_t *names = json_array();
  for (size_t i = 0; i < COUNT(all); i++) if (all[i].can) json_array_append_new(names, json_string(all[i].name));
  return names;
}

// From the file, without loading the model.
void ollama_show(server *s, exchange *x) {
  fault f = {0};
  struct params p = {0};
  weft_file *file = NULL;
  weft_error err;
  weft_template *t;
  served *m = NULL;
  if (fields_read(asked_of(x)->body, "", show_fields, &p, &f)) m = NULL;
  else m = shelf_find(s->shelf, asked_of(x)->model ? asked_of(x)->model : json_string_value(p.input), &f);
  if (m && weft_file_open(m->path, &file, &err)) fault_set(&f, 500, NULL, "%s", err.text);
  if (f.status) { answer_fault(s, x, &f); return; }
  shelf_template(s->shelf, file, false, &t, &err);
  json_t *text = t ? template_text(t) : json_string("");
  answer_json(x, 200,
              json_pack("{so so so so ss ss so}", "details", details(m), "model_info", model_info(file), "capabilities",
                        capabilities(m, file, t, s->shelf), "template", text, "parameters", "", "modelfile", "",
                        "modified_at", time_text(m->changed)));
  weft_template_close(t);
  weft_file_close(file);
}

static const struct field pull_table[] = {
  FJ(P, model, "model", F_TEXT, "the model"), FJ(P, input, "name", F_TEXT, "the same"),
  FB(P, stream, "stream", "lines as it goes on (default true)"),
  FIGNORED("insecure", "[false]", "nothing is fetched")};
static const struct fields pull_fields = FIELDS(pull_table);
const struct fields *const ollama_pull_fields[] = {&pull_fields, NULL};

// Programs pull a model before they use it. An existing model is a success.
void ollama_pull(server *s, exchange *x) {
  static const char lines[] = "{\"status\":\"pulling manifest\"}\n{\"status\":\"success\"}\n";
  fault f = {0};
  struct params p = {.stream = true};
  const json_t *name = NULL;
  if (!fields_read(asked_of(x)->body, "", pull_fields, &p, &f)) name = p.model ? p.model : p.input;
  if (!f.status && !json_string_length(name)) fault_set(&f, 400, "model", "'model' is missing");
  if (!f.status && !shelf_find(s->shelf, json_string_value(name), &f))
    fault_set(&f, 404, "model", "the server fetches no models: 'weft pull' does");
  if (f.status) { answer_fault(s, x, &f); return; }
  if (refuse_misfit(x)) return;
  if (p.stream) exchange_send(x, 200, "application/x-ndjson", lines, sizeof lines - 1);
  else answer_json(x, 200, json_pack("{ss}", "status", "success"));
}

// ---- fields ---------------------------------------------------------------------------------------------------------

static const struct field options_table[] = {
  FI(P, max_tokens, "num_predict", -2, INT32_MAX, "tokens of the answer at most; -1, -2: until it ends"),
  FI(P, n_ctx, "num_ctx", 0, INT32_MAX, "at most the server's context, which -c sets")};
static const struct fields options_fields = FIELDS(options_table);
static const struct fields *const options_tables[] = {&options_fields, &sampling_fields, &foreign_options_fields, NULL};

#define SHARED \
  FB(P, stream, "stream", "lines as the answer is made (default true)"), \
  FO(P, nested, "options", options_tables, "num_predict, temperature, seed, stop and the like"), \
  FB(P, logprobs, "logprobs", "log-probabilities of the tokens"), \
  FI(P, top_logprobs, "top_logprobs", 0, 20, "and of the N likeliest at each place"), \
  FS(P, format, "format", F_ANY, "{'anyOf':[{'enum':['','json']}," SHAPE_SCHEMA "]}", \
     "json, or a schema of the answer"), \
  FJ(P, thinking, "think", F_ANY, "whether the model reasons first")
static const struct field chat_table[] = {
  FS(P, messages, "messages", F_ARRAY, "{'type':'array','items':" SHAPE_MESSAGE "}", "the conversation"),
  FS(P, tools, "tools", F_ARRAY, SHAPE_TOOLS, "functions that the model may call"), SHARED};
static const struct field generate_table[] = {
  FJ(P, prompt, "prompt", F_TEXT, "the prompt"), FJ(P, system, "system", F_TEXT, "what the model is told before"),
  FB(P, raw, "raw", "the prompt is taken unchanged"),
  FS(P, images, "images", F_ARRAY, SHAPE_TEXTS, "pictures before the prompt, in base64"),
  FS(P, suffix, "suffix", F_TEXT, "{'type':'string','maxLength':0}", "not supported here: /infill is"), SHARED};
static const struct fields chat_fields = FIELDS(chat_table), generate_fields = FIELDS(generate_table);
const struct fields *const ollama_chat_fields[] = {&chat_fields, &foreign_ollama_fields, &common_fields, NULL},
                           *const ollama_generate_fields[] = {&generate_fields, &foreign_generate_fields,
                                                              &common_fields, NULL};

// Also for requests that only load the model.
static int check_fields(call *c) {
  const json_t *v = c->p.format;
  const char *text = json_string_value(v);
  if (v && !json_is_object(v) && !json_is_boolean(v) && !(text && (!*text || !strcmp(text, "json"))))
    return fault_set(&c->fault, 400, "format", "'format' must be json or a schema");
  if (c->p.suffix && json_string_length(c->p.suffix))
    return fault_set(&c->fault, 400, "suffix", "'suffix' is not supported here; /infill takes one");
  return call_check_tools(c, c->p.tools);
}

// If there is no request yet, it is checked alone.
static int read_format(call *c) {
  const json_t *format = c->p.format;
  if (!format || (json_is_string(format) && !json_string_length(format))) return 0;
  return json_is_string(format) ? call_object(c, "format") : call_schema(c, format, false, "format");
}

static int read_options(call *c) {
  struct params *p = &c->p;
  if (p->n_ctx > weft_model_context(c->m->model)) call_ignores(c, "options.num_ctx");
  if (p->top_logprobs && !p->logprobs) return call_bad(c, "top_logprobs", "needs 'logprobs' to be true");
  p->n_top = p->top_logprobs;
  if (p->max_tokens < 0) p->max_tokens = -1;
  p->stream = !json_is_false(json_object_get(c->body, "stream"));
  return c->requests.n ? 0 : read_format(c);
}

// ---- messages -------------------------------------------------------------------------------------------------------

// Pictures come before the text.
static int add_images(call *c, json_t *message, const char *field, const json_t *images) {
  const json_t *one, *content = json_object_get(message, "content");
  str text = {0};
  size_t i;
  int status = 0;
  if (!json_array_size(images)) return 0;
  json_array_foreach(images, i, one) {
    if (status) break;
    status = json_is_string(one) ? call_add_data(c, field, one, &text)
                                 : call_bad(c, field, "has an image that is no text in base64");
  }
  str_addn(&text, json_string_value(content), json_string_length(content));
  if (!status) json_object_set_new(message, "content", json_of_text(str_c(&text), text.n));
  if (!status) json_object_del(message, "images");
  str_free(&text);
  return status;
}

static int adapt(call *c) {
  json_t *m;
  size_t i;
  json_array_foreach(c->p.messages, i, m) {
    if (add_images(c, m, "messages", json_object_get(m, "images"))) return -1;
    if (json_object_get(m, "thinking")) json_object_set(m, "reasoning_content", json_object_get(m, "thinking"));
    if (json_object_get(m, "tool_name")) json_object_set(m, "name", json_object_get(m, "tool_name"));
  }
  return 0;
}

// think: true, false, or a level: "low", "medium", "high".
static int add_ollama_chat(call *c, json_t *messages) {
  if (c->p.thinking) c->p.think = json_is_false(c->p.thinking) ? -1 : 1;
  if (json_is_string(c->p.thinking)) c->p.effort = c->p.thinking;
  tools_keep_functions(c, NULL);
  return call_add_chat(c, messages, c->p.tools);
}

static int add_generate(call *c) {
  const char *text = json_string_value(c->p.prompt);
  bool plain = c->p.raw || !c->m->tmpl;
  if (plain && json_array_size(c->p.images)) return call_bad(c, "images", "stand in conversations, not in raw prompts");
  if (plain) return call_add_text(c, text, json_string_length(c->p.prompt), c->p.raw);
  json_t *messages = json_array();
  if (c->p.system) json_array_append_new(messages, json_pack("{ss sO}", "role", "system", "content", c->p.system));
  json_t *message = json_pack("{ss sO}", "role", "user", "content", c->p.prompt);
  json_array_append_new(messages, message);
  int status = add_images(c, message, "images", c->p.images);
  if (!status) status = add_ollama_chat(c, messages);
  json_decref(messages);
  return status;
}

// ---- answers --------------------------------------------------------------------------------------------------------

// Calls [from, to) as the text of an array: arguments are objects here, as the model wrote them.
static void add_call_objects(str *out, const struct choice *h, size_t from, size_t to) {
  str_addc(out, '[');
  for (size_t i = from; i < to; i++) {
    const struct tool_call *t = &h->calls.at[i];
    str arguments = {0}, function = {0};
    call_arguments(t, &arguments);
    json_with_text(&function, json_pack("{ss}", "name", t->name), "arguments", &arguments);
    if (i > from) str_addc(out, ',');
    json_with_text(out, json_pack("{ss}", "id", t->id), "function", &function);
    str_free(&arguments);
    str_free(&function);
  }
  str_addc(out, ']');
}

static json_t *line_object(const char *model, bool chat, const str *content, const str *reasoning) {
  json_t *text = json_of_text(str_c(content), content->n),
         *o = json_pack("{ss so sb}", "model", model, "created_at", time_text((int64_t)time(NULL)), "done", 0);
  json_t *in = chat ? json_pack("{ss so}", "role", "assistant", "content", text) : o;
  if (chat) json_object_set_new(o, "message", in);
  else json_object_set_new(o, "response", text);
  if (reasoning->n) json_object_set_new(in, "thinking", json_of_text(reasoning->at, reasoning->n));
  return o;
}

static json_t *line(const call *c, const str *content, const str *reasoning) {
  return line_object(c->m->name, c->p.messages != NULL, content, reasoning);
}

// o (taken) as text, with these calls in its message.
static void add_line(str *out, json_t *o, const struct choice *h, size_t from, size_t to) {
  if (from == to) {
    char *text = json_dumps(o, JSON_COMPACT);
    str_add(out, text);
    free(text);
    json_decref(o);
    return;
  }
  str calls = {0}, message = {0};
  add_call_objects(&calls, h, from, to);
  json_with_text(&message, json_incref(json_object_get(o, "message")), "tool_calls", &calls);
  json_object_del(o, "message");
  json_with_text(out, o, "message", &message);
  str_free(&calls);
  str_free(&message);
}

static void add_end(const call *c, json_t *o) {
  const struct timing *t = &c->choices[0].timing;
  const enum finish f = c->choices[0].finish;
  json_object_set_new(o, "done", json_true());
  json_object_set_new(o, "done_reason", json_string(f == FINISH_LENGTH || f == FINISH_TIME ? "length" : "stop"));
  json_object_set_new(o, "total_duration", json_integer((json_int_t)(1e6 * (t->prompt_ms + t->drawn_ms))));
  json_object_set_new(o, "load_duration", json_integer(0));
  json_object_set_new(o, "prompt_eval_count", json_integer(t->n_prompt));
  json_object_set_new(o, "prompt_eval_duration", json_integer((json_int_t)(1e6 * t->prompt_ms)));
  json_object_set_new(o, "eval_count", json_integer(t->n_drawn));
  json_object_set_new(o, "eval_duration", json_integer((json_int_t)(1e6 * t->drawn_ms)));
}

// Of all tokens from number `from` on; next to the message.
static void add_logprobs(const call *c, json_t *o, size_t from) {
  const scores *of = &c->choices[0].scores;
  json_t *all = json_array();
  for (size_t i = from; i < of->n; i++) json_array_append_new(all, chat_logprob(c, &of->at[i]));
  if (json_array_size(all)) json_object_set(o, "logprobs", all);
  json_decref(all);
}

// Sends a call when it is complete, or when the answer has ended.
static void ollama_event(call *c, const event *e, int i) {
  struct choice now = {0};
  const struct choice *h = &c->choices[i];
  size_t from = (size_t)c->sent_calls[i], to = from;
  str text = {0};
  for (size_t k = 0; k < e->parts.n; k++) if (e->parts.at[k].kind != WEFT_CALL) choice_take(&now, &e->parts.at[k]);
  while (to < h->calls.n && (h->calls.at[to].done || to + 1 < h->calls.n || e->kind == EVENT_END)) to++;
  c->sent_calls[i] = (int)to;
  if (now.content.n || now.reasoning.n || to > from || e->scored) {
    json_t *o = line(c, &now.content, &now.reasoning);
    add_logprobs(c, o, h->scores.n - (e->scored && h->scores.n));
    add_line(&text, o, h, from, to);
    call_line_text(c, "", text.at, "\n");
  }
  str_free(&text);
  choice_clear(&now);
}

static void ollama_finish(call *c) {
  const str empty = {0};
  const struct choice *h = &c->choices[0];
  str text = {0};
  json_t *o = c->p.stream ? line(c, &empty, &empty) : line(c, &h->content, &h->reasoning);
  add_end(c, o);
  if (!c->p.stream) add_logprobs(c, o, 0);
  add_line(&text, o, h, 0, c->p.stream ? 0 : h->calls.n);
  if (c->p.stream) call_line_text(c, "", text.at, "\n");
  else call_send_text(c, 200, &text);
  str_free(&text);
}

static void ollama_failed(call *c, const fault *why) {
  call_line(c, "", json_pack("{so}", "error", json_of_text(why->text, strlen(why->text))), "\n");
}

static const struct speaker speaker = {"application/x-ndjson", NULL, NULL, ollama_event, ollama_finish, ollama_failed};

// A request without a prompt loads the model; with keep_alive 0 it unloads the model.
static bool is_goodbye(const json_t *body) {
  static const char *const beside[] = {"model", "keep_alive", "prompt", "messages", "stream"};
  const json_t *keep = json_object_get(body, "keep_alive"), *prompt = json_object_get(body, "prompt");
  bool none = json_is_number(keep) ? json_number_value(keep) == 0
                                   : json_is_string(keep) && !strspn(json_string_value(keep), "123456789-+.") &&
                                       *json_string_value(keep) == '0';
  if (!none || json_string_length(prompt) || json_array_size(json_object_get(body, "messages"))) return false;
  size_t said = 0;                     // other members are checked with the model
  for (size_t i = 0; i < COUNT(beside); i++) said += json_object_get(body, beside[i]) != NULL;
  return said == json_object_size(body);
}

static bool answer_goodbye(server *s, exchange *x, bool chat) {
  const struct asked *a = asked_of(x);
  const str empty = {0};
  fault f = {0};
  if (!is_goodbye(a->body)) return false;
  if (refuse_misfit(x)) return true;
  const served *m = shelf_find(s->shelf, a->model, &f);
  if (!m || shelf_unload(s->shelf, a->model, &f)) { answer_fault(s, x, &f); return true; }
  json_t *o = line_object(m->name, chat, &empty, &empty);
  json_object_set_new(o, "done", json_true());
  json_object_set_new(o, "done_reason", json_string("unload"));
  answer_json(x, 200, o);
  return true;
}

static bool answer_loaded(call *c, bool asked) {
  const str empty = {0};
  if (asked) return false;
  if (call_check(c)) { call_refuse(c); return true; }
  json_t *o = line(c, &empty, &empty);
  json_object_set_new(o, "done", json_true());
  json_object_set_new(o, "done_reason", json_string("load"));
  call_answer(c, o);
  return true;
}

void ollama_chat(server *s, exchange *x) {
  if (answer_goodbye(s, x, true) || !model_for(s, x)) return;
  call *c = call_new(s, x, &speaker);
  if (!c) return;
  if (check_fields(c)) { call_refuse(c); return; }
  if (read_options(c)) { call_refuse(c); return; }
  if (answer_loaded(c, json_array_size(c->p.messages) > 0)) return;
  if (adapt(c) || add_ollama_chat(c, c->p.messages) || read_format(c)) call_refuse(c);
  else call_go(c);
}

void ollama_generate(server *s, exchange *x) {
  if (answer_goodbye(s, x, false) || !model_for(s, x)) return;
  call *c = call_new(s, x, &speaker);
  if (!c) return;
  if (check_fields(c)) { call_refuse(c); return; }
  if (read_options(c)) { call_refuse(c); return; }
  if (answer_loaded(c, c->p.prompt && json_string_length(c->p.prompt))) return;
  if (add_generate(c) || read_format(c)) call_refuse(c);
  else call_go(c);
}

// ---- embeddings -----------------------------------------------------------------------------------------------------

static const struct field embed_table[] = {
  FN(P, input, "input", F_ANY, SHAPE_PROMPT, "a text, or an array of texts"),
  FB(P, truncate, "truncate", "a text that is too long is cut (default); false: it is refused"),
  FI(P, dimensions, "dimensions", 0, INT32_MAX, "elements of a vector: as many as the model makes"),
  FO(P, nested, "options", options_tables, "num_ctx and the like mean nothing here"),
};
static const struct fields embed_fields = FIELDS(embed_table);
static const struct field embedding_table[] = {
  FN(P, input, "prompt", F_TEXT, NULL, "a text"),
  FO(P, nested, "options", options_tables, "num_ctx and the like mean nothing here"),
};
static const struct fields embedding_fields = FIELDS(embedding_table);
const struct fields *const ollama_embed_fields[] = {&embed_fields, &common_fields, NULL},
                    *const ollama_embedding_fields[] = {&embedding_fields, &common_fields, NULL};

static void embed_finish(call *c) {
  const struct timing *t = &c->choices[0].timing;
  json_t *all = json_array();
  for (size_t i = 0; i < c->choices[0].vectors.n; i++) {
    const float *v;
    call_vectors(c, i, 2, &v);
    json_array_append_new(all, vector_numbers(c, v));
  }
  call_send(c, 200,
            json_pack("{ss so sI si sI}", "model", c->m->name, "embeddings", all, "total_duration",
                      (json_int_t)(1e6 * t->prompt_ms), "load_duration", 0, "prompt_eval_count",
                      (json_int_t)t->n_prompt));
}

static void embedding_finish(call *c) {
  const float *v;
  call_vectors(c, 0, -1, &v);
  call_send(c, 200, json_pack("{so}", "embedding", vector_numbers(c, v)));
}

static const struct speaker embed_speaker = {.finish = embed_finish}, embedding_speaker = {.finish = embedding_finish};

static void go_embed(call *c, const char *name) {
  int32_t size = weft_model_embedding_size(c->m->model);
  c->p.stream = false;
  if (c->p.dimensions && c->p.dimensions != size)
    fault_set(&c->fault, 400, "dimensions", "'dimensions' is %lld, and this model's vectors have %d elements",
              (long long)c->p.dimensions, size);
  unsigned how = TEXTS_ONE | (c->p.truncate ? TEXTS_CUT : 0u);
  if (c->fault.status || call_add_texts(c, c->p.input, name, how)) call_refuse(c);
  else call_go(c);
}

void ollama_embed(server *s, exchange *x) {
  call *c = call_new(s, x, &embed_speaker);
  if (!c) return;
  const json_t *truncate = json_object_get(c->body, "truncate");
  c->p.truncate |= !truncate || json_is_null(truncate);
  go_embed(c, "input");
}

void ollama_embedding(server *s, exchange *x) {
  call *c = call_new(s, x, &embedding_speaker);
  if (!c) return;
  c->p.truncate = true;
  go_embed(c, "prompt");
}
