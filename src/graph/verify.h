// The verifier: rule tables for the valid IR after each stage. See verify.c.
#ifndef WEFT_VERIFY_H
#define WEFT_VERIFY_H
#include "graph/uop.h"

enum stage {
  STAGE_TENSOR,      // the lazy graph: tensors over BUFFERs
  STAGE_KERNEL,      // after scheduling: SINK(STORE...) of scalar expressions over RANGEs and memory
  STAGE_OPTIMISED,   // after OptOps and expansion: vectors, work-group memory
  STAGE_LINEAR,      // nodes of a program: also ACC, SET, END, IF; verify_program checks the order
  STAGE_COUNT
};

// Checks everything below root; ends the program with the name of the pass, the expectation and the node. For SPEC=1
// and tests:
//   if (env_int(ENV_SPEC)) verify(g, u, STAGE_KERNEL, "rangeify");
void verify(graph *g, uop *root, enum stage stage, const char *pass);
// Checks a linear program of n nodes: sources come first, loops and IFs nest, values stay in their scope, accesses are
// in bounds.
void verify_program(graph *g, uop *const *at, size_t n, const char *pass);

// Checks without ending the program: returns false and adds the error to `why`. g: the graph of the nodes (unchanged).
bool verify_graph_ok(graph *g, uop *root, enum stage stage, str *why);
bool verify_program_ok(graph *g, uop *const *at, size_t n, str *why);
#endif
