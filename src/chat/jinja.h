// jinja: the template language in which model files describe how a conversation becomes a prompt.
//
// The language is that of Jinja 3.1 as transformers sets it up (trim_blocks, lstrip_blocks, loop controls, the
// generation tag, tojson without HTML escapes, raise_exception, strftime_now), and values print as Python prints them:
// one space more in a prompt and a model answers worse, so the Python package is what the tests compare with.  What
// goes beyond: lists and dicts can be changed by their methods, and the filter from_json, because templates written for
// other engines use both. The filter random draws the same items in each run.  Left out, each with an error of its own:
// include, import, extends, lipsum; integers past 64 bits (of JSON: they become reals).
//
// A template is a program from strangers.  It can compute and nothing else: no attribute leads out of its values, and
// each of the limits below ends it with an error that names the template's line. Invariant: a jinja never changes after
// jinja_parse, so any number of threads may render it at once. Look next: jinja_impl.h (nodes and values), jinja_lex.c,
// jinja_parse.c, jinja_eval.c; chat.h for conversations.
#ifndef WEFT_JINJA_H
#define WEFT_JINJA_H
#include "base/base.h"
#include "base/str.h"
#include "text/spans.h"
#include <jansson.h>
#include <time.h>

#define JINJA_MAX_SOURCE (4u << 20)     // bytes of a template
#define JINJA_MAX_PARSE_DEPTH 500       // expressions and statements inside each other in its text

typedef struct jinja_limits {
  // a node evaluated, an element visited; as many for other work as take that time, some ten nanoseconds each
  uint64_t steps;
  size_t memory;             // bytes of values, and of texts that are being made; nothing is freed before the end
  size_t output;             // bytes of text
  int depth;                 // of macros, statements and expressions inside each other, and of values
} jinja_limits;
// What a run may take, besides four for each byte of template and variables.  The process takes a few MB more: the rest
// of the arena's last block, texts that grow.
#define JINJA_MEMORY ((size_t)60 << 20)
jinja_limits jinja_limits_default(void);

// value NULL: none.  trusted: its texts count as written by the template.
typedef struct jinja_var { const char *name; const json_t *value; bool trusted; } jinja_var;
// Variables that are freed as soon as they have been read, since the values of a run take as much again: read(owner),
// which is not called where the run fails before.
typedef struct jinja_vars {
  const jinja_var *at;
  const char *list_name, *list;   // one more variable: JSON, an array, of which one element at a time is in memory
  // values of "role" in the list's elements that count as written by the template, NULL at the end; NULL: none do
  const char *const *roles;
  size_t n, n_list, n_text;  // n_text: bytes of all JSON that they come from
  size_t bytes;              // that they take
  void (*read)(void *owner); // NULL: they stay
  void *owner;
} jinja_vars;

typedef struct jinja jinja;
// Text (UTF-8) to a template, for jinja_free.  -1 and "line N: reason".
int jinja_parse(const char *text, size_t n, jinja **out, error *err);
void jinja_free(jinja *t);                               // NULL is fine
// A rendered text, and the parts of it that the template wrote itself: every other byte came from a variable or was
// computed.
typedef struct jinja_text { str text; text_spans own; } jinja_text;
void jinja_text_free(jinja_text *t);
// The text that the template makes of these variables; out is {0} before.  now: the local time that strftime_now
// formats; limits NULL: the default ones, and memory by the size of template and variables.  -1 and "line N: reason";
// then out is as it was.
int jinja_render_freeing(const jinja *t, const jinja_vars *vars, const struct tm *now, const jinja_limits *limits,
                         jinja_text *out, error *err);
// Renders to the end of a text, with variables that stay valid.
int jinja_render(const jinja *t, const jinja_var *vars, size_t n_vars, const struct tm *now, const jinja_limits *limits,
                 str *out, error *err);
bool jinja_is_global(const char *name);                  // a function that templates find without being given it
#endif
