// Functions that a model may call: see tools.h.
#include "serve/tools.h"
#include <string.h>

#define SEARCH "tool_search"
#define AS_SENT "tools as sent"        // member of the body

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

// ---- namespaces -----------------------------------------------------------------------------------------------------

json_t *namespaced_name(const json_t *space, json_t *name) {
  const char *a = json_string_value(space), *b = json_string_value(name);
  size_t n = json_string_length(space);
  if (!b || !n) return json_incref(name);
  str full = {0};
  str_addf(&full, "%s%s%s", a, n > 2 && !strcmp(a + n - 2, "__") ? "" : "__", b);
  json_t *joined = json_of_text(full.at, full.n);
  str_free(&full);
  return joined;
}

// What is said about a namespace comes before the description of its first function.
static void introduce_namespace(json_t *function, const json_t *space) {
  const char *about = json_string_value(json_object_get(space, "description")),
             *own = json_string_value(json_object_get(function, "description"));
  str both = {0};
  if (!about || !*about) return;
  str_addf(&both, "%s%s%s", about, own ? "\n\n" : "", own ? own : "");
  json_object_set_new(function, "description", json_of_text(both.at, both.n));
  str_free(&both);
}

static void add_namespace(call *c, json_t *all, json_t *space, const char *place) {
  json_t *tools = json_object_get(space, "tools"), *tool;
  size_t i;
  bool first = true;
  json_array_foreach(tools, i, tool) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    json_t *name = json_object_get(tool, "name"), *function;
    if (!json_is_string(name) || (type && strcmp(type, "function"))) {
      call_ignores(c, "%s.tools[%zu] (%.60s)", place, i, type ? type : "no name");
      continue;
    }
    function = json_copy(tool);
    if (first) introduce_namespace(function, space);
    first = false;
    json_object_set_new(function, "name", namespaced_name(json_object_get(space, "name"), name));
    json_object_set(function, "own_name", name);
    json_object_set(function, "namespace", space);
    json_array_append_new(all, function);
  }
}

// A search that the client runs is a function for the model; it stands in place of the tool that was sent.
static json_t *search_function(json_t *tool) {
  return json_pack("{ss ss ss sO sO* sO*}", "type", "function", "name", SEARCH, "own_name", SEARCH, "namespace", tool,
                   "description", json_object_get(tool, "description"), "parameters",
                   json_object_get(tool, "parameters"));
}

// A client's own members of these names mean nothing.
static json_t *plain_function(const json_t *tool) {
  json_t *function = json_copy((json_t *)(uintptr_t)tool);
  json_object_del(function, "own_name");
  json_object_del(function, "namespace");
  return function;
}

// in: where the tools are in the request
static void open_tools(call *c, json_t *all, const json_t *tools, const char *in) {
  json_t *tool;
  size_t i;
  json_array_foreach(tools, i, tool) {
    char place[64];
    const char *type = json_string_value(json_object_get(tool, "type"));
    snprintf(place, sizeof place, "%s[%zu]", in, i);
    if (json_is_of(tool, "namespace")) add_namespace(c, all, tool, place);
    else if (tools_is_search(tool)) json_array_append_new(all, search_function(tool));
    else if (!type || !strcmp(type, "function")) json_array_append_new(all, plain_function(tool));
    else call_ignores(c, "%s (%.60s)", place, type);
  }
}

bool tools_is_search(const json_t *tool) {
  const char *by = json_string_value(json_object_get(tool, "execution"));
  return json_is_of(tool, SEARCH) && by && !strcmp(by, "client");
}

static const json_t *space_of(const json_t *tool) {
  const json_t *space = json_object_get(tool, "namespace");
  return json_object_get(tool, "own_name") ? space : NULL;
}

// "'add' of the namespace 'crm'"
static void say_tool(const json_t *tool, str *out) {
  const json_t *space = space_of(tool);
  const char *own = json_string_value(json_object_get(tool, space ? "own_name" : "name")),
             *of = json_string_value(json_object_get(space, "name"));
  str_addf(out, "'%.100s'", own);
  if (of) str_addf(out, " of the namespace '%.100s'", of);
  else if (space) str_add(out, " of the type " SEARCH);
}

