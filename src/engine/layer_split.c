// Assigns layers to devices: see layer_split.h.
#include "engine/layer_split.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "engine/caches.h"
#include "engine/engine.h"

enum {
  SPARE = 32 /* 1/SPARE of a device's memory is reserved for the driver */,
  AT_ONCE = 32 /* approximate number of vectors of the stream's length that a layer keeps per token */
};
typedef struct wish { const gguf *file; const model *m; const struct layer_split_sizes *sizes; } wish;

int layer_split_layer_of(const gguf_tensor *t) {
  const char *at = strstr(t->name, "blk.");          // may follow "enc." or "dec."
  if (!at) return -1;
  char *end;
  long layer = strtol(at + 4, &end, 10);
  return *end == '.' && layer >= 0 && layer < MODEL_MAX_LAYERS ? (int)layer : -1;
}

uint64_t layer_split_bytes(const gguf *file, const model *m, int from, int to, int64_t positions) {
  uint64_t sum = 0;
  bool tied = true, head = to == model_n_layer(m);
  if (head) to = model_n_blocks(m);
  for (size_t i = 0; i < gguf_n_tensors(file); i++) tied &= strcmp(gguf_tensor_at(file, i)->name, "output.weight") != 0;
  for (size_t i = 0; i < gguf_n_tensors(file); i++) {
    const gguf_tensor *t = gguf_tensor_at(file, i);
    int layer = layer_split_layer_of(t);
    bool embeds = !strncmp(t->name, "token_", 6);
    bool needed = layer >= 0 ? layer >= from && layer < to : embeds ? !from || (head && tied) : head;
    if (needed && !add_u64(sum, t->nbytes, &sum)) return UINT64_MAX;
  }
  for (int i = 0; i < model_n_states(m); i++) {
    int layer = model_state_layer(m, i);
    if (layer >= from && layer < to && !add_u64(sum, model_state_bytes(m, i, positions), &sum)) return UINT64_MAX;
  }
  return sum;
}

// --- processes -------------------------------------------------------------------------------------------------------

// Bytes of each block, with the head in the last one. Embeddings are looked up in the file, so few of their rows are in
// memory. Returns their number.
static int bytes_of_blocks(const gguf *file, const model *m, int64_t positions, uint64_t *of) {
  int n = 1;
  bool tied = !gguf_tensor_find(file, "output.weight");
  for (int i = 0; i < model_n_blocks(m); i++) n = (int)max_i64(n, model_layer_block(m, i) + 1);
  memset(of, 0, (size_t)n * sizeof *of);
  for (size_t i = 0; i < gguf_n_tensors(file); i++) {
    const gguf_tensor *t = gguf_tensor_at(file, i);
    int block = layer_split_layer_of(t);
    bool head = tied && !strcmp(t->name, "token_embd.weight");
    if (block < n && (head || !strstr(t->name, "token_embd"))) of[block >= 0 ? block : n - 1] += t->nbytes;
  }
  for (int i = 0; i < model_n_states(m); i++)
    of[model_layer_block(m, model_state_layer(m, i))] += model_state_bytes(m, i, positions);
  return n;
}

// With at most `most` bytes for a share of 1. Each process with a share gets at least one block, if there are enough.
// false: some blocks are left.
static bool deal_blocks(const uint64_t *of, int blocks, const double *shares, int n, double most, int *to,
                        uint64_t *held) {
  int from = 0, left = 0;
  for (int i = 0; i < n; i++) left += shares[i] > 0;
  for (int i = 0; i < n; i++) {
    held[i] = 0;
    left -= shares[i] > 0;
    for (; shares[i] > 0 && from < blocks - left; from++) {
      if (held[i] && (double)(held[i] + of[from]) > most * shares[i]) break;
      held[i] += of[from];
    }
    to[i] = from;
  }
  for (int i = 0; i < n; i++) if ((double)held[i] > most * shares[i]) return false;
  return from == blocks;
}

void layer_split_deal(const gguf *file, const model *m, const double *shares, int n, int64_t positions, int *to,
                      uint64_t *held) {
  enum { STEPS = 64 };
  uint64_t of[MODEL_MAX_LAYERS + 1];
  int blocks = bytes_of_blocks(file, m, positions, of);
  double low = 0, high = 1, middle;
  while (!deal_blocks(of, blocks, shares, n, high, to, held) && high < 1e300) high *= 2;
  for (int i = 0; i < STEPS; i++) {
    middle = (low + high) / 2;
    *(deal_blocks(of, blocks, shares, n, middle, to, held) ? &high : &low) = middle;
  }
  deal_blocks(of, blocks, shares, n, high, to, held);
}

// --- devices ---------------------------------------------------------------------------------------------------------

