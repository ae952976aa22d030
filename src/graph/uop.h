// uop: the only node type of the IR, from tensors to instructions: an op, a dtype, sources, an argument. Nodes are
// hash-consed within a graph, so equal expressions are one pointer and comparison is pointer equality. A graph may have
// a parent (a compile within a model): its nodes may point into the parent, never the reverse. Nodes never change and
// are not freed individually; graph_free frees all. Structural hashes are stable across runs, and so is any order based
// on them.
#ifndef WEFT_UOP_H
#define WEFT_UOP_H
#include "base/arena.h"
#include "base/map.h"
#include "base/str.h"
#include "graph/ops.h"

enum dtype {
  DT_VOID,
  DT_BOOL,
  DT_I8,
  DT_U8,
  DT_I16,
  DT_U16,
  DT_I32,
  DT_U32,
  DT_I64,
  DT_U64,
  DT_IDX,
  DT_F16,
  DT_BF16,
  DT_F32,
  DT_F64,
  DT_COUNT
};
// IDX is the type of index arithmetic: exact integers; codegen selects 32 or 64 bits from the bounds.

// The use of a buffer (BUFFER), a kernel argument (PARAM) or memory inside a kernel (LOCAL).
enum memory_kind {
  MEMORY_PLAIN,        // BUFFER, PARAM: outlives a run; LOCAL: of a work-group
  MEMORY_WEIGHT,       // never changes
  MEMORY_STREAM,       // a packed copy of a weight, in the order in which the kernel reads it (schedule/layout.h)
  MEMORY_TEMP,         // contents beyond a symbolic size do not matter
  MEMORY_TILE,         // LOCAL: of one tile, which one thread computes
  MEMORY_KINDS
};

typedef struct uop uop;
typedef struct graph graph;
enum { MAX_DIMS = 8 };
typedef struct shape { int n; uop *dim[MAX_DIMS]; } shape;     // interned: equal shapes are one pointer
typedef struct uop_list { uop **at; size_t n; } uop_list;

struct uop {
  uint8_t op, dt;            // enum op, enum dtype
  uint16_t lanes;            // 1, or the number of vector lanes
  uint32_t nsrc;
  uint64_t hash;             // structural
  int64_t a, b;              // the argument: meaning per op, see ops.h
  const char *s;             // interned text argument, or NULL; s_len bytes
  uint32_t s_len : 24, memory : 8;     // memory: enum memory_kind
  uint32_t id;               // order of creation in its graph
  int64_t vmin, vmax;        // sound bounds of an integer or BOOL value (every lane); INT64_MIN/MAX if unknown
  const shape *shape;        // of a tensor; NULL for a scalar (which broadcasts against any tensor)
  const uop_list *ranges;    // see uop_ranges(); NULL: none
  uop *src[];
};

graph *graph_new(graph *parent);          // caller frees with graph_free; the parent must outlive it
void graph_free(graph *g);
arena *graph_arena(graph *g);             // lives as long as the graph
size_t graph_size(const graph *g);        // nodes created here
map *graph_simplified(graph *g);          // memo of symbolic.c: node -> its simplified form
struct recorder;
void graph_record(graph *g, struct recorder *r);  // records rules that fire in g as steps of r (record.h); NULL: stops
struct recorder *graph_recorder(const graph *g);     // NULL: none

// The general constructor. Orders commutative sources canonically; derives bounds and shape; makes no other
// simplification. Ends the program on malformed nodes.
typedef struct uarg { int64_t a, b; const char *s; size_t s_len; enum memory_kind memory; } uarg;
uop *uop_new(graph *g, enum op op, enum dtype dt, int lanes, uop *const *src, size_t nsrc, uarg arg);
uop *uop_with_src(graph *g, const uop *u, uop *const *src);      // a copy of u with other sources (as many)
// the argument of u, for a node like it
static inline uarg uop_arg(const uop *u) {
  return (uarg){u->a, u->b, u->s, u->s_len, (enum memory_kind)u->memory};
}
uop *uop_op1(graph *g, enum op op, uop *x);                      // elementwise; result dtype follows the sources
// scalar sources are splatted if the other is a vector
uop *uop_op2(graph *g, enum op op, uop *x, uop *y);
uop *uop_op3(graph *g, enum op op, uop *x, uop *y, uop *z);
uop *uop_int(graph *g, enum dtype dt, int64_t v);                // CONST; wraps to the dtype
uop *uop_float(graph *g, enum dtype dt, double v);               // CONST; rounded to the dtype
uop *uop_idx(graph *g, int64_t v);                               // CONST of IDX
// CONST of u's dtype, splat to its lanes; v must be exact for integers
uop *uop_const_like(graph *g, const uop *u, double v);
uop *uop_var(graph *g, const char *name, int64_t lo, int64_t hi);
uop *uop_cast(graph *g, uop *x, enum dtype dt);                  // x itself if it has that dtype
uop *uop_bitcast(graph *g, uop *x, enum dtype dt);               // same size
uop *uop_range(graph *g, uop *end, int64_t number, enum axis_kind kind);
uop *uop_index(graph *g, uop *buf, uop *idx);
uop *uop_load(graph *g, uop *index, enum dtype dt, int lanes);
// a copy of `load` at another address, ordered after the same effects
uop *uop_load_from(graph *g, const uop *load, uop *index, int lanes);
uop *uop_splat(graph *g, uop *x, int lanes);                     // x itself if it has as many lanes

