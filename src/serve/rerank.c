// /v1/rerank: scores how well each text answers a question, with reranking models. In llama.cpp's form, which is
// Jina's.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "serve/families.h"
#include "serve/shapes.h"
#include "serve/vector.h"

#define P struct params
static const struct field table[] = {
  FN(P, query, "query", F_TEXT, NULL, "the question"),
  FN(P, documents, "documents", F_ARRAY,
     "{'type':'array','minItems':1,'maxItems':2048,'items':{'anyOf':[{'type':'string'},"
     "{'type':'object','required':['text'],'properties':{'text':{'type':'string'}}}]}}",
     "texts, or objects with a text as \"text\""),
  FI(P, most, "top_n", 1, INT32_MAX, "how many of the best (default: all)"),
  FIGNORED("return_documents", "[false]", "results have the index of each text"),
};
static const struct fields fields = FIELDS(table);
const struct fields *const rerank_fields[] = {&fields, &common_fields, NULL};

struct scored { size_t i; float score; };
static int best_score_first(const void *a, const void *b) {
  const struct scored *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  return (x->i > y->i) - (x->i < y->i);
}

static void rerank_finish(call *c) {
  size_t n = c->choices[0].vectors.n, most = c->p.most && (size_t)c->p.most < n ? (size_t)c->p.most : n;
  struct scored *all = xcalloc(n + 1, sizeof *all);
  json_t *results = json_array();
  for (size_t i = 0; i < n; i++) {
    const float *v;
    call_vectors(c, i, -1, &v);
    all[i] = (struct scored){i, v[0]};
  }
  qsort(all, n, sizeof *all, best_score_first);
  for (size_t i = 0; i < most; i++)
    json_array_append_new(results,
                          json_pack("{sI sf}", "index", (json_int_t)all[i].i, "relevance_score", (double)all[i].score));
  free(all);
  json_int_t read = call_prompt_tokens(c);
  call_send(c, 200, json_pack("{ss ss so s{sI sI}}", "object", "list", "model", c->m->name, "results", results,
                              "usage", "prompt_tokens", read, "total_tokens", read));
}

static const struct speaker speaker = {.finish = rerank_finish};

void rerank(server *s, exchange *x) {
  call *c = call_new(s, x, &speaker);
  if (!c) return;
  c->p.stream = false;
  if (call_add_pairs(c, c->p.query, c->p.documents)) call_refuse(c);
  else call_go(c);
}
