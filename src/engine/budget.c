// Limits the tokens of reasoning: see weft.h.
#include <stdlib.h>
#include <string.h>
#include "base/str.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "weft.h"

struct weft_budget {
  const weft_vocab *vocab;
  int64_t left;              // tokens of reasoning left
  char *message;
  VEC(int32_t) imposed;      // tokens that follow regardless of what the model would draw
  size_t n_imposed;          // number of these that have followed
};

weft_budget *weft_budget_new(const weft_vocab *v, int64_t tokens, const char *message) {
  weft_budget *b = xcalloc(1, sizeof *b);
  *b = (weft_budget){.vocab = v, .left = tokens, .message = xstrdup(message ? message : "")};
  return b;
}

int weft_budget_next(weft_budget *b, const weft_answer *a, int32_t *id, weft_error *err) {
  char end[64];
  if (b->n_imposed == b->imposed.n && weft_answer_reasoning_end(a, end) && b->left-- <= 0) {
    int32_t *ids = NULL;
    size_t n = 0;
    str text = {0};
    str_add(&text, b->message);            // the text may be a client's: only the end contains control tokens
    text_span own = {text.n, text.n + strlen(end)};
    text_spans within = {&own, 1, 1};
    str_add(&text, end);
    const encode_how how = {.parse_special = true, .within = &within};
    int status = vocab_encode(b->vocab, (text_view){text.at, text.n}, &how, &ids, &n, err);
    for (size_t i = 0; i < n; i++) vec_push(&b->imposed, ids[i]);
    weft_free(ids);
    str_free(&text);
    if (status) return -1;
  }
  if (b->n_imposed == b->imposed.n) return 0;
  *id = b->imposed.at[b->n_imposed++];
  return 1;
}

void weft_budget_free(weft_budget *b) {
  if (!b) return;
  free(b->message);
  vec_free(&b->imposed);
  free(b);
}
