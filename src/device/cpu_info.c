// Processor features by cpuid and their names: see cpu_info.h.
#include "device/cpu_info.h"
#include "base/os.h"
#include "base/env.h"
#include "device/kernel_set.h"
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#include <unistd.h>
#endif

struct feature { size_t offset; const char *llvm; unsigned leaf, sub; int reg; unsigned bit; int state, level; };
enum { EAX, EBX, ECX, EDX };
static const struct feature features_of_x86[] = {
#define F(field, llvm, leaf, sub, reg, bit, state, level) {offsetof(cpu_features, field), llvm, leaf, sub, reg, bit, \
  state, level},
  CPU_FEATURES(F)
#undef F
};
struct arm_feature { size_t offset; const char *llvm; int word; unsigned bit; int level; };
static const struct arm_feature arm_features[] = {
#define F(field, llvm, word, bit, level) {offsetof(cpu_features, field), llvm, word, bit, level},
  ARM_FEATURES(F)
#undef F
};
static const struct core { unsigned implementer, part; const char *name, *tune; } cores[] = {
#define F(implementer, part, name, tune) {implementer, part, name, tune},
  ARM_CORES(F)
#undef F
};
enum { LEVEL_MAX = 4 };
static const char *const levels[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"}, *const arm_levels[] = {
                                                                                         "armv8-a", "armv8.2-a",
                                                                                         "armv8.6-a"};

static bool x86_get(const cpu_features *c, const struct feature *f) {
  return *(const bool *)((const char *)c + f->offset);
}
static void x86_set(cpu_features *c, const struct feature *f, bool v) { *(bool *)((char *)c + f->offset) = v; }
static bool arm_get(const cpu_features *c, const struct arm_feature *f) {
  return *(const bool *)((const char *)c + f->offset);
}
static void arm_set(cpu_features *c, const struct arm_feature *f, bool v) { *(bool *)((char *)c + f->offset) = v; }

void cpu_add_core(cpu_features *c, uint64_t midr) {
  for (size_t i = c->model; i < COUNT(cores); i++)
    if (cores[i].implementer == (midr >> 24 & 0xff) && cores[i].part == (midr >> 4 & 0xfff)) c->model = (unsigned)i + 1;
}

const char *cpu_core_name(const cpu_features *c) { return c->arm && c->model ? cores[c->model - 1].name : NULL; }

#if defined(__aarch64__)
// Features of all cores that the system lists; if it lists none, of the current core.
static void find_cores(cpu_features *out) {
  char path[80];
  bool listed = false;
  for (long i = 0, n = sysconf(_SC_NPROCESSORS_CONF); i < n; i++) {
    unsigned long long midr;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/regs/identification/midr_el1", i);
    FILE *f = fopen(path, "re");
    if (!f) continue;                    // offline
    if (fscanf(f, "%llx", &midr) == 1) { cpu_add_core(out, midr); listed = true; }
    fclose(f);
  }
  if (listed || !(getauxval(AT_HWCAP) & HWCAP_CPUID)) return;
  uint64_t midr;
  __asm__("mrs %0, MIDR_EL1" : "=r"(midr));
  cpu_add_core(out, midr);
}
#endif

void cpu_detect(cpu_features *out) {
  *out = (cpu_features){0};
#if defined(__x86_64__)
  unsigned r[4], state = 0;
  if (!__get_cpuid(0, &r[EAX], &r[EBX], &r[ECX], &r[EDX])) return;
  out->amd = r[EBX] == signature_AMD_ebx && r[ECX] == signature_AMD_ecx;
  out->intel = r[EBX] == signature_INTEL_ebx && r[ECX] == signature_INTEL_ecx;
  if (!__get_cpuid(1, &r[EAX], &r[EBX], &r[ECX], &r[EDX])) return;
  unsigned family = r[EAX] >> 8 & 15;
  out->family = family == 15 ? family + (r[EAX] >> 20 & 255) : family;
  out->model = (r[EAX] >> 4 & 15) | (r[EAX] >> 16 & 15) << 4;
  if (r[ECX] >> 27 & 1) {       // registers that the system saves, in XCR0
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    if ((low & 6) == 6) state = 1;
    if ((low & 0xe6) == 0xe6) state = 2;
  }
  for (size_t i = 0; i < COUNT(features_of_x86); i++) {
    const struct feature *f = &features_of_x86[i];
    if (!__get_cpuid_count(f->leaf, f->sub, &r[EAX], &r[EBX], &r[ECX], &r[EDX])) continue;
    x86_set(out, f, (r[f->reg] >> f->bit & 1) && f->state <= (int)state);
  }
#elif defined(__aarch64__)
  out->arm = true;
  for (size_t i = 0; i < COUNT(arm_features); i++)
    arm_set(out, &arm_features[i],
            getauxval(arm_features[i].word == 1 ? AT_HWCAP : AT_HWCAP2) >> arm_features[i].bit & 1);
  find_cores(out);
#endif
}

