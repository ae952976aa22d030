// An assembler for SPIR-V modules: see spirv_module.h.
#include "render/spirv_module.h"
#include <string.h>

enum { MAGIC = 0x07230203, VERSION = 0x00010500, NO_GENERATOR = 0, GLSL450 = 1, PHYSICAL64 = 5348 };

void spv_init(spv *s, arena *mem) {
  *s = (spv){.mem = mem, .at = SPV_BODY, .next = 1};
  spv_can(s, SPV_CAN_SHADER);
  spv_can(s, SPV_CAN_ADDRESS);
  spv_put_text(s, SPV_EXTENSIONS, SPV_EXTENSION, 0, NULL, "SPV_KHR_physical_storage_buffer", 0, NULL);
  SPV_PUT(s, SPV_MODEL, SPV_MEMORY_MODEL, PHYSICAL64, GLSL450);
}

void spv_free(spv *s) {
  for (int i = 0; i < SPV_PARTS; i++) vec_free(&s->parts[i]);
  smap_free(&s->known);
}

void spv_finish(spv *s, str *out) {
  const uint32_t head[] = {MAGIC, VERSION, NO_GENERATOR, s->next, 0};
  str_addn(out, (const char *)head, sizeof head);
  for (int i = 0; i < SPV_PARTS; i++)
    str_addn(out, (const char *)s->parts[i].at, s->parts[i].n * sizeof *s->parts[i].at);
}

void spv_put(spv *s, enum spv_part part, enum spv_op op, size_t n, const uint32_t *operands) {
  die_if(n >= UINT16_MAX, "an instruction of SPIR-V with %zu operands", n);
  vec_push(&s->parts[part], (uint32_t)(n + 1) << 16 | (uint32_t)op);
  for (size_t i = 0; i < n; i++) vec_push(&s->parts[part], operands[i]);
}

void spv_put_text(spv *s, enum spv_part part, enum spv_op op, size_t n, const uint32_t *before, const char *text,
                  size_t n_behind, const uint32_t *behind) {
  size_t length = strlen(text), words = length / 4 + 1;
  uint32_t *all = ARENA_ARRAY(s->mem, uint32_t, n + words + n_behind);
  memset(all, 0, (n + words + n_behind) * sizeof *all);
  if (n) memcpy(all, before, n * sizeof *all);
  memcpy(all + n, text, length);
  if (n_behind) memcpy(all + n + words, behind, n_behind * sizeof *all);
  spv_put(s, part, op, n + words + n_behind, all);
}

spv_id spv_make(spv *s, enum spv_op op, spv_id type, size_t n, const uint32_t *operands) {
  uint32_t few[16], *all = n + 2 > COUNT(few) ? ARENA_ARRAY(s->mem, uint32_t, n + 2) : few;
  spv_id made = spv_new(s);
  all[0] = type;
  all[1] = made;
  memcpy(all + 2, operands, n * sizeof *all);
  spv_put(s, s->at, op, n + 2, all);
  return made;
}

spv_id spv_ext(spv *s, enum spv_ext what, spv_id type, spv_id x) {
  if (!s->ext) {
    s->ext = spv_new(s);
    spv_put_text(s, SPV_IMPORTS, SPV_EXT_INST_IMPORT, 1, &s->ext, "GLSL.std.450", 0, NULL);
  }
  return SPV_MAKE(s, SPV_EXT_INST, type, s->ext, (uint32_t)what, x);
}

// ---- what a module contains once ------------------------------------------------------------------------------------

// The id of the instruction with these words, made at first use; the id is operand `place`.
static spv_id known_as(spv *s, enum spv_part part, enum spv_op op, size_t place, size_t n, const uint32_t *operands) {
  uint32_t key[12] = {(uint32_t)op}, all[12];
  void *found = NULL;
  die_if(n + 2 > COUNT(key), "a type of SPIR-V with %zu operands", n);
  memcpy(key + 1, operands, n * sizeof *key);
  if (smap_get(&s->known, (const char *)key, (n + 1) * sizeof *key, &found)) return (spv_id)(uintptr_t)found;
  spv_id made = spv_new(s);
  memcpy(all, operands, place * sizeof *all);
  all[place] = made;
  memcpy(all + place + 1, operands + place, (n - place) * sizeof *all);
  spv_put(s, part, op, n + 1, all);
  uint32_t *kept = ARENA_ARRAY(s->mem, uint32_t, n + 1);
  memcpy(kept, key, (n + 1) * sizeof *kept);
  smap_set(&s->known, (const char *)kept, (n + 1) * sizeof *kept, (void *)(uintptr_t)made);
  return made;
}
#define TYPE(s, op, ...) \
  known_as(s, SPV_GLOBALS, op, 0, COUNT(((uint32_t[]){__VA_ARGS__})), (uint32_t[]){__VA_ARGS__})

