// Declarations for answer.c (the stream), answer_calls.c (the inside of calls) and answer_types.c (types by schemas).
#ifndef WEFT_ANSWER_IMPL_H
#define WEFT_ANSWER_IMPL_H
#include "base/hash.h"
#include "base/str.h"
#include "chat/answer.h"
#include <jansson.h>

// The markers of calls. Markers with more than one form are separated by newlines.
struct call_marks {
  const char *sign;          // text in the templates that use it; NULL: open itself
  const char *open, *close;  // around a call or several; close NULL: the next open, or the end
  // the name before JSON: after the first, before any of the others; NULL: no such markers
  const char *before_name, *after_name;
  const char *strip;         // removed from the inside first
  const char *wrap;          // markers around all calls, without meaning
  unsigned flags;
};
enum {
  MARKS_KEEP = 1,            // the markers belong to the call
  MARKS_FIRST = 2,           // only at the beginning of the answer
  MARKS_CODE = 4,            // text in no other notation is code for the tool "python"
};

// A part under construction. A call has several parts; the first one has its name.
struct own_part { answer_part p; str text; char *name, *id; };
typedef VEC(struct own_part) own_parts;

// ---- ids (answer_ids.c); {0}: none
typedef struct id_set { uint64_t *at; size_t n, cap; hash_key key; } id_set;
int ids_of_text(id_set *s, text_view text, error *err);        // all that may be ids in it
// -1: the thread's account has no room, or no time
int ids_put(id_set *s, text_view id, error *err);
bool ids_have(const id_set *s, text_view id);
bool ids_may_be(text_view id);                         // long enough, and one word
void ids_free(id_set *s);

// ---- tools
// Descriptions of tools, and what is known of their schemas. An answer and its clones share them, so that they are used
// by one thread at a time.
typedef struct answer_tools answer_tools;
int answer_tools_new(text_view json, text_view prompt, answer_tools **out, error *err);
answer_tools *answer_tools_hold(answer_tools *t);      // NULL is fine here and below
void answer_tools_drop(answer_tools *t);
const id_set *answer_tools_ids(const answer_tools *t); // those in the prompt
bool answer_knows_tool(const answer_tools *t, text_view name);
bool answer_begins_tool(const answer_tools *t, text_view name);        // or the beginning of a name?

// Parses the inside of calls, character by character.
typedef struct call_reader call_reader;
// name: from a header (NULL: it is inside the call). tools: descriptions, or NULL; borrowed, as are marks and out.
call_reader *call_reader_new(const struct call_marks *marks, const char *name, answer_tools *tools, own_parts *out);
void call_reader_free(call_reader *r);
// False: the text is not a call. Parts already returned stay valid; the reader accepts no more text.
bool call_reader_push(call_reader *r, char c);
// Ends the text. False: there was no call. cut: a limit ended it; a call with a known name then counts, with the
// arguments so far.
bool call_reader_end(call_reader *r, bool cut);
bool call_reader_promises(const call_reader *r);       // whether an object without a marker looks like a call so far
size_t call_reader_calls(const call_reader *r);        // number of calls begun
bool call_reader_between(const call_reader *r);        // after a complete call

// ---- types
enum {
  TYPE_STRING = 1, TYPE_INTEGER = 2, TYPE_NUMBER = 4, TYPE_BOOLEAN = 8, TYPE_NULL = 16, TYPE_OBJECT = 32,
  TYPE_ARRAY = 64, TYPE_ALL = 127
};
// of: NULL: no tools. root: for references; schema NULL: anything
struct shape { answer_tools *of; const json_t *root, *schema; };
struct shape answer_parameter(answer_tools *t, text_view tool, text_view key);
unsigned answer_types(struct shape s);                 // TYPE_...: never 0
// Writes an unquoted value as JSON: as the value it spells if the types allow that, otherwise as a string.
void answer_put_value(str *out, text_view v, unsigned types);
// Writes an unquoted value, or elements <KEY>V</KEY>.
void answer_put_nested(str *out, text_view v, struct shape s, int depth);
void answer_put_string(str *out, text_view v);
text_view answer_trim(text_view v);
static inline bool answer_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
#endif
