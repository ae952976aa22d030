// OpenAI's /v1/responses. It is stateless: each request contains the whole conversation. A stream reports items (a
// message, reasoning, a function call) that are added, grow and are done, each with its index; events are numbered from
// 0.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "serve/call.h"
#include "serve/families.h"
#include "serve/shapes.h"
#include "serve/tools.h"

#define P struct params
static const struct field text_table[] = {
  FS(P, format, "format", F_OBJECT, SHAPE_FORMAT, "{\"type\": text, json_object or json_schema}"),
  FIGNORED("verbosity", "['medium']", "the model decides"),
};
static const struct field reasoning_table[] = {
  FJ(P, effort, "effort", F_TEXT, "the template's variable reasoning_effort; none: no reasoning"),
  FIGNORED("summary", NULL, "reasoning is not summarised"),
  FIGNORED("generate_summary", NULL, "reasoning is not summarised"),
  FIGNORED("context", "['auto']", "clients keep the conversation"),
  FIGNORED("mode", "['auto']", "the model decides"),
};
static const struct field stream_table[] = {
  FIGNORED("include_obfuscation", "[false]", "no padding is added")};
static const struct fields text_fields = FIELDS(text_table), reasoning_fields = FIELDS(reasoning_table),
                           stream_fields = FIELDS(stream_table);
static const struct fields *const text_tables[] = {&text_fields, NULL},
                                         *const reasoning_tables[] = {&reasoning_fields, NULL},
                                         *const stream_tables[] = {&stream_fields, NULL};
static const struct field table[] = {
  FN(P, input, "input", F_ANY, "{'anyOf':[{'type':'string'},{'type':'array','items':" SHAPE_OBJECT "}]}",
     "a text, or items: messages, calls of functions and their results"),
  FJ(P, system, "instructions", F_TEXT, "what the model is told before"),
  FI(P, max_tokens, "max_output_tokens", 0, INT32_MAX, "tokens of the answer at most"),
  FS(P, tools, "tools", F_ARRAY, SHAPE_NAMED_TOOLS("'function'"), "functions that the model may call"),
  FS(P, tool_choice, "tool_choice", F_ANY,
     SHAPE_NAMED_CHOICE("{'enum':['auto','none','required']}," SHAPE_ALLOWED, "function"),
     "auto, none, required, or {\"type\": \"function\", \"name\": NAME}"),
  FS(P, parallel_calls, "parallel_tool_calls", F_ANY, SHAPE_YES_OR_NO, "false: the answer ends after one call"),
  FO(P, nested, "text", text_tables, "{\"format\"}"),
  FS(P, format, "response_format", F_OBJECT, SHAPE_FORMAT, "chat's name for text.format"),
  FO(P, nested, "reasoning", reasoning_tables, "{\"effort\"}"),
  FO(P, nested, "stream_options", stream_tables, "of the stream"),
  FJ(P, variables, "chat_template_kwargs", F_OBJECT, "further variables of the chat template"),
};
static const struct fields fields = FIELDS(table);
const struct fields *const responses_fields[] = {
  &fields, &sampling_fields, &foreign_responses_fields, &llama_own_fields, &foreign_llama_fields, &common_fields, NULL};

// ---- what comes in --------------------------------------------------------------------------------------------------

static json_t *called_function(const json_t *item) {
  json_t *name = namespaced_name(json_object_get(item, "namespace"), json_object_get(item, "name"));
  return json_pack("{sO? ss s{so? sO?}}", "id", json_object_get(item, "call_id"), "type", "function", "function",
                   "name", name, "arguments", json_object_get(item, "arguments"));
}

// The assistant message being assembled: its reasoning, text and calls are separate items. NULL: the last message has
// another role, or already has calls.
static json_t *open_message(json_t *all, const char *member) {
  json_t *last = json_array_get(all, json_array_size(all) - 1);
  const char *role = json_string_value(json_object_get(last, "role"));
  const json_t *content = json_object_get(last, "content");
  bool calls = json_object_get(last, "tool_calls") != NULL,
       text = json_string_length(content) || json_array_size(content);      // as a string, or as parts
  if (!role || strcmp(role, "assistant")) return NULL;
  return strcmp(member, "tool_calls") && (calls || text) ? NULL : last;
}

