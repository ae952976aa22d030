// The cost model: decides which tensors are stored and which are recomputed where they are used. See fuse.c.
#ifndef WEFT_FUSE_H
#define WEFT_FUSE_H
#include "schedule/rangeify.h"
// Decides for every node below the sink; fills f->stored with a fresh BUFFER per stored tensor (ids from TEMP_IDS on),
// and f->height.
void fuse_decide(fusion *f, uop *sink, arena *mem);
#endif
