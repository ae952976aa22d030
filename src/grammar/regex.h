// regex: regular expressions as grammars.  The syntax is what PCRE, Python and ECMAScript share, as far as it is
// regular:
//
//   a  .  [a-z]  [^a-z]  [[:alpha:]]  \d \w \s \h \D \W \S \H  \p{L} \P{Lu}   characters
//   \n \r \t \f \v \a \e \0  \xHH \x{H..}  \uHHHH \u{H..}  \cX  \Q...\E      escapes
//   (...)  (?:...)  (?<name>...)  (?i:...)  |  *  +  ?  {m} {m,} {,n} {m,n}, each also lazy    groups, repetition
//   ^ $ \A \z \Z                                                             anchors, at the ends of alternatives
//
// Back-references, look-around, word boundaries, possessive repetition and atomic groups, recursion and conditions are
// refused by name. Where dialects differ on a class (\d, \w, \s: ASCII or all of Unicode), a class holds what it holds
// in each of them; a negated one leaves out what it leaves out in any.  A dot is any character but line ends.
#ifndef WEFT_REGEX_H
#define WEFT_REGEX_H
#include "grammar/grammar.h"

// The whole text must match.
int grammar_from_regex(const char *text, size_t n, grammar **out, error *err);
// A regular expression as a grammar expression. search: a part of the text must match, unless anchors say more (as for
// JSON schema's `pattern`). each (may be NULL) makes the expression for one character of a set. NULL: *err says where
// and why, and *supported is false if the expression is valid but not regular, or of another dialect.
typedef gx *(*regex_class)(void *ctx, grammar_source *s, const charset *set);
struct regex_rules { bool search; regex_class each; void *ctx; bool *supported; };
gx *regex_parse(grammar_source *s, const char *text, size_t n, const struct regex_rules *rules, error *err);
#endif