// Returns whether two functions of one name are the one function, sent or found twice.
static bool is_one_function(const json_t *a, const json_t *b) {
  const json_t *in_a = space_of(a), *in_b = space_of(b);
  if (!in_a || !in_b) return in_a == in_b;
  return json_equal(json_object_get(a, "own_name"), json_object_get(b, "own_name")) &&
         tools_is_search(in_a) == tools_is_search(in_b) &&
         (tools_is_search(in_a) || json_equal(json_object_get(in_a, "name"), json_object_get(in_b, "name")));
}

static int check_names(call *c, const json_t *tools) {
  json_t *known = json_object(), *tool;
  size_t i;
  json_array_foreach(tools, i, tool) {
    const char *name = json_string_value(json_object_get(tool, "name"));
    const json_t *first = name ? json_object_get(known, name) : NULL;
    if (name && !first) json_object_set(known, name, tool);
    if (!first || c->fault.status || is_one_function(first, tool)) continue;
    str said = {0};
    say_tool(first, &said);
    str_add(&said, " and ");
    say_tool(tool, &said);
    fault_set(&c->fault, 400, "tools", "'tools': %s would both be '%.100s' for the model", said.at, name);
    str_free(&said);
  }
  json_decref(known);
  return c->fault.status ? -1 : 0;
}

// Adds what searches found: a tool that several of them found, once.
static int add_searched(call *c, json_t *all) {
  json_t *known = json_object(), *found = json_array(), *item;
  char place[64];
  size_t i;
  json_array_foreach(c->p.input, i, item) {
    snprintf(place, sizeof place, "input[%zu].tools", i);
    if (json_is_of(item, SEARCH "_output")) open_tools(c, found, json_object_get(item, "tools"), place);
  }
  json_array_foreach(all, i, item) {
    const char *name = json_string_value(json_object_get(item, "name"));
    if (name) json_object_set_new(known, name, json_true());
  }
  json_t *both = json_copy(all);
  json_array_extend(both, found);
  int status = check_names(c, both);
  json_decref(both);
  json_array_foreach(found, i, item) {
    const char *name = json_string_value(json_object_get(item, "name"));
    if (!name || json_object_get(known, name)) continue;
    json_object_set_new(known, name, json_true());
    json_array_append(all, item);
  }
  json_decref(known);
  json_decref(found);
  return status;
}

int tools_open_namespaces(call *c) {
  json_t *all = json_array();
  json_object_set_new(c->body, AS_SENT, c->p.tools ? json_incref(c->p.tools) : json_array());
  open_tools(c, all, c->p.tools, "tools");
  int status = add_searched(c, all);
  if (c->p.tools || json_array_size(all)) set_tools(c, all);
  else json_decref(all);
  return status;
}

json_t *tools_as_sent(const call *c) { return json_incref(json_object_get(c->body, AS_SENT)); }

const json_t *tools_in_namespace(const call *c, const char *name) {
  const json_t *tool;
  size_t i;
  json_array_foreach(c->p.tools, i, tool) {
    const char *known = json_string_value(json_object_get(tool, "name"));
    if (known && json_is_string(json_object_get(tool, "own_name")) && !strcmp(known, name)) return tool;
  }
  return NULL;
}

// ---- deferred tools -------------------------------------------------------------------------------------------------

// Names in the tool_reference blocks of tool results.
static json_t *referenced_names(const json_t *messages) {
  json_t *names = json_object();
  const json_t *message, *block, *part;
  size_t i, j, k;
  json_array_foreach(messages, i, message)
    json_array_foreach(json_object_get(message, "content"), j, block)
      json_array_foreach(json_object_get(block, "content"), k, part) {
        const char *name = json_string_value(json_object_get(part, "tool_name"));
        if (name && json_is_of(part, "tool_reference")) json_object_set_new(names, name, json_true());
      }
  return names;
}

