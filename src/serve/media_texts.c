// Prompts of completions and embeddings with pictures and sounds: objects in place of a text. Their media are decoded
// and encoded like those of messages (media.c); conversations are in prompt.c.
#define _GNU_SOURCE
#include "serve/media.h"
#include "serve/server.h"
#include <string.h>

// Joins the texts of parts, with a marker for each picture and sound.
static int join_content(call *c, const char *field, const json_t *parts, str *text) {
  const json_t *part;
  size_t i;
  if (!json_is_array(parts)) return call_bad(c, field, "must be an array of parts");
  json_array_foreach(parts, i, part) {
    const json_t *own = json_object_get(part, "text");
    if (is_medium(part)) str_add(text, WEFT_MEDIA_MARKER);
    else if (json_is_string(own)) str_addn(text, json_string_value(own), json_string_length(own));
    else return call_bad(c, field, "has a part that is no text, no picture and no sound");
  }
  return 0;
}

static int encode_media(call *c, const char *field, const json_t *media) {
  str mark = {0};                      // marks are for conversations; here WEFT_MEDIA_MARKER is used
  const json_t *one;
  size_t i;
  int status = 0;
  json_array_foreach(media, i, one) {
    if (json_is_object(one) && !is_medium(one)) continue;        // a text
    if (json_is_object(one)) status = call_add_part(c, field, one, &mark);
    else if (json_is_string(one)) status = call_add_data(c, field, one, &mark);
    else status = call_bad(c, field, "must have texts in base64");
    if (status) break;
  }
  str_free(&mark);
  return status;
}

// A prompt with the call's media from `first` on.
static int add_marked(call *c, const char *field, const str *text, unsigned flags, size_t first) {
  weft_error err;
  int32_t *ids;
  size_t n;
  if (weft_media_tokenize(c->m->media, str_c(text), text->n, flags, c->media.at + first, c->media.n - first, &ids, &n,
                          &err))
    return fault_set(&c->fault, 400, field, "'%s': %s", field, err.text);
  request *r = call_new_request(c);
  r->prompt.at = ids, r->prompt.n = r->prompt.cap = n;
  return call_take(c, field, "its tokens", n * sizeof *ids);
}

// Tokenises a text before its media are encoded, without them and up to the limit, to see whether it is too long.
static bool is_too_long(call *c, const str *text, unsigned flags) {
  size_t most = call_most_ids(c), n = 0;
  int32_t *ids = NULL;
  if (text->n <= most) return false;
  bool long_ = !weft_tokenize_at_most(weft_model_vocab(c->m->model), str_c(text), text->n, flags, most, &ids, &n, NULL)
               && n > most;
  weft_free(ids);
  return long_;
}

// {"content": [parts]}: plain texts, as in messages. {"prompt_string": text, "multimodal_data": [base64, ...]},
// llama.cpp's: control tokens are recognised by name.
int call_add_object(call *c, const json_t *o, const char *name, size_t i, bool parts) {
  char field[64];
  const json_t *content = parts ? json_object_get(o, "content") : NULL, *prompt = json_object_get(o, "prompt_string"),
               *media = content ? content : json_object_get(o, "multimodal_data");
  snprintf(field, sizeof field, "%s[%zu]", name, i);
  if (!content == !prompt)
    return call_bad(c, field, parts ? "must have either 'content', an array of parts, or 'prompt_string'"
                                    : "must have 'prompt_string'");
  if (prompt && !json_is_string(prompt)) return call_bad(c, field, "has a 'prompt_string' that is no string");
  if (!content && media && !json_is_array(media)) return call_bad(c, field, "has 'multimodal_data' that is no array");
  if (c->p.echo && json_array_size(media))
    return fault_set(&c->fault, 400, "echo", "'echo': a prompt with pictures or sounds cannot be shown as text");
  str text = {0};
  size_t first = c->media.n;
  unsigned special = content ? 0 : WEFT_PARSE_SPECIAL;
  int status = content ? join_content(c, field, content, &text) : 0;
  if (prompt) str_addn(&text, json_string_value(prompt), json_string_length(prompt));
  bool taken = !status && !(status = call_take(c, field, "its text", text.n));
  bool alone = is_too_long(c, &text, special);           // refused when all prompts are complete
  if (!status && !alone) status = encode_media(c, field, media);
  if (!status && !alone && c->media.n > first)
    status = add_marked(c, field, &text, special | WEFT_ADD_SPECIAL, first);
  else if (!status) status = call_add_text(c, str_c(&text), text.n, special);
  if (taken) account_give(&c->x->account, text.n);
  str_free(&text);
  return status;
}

