// program: what codegen hands to a renderer: a linear list of uops, in order, each after its sources; and what a device
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
// - Loads of a stream (a PARAM named so) stand in the order in which its bytes lie.
// - INDEX(mem, i): an address, i in elements of mem's dtype (LOCAL, PARAM), I64 or I32. LOAD(INDEX): dtype and lanes
//   say what is read there. If the INDEX is scalar, `lanes` consecutive elements of the LOAD's dtype starting at the
//   address (unaligned: align 1 x element size of mem is all that is known); if the INDEX has lanes (a vector of
//   element numbers), one element each (gather). LOAD's dtype may be wider or other than mem's. STORE(INDEX, value):
//   the same, the other way round (scatter for a vector INDEX). Addresses are always in bounds. Further sources of a
//   LOAD or BARRIER only say what comes first. A buffer that is stored to may also be loaded by the same program.
// - RANGE(end) opens a loop `for (i = 0; i < end; i++)` and is its counter inside; END(range) closes it. The RANGE of
//   kind AXIS_GLOBAL, if any, is the tile loop: on a CPU it runs from the argument lo to the argument hi instead of
//   0..end. Values made inside a loop are used only inside.
// - ACC(init) declares a variable; SET(acc, value) assigns; ACC as a source is the variable's value at that place.
// - PREFETCH(INDEX): caches are asked for the bytes `a` behind the address, which need not exist, with hint `b` (enum
//   prefetch_hint).
// - A node may appear in the list more than once, in loops that lie side by side: it is computed anew there.
// - IF(cond) .. ENDIF; no values made inside are used outside.
// - SHUFFLE: see ops.h. EXTRACT: one lane. STACK: scalars to a vector. HREDUCE(op): halves: v = lo-half op hi-half
//   until one lane is left. BARRIER: all work-items of the work-group (GPU only); b: enum barrier_kind.
//   COPY: only where the target has copy_bytes, as many as that at most; both addresses are at multiples of the bytes.
//   SWAP: only where the target has subgroup_size; a work-group is a multiple of these, or smaller.
//
// On a CPU a kernel is `void name(unsigned char **bufs, const int64_t *vars, int64_t lo, int64_t hi)`: tiles lo..hi-1.
#ifndef WEFT_PROGRAM_H
#define WEFT_PROGRAM_H
#include "codegen/descriptor.h"
#include "graph/uop.h"

// An argument that never changes; and one that is a copy of such, in the order in which the kernel reads it
// (schedule/layout.h).
static inline bool is_stream(const uop *u) { return u->op == OP_PARAM && u->memory == MEMORY_STREAM; }
static inline bool is_temp(const uop *u) { return u->op == OP_PARAM && u->memory == MEMORY_TEMP; }
static inline bool is_weight(const uop *u) { return is_stream(u) || (u->op == OP_PARAM && u->memory == MEMORY_WEIGHT); }

// Memory that is read in long runs, from beginning to end, and is too large to stay in a cache: streams, and what
// outlives a run, as KV caches do.
enum { LONG_RUN_BYTES = 1 << 20, CACHE_LINE = 64 };
static inline bool is_long_run(const uop *u) {
  bool kept = u->op == OP_PARAM && u->memory == MEMORY_PLAIN;
  return is_stream(u) || (kept && u->b > LONG_RUN_BYTES / dtype_size((enum dtype)u->dt));
}

// How far ahead of its loads a program asks for bytes of such memory (OptOp PREFETCH), and which caches these go to:
// all, all but the first, the last alone, or as few as possible. 0 KiB: not at all. Loads whose place a table gives
// (pages of a cache) jump where no distance leads: they ask for what they read in the next iteration of the loop that
// picks the table's entry.
enum prefetch_hint { PREFETCH_T0, PREFETCH_T1, PREFETCH_T2, PREFETCH_NTA, PREFETCH_HINTS };
typedef struct prefetch { int kib, hint; } prefetch;

// OptOp ORDER, what the compiler leaves as it stands: the order of loads of streams; that of all instructions.
enum order_kind { ORDER_STREAMS, ORDER_ALL, ORDER_KINDS };

// What a BARRIER is for beside the work-group's memory, in bits: what items have written to PARAMs, and what each has
// on its way there by COPY, which then is there.
enum barrier_kind { BARRIER_PARAMS = 1, BARRIER_COPIES = 2 };

