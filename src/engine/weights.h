// weights: weights in memory: the file's bytes unchanged, or packed for the kernels that read them (schedule/layout.c),
// each layout once.
#ifndef WEFT_ENGINE_WEIGHTS_H
#define WEFT_ENGINE_WEIGHTS_H
#include <pthread.h>
#include "device/device.h"
#include "model/gguf.h"

typedef struct weight_stream {
  int64_t tensor;
  uint64_t layout;
  unsigned char *at;
  uint64_t size;
  bool filled;
} weight_stream;
typedef struct weights {
  const gguf *file;
  device *d;
  int from, to;              // layers whose weights are read there
  // one area for all packed weights; NULL if the device has separate memory: then each has its own
  unsigned char *memory;
  uint64_t size, used, promoted;       // of the used bytes, the leading part that is in huge pages
  VEC(weight_stream) streams;
  pthread_t toucher;         // touches memory from the beginning on while the engine builds graphs
  bool all, touching, settled;         // all: they will be filled
  _Atomic bool enough;
  uint64_t wanted;           // maximum bytes of all packed weights together
  bool rehearsed;            // see weights_rehearse; turn: offset of the next weight
  uint64_t turn;
} weights;

// Reserves space for packed weights of layers from .. to - 1 and of tensors without a layer. share: the
// part of them that will be filled. Until the first one is requested, a thread touches memory for them, since the
// system needs longer to find a page than the engine to write it. w must not move. Returns 0, or -1 and the reason;
// call weights_free in either case.
int weights_open(weights *w, const gguf *file, device *d, int from, int to, double share, error *err);
// Replaces weights_open for plans that are only timed: every weight is random bytes, in an area far larger than caches
// but possibly smaller than the model. Weights then share it in rotation.
int weights_rehearse(weights *w, const gguf *file, device *d, error *err);
// Such memory for an unpacked tensor; and the bytes of all weights that plans have requested: a packed tensor counts
// only in packed form.
void *weights_rehearsed(weights *w, int64_t number);
uint64_t weights_rehearsed_bytes(const weights *w);
void weights_free(weights *w);
// Memory for tensor `number` in a layout, existing (*filled) or new; NULL if there is no space. It counts as filled
// after weights_filled, so a failed filling is not used later.
void *weights_stream(weights *w, int64_t number, uint64_t layout, int64_t size, bool *filled);
void weights_filled(weights *w, int64_t number);
// Loading writes plain pages, which are available at once; reading is faster from huge pages. Moves weights into huge
// pages for about this many seconds; true when nothing is left to move. No kernel may be running.
bool weights_promote_pages(weights *w, double seconds);
// The part from .. to (fractions) of the tensor is not read from the file any more: releases its pages, so that file
// and packed copy are not both resident.
void weights_give_back(const gguf *file, int64_t number, double from, double to);
// After all weights are filled: starts reading the rest of the file that is used unpacked (an embedding's rows) into
// memory, before a token waits for it.
void weights_read_ahead(const weights *w);
#endif
