// Anthropic's endpoints: /v1/messages and count_tokens. Messages are converted to OpenAI's form, which templates use. A
// stream consists of blocks of one kind each: text, thinking, or a tool call. The event name must come before the data,
// or clients drop the event.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "serve/media.h"
#include "serve/call.h"
#include "serve/families.h"
#include "serve/shapes.h"
#include "serve/tools.h"

static const char *anthropic_error_type(int status) {
  switch (status) {
  case 401: return "authentication_error";
  case 403: return "permission_error";
  case 404: case 405: return "not_found_error";
  case 413: return "request_too_large";
  case 429: return "rate_limit_error";
  case 503: return "overloaded_error";
  default: return status < 500 ? "invalid_request_error" : "api_error";
  }
}

// anthropic's tool_runner asks for a thread; after this code, which denies threads, it sends whole conversations
// instead.
static json_t *anthropic_error(const fault *f) {
  json_t *details = strcmp(f->param, "thread") ? NULL : json_pack("{ss}", "error_code", "thread_unsupported_request");
  return json_pack("{ss s{ss so so*}}", "type", "error", "error", "type", anthropic_error_type(f->status), "message",
                   json_of_text(f->text, strlen(f->text)), "details", details);
}

const struct family anthropic_family = {
  "Anthropic", anthropic_error,
  "{'type':'object','required':['type','error'],'properties':{'type':{'const':'error'},'error':{'type':'object',"
  "'required':['type','message'],'properties':{'type':{'type':'string'},'message':{'type':'string'},'details':{'type':"
  "'object','required':['error_code'],'properties':{'error_code':{'const':'thread_unsupported_request'}}}}}}}",
  "text/event-stream"};

#define PREFIX "toolu_"
#define P struct params
#define FORMAT_SHAPE \
  "{'type':'object','required':['type','schema'],'properties':{'type':{'const':'json_schema'},'schema':" SHAPE_SCHEMA \
  "}}"
static const struct field output_table[] = {
  FS(P, format, "format", F_OBJECT, FORMAT_SHAPE, "{\"type\": \"json_schema\", \"schema\"}"),
  FJ(P, effort, "effort", F_TEXT, "the template's variable reasoning_effort"),
  FIGNORED("task_budget", NULL, "max_tokens decides"),
};
static const struct fields output_fields = FIELDS(output_table);
static const struct fields *const output_tables[] = {&output_fields, NULL};
static const struct field thinking_table[] = {
  FS(P, thinking, "type", F_TEXT, "{'enum':['enabled','disabled','adaptive','between_tools']}",
     "whether the model reasons first"),
  FI(P, reasoning_budget, "budget_tokens", 0, INT32_MAX, "tokens of reasoning, which is ended then"),
  FIGNORED("display", NULL, "reasoning is not summarised"),
};
static const struct fields thinking_fields = FIELDS(thinking_table);
static const struct fields *const thinking_tables[] = {&thinking_fields, NULL};
static const struct field table[] = {
  FN(P, messages, "messages", F_ARRAY,
     "{'type':'array','minItems':1,'items':{'type':'object','required':['role','content'],'properties':{"
     "'role':{'enum':['user','assistant','system']},'content':{'anyOf':[{'type':'string'},{'type':'array','items':"
     "{'type':'object','required':['type'],'properties':{'type':{'enum':"
     "['text','image','thinking','redacted_thinking','tool_use','tool_result','document','search_result']}}}}]}}}}",
     "the conversation"),
  FS(P, system, "system", F_ANY, "{'anyOf':[{'type':'string'}," SHAPE_PARTS "]}",
     "what the model is told before: a text, or blocks of text"),
  FS(P, tools, "tools", F_ARRAY, SHAPE_NAMED_TOOLS("'function','custom'"),
     "[{\"name\", \"description\", \"input_schema\"}]"),
  FS(P, tool_choice, "tool_choice", F_OBJECT,
     SHAPE_NAMED_CHOICE(
       "{'type':'object','required':['type'],'properties':{'type':{'enum':['auto','none','any']}}}", "tool"),
     "{\"type\": auto, none or any}, or {\"type\": \"tool\", \"name\": NAME}"),
  FO(P, nested, "thinking", thinking_tables, "{\"type\": enabled, adaptive or disabled}"),
  FO(P, nested, "output_config", output_tables, "{\"format\", \"effort\"}"),
  FS(P, format, "output_format", F_OBJECT, FORMAT_SHAPE, "output_config.format by another name"),
  FJ(P, variables, "chat_template_kwargs", F_OBJECT, "further variables of the chat template"),
};
static const struct field limit_table[] = {
  FS(P, stop_sequences, "stop_sequences", F_ARRAY, SHAPE_TEXTS, "texts before which the answer ends"),
  {"max_tokens", F_INT, offsetof(P, max_tokens), 0, INT32_MAX, "tokens of the answer at most", NULL, true, NULL}};
