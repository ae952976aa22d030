// Vectors of texts: see vector.h.
#define _GNU_SOURCE
#include "serve/vector.h"
#include "serve/run.h"
#include <stdlib.h>
#include <string.h>

// ---- on the thread of the steps -------------------------------------------------------------------------------------

static event *new_vector_event(const vectors *v, enum event_kind kind) {
  event *e = xcalloc(1, sizeof *e);
  e->kind = kind;
  e->request = v->r;
  e->id = -1;
  return e;
}

static bool over(vectors *v, event *e) {
  e->timing = v->timing;
  v->r->event(v->r->ctx, e);
  return false;
}

bool vectors_step(vectors *v) {
  request *r = v->r;
  weft_model *m = v->m;
  if (!v->i) v->start = now_s();
  v->timing.prompt_ms = 1000 * (now_s() - v->start);
  if (r->cancelled || v->i == r->lengths.n) {
    event *e = new_vector_event(v, EVENT_END);
    e->finish = r->cancelled ? FINISH_GONE : FINISH_STOP;
    return over(v, e);
  }
  size_t n = r->lengths.at[v->i], size = (size_t)weft_model_embedding_size(m);
  event *e = new_vector_event(v, EVENT_VECTOR);
  weft_error err;
  e->n_vector = r->pooling == WEFT_POOLING_NONE ? n * size : size;
  e->vector = xmalloc(e->n_vector * sizeof *e->vector);
  if (weft_embed(m, r->prompt.at + v->at, n, r->pooling, e->vector, &err)) {
    e->kind = EVENT_FAILED;
    snprintf(e->text, sizeof e->text, "%s", err.text);
    return over(v, e);
  }
  v->i++;
  v->at += n;
  v->timing.n_prompt += (int64_t)n;
  v->r->event(v->r->ctx, e);
  return true;
}

enum { MOST = 2048 };                  // texts at once

// ---- from JSON ------------------------------------------------------------------------------------------------------

static int find_pooling(call *c, bool one, enum weft_pooling *how) {
  weft_error err;
  *how = c->s->o->pooling;
  if (*how == WEFT_POOLING_MODEL && weft_model_pooling(c->m->model, how, &err))
    return fault_set(&c->fault, 501, NULL, "%s", err.text);
  if (*how == WEFT_POOLING_MODEL) *how = WEFT_POOLING_NONE;
  if (*how == WEFT_POOLING_RANK)
    return fault_set(&c->fault, 501, NULL, "this model ranks texts (/v1/rerank), and makes no vectors of them");
  if (*how != WEFT_POOLING_NONE || !one) return 0;
  return fault_set(&c->fault, 400, NULL,
                   "the model's file does not say how a vector is made of a whole text: start the server with "
                   "--pooling mean, cls or last");
}

// The tokens that the model puts behind a text.
static size_t tail(const weft_vocab *v) {
  int32_t *ids;
  size_t n;
  if (weft_tokenize(v, "", 0, WEFT_ADD_SPECIAL, &ids, &n, NULL)) return 0;
  n -= n && ids[0] == weft_bos(v);
  weft_free(ids);
  return n;
}

static int too_long(call *c, const char *name, size_t i, size_t n, size_t n_ctx) {
  c->fault.n_prompt = (int64_t)n;
  c->fault.n_ctx = (int64_t)n_ctx;
  c->fault.code = "context_length_exceeded";
  return fault_set(&c->fault, 400, name, "'%s' has a text of %zu tokens (number %zu), and the context holds %zu", name,
                   n, i, n_ctx);
}

// Texts were added as requests of their own: they become one.
static int join_requests(call *c, size_t from, const char *name, bool truncate) {
  const weft_model *m = c->m->model;
  size_t n_ctx = (size_t)weft_model_context(m), end = truncate ? tail(weft_model_vocab(m)) : 0;
  request *all = c->requests.at[from];
  token_ids ids = {0};
  int status = 0;
  for (size_t i = from; i < c->requests.n && !status; i++) {
    token_ids *own = &c->requests.at[i]->prompt;
    if (own->n > n_ctx && truncate && end < n_ctx) {
      memmove(own->at + n_ctx - end, own->at + own->n - end, end * sizeof *own->at);
      own->n = n_ctx;
    }
    if (!own->n) status = fault_set(&c->fault, 400, name, "'%s' has a text without tokens (number %zu)", name, i);
    else if (own->n > n_ctx) status = too_long(c, name, i, own->n, n_ctx);
    for (size_t k = 0; k < own->n; k++) vec_push(&ids, own->at[k]);
    vec_push(&all->lengths, own->n);
  }
  vec_free(&all->prompt);
  all->prompt = ids;
  for (; c->requests.n > from + 1; c->requests.n--) {
    request_clear(c->requests.at[c->requests.n - 1]);
    free(c->requests.at[c->requests.n - 1]);
  }
  return status;
}

