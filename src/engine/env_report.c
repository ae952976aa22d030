// Describes this machine and what Weft uses of it, for `weft env`. Every fact comes from the code that acts on it, so
// the table shows actual behaviour.
#define _GNU_SOURCE
#include "weft.h"
#include "base/env.h"
#include "base/str.h"
#include "device/advice.h"
#include "device/cache.h"
#include "device/cgroup.h"
#include "device/cpu_info.h"
#include "device/llvm.h"
#include "device/machine.h"
#include "device/memory.h"
#include "device/team.h"
#include "engine/calibrate.h"
#include <stdlib.h>
#include <string.h>

static void copy_cut(char *out, size_t cap, const char *text) {
  size_t n = strnlen(text, cap - 1);
  memcpy(out, text, n);
  out[n] = 0;
}

// The name that Linux gives; on ARM, which has none, the core's name.
void weft_cpu_name(char *out, size_t cap) {
  cpu_features have;
  cpu_detect(&have);
  const char *core = cpu_core_name(&have);
  copy_cut(out, cap, core ? core : "");
  if (core) return;
  FILE *f = fopen("/proc/cpuinfo", "re");
  char line[512];
  while (f && fgets(line, sizeof line, f)) {
    if (strncmp(line, "model name", 10)) continue;
    char *text = strchr(line, ':');
    if (!text) continue;
    text += 1 + strspn(text + 1, " \t");
    text[strcspn(text, "\n")] = 0;
    copy_cut(out, cap, text);
    break;
  }
  if (f) fclose(f);
}

// Converts "x86-64-v3", "+gfni,+avxvnni" to "x86-64-v3 gfni avxvnni".
static void features_text(char *out, size_t cap, const cpu_target *t) {
  copy_cut(out, cap, t->cpu);
  size_t n = strlen(out);
  if (n && t->features[0] && n + 1 < cap) out[n++] = ' ';
  for (const char *c = t->features; *c && n + 1 < cap; c++) if (*c != '+') out[n++] = *c == ',' ? ' ' : *c;
  out[n] = 0;
}

// "0 (GB/s of a product: 0: 46.5; 2,t0: 43.7)"
static void add_table(str *s, const char *what, const calibration_table *l) {
  str_add(s, what);
  machine_print_prefetch(s, l->best);
  for (int i = 0; i < l->n; i++) {
    str_add(s, i ? "; " : " (GB/s of a product: ");
    machine_print_prefetch(s, l->tried[i].with);
    str_addf(s, ": %.1f", l->tried[i].gb_s);
  }
  if (l->n) str_addc(s, ')');
}

// The profile measured by an earlier run of a large model, or delivered with Weft.
static void look_at_profile(weft_env *out) {
  device *d;
  machine_profile p;
  str s = {0};
  if (*env_str(ENV_PREFETCH)) str_addf(&s, "%s (PREFETCH)", env_str(ENV_PREFETCH));
  else if (!device_open(0, 0, &d, NULL)) {
    if (calibration_known(d, &p)) {
      if (p.cpu_profile[0]) str_addf(&s, "known of %s; ", p.cpu_profile);
      add_table(&s, "for one token ", &p.one);
      add_table(&s, "; for many ", &p.many);
      out->barrier_ns = p.barrier_ns;
    }
    device_close(d);
  }
  copy_cut(out->prefetch, sizeof out->prefetch, str_c(&s));
  str_free(&s);
}

// "CPU: this machine's processors", a line for each.
static void look_at_devices(weft_env *out) {
  str s = {0};
  for (size_t i = 0;; i++) {
    const char *name;
    str found = {0};
    error why = {0};
    bool any = device_known(i, &name, &found, &why);
    if (any)
      str_addf(&s, "%s%s: %s%s", i ? "\n" : "", name, found.n ? "" : "none: ", found.n ? str_c(&found) : why.text);
    str_free(&found);
    if (!any) break;
  }
  copy_cut(out->devices, sizeof out->devices, str_c(&s));
  str_free(&s);
}

char *weft_env_advice(int threads) {
  str s = {0};
  str_add(&s, "");
  advice("", threads, team_default_threads(), &s);
  return s.at;
}

uint64_t weft_memory_available(void) {
  uint64_t left;
  return memory_available(&left, NULL) ? UINT64_MAX : left;
}

void weft_env_report(weft_env *out) {
  memset(out, 0, sizeof *out);
  weft_cpu_name(out->cpu, sizeof out->cpu);
  error err = {0};
  cpu_target cpu;
  if (cpu_target_from_env(&cpu, &err)) {
    copy_cut(out->features, sizeof out->features, err.text);
  } else {
    features_text(out->features, sizeof out->features, &cpu);
    out->vector_bits = cpu.vector_bits;
  }
  out->threads = team_default_threads();
  out->cores = team_cores();
  out->cpu_limit = cgroup_cpus("");
  uint64_t limit = cgroup_memory_limit("");
  out->memory_limit = limit == UINT64_MAX ? 0 : limit;
  advice_huge_pages("", out->huge_pages);
  if (memory_total(&out->memory_total, NULL)) out->memory_total = 0;
  if (memory_available(&out->memory_available, NULL)) out->memory_available = 0;
  str version = {0};
  error no_llvm = {0};
  out->has_llvm = !llvm_version(&version, &no_llvm);
  copy_cut(out->llvm, sizeof out->llvm, out->has_llvm ? str_c(&version) : no_llvm.text);
  str_free(&version);
  out->cache_bytes = machine_cache_bytes();
  look_at_profile(out);
  look_at_devices(out);
  cache *c = cache_open(NULL, weft_version());
  copy_cut(out->cache, sizeof out->cache, cache_is_on(c) ? cache_file(c) : "");
  cache_close(c);
}
