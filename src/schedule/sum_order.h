// Chooses what is stored so that each float sum has one order, whatever the cost model decides. See sum_order.c.
#ifndef WEFT_FORM_H
#define WEFT_FORM_H
#include "schedule/rangeify.h"
// Adds to `keep` (a set of nodes) what must be stored. `order`: all nodes, sources first; `constant`: nodes that depend
// on weights and constants only.
void find_sum_orders(graph *g, const uop_list *order, const map *constant, map *keep);
#endif
