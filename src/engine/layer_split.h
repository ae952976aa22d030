// layer_split: where the layers of a model lie. All of them on one device, or the first ones on the CPU and the last
// ones, with the head, on the device that DEV names: a graph for each (model_shape.layers), run one after the other.
#ifndef WEFT_ENGINE_LAYER_SPLIT_H
#define WEFT_ENGINE_LAYER_SPLIT_H
#include "device/device.h"
#include "model/model.h"

enum { MOST_SPLITS = 2 };
typedef struct layer_split {
  int n;
  struct layer_range { device *d; int from, to; } at[MOST_SPLITS];     // layers from .. to - 1, in order
} layer_split;

struct engine_options;
// Positions of the KV cache; the longest sequence that kernels know; tokens that plans for prompts have room for,
// together.
struct layer_split_sizes { int64_t positions, longest, tokens; };
// Opens the device that all layers lie on, until they are shared. 0, or -1 and why not; layer_split_close in any case.
int layer_split_open(layer_split *p, const model *m, const struct engine_options *o, error *err);
// Has it room for as many of the last layers as are wanted (<= 0: all)?
bool layer_split_hold(const layer_split *p, const gguf *file, const model *m, const struct layer_split_sizes *sizes,
                      int wanted);
// Shares them out: o->gpu_layers. 0, or -1 and why not, with how many layers there is room for.
int layer_split_share(layer_split *p, const gguf *file, const model *m, const struct layer_split_sizes *sizes,
                 const struct engine_options *o, error *err);
void layer_split_close(layer_split *p);
// Bytes of the weights, and of the states for so many positions, that layers from .. to - 1 and what goes with them
// need: with the first one the embedding, with the last one the head. UINT64_MAX where that is no number.
uint64_t layer_split_bytes(const gguf *file, const model *m, int from, int to, int64_t positions);
// The layer of a tensor of the file; -1: of none.
int layer_split_layer_of(const gguf_tensor *t);
#endif
