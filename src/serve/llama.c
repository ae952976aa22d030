// llama.cpp's endpoints, with its names of fields and figures.
#include "serve/call.h"
#include "serve/caps.h"
#include "serve/families.h"
#include "serve/shapes.h"
#include "serve/vector.h"
#include <stdlib.h>
#include <string.h>

static const char *llama_error_type(const fault *f) {
  switch (f->status) {
  case 401: return "authentication_error";
  case 403: return "permission_error";
  case 404: case 405: return "not_found_error";
  case 429: return "rate_limit_error";
  case 501: return "not_supported_error";
  case 503: return "unavailable_error";
  default: return f->n_ctx ? "exceed_context_size_error" : f->status < 500 ? "invalid_request_error" : "server_error";
  }
}

static json_t *llama_error(const fault *f) {
  json_t *e = json_pack("{s{si so ss}}", "error", "code", f->status, "message", json_of_text(f->text, strlen(f->text)),
                        "type", llama_error_type(f));
  json_t *in = json_object_get(e, "error");
  if (f->param[0]) json_object_set_new(in, "param", json_string(f->param));
  if (!f->n_ctx) return e;
  json_object_set_new(in, "n_prompt_tokens", json_integer(f->n_prompt));
  json_object_set_new(in, "n_ctx", json_integer(f->n_ctx));
  return e;
}

const struct family llama_family = {
  "llama.cpp", llama_error,
  "{'type':'object','required':['error'],'properties':{'error':{'type':'object','required':['code','message','type'],"
  "'properties':{'code':{'type':'integer'},'message':{'type':'string'},'type':{'type':'string'}}}}}",
  "text/event-stream"};

// ---- the model and the server ---------------------------------------------------------------------------------------

json_t *template_text(const weft_template *t) {
  size_t n;
  if (!t) return NULL;
  const char *text = weft_template_text(t, &n);
  return json_of_text(text, n);
}

static json_t *token_text(const served *m, int32_t id) { return id < 0 ? json_string("") : piece_text(m, id); }

// The sampling fields in effect.
static json_t *settings(const struct params *p) {
  json_t *o = fields_values(sampling_fields, p);
  json_object_set_new(o, "n_predict", json_integer((json_int_t)p->max_tokens));
  json_object_set_new(o, "seed", json_integer((json_int_t)p->sampling.seed));
  json_object_set_new(o, "stop", json_is_string(p->stop) ? json_pack("[O]", p->stop)
                                 : p->stop               ? json_incref(p->stop)
                                                         : json_array());
  if (p->logit_bias) json_object_set(o, "logit_bias", p->logit_bias);
  json_object_set_new(o, "samplers", p->samplers ? json_incref(p->samplers)
                                     : json_pack("[sssssssss]", "penalties", "dry", "top_n_sigma", "top_k", "typ_p",
                                                 "top_p", "min_p", "xtc", "temperature"));
  json_object_set_new(o, "grammar", p->grammar           ? json_incref(p->grammar)
                                    : p->default_grammar ? json_incref(p->default_grammar)
                                                         : json_string(""));
  return o;
}

// For a server with a folder of models and a request that names none: no model is loaded for it.
static json_t *props_of_all(const server *s) {
  struct params p = params_default(s, NULL);
  return json_pack("{ss s{si so} si ss ss ss}", "role", "router", "default_generation_settings", "n_ctx",
                   s->o->model.context, "params", settings(&p), "total_slots", s->o->parallel, "model_alias", "weft",
                   "model_path", "none", "build_info", "b-weft-" WEFT_VERSION_STRING);
}

static json_t *template_caps(const served *m) {
  struct caps c = caps_of(weft_model_file(m->model), m->tmpl);
  if (m->tool_tmpl) c.tools = true;
  return json_pack("{sb sb sb sb}", "supports_tools", c.tools, "supports_tool_calls", c.tools, "supports_thinking",
                   c.thinks, "supports_infill", c.inserts);
}

static json_t *modalities_json(const served *m) {
  return json_pack("{sb sb}", "vision", !!(m->media_kinds & WEFT_PICTURE), "audio", !!(m->media_kinds & WEFT_SOUND));
}

