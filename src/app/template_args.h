// template_args: the chat template and the template variables that the options of chat and serve describe.
#ifndef WEFT_APP_TEMPLATE_ARGS_H
#define WEFT_APP_TEMPLATE_ARGS_H
#include <jansson.h>
#include "app/settings.h"

// text: Jinja, for free(); NULL: no template was given. name: its name in messages. built_in: one of chat_template's,
// which begin with the model's BOS even if the model does not add it (chat.c removes it then).
struct asked_template { char *text; size_t n; const char *name; bool built_in; };

// Reads --chat-template (the text of a template, a file, or a name) and --chat-template-file; both may be NULL. -1:
// named is not one of the three.
int template_asked(const char *named, const char *file, struct asked_template *out, error *err);
// The variables of --chat-template-kwargs, -rea and --reasoning-effort. *out NULL: none is set.
int template_variables(const struct settings *s, json_t **out, error *err);
// Reads JSON from the command line, or a JSON file, of this type. NULL arg: *text is unchanged.
int read_json_option(const char *option, const char *arg, json_type type, char **text, size_t *n, error *err);
#endif
