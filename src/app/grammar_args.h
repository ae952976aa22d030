// grammar_args: the options that constrain output, and the grammar that they describe.
#ifndef WEFT_APP_GRAMMAR_ARGS_H
#define WEFT_APP_GRAMMAR_ARGS_H
#include "app/args.h"
#include "weft.h"

struct grammar_args { const char *gbnf, *gbnf_file, *schema, *schema_file, *regex; };

// The text of the one that is given, for free(); NULL: none is.  Reads files.
int grammar_args_read(const struct grammar_args *a, char **text, size_t *n, error *err);
int grammar_args_check(const struct grammar_args *a, bool ignore_end, error *err);  // what a row cannot say
bool grammar_args_given(const struct grammar_args *a);
// *out NULL: none of the options was given.  -1: a grammar, schema or expression that is refused, or a file that cannot
// be read.
int grammar_args_open(const struct grammar_args *a, const weft_vocab *vocab, int32_t n_vocab, weft_grammar **out,
                      weft_error *err);
#endif
