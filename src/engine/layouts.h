// layouts: the memory layout of each weight of a model (schedule/layout.h), from an earlier search; and that search.
#ifndef WEFT_ENGINE_LAYOUTS_H
#define WEFT_ENGINE_LAYOUTS_H
#include "engine/engine.h"
#include "schedule/layout.h"

struct device;
struct tune_settings;          // tune.h

// For each tensor of the file, from the kernel cache: the caller frees it.
enum layout_kind *layouts_known(const struct device *d, const gguf *file);

enum layout_state {
  LAYOUT_KNOWN /* from the cache */,
  LAYOUT_NOT_TRIED /* why */,
  LAYOUT_SAME /* nothing is better */,
  LAYOUT_DROPPED /* better alone, not in the model */,
  LAYOUT_BETTER
};
// Weights of one format and size.
typedef struct layout_row {
  char weight[96], role[64]; // "weight Q6_K 2048 8192 1"; role of the kernel that reads most of them
  int64_t tensor;            // one of these weights
  double share;              // of a token's time, of the kernels that read them
  enum layout_state state;
  enum layout_kind layout;       // the best one tried, or the current one
  // time of these kernels relative to the current layout; 1: no improvement
  double ratio;
} layout_row;
typedef struct layout_rows {
  VEC(layout_row) at;
  char why[160];             // why nothing was tried
  double token[2], chunk[2]; // microseconds before and after, if the combination was tested (else 0)
} layout_rows;

// Tries other layouts for weights with a sufficient share of a token's time, and switches to those that make tokens
// faster and prompts no slower. Both layouts are in memory for a while. Returns 0, or -1 and the reason; rows: the
// caller's, vec_free(&rows.at).
int layouts_search(engine *e, const struct tune_settings *s, double seconds, layout_rows *rows, error *err);
#endif
