// The input of reranking models: a question and a text as one token list. Part of the public API (include/weft.h).
#include "weft.h"
#include "engine/sized.h"
#include "base/str.h"
#include <stdlib.h>
#include <string.h>

typedef struct side { const char *at; size_t n; } side;
struct pair { const weft_model *m; side of[2]; unsigned flags; size_t most; VEC(int32_t) ids; };

static bool key_of(const weft_model *m, const char *key, weft_value *out) {
  size_t i;
  const weft_file *f = weft_model_file(m);
  return !weft_file_find(f, key, &i) && !weft_file_value(f, i, out);
}

// After other ids it needs no BOS.
static int add_ids_of(struct pair *p, side s, unsigned flags, weft_error *err) {
  const weft_vocab *v = weft_model_vocab(p->m);
  int32_t *ids;
  size_t n;
  if (weft_tokenize_at_most(v, s.at, s.n, flags, p->most, &ids, &n, err)) return -1;
  for (size_t i = p->ids.n && n && ids[0] == weft_bos(v); i < n; i++) vec_push(&p->ids, ids[i]);
  weft_free(ids);
  return 0;
}

// Uses the file's rerank template.
static int add_in_template(struct pair *p, const weft_value *template, weft_error *err) {
  static const char *const places[] = {"{query}", "{document}"};
  str s = {0};
  for (const char *at = template->text, *end = at + template->n; at < end;) {
    int which = -1;
    for (int i = 0; i < 2; i++)
      if ((size_t)(end - at) >= strlen(places[i]) && !memcmp(at, places[i], strlen(places[i]))) which = i;
    if (which < 0) { str_addc(&s, *at++); continue; }
    str_addn(&s, p->of[which].at, p->of[which].n);
    at += strlen(places[which]);
  }
  int status = add_ids_of(p, (side){str_c(&s), s.n}, WEFT_ADD_SPECIAL | WEFT_PARSE_SPECIAL, err);
  str_free(&s);
  return status;
}

// The question, its end token, a separator if add_sep_token is set, the text, and its end token.
static int add_both(struct pair *p, weft_error *err) {
  weft_value kind, sep, add;
  bool pieces = key_of(p->m, "tokenizer.ggml.model", &kind) && kind.type == WEFT_STRING && kind.n == 4 &&
                !memcmp(kind.text, "bert", 4);                               // whose texts already end with [SEP]
  if (add_ids_of(p, p->of[0], p->flags, err)) return -1;
  if (!pieces && key_of(p->m, "tokenizer.ggml.add_sep_token", &add) && add.u &&
      key_of(p->m, "tokenizer.ggml.seperator_token_id", &sep)) vec_push(&p->ids, (int32_t)sep.u);
  return add_ids_of(p, p->of[1], p->flags, err);
}

int weft_tokenize_pair(const weft_model *m, const weft_pair *given, int32_t **ids, size_t *n_ids, weft_error *err) {
  weft_pair own = {0}, *pair = &own;
  if (TAKE_OPTIONS(pair, weft_pair, most_ids, given, err)) return -1;
  struct pair p = {.m = m, .of = {{pair->question, pair->n_question}, {pair->text, pair->n_text}},
                   .flags = WEFT_ADD_SPECIAL | (pair->parse_special ? WEFT_PARSE_SPECIAL : 0), .most = pair->most_ids};
  weft_value template;
  bool has = key_of(m, "tokenizer.chat_template.rerank", &template) && template.type == WEFT_STRING;
  if (has ? add_in_template(&p, &template, err) : add_both(&p, err)) {
    vec_free(&p.ids);
    return -1;
  }
  *ids = p.ids.at;
  *n_ids = p.ids.n;
  return 0;
}