static inline bool uop_is_const(const uop *u) { return u->op == OP_CONST; }
static inline bool uop_is_int(const uop *u, int64_t v);
double uop_const_float(const uop *u);                            // value of a CONST of any dtype
const uop *uop_unsplat(const uop *u);                            // through SPLAT
bool dtype_is_float(enum dtype d);
bool dtype_is_int(enum dtype d);                                 // integers and IDX, not BOOL
bool dtype_is_unsigned(enum dtype d);
// IDX, and the types that it becomes
static inline bool dtype_is_index(enum dtype d) { return d == DT_IDX || d == DT_I32 || d == DT_I64; }
enum dtype dtype_unsigned(int64_t bytes);                        // U8, U16, U32, U64 by their size
int dtype_size(enum dtype d);                                    // bytes; IDX counts as 8, BOOL as 1
int64_t dtype_min(enum dtype d);                                 // of integers and BOOL; INT64_MIN for others
int64_t dtype_max(enum dtype d);                                 // (U64: INT64_MAX, its bounds are unknown beyond)
int64_t dtype_wrap(enum dtype d, int64_t v);
const char *dtype_name(enum dtype d);
bool dtype_parse(const char *s, size_t n, enum dtype *d);

const char *op_name(enum op op);
int op_arity(enum op op);
unsigned op_flags(enum op op);
const char *axis_kind_name(enum axis_kind k);
const char *memory_kind_name(enum memory_kind k);                // in text; "" for MEMORY_PLAIN

const shape *shape_new(graph *g, int n, uop *const *dim);
int64_t shape_max_elems(const shape *s);                         // product of the dims' upper bounds; dies on overflow

// Nodes below the roots in dependency order, sources first, each once.  The array lives in the arena.
uop_list uop_toposort(arena *a, uop *const *roots, size_t n);
// Index of the first range among the sources of a STORE or REDUCE, which binds them; for other ops the number of
// sources.
static inline int uop_first_range(const uop *u) {
  return u->op == OP_STORE      ? 2
         : u->op == OP_REDUCE   ? (u->b ? (int)u->b : 1)
         : u->op == OP_PREFETCH ? 1
                                : (int)u->nsrc;
}
// The RANGEs that the value of u depends on, each once, in the order of the sources: u itself, those of its sources,
// minus those that it binds. Computed when the node is made, so a call costs nothing.
static inline uop_list uop_ranges(const uop *u) { return u->ranges ? *u->ranges : (uop_list){0}; }
static inline bool uop_varies(const uop *u, const uop *range) {  // is `range` one of them?
  const uop_list l = uop_ranges(u);
  for (size_t i = 0; i < l.n; i++) if (l.at[i] == range) return true;
  return false;
}
static inline bool uop_binds(const uop *u, const uop *range) {   // is `range` one of those that it binds?
  for (size_t i = (size_t)uop_first_range(u); i < u->nsrc; i++) if (u->src[i] == range) return true;
  return false;
}
static inline bool uop_is_among(const uop *u, uop *const *list, int n) {
  for (int i = 0; i < n; i++) if (list[i] == u) return true;
  return false;
}
bool uop_has_axis(const uop *u, enum axis_kind kind);            // is one of them of this kind?
// u with each key of the map (uop* -> uop*) replaced; the plain constructor rebuilds nodes above.
uop *uop_substitute(graph *g, uop *u, const map *m);

// A parsable text: one node per line, "%3 = ADD.f32 %1 %2", args in brackets; see print.c.
void uop_print(str *out, uop *const *roots, size_t n);
void uop_print_expr(str *out, const uop *u);                     // on one line, for reading (not parsable)
void uop_print_label(str *out, const uop *u);                    // op, dtype and argument, as uop_print writes them
uop *uop_parse(graph *g, const char *text, size_t n, error *err);// the last node defined; NULL and err on bad text

static inline bool uop_is_int(const uop *u, int64_t v) {
  return u->op == OP_CONST && u->a == v && u->dt >= DT_BOOL && u->dt <= DT_IDX;
}
// Does u show elements of its first source at other places? A buffer can be assigned to through such nodes.
static inline bool is_view(const uop *u) { return (op_flags((enum op)u->op) & OPF_MOVEMENT) || u->op == OP_GATHER; }
// The memory that u is a version of (AFTER); the memory of which u views a version.
static inline uop *uop_memory(uop *u) {
  while (u->op == OP_AFTER) u = u->src[0];
  return u;
}
static inline uop *uop_viewed(uop *u) {
  while (is_view(u) || u->op == OP_AFTER) u = u->src[0];
  return u;
}
#endif
