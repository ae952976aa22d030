// descriptor: a table of instructions that multiply several pairs of numbers per lane and add the products.
//
// A row says what an instruction (or a short sequence) computes: M x N results, each acc + the sum of K products, of
// operands of given types; which processor features it needs; when it is exact; and the text that a renderer writes.
// The OptOp TC (opt.c) asks the table for possible numbers of lanes, and a renderer asks it how to write a DOT of that
// width. A new instruction is a new row, and no renderer names one.
//
// Rows of one kind are ordered by speed, fastest first; the first row whose conditions hold is used. If no row fits, a
// DOT is written as plain arithmetic.
//
// Exactness. A row may keep sums in 16 bits for several steps: each lane of a *partial sum* holds `products` products
// per step, and several steps are added before the partial sum joins the 32-bit accumulator. The interval of operand a
// (graph/bounds.h) tells how many steps fit: with a in 0..15, eight steps of two products, |8 * 2 * 15 * -128| <=
// 32767. A row whose first step might overflow is not used.
#ifndef WEFT_DESCRIPTOR_H
#define WEFT_DESCRIPTOR_H
#include "graph/uop.h"

enum { DESCRIPTOR_LINES = 12 };

typedef struct descriptor {
  const char *name;
  const char *needs;             // required processor features (LLVM's names), separated by spaces
  // Results: M rows of N lanes, or of N columns if M > 1: a tile that 32 work-items compute together (MMA) or that is
  // in one register (2 x 2, MMLA). k: products per result.
  int m, n, k;
  enum dtype a, b, acc;          // operands and result: U8 I8 I32, I8 I8 I32, BF16 BF16 F32 or F16 F16 F32
  int64_t a_max;                 // maximum of |a| for integers (U8: 127 if the instruction reads a as signed)
  int products;                  // products in a 16-bit lane of a step's partial sum; 0: a step adds to acc directly
  bool by_lane;                  // the instruction takes one lane of a register as b, for all lanes (dot_words.c)
  // Text for the LLVM renderer, one instruction per line; the last line's value is the result. {n} {2n} {4n}: numbers
  // of lanes; {bits}: bits of a register; $a $b: operands (bytes <{4n} x i8> or bits <{2n} x i16>; with k parts per
  // lane, <{n} x i32>); $acc: the accumulator; $1 $2: results of earlier lines; $$: a $. For a tile of 32 work-items:
  // only the instruction's name. For 2 x 2: {n} is 4, and $b are bytes as well.
  const char *step[DESCRIPTOR_LINES];      // products = 0: new acc from $acc $a $b; otherwise a partial sum of $a $b
  const char *finish[DESCRIPTOR_LINES];    // products > 0: new acc from $acc and the partial sum $a
} descriptor;

// A set of rows (bit i for row i): the instructions of a machine. `has` is called for each feature that a row needs.
typedef uint64_t descriptor_set;
descriptor_set descriptors_where(bool (*has)(const void *machine, const char *feature), const void *machine);

// Does one of these rows need a processor feature (one name)?
bool descriptors_need(descriptor_set set, const char *feature);

const descriptor *descriptor_at(size_t i);                       // the table in order; NULL past its end
// Has the set a row for codes with a sign (a of type I8) in lanes?
bool descriptors_take_signs(descriptor_set set);
// The row that adds products in n lanes to an acc of this type (I32: of codes of type a, at most a_max in absolute
// value, and signed bytes); NULL if the set has none.
const descriptor *descriptor_find(descriptor_set set, enum dtype acc, int n, enum dtype a, int64_t a_max);
// The maximum of |a| by its bounds, for descriptor_find: codes of 8 bits; 0 for floats.
int64_t descriptor_most(const uop *a);
// The largest number of lanes, at most `most`, that divides `size` and has an instruction; 0 if there is none.
int descriptor_lanes(descriptor_set set, enum dtype acc, int most, int64_t size);
// The row for a tile of M x N results with this number of products, operand a of this type; NULL if the set has none.
const descriptor *descriptor_tile(descriptor_set set, enum dtype a, int products);
// number of steps that fit into a partial sum (1 if the row has none)
int64_t descriptor_steps(const descriptor *d, int64_t a_max);
#endif
