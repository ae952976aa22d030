// spirv_module: a small assembler for SPIR-V modules. A value, type or function is an id. Types and constants are made
// once, at their first use; the parts of the module are put in order at the end.
//
// All integer types are unsigned (signed and unsigned instructions accept either), so there is one type per size.
#ifndef WEFT_RENDER_SPIRV_MODULE_H
#define WEFT_RENDER_SPIRV_MODULE_H
#include "base/arena.h"
#include "base/map.h"
#include "base/str.h"

typedef uint32_t spv_id;

// Instructions, with the standard's numbers.
enum spv_op {
  SPV_NAME = 5, SPV_EXTENSION = 10, SPV_EXT_INST_IMPORT = 11, SPV_EXT_INST = 12, SPV_MEMORY_MODEL = 14,
  SPV_ENTRY_POINT = 15, SPV_EXECUTION_MODE = 16, SPV_CAPABILITY = 17, SPV_TYPE_VOID = 19, SPV_TYPE_BOOL = 20,
  SPV_TYPE_INT = 21, SPV_TYPE_FLOAT = 22, SPV_TYPE_VECTOR = 23, SPV_TYPE_ARRAY = 28, SPV_TYPE_STRUCT = 30,
  SPV_TYPE_POINTER = 32, SPV_TYPE_FUNCTION = 33, SPV_CONSTANT_TRUE = 41, SPV_CONSTANT_FALSE = 42, SPV_CONSTANT = 43,
  SPV_FUNCTION = 54, SPV_FUNCTION_PARAMETER = 55, SPV_FUNCTION_END = 56, SPV_FUNCTION_CALL = 57, SPV_VARIABLE = 59,
  SPV_LOAD = 61, SPV_STORE = 62, SPV_ACCESS_CHAIN = 65, SPV_DECORATE = 71, SPV_MEMBER_DECORATE = 72,
  SPV_COMPOSITE_CONSTRUCT = 80, SPV_COMPOSITE_EXTRACT = 81, SPV_COPY = 83,
  SPV_F_TO_U = 109, SPV_F_TO_S = 110, SPV_S_TO_F = 111,
  SPV_U_TO_F = 112, SPV_U_CONVERT = 113, SPV_S_CONVERT = 114, SPV_F_CONVERT = 115, SPV_U_TO_POINTER = 120,
  SPV_BITCAST = 124, SPV_S_NEGATE = 126, SPV_F_NEGATE = 127, SPV_I_ADD = 128, SPV_F_ADD = 129, SPV_I_SUB = 130,
  SPV_F_SUB = 131, SPV_I_MUL = 132, SPV_F_MUL = 133, SPV_U_DIV = 134, SPV_S_DIV = 135, SPV_F_DIV = 136,
  SPV_U_MOD = 137, SPV_S_REM = 138, SPV_LOGICAL_EQUAL = 164, SPV_LOGICAL_NOT_EQUAL = 165, SPV_LOGICAL_OR = 166,
  SPV_LOGICAL_AND = 167, SPV_LOGICAL_NOT = 168, SPV_SELECT = 169, SPV_I_EQUAL = 170, SPV_I_NOT_EQUAL = 171,
  SPV_U_LESS = 176, SPV_S_LESS = 177, SPV_F_EQUAL = 180, SPV_F_NOT_EQUAL = 183, SPV_F_LESS = 184, SPV_SHIFT_U = 194,
  SPV_SHIFT_S = 195, SPV_SHIFT_LEFT = 196, SPV_OR = 197, SPV_XOR = 198, SPV_AND = 199, SPV_CONTROL_BARRIER = 224,
  SPV_PHI = 245, SPV_LOOP_MERGE = 246, SPV_SELECTION_MERGE = 247, SPV_LABEL = 248, SPV_BRANCH = 249,
  SPV_BRANCH_IF = 250, SPV_RETURN = 253, SPV_RETURN_VALUE = 254, SPV_SU_DOT = 4452
};
enum spv_ext { SPV_EXT_TRUNC = 3, SPV_EXT_FLOOR = 8, SPV_EXT_SQRT = 31, SPV_EXT_FIND_U_MSB = 75 };  // GLSL.std.450
enum spv_capability {
  SPV_CAN_SHADER = 1, SPV_CAN_FLOAT16 = 9, SPV_CAN_FLOAT64 = 10, SPV_CAN_INT64 = 11, SPV_CAN_INT16 = 22,
  SPV_CAN_INT8 = 39,
  SPV_CAN_16BIT_STORAGE = 4433, SPV_CAN_8BIT_STORAGE = 4448, SPV_CAN_KEEP_DENORMALS = 4464, SPV_CAN_KEEP_NAN = 4466,
  SPV_CAN_ROUND = 4467, SPV_CAN_ADDRESS = 5347, SPV_CAN_DOT_PACKED = 6018, SPV_CAN_DOT = 6019
};
enum spv_mode { SPV_MODE_GROUP = 17, SPV_MODE_KEEP_DENORMALS = 4459, SPV_MODE_KEEP_NAN = 4461, SPV_MODE_ROUND = 4462 };
enum spv_class { SPV_IN_INPUT = 1, SPV_IN_GROUP = 4, SPV_IN_FUNCTION = 7, SPV_IN_PUSH = 9, SPV_IN_ADDRESS = 5349 };
enum spv_decoration {
  SPV_BLOCK = 2, SPV_BUILT_IN = 11, SPV_OFFSET = 35, SPV_NO_CONTRACTION = 42,
  // built-in values: number of groups; id of the group and of the work-item
  SPV_IS_GROUPS = 24, SPV_IS_GROUP = 26, SPV_IS_ITEM = 27
};
enum { SPV_VOLATILE = 1, SPV_ALIGNED = 2 };

