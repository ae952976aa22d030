// The op table: the only list of all ops of the IR, from tensors to instructions. Enum, names, verifier, printer and
// parser are generated from it. To add an elementwise op: a row here, its meaning in eval.c, and a line in each
// renderer's table (or a rule in codegen/decompose.c that expresses it with other ops; then no renderer needs it).
#ifndef WEFT_OPS_H
#define WEFT_OPS_H

enum op_flags {
  OPF_ELEMENTWISE = 1,   // one result per element, no memory, no order
  OPF_COMMUTATIVE = 2,   // the first two sources may be swapped
  OPF_ASSOCIATIVE = 4,   // (for integers; for floats only rules marked as reassociating may use it)
  OPF_REDUCES = 8,       // may be the operator of a REDUCE
  OPF_COMPARE = 16,      // result is BOOL
  OPF_UNSAFE = 32,       // must not be evaluated if its guard is false (memory, division)
  OPF_MOVEMENT = 64,     // changes indices only
  OPF_ORDERED = 128,     // has an effect, or marks a place in the program: rules never merge or move it
};

//    name, number of sources (-1: any), flags
#define OP_TABLE(O) \
  /* leaves */ \
  O(CONST, 0, 0)            /* a: integer value, or the bits of a double if the dtype is a float */ \
  O(VAR, 0, 0)              /* s: name, a..b: bounds; a symbolic integer such as the position */ \
  O(BUFFER, 0, 0)           /* a: id, b: number of elements, a memory_kind; memory with a name, shape {b} */ \
  O(PARAM, 0, 0)            /* a: argument number of a kernel, b: number of elements, a memory_kind */ \
  O(INVALID, 0, 0)          /* no index: WHERE(cond, i, INVALID) */ \
  /* movement: dims are IDX-typed sources, which may be symbolic */ \
  O(RESHAPE, -1, OPF_MOVEMENT)   /* x, d0, d1, ... */ \
  O(PERMUTE, 1, OPF_MOVEMENT)    /* a: the source axis of result axis i in nibble i, b: number of axes */ \
  O(EXPAND, -1, OPF_MOVEMENT)    /* x, d0, d1, ...: axes of size 1 are repeated */ \
  O(PAD, -1, OPF_MOVEMENT)       /* x, lo0, hi0, lo1, hi1, ...: zeros around */ \
  O(SHRINK, -1, OPF_MOVEMENT)    /* x, offset0, size0, offset1, size1, ... */ \
  O(FLIP, 1, OPF_MOVEMENT)       /* a: bit i set: axis i runs backwards */ \
  /* tensors */ \
  O(IOTA, 1, 0)             /* n: the IDX tensor 0, 1, ..., n-1 */ \
  O(GATHER, 2, 0)           /* x, ids: result[i.., rest..] = x[ids[i..], rest..] */ \
  O(REDUCE_AXIS, 1, 0)      /* a: operator, b: bit i set: axis i is reduced (and keeps size 1) */ \
  O(ASSIGN, 2, OPF_ORDERED)      /* view of a buffer, value: stores the value there */ \
  O(AFTER, -1, 0)           /* x, effects...: x after the effects; a version of a buffer */ \
  O(CONTIGUOUS, 1, 0)       /* a hint: better stored than recomputed */ \
  O(STAGE, 1, 0)            /* x, computed in the tile that reads it, \
  once for the whole tile; a: 1: other kernels read it from memory */ \
  O(STACK, -1, 0)           /* tensors of one shape become the last axis; in a kernel, scalars become a vector */ \
  /* conversion */ \
  O(CAST, 1, OPF_ELEMENTWISE) \
  O(BITCAST, 1, OPF_ELEMENTWISE) /* reinterprets bytes; on tensors the last axis changes with the element size */ \
  /* arithmetic */ \
  O(NEG, 1, OPF_ELEMENTWISE) \
  O(RECIP, 1, OPF_ELEMENTWISE) \
  O(SQRT, 1, OPF_ELEMENTWISE) \
  O(EXP2, 1, OPF_ELEMENTWISE) \
  O(LOG2, 1, OPF_ELEMENTWISE) \
  O(SIN, 1, OPF_ELEMENTWISE) \
  O(TRUNC, 1, OPF_ELEMENTWISE) \
  O(FLOOR, 1, OPF_ELEMENTWISE) \
  O(ADD, 2, OPF_ELEMENTWISE | OPF_COMMUTATIVE | OPF_ASSOCIATIVE | OPF_REDUCES) \
  O(SUB, 2, OPF_ELEMENTWISE) \
  O(MUL, 2, OPF_ELEMENTWISE | OPF_COMMUTATIVE | OPF_ASSOCIATIVE | OPF_REDUCES) \
  O(FDIV, 2, OPF_ELEMENTWISE) \
  O(IDIV, 2, OPF_ELEMENTWISE | OPF_UNSAFE)  /* floors */ \
  O(MOD, 2, OPF_ELEMENTWISE | OPF_UNSAFE)   /* floors: the result has the sign of the divisor */ \
  O(CDIV, 2, OPF_ELEMENTWISE | OPF_UNSAFE)  /* C division; made late */ \
  O(CMOD, 2, OPF_ELEMENTWISE | OPF_UNSAFE) \
  O(MAX, 2, OPF_ELEMENTWISE | OPF_COMMUTATIVE | OPF_ASSOCIATIVE | OPF_REDUCES) \
  O(MIN, 2, OPF_ELEMENTWISE | OPF_COMMUTATIVE | OPF_ASSOCIATIVE | OPF_REDUCES) \
  O(AND, 2, OPF_ELEMENTWISE | OPF_COMMUTATIVE | OPF_ASSOCIATIVE) \
  O(OR, 2, OPF_ELEMENTWISE | OPF_COMMUTATIVE | OPF_ASSOCIATIVE) \
  O(XOR, 2, OPF_ELEMENTWISE | OPF_COMMUTATIVE | OPF_ASSOCIATIVE) \
  O(SHL, 2, OPF_ELEMENTWISE) \
  O(SHR, 2, OPF_ELEMENTWISE)     /* arithmetic for signed types, logical for unsigned ones */ \
  O(CMPLT, 2, OPF_ELEMENTWISE | OPF_COMPARE) \
  O(CMPEQ, 2, OPF_ELEMENTWISE | OPF_COMPARE | OPF_COMMUTATIVE) \
  O(CMPNE, 2, OPF_ELEMENTWISE | OPF_COMPARE | OPF_COMMUTATIVE) \
  O(WHERE, 3, OPF_ELEMENTWISE)   /* cond, a, b */ \
  O(FMA, 3, OPF_ELEMENTWISE)     /* a*b+c, rounded once; made late, only if the machine has it */ \
  O(DOT, 3, 0)              /* sums of products within lanes: acc[i] + sum over j < k of a[k i + j] * part j of b[i], \
  b U32 of n lanes. acc I32: k = 4, a U8, parts I8; acc F32: k = 2, a and parts BF16 (or its bits, U16); made late */ \
  /* kernels */ \
  O(RANGE, 1, 0)            /* end; a: number, b: enum axis_kind: counts 0 .. end-1 */ \
  O(INDEX, 2, 0)            /* buffer, element number (in elements of the buffer's dtype): an address */ \
  O(LOAD, -1, OPF_UNSAFE)   /* INDEX, earlier effects...; its dtype may differ from the buffer's: bytes are \
  reinterpreted. a > 0: values are 0 .. a */ \
  O(STORE, -1, OPF_ORDERED) /* INDEX, value, output ranges... */ \
  O(REDUCE, -1, 0)          /* x, ranges...; a: operator */ \
  O(SINK, -1, OPF_ORDERED)  /* the roots of a kernel or of a graph */ \
  /* vectors */ \
  O(LANE, 0, 0)             /* the IDX vector 0, 1, ..., lanes-1 */ \
  O(SPLAT, 1, 0)            /* a scalar in every lane */ \
  O(SHUFFLE, -1, 0)         /* one or two vectors of n lanes; s: one lane number (0..2n-1) per result lane, \
  two bytes each, low byte first */ \
  O(EXTRACT, 1, 0)          /* a: lane */ \
  O(HREDUCE, 1, 0)          /* a: operator; reduces all lanes to one, by halves: lane i with lane i+n/2 */ \
  /* linear programs */ \
  O(ACC, 1, OPF_ORDERED)         /* initial value; a: number; a variable: as a source it is its value at that \
  place */ \
  O(SET, 2, OPF_ORDERED)         /* ACC, value */ \
  O(END, 1, OPF_ORDERED)         /* closes the loop of a RANGE */ \
  O(IF, 1, OPF_ORDERED)          /* condition */ \
  O(ENDIF, 0, OPF_ORDERED) \
  O(LOCAL, 0, 0)            /* a: number, b: elements, a memory_kind: of a work-group or of a tile */ \
  O(BARRIER, -1, OPF_ORDERED)    /* of the work-group; sources come first; a RANGE: separates its iterations */ \
  O(PREFETCH, -1, OPF_ORDERED)   /* INDEX, ranges...; a: bytes after that address, \
  b: hint (codegen/program.h): loads them into caches; no effect */ \
  O(SWAP, 1, 0)             /* the value of the work-item whose id in the work-group (l0 fastest) differs from this \
  one's in bit a only; all work-items execute it */ \
  O(SPECIAL, 0, 0)          /* s: "g0".."g2" work-group id, "l0".."l2" work-item id; b: bound */ \
  O(MMA, -1, 0)             /* a tile of sums of products that 32 work-items compute together; all execute it: acc \
  (I32 or F32, 4 lanes), a..., b..., words each. For bytes, a work-item supplies K / 8 words of a and K / 16 of b; for \
  F16 and BF16 twice as many. It gets 4 of 16 x 8 results (codegen/mma.c). a: K, 16 or 32; b: F16 or BF16, 0: bytes; \
  made late */ \
  O(COPY, -1, OPF_ORDERED)       /* INDEX to (of a LOCAL), INDEX from (of a PARAM), earlier effects...; \
  a: 4, 8 or 16 bytes; asynchronous, complete after the work-item's next BARRIER that waits for copies; \
  made late */ \
  O(ALLGATHER, -1, OPF_ORDERED)  /* PARAM, number of periods, the processes that get them (bits; 0: all), \
  start of each \
  process's part..., end of the last one; a: elements of a period: every process has its part of each period */ \
  O(MMLA, 3, 0)             /* tiles of 2 x 2 sums of products: for every four lanes acc[2 i + j] + sum over l < 8 \
  of a[8 i + l] * b[8 j + l] over 16 bytes; acc I32 of n lanes, a U8 and b I8 of 4 n; made late */

enum op {
#define O(name, arity, flags) OP_##name,
  OP_TABLE(O)
#undef O
  OP_COUNT
};
_Static_assert(OP_COUNT <= 128, "op sets are two 64-bit words");

// How the loop over a range is executed.
enum axis_kind {
  AXIS_GLOBAL,
  AXIS_THREAD,
  AXIS_LOCAL,
  AXIS_GROUP,
  AXIS_REDUCE,
  AXIS_UPCAST,
  AXIS_UNROLL,
  AXIS_LANE,
  AXIS_LOOP,
  AXIS_DOT,
  AXIS_MMA,
  AXIS_STEP,
  AXIS_COUNT
};

#endif
