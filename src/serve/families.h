// families: the handlers of the families of endpoints, and their tables of fields, for routes.c.
#ifndef WEFT_SERVE_FAMILIES_H
#define WEFT_SERVE_FAMILIES_H
#include "serve/server.h"

extern const struct fields *const openai_completion_fields[], *const openai_chat_fields[];
void openai_models(server *s, exchange *x);
void openai_model(server *s, exchange *x);
void openai_completions(server *s, exchange *x);
void openai_chat(server *s, exchange *x);
#endif
