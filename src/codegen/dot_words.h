// Neighbouring words of a token that DOTs take one by one are loaded together. See dot_words.c.
#ifndef WEFT_DOT_WORDS_H
#define WEFT_DOT_WORDS_H
#include "codegen/program.h"
// After dot_tiles and reuse_across_tokens: a SINK of STOREs, and again one. The same ast if no instruction takes a lane
// of a register.
uop *dot_words(graph *g, uop *ast, const target *t, descriptor_set without);
#endif
