// cpu_profiles: profiles of processors that were at hand, which come with Weft (tunings/*.json).
//
// A file names the processors that it holds for (vendor, family, ranges of models), the width of vectors and the major
// version of LLVM that its kernels were made with, and says what calibrate.h would measure. Where all of that is so
// here it spares the first start the measuring; elsewhere it is as if it were not there. The files are in the program.
#ifndef WEFT_ENGINE_SHIPPED_H
#define WEFT_ENGINE_SHIPPED_H
#include "device/cpu_info.h"
#include "engine/calibrate.h"

// Reads a file. The name of its processors (of at most 31 bytes) where it holds here, "" where it does not; -1 and why
// for one that is not in the form above. name: 32 bytes.
int cpu_profiles_read(const char *json, size_t n, const cpu_features *cpu, int vector_bits, int llvm, char *name,
                 machine_profile *out, error *err);
// The same of all files, the first that holds; false: none does. One that cannot be read counts as one that does not.
bool cpu_profiles_find(const cpu_features *cpu, int vector_bits, int llvm, char *name, machine_profile *out);
// The i-th file: its text, not ended by a zero; NULL past the last.
const char *cpu_profiles_at(size_t i, size_t *n);
#endif
