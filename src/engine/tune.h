// tune: searches for better kernels of a model and keeps those that make the model faster.
#ifndef WEFT_ENGINE_TUNE_H
#define WEFT_ENGINE_TUNE_H
#include "device/tune.h"
#include "engine/engine.h"
#include "engine/layouts.h"

struct tune_part {            // one plan: single tokens, or chunks of a prompt
  bool prompt;
  tune_row *rows;
  int n_rows, found, kept;    // kernels with a better list: alone; in the model
  double before_us, after_us; // of a run of the plan, medians; equal if nothing is kept
  // bytes moved by a run; memory bandwidth meanwhile (median of three measurements, 0: unknown)
  double bytes, limit_gb_s;
  double seconds;
};

struct tune_settings {
  int width;                  // BEAM
  double seconds, skip_ms;    // for both parts together
  bool prompt;                // chunks of a prompt as well
  bool layouts;               // layouts of weights first, for both (layouts.h)
  // times are predicted from its figures (device/predict.h): nothing runs, and nothing is kept; NULL: times are
  // measured
  const struct gpu_figures *predict;
  int depth;                  // positions before the timed token; the context is lost
  void (*progress)(void *ctx, const char *what, double fraction);
  void *ctx;
};

// Tunes the plan for single tokens (parts[0]) and, if wanted, the one for prompts (parts[1]), stores the results in the
// kernel cache and uses the better kernels. The KV cache is invalid afterwards. Returns 0, or -1 and the reason; call
// tune_part_free for both in either case. layouts: the caller's, vec_free(&layouts->at) in either case.
int tune_run(engine *e, const struct tune_settings *s, struct tune_part parts[2], layout_rows *layouts, error *err);
// BEAM=N: tunes one of the two plans, just after it was made and before any evaluation. Never fails: problems are
// warnings.
void tune_from_env(engine *e, bool prompt);
void tune_part_free(struct tune_part *p);
#endif