// Parts of a module, in their order.
enum spv_part {
  SPV_CAPABILITIES, SPV_EXTENSIONS, SPV_IMPORTS, SPV_MODEL, SPV_ENTRY, SPV_MODES, SPV_NAMES, SPV_DECORATIONS,
  SPV_GLOBALS, SPV_HELPERS, SPV_VARIABLES /* of the kernel, in the first block of its function */, SPV_BODY, SPV_PARTS
};

typedef struct spv {
  arena *mem;
  VEC(uint32_t) parts[SPV_PARTS];
  enum spv_part at;                        // part in which values are made
  smap known;                              // words of a type, constant or capability -> its id
  spv_id next, ext;                        // ext: GLSL.std.450, once it is used
} spv;

void spv_init(spv *s, arena *mem);
void spv_free(spv *s);
void spv_finish(spv *s, str *out);         // appends the module's words

static inline spv_id spv_new(spv *s) { return s->next++; }
void spv_put(spv *s, enum spv_part part, enum spv_op op, size_t n, const uint32_t *operands);
#define SPV_PUT(s, part, op, ...) \
  spv_put(s, part, op, COUNT(((uint32_t[]){__VA_ARGS__})), (uint32_t[]){__VA_ARGS__})
// Words, then a text, then more words.
void spv_put_text(spv *s, enum spv_part part, enum spv_op op, size_t n, const uint32_t *before, const char *text,
                  size_t n_behind, const uint32_t *behind);
// Adds an instruction with a result here.
spv_id spv_make(spv *s, enum spv_op op, spv_id type, size_t n, const uint32_t *operands);
#define SPV_MAKE(s, op, type, ...) \
  spv_make(s, op, type, COUNT(((uint32_t[]){__VA_ARGS__})), (uint32_t[]){__VA_ARGS__})
spv_id spv_ext(spv *s, enum spv_ext what, spv_id type, spv_id x);

bool spv_can(spv *s, enum spv_capability what);    // adds a capability; false: it was already declared
spv_id spv_void(spv *s);
spv_id spv_bool(spv *s);
spv_id spv_uint(spv *s, int bytes);
spv_id spv_float(spv *s, int bytes);
spv_id spv_vector(spv *s, spv_id of, int n);
spv_id spv_array(spv *s, spv_id of, uint32_t n);
spv_id spv_pointer(spv *s, enum spv_class c, spv_id to);
spv_id spv_function_type(spv *s, spv_id result, size_t n, const spv_id *parameters);
spv_id spv_const_bool(spv *s, bool value);
spv_id spv_const(spv *s, int bytes, uint64_t value);             // of an integer type
spv_id spv_const_float(spv *s, int bytes, uint64_t bits);
static inline spv_id spv_u32(spv *s, uint32_t value) { return spv_const(s, 4, value); }
spv_id spv_global(spv *s, enum spv_class c, spv_id type);        // a variable of the module
spv_id spv_local(spv *s, spv_id type);                           // of the kernel
#endif
