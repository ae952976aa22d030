// ollama's endpoints: lines of JSON, which come as a stream unless that is declined; errors are bare texts, times
// nanoseconds.
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/json.h"
#include "serve/call.h"
#include "serve/families.h"
#include "serve/shapes.h"
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

// Something that changes with the file, though it is no hash of its bytes: that would mean reading all of them.
static void digest(const served *m, char *out, size_t cap) {
  uint64_t h = hash_bytes(m->summary, strlen(m->summary), m->file_bytes), k = hash_u64(h, m->n_keys);
  snprintf(out, cap, "%016llx%016llx%016llx%016llx", (unsigned long long)h, (unsigned long long)k,
           (unsigned long long)hash_u64(k, h), (unsigned long long)hash_u64(h, k));
}

static json_t *model_entry(const served *m) {
  char sum[72];
  digest(m, sum, sizeof sum);
  return json_pack("{ss ss so sI ss so}", "name", m->name, "model", m->name, "modified_at", time_text(m->changed),
                   "size", (json_int_t)m->file_bytes, "digest", sum, "details", details(m));
}

void ollama_version(server *s, exchange *x) {
  (void)s;
  answer_json(x, 200, json_pack("{ss}", "version", weft_version()));
}

static void add_tag(void *ctx, served *m) { json_array_append_new(ctx, model_entry(m)); }

void ollama_tags(server *s, exchange *x) {
  json_t *all = json_array();
  shelf_each(s->shelf, add_tag, all);
  answer_json(x, 200, json_pack("{so}", "models", all));
}

static void add_loaded(void *ctx, served *m) {
  enum { CENTURY = 1000000000 };       // seconds and more: as long as the server runs
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
  FJ(P, input, "name", F_TEXT, "the same")};
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

// From the file: nothing is loaded for it.
void ollama_show(server *s, exchange *x) {
  fault f = {0};
  struct params p = {0};
  weft_file *file = NULL;
  weft_error err;
  json_t *template;
  size_t i;
  served *m = NULL;
  if (fields_read(asked_of(x)->body, "", show_fields, &p, &f)) m = NULL;
  else m = shelf_find(s->shelf, asked_of(x)->model ? asked_of(x)->model : json_string_value(p.input), &f);
  if (m && weft_file_open(m->path, &file, &err)) fault_set(&f, 500, NULL, "%s", err.text);
  if (f.status) { answer_fault(s, x, &f); return; }
  if (!file_value(file, "tokenizer.chat_template", &template)) template = json_string("");
  json_t *can = json_pack(
    "[s]", weft_file_find(file, "tokenizer.ggml.model", &i) || strstr(m->arch, "bert") ? "embedding" : "completion");
  if (json_string_length(template)) json_array_append_new(can, json_string("tools"));
  answer_json(x, 200,
              json_pack("{so so so so ss ss so}", "details", details(m), "model_info", model_info(file), "capabilities",
                        can, "template", template, "parameters", "", "modelfile", "", "modified_at",
                        time_text(m->changed)));
  weft_file_close(file);
}

// ---- fields ---------------------------------------------------------------------------------------------------------

#define SHARED \
  FJ(P, model, "model", F_TEXT, "the model; where the server has one, any name is taken"), \
  FB(P, stream, "stream", "lines as the answer is made (default true)"), \
  FJ(P, options, "options", F_OBJECT, "num_predict, temperature, seed, stop and the like"), \
  FS(P, format, "format", F_ANY, "{'anyOf':[{'enum':['','json']}," SHAPE_SCHEMA "]}", \
     "json, or a schema of the answer"), \
  FJ(P, thinking, "think", F_ANY, "whether the model reasons first")
static const struct field chat_table[] = {
  FS(P, messages, "messages", F_ARRAY, "{'type':'array','items':" SHAPE_MESSAGE "}", "the conversation"),
  FS(P, tools, "tools", F_ARRAY, SHAPE_TOOLS, "functions that the model may call"), SHARED};
static const struct field generate_table[] = {
  FJ(P, prompt, "prompt", F_TEXT, "the prompt"), FJ(P, system, "system", F_TEXT, "what the model is told before"),
  FB(P, raw, "raw", "the prompt is taken as it stands"),
  FS(P, suffix, "suffix", F_TEXT, "{'type':'string','maxLength':0}", "not supported here: /infill is"), SHARED};
static const struct fields chat_fields = FIELDS(chat_table), generate_fields = FIELDS(generate_table);
const struct fields *const ollama_chat_fields[] = {&chat_fields, NULL}, *const ollama_generate_fields[] = {
                                                                          &generate_fields, NULL};
static const struct field options_table[] = {
  FI(P, max_tokens, "num_predict", -2, INT32_MAX, "tokens of the answer at most; -1, -2: until it ends")};
