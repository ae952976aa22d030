// What answer.c (the stream) and answer_calls.c (the inside of a call) share.
#ifndef WEFT_ANSWER_IMPL_H
#define WEFT_ANSWER_IMPL_H
#include "chat/answer.h"
#include <jansson.h>

// How calls are marked.  Markers of more than one form are separated by newlines.
struct call_marks {
  const char *sign;          // stands in the templates that use it; NULL: open itself
  const char *open, *close;  // around a call or several; close NULL: the next open, or the end
  // where the name stands before JSON: after the one, before any of the others; NULL: nothing special
  const char *before_name, *after_name;
  const char *strip;         // taken out of the inside first
  const char *wrap;          // markers around all calls, which say nothing
  unsigned flags;
};
enum {
  MARKS_KEEP = 1,            // the markers belong to the call
  MARKS_FIRST = 2,           // only at the beginning of the answer
  MARKS_CODE = 4,            // what looks like nothing else is code for the tool "python"
};

struct call { char *name, *id, *arguments; };
typedef struct calls { struct call *at; size_t n, cap; } calls;
void calls_free(calls *c);
bool answer_knows_tool(const json_t *tools, text_view name);
// Reads the inside of a call.  name: what a header gave (NULL: it stands inside).  tools: descriptions, or NULL.  -1:
// it is none, and nothing was added.
int answer_read_calls(const struct call_marks *marks, const char *name, const char *text, size_t n, const json_t *tools,
                      calls *out);
#endif