static const struct fields fields = FIELDS(table), limit_fields = FIELDS(limit_table);
const struct fields *const anthropic_fields[] = {&fields, &limit_fields, &sampling_fields, &foreign_anthropic_fields,
                                                 &common_fields, NULL},
                    *const anthropic_count_fields[] = {&fields, &foreign_anthropic_fields, &common_fields, NULL};

// ---- messages -------------------------------------------------------------------------------------------------------

static void add_text(str *out, const json_t *text) {
  str_addn(out, json_string_value(text), json_string_length(text));
}

// A document or search result as text: its title, context and source text.
static int add_document(call *c, const json_t *block, const char *name, str *out) {
  const json_t *source = json_object_get(block, "source"), *title = json_object_get(block, "title"),
               *context = json_object_get(block, "context"), *data = json_object_get(source, "data"), *part;
  bool search = json_is_of(block, "search_result");
  const json_t *content = json_object_get(search ? block : source, "content");
  size_t i;
  if (!search && !(json_is_of(source, "text") && json_is_string(data)) && !json_is_of(source, "content"))
    return call_bad(c, name, "has a document whose source is no text: only text is understood");
  if (json_is_true(json_object_get(json_object_get(block, "citations"), "enabled"))) call_ignores(c, "citations");
  str_add(out, search ? "<search_result>\n" : "<document>\n");
  if (json_string_length(title)) { str_add(out, "<title>"); add_text(out, title); str_add(out, "</title>\n"); }
  if (search && json_is_string(source)) {
    str_add(out, "<source>");
    add_text(out, source);
    str_add(out, "</source>\n");
  }
  if (json_string_length(context)) { str_add(out, "<context>"); add_text(out, context); str_add(out, "</context>\n"); }
  if (json_is_string(content)) add_text(out, content);
  json_array_foreach(content, i, part) {
    if (!json_is_string(json_object_get(part, "text")))
      return call_bad(c, name, "has a document with a block that is no text: only text is understood");
    add_text(out, json_object_get(part, "text"));
  }
  if (!search && json_is_string(data)) add_text(out, data);
  str_add(out, search ? "\n</search_result>\n" : "\n</document>\n");
  return 0;
}

static bool is_document(const json_t *block) {
  return json_is_of(block, "document") || json_is_of(block, "search_result");
}

// A tool that a search found: its definition is among the tools from now on.
static void add_reference(str *out, const json_t *block) {
  str_add(out, "<tool_reference>");
  add_text(out, json_object_get(block, "tool_name"));
  str_add(out, "</tool_reference>\n");
}

// The text of a text-only content. A client's billing header line is dropped: it differs in every request, so nothing
// after it would be found in the cache.
static int add_plain_text(call *c, const json_t *content, const char *name, str *out) {
  static const char accounts[] = "x-anthropic-billing-header";
  const json_t *block;
  size_t i;
  if (json_is_string(content)) { str_addn(out, json_string_value(content), json_string_length(content)); return 0; }
  if (!json_is_array(content)) return call_bad(c, name, "must be a text or an array of blocks");
  json_array_foreach(content, i, block) {
    const json_t *text = json_object_get(block, "text");
    if (is_document(block)) { if (add_document(c, block, name, out)) return -1; continue; }
    if (is_medium(block)) { if (call_add_part(c, name, block, out)) return -1; continue; }
    if (json_is_of(block, "tool_reference")) { add_reference(out, block); continue; }
    if (!json_is_string(text)) return call_bad(c, name, "has a block that is no text, picture or document");
    if (strncmp(json_string_value(text), accounts, sizeof accounts - 1))
      str_addn(out, json_string_value(text), json_string_length(text));
  }
  return 0;
}

static json_t *said(const char *role, const str *text) {
  return json_pack("{ss so}", "role", role, "content", json_of_text(str_c(text), text->n));
}

// The id of a call as the model knows it: answers add a prefix that clients expect.
static json_t *own_id(const json_t *block, const char *key) {
  json_t *id = json_object_get(block, key);
  bool ours = json_string_length(id) > sizeof PREFIX - 1 && !memcmp(json_string_value(id), PREFIX, sizeof PREFIX - 1);
  return ours ? json_string(json_string_value(id) + sizeof PREFIX - 1) : json_incref(id);
}

