// CPU profiles that come with Weft: see cpu_profiles.h.
#include "engine/cpu_profiles.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "device/machine.h"

// The build generates the list of files: F(name, path).
#include "base/embed.h"
#include "engine/cpu_profile_files.h"

#define F(name, path) EMBED(weft_tunings_##name, path);
CPU_PROFILE_FILES(F)
#undef F

static const struct { const char *at, *end; } files[] = {
#define F(name, path) {weft_tunings_##name, weft_tunings_##name##_end},
  CPU_PROFILE_FILES(F)
#undef F
};

const char *cpu_profiles_at(size_t i, size_t *n) {
  if (i >= COUNT(files)) return NULL;
  *n = (size_t)(files[i].end - files[i].at);
  return files[i].at;
}

// [[first, last], ...]; false: invalid.
static bool take_models(const json_t *ranges, unsigned model, bool *is) {
  *is = false;
  for (size_t i = 0; i < json_array_size(ranges); i++) {
    const json_t *r = json_array_get(ranges, i), *first = json_array_get(r, 0), *last = json_array_get(r, 1);
    if (json_array_size(r) != 2 || !json_is_integer(first) || !json_is_integer(last)) return false;
    *is |= model >= json_integer_value(first) && model <= json_integer_value(last);
  }
  return json_array_size(ranges) > 0;
}

static bool take_speeds(const json_t *speeds, calibration_table *out) {
  const char *with;
  json_t *gb_s;
  json_object_foreach((json_t *)(uintptr_t)speeds, with, gb_s) {
    if (out->n == CALIBRATION_VARIANTS || !machine_parse_prefetch(with, &out->tried[out->n].with)) return false;
    double v = json_number_value(gb_s);
    if (!(v > 0 && isfinite(v))) return false;
    out->tried[out->n++].gb_s = v;
  }
  return out->n > 0;
}

int cpu_profiles_read(const char *json, size_t n, const cpu_features *cpu, int vector_bits, int llvm, char *name,
                 machine_profile *out, error *err) {
  json_error_t at;
  const char *called, *vendor, *best, *best_many;
  int family, vectors, version, r = 0;
  bool is_model;
  json_t *models, *speeds, *speeds_many, *all = json_load(json, n, JSON_REJECT_DUPLICATES, &at);
  *out = (machine_profile){0};
  *name = 0;
  if (!all) return error_set(err, "line %d: %s", at.line, at.text);
  if (json_unpack_ex(all, &at, JSON_STRICT, "{s:s, s:s, s:i, s:o, s:i, s:i, s:s, s:F, s:o, s:s, s:o}", "name", &called,
                     "vendor", &vendor, "family", &family, "models", &models, "vectors", &vectors, "llvm", &version,
                     "prefetch", &best, "barrier_ns", &out->barrier_ns, "gb_s", &speeds, "prefetch_many", &best_many,
                     "gb_s_many", &speeds_many))
    r = error_set(err, "%s", at.text);
  else if (strlen(called) > 31 || (strcmp(vendor, "amd") && strcmp(vendor, "intel")))
    r = error_set(err, "name or vendor: '%.40s', '%.40s'", called, vendor);
  else if (!take_models(models, cpu->model, &is_model)) r = error_set(err, "models: not ranges of numbers");
  else if (!machine_parse_prefetch(best, &out->one.best)) r = error_set(err, "prefetch: '%.40s'", best);
  else if (!machine_parse_prefetch(best_many, &out->many.best))
    r = error_set(err, "prefetch_many: '%.40s'", best_many);
  else if (!take_speeds(speeds, &out->one)) r = error_set(err, "gb_s: not a speed for each way");
  else if (!take_speeds(speeds_many, &out->many)) r = error_set(err, "gb_s_many: not a speed for each way");
  else if (!cpu->arm && (!strcmp(vendor, "amd") ? cpu->amd : cpu->intel) && cpu->family == (unsigned)family &&
           is_model && vectors == vector_bits && version == llvm)
    snprintf(name, 32, "%s", called);
  json_decref(all);
  return r;
}

bool cpu_profiles_find(const cpu_features *cpu, int vector_bits, int llvm, char *name, machine_profile *out) {
  size_t n;
  const char *text;
  for (size_t i = 0; (text = cpu_profiles_at(i, &n)); i++)
    if (!cpu_profiles_read(text, n, cpu, vector_bits, llvm, name, out, NULL) && *name) return true;
  return false;
}
