// Weights in memory: the file's bytes as they lie, or laid out for the kernels that read them (schedule/layout.c), each
// layout once.
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
  int from, to;              // the layers whose weights are read there
  // one area for all streams; NULL where the device has its memory elsewhere: then each has one of its own
  unsigned char *memory;
  uint64_t size, used, promoted;       // of the bytes used, those from the beginning on that lie in huge pages
  VEC(weight_stream) streams;
  pthread_t toucher;         // touches memory from its beginning on while the engine is still looking at graphs
  bool all, touching, settled;         // all: of weights_open
  _Atomic bool enough;
  uint64_t wanted;           // bytes that streams of all tensors may take together
  bool rehearsed;            // see weights_rehearse; turn: where the next weight lies
  uint64_t turn;
} weights;

// Reserves room for streams of all tensors of layers from .. to - 1 and of those that are of no layer. all: they will
// be filled; from here on until the first stream is asked for, a thread touches memory for them, since the system needs
// longer to find a page than the engine to write it. w stays where it is. 0, or -1 and why not; weights_free in any
// case.
int weights_open(weights *w, const gguf *file, device *d, int from, int to, bool all, error *err);
// In place of weights_open, for plans that run to be timed: every weight is random bytes, in an area that is far larger
// than caches but may be smaller than the model. Then weights share it, each one behind the one before.
int weights_rehearse(weights *w, const gguf *file, device *d, error *err);
// Such memory for a tensor as it lies in the file; and the bytes of all weights that plans have asked for: those of a
// tensor that is laid out for its kernels count in that layout alone.
void *weights_rehearsed(weights *w, int64_t number);
uint64_t weights_rehearsed_bytes(const weights *w);
void weights_free(weights *w);
// Memory for tensor `number` in a layout, found (*filled) or new; NULL where there is no room.
// It counts as filled from the call of weights_filled on: a filling that failed is not taken for a stream later.
void *weights_stream(weights *w, int64_t number, uint64_t layout, int64_t size, bool *filled);
void weights_filled(weights *w, int64_t number);
// Loading writes plain pages, which the machine has at hand; reading is faster from huge ones. Moves weights into huge
// pages for about so many seconds; true when nothing is left to move. Not while a kernel runs.
bool weights_promote_pages(weights *w, double seconds);
// The part from .. to (fractions) of the tensor is not read from the file any more: its pages are given back, so that
// file and stream are never both resident.
void weights_give_back(const gguf *file, int64_t number, double from, double to);
// Once everything is filled: what is left to read from the file as it lies, an embedding's rows, begins to come into
// memory, before a token waits for it.
void weights_read_ahead(const weights *w);
#endif
