// force: answers with a given beginning: one that continues a final assistant message, and one that must be a tool call
// (tool_choice). The model's own template determines how the model writes either.
//
// Tool calls: a conversation that ends in a call is rendered, which shows the text around its name and arguments. The
// prompt then ends before the name, and grammars constrain the rest: a name, the text after it, and JSON of the tool's
// schema.
//
// Refused if a template does not write calls as a name followed by JSON.
#include "serve/force.h"
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "serve/call.h"

// Two names without a common prefix: as far as the tokens of both agree, they belong to any call.
static const char *const names[] = {"a_name_of_a_tool", "some_other_name"};
#define KEY "a_key"
#define VALUE "a value"

typedef struct rendered { char *text; size_t n; int32_t *ids; size_t n_ids; account *of; } rendered;

static size_t rendered_bytes(const rendered *r) { return r->n + r->n_ids * sizeof *r->ids; }

static void free_rendered(rendered *r) {
  account_give(r->of, rendered_bytes(r));
  weft_free(r->text);
  weft_free(r->ids);
}

// Renders the conversation with this answer, which is freed.
static int render_answer(const call *c, const weft_template *t, const weft_chat *chat, json_t *messages,
                         json_t *answer, rendered *out, weft_error *err) {
  json_t *all = json_copy(messages);         // the array alone
  json_array_append_new(all, answer);
  char *text = json_dumps(all, JSON_COMPACT);
  weft_chat with = *chat;
  with.messages = text;
  with.n_messages = strlen(text);
  with.no_generation_prompt = true;
  int status = weft_template_encode(t, weft_model_vocab(c->m->model), &with, &out->text, &out->n, &out->ids,
                                    &out->n_ids, err);
  if (!status) {
    out->of = &c->x->account;
    account_add(out->of, rendered_bytes(out));
  }
  json_decref(all);
  free(text);
  return status;
}

// For weft_free; NULL on failure.
static char *text_of_ids(const call *c, const int32_t *ids, size_t n) {
  char *text;
  size_t n_text;
  weft_error err;
  return weft_detokenize(weft_model_vocab(c->m->model), ids, n, true, &text, &n_text, &err) ? NULL : text;
}

static void set_prompt(request *r, const int32_t *ids, size_t n) {
  r->prompt.n = 0;
  for (size_t i = 0; i < n; i++) vec_push(&r->prompt, ids[i]);
}

// Finds the JSON object around the key, if it contains only that: from *from to *to.
static bool find_example(const char *text, size_t *from, size_t *to) {
  const char *key = strstr(text, "\"" KEY "\""), *open = key, *close = key ? strchr(key, '}') : NULL;
  while (open && open > text && *open != '{') open--;
  if (!close || *open != '{') return false;
  json_t *o = json_load(open, (size_t)(close + 1 - open), 0, NULL);
  const char *value = json_string_value(json_object_get(o, KEY));
  bool alone = value && !strcmp(value, VALUE) && json_object_size(o) == 1;
  json_decref(o);
  *from = (size_t)(open - text);
  *to = (size_t)(close + 1 - text);
  return alone;
}

static json_t *example_call(const char *name) {
  return json_pack("{ss ss s[{ss ss s{ss s{ss}}}]}", "role", "assistant", "content", "", "tool_calls", "id",
                   "call00000", "type", "function", "function", "name", name, "arguments", KEY, VALUE);
}

// Length of the prompt's text that is part of the text with a call. If they differ in the middle of a word or a mark,
// that belongs to the call.
static size_t common_text(const char *prompt, const char *with_call) {
  size_t n = 0;
  while (prompt[n] && prompt[n] == with_call[n]) n++;
  while (n && prompt[n] && !strchr(" \n\t>]", prompt[n - 1])) n--;
  return n;
}

static const char *last_of(const char *text, const char *what) {
  const char *found = NULL;
  for (const char *at = text; (at = strstr(at, what)); at++) found = at;
  return found;
}

// Removes the text that ends any answer.
static void cut_end(char *after, const char *plain) {
  const char *end = last_of(plain, VALUE);
  if (!end) return;
  end += strlen(VALUE);
  size_t n = strlen(after), m = strlen(end);
  while (n && m && after[n - 1] == end[m - 1]) n--, m--;
  while (after[n] && !strchr("<[ \n", after[n])) n++;           // cuts before a whole mark
  after[n] = 0;
}

