// Lines of text of a descriptor (codegen/descriptor.h) as LLVM IR.
#ifndef WEFT_RENDER_RECIPE_H
#define WEFT_RENDER_RECIPE_H
#include "base/str.h"

// What the names in a line stand for: $acc, $a, $b, and $1.. of the n_made lines before (made[0] is none).
typedef struct recipe_names {
  const char *acc, *a, *b, *const *made;
  int n_made;
} recipe_names;

void recipe_line(const char *line, int lanes, const recipe_names *names, str *out);
// An instruction of tiles (m > 1), inline: four words of results, so many of each operand, four of the accumulator, in
// registers of kind acc ('r' or 'f').
void recipe_tile(const char *instruction, int a, int b, char acc, str *out);
// The declaration of what is called in "call <type> @name(<type> <operand>, ...)".
void recipe_declaration(const char *call, str *out);
#endif
