// codegen: from a scheduled kernel (an expression over ranges) to a linear program for a renderer.
#ifndef WEFT_CODEGEN_H
#define WEFT_CODEGEN_H
#include "codegen/opt.h"
#include "codegen/program.h"

typedef struct codegen_options {
  bool noopt;                // no heuristic: loops as they are scheduled
  bool filling;              // it lays a weight out (layout_filling): loops and lanes are decided already
  // if not NULL: these instead of the heuristic (n_opts of them); one that cannot be applied is skipped
  const opt *opts;
  int n_opts;
  bool doubtful;             // the verifier looks at what each pass makes of them; NULL where it refuses that
  // if tile is not 0: it follows another kernel in its launch, of which each work-group has stored so many elements of
  // PARAM `follows`, side by side (fuse_follower.h); instead of the heuristic
  int64_t follows, tile;
  struct recorder *record;   // if not NULL: hears of every pass and every rule that fires
} codegen_options;

// The pipeline of this folder. `ast`: SINK(STORE...) over PARAMs, from schedule/. The program is the caller's
// (program_free); its nodes live in a graph of its own. What is in the ast was verified. NULL only with opts: for
// several kernels in one launch (merge_launches.h), where the one that these are of (merged_main) no longer fits the
// others; and what is doubtful.
program *codegen(graph *parent, uop *ast, const target *t, const codegen_options *o);
#endif
