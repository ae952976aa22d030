// schema: JSON schemas as grammars of the JSON texts that they accept.  See schema.c for what is supported, and
// docs/grammars.md.
#ifndef WEFT_SCHEMA_H
#define WEFT_SCHEMA_H
#include "grammar/grammar.h"

#define SCHEMA_NOTES_MAX 16            // lines of notes

// -1 and a message that begins with a JSON pointer to the fault. Keywords that a grammar cannot enforce are left out,
// with a line in notes (may be NULL) that begins in the same way; strict: they are errors. An unknown format, which is
// an annotation, is a note in both cases.
int grammar_from_schema(const char *text, size_t n, bool strict, str *notes, grammar **out, error *err);
#endif
