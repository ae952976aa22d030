// Prompts: converts texts, ids and conversations to the tokens of a request. An error is a fault that names the field.
// All text from a request stays text: control tokens come only from the model's template (weft_template_encode).
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "serve/media.h"
#include "serve/call.h"
#include "serve/force.h"

request *call_new_request(call *c) {
  request *r = xcalloc(1, sizeof *r);
  r->sampling = c->p.sampling;
  r->scales = shelf_scales(c->s->shelf);
  vec_push(&c->requests, r);
  return r;
}

// Appends ids to the prompt and takes ownership of them.
static void give_ids(request *r, int32_t *ids, size_t n) {
  if (!r->prompt.n) {
    vec_free(&r->prompt);
    r->prompt.at = ids, r->prompt.n = r->prompt.cap = n;
    return;
  }
  for (size_t i = 0; i < n; i++) vec_push(&r->prompt, ids[i]);
  weft_free(ids);
}

static int tokenize_into(call *c, request *r, const char *text, size_t n, unsigned flags) {
  weft_error err;
  int32_t *ids;
  size_t n_ids;
  if (r->prompt.n > call_most_ids(c)) return 0;        // already too long
  if (weft_tokenize_at_most(weft_model_vocab(c->m->model), text, n, flags, call_most_ids(c), &ids, &n_ids, &err))
    return fault_set(&c->fault, 400, "prompt", "%s", err.text);
  give_ids(r, ids, n_ids);
  return call_take(c, "prompt", "its tokens", n_ids * sizeof *ids);
}

int call_add_text(call *c, const char *text, size_t n, bool parse_special) {
  return tokenize_into(c, call_new_request(c), text, n, WEFT_ADD_SPECIAL | (parse_special ? WEFT_PARSE_SPECIAL : 0u));
}

static int add_id(call *c, request *r, const json_t *v, const char *name) {
  int64_t id;
  if (read_int(v, name, 0, weft_model_vocab_size(c->m->model) - 1, &id, &c->fault)) return -1;
  vec_push(&r->prompt, (int32_t)id);
  return 0;
}

// Texts and ids in any order; only a text at the beginning gets a BOS.
int call_add_prompt(call *c, const json_t *prompt, bool parse_special, const char *name) {
  request *r = call_new_request(c);
  const json_t *v;
  size_t i;
  unsigned flags = parse_special ? WEFT_PARSE_SPECIAL : 0;
  if (json_is_string(prompt))
    return tokenize_into(c, r, json_string_value(prompt), json_string_length(prompt), flags | WEFT_ADD_SPECIAL);
  if (!json_is_array(prompt))
    return fault_set(&c->fault, 400, name, "'%s' must be a string or an array, not %s", name, json_kind(prompt));
  if (call_take(c, name, "its tokens", json_array_size(prompt) * sizeof *r->prompt.at)) return -1;
  json_array_foreach(prompt, i, v) {
    unsigned more = i ? flags : flags | WEFT_ADD_SPECIAL;
    if (json_is_string(v) ? tokenize_into(c, r, json_string_value(v), json_string_length(v), more)
                          : add_id(c, r, v, name))
      return -1;
  }
  return 0;
}

static int add_prompt_or_object(call *c, const json_t *prompt, const char *name, size_t i) {
  if (json_is_object(prompt)) return call_add_object(c, prompt, name, i, false);
  return call_add_prompt(c, prompt, true, name);
}

// An array is one prompt of ids (possibly with texts), or many prompts.
int call_add_prompts(call *c, json_t *prompt, const char *name) {
  enum { MOST = 128 };
  json_t *one;
  size_t i;
  bool ids = false;
  if (!prompt) return fault_set(&c->fault, 400, name, "'%s' is missing", name);
  json_array_foreach(prompt, i, one) ids |= json_is_number(one);
  if (ids || !json_is_array(prompt)) return add_prompt_or_object(c, prompt, name, 0);
  if (!json_array_size(prompt) || json_array_size(prompt) > MOST)
    return fault_set(&c->fault, 400, name, "'%s' must have from 1 to %d prompts, not %zu", name, MOST,
                     json_array_size(prompt));
  json_array_foreach(prompt, i, one) if (add_prompt_or_object(c, one, name, i)) return -1;
  return 0;
}

// ---- conversations --------------------------------------------------------------------------------------------------

