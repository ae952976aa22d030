// Recognises lookup tables written as selections: see choice.h.
#include "render/choice.h"

#define BYTES "<{4n} x i8>"
#define CALL(name) {"call " BYTES " @llvm." name "(" BYTES " $b, " BYTES " $a)", NULL}

static const choice_row rows[] = {
  {"avx512bw", 16, CALL("x86.avx512.pshuf.b.512")},
  {"avx2", 8, CALL("x86.avx2.pshuf.b")},
  {"ssse3", 4, CALL("x86.ssse3.pshuf.b.128")},
  {"neon", 4, CALL("aarch64.neon.tbl1.v16i8")},
};

const choice_row *choice_find(descriptor_set machine, int lanes) {
  for (size_t i = 0; i < COUNT(rows); i++)
    if (lanes % (4 * rows[i].words) == 0 && descriptors_need(machine, rows[i].needs)) return &rows[i];
  return NULL;
}

enum { MIN_SELECTIONS = 8 };

// The state of the walk: the value whose bits select, the bits tested, the number of selections.
typedef struct found { const uop *code; unsigned bits; int selections; } found;

static bool is_entry(const uop *u) { return uop_unsplat(u)->op == OP_CONST; }

// The bit that a condition tests: (value & 1 << bit) != 0
static bool tested_bit(const uop *cond, const uop **value, int *bit) {
  for (int i = 0; cond->op == OP_CMPNE && i < 2; i++) {
    const uop *masked = cond->src[i], *zero = uop_unsplat(cond->src[1 - i]);
    if (masked->op != OP_AND || zero->op != OP_CONST || zero->a) continue;
    for (int j = 0; j < 2; j++) {
      const uop *mask = uop_unsplat(masked->src[j]);
      if (mask->op != OP_CONST || mask->a < 1 || mask->a > 128 || mask->a & (mask->a - 1)) continue;
      *value = masked->src[1 - j];
      *bit = __builtin_ctzll((unsigned long long)mask->a);
      return true;
    }
  }
  return false;
}

static bool look_through(const uop *u, found *f, int depth) {
  const uop *value;
  int bit;
  if (is_entry(u)) return true;
  if (u->op != OP_WHERE || !depth || !tested_bit(u->src[0], &value, &bit) || (f->code && f->code != value))
    return false;
  f->code = value;
  f->bits |= 1u << bit;
  f->selections++;
  return look_through(u->src[1], f, depth - 1) && look_through(u->src[2], f, depth - 1);
}

static uint8_t entry(const uop *u, unsigned number) {
  const uop *value;
  int bit;
  while (!is_entry(u)) u = u->src[tested_bit(u->src[0], &value, &bit) && number >> bit & 1 ? 1 : 2];
  return (uint8_t)uop_unsplat(u)->a;
}

bool choice_of(const uop *u, choice *out) {
  found f = {0};
  if (dtype_size((enum dtype)u->dt) != 1 || u->dt == DT_BOOL || !look_through(u, &f, 4)) return false;
  if (f.selections < MIN_SELECTIONS || dtype_size((enum dtype)f.code->dt) != 1 || f.code->lanes != u->lanes)
    return false;
  int shift = __builtin_ctz(f.bits) < 4 ? __builtin_ctz(f.bits) : 4;
  if (f.bits >> shift > 15) return false;
  *out = (choice){.code = f.code, .shift = shift};
  for (unsigned i = 0; i < 8; i++) {
    out->low |= (uint64_t)entry(u, i << shift) << 8 * i;
    out->high |= (uint64_t)entry(u, (i + 8) << shift) << 8 * i;
  }
  return true;
}