// The number of leading tokens that both share such that the rest of the first contains the mark; returns the text
// before the mark in that rest, for weft_free. NULL: not found: some vocabularies cannot write it.
static char *cut_before(const call *c, const rendered *both, const char *mark, size_t *n_ids) {
  enum { MOST_BACK = 64 };     // tokens that the beginning of the mark may have joined, and more
  size_t n = 0, least;
  while (n < both[0].n_ids && n < both[1].n_ids && both[0].ids[n] == both[1].ids[n]) n++;
  for (least = n > MOST_BACK ? n - MOST_BACK : 0;; n--) {
    char *rest = text_of_ids(c, both[0].ids + n, both[0].n_ids - n), *at = rest ? strstr(rest, mark) : NULL;
    *n_ids = n;
    if (at) { *at = 0; return rest; }
    weft_free(rest);
    if (n == least) return NULL;
  }
}

// Learns the form of calls from two rendered calls. -1: the template does not show it.
static int learn_form(const call *c, const rendered *both, request *r, struct forced *f) {
  const char *name = last_of(both[0].text, names[0]);
  size_t n_ids, from, to;
  if (!name || !find_example(name, &from, &to)) return -1;
  char *lead = cut_before(c, both, names[0], &n_ids);
  size_t before = (size_t)(name - both[0].text), own = common_text(r->prompt_text, both[0].text);
  size_t n_lead = lead ? strlen(lead) : before + 1;
  if (n_lead > before || own > before - n_lead) { weft_free(lead); return -1; }
  f->lead = lead;
  f->before = xstrdup(both[0].text + own);
  f->before[before - n_lead - own] = 0;
  f->between = xstrdup(name + strlen(names[0]));
  f->between[from - strlen(names[0])] = 0;
  f->after = xstrdup(name + to);
  set_prompt(r, both[0].ids, n_ids);
  r->prompt_text[own] = 0;
  return 0;
}

// ---- continued answers ----------------------------------------------------------------------------------------------

// Length of the common end of two texts.
static size_t common_end(const char *a, size_t n, const char *b, size_t n_b) {
  size_t same = 0;
  while (same < n && same < n_b && a[n - 1 - same] == b[n_b - 1 - same]) same++;
  return same;
}

// Makes the request's prompt end where `mark` begins in both.
static bool end_prompt_at(const call *c, const rendered *both, const char *mark, const char *content, request *r) {
  size_t n_ids, more = 0;
  if (both[0].n_ids > call_most_ids(c)) {          // not tokenised to its end: refused for its length
    set_prompt(r, both[0].ids, both[0].n_ids);
    return true;
  }
  const char *end = last_of(both[0].text, mark);
  char *lead = end ? cut_before(c, both, mark, &n_ids) : NULL;
  int32_t *ids = NULL;
  weft_error err;
  bool known = lead && (!*lead || !weft_tokenize(weft_model_vocab(c->m->model), lead, strlen(lead), 0, &ids, &more,
                                                 &err));
  weft_free(lead);
  if (!known) return false;
  set_prompt(r, both[0].ids, n_ids);
  for (size_t i = 0; i < more; i++) vec_push(&r->prompt, ids[i]);
  weft_free(ids);
  free(r->prompt_text);
  r->prompt_text = xstrdup(both[0].text);
  r->prompt_text[end - both[0].text] = 0;
  r->given = common_end(r->prompt_text, strlen(r->prompt_text), content, strlen(content));
  return true;
}

// An answer with this content, followed by `more`.
static json_t *with_more(const json_t *m, const char *content, const char *between, const char *more) {
  str with = {0};
  str_addf(&with, "%s%s%s", content, between, more);
  json_t *answer = json_deep_copy(m);
  json_object_set_new(answer, "content", json_stringn(with.at, with.n));
  str_free(&with);
  return answer;
}

// Renders the conversation twice, ending in two names after the content and `between`.
static int render_both(const call *c, const request *r, const weft_chat *chat, json_t *before, const json_t *m,
                       const char *content, const char *between, rendered both[2], weft_error *err) {
  int status = 0;
  for (size_t i = 0; i < COUNT(names) && !status; i++)
    status = render_answer(c, r->tmpl, chat, before, with_more(m, content, between, names[i]), &both[i], err);
  return status;
}

// Is the line end before the name the one that was inserted? A template that trims white space or text before the end
// of reasoning may have removed it and written its own.
static bool line_is_ours(const rendered *lined, const rendered *bare) {
  const char *a = last_of(lined->text, names[0]), *b = last_of(bare->text, names[0]);
  size_t n = a ? (size_t)(a - lined->text) : 0;
  return a && b && n == (size_t)(b - bare->text) + 1 && lined->text[n - 1] == '\n' &&
         !memcmp(lined->text, bare->text, n - 1);
}