static json_t *call_of(const json_t *block) {
  json_t *input = json_object_get(block, "input");
  return json_pack("{so* ss s{sO? sO?}}", "id", own_id(block, "id"), "type", "function", "function", "name",
                   json_object_get(block, "name"), "arguments", input);
}

// One message becomes several: tool results are separate messages.
static int add_blocks(call *c, json_t *all, const char *role, const json_t *content) {
  str text = {0}, thought = {0};
  json_t *calls = json_array();
  const json_t *block;
  size_t i;
  int status = 0;
  json_array_foreach(content, i, block) {
    const json_t *t = json_object_get(block, json_is_of(block, "thinking") ? "thinking" : "text");
    if (status) break;
    if (json_is_of(block, "redacted_thinking")) continue;
    if (json_is_of(block, "text") && json_is_string(t)) str_addn(&text, json_string_value(t), json_string_length(t));
    else if (json_is_of(block, "thinking") && json_is_string(t))
      str_addn(&thought, json_string_value(t), json_string_length(t));
    else if (is_document(block)) status = add_document(c, block, "messages", &text);
    else if (is_medium(block)) status = call_add_part(c, "messages", block, &text);
    else if (json_is_of(block, "tool_use")) json_array_append_new(calls, call_of(block));
    else if (json_is_of(block, "tool_result")) {
      str result = {0};
      const json_t *inner = json_object_get(block, "content");
      status = inner && !json_is_null(inner) ? add_plain_text(c, inner, "messages", &result) : 0;
      json_t *m = said("tool", &result);
      json_object_set_new(m, "tool_call_id", own_id(block, "tool_use_id"));
      json_array_append_new(all, m);
      str_free(&result);
    } else
      status = call_bad(c, "messages",
                        "has a block of a kind that is not understood: text, image, thinking, tool_use, "
                        "tool_result, document and search_result are");
  }
  json_t *m = said(role, &text);
  if (thought.n) json_object_set_new(m, "reasoning_content", json_of_text(thought.at, thought.n));
  if (json_array_size(calls)) json_object_set(m, "tool_calls", calls);
  if (text.n || thought.n || json_array_size(calls)) json_array_append(all, m);
  json_decref(m);
  json_decref(calls);
  str_free(&text);
  str_free(&thought);
  return status;
}

static int add_messages(call *c, json_t *all) {
  const json_t *m;
  size_t i;
  if (c->p.system) {
    str text = {0};
    int status = add_plain_text(c, c->p.system, "system", &text);
    if (text.n) json_array_append_new(all, said("system", &text));
    str_free(&text);
    if (status) return -1;
  }
  json_array_foreach(c->p.messages, i, m) {
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *content = json_object_get(m, "content");
    if (!role || (strcmp(role, "user") && strcmp(role, "assistant") && strcmp(role, "system")))
      return call_bad(c, "messages", "has a role that is neither user nor assistant");
    if (json_is_string(content)) json_array_append_new(all, json_pack("{ss sO}", "role", role, "content", content));
    else if (!json_is_array(content)) return call_bad(c, "messages", "has a content that is neither a text nor blocks");
    else if (add_blocks(c, all, role, content)) return -1;
  }
  return 0;
}

static json_t *tools_of(call *c) {
  json_t *all = json_array(), *tool;
  size_t i;
  json_array_foreach(c->p.tools, i, tool) {
    json_t *function =
      json_pack("{sO? sO* sO* sO*}", "name", json_object_get(tool, "name"), "description",
                json_object_get(tool, "description"), "parameters", json_object_get(tool, "input_schema"), "strict",
                json_object_get(tool, "strict"));
    json_array_append_new(all, json_pack("{ss so}", "type", "function", "function", function));
  }
  return all;
}

static int read_choices(call *c) {
  const json_t *choice = c->p.tool_choice;
  if (!choice) return 0;
  c->p.no_parallel = json_is_true(json_object_get(choice, "disable_parallel_tool_use"));
  if (json_is_of(choice, "none")) c->p.tools = NULL;
  if (json_is_of(choice, "none") || json_is_of(choice, "auto")) return 0;
  c->p.must_call_name = json_string_value(json_object_get(choice, "name"));
  if (!json_is_of(choice, "any") && !(json_is_of(choice, "tool") && c->p.must_call_name))
    return call_bad(c, "tool_choice", "must be auto, none, any, or tool with a name");
  c->p.must_call = c->p.no_parallel = true;
  return 0;
}

static int read_thinking(call *c, const char *type) {
  static const char *const types[] = {"disabled", "enabled", "adaptive", "between_tools"};
  size_t i = 0;
  while (i < COUNT(types) && strcmp(types[i], type)) i++;
  if (i == COUNT(types)) return call_bad(c, "thinking.type", "must be enabled, adaptive, between_tools or disabled");
  c->p.think = i ? 1 : -1;
  return 0;
}