static json_t *assistant_message(json_t *all, const char *member) {
  json_t *m = open_message(all, member);
  if (!m) json_array_append_new(all, m = json_pack("{ss ss}", "role", "assistant", "content", ""));
  return m;
}

static void add_function_call(json_t *all, const json_t *item) {
  json_t *m = assistant_message(all, "tool_calls"), *calls = json_object_get(m, "tool_calls");
  if (!calls) json_object_set_new(m, "tool_calls", calls = json_array());
  json_array_append_new(calls, called_function(item));
}

static void add_search_call(json_t *all, json_t *item) {
  json_t *named = json_copy(item);
  json_object_set_new(named, "name", json_string("tool_search"));
  add_function_call(all, named);
  json_decref(named);
}

// What a search found is named; the definitions are among the tools.
static void add_found_tools(json_t *all, const json_t *item) {
  str text = {0};
  const json_t *tool, *inner;
  size_t i, j;
  json_array_foreach(json_object_get(item, "tools"), i, tool) {
    const json_t *tools = json_object_get(tool, "tools");
    json_t *space = json_object_get(tool, "name");
    if (!json_is_array(tools)) str_addf(&text, "%s\n", json_string_value(space) ? json_string_value(space) : "");
    json_array_foreach(tools, j, inner) {
      json_t *name = namespaced_name(space, json_object_get(inner, "name"));
      bool known = !json_object_get(inner, "type") || json_is_of(inner, "function");
      if (known && json_is_string(name)) str_addf(&text, "%s\n", json_string_value(name));
      json_decref(name);
    }
  }
  json_array_append_new(all, json_pack("{ss so sO?}", "role", "tool", "content", json_of_text(str_c(&text), text.n),
                                       "tool_call_id", json_object_get(item, "call_id")));
  str_free(&text);
}

// The text of a reasoning item: from this server (reasoning_text), or a summary. An encrypted item has none.
static void add_reasoning(json_t *all, const json_t *item) {
  const json_t *parts = json_object_get(item, "content"), *part;
  str text = {0};
  size_t i;
  if (!json_array_size(parts)) parts = json_object_get(item, "summary");
  json_array_foreach(parts, i, part) {
    const json_t *own = json_object_get(part, "text");
    str_addn(&text, json_string_value(own), json_string_length(own));
  }
  if (text.n) json_object_set_new(assistant_message(all, "reasoning_content"), "reasoning_content",
                                  json_of_text(text.at, text.n));
  str_free(&text);
}

static int add_item(call *c, json_t *all, json_t *item) {
  json_t *content = json_object_get(item, "content"), *role = json_object_get(item, "role"),
         *result = json_object_get(item, "output"), *open;
  if (json_is_of(item, "item_reference"))
    return call_bad(c, "input", "has an item_reference, and no items are kept: send the item itself (store: false)");
  if (json_is_of(item, "reasoning")) { add_reasoning(all, item); return 0; }
  if (json_is_of(item, "function_call")) { add_function_call(all, item); return 0; }
  if (json_is_of(item, "tool_search_call")) { add_search_call(all, item); return 0; }
  if (json_is_of(item, "tool_search_output")) { add_found_tools(all, item); return 0; }
  if (json_is_of(item, "function_call_output") && result)
    return json_array_append_new(all, json_pack("{ss sO sO?}", "role", "tool", "content", result, "tool_call_id",
                                                json_object_get(item, "call_id")));
  if (!json_is_string(role) || !content)
    return call_bad(c, "input", "has an item that is neither a message nor the call of a function nor its result");
  if (!strcmp(json_string_value(role), "assistant") && (open = open_message(all, "content")))
    return json_object_set(open, "content", content);
  return json_array_append_new(all, json_pack("{sO sO}", "role", role, "content", content));
}

static json_t *wrapped_tools(const json_t *tools) {
  json_t *all = json_array(), *tool;
  size_t i;
  json_array_foreach(tools, i, tool) {
    json_t *f = json_pack("{sO? sO* sO* sO*}", "name", json_object_get(tool, "name"), "description",
                          json_object_get(tool, "description"), "parameters", json_object_get(tool, "parameters"),
                          "strict", json_object_get(tool, "strict"));
    json_array_append_new(all, json_pack("{ss so}", "type", "function", "function", f));
  }
  return all;
}

