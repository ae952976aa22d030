// Sizes memory for weights on demand: see on_demand.h.
#include "engine/on_demand.h"
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "base/plain.h"
#include "device/demand.h"
#include "engine/layer_split.h"
#include "model/format.h"
#include "model/model.h"

enum { LEAST_BESIDE = 96 << 20, BESIDE_SHARE = 16, COMING_SHARE = 16 };
static const double MIB = 1 << 20;

bool on_demand_possible(const gguf *file, const device *d) {
  return d->run->here && d->target.has_streams && gguf_is_on_disk(file);
}

uint64_t on_demand_wanted(void) { return (uint64_t)(plain_strtod(env_str(ENV_WEFT_WEIGHT_MEMORY), NULL) * MIB); }

// Memory is also needed for the program, intermediates, and the file's pages that are being read.
uint64_t on_demand_budget(uint64_t have, uint64_t beside) {
  uint64_t wanted = on_demand_wanted();
  if (wanted) return wanted;
  uint64_t other = LEAST_BESIDE + have / BESIDE_SHARE, all;
  return add_u64(other, beside, &all) && all < have ? have - all : 0;
}

int64_t on_demand_matrices(const gguf *file, int64_t id) {
  if (id < 0 || (uint64_t)id >= gguf_n_tensors(file)) return 0;
  const gguf_tensor *t = gguf_tensor_at(file, (size_t)id);
  return t->n_dims < 2 ? 0 : strstr(t->name, "_exps") ? t->ne[2] * t->ne[3] : 1;
}

// Bytes of weights: those that every token reads; the largest of them; all experts; the largest layer; the largest
// layer's experts.
typedef struct sizes { uint64_t always, largest, experts, layer, layer_experts; } sizes;

static sizes sizes_of(const gguf *file) {
  sizes out = {0};
  uint64_t layer[MODEL_MAX_LAYERS] = {0}, experts[MODEL_MAX_LAYERS] = {0};
  for (size_t i = 0; i < gguf_n_tensors(file); i++) {
    const gguf_tensor *t = gguf_tensor_at(file, i);
    int at = layer_split_layer_of(t);
    int64_t matrices = on_demand_matrices(file, (int64_t)i);
    bool looked_up = !strcmp(t->name, "token_embd.weight") && gguf_tensor_find(file, "output.weight");
    if (!matrices || looked_up) continue;
    if (at >= 0) layer[at] += t->nbytes;
    if (at >= 0 && matrices > 1) experts[at] += t->nbytes;
    *(matrices > 1 ? &out.experts : &out.always) += t->nbytes;
    if (matrices == 1 && t->nbytes > out.largest) out.largest = t->nbytes;
  }
  for (int i = 0; i < MODEL_MAX_LAYERS; i++) {
    if (layer[i] > out.layer) out.layer = layer[i];
    if (experts[i] > out.layer_experts) out.layer_experts = experts[i];
  }
  return out;
}

// Bytes that a token reads of experts with `all` bytes.
static double expert_bytes_of_token(const model *m, double all) {
  enum { TOKENS = 1000 };
  int64_t tokens = model_tokens_by_expert(m, TOKENS);
  return tokens ? all * TOKENS / (double)tokens : all;
}

double on_demand_token_bytes(const gguf *file, const model *m) {
  sizes of = sizes_of(file);
  return (double)of.always + expert_bytes_of_token(m, (double)of.experts);
}

static int read_tensor(void *ctx, int64_t id, uint64_t at, void *to, size_t n) {
  error none = {0};
  const gguf *file = ctx;
  return gguf_read_once(file, gguf_tensor_at(file, (size_t)id), at, to, n, &none);
}

demand *on_demand_open(const gguf *file, const model *m, uint64_t budget, error *err) {
  sizes of = sizes_of(file);
  uint64_t all = of.always + of.experts, least = of.layer + of.largest;
  if (budget < least) {
    error_set(
      err,
      "%s: %.1f MiB of weights, and memory for only %.1f MiB of them; it takes at least %.1f MiB, for one layer and "
      "the largest weight",
      gguf_path(file), (double)all / MIB, (double)budget / MIB, (double)least / MIB);
    return NULL;
  }
  double room = budget > of.always ? (double)(budget - of.always) : 0, experts = (double)of.experts,
         read = of.always > budget ? (double)(of.always - budget) : 0;
  if (experts > room && model_tokens_by_expert(m, 1)) read += expert_bytes_of_token(m, experts - room);
  warning("%s: %.1f MiB of weights, and memory for %.1f MiB of them: the others are read from the file when they are "
          "needed, about %.1f MiB for each token. A file that is no larger than the memory is much faster",
          gguf_path(file), (double)all / MIB, (double)budget / MIB, read / MIB);
  gguf_reads_pieces(file);
  const demand_sizes d = {budget, of.always, of.largest, budget / COMING_SHARE + of.layer_experts};
  return demand_new(&d, read_tensor, (gguf *)(uintptr_t)file);
}