static int read_output_format(call *c) {
  if (!c->p.format) return 0;
  if (!json_is_of(c->p.format, "json_schema")) return call_bad(c, "output_config.format.type", "must be json_schema");
  return call_schema(c, json_object_get(c->p.format, "schema"), false, "output_config.format.schema");
}

static int add_prompt(call *c) {
  json_t *messages = json_array(), *tools = NULL;
  const char *thinking = json_string_value(c->p.thinking);
  int status = !c->p.messages || !json_array_size(c->p.messages)
                 ? call_bad(c, "messages", "must be an array with messages")
                 : add_messages(c, messages);
  if (!status) status = tools_defer(c);
  if (!status) status = read_choices(c);
  tools_keep_functions(c, "custom");
  if (!status && c->p.tools) tools = tools_of(c);
  if (!status && thinking) status = read_thinking(c, thinking);
  if (!status) status = call_add_chat(c, messages, tools);
  if (!status) status = read_output_format(c);
  json_decref(messages);
  json_decref(tools);
  return status;
}

// ---- answers --------------------------------------------------------------------------------------------------------

static const char *stop_reason(enum finish f) {
  static const char *const names[] = {"end_turn", "stop_sequence", "max_tokens", "tool_use", "max_tokens", "end_turn"};
  return names[f];
}

static json_t *message_usage(const call *c, const struct timing *t) {
  return json_pack("{sI sI sI si s{sI}}", "input_tokens", (json_int_t)(call_prompt_tokens(c) - t->n_cached),
                   "output_tokens", (json_int_t)t->n_drawn, "cache_read_input_tokens", (json_int_t)t->n_cached,
                   "cache_creation_input_tokens", 0, "output_tokens_details", "thinking_tokens",
                   (json_int_t)t->n_reasoned);
}

static json_t *message(const call *c, json_t *content, const char *reason, const char *word, const struct timing *t) {
  return json_pack("{ss ss ss ss so* ss? ss? so}", "id", c->id, "type", "message", "role", "assistant", "model",
                   c->m->name, "content", content, "stop_reason", reason, "stop_sequence", word, "usage",
                   message_usage(c, t));
}

// Replaces lone surrogates in JSON by U+FFFD, since clients' parsers reject them.
static void add_units(str *out, const char *json, size_t n) {
  for (size_t i = 0, step; i < n; i += step) {
    unsigned unit[2] = {0};
    for (size_t k = 0; k < 2 && i + 6 * k + 6 <= n && json[i + 6 * k] == '\\' && json[i + 6 * k + 1] == 'u'; k++)
      for (size_t d = 2; d < 6; d++) unit[k] = unit[k] << 4 | (unsigned)hex_value(json[i + 6 * k + d]);
    bool pair = unit[0] >> 10 == 0xD800 >> 10 && unit[1] >> 10 == 0xDC00 >> 10;
    bool alone = unit[0] >> 11 == 0xD800 >> 11 && !pair;
    step = json[i] != '\\' ? 1 : pair ? 12 : unit[0] ? 6 : 2;
    if (alone) str_add(out, "\\ufffd");
    else str_addn(out, json + i, step);
  }
}

// A tool_use block without its input.
static json_t *tool_use(const char *id, const char *name) {
  str full = {0};
  str_addf(&full, PREFIX "%s", id);
  json_t *o = json_pack("{ss so ss}", "type", "tool_use", "id", json_of_text(full.at, full.n), "name", name);
  str_free(&full);
  return o;
}

static void add_block(str *out, json_t *block) {
  char *text = json_dumps(block, JSON_COMPACT);
  str_addf(out, "%s%s", out->n > 1 ? "," : "", text);
  free(text);
  json_decref(block);
}

// All blocks as the text of an array; input is written as the model wrote it.
static void add_content(str *out, const struct choice *h) {
  str_add(out, "[");
  if (h->reasoning.n)
    add_block(out, json_pack("{ss so ss}", "type", "thinking", "thinking",
                             json_of_text(h->reasoning.at, h->reasoning.n), "signature", ""));
  if (h->content.n || !h->calls.n)
    add_block(out, json_pack("{ss so}", "type", "text", "text", json_of_text(str_c(&h->content), h->content.n)));
  for (size_t i = 0; i < h->calls.n; i++) {
    str written = {0}, input = {0};
    call_arguments(&h->calls.at[i], &written);
    add_units(&input, written.at, written.n);
    str_free(&written);
    if (out->n > 1) str_addc(out, ',');
    json_with_text(out, tool_use(h->calls.at[i].id, h->calls.at[i].name), "input", &input);
    str_free(&input);
  }
  str_addc(out, ']');
}