static bool is_server_search(const json_t *tool) {
  const char *type = json_string_value(json_object_get(tool, "type"));
  return type && !strncmp(type, "tool_search_tool", 16);
}

int tools_defer(call *c) {
  json_t *kept = json_array(), *names = referenced_names(c->p.messages), *known = json_object(), *tool;
  const char *name;
  size_t i;
  bool shown = false;
  json_array_foreach(c->p.tools, i, tool) shown = shown || is_server_search(tool);
  json_array_foreach(c->p.tools, i, tool) {
    name = json_string_value(json_object_get(tool, "name"));
    if (name) json_object_set_new(known, name, json_true());
    bool hidden = !shown && json_is_true(json_object_get(tool, "defer_loading"));
    if (!hidden || !name || json_object_get(names, name)) json_array_append(kept, tool);
  }
  json_object_foreach(names, name, tool) if (!c->fault.status && !json_object_get(known, name))
    fault_set(&c->fault, 400, "messages", "'messages' has a tool_reference to '%.100s', which is not one of the tools",
              name);
  if (c->p.tools) set_tools(c, kept);
  else json_decref(kept);
  json_decref(names);
  json_decref(known);
  return c->fault.status ? -1 : 0;
}

// ---- tool_choice ----------------------------------------------------------------------------------------------------

static const char *name_of_tool(const json_t *tool) {
  const json_t *function = json_object_get(tool, "function");
  return json_string_value(json_object_get(function ? function : tool, "name"));
}

// The function that a choice names. Responses: a namespace is next to the name; without one, a name that a single
// namespace has is enough. NULL: it names no function of the request; then perhaps a fault.
static json_t *chosen_tool(call *c, const json_t *choice) {
  const char *name = name_of_tool(choice);
  const json_t *space = json_object_get(choice, "namespace");
  json_t *joined = namespaced_name(space, json_object_get(choice, "name")), *tool, *exact = NULL, *own = NULL;
  const char *full = json_string_length(space) ? json_string_value(joined) : name;
  size_t i, n_own = 0;
  json_array_foreach(c->p.tools, i, tool) {
    const char *known = name_of_tool(tool),
               *in = space_of(tool) ? json_string_value(json_object_get(tool, "own_name")) : NULL;
    if (!exact && known && full && !strcmp(known, full)) exact = tool;
    if (in && name && full == name && !strcmp(in, name)) { own = tool; n_own++; }
  }
  json_decref(joined);
  if (!exact && n_own > 1)
    fault_set(&c->fault, 400, "tool_choice", "'tool_choice' names '%.100s', which several namespaces have: add "
              "'namespace'", name);
  return exact ? exact : n_own == 1 ? own : NULL;
}

static int no_such_tool(call *c, const json_t *choice, const char *does) {
  const char *space = json_string_value(json_object_get(choice, "namespace"));
  if (c->fault.status) return -1;
  return fault_set(&c->fault, 400, "tool_choice", "'tool_choice' %s '%.100s'%s%.100s%s, which is not one of the tools",
                   does, name_of_tool(choice), space ? " of the namespace '" : "", space ? space : "",
                   space ? "'" : "");
}

// {"type": "allowed_tools", "mode", "tools"}; chats nest it in an object. The model sees only these.
static int allow_tools(call *c, const json_t *choice) {
  const json_t *inner = json_object_get(choice, "allowed_tools"), *in = inner ? inner : choice, *one;
  const char *mode = json_string_value(json_object_get(in, "mode"));
  const json_t *names = json_object_get(in, "tools");
  json_t *kept = json_array();
  size_t i;
  int status = 0;
  json_array_foreach(names, i, one) {
    json_t *tool = chosen_tool(c, one);
    if (tool) json_array_append(kept, tool);
    else if (!status && name_of_tool(one)) status = no_such_tool(c, one, "allows");
  }
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
  if (!c->p.tools) return 0;
  const json_t *tool = chosen_tool(c, choice);
  if (!tool) return no_such_tool(c, choice, "names");
  c->p.must_call_name = name_of_tool(tool);
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