// A new line begins a new token, so the content keeps its own tokens; without one it is cut at its last token boundary.
int continue_answer(call *c, request *r, const weft_chat *chat, json_t *messages) {
  size_t last = json_array_size(messages) - 1;
  const json_t *m = json_array_get(messages, last);
  const char *said = json_string_value(json_object_get(m, "content")), *content = said ? said : "";
  json_t *before = json_copy(messages);
  rendered lined[COUNT(names)] = {{0}}, bare[COUNT(names)] = {{0}};
  weft_error err;
  json_array_remove(before, last);
  int status = render_both(c, r, chat, before, m, content, "\n", lined, &err) ||
               render_both(c, r, chat, before, m, content, "", bare, &err);
  str mark = {0};
  str_addf(&mark, "\n%s", names[0]);
  bool ours = !status && line_is_ours(lined, bare);
  bool continues = !status && end_prompt_at(c, ours ? lined : bare, ours ? mark.at : names[0], content, r);
  for (size_t i = 0; i < COUNT(names); i++) { free_rendered(&lined[i]); free_rendered(&bare[i]); }
  str_free(&mark);
  json_decref(before);
  if (continues || status) return continues;             // the caller renders it unchanged and reports the error
  return fault_set(&c->fault, 400, "messages", "the model's template does not say where the answer in the last message "
                   "ends, so it cannot be continued; let the last message be the user's");
}

// ---- callable tools -------------------------------------------------------------------------------------------------

enum { CHECKED = 64 };        // number of tools whose schemas are checked before generation

// The schema of a tool's arguments, which are an object. For free().
static char *arguments_schema(const json_t *function) {
  const json_t *parameters = json_object_get(function, "parameters");
  json_t *schema = json_is_object(parameters) ? json_copy((json_t *)(uintptr_t)parameters) : NULL;
  if (!schema && parameters && !json_is_null(parameters)) return json_dumps(parameters, JSON_COMPACT | JSON_ENCODE_ANY);
  if (!schema) schema = json_object();
  if (!json_object_get(schema, "type") && !json_object_get(schema, "$ref"))
    json_object_set_new(schema, "type", json_string("object"));
  char *text = json_dumps(schema, JSON_COMPACT);
  json_decref(schema);
  return text;
}

static int open_schema_of(const struct forced_tool *tool, const weft_vocab *v, weft_grammar **out, weft_error *err) {
  size_t n = strlen(tool->schema);
  return tool->strict ? weft_grammar_open_json_schema_strict(v, tool->schema, n, out, err)
                      : weft_grammar_open_json_schema(v, tool->schema, n, out, err);
}

static int add_tool(call *c, struct forced *f, const json_t *function, size_t i) {
  weft_error err;
  char param[64];
  struct forced_tool tool = {.name = xstrdup(json_string_value(json_object_get(function, "name"))),
                             .schema = arguments_schema(function),
                             .strict = json_is_true(json_object_get(function, "strict"))};
  snprintf(param, sizeof param, "tools[%zu].function.parameters", i);
  vec_push(&f->tools, tool);
  if (f->tools.n > CHECKED) return 0;
  weft_grammar *arguments;
  if (open_schema_of(&tool, weft_model_vocab(c->m->model), &arguments, &err))
    return fault_set(&c->fault, 400, param, "'%s': %s", param, err.text);
  call_notes(c, arguments);
  weft_grammar_free(arguments);
  return 0;
}