static int bad_message(call *c, size_t i, const char *member, const char *what) {
  char name[64];
  snprintf(name, sizeof name, "messages[%zu]%s%s", i, *member ? "." : "", member);
  return fault_set(&c->fault, 400, name, "'%s' %s", name, what);
}

// Joins the parts of a content to one string, which all templates accept; pictures and sounds become marks in it.
static int join_parts(call *c, size_t i, json_t *message) {
  json_t *content = json_object_get(message, "content"), *part;
  str all = {0};
  size_t k;
  json_array_foreach(content, k, part) {
    const json_t *text = json_object_get(part, json_is_of(part, "refusal") ? "refusal" : "text");
    const char *type = json_string_value(json_object_get(part, "type"));
    if (is_medium(part)) {
      char field[64];
      snprintf(field, sizeof field, "messages[%zu].content", i);
      if (!call_add_part(c, field, part, &all)) continue;
      str_free(&all);
      return -1;
    }
    if (!json_is_string(text)) {
      str_free(&all);
      char what[128];
      snprintf(what, sizeof what, "has a part of the kind '%.40s', which is not understood", type ? type : "?");
      return bad_message(c, i, "content", what);
    }
    str_addn(&all, json_string_value(text), json_string_length(text));
  }
  json_object_set_new(message, "content", json_stringn(str_c(&all), all.n));
  str_free(&all);
  return 0;
}

static bool known_role(const char *role) {
  static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  for (size_t i = 0; role && i < COUNT(roles); i++) if (!strcmp(role, roles[i])) return true;
  return false;
}

// Arguments come as text; templates need the parsed value.
static int open_arguments(call *c, size_t i, json_t *message) {
  json_t *calls = json_object_get(message, "tool_calls"), *one;
  size_t k;
  if (!calls || json_is_null(calls)) return 0;
  if (!json_is_array(calls)) return bad_message(c, i, "tool_calls", "must be an array");
  json_array_foreach(calls, k, one) {
    json_t *function = json_object_get(one, "function"), *arguments = json_object_get(function, "arguments");
    if (!json_is_string(json_object_get(function, "name")))
      return bad_message(c, i, "tool_calls", "has a call without a function's name");
    if (!json_is_string(arguments)) continue;
    const char *text = json_string_value(arguments);
    size_t n = json_string_length(arguments);
    if (json_take(text, n, &c->json_left, &c->x->account, "messages", &c->fault)) return -1;
    json_t *opened = json_parse(text, n, JSON_ALLOW_NUL, NULL);
    if (opened) json_object_set_new(function, "arguments", opened);
  }
  return 0;
}

static int check_message(call *c, size_t i, json_t *m) {
  if (!json_is_object(m)) return bad_message(c, i, "", "must be an object");
  const char *role = json_string_value(json_object_get(m, "role"));
  if (!known_role(role))
    return bad_message(c, i, "role", "must be system, developer, user, assistant, tool or function");
  if (!strcmp(role, "developer")) {
    json_object_set_new(m, "role", json_string("system"));      // frees what role points to
    role = "system";
  }
  json_t *content = json_object_get(m, "content");
  // an answer may consist of calls only, of reasoning, or be empty, and so may a tool result
  bool may_lack = strcmp(role, "user") && strcmp(role, "system");
  if (json_is_array(content)) { if (join_parts(c, i, m)) return -1; }
  else if (!content || json_is_null(content)) {
    if (!may_lack) return bad_message(c, i, "content", "is missing");
    json_object_set_new(m, "content", json_string(""));
  } else if (!json_is_string(content)) return bad_message(c, i, "content", "must be a string or an array of parts");
  return open_arguments(c, i, m);
}

int call_check_tools(call *c, const json_t *tools) {
  size_t i;
  json_t *tool;
  json_array_foreach(tools, i, tool) {
    const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
    char param[32];
    snprintf(param, sizeof param, "tools[%zu]", i);
    if (!json_is_string(name) || !json_string_length(name))
      return fault_set(&c->fault, 400, param, "'%s.function.name' must be the name of a function", param);
  }
  return 0;
}

// ---- ids of calls ---------------------------------------------------------------------------------------------------

static json_t *new_number(int *n) {
  char id[16];
  snprintf(id, sizeof id, "call%05d", (*n)++ % 100000);
  return json_string(id);
}

