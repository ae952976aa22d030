// Dot products of the same rows with two tokens each become tiles of 2 x 2 sums (MMLA). See dot_tiles.c.
#ifndef WEFT_DOT_TILES_H
#define WEFT_DOT_TILES_H
#include "codegen/program.h"
// Does the machine have that instruction, if `without` is left out?
bool has_dot_tiles(const target *t, descriptor_set without);
// Does the machine have that instruction, if `without` is left out?
bool has_dot_tiles(const target *t, descriptor_set without);
// After expand_lanes: a SINK of STOREs, and again one. The same ast if the machine has no such instruction.
uop *dot_tiles(graph *g, uop *ast, const target *t, descriptor_set without);
#endif