static json_t *props_of_model(const server *s, const served *at) {
  weft_model *m = at->model;
  const weft_vocab *v = weft_model_vocab(m);
  struct params p = params_default(s, at);
  json_t *o =
    json_pack("{s{si so} si ss ss so* so* so so so ss so sb sb sb sb sb}", "default_generation_settings", "n_ctx",
              weft_model_context(m), "params", settings(&p), "total_slots", s->o->parallel, "model_alias", at->name,
              "model_path", at->name, "chat_template", template_text(at->tmpl), "chat_template_tool_use",
              template_text(at->tool_tmpl), "chat_template_caps", template_caps(at), "bos_token",
              token_text(at, weft_bos(v)), "eos_token", token_text(at, weft_eos(v)), "build_info",
              "b-weft-" WEFT_VERSION_STRING, "modalities", modalities_json(at), "is_sleeping", 0, "endpoint_slots",
              !s->o->slots_hidden, "endpoint_props", 0, "endpoint_metrics", 1, "webui", !s->o->no_page);
  if (!at->tmpl) json_object_set_new(o, "chat_template", json_null());
  return o;
}

bool llama_sleeps(server *s, const char *name) {
  fault none = {0};
  const served *m = shelf_find(s->shelf, name, &none);
  return m && (shelf_untouched(s->shelf, m) || shelf_sleeps(s->shelf, m));
}

// For a model that was unloaded because it was idle (--sleep-idle-seconds): a query of its properties does not load it,
// unless it is named (?model=) on a server with several models.
static json_t *props_asleep(const server *s, const served *m) {
  struct params p = params_default(s, m);
  return json_pack("{s{sI so} si ss ss ss so sb}", "default_generation_settings", "n_ctx",
                   (json_int_t)(s->o->model.context ? s->o->model.context : m->n_trained), "params", settings(&p),
                   "total_slots", s->o->parallel, "model_alias", m->name, "model_path", m->name, "build_info",
                   "b-weft-" WEFT_VERSION_STRING, "modalities", modalities_json(m), "is_sleeping", 1);
}

void llama_props(server *s, exchange *x) {
  fault none = {0};
  const char *name = asked_of(x)->model;
  const served *usual = shelf_find(s->shelf, NULL, &none);
  if (!name && (!usual || shelf_untouched(s->shelf, usual))) { answer_json(x, 200, props_of_all(s)); return; }
  if (usual && (!name || shelf_find(s->shelf, name, &none) == usual) && shelf_sleeps(s->shelf, usual)) {
    answer_json(x, 200, props_asleep(s, usual));
    return;
  }
  if (model_for(s, x)) answer_json(x, 200, props_of_model(s, asked_of(x)->m));
}

// ---- loading and unloading ------------------------------------------------------------------------------------------

#define P struct params
static const struct field model_table[] = {FN(P, model, "model", F_TEXT, NULL, "the name of the model")};
static const struct fields model_fields = FIELDS(model_table);
const struct fields *const llama_model_fields[] = {&model_fields, NULL};

static bool has_model_name(server *s, exchange *x) {
  fault f = {0};
  struct params p = {0};
  if (!fields_read(asked_of(x)->body, "", model_fields, &p, &f) && !p.model)
    fault_set(&f, 400, "model", "'model' is missing");
  if (f.status) answer_fault(s, x, &f);
  return !f.status && !refuse_misfit(x);
}

void llama_load(server *s, exchange *x) {
  if (!has_model_name(s, x)) return;
  asked_of(x)->load = true;
  if (model_for(s, x)) answer_json(x, 200, json_pack("{sb}", "success", 1));
}

void llama_unload(server *s, exchange *x) {
  fault f = {0};
  if (!has_model_name(s, x)) return;
  if (shelf_unload(s->shelf, asked_of(x)->model, &f)) answer_fault(s, x, &f);
  else answer_json(x, 200, json_pack("{sb}", "success", 1));
}

// For requests of other families too.
static const struct field own_table[] = {
  FI(P, slot, "id_slot", -1, INT32_MAX, "the slot that its sequence gets, for /slots/N?action=save; -1: any"),
  FB(P, post_sampling, "post_sampling_probs", "log-probabilities become probabilities, those that tokens are drawn by"),
};
const struct fields llama_own_fields = FIELDS(own_table);

// ---- tokens ---------------------------------------------------------------------------------------------------------

