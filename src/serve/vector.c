// Embeddings of texts, and of prompts with pictures and sounds: see vector.h.
#define _GNU_SOURCE
#include "serve/vector.h"
#include "serve/media.h"
#include "serve/run.h"
#include <stdlib.h>
#include <string.h>

// ---- on the step thread ---------------------------------------------------------------------------------------------

static event *new_vector_event(const vectors *v, enum event_kind kind) {
  event *e = xcalloc(1, sizeof *e);
  e->kind = kind;
  e->request = v->r;
  e->id = -1;
  return e;
}

static bool over(vectors *v, event *e) {
  e->timing = v->timing;
  v->last = e;
  return false;
}

size_t vectors_needs(const vectors *v) {
  return v->r->cancelled || v->i == v->r->lengths.n ? 0 : v->r->lengths.at[v->i];
}

bool vectors_step(vectors *v) {
  request *r = v->r;
  weft_model *m = v->m;
  if (!v->i) {
    v->start = now_s();
    v->timing.wait_ms = 1000 * (v->start - r->arrived);
  }
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
  if (weft_adapt(m, r->scales, weft_model_n_adapters(m), &err) ||
      weft_embed(m, r->prompt.at + v->at, n, r->pooling, e->vector, &err)) {
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

enum { MOST = 2048 };                  // texts per request

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

// Cuts a text to n_ctx tokens. A separator that the model puts at the end stays there; a text that was not tokenised to
// its end has none.
static void cut_to_context(const weft_vocab *v, token_ids *text, size_t n_ctx) {
  int32_t *ids;
  size_t n;
  if (text->n <= n_ctx || weft_tokenize(v, "", 0, WEFT_ADD_SPECIAL, &ids, &n, NULL)) return;
  size_t first = n && ids[0] == weft_bos(v), end = n - first;
  if (end < n_ctx) {
    if (end) memcpy(text->at + n_ctx - end, ids + first, end * sizeof *ids);
    text->n = n_ctx;
  }
  weft_free(ids);
}

static int too_long(call *c, const char *name, size_t i, size_t n) {
  size_t n_ctx = (size_t)weft_model_context(c->m->model);
  c->fault.n_prompt = (int64_t)n;
  c->fault.n_ctx = (int64_t)n_ctx;
  c->fault.code = "context_length_exceeded";
  return fault_set(&c->fault, 400, name, "'%s' has a text of %s%zu tokens (number %zu), and the context holds %zu",
                   name, n > call_most_ids(c) ? "at least " : "", n, i, n_ctx);
}

// Joins the requests for single texts to one.
static int join_requests(call *c, size_t from, const char *name, bool truncate) {
  const weft_model *m = c->m->model;
  size_t n_ctx = (size_t)weft_model_context(m);
  request *all = c->requests.at[from];
  token_ids ids = {0};
  int status = 0;
  for (size_t i = from; i < c->requests.n && !status; i++) {
    token_ids *own = &c->requests.at[i]->prompt;
    if (truncate) cut_to_context(weft_model_vocab(m), own, n_ctx);
    if (!own->n)
      status = fault_set(&c->fault, 400, name, "'%s' has a text without tokens (number %zu)", name, i - from);
    else if (own->n > n_ctx) status = too_long(c, name, i - from, own->n);
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

// Charges memory for the embeddings of all texts.
static int take_vectors(call *c, const request *r, const char *name) {
  enum { OF_A_NUMBER = 72 };          // as a float, as JSON and as text
  uint64_t n = r->pooling == WEFT_POOLING_NONE ? r->prompt.n : r->lengths.n, bytes;
  if (!mul_u64(n, (uint64_t)weft_model_embedding_size(c->m->model) * OF_A_NUMBER, &bytes)) bytes = SIZE_MAX / 2;
  return call_take(c, name, "the vectors of its texts", bytes);
}

// ---- texts ----------------------------------------------------------------------------------------------------------

static int add_one(call *c, const json_t *text, const char *name, size_t i, unsigned how) {
  if (how & TEXTS_SEEN && json_is_object(text)) return call_add_object(c, text, name, i, true);
  return call_add_prompt(c, text, false, name);
}

// Joins the requests from this one on, for embeddings.
static int embed_requests(call *c, size_t from, const char *name, enum weft_pooling pooling, unsigned how) {
  c->requests.at[from]->embeds = true;
  c->requests.at[from]->pooling = pooling;
  return join_requests(c, from, name, how & TEXTS_CUT) ? -1 : take_vectors(c, c->requests.at[from], name);
}

int call_add_texts(call *c, json_t *input, const char *name, unsigned how) {
  json_t *text;
  size_t i, from = c->requests.n;
  bool ids = false;
  enum weft_pooling pooling;
  if (!input) return fault_set(&c->fault, 400, name, "'%s' is missing", name);
  if (find_pooling(c, how & TEXTS_ONE, &pooling)) return -1;
  json_array_foreach(input, i, text) ids |= json_is_number(text);
  if (ids || !json_is_array(input)) {
    if (add_one(c, input, name, 0, how)) return -1;
  } else {
    if (!json_array_size(input) || json_array_size(input) > MOST)
      return fault_set(&c->fault, 400, name, "'%s' must have from 1 to %d texts, not %zu", name, MOST,
                       json_array_size(input));
    json_array_foreach(input, i, text) if (add_one(c, text, name, i, how)) return -1;
  }
  return embed_requests(c, from, name, pooling, how);
}

int call_add_seen_chat(call *c) {
  enum weft_pooling pooling;
  size_t from = c->requests.n;
  if (find_pooling(c, true, &pooling) || call_add_chat(c, c->p.messages, NULL)) return -1;
  c->requests.at[from]->chat = false;                  // output has no parts
  return embed_requests(c, from, "messages", pooling, TEXTS_ONE);
}

// ---- questions and texts --------------------------------------------------------------------------------------------

static int add_query_pair(call *c, size_t i, json_t *query, const json_t *text) {
  weft_error err;
  error late = {0};
  int32_t *ids;
  size_t n;
  if (json_is_object(text)) text = json_object_get(text, "text");
  if (!json_is_string(text))
    return fault_set(&c->fault, 400, "documents", "'documents[%zu]' must be a text, not %s", i, json_kind(text));
  const weft_pair pair = {.question = json_string_value(query), .n_question = json_string_length(query),
                          .text = json_string_value(text), .n_text = json_string_length(text),
                          .most_ids = call_most_ids(c)};
  if (account_check(&late)) return fault_set(&c->fault, 400, "documents", "%s", late.text);
  if (weft_tokenize_pair(c->m->model, &pair, &ids, &n, &err))
    return fault_set(&c->fault, 400, "documents", "%s", err.text);
  if (n > (size_t)weft_model_context(c->m->model)) {       // before further ones are read
    weft_free(ids);
    return too_long(c, "documents", i, n);
  }
  request *r = call_new_request(c);
  for (size_t k = 0; k < n; k++) vec_push(&r->prompt, ids[k]);
  weft_free(ids);
  return call_take(c, "documents", "their tokens", n * sizeof *ids);
}

int call_add_pairs(call *c, json_t *query, json_t *documents) {
  json_t *text;
  size_t i, n = json_array_size(documents), from = c->requests.n;
  enum weft_pooling how;
  weft_error err;
  how = c->s->o->pooling;
  if (how != WEFT_POOLING_RANK && weft_model_pooling(c->m->model, &how, &err))
    return fault_set(&c->fault, 501, NULL, "%s", err.text);
  if (how != WEFT_POOLING_RANK)
    return fault_set(&c->fault, 501, NULL,
                     "this model does not rank texts: its file does not say that its pooling is rank (--pooling rank)");
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
