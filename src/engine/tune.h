// tune: searching for better kernels of a model, and keeping what makes the model faster.
#ifndef WEFT_ENGINE_TUNE_H
#define WEFT_ENGINE_TUNE_H
#include "device/tune.h"
#include "engine/engine.h"
#include "engine/layouts.h"

struct tune_part {            // one plan: single tokens, or chunks of a prompt
  bool prompt;
  tune_row *rows;
  int n_rows, found, kept;    // kernels with something better: by themselves; in the model
  double before_us, after_us; // of a run of the plan, medians of turns; equal where nothing is kept
  double bytes, limit_gb_s;   // moved by a run; what memory gave meanwhile (median of three looks, 0: unknown)
  double seconds;
};

struct tune_settings {
  int width;                  // BEAM
  double seconds, skip_ms;    // for both parts together
  bool prompt;                // chunks of a prompt as well
  bool layouts;               // layouts of weights first, for both (layouts.h)
  // times are predicted from its figures (device/predict.h): nothing runs, and nothing is kept; NULL: they are measured
  const struct gpu_figures *predict;
  int depth;                  // positions before the token that is timed; all are evaluated anew, the context is lost
  void (*progress)(void *ctx, const char *what, double fraction);
  void *ctx;
};

// Tunes the plan for single tokens (parts[0]) and, if wanted, that for prompts (parts[1]), writes the results into the
// kernel cache and goes on with the better kernels. The KV cache holds nothing of use afterwards. 0, or -1 and why not;
// tune_part_free for both in any case. layouts: the caller's, vec_free(&layouts->at) in any case.
int tune_run(engine *e, const struct tune_settings *s, struct tune_part parts[2], layout_rows *layouts, error *err);
// BEAM=N: the same for one of the two plans, which has just been made; nothing has been evaluated yet. Never fails:
// what goes wrong is a warning.
void tune_from_env(engine *e, bool prompt);
void tune_part_free(struct tune_part *p);
#endif