// The highest level of x86-64 whose features are all present; `missing` (may be NULL) is the first missing feature.
static int x86_level(const cpu_features *have, int wanted, const char **missing) {
  int level = wanted;
  if (missing) *missing = NULL;
  for (size_t i = COUNT(features_of_x86); i-- > 0;)
    if (features_of_x86[i].level <= wanted && !x86_get(have, &features_of_x86[i])) {
      if (missing) *missing = features_of_x86[i].llvm;
      if (features_of_x86[i].level <= level) level = features_of_x86[i].level - 1;
    }
  return level;
}

// Instruction costs for scheduling. The newest processors use the name of an older relative that every supported LLVM
// knows.
static const char *tune_for(const cpu_features *c) {
  if (c->arm) return c->model ? cores[c->model - 1].tune : "";
  if (c->amd && c->family >= 0x19) return c->avx512f ? "znver4" : "znver3";
  if (c->amd && c->family == 0x17) return "znver2";
  if (c->intel && c->avx512f) return c->avx512bf16 ? "sapphirerapids" : "icelake-server";
  if (c->intel && c->avx2) return "skylake";
  return "";
}

// For descriptors: every machine of a family has "sse2" or "neon".
static bool has_feature(const void *features, const char *name) {
  const cpu_features *c = features;
  if (!strcmp(name, c->arm ? "neon" : "sse2")) return true;
  for (size_t i = 0; !c->arm && i < COUNT(features_of_x86); i++)
    if (!strcmp(features_of_x86[i].llvm, name)) return x86_get(c, &features_of_x86[i]);
  for (size_t i = 0; c->arm && i < COUNT(arm_features); i++)
    if (!strcmp(arm_features[i].llvm, name)) return arm_get(c, &arm_features[i]);
  return false;
}

static void add_feature(cpu_target *t, const char *name) {
  size_t n = strlen(t->features);
  n += (size_t)snprintf(t->features + n, sizeof t->features - n, "%s+%s", n ? "," : "", name);
  if (n >= sizeof t->features) die("cpu: the list of features has outgrown its buffer");
}

// Sapphire Rapids and Emerald Rapids: vdpbf16ps of 512 bits every second clock, beside two multiply-adds a clock.
static bool has_slow_bf16(const cpu_features *c) {
  return c->intel && c->avx512bf16 && c->family == 6 && (c->model == 0x8f || c->model == 0xcf);
}

// Derives the target from the features.
static void derive_target(cpu_target *t, int level) {
  const cpu_features *has = &t->has;
  if (has->arm) {
    snprintf(t->cpu, sizeof t->cpu, "generic");
    for (size_t i = 0; i < COUNT(arm_features); i++)
      if (arm_get(has, &arm_features[i])) add_feature(t, arm_features[i].llvm);
    if (OS_TAKES_X18) add_feature(t, "reserve-x18");
    t->vector_bits = 128;
    t->vector_registers = 32;
    t->fma = t->f16 = t->round = true;
    t->triple = "aarch64-unknown-linux-gnu";
  } else {
    snprintf(t->cpu, sizeof t->cpu, level < 2 ? "x86-64" : "x86-64-v%d", level);
    for (size_t i = 0; i < COUNT(features_of_x86); i++)
      if (x86_get(has, &features_of_x86[i]) && features_of_x86[i].level > level)
        add_feature(t, features_of_x86[i].llvm);
    t->vector_bits = level >= 4 ? 512 : has->avx2 ? 256 : 128;
    t->vector_registers = level >= 4 ? 32 : 16;
    t->fma = has->fma;
    t->f16 = has->f16c;
    t->round = has->sse4_1;
    t->triple = "x86_64-unknown-linux-gnu";
  }
  t->descriptors = descriptors_where(has_feature, has);
  t->slow_bf16 = has_slow_bf16(has);
  snprintf(t->key, sizeof t->key, "%s %s tune=%s bits=%d%s", t->cpu, t->features, t->tune, t->vector_bits,
           t->slow_bf16 ? " slow=bf16" : "");
}

