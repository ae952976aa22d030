// tune: searches for better kernels of a plan (codegen/search.h) on its own weights, and tests the results in whole
// runs.
#ifndef WEFT_DEVICE_TUNE_H
#define WEFT_DEVICE_TUNE_H
#include "device/device.h"
#include "device/tuning.h"

enum tune_state {
  TUNE_SMALL,                // its share of time is too small for a search
  TUNE_KNOWN,                // the cache has the result of an earlier search
  TUNE_NOT_RUN,              // not searched; `why` gives the reason
  TUNE_NO_GAIN,              // the heuristic's kernel is kept
  TUNE_DROPPED,              // faster alone, but not in the model
  TUNE_BETTER                // found and kept
};

// The result for one kernel shape of a plan.
typedef struct tune_row {
  char name[96], role[64], why[160];
  int count;                 // launches per run of the plan
  double share;              // of the plan's time, before
  enum tune_state state;
  double before_us, after_us;// of a launch with cold weights; before_us is the heuristic's
  double run_before_us, run_after_us;       // all launches in whole runs of the plan (0: not measured)
  int tried, compiled, wrong;
  double cut_s;              // seconds after which the search was cut off; 0: it was not
  bool had;                  // an earlier search's list is in use, and must be beaten
  str opts;                  // the list found
} tune_row;

typedef struct tune_options {
  int width;                 // of the beam
  double seconds, skip_ms;   // total time; a launch this fast is not searched (0: no limit)
  const plan_var *vars;      // values for timing: at the maxima, or in use
  int n_vars;
  // a second set of values: a kernel that depends on them is timed at both; NULL: none
  const plan_var *deep;
  // times are predicted from the figures of a GPU that need not be present (predict.h), nothing runs, and no results
  // are compared; NULL: times are measured
  const struct gpu_figures *predict;
  void (*progress)(void *ctx, double fraction);
  void *ctx;
} tune_options;

// Searches for every kernel of the plan with a sufficient share of its time; results become alternatives. The plan is
// run a few times, and its outputs are lost. rows: the caller's, plan_stats.unique entries, zeroed; free with
// tune_rows_free. Returns 0, or -1 and the reason.
int plan_search(plan *p, const tune_options *o, tune_row *rows, error *err);
// Selects whether kernel `unique` (-1: all) runs its alternative (`found`), if it has one.
void plan_choose(plan *p, int unique, bool found);
bool plan_has_alternative(const plan *p, int unique);
int plan_unique(const plan *p, int launch);  // index of the kernel of a launch (in the numbering of plan_run_timed)
// Stores the results of the searches in the cache: BETTER rows with their lists, NO_GAIN and DROPPED rows as "use the
// heuristic". If an earlier search's list was better than what was dropped, that list is kept and the row becomes
// KNOWN.
void plan_keep(plan *p, tune_row *rows);
void tune_rows_free(tune_row *rows, int n);
#endif