static int by_head(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// The heads with which others begin. Where nothing stands between a name and the arguments, "get" and "get_all" are
// such: the brace of the arguments then ends the first.
static void mark_begun(struct forced *f) {
  request_texts sorted = {0};
  for (size_t i = 0; i < f->tools.n; i++) {
    str head = {0};
    str_addf(&head, "%s%s", f->tools.at[i].name, f->between);
    vec_push(&sorted, head.at);
  }
  qsort(sorted.at, sorted.n, sizeof *sorted.at, by_head);
  for (size_t i = 0; i < f->tools.n; i++) {
    struct forced_tool *tool = &f->tools.at[i];
    str head = {0};
    str_addf(&head, "%s%s", tool->name, f->between);
    char **at = bsearch(&head.at, sorted.at, sorted.n, sizeof *sorted.at, by_head), **end = sorted.at + sorted.n;
    while (at < end && !strcmp(*at, head.at)) at++;
    tool->brace = at < end && !strncmp(*at, head.at, head.n);
    str_free(&head);
  }
  for (size_t i = 0; i < sorted.n; i++) free(sorted.at[i]);
  vec_free(&sorted);
}

// The names of the tools whose heads end with a brace, or of the others, and what follows each.
static void add_heads(str *all, const struct forced *f, bool brace) {
  str after = {0};
  bool some = false;
  str_addf(&after, "%s%s", f->between, brace ? "{" : "");
  for (size_t k = 0; k < f->tools.n; k++) {
    if (f->tools.at[k].brace != brace) continue;
    str_add(all, some ? " | " : " ((");
    str_add_json(all, f->tools.at[k].name, strlen(f->tools.at[k].name));
    some = true;
  }
  if (some) { str_add(all, ") "); str_add_json(all, str_c(&after), after.n); str_add(all, ")"); }
  str_free(&after);
}

// One grammar for all names; a schema is opened when its tool is chosen.
static int open_heads(call *c, struct forced *f) {
  str all = {0};
  weft_error err;
  str_add(&all, "root ::= ");
  str_add_json(&all, f->lead, strlen(f->lead));                 // a grammar's literals use JSON syntax
  bool some = false, all_are = true;
  mark_begun(f);
  for (size_t i = 0; i < f->tools.n; i++) some |= f->tools.at[i].brace, all_are &= f->tools.at[i].brace;
  str_add(&all, " (");
  if (!all_are) add_heads(&all, f, false);
  if (some && !all_are) str_add(&all, " |");
  if (some) add_heads(&all, f, true);
  str_add(&all, ")");
  int status = weft_grammar_open_gbnf(weft_model_vocab(c->m->model), all.at, all.n, &f->heads, &err);
  str_free(&all);
  return status ? fault_set(&c->fault, 400, "tools", "the names of the tools: %s", err.text) : 0;
}

static int choose_tools(call *c, struct forced *f, const json_t *tools, const char *only) {
  json_t *tool;
  size_t i;
  int status = 0;
  json_array_foreach(tools, i, tool) {
    const json_t *function = json_object_get(tool, "function");
    if (only && strcmp(only, json_string_value(json_object_get(function, "name")))) continue;
    if (!status) status = add_tool(c, f, function, i);
  }
  if (!status && !f->tools.n)
    status =
      fault_set(&c->fault, 400, "tool_choice", "'tool_choice' names '%.100s', which is not one of the tools", only);
  return status ? status : open_heads(c, f);
}

// The brace of a head is the first of the arguments.
static int open_tool_schema(struct forced_tool *tool, const weft_vocab *v, weft_error *err) {
  if (tool->arguments) return 0;
  if (open_schema_of(tool, v, &tool->arguments, err)) return -1;
  if (!tool->brace || !weft_grammar_accept_text(tool->arguments, "{", 1, err)) return 0;
  weft_grammar_free(tool->arguments);
  tool->arguments = NULL;
  return -1;
}

static bool is_head(const struct forced *f, const struct forced_tool *tool, const str *head) {
  size_t lead = strlen(f->lead), n = strlen(tool->name), between = strlen(f->between);
  if (head->n != lead + n + between + tool->brace) return false;
  const char *at = str_c(head) + lead;
  return !memcmp(at, tool->name, n) && !memcmp(at + n, f->between, between) && (!tool->brace || at[n + between] == '{');
}

int forced_arguments(struct forced *f, const weft_vocab *v, const str *head, weft_grammar **out, weft_error *err) {
  *out = NULL;
  for (size_t i = 0; i < f->tools.n && !*out; i++) {
    struct forced_tool *tool = &f->tools.at[i];
    if (!is_head(f, tool, head)) continue;
    if (open_tool_schema(tool, v, err)) return -1;
    *out = tool->arguments;
  }
  return 0;
}

int force_call(call *c, request *r, const weft_chat *chat, json_t *messages, const json_t *tools) {
  rendered both[COUNT(names)] = {{0}}, plain = {0};
  weft_error err;
  int status = 0;
  if (!tools) return fault_set(&c->fault, 400, "tool_choice", "'tool_choice' wants a call, but there are no tools");
  r->forced = xcalloc(1, sizeof *r->forced);
  for (size_t i = 0; i < COUNT(names) && !status; i++)
    status = render_answer(c, r->tmpl, chat, messages, example_call(names[i]), &both[i], &err);
  if (!status) status = learn_form(c, both, r, r->forced);
  json_t *answer = json_pack("{ss ss}", "role", "assistant", "content", VALUE);
  if (!render_answer(c, r->tmpl, chat, messages, answer, &plain, &err) && !status)
    cut_end(r->forced->after, plain.text);
  free_rendered(&plain);
  for (size_t i = 0; i < COUNT(names); i++) free_rendered(&both[i]);
  if (status)
    return fault_set(&c->fault, 400, "tool_choice",
                     "'tool_choice' must be auto or none with this model: its template does not write a call as a name "
                     "and JSON, so that one cannot be enforced");
  return choose_tools(c, r->forced, tools, c->p.must_call_name);
}

void forced_free(struct forced *f) {
  if (!f) return;
  for (size_t i = 0; i < f->tools.n; i++) {
    free(f->tools.at[i].name);
    free(f->tools.at[i].schema);
    weft_grammar_free(f->tools.at[i].arguments);
  }
  vec_free(&f->tools);
  weft_grammar_free(f->heads);
  weft_free(f->lead);
  free(f->before); free(f->between); free(f->after);
  free(f);
}
