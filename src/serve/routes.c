// The table of routes, and what is made from it.  Each is open to everybody or needs a key where there are keys; what
// is not here does not exist.
#define _GNU_SOURCE
#include "serve/families.h"
#include <string.h>

const struct route routes[] = {
  {"GET", "/", true, false, &openai_family, handle_page, NULL, "a page to talk with the model",
   "text/html"},
  {"GET", "/page/*", true, false, &openai_family, handle_page, NULL, "what the page consists of",
   "text/css text/javascript"},
  {"GET", "/openapi.json", true, false, &openai_family, handle_openapi, NULL, "this table, as OpenAPI", NULL},
  {"GET", "/health", true, false, &llama_family, handle_health, NULL,
   "200 once the models of the command line are loaded and as long as steps are taken", NULL},
  {"GET", "/v1/health", true, false, &llama_family, handle_health, NULL, "the same", NULL},
  {"GET", "/metrics", false, false, &llama_family, handle_metrics, NULL, "figures for Prometheus",
   "text/plain"},
  {"GET", "/v1/models", false, false, &openai_family, openai_models, NULL, "the models", NULL},
  {"GET", "/v1/models/*", false, false, &openai_family, openai_model, NULL, "one of them, by its name", NULL},
  {"POST", "/v1/completions", false, true, &openai_family, openai_completions, openai_completion_fields,
   "continues texts", NULL},
  {"POST", "/v1/chat/completions", false, true, &openai_family, openai_chat, openai_chat_fields,
   "answers a conversation", NULL},
  {"POST", "/v1/responses", false, true, &openai_family, openai_responses, responses_fields,
   "the same, in OpenAI's newer form", NULL},
  {"POST", "/v1/embeddings", false, true, &openai_family, openai_embeddings, openai_embedding_fields,
   "vectors of texts", NULL},
  {"POST", "/v1/rerank", false, true, &openai_family, rerank, rerank_fields,
   "texts in the order in which they answer", NULL},
  {"POST", "/v1/reranking", false, true, &openai_family, rerank, rerank_fields, "the same", NULL},
  {"POST", "/rerank", false, true, &llama_family, rerank, rerank_fields, "the same", NULL},
  {"POST", "/reranking", false, true, &llama_family, rerank, rerank_fields, "the same", NULL},
  {"GET", "/props", false, false, &llama_family, llama_props, NULL, "what the model and the server are", NULL},
  {"GET", "/slots", false, true, &llama_family, llama_slots, NULL, "what is going on", NULL},
  {"POST", "/tokenize", false, true, &llama_family, llama_tokenize, llama_tokenize_fields, "text to tokens", NULL},
  {"POST", "/detokenize", false, true, &llama_family, llama_detokenize, llama_detokenize_fields, "and back", NULL},
  {"POST", "/apply-template", false, true, &llama_family, llama_template, llama_template_fields,
   "a conversation as the text that the model gets", NULL},
  {"POST", "/completion", false, true, &llama_family, llama_completion, llama_completion_fields,
   "continues texts", NULL},
  {"POST", "/completions", false, true, &llama_family, llama_completion, llama_completion_fields, "the same", NULL},
  {"POST", "/infill", false, true, &llama_family, llama_infill, llama_infill_fields,
   "what stands between two texts", NULL},
  {"POST", "/embedding", false, true, &llama_family, llama_embedding, llama_embedding_fields, "vectors of texts", NULL},
  {"POST", "/embeddings", false, true, &llama_family, llama_embedding, llama_embedding_fields, "the same", NULL},
  {"POST", "/v1/messages", false, true, &anthropic_family, anthropic_messages, anthropic_fields,
   "answers a conversation, as Anthropic's does", NULL},
  {"POST", "/v1/messages/count_tokens", false, true, &anthropic_family, anthropic_count, anthropic_count_fields,
   "how long its prompt is", NULL},
  {"GET", "/api/version", true, false, &ollama_family, ollama_version, NULL, "the version", NULL},
  {"GET", "/api/tags", false, false, &ollama_family, ollama_tags, NULL, "the models, as ollama has them", NULL},
  {"GET", "/api/ps", false, false, &ollama_family, ollama_ps, NULL, "those that are loaded", NULL},
  {"POST", "/api/show", false, false, &ollama_family, ollama_show, ollama_show_fields, "what the model is", NULL},
  {"POST", "/api/chat", false, false, &ollama_family, ollama_chat, ollama_chat_fields,
   "answers a conversation, as ollama does", NULL},
  {"POST", "/api/generate", false, false, &ollama_family, ollama_generate, ollama_generate_fields,
   "answers a prompt, as ollama does", NULL},
  {"POST", "/api/embed", false, true, &ollama_family, ollama_embed, ollama_embed_fields,
   "vectors of texts, as ollama makes them", NULL},
  {"POST", "/api/embeddings", false, true, &ollama_family, ollama_embedding, ollama_embedding_fields,
   "the vector of a text, as it was in older versions", NULL},
};
const size_t n_routes = COUNT(routes);

