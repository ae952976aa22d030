// vector: vectors of texts, pictures and sounds, for the families of endpoints.  (The scheduler's part is in run.h.)
#ifndef WEFT_SERVE_VECTOR_H
#define WEFT_SERVE_VECTOR_H
#include "serve/call.h"

// How texts are taken. ONE: each has one vector, so that the model has to say how it is made. CUT: a text that is too
// long is cut; otherwise it is refused. SEEN: a text may be an object with pictures and sounds.
enum { TEXTS_ONE = 1, TEXTS_CUT = 2, TEXTS_SEEN = 4 };
// `input` is a text, ids, or an array of these; then the call can go.
int call_add_texts(call *c, json_t *input, const char *name, unsigned how);
// The same for the conversation p.messages, which has one vector: vLLM's form.
int call_add_seen_chat(call *c);
// The same for a question and each of some texts, by a model that ranks.
int call_add_pairs(call *c, json_t *query, json_t *documents);
// Of a choice that has ended: the vectors of its text i, each normalised as weft_embedding_normalize does.
size_t call_vectors(const call *c, size_t i, int normalize, const float **at);
json_t *vector_numbers(const call *c, const float *v);
#endif
