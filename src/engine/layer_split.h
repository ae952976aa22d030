// layer_split: assigns the layers of a model to devices: all layers to one device, or the first layers to the CPU and
// the last ones, with the head, to the device that DEV names. Each device has a graph of its layers
// (model_shape.layers); the graphs run one after the other.
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
// Positions of the KV cache; maximum sequence length of kernels; total capacity of prompt plans in tokens.
struct layer_split_sizes { int64_t positions, longest, tokens; };
// Opens the device, which has all layers until layer_split_share. Returns 0, or -1 and the reason; call
// layer_split_close in either case.
int layer_split_open(layer_split *p, const model *m, const struct engine_options *o, error *err);
// Does it have memory for this many of the last layers (<= 0: all)?
bool layer_split_hold(const layer_split *p, const gguf *file, const model *m, const struct layer_split_sizes *sizes,
                      int wanted);
// Splits the layers according to o->gpu_layers. Returns 0, or -1 and the reason, with the number of layers that fit.
int layer_split_share(layer_split *p, const gguf *file, const model *m, const struct layer_split_sizes *sizes,
                 const struct engine_options *o, error *err);
void layer_split_close(layer_split *p);
// Bytes of the weights, and of the states for this many positions, of layers from .. to - 1; including the embedding
// with the first layer and the head with the last. UINT64_MAX on overflow.
uint64_t layer_split_bytes(const gguf *file, const model *m, int from, int to, int64_t positions);
// Splits the blocks of a file over n processes, in order, so that the largest part, divided by its share, is as small
// as possible. to[i], held[i]: the end of the blocks of process i; bytes of its weights,
// and of its states for this many positions.
// The last process has the head.
void layer_split_deal(const gguf *file, const model *m, const double *shares, int n, int64_t positions, int *to,
                      uint64_t *held);
// The block of a tensor of the file; -1: none.
int layer_split_layer_of(const gguf_tensor *t);
#endif
