// program: the result of codegen: a linear list of uops, each after its sources, for a renderer; and what a device
// needs to launch it.
//
// The linear form
// - Leaves: PARAM (a: argument number, b: elements; dtype: of the elements; memory), LOCAL (work-group memory), VAR (an
//   argument, int64, in the order of `vars`), CONST, LANE, SPECIAL (GPU only: s = "g0".."g2", "l0".."l2").
// - dtypes: BOOL I8..U64 F16 F32 F64 (never IDX, never BF16; F16 occurs only in LOAD, STORE, BITCAST and CAST from/to
//   F32). `lanes` > 1 is a vector; all sources of an elementwise op have the same lanes (SPLAT makes them so). Vectors
//   may be wider than the machine's. A vector BOOL is a mask.
// - Elementwise ops that reach a renderer: CAST BITCAST NEG SQRT TRUNC FLOOR ADD SUB MUL FDIV CDIV CMOD MAX MIN AND OR
//   XOR SHL SHR CMPLT CMPEQ CMPNE WHERE FMA DOT (these two only if the target has them). Integers wrap; compare and SHR
//   are signed or unsigned by dtype; MAX/MIN on floats: WHERE(x < y, y, x) / WHERE(y < x, y, x); CMPNE is true for NaN,
//   CMPLT and CMPEQ false; float to integer CAST truncates (out of range: any value, no trap); BOOL to number gives 0
//   or 1; number to BOOL is != 0. AND OR XOR also on BOOL. RECIP EXP2 LOG2 SIN IDIV MOD are gone, except for the
//   interpreter (DEV=REF), which gets them as they are.
// - Loads of a packed weight (a PARAM of kind stream) are in the order of its bytes.
// - INDEX(mem, i): an address, i in elements of mem's dtype (LOCAL, PARAM), I64 or I32. LOAD(INDEX): dtype and lanes
//   say what is read there. If the INDEX is scalar, `lanes` consecutive elements of the LOAD's dtype starting at the
//   address (unaligned: align 1 x element size of mem is all that is known); if the INDEX has lanes (a vector of
//   element numbers), one element each (gather). LOAD's dtype may be wider or other than mem's. STORE(INDEX, value)
//   writes accordingly (scatter for a vector INDEX). Addresses are always in bounds. Further sources of a LOAD or
//   BARRIER only order it. A buffer that is stored to may also be loaded by the same program.
// - RANGE(end) opens a loop `for (i = 0; i < end; i++)` and is its counter inside; END(range) closes it. The RANGE of
//   kind AXIS_GLOBAL, if any, is the tile loop: on a CPU it runs from the argument lo to the argument hi instead of
//   0..end. Values made inside a loop are used only inside.
// - ACC(init) declares a variable; SET(acc, value) assigns; ACC as a source is the variable's value at that place.
// - PREFETCH(INDEX): prefetches the bytes `a` after the address, which need not exist, with hint `b` (enum
//   prefetch_hint).
// - A node may appear in the list more than once, in consecutive loops: it is recomputed there.
// - IF(cond) .. ENDIF; no values made inside are used outside.
// - SHUFFLE: see ops.h. EXTRACT: one lane. STACK: scalars to a vector. HREDUCE(op): halves: v = lo-half op hi-half
//   until one lane is left. BARRIER: all work-items of the work-group (GPU only); b: enum barrier_kind.
//   COPY: only if the target has copy_bytes, at most that many; both addresses are multiples of the bytes.
//   SWAP: only if the target has subgroup_size; a work-group is a multiple of it, or smaller.
//
// On a CPU a kernel is `void name(unsigned char **bufs, const int64_t *vars, int64_t lo, int64_t hi)`: tiles lo..hi-1.
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H
#include "codegen/descriptor.h"
#include "graph/uop.h"

// A stream is an argument that is a packed copy of a weight, in the order in which the kernel reads it
// (schedule/layout.h). A weight is an argument that never changes.
static inline bool is_stream(const uop *u) { return u->op == OP_PARAM && u->memory == MEMORY_STREAM; }
static inline bool is_temp(const uop *u) { return u->op == OP_PARAM && u->memory == MEMORY_TEMP; }
static inline bool is_weight(const uop *u) { return is_stream(u) || (u->op == OP_PARAM && u->memory == MEMORY_WEIGHT); }

// Memory that is read sequentially in long runs and does not fit in a cache: packed weights, and buffers that outlive a
// run, such as KV caches.
enum { LONG_RUN_BYTES = 1 << 20, CACHE_LINE = 64 };
static inline bool is_long_run(const uop *u) {
  bool kept = u->op == OP_PARAM && u->memory == MEMORY_PLAIN;
  return is_stream(u) || (kept && u->b > LONG_RUN_BYTES / dtype_size((enum dtype)u->dt));
}

