// Limits the tokens of reasoning: see weft.h.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/str.h"
#include "chat/answer.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "weft.h"

// The tokens of the message and one end of reasoning.
struct budget_end { char text[64]; int32_t *ids; size_t n; };

// What a budget and its clones share.
struct budget_ends {
  atomic_int refs;
  const weft_vocab *vocab;
  char *message;
  VEC(struct budget_end) all;
};

struct weft_budget {
  struct budget_ends *ends;
  int64_t tokens, left;      // of reasoning: at first, and now
  const int32_t *imposed;    // tokens that follow regardless of what the model would draw
  size_t n;                  // number of these that are left
};

weft_budget *weft_budget_new(const weft_vocab *v, int64_t tokens, const char *message) {
  weft_budget *b = xcalloc(1, sizeof *b);
  *b = (weft_budget){.ends = xcalloc(1, sizeof *b->ends), .tokens = tokens, .left = tokens};
  *b->ends = (struct budget_ends){.refs = 1, .vocab = v, .message = xstrdup(message ? message : "")};
  return b;
}

weft_budget *weft_budget_clone(const weft_budget *of) {
  weft_budget *b = xcalloc(1, sizeof *b);
  *b = (weft_budget){.ends = of->ends, .tokens = of->tokens, .left = of->tokens};
  b->ends->refs++;
  return b;
}

// The text may be a client's: only the end contains control tokens.
static int encode_end(struct budget_ends *b, const char *end, const struct budget_end **out, weft_error *err) {
  struct budget_end made = {.n = 0};
  for (size_t i = 0; i < b->all.n; i++) if (!strcmp(b->all.at[i].text, end)) { *out = &b->all.at[i]; return 0; }
  str text = {0};
  str_add(&text, b->message);
  text_span own = {text.n, text.n + strlen(end)};
  text_spans within = {&own, 1, 1};
  str_add(&text, end);
  const encode_how how = {.parse_special = true, .within = &within};
  int status = vocab_encode(b->vocab, (text_view){text.at, text.n}, &how, &made.ids, &made.n, err);
  str_free(&text);
  if (status) return -1;
  snprintf(made.text, sizeof made.text, "%s", end);
  vec_push(&b->all, made);
  *out = &b->all.at[b->all.n - 1];
  return 0;
}

int weft_budget_prepare(weft_budget *b, const weft_answer *a, size_t *n, weft_error *err) {
  char end[64];
  const struct budget_end *one;
  *n = 0;
  for (size_t i = 0; answer_end_mark(a, i, end); i++) if (encode_end(b->ends, end, &one, err)) return -1;
  for (size_t i = 0; i < b->ends->all.n; i++) *n += b->ends->all.at[i].n;
  return 0;
}

int weft_budget_next(weft_budget *b, const weft_answer *a, int32_t *id, weft_error *err) {
  char end[64];
  if (!b->n && weft_answer_reasoning_end(a, end) && b->left-- <= 0) {
    const struct budget_end *one;
    if (encode_end(b->ends, end, &one, err)) return -1;
    b->imposed = one->ids;
    b->n = one->n;
  }
  if (!b->n) return 0;
  b->n--;
  *id = *b->imposed++;
  return 1;
}

void weft_budget_free(weft_budget *b) {
  if (!b) return;
  struct budget_ends *ends = b->ends;
  free(b);
  if (--ends->refs) return;
  for (size_t i = 0; i < ends->all.n; i++) weft_free(ends->all.at[i].ids);
  vec_free(&ends->all);
  free(ends->message);
  free(ends);
}
