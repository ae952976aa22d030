// schema: JSON schemas as grammars of the JSON texts that they accept.  See schema.c for what is supported, and
// docs/grammars.md.
#ifndef WEFT_SCHEMA_H
#define WEFT_SCHEMA_H
#include "grammar/grammar.h"

// -1 and a message that begins with a JSON pointer: to what is wrong, or to a keyword that cannot be honoured.
int grammar_from_schema(const char *text, size_t n, grammar **out, error *err);
#endif
