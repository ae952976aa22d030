// Converts the dot products of rows with two tokens to tiles of 2 x 2 sums (MMLA). See dot_tiles.c.
#ifndef WEFT_DOT_TILES_H
#define WEFT_DOT_TILES_H
#include "codegen/program.h"
// Does the machine have that instruction, not counting rows in `without`?
bool has_dot_tiles(const target *t, descriptor_set without);
// Runs after expand_lanes, on a SINK of STOREs, and returns one. Returns ast if the machine has no such instruction.
uop *dot_tiles(graph *g, uop *ast, const target *t, descriptor_set without);
#endif
