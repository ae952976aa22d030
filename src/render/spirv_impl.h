// Declarations shared by the files of the SPIR-V renderer: spirv.c (the walk through a program), spirv_ops.c
// (arithmetic), spirv_doubles.c (emulated doubles), spirv_memory.c (loads and stores). No other file includes this.
//
// A value of n lanes is n ids of scalars. Integers are unsigned types of their size. F16 and BF16 are kept as their
// bits, and F64 too if the device has no doubles.
#ifndef WEFT_RENDER_SPIRV_IMPL_H
#define WEFT_RENDER_SPIRV_IMPL_H
#include "render/render.h"
#include "render/spirv_module.h"

// Memory of the kernel. PARAM: `at` is its address. LOCAL: a variable, an array of integers of `unit` bytes.
typedef struct spirv_memory {
  spv_id at;
  int unit;
  enum spv_class where;
  bool exchanged;                  // work-items of a work-group read what others have written
} spirv_memory;

typedef struct spirv_open { bool loop; spv_id header, next, behind, counter, counted; enum dtype dt; } spirv_open;

// Emulated functions of doubles: spirv_doubles.c
enum spirv_double {
  SPIRV_DOUBLE_ROUND, SPIRV_DOUBLE_PACK, SPIRV_DOUBLE_PACK128, SPIRV_DOUBLE_FMA, SPIRV_DOUBLE_DIV, SPIRV_DOUBLE_SQRT,
  SPIRV_DOUBLE_OF_FLOAT, SPIRV_DOUBLE_TO_FLOAT, SPIRV_DOUBLES
};

typedef struct spirv {
  spv s;
  const program *p;
  const render_options *o;
  error *err;
  arena *mem;
  map needed;                      // nodes whose value is used
  map values;                      // node -> ids of its lanes; for an INDEX see spirv_memory.c
  map variables;                   // ACC -> the variables of its lanes
  map memories;                    // PARAM, LOCAL -> spirv_memory
  map zeros;                       // of render_zeros
  VEC(spirv_open) open;
  VEC(spv_id) interface;           // variables of the module
  spv_id block;                    // the current block
  spv_id arguments;                // their address
  spv_id *vars;                    // the values of p->vars, I64
  spv_id group, item;              // vectors of three ids
  spv_id first;                    // the first id of the work-group, if work-groups are spread
  spv_id lo, hi;                   // the tiles of this work-group
  spv_id to_f32, to_f16, doubles[SPIRV_DOUBLES];       // functions; 0: not yet made
  spv_id helper_block;             // the first block of the function being made
} spirv;

const spv_id *spirv_lanes(spirv *c, const uop *u);       // the value of u here
static inline spv_id *spirv_new_lanes(spirv *c, int n) { return ARENA_ARRAY(c->mem, spv_id, n); }

// ---- spirv_ops.c
spv_id spirv_type(spirv *c, enum dtype d);
spv_id spirv_literal(spirv *c, enum dtype d, const uop *constant);
spv_id spirv_cast(spirv *c, spv_id x, enum dtype from, enum dtype to);         // 0 if unsupported
// one lane of an elementwise op over these sources; 0 if unsupported
spv_id spirv_lane(spirv *c, const uop *u, const spv_id *x);
// d: type of the sources; 0 if unsupported
spv_id spirv_binary(spirv *c, enum op op, enum dtype d, spv_id x, spv_id y);
const spv_id *spirv_dots(spirv *c, const uop *u);        // DOT; NULL if the device has no such instruction
spv_id spirv_to_bits(spirv *c, spv_id x, enum dtype d);
spv_id spirv_of_bits(spirv *c, spv_id x, enum dtype d);
// converts n integers of `from` bytes to integers of `to` bytes, low bytes first
const spv_id *spirv_resize(spirv *c, const spv_id *x, int n, int from, int to);

// A function of at most four arguments. Values are made inside it until spirv_end_helper, which names its result.
typedef struct spirv_helper { spv_id function, arguments[4]; enum spv_part before; } spirv_helper;
spirv_helper spirv_begin_helper(spirv *c, spv_id result, int n, const spv_id *types);
spv_id spirv_end_helper(spirv *c, const spirv_helper *h, spv_id result);

// ---- spirv_doubles.c
bool spirv_by_bits(const spirv *c, enum dtype d);        // is d a double and the device without doubles?
spv_id spirv_double_op(spirv *c, enum op op, const spv_id *x);                 // 0 if unsupported
spv_id spirv_double_cast(spirv *c, spv_id x, enum dtype from, enum dtype to);  // F64, and F32, I64 or U64

// ---- spirv_memory.c
void spirv_declare(spirv *c);                            // declares all memory
spv_id spirv_argument(spirv *c, int i);                  // word i of the arguments
const spv_id *spirv_index(spirv *c, const uop *index);
const spv_id *spirv_load(spirv *c, const uop *load);
void spirv_store(spirv *c, const uop *store);
#endif
