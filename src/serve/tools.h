// tools: the functions that a request lets the model call, in the forms of all families.
#ifndef WEFT_SERVE_TOOLS_H
#define WEFT_SERVE_TOOLS_H
#include "serve/call.h"

// Keeps only functions in p.tools: tools that a provider's server would run (web_search, local_shell, custom, ...) are
// unsupported, and the header Weft-Ignored names them. `also`: a second type for functions; or NULL.
void tools_keep_functions(call *c, const char *also);
// Reads tool_choice and parallel_calls in OpenAI's forms. -1 and a fault.
int openai_tool_choice(call *c);
#endif