static int arm_target_for(const char *spec, const cpu_features *have, cpu_target *out, error *err) {
  int level = 0;
  for (size_t i = 0; i < COUNT(arm_levels); i++) if (!strcmp(spec, arm_levels[i])) level = (int)i + 1;
  if (!level && strcmp(spec, "native"))
    return error_set(err, "WEFT_CPU: '%s' is not one of native, armv8-a, armv8.2-a, armv8.6-a", spec);
  out->has.arm = true;
  for (size_t i = 0; i < COUNT(arm_features); i++) {
    const struct arm_feature *f = &arm_features[i];
    if (level && f->level <= level && !arm_get(have, f))
      return error_set(err, "WEFT_CPU: this machine cannot run %s: it lacks %s", spec, f->llvm);
    arm_set(&out->has, f, arm_get(have, f) && (!level || f->level <= level));
  }
  out->has.model = have->model;
  if (!level) snprintf(out->tune, sizeof out->tune, "%s", tune_for(have));
  derive_target(out, level);
  return 0;
}

int cpu_target_for(const char *spec, const cpu_features *have, cpu_target *out, error *err) {
  *out = (cpu_target){0};
  if (have->arm) return arm_target_for(spec, have, out, err);
  if (!strcmp(spec, "native")) {
    int level = x86_level(have, LEVEL_MAX, NULL);
    if (level < 1) level = 1;
    out->has = *have;
    // parts of AVX-512 (or without the system's support) are not worth special cases elsewhere
    for (size_t i = 0; i < COUNT(features_of_x86); i++)
      if (level < 4 && features_of_x86[i].state == 2) x86_set(&out->has, &features_of_x86[i], false);
    if (!out->has.avx)
      for (size_t i = 0; i < COUNT(features_of_x86); i++)
        if (features_of_x86[i].state) x86_set(&out->has, &features_of_x86[i], false);
    snprintf(out->tune, sizeof out->tune, "%s", tune_for(&out->has));
    derive_target(out, level);
    return 0;
  }
  int level = 0;
  for (size_t i = 0; i < COUNT(levels); i++) if (!strcmp(spec, levels[i])) level = (int)i + 1;
  if (!level)
    return error_set(err, "WEFT_CPU: '%s' is not one of native, x86-64, x86-64-v2, x86-64-v3, x86-64-v4", spec);
  const char *missing;
  if (x86_level(have, level, &missing) < level)
    return error_set(err, "WEFT_CPU: this machine cannot run %s: it lacks %s", spec, missing);
  for (size_t i = 0; i < COUNT(features_of_x86); i++)
    x86_set(&out->has, &features_of_x86[i], features_of_x86[i].level <= level);
  derive_target(out, level);
  return 0;
}

// All features of a level's family: kernels are made for it and not run here.
static void have_all(const char *level, cpu_features *have) {
  bool arm = !strncmp(level, "armv", 4);
  if (arm != have->arm) *have = (cpu_features){.arm = arm};
  for (size_t i = 0; i < COUNT(features_of_x86) && !arm; i++) x86_set(have, &features_of_x86[i], true);
  for (size_t i = 0; i < COUNT(arm_features) && arm; i++) arm_set(have, &arm_features[i], true);
}

int cpu_target_from_env(cpu_target *out, error *err) {
  cpu_features have;
  const char *level = env_str(ENV_WEFT_CPU);
  cpu_detect(&have);
  if (kernel_set_collects() && strcmp(level, "native")) have_all(level, &have);
  return cpu_target_for(level, &have, out, err);
}
