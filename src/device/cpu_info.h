// cpu_info: the instructions that kernels may use: what this machine has, what WEFT_CPU allows, and LLVM's names for
// them.
//
// Features come from the processor (x86-64, with a check that the system saves its registers) or from the system
// (AArch64), never from LLVM, so that a start without compilation does not load LLVM. One table per family lists the
// features. Both tables exist on every machine, so that tests can make code for the other family.
#ifndef WEFT_DEVICE_CPU_INFO_H
#define WEFT_DEVICE_CPU_INFO_H
#include "codegen/descriptor.h"
#include "render/render.h"

// field, LLVM's name, cpuid leaf, subleaf, register, bit, state that the system must save (0 none, 1 AVX, 2 AVX-512),
// level of x86-64 that includes it (5: none). Every supported LLVM must know the names; it prints a message for unknown
// ones.
#define CPU_FEATURES(F) \
  F(sse3,         "sse3",            1,           0, ECX, 0,  0, 2) \
  F(ssse3,        "ssse3",           1,           0, ECX, 9,  0, 2) \
  F(cx16,         "cx16",            1,           0, ECX, 13, 0, 2) \
  F(sse4_1,       "sse4.1",          1,           0, ECX, 19, 0, 2) \
  F(sse4_2,       "sse4.2",          1,           0, ECX, 20, 0, 2) \
  F(popcnt,       "popcnt",          1,           0, ECX, 23, 0, 2) \
  F(sahf,         "sahf",            0x80000001u, 0, ECX, 0,  0, 2) \
  F(avx,          "avx",             1,           0, ECX, 28, 1, 3) \
  F(f16c,         "f16c",            1,           0, ECX, 29, 1, 3) \
  F(fma,          "fma",             1,           0, ECX, 12, 1, 3) \
  F(movbe,        "movbe",           1,           0, ECX, 22, 0, 3) \
  F(bmi,          "bmi",             7,           0, EBX, 3,  0, 3) \
  F(avx2,         "avx2",            7,           0, EBX, 5,  1, 3) \
  F(bmi2,         "bmi2",            7,           0, EBX, 8,  0, 3) \
  F(lzcnt,        "lzcnt",           0x80000001u, 0, ECX, 5,  0, 3) \
  F(avx512f,      "avx512f",         7,           0, EBX, 16, 2, 4) \
  F(avx512dq,     "avx512dq",        7,           0, EBX, 17, 2, 4) \
  F(avx512cd,     "avx512cd",        7,           0, EBX, 28, 2, 4) \
  F(avx512bw,     "avx512bw",        7,           0, EBX, 30, 2, 4) \
  F(avx512vl,     "avx512vl",        7,           0, EBX, 31, 2, 4) \
  F(avx512ifma,   "avx512ifma",      7,           0, EBX, 21, 2, 5) \
  F(avx512vbmi,   "avx512vbmi",      7,           0, ECX, 1,  2, 5) \
  F(avx512vbmi2,  "avx512vbmi2",     7,           0, ECX, 6,  2, 5) \
  F(avx512vnni,   "avx512vnni",      7,           0, ECX, 11, 2, 5) \
  F(avx512bitalg, "avx512bitalg",    7,           0, ECX, 12, 2, 5) \
  F(avx512popcnt, "avx512vpopcntdq", 7,           0, ECX, 14, 2, 5) \
  F(avx512fp16,   "avx512fp16",      7,           0, EDX, 23, 2, 5) \
  F(avx512bf16,   "avx512bf16",      7,           1, EAX, 5,  2, 5) \
  F(gfni,         "gfni",            7,           0, ECX, 8,  1, 5) \
  F(avxvnni,      "avxvnni",         7,           1, EAX, 4,  1, 5)

// field, LLVM's name, word (AT_HWCAP 1, AT_HWCAP2 2) and bit, lowest level that has it: 2 armv8.2-a as used here (with
// what most of its processors have), 3 armv8.6-a, 4 none.
#define ARM_FEATURES(F) \
  F(fphp,         "fullfp16",        1, 9,  2) \
  F(asimddp,      "dotprod",         1, 20, 2) \
  F(i8mm,         "i8mm",            2, 13, 3) \
  F(bf16,         "bf16",            2, 14, 3)

