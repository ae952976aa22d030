// Conversations as tokens: weft_template_encode of the public API.  What people say stays text: where it spells a
// control token, BREAK is put inside before the template sees it, and the prompt is tokenised in pieces there.
// Invariant: control tokens in the ids come from the template alone.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "text/text.h"
#include "weft.h"

#define BREAK "\xEF\xB7\x90"             // U+FDD0, which stands in no text

static void without_breaks(str *s) {
  size_t kept = 0;
  for (size_t i = 0; i < s->n; i++)
    if (s->n - i >= strlen(BREAK) && !memcmp(s->at + i, BREAK, strlen(BREAK))) i += strlen(BREAK) - 1;
    else s->at[kept++] = s->at[i];
  if (s->at) s->at[s->n = kept] = 0;
}

// Breaks every control token that the text spells.
static int defuse(const weft_vocab *v, str *text, weft_error *err) {
  size_t *places, n_places, from = 0;
  error e = {0};
  without_breaks(text);
  if (tokenizer_controls(weft_vocab_tokenizer(v), text->at, text->n, &places, &n_places, &e))
    return fail(err, &e);
  if (!n_places) return 0;
  str broken = {0};
  for (size_t i = 0; i < n_places; from = places[i++]) {
    str_addn(&broken, text->at + from, places[i] - from);
    str_add(&broken, BREAK);
  }
  str_addn(&broken, text->at + from, text->n - from);
  free(places);
  str_free(text);
  *text = broken;
  return 0;
}

// Every string of a value but roles, which templates compare.
static int defuse_value(const weft_vocab *v, json_t *value, weft_error *err) {
  const char *key;
  json_t *member;
  size_t i;
  if (json_is_string(value)) {
    str text = {0};
    str_addn(&text, json_string_value(value), json_string_length(value));
    int status = defuse(v, &text, err);
    if (!status) json_string_setn(value, str_c(&text), text.n);
    str_free(&text);
    return status;
  }
  json_array_foreach(value, i, member) if (defuse_value(v, member, err)) return -1;
  json_object_foreach(value, key, member) if (strcmp(key, "role") && defuse_value(v, member, err)) return -1;
  return 0;
}

struct defusing { const weft_vocab *v; str text; weft_error *err; };

static int defuse_message(void *ctx, size_t i, json_t *message, size_t cost) {
  struct defusing *x = ctx;
  (void)cost;
  int status = defuse_value(x->v, message, x->err);
  char *text = status ? NULL : json_dumps(message, JSON_COMPACT | JSON_ENCODE_ANY);
  str_addc(&x->text, i ? ',' : '[');
  if (text) str_add(&x->text, text);
  free(text);
  json_decref(message);
  return status;
}

static int defused(const weft_vocab *v, const char *messages, size_t n, str *out, weft_error *err) {
  struct defusing x = {.v = v, .err = err};
  error e = {0};
  int status = json_each(messages, n, defuse_message, &x, &e);
  if (e.text[0] && err) snprintf(err->text, sizeof err->text, "messages: %.900s", e.text);
  str_add(&x.text, x.text.n ? "]" : "[]");
  *out = x.text;
  return status;
}

typedef VEC(int32_t) id_list;
static int tokenize_pieces(const weft_vocab *v, str *text, id_list *out, weft_error *err) {
  for (const char *at = text->at, *end = at + text->n;;) {
    const char *brk = memmem(at, (size_t)(end - at), BREAK, strlen(BREAK));
    int32_t *ids;
    size_t n_ids;
    if (weft_tokenize(v, at, (size_t)((brk ? brk : end) - at), WEFT_PARSE_SPECIAL, &ids, &n_ids, err)) return -1;
    if (!out->n && !brk) { vec_free(out); out->at = ids, out->n = out->cap = n_ids; return 0; }   // most often
    for (size_t i = 0; i < n_ids; i++) vec_push(out, ids[i]);
    weft_free(ids);
    if (!brk) return 0;
    at = brk + strlen(BREAK);
  }
}

int weft_template_encode(const weft_template *t, const weft_vocab *v, const weft_chat *c, char **text, size_t *n,
                         int32_t **ids, size_t *n_ids, weft_error *err) {
  if (!c->messages) FAIL(err, "there are no messages");
  str messages = {0};
  char *rendered = NULL;
  size_t n_rendered = 0;
  int status = defused(v, c->messages, c->n_messages, &messages, err);
  weft_chat safe = *c;
  safe.messages = messages.at;
  safe.n_messages = messages.n;
  if (!status) status = weft_template_render(t, &safe, &rendered, &n_rendered, err);
  str_free(&messages);
  if (status) return -1;
  str whole = {0};
  id_list list = {0};
  str_addn(&whole, rendered, n_rendered);
  weft_free(rendered);
  status = tokenize_pieces(v, &whole, &list, err);
  if (status) {
    vec_free(&list);
    str_free(&whole);
    return -1;
  }
  without_breaks(&whole);
  *text = whole.at;
  *n = whole.n;
  *ids = list.at ? list.at : xmalloc(sizeof **ids);
  *n_ids = list.n;
  return 0;
}
