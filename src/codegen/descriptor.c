// The table of dot-product instructions: see descriptor.h.
//
// x86. vpdpbusd does the whole operation. Older processors have pmaddubsw, which adds two neighbouring products in 16
// bits and saturates, and pmaddwd, which adds two neighbouring products of 16-bit numbers in 32 bits. pmaddubsw is used
// if it provably does not saturate; its sums are added in 16 bits as long as they fit, and pmaddwd with ones converts
// them to 32 bits. Otherwise masks and shifts widen even and odd bytes in place, and pmaddwd multiplies and adds.
//
// AArch64. udot and sdot take operands of one signedness; a code of at most seven bits is valid as both. usdot takes
// mixed operands. A code above 127 is reduced by 128, which is added back as 64 * b + 64 * b; codes that are stored
// with a sign need no such step (rows of SIGNED). Without these instructions products are computed in 16 bits if each
// of them fits, and added in 16 bits as long as the sums fit. smmla and usmmla compute the sums of two rows and two
// columns, of eight products each (codegen/dot_tiles.c).
//
// GPUs. dp4a works within one work-item (of NVPTX; the SPIR-V renderer has its own instruction for it). NVPTX also has
// mma, which 32 work-items execute together (codegen/mma.h). For F16 and BF16, mma adds in its own order with its own
// roundings; they differ from additions in sequence, and only another mma gives equal bits.
//
// BF16. Pairs of products are added in F32. vdpbf16ps and bfdot differ in rounding, and both flush subnormal numbers to
// zero. Other processors have no row: a conversion is a shift, and F32 multiply-add is as fast as any alternative. On
// some processors the row is slower than that (slow_bf16 of a target); it is used if reading weights is the limit.
#include "codegen/descriptor.h"
#include <string.h>

#define B "<{4n} x i8>"
#define P "<{4n} x i16>"                   // one product per byte
#define W "<{2n} x i16>"
#define D "<{n} x i32>"
#define H "<{2n} x i16>"                   // half of P
#define EVERY(type, v) " splat (" type " " v ")"

#define F "<{n} x float>"
#define BRAINS "<{2n} x bfloat>"

#define KIND DT_U8, DT_I8, DT_I32
#define SIGNED DT_I8, DT_I8, DT_I32, 128
#define BRAIN 2, DT_BF16, DT_BF16, DT_F32, 0, 0
#define HALVES(type) type, type, DT_F32, 0, 0, false

#define VPDPBUSD {"bitcast " B " $a to " D, "call " D " @llvm.x86.avx512.vpdpbusd.{bits}(" D " $acc, " D " $1, " D \
  " $b)"}
#define PMADDUBSW(name) {"bitcast " D " $b to " B, "call " W " @llvm.x86." name "(" B " $a, " B " $1)"}
#define PMADDWD(name, x, y) "call " D " @llvm.x86." name "(" W " " x ", " W " " y ")"
#define BY_ONES(name) {PMADDWD(name, "$a", EVERY("i16", "1")), "add " D " $acc, $1"}
#define WIDENED(name) { \
    "bitcast " B " $a to " W, "and " W " $1," EVERY("i16", "255"), "lshr " W " $1," EVERY("i16", "8"), \
    "bitcast " D " $b to " W, "shl " W " $4," EVERY("i16", "8"), "ashr " W " $5," EVERY("i16", "8"), \
    "ashr " W " $4," EVERY("i16", "8"), \
    PMADDWD(name, "$2", "$6"), PMADDWD(name, "$3", "$7"), "add " D " $8, $9", "add " D " $acc, $10"}

#define DOT(which, acc, x, y) "call " D " @llvm.aarch64.neon." which ".v4i32.v16i8(" D " " acc ", " B " " x ", " B \
  " " y ")"
#define PRODUCTS(widen_a) {"bitcast " D " $b to " B, widen_a " " B " $a to " P, "sext " B " $1 to " P, \
  "mul " P " $2, $3"}
#define ADD_PAIRS(x) "call " D " @llvm.aarch64.neon.saddlp.v4i32.v8i16(" H " " x ")"
#define ADD_FOURS { \
    "shufflevector " P " $a, " P " poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>", \
    "shufflevector " P " $a, " P " poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>", \
    ADD_PAIRS("$1"), ADD_PAIRS("$2"), "call " D " @llvm.aarch64.neon.addp.v4i32(" D " $3, " D " $4)", \
    "add " D " $acc, $5"}

