// Profiles that come with Weft: see shipped.h.
#include "engine/shipped.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "device/machine.h"

// The build lists the files: F(name, path).
#include "engine/shipped_files.h"

#define F(name, path) \
  __asm__(".section .rodata\n.globl weft_tunings_" #name "\nweft_tunings_" #name ":\n.incbin \"" path \
          "\"\n.globl weft_tunings_" #name "_end\nweft_tunings_" #name "_end:\n.byte 0\n.previous\n"); \
  extern const char weft_tunings_##name[], weft_tunings_##name##_end[];
SHIPPED_FILES(F)
#undef F

static const struct { const char *at, *end; } files[] = {
#define F(name, path) {weft_tunings_##name, weft_tunings_##name##_end},
  SHIPPED_FILES(F)
#undef F
};

const char *shipped_at(size_t i, size_t *n) {
  if (i >= COUNT(files)) return NULL;
  *n = (size_t)(files[i].end - files[i].at);
  return files[i].at;
}

static bool is_model(const json_t *ranges, unsigned model) {
  bool is = false;
  for (size_t i = 0; i < json_array_size(ranges); i++) {
    const json_t *r = json_array_get(ranges, i);
    is |= model >= json_integer_value(json_array_get(r, 0)) && model <= json_integer_value(json_array_get(r, 1));
  }
  return is;
}

static bool take_speeds(const json_t *speeds, machine_profile *out) {
  const char *with;
  json_t *gb_s;
  json_object_foreach((json_t *)(uintptr_t)speeds, with, gb_s) {
    if (out->n == LEARN_WAYS || !machine_parse_prefetch(with, &out->tried[out->n].with)) return false;
    double v = json_number_value(gb_s);
    if (!(v > 0 && isfinite(v))) return false;
    out->tried[out->n++].gb_s = v;
  }
  return out->n > 0;
}

int shipped_read(const char *json, size_t n, const cpu_features *cpu, int vector_bits, int llvm, char *name,
                 machine_profile *out, error *err) {
  json_error_t at;
  const char *called, *vendor, *best;
  int family, vectors, version;
  json_t *models, *speeds, *all = json_loadb(json, n, JSON_REJECT_DUPLICATES, &at);
  *out = (machine_profile){0};
  *name = 0;
  if (!all) return error_set(err, "line %d: %s", at.line, at.text);
  if (json_unpack_ex(all, &at, JSON_STRICT, "{s:s, s:s, s:i, s:o, s:i, s:i, s:s, s:F, s:o}", "name", &called, "vendor",
                     &vendor, "family", &family, "models", &models, "vectors", &vectors, "llvm", &version, "prefetch",
                     &best, "barrier_ns", &out->barrier_ns, "gb_s", &speeds))
    error_set(err, "%s", at.text);
  else if (strlen(called) > 31 || (strcmp(vendor, "amd") && strcmp(vendor, "intel")))
    error_set(err, "name or vendor: '%.40s', '%.40s'", called, vendor);
  else if (!machine_parse_prefetch(best, &out->best)) error_set(err, "prefetch: '%.40s'", best);
  else if (!take_speeds(speeds, out)) error_set(err, "gb_s: not a speed for each way");
  bool bad = err->text[0];
  bool is_vendor = !bad && !cpu->arm && (!strcmp(vendor, "amd") ? cpu->amd : cpu->intel);
  if (is_vendor && cpu->family == (unsigned)family && is_model(models, cpu->model) && vectors == vector_bits &&
      version == llvm)
    snprintf(name, 32, "%s", called);
  json_decref(all);
  return bad ? -1 : 0;
}

bool shipped_find(const cpu_features *cpu, int vector_bits, int llvm, char *name, machine_profile *out) {
  size_t n;
  const char *text;
  for (size_t i = 0; (text = shipped_at(i, &n)); i++) {
    error err = {0};
    if (!shipped_read(text, n, cpu, vector_bits, llvm, name, out, &err) && *name) return true;
  }
  return false;
}