static int add_input(call *c) {
  json_t *all = json_array(), *item, *tools = NULL;
  size_t i;
  int status = 0;
  if (c->p.system) json_array_append_new(all, json_pack("{ss sO}", "role", "system", "content", c->p.system));
  if (json_is_string(c->p.input))
    json_array_append_new(all, json_pack("{ss sO}", "role", "user", "content", c->p.input));
  else if (!json_is_array(c->p.input)) status = call_bad(c, "input", "must be a text or an array of items");
  else json_array_foreach(c->p.input, i, item) if (!status) status = add_item(c, all, item);
  if (!status && !json_array_size(all)) status = call_bad(c, "input", "has no items");
  if (!status) status = tools_open_namespaces(c);
  if (!status) status = openai_tool_choice(c);
  if (c->p.tools) tools = wrapped_tools(c->p.tools);
  if (!status) status = call_add_chat(c, all, tools);
  if (!status) status = call_format(c, c->p.format, "text.format");
  json_decref(all);
  json_decref(tools);
  return status;
}

// ---- what goes out --------------------------------------------------------------------------------------------------

// State of a stream: the open item, its content, and finished items.
struct state {
  int number, index;
  size_t n_calls;                      // number of calls begun
  bool open;
  enum weft_part_kind kind;
  char item_id[64];
  size_t from_content, from_reasoning;
};

static json_t *text_part(const char *text, size_t n) {
  return json_pack("{ss so s[] s[]}", "type", "output_text", "text", json_of_text(text, n), "annotations", "logprobs");
}

static json_t *message_item(const char *id, const char *status, json_t *content) {
  return json_pack("{ss ss ss ss so}", "type", "message", "id", id, "status", status, "role", "assistant", "content",
                   content);
}

static json_t *reasoning_item(const char *id, const char *status, const char *text, size_t n) {
  json_t *content = n ? json_pack("[{ss so}]", "type", "reasoning_text", "text", json_of_text(text, n)) : json_array();
  return json_pack("{ss ss ss s[] so}", "type", "reasoning", "id", id, "status", status, "summary", "content", content);
}

static bool is_search(const call *c, const char *name) {
  return tools_is_search(json_object_get(tools_in_namespace(c, name), "namespace"));
}

static json_t *search_item(const char *id, const char *status, const struct tool_call *t) {
  str text = {0};
  call_arguments(t, &text);
  json_t *arguments = json_loadb(str_c(&text), text.n, JSON_DECODE_ANY, NULL);
  str_free(&text);
  return json_pack("{ss ss ss ss ss so}", "type", "tool_search_call", "id", id, "status",
                   status ? status : t->done ? "completed" : "incomplete", "call_id", t->id, "execution", "client",
                   "arguments", arguments ? arguments : json_object());
}

// The name without its namespace.
static json_t *own_name(const call *c, const struct tool_call *t) {
  const json_t *inner = tools_in_namespace(c, t->name);
  return inner ? json_incref(json_object_get(inner, "own_name")) : json_string(t->name);
}

static json_t *call_item(const call *c, const char *id, const char *status, const struct tool_call *t) {
  const json_t *inner = tools_in_namespace(c, t->name);
  json_t *space = json_object_get(json_object_get(inner, "namespace"), "name");
  if (is_search(c, t->name)) return search_item(id, status, t);
  return json_pack("{ss ss ss ss so sO* so}", "type", "function_call", "id", id, "status",
                   status ? status : t->done ? "completed" : "incomplete", "call_id", t->id, "name", own_name(c, t),
                   "namespace", space, "arguments", json_of_text(str_c(&t->arguments), t->arguments.n));
}

static json_t *response_usage(const call *c) {
  json_int_t prompt = call_prompt_tokens(c), drawn = call_drawn(c);
  return json_pack("{sI s{sI} sI s{sI} sI}", "input_tokens", prompt, "input_tokens_details", "cached_tokens",
                   (json_int_t)call_cached(c), "output_tokens", drawn, "output_tokens_details", "reasoning_tokens",
                   (json_int_t)call_reasoned(c),
                   "total_tokens", prompt + drawn);
}

