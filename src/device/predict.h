// predict: what a kernel of work-groups takes on a GPU, from its program and the GPU's figures, so that candidates can
// be ranked before any is compiled, and tokens per second be told of a GPU that is not here (weft tune --predict).
#ifndef WEFT_DEVICE_PREDICT_H
#define WEFT_DEVICE_PREDICT_H
#include "codegen/program.h"
#include "device/device.h"

typedef struct gpu_figures {
  const char *name;
  double gb_s, latency_ns;   // of memory
  int units;                 // multiprocessors: 0: nothing is known of this device
  double ghz;
  int items, registers, shared;                      // that a multiprocessor holds; bytes
  int macs;                  // of bytes that its tensor cores do in a clock; half as many of halves
  double gap_us;             // between two launches of a graph
} gpu_figures;

// Figures by name: "orin", "rtx4090", "h200". NULL: there are no such.
const gpu_figures *gpu_known(const char *name);
bool gpu_name_at(size_t i, const char **name);                   // false past the end

// Registers of an item, about: the words that live at once, by the program's own order, and what is loaded ahead.
int predict_registers(const program *p);
// Microseconds of a launch with these variables (others: at their largest), the gap to the next one included. The
// slowest of: bytes by the memory's bandwidth, as far as those that are on their way at once hide its latency; sectors,
// loads, instructions and tensor cores by what a multiprocessor does in a clock; each stretched by the last wave of
// work-groups, which is not full. Memory near the items is not looked at. The gap alone where nothing can be counted.
double predict_us(const gpu_figures *f, const program *p, const plan_var *vars, int n_vars);
#endif
