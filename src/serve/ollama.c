// ollama's endpoints: lines of JSON, which come as a stream unless that is declined; errors are bare texts, times nanoseconds.
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "serve/call.h"
#include "serve/families.h"
#include "serve/vector.h"

static json_t *ollama_error(const fault *f) { return json_pack("{so}", "error", json_of_text(f->text, strlen(f->text))); }
const struct family ollama_family = {"ollama", ollama_error};

// ---- the model ----------------------------------------------------------------------------------------------------------------------------

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

static json_t *details(const server *s) {
  json_t *arch;
  const weft_file *f = weft_model_file(sched_model(s->sched));
  char size[32];
  double n = (double)weft_file_n_params(f);
  const char *last = strrchr(s->summary, ' ');
  snprintf(size, sizeof size, n >= 1e9 ? "%.1fB" : "%.1fM", n >= 1e9 ? n / 1e9 : n / 1e6);
  const char *name = json_string_value(file_value(f, "general.architecture", &arch));
  json_t *o = json_pack("{ss ss ss s[s] ss ss}", "parent_model", "", "format", "gguf", "family", name ? name : "", "families", name ? name : "",
                        "parameter_size", size, "quantization_level", last ? last + 1 : "");
  json_decref(arch);
  return o;
}

// Something that changes with the file, though it is no hash of its bytes: that would mean reading all of them.
static void digest(const server *s, char *out, size_t cap) {
  const weft_file *f = weft_model_file(sched_model(s->sched));
  uint64_t h = hash_bytes(s->summary, strlen(s->summary), weft_file_bytes(f)), k = hash_u64(h, weft_file_n_keys(f));
  snprintf(out, cap, "%016llx%016llx%016llx%016llx", (unsigned long long)h, (unsigned long long)k, (unsigned long long)hash_u64(k, h),
           (unsigned long long)hash_u64(h, k));
}

static json_t *model_entry(const server *s) {
  char sum[72];
  digest(s, sum, sizeof sum);
  return json_pack("{ss ss so sI ss so}", "name", s->model_name, "model", s->model_name, "modified_at", time_text(s->started), "size",
                   (json_int_t)weft_file_bytes(weft_model_file(sched_model(s->sched))), "digest", sum, "details", details(s));
}

void ollama_version(server *s, exchange *x) {
  (void)s;
  answer_json(x, 200, json_pack("{ss}", "version", weft_version()));
}

void ollama_tags(server *s, exchange *x) { answer_json(x, 200, json_pack("{s[o]}", "models", model_entry(s))); }

void ollama_ps(server *s, exchange *x) {
  json_t *m = model_entry(s);
  json_object_set_new(m, "expires_at", time_text((int64_t)time(NULL) + 365 * 86400));
  json_object_set_new(m, "size_vram", json_integer(0));
  json_object_set_new(m, "context_length", json_integer(weft_model_context(sched_model(s->sched))));
  answer_json(x, 200, json_pack("{s[o]}", "models", m));
}

#define P struct params
static const struct field show_table[] = {FJ(P, model, "model", F_TEXT, "the model; any name is taken"), FJ(P, input, "name", F_TEXT, "the same")};
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

void ollama_show(server *s, exchange *x) {
  fault f = {0};
  const weft_file *file = weft_model_file(sched_model(s->sched));
  json_t *body = json_body(&x->body, &f), *template;
  struct params p = {0};
  if (!body || fields_read(body, "", show_fields, &p, &f)) {
    answer_fault(s, x, &f);
  } else {
    if (!file_value(file, "tokenizer.chat_template", &template)) template = json_string("");
    json_t *can = json_pack("[s]", weft_model_only_embeds(sched_model(s->sched)) ? "embedding" : "completion");
    if (s->tmpl) json_array_append_new(can, json_string("tools"));
    answer_json(x, 200, json_pack("{so so so so ss ss so}", "details", details(s), "model_info", model_info(file), "capabilities", can, "template", template,
                                  "parameters", "", "modelfile", "", "modified_at", time_text(s->started)));
  }
  json_decref(body);
}

// ---- fields -----------------------------------------------------------------------------------------------------------------------------

