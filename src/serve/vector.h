// vector: embeddings of texts, pictures and sounds, for the families of endpoints. (The scheduler's part is in run.h.)
#ifndef WEFT_SERVE_VECTOR_H
#define WEFT_SERVE_VECTOR_H
#include "serve/call.h"

// How texts are read. ONE: one vector per text, which requires a pooling type. CUT: long texts are cut, otherwise
// refused. SEEN: a text may be an object with pictures and sounds.
enum { TEXTS_ONE = 1, TEXTS_CUT = 2, TEXTS_SEEN = 4 };
// `input` is a text, ids, or an array of these. Prepares the call.
int call_add_texts(call *c, json_t *input, const char *name, unsigned how);
// For the conversation p.messages, which has one vector: vLLM's form.
int call_add_seen_chat(call *c);
// For a question and each of several texts, with a reranking model.
int call_add_pairs(call *c, json_t *query, json_t *documents);
// For a finished choice: the vectors of text i, each normalised as by weft_embedding_normalize.
size_t call_vectors(const call *c, size_t i, int normalize, const float **at);
json_t *vector_numbers(const call *c, const float *v);
#endif