bool spv_can(spv *s, enum spv_capability what) {
  const uint32_t *at = s->parts[SPV_CAPABILITIES].at;
  for (size_t i = 1; i < s->parts[SPV_CAPABILITIES].n; i += 2) if (at[i] == (uint32_t)what) return false;
  SPV_PUT(s, SPV_CAPABILITIES, SPV_CAPABILITY, (uint32_t)what);
  return true;
}

spv_id spv_void(spv *s) { return known_as(s, SPV_GLOBALS, SPV_TYPE_VOID, 0, 0, (const uint32_t[]){0}); }
spv_id spv_bool(spv *s) { return known_as(s, SPV_GLOBALS, SPV_TYPE_BOOL, 0, 0, (const uint32_t[]){0}); }

spv_id spv_uint(spv *s, int bytes) {
  if (bytes != 4) spv_can(s, bytes == 1 ? SPV_CAN_INT8 : bytes == 2 ? SPV_CAN_INT16 : SPV_CAN_INT64);
  return TYPE(s, SPV_TYPE_INT, (uint32_t)bytes * 8, 0);
}

spv_id spv_float(spv *s, int bytes) {
  if (bytes != 4) spv_can(s, bytes == 2 ? SPV_CAN_FLOAT16 : SPV_CAN_FLOAT64);
  return TYPE(s, SPV_TYPE_FLOAT, (uint32_t)bytes * 8);
}

spv_id spv_vector(spv *s, spv_id of, int n) { return n == 1 ? of : TYPE(s, SPV_TYPE_VECTOR, of, (uint32_t)n); }
spv_id spv_array(spv *s, spv_id of, uint32_t n) { return TYPE(s, SPV_TYPE_ARRAY, of, spv_u32(s, n)); }
spv_id spv_pointer(spv *s, enum spv_class c, spv_id to) { return TYPE(s, SPV_TYPE_POINTER, (uint32_t)c, to); }

spv_id spv_function_type(spv *s, spv_id result, size_t n, const spv_id *parameters) {
  uint32_t all[6] = {result};
  die_if(n >= COUNT(all), "a function of SPIR-V with %zu parameters", n);
  if (n) memcpy(all + 1, parameters, n * sizeof *all);
  return known_as(s, SPV_GLOBALS, SPV_TYPE_FUNCTION, 0, n + 1, all);
}

spv_id spv_const_bool(spv *s, bool value) {
  const uint32_t type = spv_bool(s);
  return known_as(s, SPV_GLOBALS, value ? SPV_CONSTANT_TRUE : SPV_CONSTANT_FALSE, 1, 1, &type);
}

static spv_id const_bits(spv *s, spv_id type, int bytes, uint64_t bits) {
  const uint32_t words[] = {type, (uint32_t)(bytes < 4 ? bits & ((1u << 8 * bytes) - 1) : bits),
                            (uint32_t)(bits >> 32)};
  return known_as(s, SPV_GLOBALS, SPV_CONSTANT, 1, bytes == 8 ? 3 : 2, words);
}
spv_id spv_const(spv *s, int bytes, uint64_t value) { return const_bits(s, spv_uint(s, bytes), bytes, value); }
spv_id spv_const_float(spv *s, int bytes, uint64_t bits) { return const_bits(s, spv_float(s, bytes), bytes, bits); }

spv_id spv_global(spv *s, enum spv_class c, spv_id type) {
  spv_id made = spv_new(s);
  SPV_PUT(s, SPV_GLOBALS, SPV_VARIABLE, spv_pointer(s, c, type), made, (uint32_t)c);
  return made;
}

spv_id spv_local(spv *s, spv_id type) {
  spv_id made = spv_new(s);
  SPV_PUT(s, SPV_VARIABLES, SPV_VARIABLE, spv_pointer(s, SPV_IN_FUNCTION, type), made, SPV_IN_FUNCTION);
  return made;
}
