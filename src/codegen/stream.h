// Streams: a weight laid out at load in the order in which a kernel's own loops read it. See stream.c.
#ifndef WEFT_STREAM_H
#define WEFT_STREAM_H
#include "codegen/program.h"

// Where the expanded kernel `ast` picks a weight's bytes out of rows that lie apart (lanes are rows), makes it read a stream instead, and
// tells in p->streams how each stream is filled. The streams of two kernels that read a weight in the same order are equal.
// fold: copies of a row or a block (UPCAST, UNROLL) are laid out where they would be as iterations of the loop that they were cut from.
uop *make_streams(graph *g, uop *ast, const target *t, program *p, bool fold);
#endif