// How far before its loads a program prefetches such memory (OptOp PREFETCH), and into which caches: all, all but the
// first, only the last, or as few as possible. 0 KiB: no prefetch. Loads whose address comes from a table (pages of a
// KV cache) jump, so no distance helps: they prefetch what they read in the next iteration of the loop that selects the
// table entry.
enum prefetch_hint { PREFETCH_T0, PREFETCH_T1, PREFETCH_T2, PREFETCH_NTA, PREFETCH_HINTS };
typedef struct prefetch { int kib, hint; } prefetch;

// OptOp ORDER, what the compiler must leave in program order: loads of packed weights, or all instructions.
enum order_kind { ORDER_STREAMS, ORDER_ALL, ORDER_KINDS };

// What a BARRIER waits for besides work-group memory, as bits: stores of work-items to PARAMs, and each work-item's
// pending COPYs.
enum barrier_kind { BARRIER_PARAMS = 1, BARRIER_COPIES = 2 };

typedef struct program {
  char name[96];                                   // a C identifier from kind and range sizes, such as r_512_4_8_2_16
  uop **at;
  size_t n;
  struct program_buf { enum dtype dt; int64_t elems; bool read, written; } *bufs;
  int n_bufs;
  uop **vars;                                      // VAR nodes, sorted by name
  int n_vars;
  // CPU: number of tiles, an IDX expression over vars (CONST 1 if there is no GLOBAL)
  uop *tiles;
  uop *global[3], *local[3];  // GPU: numbers of work-groups and of work-items per work-group; NULL on a CPU
  // GPU: consecutive output elements that each work-group stores; 0: not consecutive (fuse_follower.h)
  int64_t tile;
  // bytes moved and operations done by one launch, IDX expressions over vars: estimates for tables (cost.h)
  uop *bytes, *flops;
  bool order[ORDER_KINDS];
  prefetch distance;
  int paged;                                    // 1 + hint of loads through a table; 0: no prefetch
  descriptor_set without;                          // descriptors that must not be used (OptOp DESCRIPTOR)
  const struct opt *applied;                       // the OptOps (opt.h) that made these loops
  int n_applied;
  graph *graph;                                    // owns the nodes; freed with program_free
  arena *mem;                                      // the graph's arena: owns the arrays
} program;

// The capabilities of a renderer and a device, for codegen. Set by render/ and device/.
typedef struct target {
  const char *name;                                // part of cache keys
  int vector_bytes;                                // width of a vector register; 0: scalar code
  bool has_fma, has_f16, lacks_round;              // FMA; CAST between F16 and F32; no FLOOR and TRUNC
  // prefetch distances for packed weights, the heuristic's defaults on this machine: for kernels limited by memory, and
  // for kernels that compute many tokens at once
  prefetch distance, distance_of_tile;
  int64_t cache_bytes;                             // of a core's own L2 cache
  int64_t tile_bytes;                              // that a tile may keep for itself
  descriptor_set descriptors;  // dot-product instructions; if there are none, DOT becomes plain arithmetic
  bool slow_bf16;                                  // dot products of BF16 take longer than multiply-adds of F32
  bool has_streams;                                // weights may be packed at load (schedule/layout.h)
  bool has_local;                                  // work-groups: LOCAL, GROUP, BARRIER, SPECIAL
  bool lacks_doubles;                              // F64 is emulated with integers (render/soft_doubles.h)
  // accepts EXP2, LOG2, SIN, RECIP, IDIV, MOD, BF16 unchanged (the interpreter)
  bool keeps_math;
  // neighbouring work-items that exchange values by SWAP, a power of two; 0: no subgroups
  int subgroup_size;
  // with work-groups: number of rows of a weight that are packed next to each other, one per work-item, and bytes of a
  // row that a work-item reads at once (schedule/layout.h); 0: weights keep the file's layout
  int row_items, row_bytes;
  int copy_bytes;                                  // most bytes of a COPY; 0: there is no such instruction
  // minimum number of tokens of a plan for which groups of work-items have different tokens and equal rows; 0: never
  int many_tokens;
  bool index32;                                    // indices as I32 if the bounds allow it (GPU); otherwise I64
  // most tokens whose products are computed together; 0: as many as registers hold
  int token_tile;
  // most values of a rounded activation that share a scale (schedule/dots.h): the output of one work-group of a
  // product, so that it can round them itself; 0: the weight's blocks decide
  int rounded_most;
  int vector_registers;                            // 0: unknown
  int max_local_bytes, max_group;                  // memory and work-items of a work-group
  int max_buffers;                                 // of a merged kernel; 0: unlimited
} target;

// Rows of a weight that a layout packs next to each other.
static inline int target_rows(const target *t) { return t->has_local ? t->row_items : t->vector_bytes / 4; }

// evaluates an IDX expression over the VARs; vars in p's order
int64_t program_eval(const program *p, const uop *expr, const int64_t *vars);
// Is this LOCAL memory of a work-group (not of a tile)?
static inline bool is_group_memory(const uop *u) { return u->op == OP_LOCAL && u->memory != MEMORY_TILE; }
int64_t program_group_bytes(const program *p);             // total work-group memory
// prints one line per uop, indented by loops (DEBUG=5)
void program_print(str *out, const program *p);
void program_free(program *p);
#endif
