// Functions that a model may call: see tools.h.
#include "serve/tools.h"
#include <string.h>

// The body owns p.tools.
static void set_tools(call *c, json_t *tools) {
  json_object_set_new(c->body, "tools", tools);
  c->p.tools = tools;
}

void tools_keep_functions(call *c, const char *also) {
  json_t *kept = json_array(), *tool;
  size_t i;
  if (!c->p.tools) { json_decref(kept); return; }
  json_array_foreach(c->p.tools, i, tool) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (!type || !strcmp(type, "function") || (also && !strcmp(type, also))) json_array_append(kept, tool);
    else call_ignores(c, "tools[%zu] (%.60s)", i, type);
  }
  set_tools(c, kept);
}

static const char *name_of_tool(const json_t *tool) {
  const json_t *function = json_object_get(tool, "function");
  return json_string_value(json_object_get(function ? function : tool, "name"));
}

// The first tool of each name.
static json_t *tools_by_name(const json_t *tools) {
  json_t *all = json_object(), *tool;
  size_t i;
  json_array_foreach(tools, i, tool) {
    const char *name = name_of_tool(tool);
    if (name && !json_object_get(all, name)) json_object_set(all, name, tool);
  }
  return all;
}

// {"type": "allowed_tools", "mode", "tools"}; chats nest it in an object. The model sees only these.
static int allow_tools(call *c, const json_t *choice) {
  const json_t *inner = json_object_get(choice, "allowed_tools"), *in = inner ? inner : choice, *one;
  const char *mode = json_string_value(json_object_get(in, "mode"));
  const json_t *names = json_object_get(in, "tools");
  json_t *kept = json_array(), *known = tools_by_name(c->p.tools);
  size_t i;
  int status = 0;
  json_array_foreach(names, i, one) {
    const char *name = name_of_tool(one);
    json_t *tool = json_object_get(known, name);
    if (tool) json_array_append(kept, tool);
    else if (name) status = fault_set(&c->fault, 400, "tool_choice",
                                      "'tool_choice' allows '%.100s', which is not one of the tools", name);
  }
  json_decref(known);
  if (!status && !json_array_size(kept)) status = call_bad(c, "tool_choice", "allows none of the functions");
  bool required = mode && !strcmp(mode, "required");
  if (!status && !required && mode && strcmp(mode, "auto"))
    status = call_bad(c, "tool_choice", "needs the mode auto or required");
  set_tools(c, kept);
  if (required) c->p.must_call = c->p.no_parallel = true;
  return status;
}

// The name of a function: in a nested object in chats, next to the type in Responses.
static int call_one(call *c, const json_t *choice) {
  const char *type = json_string_value(json_object_get(choice, "type"));
  c->p.must_call_name = name_of_tool(choice);
  if (!type || (!strcmp(type, "function") && !c->p.must_call_name))
    return call_bad(c, "tool_choice", "must be auto, none, required, or name a function");
  if (strcmp(type, "function"))
    return fault_set(&c->fault, 400, "tool_choice",
                     "'tool_choice' asks for '%.60s', and only functions are called here", type);
  c->p.must_call = c->p.no_parallel = true;
  return 0;
}

int openai_tool_choice(call *c) {
  const json_t *v = c->p.tool_choice;
  const char *word = json_string_value(v);
  tools_keep_functions(c, NULL);
  c->p.no_parallel = json_is_false(c->p.parallel_calls);
  if (c->p.parallel_calls && !json_is_boolean(c->p.parallel_calls))
    return fault_set(&c->fault, 400, "parallel_tool_calls", "'parallel_tool_calls' must be true or false, not %s",
                     json_kind(c->p.parallel_calls));
  if (!v || (word && !strcmp(word, "auto"))) return 0;
  if (word && !strcmp(word, "none")) { c->p.tools = NULL; return 0; }
  if (word && !strcmp(word, "required")) { c->p.must_call = c->p.no_parallel = true; return 0; }
  return json_is_of(v, "allowed_tools") ? allow_tools(c, v) : call_one(c, v);
}