static const struct fields options_fields = FIELDS(options_table);

// Also where the request only loads the model.
static int check_fields(call *c) {
  const json_t *v = c->p.format;
  const char *text = json_string_value(v);
  if (v && !json_is_object(v) && !json_is_boolean(v) && !(text && (!*text || !strcmp(text, "json"))))
    return fault_set(&c->fault, 400, "format", "'format' must be json or a schema");
  if (c->p.suffix && json_string_length(c->p.suffix))
    return fault_set(&c->fault, 400, "suffix", "'suffix' is not supported here; /infill takes one");
  return call_check_tools(c, c->p.tools);
}

static int read_options(call *c) {
  struct params *p = &c->p;
  const json_t *format = p->format;
  if (fields_read(p->options, "options.", sampling_fields, p, &c->fault) ||
      fields_read(p->options, "options.", options_fields, p, &c->fault))
    return -1;
  if (p->max_tokens < 0) p->max_tokens = -1;
  p->stream = !json_is_false(json_object_get(c->body, "stream"));
  if (!format || (json_is_string(format) && !json_string_length(format))) return 0;
  if (!json_is_string(format)) return call_schema(c, format, "format");
  json_t *any = json_pack("{ss}", "type", "object");
  int status = call_schema(c, any, "format");
  json_decref(any);
  return status;
}

// ---- messages -------------------------------------------------------------------------------------------------------

static int adapt(call *c) {
  json_t *m;
  size_t i;
  json_array_foreach(c->p.messages, i, m) {
    if (json_array_size(json_object_get(m, "images")))
      return fault_set(&c->fault, 400, "messages", "'messages' has images: only text is understood");
    if (json_object_get(m, "thinking")) json_object_set(m, "reasoning_content", json_object_get(m, "thinking"));
    if (json_object_get(m, "tool_name")) json_object_set(m, "name", json_object_get(m, "tool_name"));
  }
  return 0;
}

static json_t *variables(const call *c) {
  return c->p.thinking ? json_pack("{sb}", "enable_thinking", !json_is_false(c->p.thinking)) : NULL;
}

static int add_chat(call *c, json_t *messages) {
  json_t *more = variables(c);
  int status = call_add_chat(c, messages, c->p.tools, more);
  json_decref(more);
  return status;
}

static int add_generate(call *c) {
  if (json_array_size(json_object_get(c->body, "images")))
    return fault_set(&c->fault, 400, "images", "'images': only text is understood");
  const char *text = json_string_value(c->p.prompt);
  if (c->p.raw || !c->m->tmpl) return call_add_text(c, text, json_string_length(c->p.prompt), c->p.raw);
  json_t *messages = json_array();
  if (c->p.system) json_array_append_new(messages, json_pack("{ss sO}", "role", "system", "content", c->p.system));
  json_array_append_new(messages, json_pack("{ss sO}", "role", "user", "content", c->p.prompt));
  int status = add_chat(c, messages);
  json_decref(messages);
  return status;
}

// ---- answers --------------------------------------------------------------------------------------------------------

// A tool's arguments are an object here.
static json_t *calls_with_objects(const json_t *calls) {
  json_t *all = json_array(), *one;
  size_t i;
  json_array_foreach(calls, i, one) {
    const json_t *text = json_object_get(one, "arguments");
    json_t *arguments = json_read(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, NULL, NULL);
    if (!json_is_object(arguments)) { json_decref(arguments); arguments = json_object(); }
    json_array_append_new(
      all, json_pack("{s{sO so}}", "function", "name", json_object_get(one, "name"), "arguments", arguments));
  }
  return all;
}

static json_t *line_object(const char *model, bool chat, const str *content, const str *reasoning, json_t *calls) {
  json_t *text = json_of_text(str_c(content), content->n),
         *o = json_pack("{ss so sb}", "model", model, "created_at", time_text((int64_t)time(NULL)), "done", 0);
  json_t *in = chat ? json_pack("{ss so}", "role", "assistant", "content", text) : o;
  if (chat) json_object_set_new(o, "message", in);
  else json_object_set_new(o, "response", text);
  if (reasoning->n) json_object_set_new(in, "thinking", json_of_text(reasoning->at, reasoning->n));
  if (json_array_size(calls)) json_object_set_new(in, "tool_calls", calls_with_objects(calls));
  return o;
}

