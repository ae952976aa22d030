// jinja: the template language in which model files describe how a conversation becomes a prompt.
//
// The language is Jinja 3.1 as configured by transformers (trim_blocks, lstrip_blocks, loop controls, the generation
// tag, tojson without HTML escapes, raise_exception, strftime_now), and values print as in Python. One extra space in a
// prompt makes answers worse, so the tests compare with the Python package.
//
// Additions, since templates written for other engines use them: methods that change lists and dicts, and the filter
// from_json. The filter random draws the same items in each run. Not supported, each with its own error: include,
// import, extends, lipsum; integers beyond 64 bits (in JSON they become floats).
//
// A template is an untrusted program. It can only compute: no attribute leads out of its values, and each of the limits
// below ends it with an error that names the line. Invariant: a jinja is immutable after jinja_parse, so any number of
// threads may render it at once. Look next: jinja_impl.h (nodes and values), jinja_lex.c, jinja_parse.c, jinja_eval.c;
// chat.h for conversations.
#ifndef WEFT_JINJA_H
#define WEFT_JINJA_H
#include "base/base.h"
#include "base/str.h"
#include "text/spans.h"
#include <jansson.h>
#include <time.h>

#define JINJA_MAX_SOURCE (4u << 20)     // bytes of a template
#define JINJA_MAX_PARSE_DEPTH 500       // nested expressions and statements in its text

typedef struct jinja_limits {
  // one for each evaluated node or visited element, and for other work of equal time, about ten nanoseconds
  uint64_t steps;
  size_t memory;             // bytes of values and of texts under construction; nothing is freed before the end
  size_t output;             // bytes of text
  int depth;                 // nested macros, statements, expressions and values
} jinja_limits;
// Memory limit of a run, in addition to four bytes for each byte of template and variables. The process uses a few MB
// more: the rest of the arena's last block, and growing texts.
#define JINJA_MEMORY ((size_t)60 << 20)
jinja_limits jinja_limits_default(void);

// value NULL: None. trusted: its texts count as written by the template.
typedef struct jinja_var { const char *name; const json_t *value; bool trusted; } jinja_var;
// Variables that can be freed once they are read, since a run's values take the same memory again: read(owner) is
// called then, but not if the run fails earlier.
typedef struct jinja_vars {
  const jinja_var *at;
  const char *list_name, *list;   // another variable: a JSON array, parsed one element at a time
  // values of "role" in the list's elements that count as written by the template, NULL at the end; NULL: no values
  const char *const *roles;
  size_t n, n_list, n_text;  // n_text: bytes of the JSON of all variables
  size_t bytes;              // memory of the variables
  void (*read)(void *owner); // NULL: the variables are kept
  void *owner;
} jinja_vars;

typedef struct jinja jinja;
// Parses a template (UTF-8), for jinja_free. -1 and "line N: reason".
int jinja_parse(const char *text, size_t n, jinja **out, error *err);
void jinja_free(jinja *t);                               // NULL is allowed
// A rendered text, and the ranges that the template itself wrote: all other bytes came from a variable or were
// computed.
typedef struct jinja_text { str text; text_spans own; } jinja_text;
void jinja_text_free(jinja_text *t);
// Renders the template with these variables; out is initially {0}. now: the local time for strftime_now. limits NULL:
// the defaults, with memory by the size of template and variables. -1 and "line N: reason"; out is then unchanged.
int jinja_render_freeing(const jinja *t, const jinja_vars *vars, const struct tm *now, const jinja_limits *limits,
                         jinja_text *out, error *err);
// Renders with variables that stay valid.
int jinja_render(const jinja *t, const jinja_var *vars, size_t n_vars, const struct tm *now, const jinja_limits *limits,
                 str *out, error *err);
bool jinja_is_global(const char *name);                  // whether templates have a built-in function of this name
#endif
