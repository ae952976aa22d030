// force: answers with a given beginning: see force.c.
#ifndef WEFT_SERVE_FORCE_H
#define WEFT_SERVE_FORCE_H
#include "serve/request.h"

// schema: of its arguments, for free(); its grammar is made when the tool is chosen. brace: another head begins with
// this one, which therefore ends with the brace of the arguments
struct forced_tool { char *name, *schema; bool strict, brace; weft_grammar *arguments; };
// before: text of the answer at the end of the prompt; lead: the part of it that must be generated, since a name's
// first token may begin there; between: text after the name; after: text after the arguments.
struct forced {
  char *before, *lead, *between, *after;
  VEC(struct forced_tool) tools;
  weft_grammar *heads;                 // the lead, any of the names, the text after it, and its brace
};
void forced_free(struct forced *f);    // NULL is fine
// Is this text a head? Then *out is the grammar of that tool's arguments. *out NULL: not yet. -1: the schema is
// invalid.
int forced_arguments(struct forced *f, const weft_vocab *v, const str *head, weft_grammar **out, weft_error *err);

struct call;
// Continues a final assistant message, from the end of its content as rendered by the template. 1: done; 0: the
// template fails, and r is unchanged; -1: the template does not show the content, and the call has a fault.
int continue_answer(struct call *c, request *r, const weft_chat *chat, json_t *messages);
// Makes r, whose prompt is that of `chat`, a forced tool call: of any tool, or of c->p.must_call_name. -1 and a fault.
int force_call(struct call *c, request *r, const weft_chat *chat, json_t *messages, const json_t *tools);
#endif