static json_t *response(const call *c, const char *status, json_t *output) {
  bool ended = c->choices[0].ended, cut = ended && finish_name(c->choices[0].finish)[0] == 'l';
  json_t *o = json_pack(
    "{ss ss sI ss ss so sn so sb so so sf sf s{} so}", "id", c->id, "object", "response", "created_at",
    (json_int_t)c->created, "status", status, "model", c->m->name, "output", output, "error", "incomplete_details",
    cut ? json_pack("{ss}", "reason", "max_output_tokens") : json_null(), "parallel_tool_calls", !c->p.no_parallel,
    "tool_choice", c->p.tool_choice ? json_incref(c->p.tool_choice) : json_string("auto"), "tools",
    tools_as_sent(c), "temperature", c->p.sampling.temp, "top_p",
    c->p.sampling.top_p, "metadata", "usage", ended ? response_usage(c) : json_null());
  if (c->p.system) json_object_set(o, "instructions", c->p.system);
  return o;
}

static void item_id(const call *c, const char *prefix, int index, char *out, size_t cap) {
  snprintf(out, cap, "%s_%s_%d", prefix, c->id + 5, index);
}

// All items in their final form.
static json_t *output(const call *c) {
  const struct choice *h = &c->choices[0];
  json_t *all = json_array();
  char id[64];
  const char *status = finish_name(h->finish)[0] == 'l' ? "incomplete" : "completed";
  item_id(c, "rs", 0, id, sizeof id);
  if (h->reasoning.n) json_array_append_new(all, reasoning_item(id, "completed", h->reasoning.at, h->reasoning.n));
  item_id(c, "msg", (int)json_array_size(all), id, sizeof id);
  if (h->content.n || !h->calls.n)
    json_array_append_new(all, message_item(id, status, json_pack("[o]", text_part(str_c(&h->content), h->content.n))));
  for (size_t i = 0; i < h->calls.n; i++) {
    item_id(c, "fc", (int)json_array_size(all), id, sizeof id);
    json_array_append_new(all, call_item(c, id, NULL, &h->calls.at[i]));
  }
  return all;
}

static void send_numbered(call *c, const char *name, json_t *o) {
  struct state *st = c->own;
  char before[96];
  json_object_set_new(o, "type", json_string(name));
  json_object_set_new(o, "sequence_number", json_integer(st->number++));
  snprintf(before, sizeof before, "event: %s\ndata: ", name);
  call_line(c, before, o, "\n\n");
}

static void send_in(call *c, const char *name, json_t *o) {      // an event about the open item
  struct state *st = c->own;
  json_object_set_new(o, "output_index", json_integer(st->index));
  json_object_set_new(o, "item_id", json_string(st->item_id));
  send_numbered(c, name, o);
}

static void send_item(call *c, const char *name, json_t *item) {
  struct state *st = c->own;
  send_numbered(c, name, json_pack("{si so}", "output_index", st->index, "item", item));
}

static void close_item(call *c) {
  struct state *st = c->own;
  const struct choice *h = &c->choices[0];
  if (!st->open) return;
  if (st->kind == WEFT_CALL) {
    const struct tool_call *t = &h->calls.at[st->n_calls - 1];
    if (!is_search(c, t->name)) send_in(c, "response.function_call_arguments.done",
            json_pack("{so so}", "arguments", json_of_text(str_c(&t->arguments), t->arguments.n), "name",
                      own_name(c, t)));
    send_item(c, "response.output_item.done", call_item(c, st->item_id, NULL, t));
  } else if (st->kind == WEFT_CONTENT) {
    const char *text = str_c(&h->content) + st->from_content;
    size_t n = h->content.n - st->from_content;
    send_in(c, "response.output_text.done",
            json_pack("{si so s[]}", "content_index", 0, "text", json_of_text(text, n), "logprobs"));
    send_in(c, "response.content_part.done", json_pack("{si so}", "content_index", 0, "part", text_part(text, n)));
    send_item(c, "response.output_item.done",
              message_item(st->item_id, "completed", json_pack("[o]", text_part(text, n))));
    st->from_content = h->content.n;
  } else {
    const char *text = str_c(&h->reasoning) + st->from_reasoning;
    size_t n = h->reasoning.n - st->from_reasoning;
    send_in(c, "response.reasoning_text.done", json_pack("{si so}", "content_index", 0, "text", json_of_text(text, n)));
    send_item(c, "response.output_item.done", reasoning_item(st->item_id, "completed", text, n));
    st->from_reasoning = h->reasoning.n;
  }
  st->open = false;
  st->index++;
}

