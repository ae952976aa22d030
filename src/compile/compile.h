// compile: converts the wanted effects of a tensor graph to an ordered list of kernels for a machine. This is the only
// list of passes over a whole graph; passes over a single kernel are in codegen (codegen.h), which a device calls when
// it makes a plan.
#ifndef WEFT_COMPILE_H
#define WEFT_COMPILE_H
#include "codegen/program.h"
#include "schedule/layout.h"
#include "schedule/ranks.h"

// {0}: the fastest choice for the machine.
typedef struct compile_choices {
  bool exact;                // products are computed as in the graph: nothing is rounded for the machine's instructions
  // products have many rows each (a picture's patches): computing limits them, not reading weights
  bool many_rows;
  bool in_place;             // weights are read unpacked, as in the file: there is no memory for copies
  layout_choice *layout;     // of each packed weight; NULL: LAYOUT_ROWS for all
  void *ctx;
  rank_split ranks;          // the part of one process among several
} compile_choices;

// Are products with BF16 weights computed by dot products of BF16 on this machine?
bool compile_takes_bf16(const target *t, const compile_choices *c);

// sink: SINK(AFTER...), the wanted effects. Everything is allocated in g's arena.
void compile_graph(graph *g, uop *sink, const target *t, const compile_choices *c, schedule *out);
#endif
