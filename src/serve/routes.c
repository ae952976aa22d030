// The table of routes, and what is generated from it. A route is open to all, or needs a key if the server has keys;
// any other path does not exist.
#define _GNU_SOURCE
#include "serve/families.h"
#include <string.h>

const struct route routes[] = {
  {"GET", "/", true, false, &openai_family, handle_page, NULL, "a page to chat with the model", "text/html"},
  {"GET", "/page/*", true, false, &openai_family, handle_page, NULL, "the files of that page",
   "text/css text/javascript"},
  {"GET", "/openapi.json", true, false, &openai_family, handle_openapi, NULL, "this table, as OpenAPI", NULL},
  {"GET", "/health", true, false, &llama_family, handle_health, NULL,
   "200 when the models of the command line are loaded, until the server stops or is stuck", NULL},
  {"GET", "/metrics", false, false, &llama_family, handle_metrics, NULL, "figures for Prometheus", "text/plain"},
  {"GET", "/v1/models", false, false, &openai_family, openai_models, NULL, "the models", NULL},
  {"GET", "/v1/models/*", false, false, &openai_family, openai_model, NULL, "one model, by its name", NULL},
  {"POST", "/v1/completions", false, true, &openai_family, openai_completions, openai_completion_fields,
   "continues texts", NULL},
  {"POST", "/v1/chat/completions", false, true, &openai_family, openai_chat, openai_chat_fields,
   "answers a conversation", NULL},
  {"POST", "/v1/chat/completions/input_tokens", false, true, &openai_family, openai_chat_count, openai_chat_fields,
   "the number of tokens in its prompt", NULL},
  {"POST", "/v1/completions/render", false, true, &openai_family, openai_completion_render, openai_completion_fields,
   "the token ids of its prompts, in vLLM's form", NULL},
  {"POST", "/v1/chat/completions/render", false, true, &openai_family, openai_chat_render, openai_chat_fields,
   "the token ids of its prompt, in vLLM's form", NULL},
  {"DELETE", "/v1/stream", false, false, &openai_family, handle_stream_delete, NULL, "ends a stream", NULL},
  {"GET", "/v1/stream", false, false, &openai_family, handle_stream, NULL,
   "a stream with X-Conversation-Id again: what it has sent from byte `from` on, and what follows",
   "text/event-stream"},
  {"POST", "/v1/streams/lookup", false, false, &openai_family, handle_stream_lookup, stream_lookup_fields,
   "which of these conversations have streams", NULL},
  {"POST", "/v1/responses", false, true, &openai_family, openai_responses, responses_fields,
   "answers a conversation, in the form of OpenAI's Responses", NULL},
  {"POST", "/v1/responses/input_tokens", false, true, &openai_family, openai_responses_count, responses_fields,
   "the number of tokens in its prompt", NULL},
  {"POST", "/v1/embeddings", false, true, &openai_family, openai_embeddings, openai_embedding_fields, "embeddings",
   NULL},
  {"POST", "/v1/rerank", false, true, &openai_family, rerank, rerank_fields,
   "sorts texts by how well they answer a query", NULL},
  {"POST", "/rerank", false, true, &llama_family, rerank, rerank_fields, "/v1/rerank with llama.cpp's errors", NULL},
  {"POST", "/models/load", false, false, &llama_family, llama_load, llama_model_fields, "loads a model", NULL},
  {"POST", "/models/unload", false, false, &llama_family, llama_unload, llama_model_fields,
   "takes a model out of memory, once its requests are answered", NULL},
  {"GET", "/lora-adapters", false, false, &llama_family, llama_adapters, NULL, "adapters and their scales", NULL},
  {"POST", "/lora-adapters", false, false, &llama_family, llama_set_adapters, NULL,
   "changes the scales: [{id, scale}], 0 for those that are not named", NULL},
  {"GET", "/props", false, false, &llama_family, llama_props, NULL, "properties of the model and the server", NULL},
  {"GET", "/slots", false, false, &llama_family, llama_slots, NULL, "the slots and what they do", NULL},
  {"POST", "/slots/*", false, true, &llama_family, llama_slot_action, NULL,
   "saves the slot's sequence into a file of --slot-save-path, restores or erases it (?action=)", NULL},
  {"POST", "/tokenize", false, true, &llama_family, llama_tokenize, llama_tokenize_fields, "converts text to tokens",
   NULL},
  {"POST", "/detokenize", false, true, &llama_family, llama_detokenize, llama_detokenize_fields,
   "converts tokens to text", NULL},
  {"POST", "/apply-template", false, true, &llama_family, llama_template, llama_template_fields,
   "a conversation as the text that the model gets", NULL},
  {"POST", "/completion", false, true, &llama_family, llama_completion, llama_completion_fields, "continues texts",
   NULL},
  {"POST", "/infill", false, true, &llama_family, llama_infill, llama_infill_fields,
   "writes the text between two texts", NULL},
  {"POST", "/embedding", false, true, &llama_family, llama_embedding, llama_embedding_fields, "embeddings", NULL},
  {"POST", "/v1/messages", false, true, &anthropic_family, anthropic_messages, anthropic_fields,
   "answers a conversation, in Anthropic's form", NULL},
  {"POST", "/v1/messages/count_tokens", false, true, &anthropic_family, anthropic_count, anthropic_count_fields,
   "the number of tokens in its prompt", NULL},
  {"GET", "/api/version", true, false, &ollama_family, ollama_version, NULL, "the version", NULL},
  {"GET", "/api/tags", false, false, &ollama_family, ollama_tags, NULL, "the models, in ollama's form", NULL},
  {"GET", "/api/ps", false, false, &ollama_family, ollama_ps, NULL, "the models that are loaded, in ollama's form",
   NULL},
  {"POST", "/api/show", false, false, &ollama_family, ollama_show, ollama_show_fields,
   "describes a model, in ollama's form", NULL},
  {"POST", "/api/pull", false, false, &ollama_family, ollama_pull, ollama_pull_fields,
   "says whether the model is there; fetches nothing", NULL},
  {"POST", "/api/chat", false, false, &ollama_family, ollama_chat, ollama_chat_fields,
   "answers a conversation, in ollama's form", NULL},
  {"POST", "/api/generate", false, false, &ollama_family, ollama_generate, ollama_generate_fields,
   "answers a prompt, in ollama's form", NULL},
  {"POST", "/api/embed", false, true, &ollama_family, ollama_embed, ollama_embed_fields, "embeddings, in ollama's form",
   NULL},
  {"POST", "/api/embeddings", false, true, &ollama_family, ollama_embedding, ollama_embedding_fields,
   "the embedding of a text, in the form of older versions of ollama", NULL},
  {"GET", "/version", true, false, &openai_family, replica_version, NULL, "the version, in vLLM's form", NULL},
  {"GET", "/load", false, false, &openai_family, replica_load, NULL, "the number of requests", NULL},
  {"GET", "/get_load", false, false, &openai_family, replica_loads, NULL, "the number of requests, in SGLang's form",
   NULL},
  {"GET", "/is_sleeping", false, false, &openai_family, replica_sleeps, NULL, "always no: the server takes requests",
   NULL},
  {"GET", "/server_info", false, false, &openai_family, replica_info, NULL,
   "the server and its first model, for routers", NULL},
  {"GET", "/model_info", false, false, &openai_family, replica_model, NULL, "the first model, for routers", NULL},
};
const size_t n_routes = COUNT(routes);