static void open_item(call *c, enum weft_part_kind kind) {
  struct state *st = c->own;
  if (st->open && st->kind == kind) return;
  close_item(c);
  st->open = true;
  st->kind = kind;
  item_id(c, kind == WEFT_CONTENT ? "msg" : "rs", st->index, st->item_id, sizeof st->item_id);
  if (kind == WEFT_REASONING) {
    send_item(c, "response.output_item.added", reasoning_item(st->item_id, "in_progress", "", 0));
    return;
  }
  send_item(c, "response.output_item.added", message_item(st->item_id, "in_progress", json_array()));
  send_in(c, "response.content_part.added", json_pack("{si so}", "content_index", 0, "part", text_part("", 0)));
}

static void send_call(call *c, const struct part *p) {
  struct state *st = c->own;
  if (p->name) {
    close_item(c);
    st->open = true;
    st->kind = WEFT_CALL;
    st->n_calls++;
    item_id(c, "fc", st->index, st->item_id, sizeof st->item_id);
    send_item(c, "response.output_item.added",
              call_item(c, st->item_id, "in_progress", &(struct tool_call){.id = p->id, .name = p->name}));
  }
  const struct choice *h = &c->choices[0];
  if (p->text.n && !is_search(c, h->calls.at[st->n_calls - 1].name))
    send_in(c, "response.function_call_arguments.delta",
            json_pack("{so}", "delta", json_of_text(str_c(&p->text), p->text.n)));
  if (p->done) close_item(c);
}

static void on_start(call *c) {
  send_numbered(c, "response.created", json_pack("{so}", "response", response(c, "in_progress", json_array())));
  send_numbered(c, "response.in_progress", json_pack("{so}", "response", response(c, "in_progress", json_array())));
}

static void send_part(call *c, const struct part *p) {
  json_t *delta = json_of_text(str_c(&p->text), p->text.n);
  open_item(c, p->kind);
  if (p->kind == WEFT_CONTENT)
    send_in(c, "response.output_text.delta", json_pack("{si so s[]}", "content_index", 0, "delta", delta, "logprobs"));
  else send_in(c, "response.reasoning_text.delta", json_pack("{si so}", "content_index", 0, "delta", delta));
}

static void response_event(call *c, const event *e, int i) {
  (void)i;
  for (size_t k = 0; k < e->parts.n; k++) {
    if (e->parts.at[k].kind == WEFT_CALL) send_call(c, &e->parts.at[k]);
    else if (e->parts.at[k].text.n) send_part(c, &e->parts.at[k]);
  }
}

static void response_finish(call *c) {
  bool cut = finish_name(c->choices[0].finish)[0] == 'l';
  const char *status = cut ? "incomplete" : "completed";
  if (!c->p.stream) { call_send(c, 200, response(c, status, output(c))); return; }
  if (!c->choices[0].content.n && !c->choices[0].calls.n) open_item(c, WEFT_CONTENT);
  close_item(c);
  send_numbered(c, cut ? "response.incomplete" : "response.completed",
                json_pack("{so}", "response", response(c, status, output(c))));
}

static void response_failed(call *c, const fault *why) {
  json_t *r = response(c, "failed", json_array());
  json_object_set_new(r, "error",
                      json_pack("{ss so}", "code", why->status == 400 ? "invalid_prompt" : "server_error", "message",
                                json_of_text(why->text, strlen(why->text))));
  send_numbered(c, "response.failed", json_pack("{so}", "response", r));
}

static const struct speaker speaker = {"text/event-stream", ": ping\n",      on_start,
                                       response_event,      response_finish, response_failed};

void openai_responses(server *s, exchange *x) {
  call *c = call_new(s, x, &speaker);
  if (!c) return;
  new_id(s, "resp_", c->id, sizeof c->id);
  c->own = xcalloc(1, sizeof(struct state));
  if (add_input(c)) call_refuse(c);
  else call_go(c);
}

void openai_responses_count(server *s, exchange *x) {
  call *c = call_new(s, x, &speaker);
  if (!c) return;
  c->counts = true;
  if (add_input(c)) call_refuse(c);
  else call_answer(c, json_pack("{ss sI}", "object", "response.input_tokens", "input_tokens",
                                (json_int_t)call_prompt_tokens(c)));
}
