// grammar_args: the options that constrain output, and the grammar they describe.
#ifndef WEFT_APP_GRAMMAR_ARGS_H
#define WEFT_APP_GRAMMAR_ARGS_H
#include "app/args.h"
#include "weft.h"

struct grammar_args { const char *gbnf, *gbnf_file, *schema, *schema_file, *regex; };

// Reads the text of the given grammar, for free(); NULL: none is given. Reads files.
int grammar_args_read(const struct grammar_args *a, char **text, size_t *n, error *err);
int grammar_args_check(const struct grammar_args *a, bool ignore_end, error *err);  // checks that a row cannot express
bool grammar_args_given(const struct grammar_args *a);
// *out NULL: none of the options was given. -1: an invalid grammar, schema or expression, or an unreadable file.
int grammar_args_open(const struct grammar_args *a, const weft_vocab *vocab, int32_t n_vocab, weft_grammar **out,
                      weft_error *err);
#endif
