// calibrate: what has to be measured about this machine, once, before rules can take it for a default
// (device/machine.h).
//
// A product of one token with a matrix far larger than the caches is compiled several times, each time asking for the
// weights at another distance ahead, and these kernels run in turns; and a product of a tile of tokens, which computes
// while memory is read. What wins by a margin becomes the default of OptOp PREFETCH for such kernels on this machine,
// and is kept in the kernel cache.
#ifndef WEFT_ENGINE_CALIBRATE_H
#define WEFT_ENGINE_CALIBRATE_H
#include "device/device.h"

enum { CALIBRATION_VARIANTS = 5, CALIBRATION_TILE_VARIANTS = 3 };
typedef struct calibration_table {
  prefetch best;
  int n;                                   // ways that were tried
  struct { prefetch with; double gb_s; } tried[CALIBRATION_VARIANTS];
} calibration_table;
typedef struct machine_profile {
  calibration_table one, many;                       // products of one token, and of a tile of them
  bool busy;                               // other programs had a part of the processors meanwhile
  double barrier_ns;                       // all threads of the device waiting for one another once
  // not measured here: the processors that it came for with Weft (cpu_profiles.h)
  char cpu_profile[32];
} machine_profile;

// What the cache knows of this machine, or else what came with Weft for such a processor; false: nothing. Where
// PREFETCH says what to do, or nothing could be kept, there is nothing to know.
bool calibration_known(const device *d, machine_profile *out);
// Measures it (under a second). 0, or -1 and why not.
int calibration_measure(device *d, machine_profile *out, error *err);
void calibration_save(device *d, const machine_profile *p);                // in the cache
// Makes what is known the default of d, or what is measured now, and kept. Where other programs were busy meanwhile
// every start measures again, until they are not; as long as they are the first answer stays, since kernels depend on
// it. Without a cache nothing is measured.
void calibrate(device *d);
#endif