// Other paths of routes: llama-server's without /v1, and additions of other servers.
static const struct { const char *path, *of; } aliases[] = {
  {"/v1/health", "/health"},
  {"/ping", "/health"},
  {"/health_generate", "/health"},
  {"/get_server_info", "/server_info"},
  {"/get_model_info", "/model_info"},
  {"/models", "/v1/models"},
  {"/chat/completions", "/v1/chat/completions"},
  {"/responses", "/v1/responses"},
  {"/messages", "/v1/messages"},
  {"/messages/count_tokens", "/v1/messages/count_tokens"},
  {"/v1/reranking", "/v1/rerank"},
  {"/v2/rerank", "/v1/rerank"},
  {"/reranking", "/rerank"},
  {"/completions", "/completion"},
  {"/embeddings", "/embedding"},
  {"/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"},
  {"/responses/input_tokens", "/v1/responses/input_tokens"},
  {"/audio/transcriptions", "/v1/audio/transcriptions"},
};

// Endpoints of other servers that this one does not have, with the reason: 501 instead of 404.
static const char files[] = "models are files: 'weft pull' fetches them, 'weft rm' removes them",
                  text_only[] = "answers are text; pictures and sounds stand in messages of conversations",
                  not_kept[] = "answers and conversations are not kept: each request brings its whole conversation",
                  in_memory[] = "/models/load and /models/unload bring models into memory and out of it",
                  nothing_run[] = "the server runs no tools, and fetches nothing for others";
static const struct refusal { const char *path; const struct family *family; const char *why;
} refusals[] = {
  {"/v1/chat/completions/control", &llama_family, "an answer cannot be changed once it has begun"},
  {"/v1/audio/*", &openai_family, text_only},
  {"/v1/images/*", &openai_family, text_only},
  {"/v1/videos", &openai_family, text_only},
  {"/v1/realtime", &openai_family, text_only},
  {"/v1/responses/*", &openai_family, not_kept},
  {"/v1/conversations", &openai_family, not_kept},
  {"/v1/conversations/*", &openai_family, not_kept},
  {"/v1/files", &openai_family, "no files are kept"},
  {"/v1/files/*", &openai_family, "no files are kept"},
  {"/v1/batches", &openai_family, "there are no batches: send the requests at once"},
  {"/v1/messages/batches", &anthropic_family, "there are no batches: send the requests at once"},
  {"/v1/messages/batches/*", &anthropic_family, "there are no batches: send the requests at once"},
  {"/v1/moderations", &openai_family, "there is no model for this"},
  {"/v1/assistants", &openai_family, not_kept},
  {"/v1/threads", &openai_family, not_kept},
  {"/v1/fine_tuning/jobs", &openai_family, "models are not trained here"},
  {"/tools", &llama_family, nothing_run},
  {"/flush_cache", &openai_family, "answers do not depend on what is cached"},
  {"/sleep", &openai_family, in_memory},
  {"/wake_up", &openai_family, in_memory},
  {"/cors-proxy", &llama_family, nothing_run},
  {"/props", &llama_family, "properties are options of the command line"},
  {"/models/sse", &llama_family, "ask /v1/models for the states of models"},
  {"/v1/models", &llama_family, files},
  {"/v1/models/*", &llama_family, files},
  {"/api/create", &ollama_family, files},
  {"/api/copy", &ollama_family, files},
  {"/api/delete", &ollama_family, files},
  {"/api/push", &ollama_family, files},
  {"/api/blobs/*", &ollama_family, files},
  {"/api/me", &ollama_family, "there are no accounts"},
  {"/api/signout", &ollama_family, "there are no accounts"},
  {"/api/experimental/*", &ollama_family, nothing_run},
};