// Calls that wait for results, in order of arrival. name: of the function; id: NULL after its result. Both belong to
// the messages. from: earlier calls have results; steps: cost of searches (account_step).
struct waiting { struct { const json_t *name; json_t *id; } *at; size_t n, cap, from; unsigned steps; };

// The first waiting call with this name or this id (the other argument is NULL); otherwise, if `any`, the first one.
// *out: its id, borrowed; NULL: none. -1: the search takes too long.
static int take_waiting(struct waiting *w, const json_t *name, const json_t *id, bool any, json_t **out, error *err) {
  while (w->from < w->n && !w->at[w->from].id) w->from++;
  size_t found = any ? w->from : w->n;
  for (size_t i = name || id ? w->from : w->n; i < w->n; i++) {
    if (account_step(&w->steps, err)) return -1;
    if (!w->at[i].id || !(name ? json_equal(w->at[i].name, name) : id && json_equal(w->at[i].id, id))) continue;
    found = i;
    break;
  }
  *out = found < w->n ? w->at[found].id : NULL;
  if (*out) w->at[found].id = NULL;
  return 0;
}

// Finds the call to which result m belongs.
static int number_result(json_t *m, struct waiting *w, int *n, error *err) {
  const json_t *had = json_object_get(m, "tool_call_id"), *name = json_object_get(m, "name");
  json_t *id;
  bool known = json_is_string(had);
  if (take_waiting(w, known ? NULL : name, known ? had : NULL, !known, &id, err)) return -1;
  if (!known && id) json_object_set(m, "tool_call_id", id);
  else if (!known) json_object_set_new(m, "tool_call_id", new_number(n));
  return 0;
}

// Gives calls and results without an id (as from ollama's clients) deterministic ids: templates match them by id.
static int number_calls(call *c, json_t *messages) {
  json_t *m, *one;
  size_t i, k;
  struct waiting w = {0};
  error err = {0};
  int n = 0, status = 0;
  json_array_foreach(messages, i, m) {
    json_array_foreach(json_object_get(m, "tool_calls"), k, one) {
      if (!json_is_string(json_object_get(one, "id"))) json_object_set_new(one, "id", new_number(&n));
      vec_push(&w, ((__typeof__(*w.at)){json_object_get(json_object_get(one, "function"), "name"),
                                        json_object_get(one, "id")}));
    }
    const char *role = json_string_value(json_object_get(m, "role"));
    if (role && !strcmp(role, "tool")) status = number_result(m, &w, &n, &err);
    if (status) break;
  }
  vec_free(&w);
  return status ? fault_set(&c->fault, 400, "messages", "finding the calls of results: %s", err.text) : 0;
}

static char *dump_compact(const json_t *v, size_t *n) {
  char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
  *n = text ? strlen(text) : 0;
  return text;
}

static bool has_reasoned(const json_t *m) {
  return json_string_length(json_object_get(m, "reasoning_content")) ||
         json_string_length(json_object_get(m, "reasoning"));
}

// Does the last message begin an answer?
static bool has_begun(const json_t *messages) {
  const json_t *m = json_array_get(messages, json_array_size(messages) - 1);
  const char *role = json_string_value(json_object_get(m, "role"));
  const json_t *content = json_object_get(m, "content");
  size_t n = json_string_length(content);
  if (!role || strcmp(role, "assistant") || json_array_size(json_object_get(m, "tool_calls"))) return false;
  if (!n) return (!content || json_is_null(content) || json_is_string(content)) && has_reasoned(m);
  return strlen(json_string_value(content)) == n;
}

// Drops a final empty assistant message.
static void drop_empty_answer(json_t *messages) {
  size_t n = json_array_size(messages);
  const json_t *m = json_array_get(messages, n - 1), *content = json_object_get(m, "content");
  const char *role = json_string_value(json_object_get(m, "role"));
  bool empty = !content || json_is_null(content) || (json_is_string(content) && !json_string_length(content));
  if (n > 1 && empty && role && !strcmp(role, "assistant") && !has_reasoned(m) &&
      !json_array_size(json_object_get(m, "tool_calls")))
    json_array_remove(messages, n - 1);
}

