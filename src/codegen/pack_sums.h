// Packs neighbouring outputs that are sums over lanes into one vector. See pack_sums.c.
#ifndef WEFT_NEIGHBOURS_H
#define WEFT_NEIGHBOURS_H
#include "graph/uop.h"
uop *pack_sums(graph *g, uop *ast);         // runs after expand_lanes; takes and returns a SINK of STOREs
#endif
