// families: handlers and field tables of the families of endpoints, for routes.c.
#ifndef WEFT_SERVE_FAMILIES_H
#define WEFT_SERVE_FAMILIES_H
#include "serve/call.h"

extern const struct fields *const openai_completion_fields[], *const openai_chat_fields[], *const responses_fields[],
  *const openai_embedding_fields[];
void openai_models(server *s, exchange *x);
void openai_model(server *s, exchange *x);
void openai_completions(server *s, exchange *x);
void openai_chat(server *s, exchange *x);
void openai_chat_count(server *s, exchange *x);
void openai_chat_render(server *s, exchange *x);
void openai_completion_render(server *s, exchange *x);
void openai_responses_count(server *s, exchange *x);
void openai_responses(server *s, exchange *x);
void openai_embeddings(server *s, exchange *x);
extern const struct fields *const rerank_fields[];
void rerank(server *s, exchange *x);

extern const struct fields *const llama_completion_fields[],
  *const llama_infill_fields[], *const llama_tokenize_fields[], *const llama_detokenize_fields[],
                                                                  *const llama_template_fields[],
                                                                    *const llama_embedding_fields[];
json_t *template_text(const weft_template *t);     // the template's text; NULL if t is NULL
extern const struct fields *const llama_model_fields[];
void llama_load(server *s, exchange *x);
void llama_unload(server *s, exchange *x);
void llama_adapters(server *s, exchange *x);
void llama_set_adapters(server *s, exchange *x);
int llama_adapt(call *c);               // p.lora: the scales of adapters in this request
void llama_props(server *s, exchange *x);
void llama_slots(server *s, exchange *x);
bool llama_sleeps(server *s, const char *name);      // is this model (NULL: the default one) out of memory?
void llama_slot_action(server *s, exchange *x);
void llama_tokenize(server *s, exchange *x);
void llama_detokenize(server *s, exchange *x);
void llama_template(server *s, exchange *x);
void llama_completion(server *s, exchange *x);
void llama_infill(server *s, exchange *x);
void llama_embedding(server *s, exchange *x);

extern const struct fields *const anthropic_fields[], *const anthropic_count_fields[];
void anthropic_messages(server *s, exchange *x);
void anthropic_count(server *s, exchange *x);

extern const struct fields *const ollama_chat_fields[], *const ollama_generate_fields[], *const ollama_show_fields[],
  *const ollama_pull_fields[], *const ollama_embed_fields[], *const ollama_embedding_fields[];
void ollama_version(server *s, exchange *x);
void ollama_tags(server *s, exchange *x);
void ollama_ps(server *s, exchange *x);
void ollama_show(server *s, exchange *x);
void ollama_pull(server *s, exchange *x);
void ollama_chat(server *s, exchange *x);
void ollama_generate(server *s, exchange *x);
void ollama_embed(server *s, exchange *x);
void ollama_embedding(server *s, exchange *x);

// replica.c
void replica_version(server *s, exchange *x);
void replica_load(server *s, exchange *x);
void replica_loads(server *s, exchange *x);
void replica_sleeps(server *s, exchange *x);
void replica_model(server *s, exchange *x);
void replica_info(server *s, exchange *x);
#endif
