// Shared by answer.c (the stream), answer_calls.c (the inside of a call) and answer_types.c (types by schemas).
#ifndef WEFT_ANSWER_IMPL_H
#define WEFT_ANSWER_IMPL_H
#include "base/str.h"
#include "chat/answer.h"
#include <jansson.h>

// The markers of calls. Markers with more than one form are separated by newlines.
struct call_marks {
  const char *sign;          // text in the templates that use it; NULL: open itself
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

// Of parts that are being made.  A call is several: the first one has its name.
struct own_part { answer_part p; str text; char *name, *id; };
typedef VEC(struct own_part) own_parts;

// Reads the inside of calls, character by character.
typedef struct call_reader call_reader;
// name: from a header (NULL: it is inside the call). tools: descriptions, or NULL; borrowed, as are marks and out.
call_reader *call_reader_new(const struct call_marks *marks, const char *name, const json_t *tools, own_parts *out);
void call_reader_free(call_reader *r);
// False: this is not a call. Parts that were returned remain; the reader accepts no more text.
bool call_reader_push(call_reader *r, char c);
// The text has ended.  False: there was no call.  cut: a limit ended it, so a call whose name is known is one, with
// what there is of its arguments.
bool call_reader_end(call_reader *r, bool cut);
bool call_reader_promises(const call_reader *r);       // of an object without a marker: so far it looks like a call
size_t call_reader_calls(const call_reader *r);        // that have begun
bool call_reader_between(const call_reader *r);        // after a complete call

// ---- types
enum {
  TYPE_STRING = 1, TYPE_INTEGER = 2, TYPE_NUMBER = 4, TYPE_BOOLEAN = 8, TYPE_NULL = 16, TYPE_OBJECT = 32,
  TYPE_ARRAY = 64, TYPE_ALL = 127
};
struct shape { const json_t *root, *schema; };         // borrowed; schema NULL: anything.  root: of references
bool answer_knows_tool(const json_t *tools, text_view name);
struct shape answer_parameter(const json_t *tools, text_view tool, text_view key);
unsigned answer_types(struct shape s);                 // TYPE_...: never 0
// A value without quotes as JSON: what it spells, if the types allow it; a string otherwise.
void answer_put_value(str *out, text_view v, unsigned types);
// A value without quotes, or elements <KEY>V</KEY>.
void answer_put_nested(str *out, text_view v, struct shape s, int depth);
void answer_put_string(str *out, text_view v);
text_view answer_trim(text_view v);
static inline bool answer_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
#endif
