// Shared by the files of the table of architectures: functions that rows of several files point to, and the tables.
#ifndef WEFT_ARCH_IMPL_H
#define WEFT_ARCH_IMPL_H
#include "model/model_impl.h"

// each ends with a row without a name
extern const arch arch_moe[], arch_recurrent[], arch_encoders[], arch_drafts[];

// For `keys`. gemma: embeddings are multiplied by the root of their length. leans: scores fall with the distance
// (model.alibi) and nothing rotates. granite: no rotation if the file says so. warmer: temperatures of attention, by
// position. qkv_limits: limits of queries, keys and values
int gemma(loader *l);
int leans(loader *l, double bias);
int granite(loader *l);
int warmer(loader *l);
int qkv_limits(loader *l);
// For `layer`. all_moe: experts in all layers, with weights that add up to 1; plain_moe: the same, weights as they are;
// then experts where the file has a router, and experts after the leading dense layers
int all_moe(loader *l, layer *y);
int plain_moe(loader *l, layer *y);
int experts_if_any(loader *l, layer *y);
int experts_if_routed(loader *l, layer *y);
int dense_first(loader *l, layer *y);
int one_norm(loader *l, layer *y);               // no norm before the feed-forward
// limits of the gated products of experts and of the shared expert, if the file has them
int gated_limits(loader *l, layer *y);

enum { ARCH_GEMMA2 = ARCH_NEOX | ARCH_POST_NORMS };
#endif
