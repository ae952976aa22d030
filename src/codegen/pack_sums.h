// Neighbouring outputs that are sums over lanes become one vector. See pack_sums.c.
#ifndef WEFT_NEIGHBOURS_H
#define WEFT_NEIGHBOURS_H
#include "graph/uop.h"
uop *pack_sums(graph *g, uop *ast);         // after expand_lanes: a SINK of STOREs, and again one
#endif
