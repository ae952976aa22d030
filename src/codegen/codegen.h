// codegen: converts a scheduled kernel (an expression over ranges) to a linear program for a renderer.
#ifndef WEFT_CODEGEN_H
#define WEFT_CODEGEN_H
#include "codegen/opt.h"
#include "codegen/program.h"

typedef struct codegen_options {
  bool noopt;                // no heuristic: loops as scheduled
  bool filling;              // the kernel packs a weight (layout_filling): loops and lanes are already decided
  // if not NULL: n_opts OptOps that replace the heuristic; one that cannot be applied is skipped
  const opt *opts;
  int n_opts;
  // the OptOps may be unsound: the verifier checks each pass, and codegen returns NULL if it rejects one
  bool doubtful;
  // if tile is not 0: the kernel follows another kernel in one launch, in which each work-group has stored `tile`
  // consecutive elements of PARAM `follows` (fuse_follower.h); replaces the heuristic
  int64_t follows, tile;
  struct recorder *record;   // if not NULL: records every pass and every rule that fires
} codegen_options;

// Runs the passes of this folder. `ast`: SINK(STORE...) over PARAMs, verified, from schedule/. The caller owns the
// program (program_free); its nodes are in a graph of their own. Returns NULL only if opts are given: if they are
// doubtful and unsound, or if in a merged launch (merge_launches.h) the kernel that they apply to (merged_main) no
// longer fits the others.
program *codegen(graph *parent, uop *ast, const target *t, const codegen_options *o);
#endif
