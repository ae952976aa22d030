// Tiled copies of weights: see weights.h. One graph stores all of them; its kernels run tensor by tensor.
#define _GNU_SOURCE
#include "engine/weights.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "device/memory.h"
#include "model/dequant.h"

enum { MAX_PARTS = 8, COPY_ALIGN = 4096 };

static bool wants_tiles(const model *m, const gguf_tensor *t) {
  if (t->n_dims != 2 || !dequant_can_tile(t->format, t->ne[1])) return false;
  return m->tied || strcmp(t->name, "token_embd.weight");      // rows that are only looked up stay as they are
}

typedef struct buffers { const weights *w; const model *m; } buffers;

static void *buffer(void *ctx, int64_t id) {
  const buffers *b = ctx;
  if (id >= MODEL_TILED) return b->w->at[id - MODEL_TILED];
  return (void *)(uintptr_t)gguf_tensor_at(b->m->file, (size_t)id)->data;
}

// The whole pages of the file that hold this tensor and nothing else are not needed any more.
static void give_back(const gguf_tensor *t) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)t->data + page - 1) / page * page, to = ((uintptr_t)t->data + t->nbytes) / page * page;
  if (from < to) madvise((void *)from, to - from, MADV_DONTNEED);
}

int weights_tile(weights *w, const model *m, device *d, void (*progress)(void *ctx, double fraction), void *ctx, int64_t *compiled, double *compile_ms, error *err) {
  size_t n = gguf_n_tensors(m->file);
  *w = (weights){.tiled = xcalloc(n, sizeof *w->tiled), .at = xcalloc(n, sizeof *w->at)};
  if (!d->target.vector_bytes) return 0;
  for (size_t i = 0; i < n; i++) {
    const gguf_tensor *t = gguf_tensor_at(m->file, i);
    w->tiled[i] = wants_tiles(m, t);
    if (w->tiled[i]) w->bytes += round_up(t->nbytes, COPY_ALIGN);
  }
  if (!w->bytes) return 0;
  w->memory = memory_reserve(w->bytes, err);
  if (!w->memory) return -1;
  graph *g = graph_new(NULL);
  VEC(uop *) effects = {0};
  uint64_t at = 0;
  for (size_t i = 0; i < n; i++) {
    if (!w->tiled[i]) continue;
    const gguf_tensor *t = gguf_tensor_at(m->file, i);
    w->at[i] = (unsigned char *)w->memory + at;
    at += round_up(t->nbytes, COPY_ALIGN);
    uop *stores[MAX_PARTS];
    int k = dequant_retile(g, t->format, (int64_t)i, MODEL_TILED + (int64_t)i, t->ne[1], t->ne[0], stores, MAX_PARTS);
    for (int j = 0; j < k; j++) vec_push(&effects, stores[j]);
  }
  uop *sink = uop_new(g, OP_SINK, DT_VOID, 1, effects.at, effects.n, (uarg){0});
  vec_free(&effects);
  schedule s;
  schedule_graph(g, sink, &s);
  plan *p;
  buffers b = {w, m};
  int r = plan_build(d, g, &s, &(plan_options){.buffer = buffer, .ctx = &b}, &p, err);
  if (!r) {
    plan_stats st = plan_get_stats(p);
    *compiled += st.compiled;
    *compile_ms += st.compile_ms;
    for (int i = 0, k; i < s.n_kernels; i += k) {
      for (k = 1; i + k < s.n_kernels && s.kernels[i + k].bufs[0] == s.kernels[i].bufs[0];) k++;
      plan_run_some(p, i, k);
      give_back(gguf_tensor_at(m->file, (size_t)(s.kernels[i].bufs[0] - MODEL_TILED)));
      if (progress) progress(ctx, (double)(i + k) / s.n_kernels);
    }
    plan_free(p);
  }
  graph_free(g);
  return r;
}

void weights_free(weights *w) {
  memory_release(w->memory, w->bytes);
  free(w->tiled);
  free(w->at);
  *w = (weights){0};
}
