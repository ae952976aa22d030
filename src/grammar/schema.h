// schema: compiles JSON schemas to grammars of the JSON texts that they accept. See schema.c for what is supported, and
// docs/grammars.md.
#ifndef WEFT_SCHEMA_H
#define WEFT_SCHEMA_H
#include "grammar/grammar.h"

#define SCHEMA_NOTES_MAX 16            // lines of notes

// -1 and an error that begins with a JSON pointer to the cause. Keywords that a grammar cannot enforce are skipped,
// with a line in notes (may be NULL) that begins with a JSON pointer as well; strict: they are errors. An unknown
// format is an annotation, so it is only a note in both cases.
int grammar_from_schema(const char *text, size_t n, bool strict, str *notes, grammar **out, error *err);
#endif
