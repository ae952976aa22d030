// tools: the functions that a request lets the model call, in the forms of all families.
#ifndef WEFT_SERVE_TOOLS_H
#define WEFT_SERVE_TOOLS_H
#include "serve/call.h"

// Keeps only functions in p.tools: tools that a provider's server would run (web_search, local_shell, custom, ...) are
// unsupported, and the header Weft-Ignored names them. `also`: a second type for functions; or NULL.
void tools_keep_functions(call *c, const char *also);
// Responses: a namespace holds functions, and calls name both. The model sees each as one function named
// namespace__function. p.tools gets these, with `own_name` and the `namespace` they are from. -1 and a fault: two of
// the functions would have one name.
int tools_open_namespaces(call *c);
bool tools_is_search(const json_t *tool);      // tool_search that the client runs; its results have further tools
json_t *namespaced_name(const json_t *space, json_t *name);    // new; space may be NULL
const json_t *tools_in_namespace(const call *c, const char *name);   // the function that the model sees so; or NULL
json_t *tools_as_sent(const call *c);                                // new
// Messages: tools with defer_loading are left out until a tool_reference in a tool's result names them. If the
// provider's server were to search for them, which is unsupported, all are shown. -1 and a fault: no such tool.
int tools_defer(call *c);
// Reads tool_choice and parallel_calls in OpenAI's forms. -1 and a fault.
int openai_tool_choice(call *c);
#endif
