// places: where the layers of a model lie. All of them on one device, or the first ones on the CPU and the last ones,
// with the head, on the device that DEV names: a graph for each (model_shape.layers), run one after the other.
#ifndef WEFT_ENGINE_PLACES_H
#define WEFT_ENGINE_PLACES_H
#include "device/device.h"
#include "model/model.h"

enum { MOST_PLACES = 2 };
typedef struct places {
  int n;
  struct place { device *d; int from, to; } at[MOST_PLACES];     // layers from .. to - 1, in order
} places;

struct engine_options;
// Positions of the KV cache; the longest sequence that kernels know; tokens that plans for prompts have room for,
// together.
struct places_sizes { int64_t positions, longest, tokens; };
// Opens the device that all layers lie on, until they are shared. 0, or -1 and why not; places_close in any case.
int places_open(places *p, const model *m, const struct engine_options *o, error *err);
// Has it room for as many of the last layers as are wanted (<= 0: all)?
bool places_hold(const places *p, const gguf *file, const model *m, const struct places_sizes *sizes, int wanted);
// Shares them out: o->gpu_layers. 0, or -1 and why not, with how many layers there is room for.
int places_share(places *p, const gguf *file, const model *m, const struct places_sizes *sizes,
                 const struct engine_options *o, error *err);
void places_close(places *p);
// Bytes of the weights, and of the states for so many positions, that layers from .. to - 1 and what goes with them
// need: with the first one the embedding, with the last one the head. UINT64_MAX where that is no number.
uint64_t places_bytes(const gguf *file, const model *m, int from, int to, int64_t positions);
// The layer of a tensor of the file; -1: of none.
int places_layer_of(const gguf_tensor *t);
#endif
