// layouts: how each weight of a model lies in memory (schedule/layout.h), as an earlier search found it; and that
// search.
#ifndef WEFT_ENGINE_LAYOUTS_H
#define WEFT_ENGINE_LAYOUTS_H
#include "engine/engine.h"
#include "schedule/layout.h"

struct device;
struct tune_settings;          // tune.h

// Of each tensor of the file, from the kernel cache: the caller's (free).
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
  char weight[96], role[64]; // "weight Q6_K 2048 8192 1"; the role of the kernel that reads most of them
  int64_t tensor;            // one of them
  double share;              // of a token's time that the kernels take which read them
  enum layout_state state;
  enum layout_kind layout;       // the best one that was tried, or the one that is in use
  // a token's time in those kernels over what it is with what was in use; 1: nothing is better
  double ratio;
} layout_row;
typedef struct layout_rows {
  VEC(layout_row) at;
  char why[160];             // why nothing was tried
  double token[2], chunk[2]; // microseconds before and after, where something was tried in the model (else 0)
} layout_rows;

// Tries other layouts for the weights that take a share of a token's time worth it, and goes on with what makes tokens
// faster and prompts no slower. Both layouts are in memory for a while. 0, or -1 and why not; rows: the caller's,
// vec_free(&rows.at).
int layouts_search(engine *e, const struct tune_settings *s, double seconds, layout_rows *rows, error *err);
#endif