static const struct field tokenize_table[] = {
  FJ(P, input, "content", F_TEXT, "the text"),
  FJ(P, input, "prompt", F_TEXT, "the text, under vLLM's name: BOS in front unless add_special_tokens is false"),
  FB(P, add_special, "add_special_tokens", "vLLM's name of add_special"),
  FB(P, add_special, "add_special", "BOS in front, where the model wants one"),
  FB(P, raw, "parse_special", "texts of control tokens become those tokens (default true)"),
  FB(P, with_pieces, "with_pieces", "the text of each token as well"),
};
static const struct fields tokenize_fields = FIELDS(tokenize_table);
const struct fields *const llama_tokenize_fields[] = {&tokenize_fields, &name_fields, NULL};

static json_t *piece_object(const served *m, int32_t id) {
  size_t n;
  char *text = weft_piece(weft_model_vocab(m->model), id, true, &n);
  json_t *piece = json_stringn(text, n);
  if (!piece) {                        // a part of a character: its bytes
    piece = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(piece, json_integer((unsigned char)text[i]));
  }
  weft_free(text);
  return json_pack("{si so}", "id", (int)id, "piece", piece);
}

static void write_piece_object(const served *m, int32_t id, str *out) {
  json_t *o = piece_object(m, id);
  char *text = json_dumps(o, JSON_COMPACT);
  str_add(out, text);
  free(text);
  json_decref(o);
}

// Writes text directly, since there may be millions of tokens.
static int write_token_list(exchange *x, const struct params *p, const int32_t *ids, size_t n, str *out, fault *f) {
  enum { LOOK = 1 << 14 };
  error err = {0};
  str_add(out, "{\"tokens\":[");
  for (size_t i = 0, taken = 0; i < n; i++) {
    if (i) str_addc(out, ',');
    if (p->with_pieces) write_piece_object(asked_of(x)->m, ids[i], out);
    else str_addf(out, "%d", ids[i]);
    if (i % LOOK && i + 1 < n) continue;
    if (fault_take(f, &x->account, "content", "the text of its tokens", out->cap - taken)) return -1;
    if (account_check(&err)) return fault_set(f, 400, "content", "%s", err.text);
    taken = out->cap;
  }
  str_add(out, "]");
  return 0;
}

static int tokenize_content(exchange *x, const struct params *p, str *out, fault *f) {
  weft_error err;
  int32_t *ids;
  size_t n;
  const char *text = p->input ? json_string_value(p->input) : "";
  bool of_vllm = json_object_get(asked_of(x)->body, "prompt");
  unsigned flags = (p->add_special ? WEFT_ADD_SPECIAL : 0u) | (p->raw ? WEFT_PARSE_SPECIAL : 0u);
  if (weft_tokenize(weft_model_vocab(asked_of(x)->m->model), text, p->input ? json_string_length(p->input) : 0, flags,
                    &ids, &n, &err))
    return fault_set(f, 400, "content", "%s", err.text);
  int status = fault_take(f, &x->account, "content", "its tokens", n * sizeof *ids);
  if (!status) status = write_token_list(x, p, ids, n, out, f);
  if (!status && of_vllm)
    str_addf(out, ",\"count\":%zu,\"max_model_len\":%lld", n,
             (long long)weft_model_context(asked_of(x)->m->model));
  str_addc(out, '}');
  weft_free(ids);
  return status;
}

void llama_tokenize(server *s, exchange *x) {
  struct params p = {.raw = true, .add_special = json_object_get(asked_of(x)->body, "prompt")};
  fault f = {0};
  str text = {0};
  if (fields_read(asked_of(x)->body, "", tokenize_fields, &p, &f) || tokenize_content(x, &p, &text, &f))
    answer_fault(s, x, &f);
  else answer_json_str(x, 200, &text);
  str_free(&text);
}

static const struct field detokenize_table[] = {
  FS(P, tokens, "tokens", F_ARRAY, "{'type':'array','items':{'type':'integer','minimum':0}}", "token ids")};
static const struct fields detokenize_fields = FIELDS(detokenize_table);
const struct fields *const llama_detokenize_fields[] = {&detokenize_fields, &name_fields, NULL};

// A token may be long: the text of ids is charged first, as text, as JSON and as what is sent.
static int take_text_of(const weft_vocab *v, const token_ids *ids, account *a, fault *f) {
  enum { COPIES = 3 };
  size_t all = 0, n;
  for (size_t i = 0; i < ids->n; i++) {
    weft_free(weft_piece(v, ids->at[i], true, &n));
    all += n;
  }
  return fault_take(f, a, "tokens", "their text", all * COPIES);
}

