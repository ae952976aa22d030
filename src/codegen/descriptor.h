// descriptor: the instructions that multiply several pairs of numbers per lane and add them up, as data.
//
// A row says what an instruction (or a short sequence of them) computes: M x N results, each acc + the sum of K
// products, of operands of given types; which processor features it needs; when it is exact; and what a renderer
// writes. The OptOp TC (opt.c) asks the table which numbers of lanes there are, a renderer asks it how to write a DOT
// of that many. So a new instruction is a new row, and no renderer names one.
//
// Rows of one kind stand fastest first; the first whose conditions hold is taken.  Where none fits, a DOT is plain
// arithmetic.
//
// Exactness. A row may hold its sums in 16 bits for a while: `products` of them in each lane of a *partial sum*, in
// which several steps are added up before they join the accumulator in 32 bits. The interval of the operand a
// (graph/bounds.h) says how many fit: with a in 0..15 eight steps of two products, |8 * 2 * 15 * -128| <= 32767. A row
// whose first step might not fit is not taken.
#ifndef WEFT_DESCRIPTOR_H
#define WEFT_DESCRIPTOR_H
#include "graph/uop.h"

enum { DESCRIPTOR_LINES = 12 };

typedef struct descriptor {
  const char *name;
  const char *needs;             // processor features (LLVM's names), all of them; separated by spaces
  // Results: M rows of N lanes, or of N columns if M > 1: a tile that 32 items compute together (MMA) or that is one
  // register (2 x 2, MMLA). Products per result.
  int m, n, k;
  enum dtype a, b, acc;          // of the operands and the result: U8 I8 I32, BF16 BF16 F32 or F16 F16 F32
  int64_t a_max;                 // U8: the largest a that the instruction takes (127 where it reads a as signed)
  int products;                  // products in a 16-bit lane of a step's partial sum; 0: a step adds to acc itself
  // Text of the LLVM renderer, an instruction a line; the last line's value is the result. {n} {2n} {4n} {bits}:
  // numbers of lanes, and of bits in a register; $a $b: operands (bytes <{4n} x i8> or bits <{2n} x i16>; k parts a
  // lane, <{n} x i32>); $acc: the accumulator; $1 $2: lines before; $$: a $.
  // Of a tile that items compute together: the instruction's name alone. Of 2 x 2: {n} is 4, and $b are bytes, too.
  const char *step[DESCRIPTOR_LINES];      // products = 0: new acc of $acc $a $b; otherwise a partial sum of $a $b
  const char *finish[DESCRIPTOR_LINES];    // products > 0: new acc of $acc and the partial sum $a
} descriptor;

// A set of rows, bit i for row i: what a machine can do. `has` is asked for each feature that a row needs.
typedef uint64_t descriptor_set;
descriptor_set descriptors_where(bool (*has)(const void *machine, const char *feature), const void *machine);

// Does a machine that can do these have a processor feature (one name)? As far as a row of them needs it.
bool descriptors_need(descriptor_set set, const char *feature);

const descriptor *descriptor_at(size_t i);                       // the table, in order; NULL past its end
// How to add up products in n lanes to an acc of this type (I32: of 0..a_max and signed bytes); NULL: no row in the set
// does that.
const descriptor *descriptor_find(descriptor_set set, enum dtype acc, int n, int64_t a_max);
// The largest number of lanes, at most `most`, that divides `size` and for which there is an instruction; 0: none.
int descriptor_lanes(descriptor_set set, enum dtype acc, int most, int64_t size);
// A tile of M x N results, of that many products each of an operand a of this type; NULL: the set has none.
const descriptor *descriptor_tile(descriptor_set set, enum dtype a, int products);
// how many steps fit into a partial sum (1 if there is none)
int64_t descriptor_steps(const descriptor *d, int64_t a_max);
#endif
