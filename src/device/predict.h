// predict: the time of a kernel on a GPU from its program and the GPU's figures: to rank candidates before compiling,
// and to estimate tokens per second on a GPU that is not present (weft tune --predict).
#ifndef WEFT_DEVICE_PREDICT_H
#define WEFT_DEVICE_PREDICT_H
#include "codegen/program.h"
#include "device/device.h"

typedef struct gpu_figures {
  const char *name;
  double gb_s, latency_ns;   // of memory
  int units;                 // multiprocessors; 0: this device is unknown
  double ghz;
  int items, registers, shared;                      // per multiprocessor; shared in bytes
  int macs;                  // byte products of its tensor cores per clock; half as many of F16 or BF16
  double gap_us;             // between two launches of a graph
} gpu_figures;

// Figures by name: "orin", "rtx4090", "h200". NULL: unknown name.
const gpu_figures *gpu_known(const char *name);
bool gpu_name_at(size_t i, const char **name);                   // false past the end

// Estimated registers of a work-item: live words in the program's order, and prefetched loads.
int predict_registers(const program *p);
// Microseconds of a launch with these variables (others: their maxima), including the gap to the next launch. The
// maximum of: bytes by memory bandwidth, as far as bytes in flight hide its latency; sectors, loads, instructions and
// tensor cores by a multiprocessor's rate; each stretched by the last, partly filled wave of work-groups. Work-group
// memory bandwidth is ignored. The gap only if nothing can be counted.
double predict_us(const gpu_figures *f, const program *p, const plan_var *vars, int n_vars);
#endif
