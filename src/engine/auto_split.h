// auto_split: chooses how several processes share a model (-sm auto).
#ifndef WEFT_AUTO_SPLIT_H
#define WEFT_AUTO_SPLIT_H
#include "device/device.h"
#include "engine/rehearse.h"

// Microseconds that one process needs for a token; blocks; numbers of the stream; tokens of the vocabulary.
typedef struct split_sizes { double token_us; int64_t layers, stream, vocab; } split_sizes;
// Microseconds of a token on n processes that are split by rows or by layers.
typedef struct split_costs { double rows_us, layers_us; } split_costs;
split_costs auto_split_costs(const split_sizes *of, int n, const network *link);
// WEFT_SPLIT_ROW or WEFT_SPLIT_LAYER for the processes of this program, as the first one decides it. By rows on one
// machine. -1 and the reason: WEFT_LINK is wrong, or no memory to measure with.
int auto_split(const gguf *file, const model *m, device *d, int *split, error *err);
#endif
