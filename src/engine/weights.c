// Memory for weights: see weights.h.
#define _GNU_SOURCE
#include "engine/weights.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "device/memory.h"
#include "engine/layer_split.h"

enum {
  STREAM_ALIGN = 4096,
  SPARE_PERCENT = 30,
  READ_AHEAD = 1 << 17 /* the system reads no more for one request than its device's limit */,
  REHEARSED = 1 << 30 /* bytes at most, unless a single weight has more */
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

// Does this process read the tensor?
static bool is_read(const weights *w, const gguf_tensor *t) {
  int layer = layer_split_layer_of(t);
  return layer < 0 || (layer >= w->from && layer < w->to);
}

int weights_open(weights *w, const gguf *file, device *d, int from, int to, double share, error *err) {
  uint64_t total = 0, n = gguf_n_tensors(file);
  *w = (weights){.file = file, .d = d, .from = from, .to = to, .all = share > 0};
  for (size_t i = 0; i < n; i++) {
    const gguf_tensor *t = gguf_tensor_at(file, i);
    if (t->n_dims >= 2 && is_read(w, t) && !add_u64(total, round_up(t->nbytes, STREAM_ALIGN), &total))
      return error_set(err, "%s: its tensors are larger than memory can be", gguf_path(file));
  }
  if (!total || !d->run->here) return 0;
  w->size = total + total / 100 * SPARE_PERCENT;
  w->memory = memory_reserve_plain(w->size, err);
  if (!w->memory) return -1;
  w->wanted = (uint64_t)((double)total * share);
  w->touching = share > 0 && !pthread_create(&w->toucher, NULL, touch_pages, w);
  return 0;
}

// Moderate numbers of either sign, valid as floats of any width.
static void fill_random(unsigned char *at, uint64_t size) {
  uint64_t seed = 1;
  for (uint64_t i = 0; i + sizeof seed <= size; i += sizeof seed) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t word = ((seed ^ seed >> 29) & 0x8181818181818181u) | 0x3c3c3c3c3c3c3c3cu;
    memcpy(at + i, &word, sizeof word);
  }
}

int weights_rehearse(weights *w, const gguf *file, device *d, error *err) {
  uint64_t all = 0, most = 0;
  *w = (weights){.file = file, .d = d, .rehearsed = true};
  for (size_t i = 0; i < gguf_n_tensors(file); i++) {
    uint64_t size = round_up(gguf_tensor_at(file, i)->nbytes, STREAM_ALIGN);
    if (size > most) most = size;
    if (!add_u64(all, size, &all))
      return error_set(err, "%s: its tensors are larger than memory can be", gguf_path(file));
  }
  // a packed weight may be larger than the original
  if (all > REHEARSED) all = most > REHEARSED ? most : REHEARSED;
  w->size = round_up((size_t)(all + all / 100 * SPARE_PERCENT), MEMORY_ALIGN) + MEMORY_ALIGN;
  w->memory = memory_reserve(w->size, err);
  if (!w->memory) return -1;
  fill_random(w->memory, w->size);
  return 0;
}

// NULL: it is larger than the whole area.
static void *take_turn(weights *w, int64_t number, uint64_t layout, uint64_t need, bool *filled) {
  if (need > w->size) return NULL;
  if (need > w->size - w->turn) w->turn = 0;
  unsigned char *at = w->memory + w->turn;
  w->turn += need;
  *filled = true;
  vec_push(&w->streams, ((weight_stream){number, layout, at, need, true}));
  return at;
}

void *weights_rehearsed(weights *w, int64_t number) {
  bool filled;
  return weights_stream(w, number, 0, (int64_t)gguf_tensor_at(w->file, (size_t)number)->nbytes, &filled);
}

uint64_t weights_rehearsed_bytes(const weights *w) {
  uint64_t all = 0;
  for (size_t i = 0; i < w->streams.n; i++) {
    bool packed = w->streams.at[i].layout;
    for (size_t j = 0; j < w->streams.n && !packed; j++)
      packed = w->streams.at[j].tensor == w->streams.at[i].tensor && w->streams.at[j].layout;
    if (!packed || w->streams.at[i].layout) all += w->streams.at[i].size;
  }
  return all;
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
  if (w->rehearsed) return take_turn(w, number, layout, need, filled);
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
    bool embeds = strstr(t->name, "token_embd") != NULL;
    bool streamed = t->n_dims < 2 || !is_read(w, t) || (embeds && w->from);
    for (size_t j = 0; j < w->streams.n && !streamed; j++) streamed = w->streams.at[j].tensor == (int64_t)i;
    uintptr_t at = (uintptr_t)t->data / page * page, end = (uintptr_t)t->data + t->nbytes;
    for (; !streamed && at < end; at += READ_AHEAD)
      madvise((void *)at, end - at < READ_AHEAD ? end - at : READ_AHEAD, MADV_WILLNEED);
  }
}

bool weights_promote_pages(weights *w, double seconds) {
  for (double end = now_s() + seconds; w->promoted + MEMORY_ALIGN <= w->used && now_s() < end;
       w->promoted += MEMORY_ALIGN)
    // no huge pages available: keep plain ones
    if (!memory_promote(w->memory + w->promoted, MEMORY_ALIGN)) { w->promoted = w->used; break; }
  if (w->promoted + MEMORY_ALIGN <= w->used) return false;
  if (w->used && !w->settled && w->all) weights_read_ahead(w);           // reads again what moving has evicted
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
