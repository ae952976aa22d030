// Neighbouring outputs that are sums over lanes become one vector. See neighbours.c.
#ifndef WEFT_NEIGHBOURS_H
#define WEFT_NEIGHBOURS_H
#include "graph/uop.h"
uop *join_neighbours(graph *g, uop *ast);         // after expand_lanes: a SINK of STOREs, and again one
#endif
