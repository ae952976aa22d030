// What is stored so that a sum of floats has one form, whatever else the cost model decides. See sum_order.c.
#ifndef WEFT_FORM_H
#define WEFT_FORM_H
#include "schedule/rangeify.h"
// Adds to `keep` (a set of nodes) what has to be stored. `order`: all nodes, sources first; `constant`: those that
// depend on weights and constants alone.
void find_sum_orders(graph *g, const uop_list *order, const map *constant, map *keep);
#endif