static json_t *detokenized(const served *m, struct params *p, account *a, fault *f) {
  const weft_vocab *v = weft_model_vocab(m->model);
  token_ids ids = {0};
  json_t *one, *made = NULL;
  size_t i, n;
  int64_t id;
  char *text;
  json_array_foreach(p->tokens, i, one) {
    if (read_int(one, "tokens", 0, weft_vocab_size(v) - 1, &id, f)) break;
    vec_push(&ids, (int32_t)id);
  }
  if (!f->status && !take_text_of(v, &ids, a, f) && !weft_detokenize(v, ids.at, ids.n, true, &text, &n, NULL)) {
    made = json_pack("{so}", "content", json_of_text(text, n));
    weft_free(text);
  }
  if (!made) fault_set(f, 400, "tokens", "these are no tokens");
  vec_free(&ids);
  return made;
}

void llama_detokenize(server *s, exchange *x) {
  struct params p = {0};
  fault f = {0};
  bool read = !fields_read(asked_of(x)->body, "", detokenize_fields, &p, &f);
  json_t *made = read ? detokenized(asked_of(x)->m, &p, &x->account, &f) : NULL;
  if (made) answer_json(x, 200, made);
  else answer_fault(s, x, &f);
}

static const struct field template_table[] = {
  FN(P, messages, "messages", F_ARRAY, SHAPE_MESSAGES, "the conversation"),
  FS(P, tools, "tools", F_ARRAY, SHAPE_TOOLS, "functions that the model may call"),
  FJ(P, variables, "chat_template_kwargs", F_OBJECT, "further variables of the chat template"),
  FJ(P, effort, "reasoning_effort", F_TEXT, "the template's variable of this name; none: no reasoning"),
  FJ(P, documents, "documents", F_ARRAY, "the template's variable of this name"),
};
static const struct fields template_fields = FIELDS(template_table);
const struct fields *const llama_template_fields[] = {&template_fields,
                                                      &sampling_fields,
                                                      &foreign_chat_fields,
                                                      &llama_own_fields,
                                                      &foreign_llama_fields,
                                                      &common_fields,
                                                      NULL};

static const struct speaker no_speaker = {0};

void llama_template(server *s, exchange *x) {
  call *c = call_new(s, x, &no_speaker);
  if (!c) return;
  if (call_add_chat(c, c->p.messages, c->p.tools) || call_check(c)) { call_refuse(c); return; }
  const char *text = c->requests.at[0]->prompt_text;
  call_answer(c, json_pack("{so}", "prompt", json_of_text(text, strlen(text))));
}

// ---- /completion ----------------------------------------------------------------------------------------------------

#define COMPLETION \
  FI(P, max_tokens, "n_predict", -1, INT32_MAX, "tokens of the answer at most; -1: until the context is full"), \
  FI(P, max_tokens, "max_tokens", -1, INT32_MAX, "the same"), \
  FI(P, n, "n_cmpl", 1, 128, "how many answers"), FI(P, n, "n", 1, 128, "the same"), \
  FI(P, n_top, "n_probs", 0, 1000, "log-probabilities of this number of likeliest tokens at each place"), \
  FB(P, return_tokens, "return_tokens", "the ids of the answer")
static const struct field completion_table[] = {
  FN(P, prompt, "prompt", F_ANY, SHAPE_PROMPT,
     "a text, token ids, both mixed, an object with pictures, or an array of such"),
  COMPLETION,
};
static const struct fields completion_fields = FIELDS(completion_table);
const struct fields *const llama_completion_fields[] = {
  &completion_fields, &sampling_fields, &llama_own_fields, &foreign_llama_fields, &common_fields, NULL};

static const char *stop_type(enum finish f) {
  static const char *const names[] = {"eos", "word", "limit", "eos", "limit", "none"};
  return names[f];
}

static json_t *ids_array(const token_ids *ids) {
  json_t *all = json_array();
  for (size_t i = 0; i < ids->n; i++) json_array_append_new(all, json_integer(ids->at[i]));
  return all;
}

static json_t *probabilities(const call *c, int i, bool last) {
  const scores *of = &c->choices[i].scores;
  json_t *all = json_array();
  for (size_t k = last && of->n ? of->n - 1 : 0; k < of->n; k++)
    json_array_append_new(all, chat_logprob(c, &of->at[k]));
  return all;
}

