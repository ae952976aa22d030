// Attention in one pass over its context ("flash attention"), written as an algebraic rewrite of tensors.
#ifndef WEFT_FLASH_H
#define WEFT_FLASH_H
#include "graph/graph.h"

// Rewrites every softmax(s) v below the sink, written as sum(exp(s - max s) v) / sum(exp(s - max s)) over the last axis
// of s {.., n}. n = blocks x block, block is a constant. Each block computes
//   m = max s,  e = exp(s - m),  l = sum e,  o = sum(e v) / l
// and keeps s and e in the tile that computes them (OP_STAGE). The blocks are then combined:
//   M = max m,  w = l exp(m - M),  sum(w o) / sum w
// The result equals the softmax because exp(s - M) = exp(s - m) exp(m - M). An attention sink is a term without a
// value; it takes part in M and in sum w. One softmax may run over several axes, each with its own s and v; all their
// blocks are combined at once. Blocks begin at fixed positions. A block that is masked completely has w = 0 and adds a
// zero, so results do not depend on the number of masked blocks.
uop *flash_attention(graph *g, uop *sink);
#endif
