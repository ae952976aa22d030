// gbnf: reads grammars in llama.cpp's notation. One rule per line, "name ::= alternatives"; texts must match the rule
// `root`.
//
//   "text"  [a-z]  [^\n]  .      characters; escapes \n \r \t \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH
//   a b   a | b   ( ... )        sequence, alternatives (which may be empty), group
//   *  +  ?  {m}  {m,}  {m,n}    repetition of what stands before
//   <text>  <[7]>  !<text>       one token of the vocabulary, by its text or its id; any other token of text than that
//   # ...                        comment
//
// A rule ends with its line, but continues inside parentheses, after "|" and "::=", and within a literal or class.
// Errors name line and column.
#ifndef WEFT_GBNF_H
#define WEFT_GBNF_H
#include "grammar/grammar.h"

// t (may be NULL): the vocabulary for tokens.
int grammar_from_gbnf(const char *text, size_t n, const tokenizer *t, grammar **out, error *err);
#endif
