// Streams: a weight laid out at load in the order in which a kernel's own loops read it. See stream.c.
#ifndef WEFT_STREAM_H
#define WEFT_STREAM_H
#include "codegen/program.h"

// Where the expanded kernel `ast` picks a weight's bytes out of rows that lie apart (lanes are rows), makes it read a
// stream instead, and tells in p->streams how each stream is filled. The streams of two kernels that read a weight in
// the same order are equal. fold: copies of a row or a block (UPCAST, UNROLL) are laid out where they would be as
// iterations of the loop that they were cut from.
uop *make_streams(graph *g, uop *ast, const target *t, program *p, bool fold);

// How a weight is laid out. It is said in the name of the weight's PARAM, so that all kernels that read it agree, and
// their keys in the cache with them; who makes a schedule says it (layouts_set). The rules have LAYOUT_STREAM
// everywhere; others are tried by a search (engine/layouts.c).
enum layout {
  LAYOUT_STREAM,             // a stream where lanes are rows: for each tile of rows all of its blocks
  LAYOUT_FILE,               // as it lies in the file: bytes are gathered
  // a stream in which so many tiles of rows lie side by side, block by block: for kernels that compute them together
  LAYOUT_TILES_2,
  LAYOUT_TILES_4,
  // a stream in which values lie that hang on the weight alone, computed when it is filled, as far as it may grow:
  // scales, or codes
  LAYOUT_VALUES,
  LAYOUT_COUNT
};
const char *layout_name(enum layout l);                          // "stream", "file", "tiles2"
int layout_tiles(enum layout l);                                 // how many side by side
enum layout layout_of(const uop *weight);                        // of a PARAM or another op of that name
// the kernel with layout of[i] for argument i, where that is a weight
uop *layouts_set(graph *g, uop *ast, const enum layout *of, int n);
#endif
