// Processor features by cpuid and their names: see cpu_info.h.
#include "device/cpu_info.h"
#include "base/env.h"
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

struct feature { size_t offset; const char *llvm; unsigned leaf, sub; int reg; unsigned bit; int state, level; };
enum { EAX, EBX, ECX, EDX };
static const struct feature features[] = {
#define F(field, llvm, leaf, sub, reg, bit, state, level) {offsetof(cpu_features, field), llvm, leaf, sub, reg, bit, state, level},
  CPU_FEATURES(F)
#undef F
};
enum { LEVEL_MAX = 4 };

static bool get(const cpu_features *c, const struct feature *f) { return *(const bool *)((const char *)c + f->offset); }
static void set(cpu_features *c, const struct feature *f, bool v) { *(bool *)((char *)c + f->offset) = v; }

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
  if (r[ECX] >> 27 & 1) {       // the registers that the system saves, in XCR0
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    (void)high;
    if ((low & 6) == 6) state = 1;
    if ((low & 0xe6) == 0xe6) state = 2;
  }
  for (size_t i = 0; i < COUNT(features); i++) {
    const struct feature *f = &features[i];
    if (!__get_cpuid_count(f->leaf, f->sub, &r[EAX], &r[EBX], &r[ECX], &r[EDX])) continue;
    set(out, f, (r[f->reg] >> f->bit & 1) && f->state <= (int)state);
  }
#endif
}

// The highest level of x86-64 whose features are all there; `missing` (may be NULL) is the first one that is not.
static int level_of(const cpu_features *have, int wanted, const char **missing) {
  int level = wanted;
  if (missing) *missing = NULL;
  for (size_t i = COUNT(features); i-- > 0;)
    if (features[i].level <= wanted && !get(have, &features[i])) {
      if (missing) *missing = features[i].llvm;
      if (features[i].level <= level) level = features[i].level - 1;
    }
  return level;
}

// Instruction costs to plan by.  The newest processors take the name of an older relative that every supported LLVM knows.
static const char *tune_for(const cpu_features *c) {
  if (c->amd && c->family >= 0x19) return c->avx512f ? "znver4" : "znver3";
  if (c->amd && c->family == 0x17) return "znver2";
  if (c->intel && c->avx512f) return c->avx512bf16 ? "sapphirerapids" : "icelake-server";
  if (c->intel && c->avx2) return "skylake";
  return "";
}

static void finish(cpu_target *t, int level) {
  const cpu_features *has = &t->has;
#if defined(__x86_64__)
  snprintf(t->cpu, sizeof t->cpu, level < 2 ? "x86-64" : "x86-64-v%d", level);
#else
  snprintf(t->cpu, sizeof t->cpu, "generic");
#endif
  size_t n = 0;
  t->features[0] = 0;
  for (size_t i = 0; i < COUNT(features); i++)
    if (get(has, &features[i]) && features[i].level > level)
      n += (size_t)snprintf(t->features + n, sizeof t->features - n, "%s+%s", n ? "," : "", features[i].llvm);
  if (n >= sizeof t->features) die("cpu: the list of features has outgrown its buffer");
  t->vector_bits = level >= 4 ? 512 : has->avx2 ? 256 : 128;
  snprintf(t->key, sizeof t->key, "%s %s tune=%s bits=%d", t->cpu, t->features, t->tune, t->vector_bits);
}

static int parse_level(const char *spec) {
  static const char *const names[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  for (size_t i = 0; i < COUNT(names); i++) if (!strcmp(spec, names[i])) return (int)i + 1;
  return 0;
}

int cpu_target_for(const char *spec, const cpu_features *have, cpu_target *out, error *err) {
  *out = (cpu_target){0};
  if (!strcmp(spec, "native")) {
    int level = level_of(have, LEVEL_MAX, NULL);
    if (level < 1) level = 1;
    out->has = *have;
    // Some of AVX-512 without the rest (or without the system's support) is not worth a case of its own anywhere else.
    for (size_t i = 0; i < COUNT(features); i++) if (level < 4 && features[i].state == 2) set(&out->has, &features[i], false);
    if (!out->has.avx) for (size_t i = 0; i < COUNT(features); i++) if (features[i].state) set(&out->has, &features[i], false);
    snprintf(out->tune, sizeof out->tune, "%s", tune_for(&out->has));
    finish(out, level);
    return 0;
  }
#if defined(__x86_64__)
  int level = parse_level(spec);
  if (!level) return error_set(err, "WEFT_CPU: '%s' is not one of native, x86-64, x86-64-v2, x86-64-v3, x86-64-v4", spec);
  const char *missing;
  if (level_of(have, level, &missing) < level) return error_set(err, "WEFT_CPU: this machine cannot run %s: it lacks %s", spec, missing);
  for (size_t i = 0; i < COUNT(features); i++) set(&out->has, &features[i], features[i].level <= level);
  finish(out, level);
  return 0;
#else
  (void)parse_level;
  return error_set(err, "WEFT_CPU: '%s' is not native, the only choice on this processor family", spec);
#endif
}

int cpu_target_from_env(cpu_target *out, error *err) {
  cpu_features have;
  cpu_detect(&have);
  return cpu_target_for(env_str(ENV_WEFT_CPU), &have, out, err);
}