#define SHARED \
  FJ(P, model, "model", F_TEXT, "the model; any name is taken"), \
  FB(P, stream, "stream", "lines as the answer is made (default true)"), \
  FJ(P, options, "options", F_OBJECT, "num_predict, temperature, seed, stop and the like"), \
  FJ(P, format, "format", F_ANY, "json, or a schema of the answer"), \
  FJ(P, thinking, "think", F_ANY, "whether the model reasons first")
static const struct field chat_table[] = {
  FJ(P, messages, "messages", F_ARRAY, "the conversation"), FJ(P, tools, "tools", F_ARRAY, "functions that the model may call"), SHARED};
static const struct field generate_table[] = {
  FJ(P, prompt, "prompt", F_TEXT, "the prompt"), FJ(P, system, "system", F_TEXT, "what the model is told before"),
  FB(P, raw, "raw", "the prompt is taken as it stands"), FJ(P, suffix, "suffix", F_TEXT, "not supported here: /infill is"), SHARED};
static const struct fields chat_fields = FIELDS(chat_table), generate_fields = FIELDS(generate_table);
const struct fields *const ollama_chat_fields[] = {&chat_fields, NULL}, *const ollama_generate_fields[] = {&generate_fields, NULL};
static const struct field options_table[] = {FI(P, max_tokens, "num_predict", -2, INT32_MAX, "tokens of the answer at most; -1, -2: until it ends")};
static const struct fields options_fields = FIELDS(options_table);

static int read_options(call *c) {
  struct params *p = &c->p;
  const json_t *format = p->format;
  if (fields_read(p->options, "options.", sampling_fields, p, &c->fault) || fields_read(p->options, "options.", options_fields, p, &c->fault)) return -1;
  if (p->max_tokens < 0) p->max_tokens = -1;
  p->stream = !json_is_false(json_object_get(c->body, "stream"));
  if (!format || (json_is_string(format) && !json_string_length(format))) return 0;
  if (!json_is_string(format)) return call_schema(c, format, "format");
  if (strcmp(json_string_value(format), "json")) return fault_set(&c->fault, 400, "format", "'format' must be json or a schema");
  json_t *any = json_pack("{ss}", "type", "object");
  int status = call_schema(c, any, "format");
  json_decref(any);
  return status;
}

// ---- messages ---------------------------------------------------------------------------------------------------------------------------

