// chat: a conversation as a prompt, by the template of a model.
//
// Templates are given what transformers gives them: messages, tools and documents (none where there are none),
// add_generation_prompt, bos_token and eos_token, and whatever else the caller adds.  Look next: jinja.h for the
// language, answer.h for the way back: what a model wrote, as reasoning, text and calls of tools.
#ifndef WEFT_CHAT_CHAT_H
#define WEFT_CHAT_CHAT_H
#include "chat/jinja.h"
#include "text/text.h"

#define CHAT_MAX_JSON (32u << 20)       // bytes of messages, of tools, of variables

typedef struct chat_input {
  text_view messages;        // JSON: an array of objects
  text_view tools;           // JSON: an array; at NULL: none
  text_view variables;       // JSON: an object; its members are variables of the template.  at NULL: none
  text_view bos, eos;        // at NULL: the template does not have them
  bool no_generation_prompt;
  const char *now;           // "2026-01-31", "2026-01-31 23:59:59"; NULL: the local time
} chat_input;

// The prompt, for jinja_text_free; out is {0} before.  The template's own texts, bos and eos, and usual roles count as
// written by the template.  source begins messages about it.  -1 and a message with source and line, or naming the
// input.
int chat_render(const jinja *t, const char *source, const chat_input *in, jinja_text *out, error *err);

// A conversation with calls in another form: arguments as texts, ids of nine letters and digits.  False: it has no
// calls.
enum { CHAT_TEXT_ARGUMENTS = 1, CHAT_SHORT_IDS = 2 };
bool chat_adapt(text_view messages, unsigned how, str *out);

// The template in a model file, as the file has it: that for tools where `tools` and the file has one of its own.
int chat_template_from_gguf(const gguf *g, bool tools, text_view *out, error *err);
// The template of a format by name (named.c), for free; *end is the text that ends an answer, "" if there is none.
// NULL: unknown format. chat_template_name lists the names by index; NULL: no more.
char *chat_template(const char *name, const char **end);
const char *chat_template_name(size_t i);
// The text of the token that a key (tokenizer.ggml.bos_token_id) names; at NULL where the file has none.
int chat_token_from_gguf(const gguf *g, const char *key, text_view *out, error *err);
#endif