// State of a stream: the open block.
struct state { bool begun, open; enum weft_part_kind kind; int index; };

static void send_event(call *c, const char *name, json_t *o) {
  char before[64];
  json_object_set_new(o, "type", json_string(name));
  snprintf(before, sizeof before, "event: %s\ndata: ", name);
  call_line(c, before, o, "\n\n");
}

static void send_block_delta(call *c, struct state *st, json_t *delta) {
  send_event(c, "content_block_delta", json_pack("{si so}", "index", st->index, "delta", delta));
}

static void close_block(call *c, struct state *st) {
  if (!st->open) return;
  if (st->kind == WEFT_REASONING)
    send_block_delta(c, st, json_pack("{ss ss}", "type", "signature_delta", "signature", ""));
  send_event(c, "content_block_stop", json_pack("{si}", "index", st->index++));
  st->open = false;
}

static void open_block(call *c, struct state *st, const struct part *p) {
  if (st->open && st->kind == p->kind && !p->name) return;
  close_block(c, st);
  json_t *block = p->kind == WEFT_CALL ? tool_use(p->id, p->name)
                  : p->kind == WEFT_REASONING
                    ? json_pack("{ss ss ss}", "type", "thinking", "thinking", "", "signature", "")
                    : json_pack("{ss ss}", "type", "text", "text", "");
  if (p->kind == WEFT_CALL) json_object_set_new(block, "input", json_object());
  send_event(c, "content_block_start", json_pack("{si so}", "index", st->index, "content_block", block));
  st->open = true;
  st->kind = p->kind;
}

static void message_event(call *c, const event *e, int i) {
  static const char *const kinds[][2] = {
    {"text_delta", "text"}, {"thinking_delta", "thinking"}, {"input_json_delta", "partial_json"}};
  struct state *st = c->own;
  (void)i;
  if (!st->begun) {
    struct timing none = {.n_cached = e->timing.n_cached};
    send_event(c, "message_start", json_pack("{so}", "message", message(c, json_array(), NULL, NULL, &none)));
    st->begun = true;
  }
  for (size_t k = 0; k < e->parts.n; k++) {
    const struct part *p = &e->parts.at[k];
    if (p->text.n || p->name) open_block(c, st, p);
    if (!p->text.n) continue;
    str text = {0};
    if (p->kind == WEFT_CALL) add_units(&text, p->text.at, p->text.n);
    const str *sent = p->kind == WEFT_CALL ? &text : &p->text;
    send_block_delta(
      c, st, json_pack("{ss so}", "type", kinds[p->kind][0], kinds[p->kind][1], json_of_text(sent->at, sent->n)));
    str_free(&text);
  }
}

static void message_finish(call *c) {
  const struct choice *h = &c->choices[0];
  if (!c->p.stream) {
    str content = {0}, text = {0};
    add_content(&content, h);
    json_with_text(&text, message(c, NULL, stop_reason(h->finish), h->word, &h->timing), "content", &content);
    call_send_text(c, 200, &text);
    str_free(&content);
    str_free(&text);
    return;
  }
  close_block(c, c->own);
  send_event(c, "message_delta",
             json_pack("{s{ss ss?} so}", "delta", "stop_reason", stop_reason(h->finish), "stop_sequence", h->word,
                       "usage", message_usage(c, &h->timing)));
  send_event(c, "message_stop", json_object());
}

static void message_failed(call *c, const fault *why) {
  call_line(c, "event: error\ndata: ", anthropic_error(why), "\n\n");
}

static const struct speaker speaker = {
  "text/event-stream", "event: ping\ndata: {\"type\": \"ping\"}\n\n", NULL, message_event, message_finish,
  message_failed};

void anthropic_messages(server *s, exchange *x) {
  call *c = call_new(s, x, &speaker);
  if (!c) return;
  new_id(s, "msg_", c->id, sizeof c->id);
  c->own = xcalloc(1, sizeof(struct state));
  if (c->p.max_tokens < 0) call_bad(c, "max_tokens", "is missing");
  if (c->fault.status || add_prompt(c)) call_refuse(c);
  else call_go(c);
}

void anthropic_count(server *s, exchange *x) {
  call *c = call_new(s, x, &speaker);
  if (!c) return;
  c->counts = true;
  if (add_prompt(c)) call_refuse(c);
  else call_answer(c, json_pack("{sI}", "input_tokens", (json_int_t)call_prompt_tokens(c)));
}