// The object that ends a stream, or a whole answer.
static json_t *final_object(const call *c, int i, bool whole) {
  const struct choice *h = &c->choices[i];
  const request *r = c->requests.at[i / (int)c->p.n];
  json_t *o =
    json_pack("{si so so si sb ss sI sI so sb sb ss ss sI so}", "index", i, "content",
              whole ? json_of_text(str_c(&h->content), h->content.n) : json_string(""), "tokens",
              whole && c->p.return_tokens ? ids_array(&h->ids) : json_array(), "id_slot", h->timing.slot, "stop", 1,
              "model", c->m->name, "tokens_predicted", (json_int_t)h->timing.n_drawn, "tokens_evaluated",
              (json_int_t)r->prompt.n, "generation_settings", settings(&c->p), "truncated", 0, "has_new_line",
              h->content.n && memchr(h->content.at, '\n', h->content.n) != NULL, "stop_type", stop_type(h->finish),
              "stopping_word", h->word ? h->word : "", "tokens_cached", (json_int_t)(h->timing.n_cached), "timings",
              timings_object(&h->timing));
  if (whole && c->p.logprobs) json_object_set_new(o, "completion_probabilities", probabilities(c, i, false));
  return o;
}

static void llama_completion_event(call *c, const event *e, int i) {
  str text = {0};
  for (size_t k = 0; k < e->parts.n; k++) str_addn(&text, str_c(&e->parts.at[k].text), e->parts.at[k].text.n);
  json_t *o = NULL;
  if (e->kind == EVENT_END) o = final_object(c, i, false);
  else if (e->kind == EVENT_TOKEN || (e->kind == EVENT_PROMPT && c->p.progress)) {
    o = json_pack("{si so so sb si sI sI}", "index", i, "content", json_of_text(str_c(&text), text.n), "tokens",
                  json_array(), "stop", 0, "id_slot", e->timing.slot, "tokens_predicted",
                  (json_int_t)c->choices[i].ids.n, "tokens_evaluated", (json_int_t)e->request->prompt.n);
    if (e->id >= 0) json_array_append_new(json_object_get(o, "tokens"), json_integer(e->id));
    if (e->scored) json_object_set_new(o, "completion_probabilities", probabilities(c, i, true));
    if (e->kind == EVENT_PROMPT)
      json_object_set_new(o, "prompt_progress", call_progress(e));
  }
  if (o) call_line(c, "data: ", o, "\n\n");
  str_free(&text);
}

static void llama_completion_finish(call *c) {
  if (c->p.stream) return;
  if (c->n_choices == 1) { call_send(c, 200, final_object(c, 0, true)); return; }
  json_t *all = json_array();
  for (int i = 0; i < c->n_choices; i++) json_array_append_new(all, final_object(c, i, true));
  call_send(c, 200, all);
}

static void llama_stream_failed(call *c, const fault *why) {
  call_line(c, "data: ", llama_error(why), "\n\n");
}

static const struct speaker completion_speaker = {
  "text/event-stream", ": ping\n", NULL, llama_completion_event, llama_completion_finish, llama_stream_failed};

void llama_completion(server *s, exchange *x) {
  call *c = call_new(s, x, &completion_speaker);
  if (!c) return;
  c->p.logprobs = c->p.n_top > 0;
  if (call_add_prompts(c, c->p.prompt, "prompt")) call_refuse(c);
  else call_go(c);
}

// ---- /infill: the text between two texts ----------------------------------------------------------------------------

static const struct field infill_table[] = {
  FJ(P, input, "input_prefix", F_TEXT, "what stands before"),
  FJ(P, suffix, "input_suffix", F_TEXT, "what stands after"),
  FS(P, extra, "input_extra", F_ARRAY, SHAPE_PARTS, "other files: [{\"filename\", \"text\"}]"),
  FJ(P, prompt, "prompt", F_TEXT, "what the answer begins with"),
  COMPLETION,
};
static const struct fields infill_fields = FIELDS(infill_table);
const struct fields *const llama_infill_fields[] = {
  &infill_fields, &sampling_fields, &llama_own_fields, &foreign_llama_fields, &common_fields, NULL};

