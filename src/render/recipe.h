// Expands the text lines of a descriptor (codegen/descriptor.h) to LLVM IR.
#ifndef WEFT_RENDER_RECIPE_H
#define WEFT_RENDER_RECIPE_H
#include "base/str.h"

// Values of the names in a line: $acc, $a, $b, and $1.. for the n_made earlier lines (made[0] is unused).
typedef struct recipe_names {
  const char *acc, *a, *b, *const *made;
  int n_made;
} recipe_names;

void recipe_line(const char *line, int lanes, const recipe_names *names, str *out);
// A tile instruction (m > 1) as inline assembly: four result words, a and b operand words, four accumulator words, in
// registers of kind acc ('r' or 'f').
void recipe_tile(const char *instruction, int a, int b, char acc, str *out);
// The declaration of the function called in "call <type> @name(<type> <operand>, ...)".
void recipe_declaration(const char *call, str *out);
#endif