typedef struct program {
  char name[96];                                   // a C identifier by kind and range sizes, such as r_512_4_8_2_16
  uop **at;
  size_t n;
  struct program_buf { enum dtype dt; int64_t elems; bool read, written; } *bufs;
  int n_bufs;
  uop **vars;                                      // VAR nodes, sorted by name
  int n_vars;
  // CPU: number of tiles, an IDX expression over vars (CONST 1 if there is no GLOBAL)
  uop *tiles;
  uop *global[3], *local[3];                       // GPU: number of work-groups and of work-items in one; NULL on a CPU
  // GPU: elements of the output that each work-group stores side by side; 0: they lie elsewhere (fuse_follower.h)
  int64_t tile;
  // moved and done by one launch, IDX expressions over vars: estimates, for tables (cost.h)
  uop *bytes, *flops;
  bool order[ORDER_KINDS];
  prefetch distance;
  int paged;                                    // 1 + hint of loads through a table; 0: they ask for nothing
  descriptor_set without;                          // descriptors that are not to be used (OptOp DESCRIPTOR)
  const struct opt *applied;                       // the OptOps (opt.h) that made these loops
  int n_applied;
  graph *graph;                                    // owns the nodes; freed with program_free
  arena *mem;                                      // that of the graph: owns the arrays
} program;

// What a renderer can do, for codegen.  Filled in by render/ and device/.
typedef struct target {
  const char *name;                                // part of cache keys
  int vector_bytes;                                // width of a vector register; 0: no vectors wanted (scalar code)
  bool has_fma, has_f16, lacks_round;              // FMA; CAST between F16 and F32; no FLOOR and TRUNC
  // of streams (of this machine: the heuristic's defaults for OptOp PREFETCH): where memory decides a kernel's time,
  // and where it computes for longer, for many tokens at once
  prefetch distance, distance_of_tile;
  int64_t cache_bytes;                             // of a core's own second cache
  int64_t tile_bytes;                              // that a tile may keep for itself
  descriptor_set descriptors;                      // dot-product instructions; none: DOT becomes plain arithmetic
  bool has_streams;                                // weights may be laid out anew at load (schedule/layout.h)
  bool has_local;                                  // work-groups: LOCAL, GROUP, BARRIER, SPECIAL
  bool lacks_doubles;                              // F64 is computed by its bits (render/soft_doubles.h)
  // takes EXP2, LOG2, SIN, RECIP, IDIV, MOD, BF16 as they are (the interpreter)
  bool keeps_math;
  // neighbouring work-items that run in step and give each other values (SWAP): a power of two; 0: they do not
  int subgroup_size;
  // where there are work-groups: rows of a weight that are laid side by side, one for each of so many items, and the
  // bytes of a row that an item reads at once (schedule/layout.h); 0: weights stay as they lie
  int row_items, row_bytes;
  int copy_bytes;                                  // that a COPY has at most; 0: there is no such instruction
  // tokens for which a plan has room, from which on groups of items have other tokens of the same rows; 0: never
  int many_tokens;
  bool index32;                                    // indices as I32 where the bounds allow (GPU); otherwise I64
  // tokens whose products are computed side by side at most; 0: what registers hold
  int token_tile;
  // values of an activation that share a scale at most, where it is rounded (schedule/dots.h): what a work-group of a
  // product makes, so that it rounds them itself; 0: the weight's blocks say
  int rounded_most;
  int vector_registers;                            // 0: not known
  int max_local_bytes, max_group;                  // memory and work-items of a work-group
  int max_buffers;                                 // of a kernel that is joined of several; 0: as many as there are
} target;

// Rows of a weight that a layout lays side by side.
static inline int target_rows(const target *t) { return t->has_local ? t->row_items : t->vector_bytes / 4; }

// an IDX expression over the VARs, vars in p's order
int64_t program_eval(const program *p, const uop *expr, const int64_t *vars);
// LOCAL: of a work-group, and not of a tile.
static inline bool is_group_memory(const uop *u) { return u->op == OP_LOCAL && u->memory != MEMORY_TILE; }
int64_t program_group_bytes(const program *p);             // of a work-group's memory
// one line per uop, indented by loops (DEBUG=5)
void program_print(str *out, const program *p);
void program_free(program *p);
#endif
