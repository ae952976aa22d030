// cstyle: what the renderers to C-like languages share: walking the program, deciding what is written where it is used
// and what gets a name, literals, loops.  A dialect says how its language spells types, vectors and memory.
//
// Values are texts that may stand as an operand anywhere: a name, a literal, or an expression in parentheses.  In a
// vector of BOOL each lane is an 8-bit integer, 0 or -1 (all bits); a scalar BOOL is 0 or 1.  An F16 value is its 16
// bits, and so is an F64 value its 64 bits where the language has no doubles.
#ifndef WEFT_RENDER_CSTYLE_H
#define WEFT_RENDER_CSTYLE_H
#include "render/render.h"

typedef struct cstyle cstyle;

typedef struct dialect {
  const char *name;
  const char *scalars[DT_COUNT];           // names of the types of values; NULL: not in this language
  const char *long_suffix;                 // of a 64-bit literal
  int max_lanes;
  const char *(*type)(cstyle *c, enum dtype d, int lanes);
  // same bits, lanes of the same size
  const char *(*reinterpret)(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes);
  // numbers, no BOOL or F16
  const char *(*convert)(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes);
  // vectors; mask's lanes: 0, -1 as wide as d
  const char *(*select)(cstyle *c, const char *mask, const char *x, const char *y, enum dtype d, int lanes);
  // a mask with lanes of another width
  const char *(*mask)(cstyle *c, const char *x, int from_bytes, int to_bytes, int lanes);
  // a vector of scalars
  const char *(*build)(cstyle *c, enum dtype d, int lanes, const char *const *x);
  const char *(*extract)(cstyle *c, const char *x, int lane);
  const char *(*shuffle)(cstyle *c, const uop *u, const char *x, const char *y);
  // SQRT TRUNC FLOOR FMA; may write lines first
  const char *(*math)(cstyle *c, const uop *u, const char *const *x);
  // F16 to F32 and back; may write lines first
  const char *(*halves)(cstyle *c, const char *x, bool to_f32, int lanes);
  // of other kinds or numbers of lanes
  const char *(*bitcast)(cstyle *c, const uop *u, const char *x);
  // NULL: not in this language
  const char *(*dot)(cstyle *c, const uop *u);
  // another item's value (SWAP); NULL: not in this language
  const char *(*swap)(cstyle *c, const uop *u, const char *x);
  // For a language without doubles, in which an F64 value is its 64 bits: op of scalars, where `from` (the operands')
  // or `to` is F64; NULL if there is none. NULL: the language has doubles.
  const char *(*doubles)(cstyle *c, enum op op, enum dtype from, enum dtype to, const char *const *x);
  // may write lines first
  const char *(*load)(cstyle *c, const uop *u);
  void (*store)(cstyle *c, const uop *u);
  // PREFETCH; NULL: nothing is written
  void (*ask_at_distance)(cstyle *c, const uop *u);
  // SPECIAL, BARRIER, LOCAL: 1 if done, 0 if not known
  int (*other)(cstyle *c, const uop *u);
  bool names_operands;                     // vector operations need names as operands (to take lanes, or addresses)
} dialect;

struct cstyle {
  const program *p;
  const dialect *d;
  error *err;
  arena *mem;
  str body;
  int depth, next;
  size_t *match, pos;                      // pos: of the node that is being written
  map text, uses;                          // uop -> text; uop -> struct cs_use
  unsigned helpers;                        // bits of the dialect's own: what its preamble must define
  map types;                               // dialect's own: vector types used (dtype | lanes << 8)
};

// Writes the statements of a whole program to c->body; the dialect's renderer adds what stands around them.
int cs_program(cstyle *c, const program *p, const dialect *d, int depth, error *err);
void cs_free(cstyle *c);

const char *cs_text(cstyle *c, const uop *u);                                      // value of u as an operand
// without its outer parentheses, if it has any
const char *cs_bare(cstyle *c, const char *text);
const char *cs_print(cstyle *c, const char *fmt, ...) PRINTF_LIKE(2, 3);           // text in the arena
void cs_line(cstyle *c, const char *fmt, ...) PRINTF_LIKE(2, 3);                   // one indented line
const char *cs_name(cstyle *c, const char *kind);                                  // a new name: kind and a number
// x if it is a name or literal; otherwise a name for it
const char *cs_named(cstyle *c, enum dtype d, int lanes, const char *x);
bool cs_is_name(const char *x);                                                     // of a variable
const char *cs_buffer(cstyle *c, const uop *memory);                               // the name of a PARAM or LOCAL
const char *cs_var(cstyle *c, const uop *var);
const char *cs_literal(cstyle *c, const uop *constant);
const char *cs_splat(cstyle *c, enum dtype d, int lanes, const char *x);
static inline enum dtype cs_int_of_size(int size, bool is_unsigned) {
  enum dtype s = size == 1 ? DT_I8 : size == 2 ? DT_I16 : size == 4 ? DT_I32 : DT_I64;
  return is_unsigned ? (enum dtype)(s + 1) : s;
}
// The dtype in which a value is kept: BF16 and F16 as their bits, BOOL in memory and in vectors as a byte.
static inline enum dtype cs_memory_dtype(enum dtype d) {
  return d == DT_BOOL ? DT_U8 : d == DT_F16 || d == DT_BF16 ? DT_U16 : d == DT_IDX ? DT_I64 : d;
}
#endif
