// template_args: the chat template and its variables that the options of chat and serve describe.
#ifndef WEFT_APP_TEMPLATE_ARGS_H
#define WEFT_APP_TEMPLATE_ARGS_H
#include <jansson.h>
#include "app/settings.h"

// text: Jinja, for free(); NULL: none was asked for.  name: what messages call it.  built_in: one of chat_template's,
// before which the model's BOS stands only if the model wants one.
struct asked_template { char *text; size_t n; const char *name; bool built_in; };

// Of --chat-template (the text of a template, a file, or a name) and --chat-template-file; both may be NULL.  -1: it is
// none of these.
int template_asked(const char *named, const char *file, struct asked_template *out, error *err);
// --chat-template-kwargs, with what -rea and --reasoning-effort say.  *out NULL: nothing is said.
int template_variables(const struct settings *s, json_t **out, error *err);
// JSON from the command line, or a file with it, of this type.  NULL arg: *text stays.
int read_json_option(const char *option, const char *arg, json_type type, char **text, size_t *n, error *err);
#endif