static json_t *line(const call *c, const str *content, const str *reasoning, json_t *calls) {
  return line_object(c->m->name, c->p.messages != NULL, content, reasoning, calls);
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

static void ollama_event(call *c, const event *e, int i) {
  struct choice now = {.calls = json_array()};
  (void)i;
  for (size_t k = 0; k < e->parts.n; k++) choice_take(&now, &e->parts.at[k]);
  if (now.content.n || now.reasoning.n || json_array_size(now.calls))
    call_line(c, "", line(c, &now.content, &now.reasoning, now.calls), "\n");
  json_decref(now.calls);
  str_free(&now.content);
  str_free(&now.reasoning);
}

static void ollama_finish(call *c) {
  const str empty = {0};
  const struct choice *h = &c->choices[0];
  json_t *o = c->p.stream ? line(c, &empty, &empty, NULL) : line(c, &h->content, &h->reasoning, h->calls);
  add_end(c, o);
  if (c->p.stream) call_line(c, "", o, "\n");
  else call_send(c, 200, o);
}

static void ollama_failed(call *c, const char *text) {
  call_line(c, "", json_pack("{so}", "error", json_of_text(text, strlen(text))), "\n");
}

static const struct speaker speaker = {"application/x-ndjson", NULL, NULL, ollama_event, ollama_finish, ollama_failed};

// A request without a prompt loads the model, or with a keep_alive of 0 unloads it.
static bool is_goodbye(const json_t *body) {
  const json_t *keep = json_object_get(body, "keep_alive"), *prompt = json_object_get(body, "prompt");
  bool none = json_is_number(keep) ? json_number_value(keep) == 0
                                   : json_is_string(keep) && !strspn(json_string_value(keep), "123456789-+.") &&
                                       *json_string_value(keep) == '0';
  return none && !json_string_length(prompt) && !json_array_size(json_object_get(body, "messages"));
}

static bool answer_goodbye(server *s, exchange *x, bool chat) {
  const struct asked *a = asked_of(x);
  const str empty = {0};
  fault f = {0};
  if (!is_goodbye(a->body)) return false;
  const served *m = shelf_find(s->shelf, a->model, &f);
  if (!m || shelf_unload(s->shelf, a->model, &f)) { answer_fault(s, x, &f); return true; }
  json_t *o = line_object(m->name, chat, &empty, &empty, NULL);
  json_object_set_new(o, "done", json_true());
  json_object_set_new(o, "done_reason", json_string("unload"));
  answer_json(x, 200, o);
  return true;
}

static bool answer_loaded(call *c, bool asked) {
  const str empty = {0};
  if (asked) return false;
  json_t *o = line(c, &empty, &empty, NULL);
  json_object_set_new(o, "done", json_true());
  json_object_set_new(o, "done_reason", json_string("load"));
  call_answer(c, o);
  return true;
}

void ollama_chat(server *s, exchange *x) {
  if (answer_goodbye(s, x, true) || !model_for(s, x)) return;
  call *c = call_new(s, x, &speaker, chat_fields);
  if (!c) return;
  if (check_fields(c)) { call_refuse(c); return; }
  if (answer_loaded(c, json_array_size(c->p.messages) > 0)) return;
  if (adapt(c) || add_chat(c, c->p.messages) || read_options(c)) call_refuse(c);
  else call_go(c);
}

void ollama_generate(server *s, exchange *x) {
  if (answer_goodbye(s, x, false) || !model_for(s, x)) return;
  call *c = call_new(s, x, &speaker, generate_fields);
  if (!c) return;
  if (check_fields(c)) { call_refuse(c); return; }
  if (answer_loaded(c, c->p.prompt && json_string_length(c->p.prompt))) return;
  if (add_generate(c) || read_options(c)) call_refuse(c);
  else call_go(c);
}

// ---- vectors of texts -----------------------------------------------------------------------------------------------

static const struct field embed_table[] = {
  FN(P, input, "input", F_ANY, SHAPE_PROMPT, "a text, or an array of texts"),
  FB(P, truncate, "truncate", "a text that is too long is cut (default); false: it is refused"),
  FI(P, dimensions, "dimensions", 0, INT32_MAX, "elements of a vector: as many as the model makes"),
};
static const struct fields embed_fields = FIELDS(embed_table);
static const struct field embedding_table[] = {FN(P, input, "prompt", F_TEXT, NULL, "a text")};
static const struct fields embedding_fields = FIELDS(embedding_table);
const struct fields *const ollama_embed_fields[] = {&embed_fields, NULL}, *const ollama_embedding_fields[] = {
                                                                            &embedding_fields, NULL};

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
  if (c->fault.status || call_add_texts(c, c->p.input, name, true, c->p.truncate)) call_refuse(c);
  else call_go(c);
}

void ollama_embed(server *s, exchange *x) {
  call *c = call_new(s, x, &embed_speaker, embed_fields);
  if (!c) return;
  const json_t *truncate = json_object_get(c->body, "truncate");
  c->p.truncate |= !truncate || json_is_null(truncate);
  go_embed(c, "input");
}

void ollama_embedding(server *s, exchange *x) {
  call *c = call_new(s, x, &embedding_speaker, embedding_fields);
  if (!c) return;
  c->p.truncate = true;
  go_embed(c, "prompt");
}