static const char *canonical(const char *path) {
  for (size_t i = 0; i < COUNT(aliases); i++) if (!strcmp(aliases[i].path, path)) return aliases[i].of;
  return path;
}

static bool path_fits(const char *pattern, const char *path) {
  size_t n = strlen(pattern);
  if (pattern[n - 1] != '*') return !strcmp(pattern, path);
  return !strncmp(pattern, path, n - 1) && path[n - 1];
}

const char *route_refusal(const char *path, const struct family **family) {
  path = canonical(path);
  for (size_t i = 0; i < COUNT(refusals); i++) {
    if (!path_fits(refusals[i].path, path)) continue;
    *family = refusals[i].family;
    return refusals[i].why;
  }
  return NULL;
}

const char *asked_path(const exchange *x, const struct route *r) { return x->path + strcspn(r->path, "*"); }

const struct route *route_find(const char *method, const char *path, const char **allow) {
  static _Thread_local char methods[64];
  size_t n = 0;
  *allow = NULL;
  path = canonical(path);
  if (!strcmp(method, "HEAD")) method = "GET";
  for (size_t i = 0; i < n_routes; i++) {
    if (!path_fits(routes[i].path, path)) continue;
    if (!strcmp(routes[i].method, method)) return &routes[i];
    n += (size_t)snprintf(methods + n, sizeof methods - n, "%s%s", n ? ", " : "",
                          strcmp(routes[i].method, "GET") ? routes[i].method : "GET, HEAD");
    *allow = methods;
  }
  return NULL;
}

// ---- /openapi.json --------------------------------------------------------------------------------------------------

static json_t *describe_body(const struct route *r) {
  return json_pack("{sb s{s{so}}}", "required", 1, "content", "application/json", "schema", fields_schema(r->tables));
}

// Describes the possible answers of a route: its own type, or JSON, and the family's stream if it has one.
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

// A required query parameter, or NULL.
static const char *needed_query(const struct route *r) {
  static const struct { const char *path, *name; } all[] = {{"/v1/stream", "conv_id"}, {"/slots/*", "action"}};
  for (size_t i = 0; i < COUNT(all); i++) if (!strcmp(all[i].path, r->path)) return all[i].name;
  return NULL;
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
  bool ends = !strcmp(r->method, "DELETE");
  json_t *answers =
    ends ? json_pack("{s{ss}}", "204", "description", "done") : json_pack("{so}", "200", describe_answer(r));
  json_t *o = json_pack("{ss so}", "summary", r->what, "responses", answers);
  for (size_t i = 0; i < COUNT(faults); i++)
    json_object_set_new(answers, faults[i].status,
                        json_pack("{ss s{s{so}}}", "description", faults[i].what, "content", "application/json",
                                  "schema", json_of_shape(r->family->error_shape)));
  if (r->tables) json_object_set_new(o, "requestBody", describe_body(r));
  bool named = strchr(r->path, '*');
  const char *query = needed_query(r);
  if (named || query)
    json_object_set_new(o, "parameters",
                        json_pack("[{ss ss sb s{ss si}}]", "name", named ? "name" : query, "in",
                                  named ? "path" : "query", "required", 1, "schema", "type", "string", "minLength", 1));
  if (!r->open) json_object_set_new(o, "security", json_pack("[{s[]}{}]", "key"));
  return o;
}

str describe_routes(void) {
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
  json_t *all = json_pack("{ss s{ss ss} so s{s{s{ss ss}}}}", "openapi", "3.1.0", "info", "title", "weft", "version",
                          weft_version(), "paths", paths, "components", "securitySchemes", "key", "type", "http",
                          "scheme", "bearer");
  str text = {.at = json_dumps(all, JSON_COMPACT)};
  text.n = strlen(text.at);
  json_decref(all);
  return text;
}

void handle_openapi(server *s, exchange *x) {
  exchange_send_fixed(x, "application/json; charset=utf-8", s->openapi.at, s->openapi.n);
}