// AArch64 cores: implementer and part bits of MIDR_EL1, name, LLVM's name for scheduling costs. If a machine has
// several kinds, the last one in this list counts: the largest.
#define ARM_CORES(F) \
  F(0x41, 0xd04, "Arm Cortex-A35",   "cortex-a35") \
  F(0x41, 0xd03, "Arm Cortex-A53",   "cortex-a53") \
  F(0x41, 0xd05, "Arm Cortex-A55",   "cortex-a55") \
  F(0x41, 0xd46, "Arm Cortex-A510",  "cortex-a510") \
  F(0x41, 0xd80, "Arm Cortex-A520",  "cortex-a520") \
  F(0x41, 0xd07, "Arm Cortex-A57",   "cortex-a57") \
  F(0x41, 0xd08, "Arm Cortex-A72",   "cortex-a72") \
  F(0x41, 0xd09, "Arm Cortex-A73",   "cortex-a73") \
  F(0x41, 0xd0a, "Arm Cortex-A75",   "cortex-a75") \
  F(0x41, 0xd0b, "Arm Cortex-A76",   "cortex-a76") \
  F(0x41, 0xd0d, "Arm Cortex-A77",   "cortex-a77") \
  F(0x41, 0xd41, "Arm Cortex-A78",   "cortex-a78") \
  F(0x41, 0xd42, "Arm Cortex-A78AE", "cortex-a78ae") \
  F(0x41, 0xd4b, "Arm Cortex-A78C",  "cortex-a78c") \
  F(0x41, 0xd47, "Arm Cortex-A710",  "cortex-a710") \
  F(0x41, 0xd4d, "Arm Cortex-A715",  "cortex-a715") \
  F(0x41, 0xd81, "Arm Cortex-A720",  "cortex-a720") \
  F(0x41, 0xd44, "Arm Cortex-X1",    "cortex-x1") \
  F(0x41, 0xd48, "Arm Cortex-X2",    "cortex-x2") \
  F(0x41, 0xd4e, "Arm Cortex-X3",    "cortex-x3") \
  F(0x41, 0xd82, "Arm Cortex-X4",    "cortex-x4") \
  F(0x41, 0xd0c, "Arm Neoverse N1",  "neoverse-n1") \
  F(0x41, 0xd49, "Arm Neoverse N2",  "neoverse-n2") \
  F(0x41, 0xd40, "Arm Neoverse V1",  "neoverse-v1") \
  F(0x41, 0xd4f, "Arm Neoverse V2",  "neoverse-v2") \
  F(0x46, 0x001, "Fujitsu A64FX",    "a64fx") \
  F(0xc0, 0xac3, "Ampere-1",         "ampere1") \
  F(0xc0, 0xac4, "Ampere-1A",        "ampere1a") \
  F(0x61, 0x022, "Apple M1",         "apple-m1") \
  F(0x61, 0x023, "Apple M1",         "apple-m1") \
  F(0x61, 0x024, "Apple M1 Pro",     "apple-m1") \
  F(0x61, 0x025, "Apple M1 Pro",     "apple-m1") \
  F(0x61, 0x028, "Apple M1 Max",     "apple-m1") \
  F(0x61, 0x029, "Apple M1 Max",     "apple-m1") \
  F(0x61, 0x032, "Apple M2",         "apple-m2") \
  F(0x61, 0x033, "Apple M2",         "apple-m2") \
  F(0x61, 0x034, "Apple M2 Pro",     "apple-m2") \
  F(0x61, 0x035, "Apple M2 Pro",     "apple-m2") \
  F(0x61, 0x038, "Apple M2 Max",     "apple-m2") \
  F(0x61, 0x039, "Apple M2 Max",     "apple-m2")

typedef struct cpu_features {
#define F(field, llvm_name, leaf, sub, reg, bit, state, level) bool field;
  CPU_FEATURES(F)
#undef F
  bool arm;                             // AArch64: none of the above features, but the following
#define F(field, llvm_name, word, bit, level) bool field;
  ARM_FEATURES(F)
#undef F
  bool amd, intel;
  unsigned family, model;               // AArch64: 0 and a core's index in ARM_CORES, from 1; 0: unknown
} cpu_features;

void cpu_detect(cpu_features *out);
void cpu_add_core(cpu_features *c, uint64_t midr);         // adds a core with this MIDR_EL1
const char *cpu_core_name(const cpu_features *c);          // name of an AArch64 core; NULL: unknown, or another family

typedef struct cpu_target {
  cpu_features has;                     // allowed for kernels: a subset of the machine's features
  int vector_bits;                      // widest vector worth using: 128, 256 or 512
  int vector_registers;
  // single instructions for multiply-add, half to and from single precision, rounding
  bool fma, f16, round;
  descriptor_set descriptors;           // dot-product instructions
  bool slow_bf16;                       // those of BF16 take longer than multiply-adds of F32
  const char *triple;                   // LLVM's name of the processor family and system
  char cpu[24], features[320];          // LLVM's cpu name and feature list ("+f16c,+fma"), for llvm_compile
  // value of the function attribute "tune-cpu"; "" for the default
  char tune[24];
  char key[400];                        // all of the above as one line, equal in every run: part of cache keys
} cpu_target;

// `spec` is native or a level of the family of `have`: x86-64, x86-64-v2, x86-64-v3, x86-64-v4; armv8-a, armv8.2-a
// (with dotprod), armv8.6-a (with i8mm). Unknown names, and levels above `have`, are errors whose message lists the
// valid names or the first missing feature.
int cpu_target_for(const char *spec, const cpu_features *have, cpu_target *out, error *err);
int cpu_target_from_env(cpu_target *out, error *err);      // WEFT_CPU on this machine
// the part that renderers need; its texts belong to t
static inline render_options cpu_render_options(const cpu_target *t) {
  return (render_options){.cpu = t->cpu, .features = t->features, .tune = t->tune, .vector_bits = t->vector_bits,
                          .descriptors = t->descriptors, .lacks_halves = !t->f16};
}
#endif
