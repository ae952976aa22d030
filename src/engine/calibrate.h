// calibrate: measurements of this machine, made once, from which rules take defaults (device/machine.h).
//
// A product of one token with a matrix far larger than the caches is compiled several times, each with another prefetch
// distance, and the kernels are timed interleaved; so is a product of a tile of tokens, which computes while memory is
// read. A clear winner becomes the default of OptOp PREFETCH for such kernels on this machine, and is stored in the
// kernel cache.
#ifndef WEFT_ENGINE_CALIBRATE_H
#define WEFT_ENGINE_CALIBRATE_H
#include "device/device.h"

enum { CALIBRATION_VARIANTS = 5, CALIBRATION_TILE_VARIANTS = 3 };
typedef struct calibration_table {
  prefetch best;
  int n;                                   // number of variants tried
  struct { prefetch with; double gb_s; } tried[CALIBRATION_VARIANTS];
} calibration_table;
typedef struct machine_profile {
  calibration_table one, many;                       // products of one token, and of a tile of them
  bool busy;                               // other programs used the processors meanwhile
  double barrier_ns;                       // one barrier of all threads of the device
  // not measured here: the processors of the CPU profile that came with Weft (cpu_profiles.h)
  char cpu_profile[32];
} machine_profile;

// Reads the profile of this machine from the cache, or the CPU profile that came with Weft; false if there is none. If
// the variable PREFETCH is set, or nothing can be cached, there is none.
bool calibration_known(const device *d, machine_profile *out);
// Measures (under a second). Returns 0, or -1 and the reason.
int calibration_measure(device *d, machine_profile *out, error *err);
void calibration_save(device *d, const machine_profile *p);                // in the cache
// Makes the known or newly measured profile the default of d, and stores it. If other programs were busy, every start
// measures again until they are not; meanwhile the first answer is kept, since kernels depend on it. Without a cache
// nothing is measured.
void calibrate(device *d);
#endif
