// Memory for weights: see weights.h.
#define _GNU_SOURCE
#include "engine/weights.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "device/memory.h"

enum { STREAM_ALIGN = 4096, SPARE_PERCENT = 30 };

int weights_open(weights *w, const gguf *file, error *err) {
  uint64_t all = 0, n = gguf_n_tensors(file);
  *w = (weights){.file = file};
  for (size_t i = 0; i < n; i++) {
    const gguf_tensor *t = gguf_tensor_at(file, i);
    if (t->n_dims >= 2 && !add_u64(all, round_up(t->nbytes, STREAM_ALIGN), &all)) return error_set(err, "%s: its tensors are larger than memory can be", gguf_path(file));
  }
  if (!all) return 0;
  w->size = all + all / 100 * SPARE_PERCENT;
  w->memory = memory_reserve(w->size, err);
  return w->memory ? 0 : -1;
}

void *weights_stream(weights *w, int64_t tensor, uint64_t layout, int64_t size, bool *filled) {
  for (size_t i = 0; i < w->streams.n; i++)
    if (w->streams.at[i].tensor == tensor && w->streams.at[i].layout == layout) { *filled = w->streams.at[i].filled; return w->streams.at[i].at; }
  *filled = false;
  uint64_t need = round_up((size_t)size, STREAM_ALIGN);
  if (need > w->size - w->used) return NULL;
  unsigned char *at = w->memory + w->used;
  w->used += need;
  vec_push(&w->streams, ((weight_stream){tensor, layout, at, false}));
  return at;
}

void weights_filled(weights *w, int64_t tensor) {
  for (size_t i = 0; i < w->streams.n; i++) if (w->streams.at[i].tensor == tensor) w->streams.at[i].filled = true;
}

void weights_give_back(const weights *w, int64_t tensor, double from, double to) {
  const gguf_tensor *t = gguf_tensor_at(w->file, (size_t)tensor);
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)t->data;
  uintptr_t first = (at + (uintptr_t)((double)t->nbytes * from) + page - 1) / page * page, end = (at + (uintptr_t)((double)t->nbytes * to)) / page * page;
  if (first < end) madvise((void *)first, end - first, MADV_DONTNEED);
}

void weights_free(weights *w) {
  memory_release(w->memory, w->size);
  vec_free(&w->streams);
  *w = (weights){0};
}
