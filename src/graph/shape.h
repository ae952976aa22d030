// Derives the shape of a tensor op from its sources, when the node is made.
#ifndef WEFT_SHAPE_H
#define WEFT_SHAPE_H
#include "graph/uop.h"
const shape *shape_derive(graph *g, const uop *u);     // NULL for a scalar or a kernel-level node
#endif
