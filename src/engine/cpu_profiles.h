// cpu_profiles: measured profiles of processors that come with Weft (tunings/*.json).
//
// A file names its processors (vendor, family, ranges of models), the vector width and the major version of LLVM, and
// contains what calibrate.h would measure. If all of these match, the first start skips the measurement; otherwise the
// file is ignored. The files are embedded in the program.
#ifndef WEFT_ENGINE_SHIPPED_H
#define WEFT_ENGINE_SHIPPED_H
#include "device/cpu_info.h"
#include "engine/calibrate.h"

// Reads a file. name (32 bytes) gets the name of its processors if it matches this one, otherwise "". Returns -1 and
// the reason if the file is malformed.
int cpu_profiles_read(const char *json, size_t n, const cpu_features *cpu, int vector_bits, int llvm, char *name,
                 machine_profile *out, error *err);
// The first file that matches; false if none does. An unreadable file does not match.
bool cpu_profiles_find(const cpu_features *cpu, int vector_bits, int llvm, char *name, machine_profile *out);
// Text of file i, not NUL-terminated; NULL past the last.
const char *cpu_profiles_at(size_t i, size_t *n);
#endif
