// force: answers whose beginning is given: see force.c.
#ifndef WEFT_SERVE_FORCE_H
#define WEFT_SERVE_FORCE_H
#include "serve/request.h"

// schema: of its arguments, for free(); their grammar is made when the tool is chosen
struct forced_tool { char *name, *schema; bool strict; weft_grammar *arguments; };
// before: text of the answer that the prompt ends with; lead: what has to be drawn of it, since the tokens of a name
// may begin there; between: behind the name; after: behind the arguments.
struct forced {
  char *before, *lead, *between, *after;
  VEC(struct forced_tool) tools;
  weft_grammar *heads;                 // the lead, any of the names, and what stands behind it
};
void forced_free(struct forced *f);    // NULL is fine
// Whether this text is a head, and the grammar of that tool's arguments.  *out NULL: not yet.  -1: its schema is wrong.
int forced_arguments(struct forced *f, const weft_vocab *v, const str *head, weft_grammar **out, weft_error *err);

struct call;
// Where the last message is the assistant's: the answer goes on from there, from the end of what the template makes of
// its content. 1: so it is; 0: the template fails, and r stays as it was; -1: it does not show the content, and the
// call has a fault.
int continue_answer(struct call *c, request *r, const weft_chat *chat, json_t *messages);
// Makes r, whose prompt is that of `chat`, such a request: of any of the tools, or that which c->p.must_call_name says.
// -1 and a fault.
int force_call(struct call *c, request *r, const weft_chat *chat, json_t *messages, const json_t *tools);
#endif
