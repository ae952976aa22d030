// graph: the lazy tensor API, the input of the pipeline. A tensor is a uop with a shape; every function returns a node,
// and nothing is computed or moved. Dims are IDX expressions, so a size may be symbolic (`pos`, chunk length). Scalars
// (shape NULL) broadcast against any tensor; tensors broadcast as in numpy.
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H
#include "graph/rewrite.h"
#include "graph/symbolic.h"
#include "graph/uop.h"

typedef uop tensor;

// memory, shape {elems}; the caller chooses ids
tensor *t_buffer(graph *g, int64_t id, enum dtype dt, int64_t elems);
// memory that never changes: expressions over weights only are constant
tensor *t_weight(graph *g, int64_t id, enum dtype dt, int64_t elems);
tensor *t_float(graph *g, double v);                                          // F32 scalar
tensor *t_iota(graph *g, uop *n);                                             // IDX {n}: 0, 1, ...
// Movement. dims arrays hold IDX nodes.
tensor *t_reshape(graph *g, tensor *x, int n, uop *const *dims);
tensor *t_reshape_i(graph *g, tensor *x, int n, const int64_t *dims);         // constant dims
tensor *t_expand(graph *g, tensor *x, int n, uop *const *dims);
tensor *t_permute(graph *g, tensor *x, const int *order);                     // result axis i is x's axis order[i]
tensor *t_swap(graph *g, tensor *x, int i, int j);
tensor *t_pad(graph *g, tensor *x, int axis, int64_t before, int64_t after);  // with zeros
tensor *t_slice(graph *g, tensor *x, int axis, uop *offset, uop *size);
tensor *t_slice_i(graph *g, tensor *x, int axis, int64_t offset, int64_t size);
tensor *t_flip(graph *g, tensor *x, int axis);
tensor *t_cat_last(graph *g, tensor *a, tensor *b);                           // one after the other along the last axis
// x[ids[..], ...]; ids are clamped to x's rows
tensor *t_gather(graph *g, tensor *x, tensor *ids);
tensor *t_stack_last(graph *g, tensor *const *x, int n);                      // a new last axis of size n
// Elementwise, with broadcasting; both sides of one dtype.
tensor *t_op1(graph *g, enum op op, tensor *x);
tensor *t_op2(graph *g, enum op op, tensor *x, tensor *y);
tensor *t_where(graph *g, tensor *cond, tensor *x, tensor *y);
tensor *t_add(graph *g, tensor *x, tensor *y);
tensor *t_sub(graph *g, tensor *x, tensor *y);
tensor *t_mul(graph *g, tensor *x, tensor *y);
tensor *t_scale(graph *g, tensor *x, double by);                              // times a constant of x's dtype
tensor *t_exp(graph *g, tensor *x);
tensor *t_cast(graph *g, tensor *x, enum dtype dt);
tensor *t_bitcast(graph *g, tensor *x, enum dtype dt);  // the last axis shrinks or grows with the sizes
// Reductions along one axis, which keeps size 1.
tensor *t_reduce(graph *g, tensor *x, enum op op, int axis);
tensor *t_softmax(graph *g, tensor *x, int axis);
tensor *t_matmul(graph *g, tensor *x, tensor *w);                             // x{.., k} . w{n, k} -> {.., n}, in F32
tensor *t_rmsnorm(graph *g, tensor *x, tensor *weight, double eps);           // over the last axis; weight {n} or NULL
tensor *t_layernorm(graph *g, tensor *x, tensor *weight, double eps);         // over x minus its mean
tensor *t_silu(graph *g, tensor *x);
// Memory. t_assign stores value into a view of a buffer (movement ops over a t_buffer or an earlier version of it) and
// returns the next version of the whole buffer; reads of the result see the stored value.
tensor *t_assign(graph *g, tensor *view, tensor *value);
tensor *t_contiguous(graph *g, tensor *x);
// x, computed in the tile of the kernel that reads it, once for everything that the tile needs: see OP_STAGE and
// rangeify.h. shared: one kernel computes it and stores it for the others.
tensor *t_stage(graph *g, tensor *x, bool shared);

tensor *t_broadcast(graph *g, tensor *x, const shape *s);                     // to a shape
#endif