// An instruction of one GPU work-item. Inline assembly, because the oldest supported LLVM has no name for it.
#define DP4A {"bitcast <4 x i8> $a to i32", \
  "call i32 asm \"dp4a.u32.s32 $$0, $$1, $$2, $$3;\", \"=r,r,r,r\"(i32 $1, i32 $b, i32 $acc) readnone nounwind " \
  "willreturn"}

#define PAIRS(name) {"bitcast " W " $a to " BRAINS, "bitcast " D " $b to " BRAINS, \
  "call " F " @llvm." name "(" F " $acc, " BRAINS " $1, " BRAINS " $2)"}

static const descriptor table[] = {
  {"avx512-vnni", "avx512vnni avx512bw", 1, 16, 4, KIND, 255, 0, false, VPDPBUSD, {0}},
  {"avx512-vnni-256", "avx512vnni avx512vl", 1, 8, 4, KIND, 255, 0, false, VPDPBUSD, {0}},
  {"avx512-vnni-128", "avx512vnni avx512vl", 1, 4, 4, KIND, 255, 0, false, VPDPBUSD, {0}},
  {"avx-vnni", "avxvnni avx2", 1, 8, 4, KIND, 255, 0, false, VPDPBUSD, {0}},
  {"avx-vnni-128", "avxvnni avx2", 1, 4, 4, KIND, 255, 0, false, VPDPBUSD, {0}},
  {"avx512-pairs", "avx512bw", 1, 16, 4, KIND, 127, 2, false, PMADDUBSW("avx512.pmaddubs.w.512"),
   BY_ONES("avx512.pmaddw.d.512")},
  {"avx512-wide", "avx512bw", 1, 16, 4, KIND, 255, 0, false, WIDENED("avx512.pmaddw.d.512"), {0}},
  {"avx2-pairs", "avx2", 1, 8, 4, KIND, 127, 2, false, PMADDUBSW("avx2.pmadd.ub.sw"), BY_ONES("avx2.pmadd.wd")},
  {"avx2-wide", "avx2", 1, 8, 4, KIND, 255, 0, false, WIDENED("avx2.pmadd.wd"), {0}},
  {"ssse3-pairs", "ssse3", 1, 4, 4, KIND, 127, 2, false, PMADDUBSW("ssse3.pmadd.ub.sw.128"), BY_ONES("sse2.pmadd.wd")},
  {"sse2-wide", "sse2", 1, 4, 4, KIND, 255, 0, false, WIDENED("sse2.pmadd.wd"), {0}},
  {"neon-i8mm", "i8mm", 1, 4, 4, KIND, 255, 0, true, {"bitcast " D " $b to " B, DOT("usdot", "$acc", "$a", "$1")}, {0}},
  {"neon-dotprod",
   "dotprod",
   1,
   4,
   4,
   KIND,
   127,
   0,
   true,
   {"bitcast " D " $b to " B, DOT("sdot", "$acc", "$a", "$1")},
   {0}},
  {"neon-dotprod-moved",
   "dotprod",
   1,
   4,
   4,
   KIND,
   255,
   0,
   true,
   {"bitcast " D " $b to " B, "xor " B " $a," EVERY("i8", "-128"), DOT("sdot", "$acc", "$2", "$1"),
    DOT("sdot", "$3", EVERY("i8", "64"), "$1"), DOT("sdot", "$4", EVERY("i8", "64"), "$1")},
   {0}},
  {"neon-dotprod-signs",
   "dotprod",
   1,
   4,
   4,
   SIGNED,
   0,
   true,
   {"bitcast " D " $b to " B, DOT("sdot", "$acc", "$a", "$1")},
   {0}},
  {"neon-signed", "neon", 1, 4, 4, KIND, 127, 1, false, PRODUCTS("sext"), ADD_FOURS},
  {"neon-signs", "neon", 1, 4, 4, SIGNED, 1, false, PRODUCTS("sext"), ADD_FOURS},
  {"neon", "neon", 1, 4, 4, KIND, 255, 1, false, PRODUCTS("zext"), ADD_FOURS},
  {"avx512-bf16", "avx512bf16", 1, 16, BRAIN, false, PAIRS("x86.avx512bf16.dpbf16ps.512"), {0}},
  {"avx512-bf16-256", "avx512bf16 avx512vl", 1, 8, BRAIN, false, PAIRS("x86.avx512bf16.dpbf16ps.256"), {0}},
  {"avx512-bf16-128", "avx512bf16 avx512vl", 1, 4, BRAIN, false, PAIRS("x86.avx512bf16.dpbf16ps.128"), {0}},
  {"neon-bf16", "bf16", 1, 4, BRAIN, true, PAIRS("aarch64.neon.bfdot.v4f32.v8bf16"), {0}},
  {"dp4a", "dp4a", 1, 1, 4, KIND, 255, 0, false, DP4A, {0}},
  {"mma-32", "mma", 16, 8, 32, KIND, 255, 0, false, {"mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32"}, {0}},
  {"mma-16", "mma", 16, 8, 16, KIND, 255, 0, false, {"mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32"}, {0}},
  {"mma-f16", "mma", 16, 8, 16, HALVES(DT_F16), {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"}, {0}},
  {"mma-bf16", "mma", 16, 8, 16, HALVES(DT_BF16), {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"}, {0}},
  {"neon-mmla",
   "i8mm",
   2,
   2,
   8,
   KIND,
   255,
   0,
   false,
   {"call " D " @llvm.aarch64.neon.usmmla.v4i32.v16i8(" D " $acc, " B " $a, " B " $b)"},
   {0}},
  {"neon-mmla-signs",
   "i8mm",
   2,
   2,
   8,
   SIGNED,
   0,
   false,
   {"call " D " @llvm.aarch64.neon.smmla.v4i32.v16i8(" D " $acc, " B " $a, " B " $b)"},
   {0}},
};
_Static_assert(COUNT(table) <= 64, "a descriptor_set is 64 bits");

const descriptor *descriptor_at(size_t i) { return i < COUNT(table) ? &table[i] : NULL; }

static bool has_all(const char *needs, bool (*has)(const void *, const char *), const void *machine) {
  while (*needs) {
    char name[32];
    size_t n = strcspn(needs, " ");
    die_if(n >= sizeof name, "descriptor: the feature '%s' has too long a name", needs);
    memcpy(name, needs, n);
    name[n] = 0;
    if (!has(machine, name)) return false;
    needs += n + (needs[n] == ' ');
  }
  return true;
}

descriptor_set descriptors_where(bool (*has)(const void *machine, const char *feature), const void *machine) {
  descriptor_set set = 0;
  for (size_t i = 0; i < COUNT(table); i++)
    if (has_all(table[i].needs, has, machine)) set |= (descriptor_set)1 << i;
  return set;
}

bool descriptors_need(descriptor_set set, const char *feature) {
  size_t n = strlen(feature);
  for (size_t i = 0; i < COUNT(table); i++)
    for (const char *at = table[i].needs; (set >> i & 1) && (at = strstr(at, feature)); at += n)
      if ((at == table[i].needs || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
  return false;
}

int64_t descriptor_steps(const descriptor *d, int64_t a_max) {
  return d->products ? 32767 / (d->products * max_i64(a_max, 1) * 128) : 1;
}

bool descriptors_take_signs(descriptor_set set) {
  for (size_t i = 0; i < COUNT(table); i++)
    if ((set >> i & 1) && table[i].m == 1 && table[i].a == DT_I8) return true;
  return false;
}

int64_t descriptor_most(const uop *a) {
  return dtype_is_int((enum dtype)a->dt) ? max_i64(a->vmax, -max_i64(a->vmin, -128)) : 0;
}

const descriptor *descriptor_find(descriptor_set set, enum dtype acc, int n, enum dtype a, int64_t a_max) {
  for (size_t i = 0; i < COUNT(table); i++) {
    const descriptor *d = &table[i];
    if ((set >> i & 1) && d->m == 1 && d->acc == acc && d->n == n &&
        (acc != DT_I32 || (d->a == a && a_max <= d->a_max && descriptor_steps(d, a_max) >= 1)))
      return d;
  }
  return NULL;
}

const descriptor *descriptor_tile(descriptor_set set, enum dtype a, int products) {
  for (size_t i = 0; i < COUNT(table); i++)
    if ((set >> i & 1) && table[i].m > 1 && table[i].a == a && table[i].k == products) return &table[i];
  return NULL;
}

int descriptor_lanes(descriptor_set set, enum dtype acc, int most, int64_t size) {
  int best = 0;
  for (size_t i = 0; i < COUNT(table); i++)
    if ((set >> i & 1) && table[i].m == 1 && table[i].acc == acc && table[i].n <= most && table[i].n > best &&
        size % table[i].n == 0)
      best = table[i].n;
  return best;
}