int call_add_texts(call *c, json_t *input, const char *name, bool one, bool truncate) {
  json_t *text;
  size_t i, from = c->requests.n;
  bool ids = false;
  enum weft_pooling how;
  if (!input) return fault_set(&c->fault, 400, name, "'%s' is missing", name);
  if (find_pooling(c, one, &how)) return -1;
  json_array_foreach(input, i, text) ids |= json_is_number(text);
  if (ids || !json_is_array(input)) {
    if (call_add_prompt(c, input, false, name)) return -1;
  } else {
    if (!json_array_size(input) || json_array_size(input) > MOST)
      return fault_set(&c->fault, 400, name, "'%s' must have from 1 to %d texts, not %zu", name, MOST,
                       json_array_size(input));
    json_array_foreach(input, i, text) if (call_add_prompt(c, text, false, name)) return -1;
  }
  c->requests.at[from]->embeds = true;
  c->requests.at[from]->pooling = how;
  return join_requests(c, from, name, truncate);
}

// ---- questions and texts --------------------------------------------------------------------------------------------

static int add_query_pair(call *c, size_t i, json_t *query, const json_t *text) {
  weft_error err;
  int32_t *ids;
  size_t n;
  if (json_is_object(text)) text = json_object_get(text, "text");
  if (!json_is_string(text))
    return fault_set(&c->fault, 400, "documents", "'documents[%zu]' must be a text, not %s", i, json_kind(text));
  if (weft_tokenize_pair(c->m->model, json_string_value(query), json_string_length(query),
                         json_string_value(text), json_string_length(text), false, &ids, &n, &err))
    return fault_set(&c->fault, 400, "documents", "%s", err.text);
  request *r = xcalloc(1, sizeof *r);
  for (size_t k = 0; k < n; k++) vec_push(&r->prompt, ids[k]);
  weft_free(ids);
  vec_push(&c->requests, r);
  return 0;
}

int call_add_pairs(call *c, json_t *query, json_t *documents) {
  json_t *text;
  size_t i, n = json_array_size(documents), from = c->requests.n;
  enum weft_pooling how;
  weft_error err;
  if (weft_model_pooling(c->m->model, &how, &err)) return fault_set(&c->fault, 501, NULL, "%s", err.text);
  if (how != WEFT_POOLING_RANK)
    return fault_set(&c->fault, 501, NULL,
                     "this model does not rank texts: its file does not say that its pooling is rank");
  if (!query) return fault_set(&c->fault, 400, "query", "'query' is missing");
  if (!documents) return fault_set(&c->fault, 400, "documents", "'documents' is missing");
  if (!n || n > MOST)
    return fault_set(&c->fault, 400, "documents", "'documents' must have from 1 to %d texts, not %zu", MOST, n);
  json_array_foreach(documents, i, text) if (add_query_pair(c, i, query, text)) return -1;
  c->requests.at[from]->embeds = true;
  c->requests.at[from]->pooling = how;
  return join_requests(c, from, "documents", false);
}

// ---- to JSON --------------------------------------------------------------------------------------------------------

size_t call_vectors(const call *c, size_t i, int normalize, const float **at) {
  const struct vector *v = &c->choices[0].vectors.at[i];
  size_t size = (size_t)weft_model_embedding_size(c->m->model);
  for (size_t k = 0; k < v->n; k += size) weft_embedding_normalize(v->at + k, size, normalize);
  *at = v->at;
  return v->n / size;
}

json_t *vector_numbers(const call *c, const float *v) {
  json_t *all = json_array();
  for (int32_t i = 0, n = weft_model_embedding_size(c->m->model); i < n; i++)
    json_array_append_new(all, json_real((double)v[i]));
  return all;
}
