// chat: renders a conversation as a prompt with the model's template.
//
// Templates get the variables of transformers: messages, tools and documents (None if absent), add_generation_prompt,
// bos_token and eos_token, and variables of the caller. Look next: jinja.h for the language, answer.h for parsing the
// model's output into reasoning, text and tool calls.
#ifndef WEFT_CHAT_CHAT_H
#define WEFT_CHAT_CHAT_H
#include "chat/jinja.h"
#include "text/text.h"

#define CHAT_MAX_JSON (32u << 20)       // bytes of messages, of tools, of variables

typedef struct chat_input {
  text_view messages;        // JSON: an array of objects
  text_view tools;           // JSON: an array; at NULL: no tools
  text_view variables;       // JSON: an object, whose members become template variables; at NULL: none
  text_view bos, eos;        // at NULL: undefined in the template
  bool no_generation_prompt;
  const char *now;           // "2026-01-31", "2026-01-31 23:59:59"; NULL: the local time
} chat_input;

// Renders the prompt, for jinja_text_free; out is initially {0}. The template's own texts, bos and eos, and usual roles
// count as written by the template. source: begins error messages. -1 and an error with source and line, or with the
// name of the bad input.
int chat_render(const jinja *t, const char *source, const chat_input *in, jinja_text *out, error *err);

// Converts a conversation's tool calls: arguments to texts, ids to nine letters and digits. False: it has no calls.
enum { CHAT_TEXT_ARGUMENTS = 1, CHAT_SHORT_IDS = 2 };
bool chat_adapt(text_view messages, unsigned how, str *out);

// The template in a model file: its special template for tools if `tools` and the file has one.
int chat_template_from_gguf(const gguf *g, bool tools, text_view *out, error *err);
// The template of a format by name (named.c), for free; *end is the text that ends an answer, "" if there is none.
// NULL: unknown format. chat_template_name lists the names by index; NULL: no more.
char *chat_template(const char *name, const char **end);
const char *chat_template_name(size_t i);
// The text of the token that a key (tokenizer.ggml.bos_token_id) names; at NULL if the file lacks it.
int chat_token_from_gguf(const gguf *g, const char *key, text_view *out, error *err);
#endif
