// What routers query on each replica: vLLM's and SGLang's endpoints for version, load and model. Routers use them to
// register, weigh and name a replica.
#include <string.h>
#include "serve/caps.h"
#include "serve/families.h"

void replica_version(server *s, exchange *x) {
  (void)s;
  answer_json(x, 200, json_pack("{ss}", "version", weft_version()));
}

// vLLM's form: number of requests in the server. A stream without a reader that continues (X-Conversation-Id) counts,
// since it occupies a slot.
void replica_load(server *s, exchange *x) {
  struct sched_counts c;
  shelf_counts(s->shelf, &c);
  answer_json(x, 200, json_pack("{si}", "server_load", c.running + c.waiting));
}

// SGLang's form: one entry, for one rank. num_tokens: tokens held by running answers plus prompts that wait.
void replica_loads(server *s, exchange *x) {
  struct sched_counts c;
  shelf_counts(s->shelf, &c);
  answer_json(x, 200, json_pack("[{si si si sI}]", "dp_rank", 0, "num_reqs", c.running + c.waiting, "num_waiting_reqs",
                                c.waiting, "num_tokens", (json_int_t)(c.held + c.waiting_tokens)));
}

// vLLM's term for a replica that accepts no requests until it is woken: routers skip it. Always false: here an unloaded
// model is loaded by the next request.
void replica_sleeps(server *s, exchange *x) {
  (void)s;
  answer_json(x, 200, json_pack("{sb}", "is_sleeping", 0));
}

struct description { const served *usual; json_t *model; };

// Paths are empty: a router would take a path's name as a repository and fetch a tokeniser from there.
static void describe_model(void *ctx, served *m) {
  struct description *d = ctx;
  if (m != d->usual) return;
  json_t *o = d->model = json_pack("{ss ss ss ss sb sb sI}", "model_path", "", "tokenizer_path", "",
                                   "served_model_name", m->name, "model_type", m->arch, "has_image_understanding",
                                   !!(m->media_kinds & WEFT_PICTURE), "has_audio_understanding",
                                   !!(m->media_kinds & WEFT_SOUND), "context_length", (json_int_t)m->n_trained);
  if (m->state != SERVED_IN) return;
  json_object_set_new(o, "context_length", json_integer(weft_model_context(m->model)));
  json_object_set_new(o, "is_generation", json_boolean(caps_of(weft_model_file(m->model), NULL).completes));
}

// The default model; routers learn of others from /v1/models.
static json_t *usual_model(server *s) {
  fault none = {0};
  struct description d = {shelf_find(s->shelf, NULL, &none), NULL};
  if (d.usual) shelf_each(s->shelf, describe_model, &d);
  return d.model ? d.model : json_object();
}

void replica_model(server *s, exchange *x) { answer_json(x, 200, usual_model(s)); }

void replica_info(server *s, exchange *x) {
  json_t *o = usual_model(s), *name = json_object_get(o, "served_model_name");
  if (name) json_object_set(o, "model_id", name);
  json_t *own = json_pack("{ss si si si}", "version", weft_version(), "dp_size", 1, "tp_size", 1,
                          "max_running_requests", s->o->parallel);
  json_object_update(o, own);
  json_decref(own);
  answer_json(x, 200, o);
}
