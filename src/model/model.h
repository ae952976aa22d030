// model: a checked description of a model file, and its graphs. An architecture is a row in a table (arch.c); building a graph
// reads that row. Nothing is computed here.
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H
#include "graph/graph.h"
#include "model/gguf.h"

enum arch_flags { ARCH_NEOX = 1 /* rope rotates halves, not neighbours */, ARCH_QK_NORM = 2, ARCH_QKV_BIAS = 4 };
typedef struct arch { const char *name; unsigned flags; } arch;
const arch *arch_find(const char *name, size_t n);             // NULL: not known
const arch *arch_at(size_t i);                                 // the table; NULL past its end

enum { MODEL_MAX_LAYERS = 512 };

typedef struct model model;
struct model {
  const gguf *file;
  const arch *arch;
  int n_layer, n_embd, n_head, n_kv, head_dim, n_ff, n_vocab, n_ctx_train, rope_dim;
  double eps, rope_base, rope_scale;                           // rope_scale: positions are divided by it
  bool tied;
};
// Checks architecture, keys, tensor names, shapes and types. The file must stay open. 0, or -1 and what is wrong.
int model_open(const gguf *file, model **out, error *err);
void model_close(model *m);

// Buffers of the graphs are numbered: the file's tensors first, by index; then these.
enum model_buffer { BUF_IDS, BUF_LOGITS, BUF_CACHE };          // K of layer i: BUF_CACHE + 2 i, V: one more
static inline int64_t model_buffer_id(const model *m, int b) { return (int64_t)gguf_n_tensors(m->file) + b; }
static inline int model_n_buffers(const model *m) { return BUF_CACHE + 2 * m->n_layer; }

typedef struct model_shape {
  int64_t ctx;               // positions that the cache has room for (a multiple of 64)
  int64_t chunk;             // 1: one token per run, const; more: variable "n" in 1..chunk
  bool logits;               // store the logits of the last position in BUF_LOGITS (F32, n_vocab); else only the caches are filled
} model_shape;
// SINK of the effects: n tokens from BUF_IDS (I32, chunk) at positions pos.. (variable "pos") go through the model.
uop *model_graph(const model *m, graph *g, const model_shape *s);
int64_t model_kv_elements(const model *m, int64_t ctx);        // of one cache of one layer (F16)
#endif
