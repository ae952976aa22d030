// Weights laid out for the kernels that read them: copies in tiles of rows (dequant_retile), made at load by kernels like any other.
#ifndef WEFT_ENGINE_WEIGHTS_H
#define WEFT_ENGINE_WEIGHTS_H
#include "device/device.h"
#include "model/model.h"

typedef struct weights {
  bool *tiled;               // per tensor of the file
  void **at;                 // its copy, or NULL
  void *memory;
  uint64_t bytes;
} weights;

// Makes the copies. The file's pages are given back as they have been read, so that file and copy are never both resident.
// Nothing is tiled on devices without vectors. 0, or -1 and why not; weights_free in any case.
int weights_tile(weights *w, const model *m, device *d, void (*progress)(void *ctx, double fraction), void *ctx, int64_t *compiled, double *compile_ms, error *err);
void weights_free(weights *w);
#endif