// Bytes of the last n layers on a device, with what it computes: activations, logits, attention's sums for each page of
// the longest sequence, and the whole KV cache of one sequence, contiguous.
static uint64_t bytes_of_layers(const wish *w, int n) {
  int n_layer = model_n_layer(w->m);
  const struct layer_split_sizes *sizes = w->sizes;
  uint64_t sum = layer_split_bytes(w->file, w->m, n_layer - n, n_layer, sizes->positions), most = 0, more;
  uint64_t values = (uint64_t)model_n_stream(w->m) * AT_ONCE + (uint64_t)model_n_vocab(w->m) +
                    (uint64_t)model_attention_sums(w->m) * (uint64_t)(sizes->longest / CACHE_PAGE);
  for (int i = 0; i < model_n_states(w->m); i++) {
    uint64_t all = model_state_bytes(w->m, i, sizes->longest);
    if (all > most) most = all;
  }
  return mul_u64(values, (uint64_t)sizes->tokens * sizeof(float), &more) && add_u64(sum, more, &sum) &&
                 mul_u64(most, 2, &more) && add_u64(sum, more, &sum)
           ? sum
           : UINT64_MAX;
}

// The number of last layers that fit on a device.
static int layers_that_fit(const wish *w, uint64_t room) {
  int n = model_n_layer(w->m);
  while (n > 0 && bytes_of_layers(w, n) > room - room / SPARE) n--;
  return n;
}

// The number of layers on a device if the user asks for `wanted` (<= 0: all).
static int layers_wanted(const model *m, int wanted) {
  int n_layer = model_n_layer(m);
  return wanted <= 0 || wanted > n_layer ? n_layer : wanted;
}

static double mib(uint64_t n) { return (double)n / 0x1p20; }

// Chooses how many of the last layers are on the device; -1 with err.
static int choose_layers(const wish *w, int wanted, const device *d, error *err) {
  int n_layer = model_n_layer(w->m);
  bool automatic = wanted <= 0;
  int n = layers_wanted(w->m, wanted);
  uint64_t room = device_room(d), all = bytes_of_layers(w, n);
  int fits = room == UINT64_MAX ? n_layer : layers_that_fit(w, room);
  if (n < n_layer && !model_can_cut(w->m, n_layer - n))
    return error_set(err, "%s: the last %d layers use more of the earlier ones than their output: all must be on one "
                          "device (-ngl %d: all on %s, -ngl 0: none)", gguf_path(w->file), n, n_layer, d->name);
  if (n <= fits) return n;
  while (fits > 0 && !model_can_cut(w->m, n_layer - fits)) fits--;
  if (!automatic) {
    char less[64] = "none fits (-ngl 0); a smaller context (-c) needs less";
    if (fits) snprintf(less, sizeof less, "-ngl %d fits", fits);
    return error_set(err, "%s: %d layers on %s need %.1f MiB, and %.1f MiB of its memory are free: %s",
                     gguf_path(w->file), n, d->name, mib(all), mib(room), less);
  }
  if (!fits) return n;                   // the device reports what it lacks
  warning("%s: %d of %d layers on %s, as all need %.1f MiB and %.1f MiB of its memory are free; the others on the CPU",
          gguf_path(w->file), fits, n_layer, d->name, mib(all), mib(room));
  return fits;
}

static void add_device(layer_split *p, device *d, int from, int to) {
  p->at[p->n++] = (struct layer_range){d, from, to};
}

int layer_split_open(layer_split *p, const model *m, const struct engine_options *o, error *err) {
  const char *name = o->gpu_layers < 0 ? "CPU" : o->device ? o->device : env_str(ENV_DEV);
  device *d;
  *p = (layer_split){0};
  if (device_open_named(name, o->n_threads, o->n_prompt_threads, &d, err)) return -1;
  add_device(p, d, 0, model_n_layer(m));
  return 0;
}

bool layer_split_hold(const layer_split *p, const gguf *file, const model *m, const struct layer_split_sizes *sizes,
                      int wanted) {
  uint64_t room = device_room(p->at[0].d);
  return room == UINT64_MAX || layers_that_fit(&(wish){file, m, sizes}, room) >= layers_wanted(m, wanted);
}

int layer_split_share(layer_split *p, const gguf *file, const model *m, const struct layer_split_sizes *sizes,
                 const struct engine_options *o, error *err) {
  int n_layer = model_n_layer(m);
  device *d = p->at[0].d, *cpu;
  if (!strcmp(d->name, "CPU")) return 0;
  int n = choose_layers(&(wish){file, m, sizes}, o->gpu_layers, d, err);
  if (n < 0) return -1;
  if (n == n_layer) return 0;
  if (device_open_named("CPU", o->n_threads, o->n_prompt_threads, &cpu, err)) return -1;
  p->n = 0;
  add_device(p, cpu, 0, n_layer - n);
  add_device(p, d, n_layer - n, n_layer);
  return 0;
}

void layer_split_close(layer_split *p) {
  for (int i = 0; i < p->n; i++) device_close(p->at[i].d);
  *p = (layer_split){0};
}