static bool route_fits(const struct route *r, const char *path) {
  size_t n = strlen(r->path);
  if (r->path[n - 1] != '*') return !strcmp(r->path, path);
  return !strncmp(r->path, path, n - 1) && path[n - 1];
}

const char *asked_path(const exchange *x, const struct route *r) { return x->path + strcspn(r->path, "*"); }

const struct route *route_find(const char *method, const char *path, const char **allow) {
  *allow = NULL;
  if (!strcmp(method, "HEAD")) method = "GET";
  for (size_t i = 0; i < n_routes; i++) {
    if (!route_fits(&routes[i], path)) continue;
    if (!strcmp(routes[i].method, method)) return &routes[i];
    *allow = strcmp(routes[i].method, "GET") ? routes[i].method : "GET, HEAD";
  }
  return NULL;
}

// ---- /openapi.json --------------------------------------------------------------------------------------------------

static json_t *describe_body(const struct route *r) {
  struct fields all[8];
  size_t n = 0;
  for (; r->tables[n] && n < COUNT(all); n++) all[n] = *r->tables[n];
  return json_pack("{sb s{s{so}}}", "required", 1, "content", "application/json", "schema", fields_schema(all, n));
}

// What an answer may be: what the route says, or JSON, and a stream of the family where one can be asked for.
static json_t *describe_answer(const struct route *r) {
  json_t *all = json_object();
  bool streams = false;
  for (size_t i = 0; r->tables && r->tables[i]; i++)
    for (size_t j = 0; j < r->tables[i]->n; j++) streams |= !strcmp(r->tables[i]->at[j].name, "stream");
  for (const char *at = r->type ? r->type : "application/json"; *at; at += strspn(at, " ")) {
    size_t n = strcspn(at, " ");
    json_object_setn_new(all, at, n, json_object());
    at += n;
  }
  if (streams) json_object_set_new(all, r->family->stream, json_object());
  return json_pack("{ss so}", "description", "an answer", "content", all);
}

static json_t *describe(const struct route *r) {
  static const struct { const char *status, *what; } faults[] = {{"400", "the request is wrong"},
                                                                 {"401", "a key is needed"},
                                                                 {"403", "not from there"},
                                                                 {"404", "there is no such thing"},
                                                                 {"405", "not by this method"},
                                                                 {"413", "the body is too large"},
                                                                 {"415", "the body is no JSON"},
                                                                 {"429", "too many wait"},
                                                                 {"500", "the model failed"},
                                                                 {"501", "the model is not for this"},
                                                                 {"503", "not ready"}};
  json_t *answers = json_pack("{so}", "200", describe_answer(r));
  json_t *o = json_pack("{ss so}", "summary", r->what, "responses", answers);
  for (size_t i = 0; i < COUNT(faults); i++)
    json_object_set_new(answers, faults[i].status,
                        json_pack("{ss s{s{so}}}", "description", faults[i].what, "content", "application/json",
                                  "schema", json_of_shape(r->family->error_shape)));
  if (r->tables) json_object_set_new(o, "requestBody", describe_body(r));
  if (strchr(r->path, '*'))
    json_object_set_new(
      o, "parameters",
      json_pack("[{ss ss sb s{ss}}]", "name", "name", "in", "path", "required", 1, "schema", "type", "string"));
  if (!r->open) json_object_set_new(o, "security", json_pack("[{s[]}{}]", "key"));
  return o;
}

void handle_openapi(server *s, exchange *x) {
  (void)s;
  json_t *paths = json_object();
  for (size_t i = 0; i < n_routes; i++) {
    char path[64], method[8];
    size_t n = strcspn(routes[i].path, "*"), k = 0;
    snprintf(path, sizeof path, "%.*s%s", (int)n, routes[i].path, routes[i].path[n] ? "{name}" : "");
    for (; routes[i].method[k]; k++) method[k] = (char)(routes[i].method[k] | 32);
    method[k] = 0;
    json_t *at = json_object_get(paths, path);
    if (!at) json_object_set_new(paths, path, at = json_object());
    json_object_set_new(at, method, describe(&routes[i]));
  }
  answer_json(x, 200,
              json_pack("{ss s{ss ss} so s{s{s{ss ss}}}}", "openapi", "3.1.0", "info", "title", "weft", "version",
                        weft_version(), "paths", paths, "components", "securitySchemes", "key", "type", "http",
                        "scheme", "bearer"));
}