// The variables of the template: the server's options, overridden by dedicated fields, overridden by explicit values of
// the request.
static json_t *template_variables(const call *c) {
  const char *effort = json_string_value(c->p.effort);
  json_t *all = c->p.default_variables ? json_copy(c->p.default_variables) : json_object();
  if (effort && !strcmp(effort, "none")) json_object_set_new(all, "enable_thinking", json_false());
  else if (effort) json_object_set(all, "reasoning_effort", c->p.effort);
  if (c->p.think) json_object_set_new(all, "enable_thinking", json_boolean(c->p.think > 0));
  if (c->p.documents) json_object_set(all, "documents", c->p.documents);
  if (c->p.variables) json_object_update(all, c->p.variables);
  return all;
}

// What reads the answers to this prompt: its tools are read once, and not on the step thread. None if there will be no
// answer: tokens are only counted, or do not fit.
static int open_answer(call *c, request *r) {
  weft_error err;
  if (c->counts || r->prompt.n >= (size_t)weft_model_context(c->m->model)) return 0;
  size_t n = strlen(r->prompt_text) - r->given, n_tools = r->tools ? strlen(r->tools) : 0;
  if (call_take(c, "tools", "what is known of them", r->tools ? json_cost(r->tools, n_tools) + n : 0)) return -1;
  if (!weft_answer_new(r->tmpl, r->prompt_text, n, r->tools, n_tools, &r->answer, &err)) return 0;
  return fault_set(&c->fault, 400, "tools", "%s", err.text);
}

int call_add_chat(call *c, json_t *messages, json_t *tools) {
  const served *its = c->m;
  size_t i;
  json_t *m;
  if (tools && !json_array_size(tools)) tools = NULL;
  const weft_template *t = tools && its->tool_tmpl ? its->tool_tmpl : its->tmpl;
  if (!t) return fault_set(&c->fault, 400, "messages", "%s", its->no_tmpl.text);
  if (!json_is_array(messages) || !json_array_size(messages))
    return fault_set(&c->fault, 400, "messages", "'messages' must be an array with messages");
  json_array_foreach(messages, i, m) if (check_message(c, i, m)) return -1;
  if (number_calls(c, messages)) return -1;
  if (call_check_tools(c, tools)) return -1;
  if (!c->p.ended && !c->p.must_call) drop_empty_answer(messages);
  request *r = call_new_request(c);
  weft_error err;
  size_t n_messages, n_tools, n_variables, n_text = 0, n_ids = 0;
  json_t *variables = template_variables(c);
  char *json = dump_compact(messages, &n_messages), *more = dump_compact(variables, &n_variables), *text = NULL;
  json_decref(variables);
  int32_t *ids = NULL;
  r->tools = dump_compact(tools, &n_tools);
  weft_chat chat = {.messages = json,
                    .n_messages = n_messages,
                    .tools = r->tools,
                    .n_tools = n_tools,
                    .variables = more,
                    .n_variables = n_variables,
                    .no_generation_prompt = c->p.no_generation,
                    .add_bos = c->s->o->chat_bos || c->p.add_special,
                    .bos = its->bos,
                    .eos = its->eos,
                    .most_ids = call_most_ids(c),
                    .media_mark = c->media_mark,
                    .media = c->media.at,
                    .n_media = c->media.n};
  bool begun = !c->p.ended && has_begun(messages);
  size_t beside = n_messages + n_variables;      // freed before this returns
  if (!c->p.must_call && !begun) {         // so that they are not in memory twice
    json_array_clear(messages);
    json_array_clear(c->p.messages);
  }
  r->chat = true;
  r->tmpl = t;
  int continued, status = call_take(c, "messages", "their text as JSON", beside + n_tools);
  if (status) beside = 0;
  else if (!c->p.must_call && begun && (continued = continue_answer(c, r, &chat, messages)))
    status = continued < 0 ? -1 : 0;
  else {
    status = weft_template_encode(t, weft_model_vocab(its->model), &chat, &text, &n_text, &ids, &n_ids, &err);
    if (status) fault_set(&c->fault, 400, "messages", "%s", err.text);
    else give_ids(r, ids, n_ids);
    r->prompt_text = text;
    if (!status) status = call_take(c, "messages", "the prompt and its tokens", n_text + n_ids * sizeof *ids);
  }
  if (!status && c->p.must_call) status = call_fits(c, r);       // before other work is done
  if (!status && c->p.must_call) status = force_call(c, r, &chat, messages, tools);
  if (!status) status = open_answer(c, r);
  free(json);
  free(more);
  account_give(&c->x->account, beside);
  return status;
}
