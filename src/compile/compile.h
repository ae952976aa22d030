// compile: from what is wanted of a tensor graph to kernels in order, for a machine. The one list of passes over a
// whole graph; those of a single kernel are codegen's (codegen.h), which a device calls when it makes a plan.
#ifndef WEFT_COMPILE_H
#define WEFT_COMPILE_H
#include "codegen/program.h"
#include "schedule/layout.h"
#include "schedule/ranks.h"

// {0}: what the machine does fastest.
typedef struct compile_choices {
  bool exact;                // products are those of the graph: nothing is rounded for the machine's instructions
  bool in_place;             // weights are read as they lie in the file: there is no memory for copies
  layout_choice *layout;     // of each weight that is copied; NULL: LAYOUT_ROWS for all
  void *ctx;
  rank_split ranks;          // the part of one process among several
} compile_choices;

// Whether products of weights in BF16 have instructions of their own on this machine.
bool compile_has_bf16(const target *t);

// sink: SINK(AFTER...), the effects that are wanted. Everything is allocated in g's arena.
void compile_graph(graph *g, uop *sink, const target *t, const compile_choices *c, schedule *out);
#endif