static int adapt(call *c) {
  json_t *m;
  size_t i;
  json_array_foreach(c->p.messages, i, m) {
    if (json_array_size(json_object_get(m, "images"))) return fault_set(&c->fault, 400, "messages", "'messages' has images: only text is understood");
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

static int add_prompt(call *c) {
  if (c->p.suffix && json_string_length(c->p.suffix)) return fault_set(&c->fault, 400, "suffix", "'suffix' is not supported here; /infill takes one");
  if (json_array_size(json_object_get(c->body, "images"))) return fault_set(&c->fault, 400, "images", "'images': only text is understood");
  const char *text = json_string_value(c->p.prompt);
  if (c->p.raw || !c->s->tmpl) return call_add_text(c, text, json_string_length(c->p.prompt), c->p.raw);
  json_t *messages = json_array();
  if (c->p.system) json_array_append_new(messages, json_pack("{ss sO}", "role", "system", "content", c->p.system));
  json_array_append_new(messages, json_pack("{ss sO}", "role", "user", "content", c->p.prompt));
  int status = add_chat(c, messages);
  json_decref(messages);
  return status;
}

// ---- answers ----------------------------------------------------------------------------------------------------------------------------

// A tool's arguments are an object here.
static json_t *calls_of(const json_t *calls) {
  json_t *all = json_array(), *one;
  size_t i;
  json_array_foreach(calls, i, one) {
    const json_t *text = json_object_get(one, "arguments");
    json_error_t e;
    json_t *arguments = json_loadb(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, &e);
    if (!json_is_object(arguments)) { json_decref(arguments); arguments = json_object(); }
    json_array_append_new(all, json_pack("{s{sO so}}", "function", "name", json_object_get(one, "name"), "arguments", arguments));
  }
  return all;
}

static json_t *line(const call *c, const str *content, const str *reasoning, json_t *calls) {
  json_t *text = json_of_text(str_c(content), content->n), *o = json_pack("{ss so sb}", "model", c->s->model_name, "created_at", time_text((int64_t)time(NULL)), "done", 0);
  bool chat = c->p.messages != NULL;
  json_t *in = chat ? json_pack("{ss so}", "role", "assistant", "content", text) : o;
  if (chat) json_object_set_new(o, "message", in);
  else json_object_set_new(o, "response", text);
  if (reasoning->n) json_object_set_new(in, "thinking", json_of_text(reasoning->at, reasoning->n));
  if (json_array_size(calls)) json_object_set_new(in, "tool_calls", calls_of(calls));
  return o;
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

static void on_event(call *c, const event *e, int i) {
  struct choice now = {.calls = json_array()};
  (void)i;
  for (size_t k = 0; k < e->parts.n; k++) choice_take(&now, &e->parts.at[k]);
  if (now.content.n || now.reasoning.n || json_array_size(now.calls)) call_line(c, "", line(c, &now.content, &now.reasoning, now.calls), "\n");
  json_decref(now.calls);
  str_free(&now.content);
  str_free(&now.reasoning);
}

static void on_finish(call *c) {
  const str empty = {0};
  const struct choice *h = &c->choices[0];
  json_t *o = c->p.stream ? line(c, &empty, &empty, NULL) : line(c, &h->content, &h->reasoning, h->calls);
  add_end(c, o);
  if (c->p.stream) call_line(c, "", o, "\n");
  else call_send(c, 200, o);
}

static void on_failed(call *c, const char *text) { call_line(c, "", json_pack("{so}", "error", json_of_text(text, strlen(text))), "\n"); }

static const struct speaker speaker = {"application/x-ndjson", NULL, NULL, on_event, on_finish, on_failed};

// A request without a prompt asks whether the model is loaded.
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
  call *c = call_new(s, x, &speaker, chat_fields);
  if (!c || answer_loaded(c, json_array_size(c->p.messages) > 0)) return;
  if (adapt(c) || add_chat(c, c->p.messages) || read_options(c)) call_refuse(c);
  else call_go(c);
}

void ollama_generate(server *s, exchange *x) {
  call *c = call_new(s, x, &speaker, generate_fields);
  if (!c || answer_loaded(c, c->p.prompt && json_string_length(c->p.prompt))) return;
  if (add_prompt(c) || read_options(c)) call_refuse(c);
  else call_go(c);
}

// ---- vectors of texts ---------------------------------------------------------------------------------------------------------------------

static const struct field embed_table[] = {
  FJ(P, input, "input", F_ANY, "a text, or an array of texts"),
  FB(P, truncate, "truncate", "a text that is too long is cut (default); false: it is refused"),
  FI(P, dimensions, "dimensions", 0, INT32_MAX, "elements of a vector: as many as the model makes"),
};
static const struct fields embed_fields = FIELDS(embed_table);
static const struct field embedding_table[] = {FJ(P, input, "prompt", F_TEXT, "a text")};
static const struct fields embedding_fields = FIELDS(embedding_table);
const struct fields *const ollama_embed_fields[] = {&embed_fields, NULL}, *const ollama_embedding_fields[] = {&embedding_fields, NULL};

static void embed_finish(call *c) {
  const struct timing *t = &c->choices[0].timing;
  json_t *all = json_array();
  for (size_t i = 0; i < c->choices[0].vectors.n; i++) {
    const float *v;
    call_vectors(c, i, 2, &v);
    json_array_append_new(all, vector_numbers(c, v));
  }
  call_send(c, 200, json_pack("{ss so sI si sI}", "model", c->s->model_name, "embeddings", all, "total_duration", (json_int_t)(1e6 * t->prompt_ms), "load_duration", 0,
                              "prompt_eval_count", (json_int_t)t->n_prompt));
}

static void embedding_finish(call *c) {
  const float *v;
  call_vectors(c, 0, -1, &v);
  call_send(c, 200, json_pack("{so}", "embedding", vector_numbers(c, v)));
}

static const struct speaker embed_speaker = {.finish = embed_finish}, embedding_speaker = {.finish = embedding_finish};

static void go_embed(call *c, const char *name) {
  int32_t size = weft_model_embedding_size(sched_model(c->s->sched));
  c->p.stream = false;
  if (c->p.dimensions && c->p.dimensions != size) fault_set(&c->fault, 400, "dimensions", "'dimensions' is %lld, and this model's vectors have %d elements", (long long)c->p.dimensions, size);
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
