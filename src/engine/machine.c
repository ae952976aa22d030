// What this machine is and what Weft will use of it, for `weft env`: every fact comes from the folder that acts on it, so
// that the table shows what is so rather than what should be.
#define _GNU_SOURCE
#include "weft.h"
#include "base/str.h"
#include "device/cache.h"
#include "device/cpu_info.h"
#include "device/llvm.h"
#include "device/memory.h"
#include "device/team.h"
#include <stdlib.h>
#include <string.h>

static void copy_text(char *out, size_t cap, const char *text) {
  size_t n = strnlen(text, cap - 1);
  memcpy(out, text, n);
  out[n] = 0;
}

// The name that Linux gives; ARM machines give none.
void weft_cpu_name(char *out, size_t cap) {
  copy_text(out, cap, "");
  FILE *f = fopen("/proc/cpuinfo", "re");
  char line[512];
  while (f && fgets(line, sizeof line, f)) {
    if (strncmp(line, "model name", 10)) continue;
    char *text = strchr(line, ':');
    if (!text) continue;
    text += 1 + strspn(text + 1, " \t");
    text[strcspn(text, "\n")] = 0;
    copy_text(out, cap, text);
    break;
  }
  if (f) fclose(f);
}

// "x86-64-v3", "+gfni,+avxvnni" as "x86-64-v3 gfni avxvnni".
static void features_text(char *out, size_t cap, const cpu_target *t) {
  copy_text(out, cap, t->cpu);
  size_t n = strlen(out);
  if (n && t->features[0] && n + 1 < cap) out[n++] = ' ';
  for (const char *c = t->features; *c && n + 1 < cap; c++) if (*c != '+') out[n++] = *c == ',' ? ' ' : *c;
  out[n] = 0;
}

void weft_machine_look(weft_machine *out) {
  memset(out, 0, sizeof *out);
  weft_cpu_name(out->cpu, sizeof out->cpu);
  error err = {0};
  cpu_target target;
  if (cpu_target_from_env(&target, &err)) {
    copy_text(out->features, sizeof out->features, err.text);
  } else {
    features_text(out->features, sizeof out->features, &target);
    out->vector_bits = target.vector_bits;
  }
  out->threads = team_default_threads();
  if (memory_total(&out->memory_total, NULL)) out->memory_total = 0;
  if (memory_available(&out->memory_available, NULL)) out->memory_available = 0;
  str version = {0};
  error no_llvm = {0};
  out->has_llvm = !llvm_version(&version, &no_llvm);
  copy_text(out->llvm, sizeof out->llvm, out->has_llvm ? str_c(&version) : no_llvm.text);
  str_free(&version);
  cache *c = cache_open(NULL, weft_version());
  copy_text(out->cache, sizeof out->cache, cache_is_on(c) ? cache_file(c) : "");
  cache_close(c);
}
