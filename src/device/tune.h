// tune: searching for better kernels of a plan (codegen/search.h) on its own weights, and trying what was found in
// whole runs of it.
#ifndef WEFT_DEVICE_TUNE_H
#define WEFT_DEVICE_TUNE_H
#include "device/device.h"
#include "device/tuning.h"

enum tune_state {
  TUNE_SMALL,                // its share of the time is not worth a search
  TUNE_KNOWN,                // the cache says how an earlier search ended
  TUNE_NOT_RUN,              // no search: `why` says why not
  TUNE_NO_GAIN,              // the heuristic's kernel stays
  TUNE_DROPPED,              // faster alone, but not in the model
  TUNE_BETTER                // found, and kept
};

// One kernel shape of a plan.
typedef struct tune_row {
  char name[96], role[64], why[160];
  int count;                 // launches per run of the plan
  double share;              // of the plan's time, before
  enum tune_state state;
  double before_us, after_us;// a launch over cold weights; before_us is the heuristic's
  double run_before_us, run_after_us;       // all launches in whole runs of the plan (0: not measured)
  int tried, compiled, wrong;
  double cut_s;              // 0, or after how many seconds the search was cut short
  bool had;                  // an earlier search's list is in use, and what is found has to be better than that
  str opts;                  // the list that was found
} tune_row;

typedef struct tune_options {
  int width;                 // of the beam
  double seconds, skip_ms;   // time for all of it; a launch this fast is fast enough (0: none is)
  const plan_var *vars;      // values for measuring: where they are largest, what they are in use
  int n_vars;
  // other values, of the same variables: a kernel that depends on them is timed at both; NULL: there are none
  const plan_var *deep;
  // times are predicted from the figures of a GPU that need not be here (predict.h), nothing runs, and no results are
  // compared; NULL: they are measured
  const struct gpu_figures *predict;
  void (*progress)(void *ctx, double fraction);
  void *ctx;
} tune_options;

// Searches for every kernel of the plan that takes a share of its time worth it; what is found is an alternative. The
// plan is run a few times: what it writes is lost. rows: the caller's, plan_stats.unique entries, zeroed;
// tune_rows_free. 0, or -1 and why not.
int plan_search(plan *p, const tune_options *o, tune_row *rows, error *err);
// Whether kernel `unique` (-1: every one) runs as its alternative (what was found), if it has one.
void plan_choose(plan *p, int unique, bool found);
bool plan_has_alternative(const plan *p, int unique);
int plan_unique(const plan *p, int launch);  // number of the kernel of a launch (plan_run_timed counts launches)
// Writes what became of the searches into the cache: rows in state BETTER with their lists, NO_GAIN and DROPPED as "the
// heuristic's"; what was dropped in favour of an earlier search's list leaves that one, and becomes KNOWN.
void plan_keep(plan *p, tune_row *rows);
void tune_rows_free(tune_row *rows, int n);
#endif
