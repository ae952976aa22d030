// cstyle: the common part of the renderers for C-like languages: walks the program, decides which values are inlined
// and which get a name, writes literals and loops. A dialect defines how its language spells types, vectors and memory.
//
// Values are texts that are valid as an operand anywhere: a name, a literal, or an expression in parentheses. In a
// vector of BOOL each lane is an 8-bit integer, 0 or -1 (all bits); a scalar BOOL is 0 or 1. An F16 value is kept as
// its 16 bits, and an F64 value as its 64 bits if the language has no doubles.
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
  // reinterprets bits; lanes keep their size
  const char *(*reinterpret)(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes);
  // converts numbers; not BOOL or F16
  const char *(*convert)(cstyle *c, const char *x, enum dtype from, enum dtype to, int lanes);
  // selects in vectors; mask's lanes: 0 or -1, as wide as d
  const char *(*select)(cstyle *c, const char *mask, const char *x, const char *y, enum dtype d, int lanes);
  // converts a mask to lanes of another width
  const char *(*mask)(cstyle *c, const char *x, int from_bytes, int to_bytes, int lanes);
  // builds a vector from scalars
  const char *(*build)(cstyle *c, enum dtype d, int lanes, const char *const *x);
  const char *(*extract)(cstyle *c, const char *x, int lane);
  const char *(*shuffle)(cstyle *c, const uop *u, const char *x, const char *y);
  // SQRT TRUNC FLOOR FMA; may write lines before the value
  const char *(*math)(cstyle *c, const uop *u, const char *const *x);
  // F16 to F32 and back; may write lines before the value
  const char *(*halves)(cstyle *c, const char *x, bool to_f32, int lanes);
  // reinterprets between different types or numbers of lanes
  const char *(*bitcast)(cstyle *c, const uop *u, const char *x);
  // NULL: not in this language
  const char *(*dot)(cstyle *c, const uop *u);
  // another work-item's value (SWAP); NULL: not in this language
  const char *(*swap)(cstyle *c, const uop *u, const char *x);
  // For a language without doubles, in which an F64 value is its 64 bits: op on scalars, if `from` (the operands' type)
  // or `to` is F64; returns NULL if the op is unsupported. NULL: the language has doubles.
  const char *(*doubles)(cstyle *c, enum op op, enum dtype from, enum dtype to, const char *const *x);
  // may write lines before the value
  const char *(*load)(cstyle *c, const uop *u);
  void (*store)(cstyle *c, const uop *u);
  // PREFETCH; NULL: ignored
  void (*ask_at_distance)(cstyle *c, const uop *u);
  // SPECIAL, BARRIER, LOCAL: returns 1 if written, 0 if not supported
  int (*other)(cstyle *c, const uop *u);
  bool names_operands;                     // vector operations need names as operands (they take lanes or addresses)
} dialect;

struct cstyle {
  const program *p;
  const dialect *d;
  error *err;
  arena *mem;
  str body;
  int depth, next;
  size_t *match, pos;                      // pos: of the node being written
  map text, uses;                          // uop -> text; uop -> struct cs_use
  unsigned helpers;                        // bit set of the dialect: helpers that its preamble must define
  map types;                               // set of the dialect: vector types used (dtype | lanes << 8)
};

// Writes the statements of a whole program to c->body; the dialect's renderer adds the text around them.
int cs_program(cstyle *c, const program *p, const dialect *d, int depth, error *err);
void cs_free(cstyle *c);

const char *cs_text(cstyle *c, const uop *u);                                      // value of u as an operand
// removes its outer parentheses, if it has any
const char *cs_bare(cstyle *c, const char *text);
const char *cs_print(cstyle *c, const char *fmt, ...) PRINTF_LIKE(2, 3);           // text in the arena
void cs_line(cstyle *c, const char *fmt, ...) PRINTF_LIKE(2, 3);                   // one indented line
const char *cs_name(cstyle *c, const char *kind);                                  // a new name: kind and a number
// x if it is a name or literal; otherwise a new name with its value
const char *cs_named(cstyle *c, enum dtype d, int lanes, const char *x);
bool cs_is_name(const char *x);                                                     // is x the name of a variable?
const char *cs_buffer(cstyle *c, const uop *memory);                               // the name of a PARAM or LOCAL
const char *cs_var(cstyle *c, const uop *var);
const char *cs_literal(cstyle *c, const uop *constant);
const char *cs_splat(cstyle *c, enum dtype d, int lanes, const char *x);
static inline enum dtype cs_int_of_size(int size, bool is_unsigned) {
  enum dtype s = size == 1 ? DT_I8 : size == 2 ? DT_I16 : size == 4 ? DT_I32 : DT_I64;
  return is_unsigned ? (enum dtype)(s + 1) : s;
}
// The dtype in which a value is stored: BF16 and F16 as their bits, BOOL in memory and in vectors as a byte.
static inline enum dtype cs_memory_dtype(enum dtype d) {
  return d == DT_BOOL ? DT_U8 : d == DT_F16 || d == DT_BF16 ? DT_U16 : d == DT_IDX ? DT_I64 : d;
}
#endif
