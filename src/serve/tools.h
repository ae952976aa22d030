// tools: what a request says of functions that the model may call, in the forms of all families.
#ifndef WEFT_SERVE_TOOLS_H
#define WEFT_SERVE_TOOLS_H
#include "serve/call.h"

// Of p.tools only functions stay: tools that a provider's own server would run (web_search, local_shell, custom, ...)
// mean nothing here, and the header Weft-Ignored names them. `also`: a second type that means a function; or NULL.
void tools_keep_functions(call *c, const char *also);
// p.tool_choice and p.parallel_calls of OpenAI's forms. -1 and a fault.
int openai_tool_choice(call *c);
#endif
