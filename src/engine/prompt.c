// Converts conversations to tokens: weft_template_encode of the public API. The template's interpreter records which
// bytes the template wrote (chat/jinja_impl.h), and the tokenizer recognises control tokens only inside those.
// Invariant: control tokens in the ids come from the template.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "base/str.h"
#include "chat/chat.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "engine/media_prompt.h"
#include "engine/sized.h"
#include "text/text.h"
#include "weft.h"

// Adds a BOS if the file requires one and the template wrote none.
static int put_bos(const weft_vocab *v, id_list *list, weft_error *err) {
  int32_t *first;
  size_t n;
  if (weft_tokenize(v, "", 0, WEFT_ADD_SPECIAL, &first, &n, err)) return -1;
  int32_t bos = weft_bos(v);
  bool wanted = n && first[0] == bos && !(list->n && list->at[0] == bos);
  weft_free(first);
  if (!wanted) return 0;
  vec_push(list, bos);
  memmove(list->at + 1, list->at, (list->n - 1) * sizeof *list->at);
  list->at[0] = bos;
  return 0;
}

// Some templates require arguments as text, or ids of nine letters and digits: a conversation with tool calls is tried
// in these forms, too. err is about the default form.
static int render_any_form(const weft_template *t, const weft_chat *c, jinja_text *out, weft_error *err) {
  int status = template_render(t, c, out, err);
  for (unsigned how = 1; status && how <= (CHAT_TEXT_ARGUMENTS | CHAT_SHORT_IDS); how++) {
    str other = {0};
    if (!chat_adapt((text_view){c->messages, c->n_messages}, how, &other)) break;
    weft_chat adapted = *c;
    adapted.messages = other.at;
    adapted.n_messages = other.n;
    status = template_render(t, &adapted, out, NULL);
    str_free(&other);
  }
  return status;
}

// Adds bytes [from, to) of the template's output.
static int add_made_text(const weft_vocab *v, const jinja_text *made, size_t from, size_t to, size_t most,
                         id_list *list, weft_error *err) {
  text_spans own = {0};
  int32_t *ids;
  size_t n;
  if (from == to) return 0;
  for (size_t i = 0; i < made->own.n; i++) {
    text_span s = made->own.at[i];
    if (s.from < from) s.from = from;
    if (s.to > to) s.to = to;
    if (s.from < s.to) spans_add(&own, s.from - from, s.to - from);
  }
  const encode_how how = {.parse_special = true, .within = &own, .most = most};
  int status = vocab_encode(v, (text_view){made->text.at + from, to - from}, &how, &ids, &n, err);
  for (size_t i = 0; !status && i < n; i++) vec_push(list, ids[i]);
  if (!status) weft_free(ids);
  vec_free(&own);
  return status;
}

// The next media mark at or after `from`; *end: its end. SIZE_MAX: none.
static size_t find_mark(const weft_chat *c, const str *text, size_t from, size_t *number, size_t *end) {
  size_t length = c->n_media ? strlen(c->media_mark) : 0;
  while (length && from + length < text->n) {
    const char *at = memmem(text->at + from, text->n - from, c->media_mark, length);
    if (!at) break;
    from = (size_t)(at - text->at);
    *number = 0;
    for (*end = from + length; *end < text->n && text->at[*end] >= '0' && text->at[*end] <= '9'; ++*end)
      if (*number < c->n_media) *number = 10 * *number + (size_t)(text->at[*end] - '0');
    if (*end < text->n && text->at[(*end)++] == '>' && *number < c->n_media) return from;
    from += length;
  }
  return SIZE_MAX;
}

// Adds texts, and rows at the marks.
static int add_texts_and_media(const weft_vocab *v, const weft_chat *c, const jinja_text *made, id_list *list,
                               weft_error *err) {
  size_t from = 0, number, end, pictures = 0;
  for (size_t at; (at = find_mark(c, &made->text, from, &number, &end)) != SIZE_MAX; from = end) {
    size_t most = c->most_ids > list->n ? c->most_ids - list->n : 1;
    if (add_made_text(v, made, from, at, c->most_ids ? most : 0, list, err) ||
        medium_add_ids(c->media[number], &pictures, v, list, err))
      return -1;
    if (c->most_ids && list->n >= c->most_ids) return 0;
  }
  return add_made_text(v, made, from, made->text.n, c->most_ids ? c->most_ids - list->n : 0, list, err);
}

// The text, with the default marker in place of the caller's own marks.
static void show_markers(const weft_chat *c, str *text) {
  str shown = {0};
  size_t from = 0, number, end;
  for (size_t at; (at = find_mark(c, text, from, &number, &end)) != SIZE_MAX; from = end) {
    str_addn(&shown, text->at + from, at - from);
    str_add(&shown, WEFT_MEDIA_MARKER);
  }
  if (!from) return;
  str_addn(&shown, text->at + from, text->n - from);
  str_free(text);
  *text = shown;
}

int weft_template_encode(const weft_template *t, const weft_vocab *v, const weft_chat *chat, char **text, size_t *n,
                         int32_t **ids, size_t *n_ids, weft_error *err) {
  jinja_text made;
  weft_chat own = {0}, *c = &own;
  if (TAKE_WEFT_CHAT(c, chat, err)) return -1;
  id_list list = {0};
  if (!c->messages) FAIL(err, "there are no messages");
  if (render_any_form(t, c, &made, err)) return -1;
  int status = add_texts_and_media(v, c, &made, &list, err);
  if (!status && c->add_bos) status = put_bos(v, &list, err);
  if (status) {
    vec_free(&list);
    jinja_text_free(&made);
    return -1;
  }
  vec_free(&made.own);
  show_markers(c, &made.text);
  *text = made.text.at;
  *n = made.text.n;
  *ids = list.at;
  *n_ids = list.n;
  return 0;
}
