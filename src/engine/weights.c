// Memory for weights: see weights.h.
#define _GNU_SOURCE
#include "engine/weights.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "device/memory.h"
#include "device/ranks.h"
#include "engine/layer_split.h"

enum {
  STREAM_ALIGN = 4096,
  SPARE_PERCENT = 30,
  READ_AHEAD = 1 << 17 /* the system reads no more for one request than its device's limit */
};

static void *touch_pages(void *ctx) {
  weights *w = ctx;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  for (uint64_t at = 0; at < w->wanted && !atomic_load_explicit(&w->enough, memory_order_relaxed); at += page)
    ((volatile unsigned char *)w->memory)[at] = 0;
  return NULL;
}

static void stop_touching(weights *w) {
  if (!w->touching) return;
  atomic_store(&w->enough, true);
  pthread_join(w->toucher, NULL);
  w->touching = false;
}

// Whether somebody here reads it.
static bool is_read(const weights *w, const gguf_tensor *t) {
  int layer = layer_split_layer_of(t);
  return layer < 0 || (layer >= w->from && layer < w->to);
}

int weights_open(weights *w, const gguf *file, device *d, int from, int to, error *err) {
  uint64_t all = 0, n = gguf_n_tensors(file);
  *w = (weights){.file = file, .d = d, .from = from, .to = to};
  for (size_t i = 0; i < n; i++) {
    const gguf_tensor *t = gguf_tensor_at(file, i);
    if (t->n_dims >= 2 && is_read(w, t) && !add_u64(all, round_up(t->nbytes, STREAM_ALIGN), &all))
      return error_set(err, "%s: its tensors are larger than memory can be", gguf_path(file));
  }
  if (!all || !d->run->here) return 0;
  w->size = all + all / 100 * SPARE_PERCENT;
  w->memory = memory_reserve_plain(w->size, err);
  if (!w->memory) return -1;
  w->wanted = all / (uint64_t)ranks_here().n;
  w->touching = !pthread_create(&w->toucher, NULL, touch_pages, w);
  return 0;
}

void *weights_stream(weights *w, int64_t number, uint64_t layout, int64_t size, bool *filled) {
  for (size_t i = 0; i < w->streams.n; i++)
    if (w->streams.at[i].tensor == number && w->streams.at[i].layout == layout) {
      *filled = w->streams.at[i].filled;
      return w->streams.at[i].at;
    }
  stop_touching(w);
  *filled = false;
  uint64_t need = round_up((size_t)size, STREAM_ALIGN);
  if (w->d->run->here && need > w->size - w->used) return NULL;
  unsigned char *at = w->d->run->here ? w->memory + w->used : device_alloc(w->d, need, PAGES_PLAIN, NULL);
  if (!at) return NULL;
  w->used += w->d->run->here ? need : 0;
  vec_push(&w->streams, ((weight_stream){number, layout, at, need, false}));
  return at;
}

void weights_filled(weights *w, int64_t number) {
  for (size_t i = 0; i < w->streams.n; i++) if (w->streams.at[i].tensor == number) w->streams.at[i].filled = true;
}

void weights_read_ahead(const weights *w) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (size_t i = 0; i < gguf_n_tensors(w->file); i++) {
    const gguf_tensor *t = gguf_tensor_at(w->file, i);
    bool streamed = t->n_dims < 2 || !is_read(w, t);
    for (size_t j = 0; j < w->streams.n && !streamed; j++) streamed = w->streams.at[j].tensor == (int64_t)i;
    uintptr_t at = (uintptr_t)t->data / page * page, end = (uintptr_t)t->data + t->nbytes;
    for (; !streamed && at < end; at += READ_AHEAD)
      madvise((void *)at, end - at < READ_AHEAD ? end - at : READ_AHEAD, MADV_WILLNEED);
  }
}

bool weights_promote_pages(weights *w, double seconds) {
  for (double end = now_s() + seconds; w->promoted + MEMORY_ALIGN <= w->used && now_s() < end;
       w->promoted += MEMORY_ALIGN)
    // no huge pages to be had: they stay as they are
    if (!memory_promote(w->memory + w->promoted, MEMORY_ALIGN)) { w->promoted = w->used; break; }
  if (w->promoted + MEMORY_ALIGN <= w->used) return false;
  if (w->used && !w->settled) weights_read_ahead(w);           // what moving has driven out of memory
  return w->settled = true;
}

void weights_give_back(const gguf *file, int64_t number, double from, double to) {
  const gguf_tensor *t = gguf_tensor_at(file, (size_t)number);
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)t->data;
  uintptr_t first = (at + (uintptr_t)((double)t->nbytes * from) + page - 1) / page * page,
            end = (at + (uintptr_t)((double)t->nbytes * to)) / page * page;
  if (first < end && !gguf_in_memory(file)) madvise((void *)first, end - first, MADV_DONTNEED);
}

void weights_free(weights *w) {
  stop_touching(w);
  memory_release(w->memory, w->size);
  for (size_t i = 0; i < w->streams.n && !w->memory; i++)
    device_release(w->d, w->streams.at[i].at, w->streams.at[i].size);
  vec_free(&w->streams);
  *w = (weights){0};
}
