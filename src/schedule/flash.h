// Attention in one pass over its context ("flash attention"), as one algebraic rewrite of tensors.
#ifndef WEFT_FLASH_H
#define WEFT_FLASH_H
#include "graph/graph.h"

// Rewrites every softmax(s) v below the sink, written as  sum(exp(s - max s) v) / sum(exp(s - max s))  over the last
// axis of s {.., n}, whose length is n = blocks x block (block: a constant). A block of it gives
//   m = max s,  e = exp(s - m),  l = sum e,  o = sum(e v) / l
// with s and e kept at the tile that computes them (OP_STAGE), and blocks are joined by
//   M = max m,  w = l exp(m - M),  sum(w o) / sum w
// which is the same softmax: exp(s - M) = exp(s - m) exp(m - M). A sink, one more term without a value, is a term of M
// and of sum w. One softmax may run over several such axes, each with an s and a v of its own: their blocks are joined
// all together. Blocks begin at fixed positions, and one that is masked altogether has w = 0: it adds a zero, so that
// results do not depend on how many follow.
uop *flash_attention(graph *g, uop *sink);
#endif
