// search: finds better OptOps for one kernel than the heuristic's by trials (BEAM).
//
// A search handles kernels and lists of OptOps; a device provides everything that needs a machine: code, times, and the
// check that a candidate computes the right values. The device fills in a search_target (device/search.c).
#ifndef WEFT_SEARCH_H
#define WEFT_SEARCH_H
#include "codegen/codegen.h"

enum { MOST_OPTS = 32 };

typedef struct candidate {
  opt opts[MOST_OPTS];
  int n;
  program *p;                // NULL until it is made, and if it is not worth making
  void *code;                // the device's code; NULL: it does not compile, or equals that of an earlier candidate
  double best_us;            // minimum of its samples
  double predicted_us;       // 0: no prediction
  double score;              // its time divided by the heuristic's in the same races; below 1 is faster
  bool checked, right;       // whether it was compared with the reference, and the result
} candidate;

typedef struct search_target {
  const target *t;
  void *ctx;
  int batch;                                                     // number of candidates to compile at once
  // makes program and code of each; the first one is the heuristic's (n == 0 opts)
  void (*make)(void *ctx, candidate *const *c, int n);
  bool (*right)(void *ctx, candidate *c);                        // has it the bits of the heuristic's kernel?
  double (*sample)(void *ctx, const candidate *c);               // microseconds of one run with cold weights
  // Predicts the time of each from its list alone (predicted_us): promising ones are made first, hopeless ones never.
  // NULL: no predictions.
  void (*predict)(void *ctx, candidate *const *c, int n);
  void (*drop)(void *ctx, candidate *c);                         // frees its code
  void (*progress)(void *ctx, double fraction);                  // fraction of this search that is done
} search_target;

typedef struct opt_list { opt opts[MOST_OPTS]; int n; } opt_list;
typedef struct search_options {
  int width;
  double seconds, skip_us;  // skip_us: do nothing if the kernel is already this fast; 0: always search
  const opt_list *hints;                         // lists that won elsewhere: tried first if they fit
  int n_hints;
} search_options;

typedef struct search_result {
  double heuristic_us, us;   // minimum of all samples, from the last race
  double score;              // time divided by the heuristic's; 1: no improvement
  bool cut;                  // time ran out
  int tried, compiled, wrong;// lists made; kernels compiled; kernels discarded because of wrong values
  candidate *best;           // the winner, checked; the caller owns it (search_free); NULL: keep the heuristic
} search_result;

// Returns 0, or -1 if the heuristic's own kernel cannot be made.
int search_kernel(graph *parent, uop *ast, const search_target *s, const search_options *o, search_result *out);
void search_free(const search_target *s, candidate *c);

// The lists that a search would try first after `from` (a kernel's current list): with one more op, or without the last
// ones; cheap, promising ones first. Returns their number, at most `most`.
int search_neighbours(graph *parent, uop *ast, const target *t, const opt *from, int n, opt_list *out, int most);

// May a list replace the heuristic's? Every op must apply, each float reduction must add in the heuristic's order, and
// the code must stay at a reasonable size. If not, `why` (may be NULL) gets the reason.
bool search_allows(graph *parent, uop *ast, const target *t, const opt *opts, int n, str *why);
#endif