static void append_id(json_t *all, int64_t id) { json_array_append_new(all, json_integer(id)); }
static void append_text(json_t *all, json_t *text) {
  if (json_is_string(text) && json_string_length(text)) json_array_append(all, text);
}

static int add_extra(call *c, json_t *all, int64_t separator) {
  size_t i;
  json_t *one;
  json_array_foreach(c->p.extra, i, one) {
    json_t *name = json_object_get(one, "filename"), *text = json_object_get(one, "text");
    if (!json_is_string(text))
      return fault_set(&c->fault, 400, "input_extra", "'input_extra' needs a text in each entry");
    if (separator >= 0) append_id(all, separator);
    append_text(all, name);
    json_array_append_new(all, json_string("\n"));
    append_text(all, text);
    json_array_append_new(all, json_string("\n"));
  }
  return 0;
}

static int add_infill(call *c) {
  const weft_model *m = c->m->model;
  const weft_file *f = weft_model_file(m);
  int64_t before = file_token(f, "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id");
  int64_t after = file_token(f, "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id");
  int64_t middle = file_token(f, "tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id");
  if (before < 0 || after < 0 || middle < 0)
    return fault_set(&c->fault, 400, NULL, "this model has no tokens for what stands between two texts");
  int32_t *ids;
  size_t n;
  weft_error err;
  json_t *all = json_array();
  if (weft_tokenize(weft_model_vocab(m), "", 0, WEFT_ADD_SPECIAL, &ids, &n, &err)) n = 0, ids = NULL;
  if (n) append_id(all, ids[0]);
  weft_free(ids);
  int status = add_extra(c, all, file_token(f, "tokenizer.ggml.fim_sep_token_id", "tokenizer.ggml.fim_sep_token_id"));
  bool suffix_first = c->s->o->suffix_first;
  append_id(all, suffix_first ? after : before);
  append_text(all, suffix_first ? c->p.suffix : c->p.input);
  append_id(all, suffix_first ? before : after);
  append_text(all, suffix_first ? c->p.input : c->p.suffix);
  append_id(all, middle);
  append_text(all, c->p.prompt);
  if (!status) status = call_add_prompt(c, all, false, "input_prefix");
  json_decref(all);
  return status;
}

void llama_infill(server *s, exchange *x) {
  call *c = call_new(s, x, &completion_speaker);
  if (!c) return;
  c->p.logprobs = c->p.n_top > 0;
  if (add_infill(c)) call_refuse(c);
  else call_go(c);
}

// ---- /embedding -----------------------------------------------------------------------------------------------------

static const struct field embedding_table[] = {
  FS(P, input, "content", F_ANY, SHAPE_SEEN_TEXTS, "a text, token ids, an object with pictures, or an array of such"),
  FS(P, input, "input", F_ANY, SHAPE_SEEN_TEXTS, "the same"),
  FI(P, normalize, "embd_normalize", -1, 1000,
     "-1: no; 0: the largest element becomes 32760; 2: the length becomes 1 (default); others: that norm does"),
};
static const struct fields embedding_fields = FIELDS(embedding_table);
const struct fields *const llama_embedding_fields[] = {&embedding_fields, &common_fields, NULL};

// For each text an array of vectors: one, or without pooling one per token, which is never normalised.
static void llama_embedding_finish(call *c) {
  json_t *all = json_array();
  bool pooled = c->requests.at[0]->pooling != WEFT_POOLING_NONE;
  size_t n = c->choices[0].vectors.n, size = (size_t)weft_model_embedding_size(c->m->model);
  for (size_t i = 0; i < n; i++) {
    const float *v;
    json_t *rows = json_array();
    for (size_t k = 0, n_rows = call_vectors(c, i, pooled ? (int)c->p.normalize : -1, &v); k < n_rows; k++)
      json_array_append_new(rows, vector_numbers(c, v + k * size));
    json_array_append_new(all, json_pack("{sI so}", "index", (json_int_t)i, "embedding", rows));
  }
  call_send(c, 200, all);
}

static const struct speaker embedding_speaker = {.finish = llama_embedding_finish};

void llama_embedding(server *s, exchange *x) {
  call *c = call_new(s, x, &embedding_speaker);
  if (!c) return;
  c->p.stream = false;
  if (call_add_texts(c, c->p.input, "content", TEXTS_SEEN)) call_refuse(c);
  else call_go(c);
}
