// The verifier: what the IR must look like after each stage, as rule tables.  See verify.c.
#ifndef WEFT_VERIFY_H
#define WEFT_VERIFY_H
#include "graph/uop.h"

enum stage {
  STAGE_TENSOR,      // the lazy graph: tensors over BUFFERs
  STAGE_KERNEL,      // after scheduling: SINK(STORE...) of scalar expressions over RANGEs and memory
  STAGE_OPTIMISED,   // after OptOps and expansion: vectors, work-group memory
  STAGE_LINEAR,      // what a program is made of: also ACC, SET, END, IF; the order is checked by verify_program
  STAGE_COUNT
};

// Checks everything below root; dies with the name of the pass, what was expected and the node.  For SPEC=1 and tests:
//   if (env_int(ENV_SPEC)) verify(g, u, STAGE_KERNEL, "rangeify");
void verify(graph *g, uop *root, enum stage stage, const char *pass);
// A linear program: n nodes in order.  Sources come first, loops and IFs nest, values stay in their scope, accesses are
// in bounds.
void verify_program(graph *g, uop *const *at, size_t n, const char *pass);

// The same without dying: false, and what is wrong is added to `why`.  g: the graph of the nodes (nothing is added to
// it).
bool verify_graph_ok(graph *g, uop *root, enum stage stage, str *why);
bool verify_program_ok(graph *g, uop *const *at, size_t n, str *why);
#endif
