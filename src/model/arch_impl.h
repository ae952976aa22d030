// What the files of the table of architectures share: functions that rows of several of them point to, and the tables.
#ifndef WEFT_ARCH_IMPL_H
#define WEFT_ARCH_IMPL_H
#include "model/model_impl.h"

extern const arch arch_encoders[], arch_recurrent[];           // both end with a row without a name

// for `keys`: embeddings grow by the root of their length; scores fall with the distance (model.alibi), and nothing
// rotates; no rotation if the file says so
int gemma(loader *l);
int leans(loader *l, double bias);
int granite(loader *l);
// for `layer`: experts in all layers, whose weights add up to one, or (plain) do not; where the file has experts; where
// it has a router; behind the leading dense layers
int all_moe(loader *l, layer *y);
int plain_moe(loader *l, layer *y);
int experts_if_any(loader *l, layer *y);
int experts_if_routed(loader *l, layer *y);
int dense_first(loader *l, layer *y);

enum { ARCH_GEMMA2 = ARCH_NEOX | ARCH_POST_NORMS };
#endif
