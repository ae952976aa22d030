// search: better OptOps for one kernel than the heuristic's, by trying them out (BEAM).
//
// A search knows kernels and lists of OptOps, and asks a device for everything that needs a machine: code, times, and
// whether a candidate computes what it should. The device fills in a search_target (device/search.c).
#ifndef WEFT_SEARCH_H
#define WEFT_SEARCH_H
#include "codegen/codegen.h"

enum { MOST_OPTS = 32 };

typedef struct candidate {
  opt opts[MOST_OPTS];
  int n;
  program *p;                // NULL until it is made, and where it is not worth being made
  void *code;                // the device's; NULL: it does not compile, or its source is that of an earlier candidate
  double best_us;            // of its samples
  double predicted_us;       // 0: not predicted
  double score;              // its time over the heuristic's in the same races; below 1 is faster
  bool checked, right;       // whether it has been compared with the reference, and how that ended
} candidate;

typedef struct search_target {
  const target *t;
  void *ctx;
  int batch;                                                     // candidates that are worth compiling at once
  // program and code of each; the first ever is the heuristic's (n == 0 opts)
  void (*make)(void *ctx, candidate *const *c, int n);
  bool (*right)(void *ctx, candidate *c);                        // the same bits as the heuristic's kernel
  double (*sample)(void *ctx, const candidate *c);               // microseconds of one run over cold weights
  // The same of each, from its list alone (predicted_us): those that look best are made first, and hopeless ones
  // never. NULL: nothing can be predicted.
  void (*predict)(void *ctx, candidate *const *c, int n);
  void (*drop)(void *ctx, candidate *c);                         // its code is not needed any more
  void (*progress)(void *ctx, double fraction);                  // of this search
} search_target;

typedef struct opt_list { opt opts[MOST_OPTS]; int n; } opt_list;
typedef struct search_options {
  int width;
  double seconds, skip_us;                       // skip_us: fast enough, stop here; 0: never
  const opt_list *hints;                         // lists that won elsewhere: tried first, where they fit
  int n_hints;
} search_options;

typedef struct search_result {
  double heuristic_us, us;   // least of all samples of each, from the last race
  double score;              // time over the heuristic's; 1: nothing is better
  bool cut;                  // time was up before it was done
  int tried, compiled, wrong;// lists made; kernels compiled; kernels that computed something else and were thrown away
  candidate *best;           // the winner, checked: the caller's (search_free); NULL: the heuristic stays
} search_result;

// 0, or -1 where the heuristic's own kernel cannot be made.
int search_kernel(graph *parent, uop *ast, const search_target *s, const search_options *o, search_result *out);
void search_free(const search_target *s, candidate *c);

// What a search would try first behind `from` (the list of a kernel that there is): lists with one more op, or with the
// last ones left out, those first that cost little and often gain. At most `most`; the number of them.
int search_neighbours(graph *parent, uop *ast, const target *t, const opt *from, int n, opt_list *out, int most);

// Whether a list may stand in for the heuristic's: every op applies, no float reduction adds up in another order than
// the heuristic's does, and the code stays of a reasonable size. If not, `why` (may be NULL) says what is wrong.
bool search_allows(graph *parent, uop *ast, const target *t, const opt *opts, int n, str *why);
#endif
