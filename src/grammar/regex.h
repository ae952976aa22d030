// regex: compiles regular expressions to grammars. The syntax is the regular part of what PCRE, Python and ECMAScript
// have in common:
//
//   a  .  [a-z]  [^a-z]  [[:alpha:]]  \d \w \s \h \D \W \S \H  \p{L} \P{Lu}   characters
//   \n \r \t \f \v \a \e \0  \xHH \x{H..}  \uHHHH \u{H..}  \cX  \Q...\E      escapes
//   (...)  (?:...)  (?<name>...)  (?i:...)  |  *  +  ?  {m} {m,} {m,n}, each also lazy         groups, repetition
//   (?=...)  (?!...)                                                         look-ahead, outside repetitions
//   ^ $ \A \z \Z                                                             anchors, at the ends of alternatives
//
// Back-references, look-behind, word boundaries, possessive repetition and atomic groups, recursion and conditions are
// errors that name the feature. If dialects differ on a class (\d, \w, \s: ASCII or all of Unicode), it contains the
// characters that all dialects agree on; a negated class excludes what any dialect excludes. A dot is any character
// except line ends.
#ifndef WEFT_REGEX_H
#define WEFT_REGEX_H
#include "grammar/grammar.h"

// The whole text must match.
int grammar_from_regex(const char *text, size_t n, grammar **out, error *err);
// Parses a regular expression to a grammar expression. search: matching a part of the text is enough, unless there are
// anchors (as in JSON schema's `pattern`). each (may be NULL) makes the expression for one character of a set. NULL:
// *err has position and reason, and *supported is false if the expression is valid but not regular, or of another
// dialect.
typedef gx *(*regex_class)(void *ctx, grammar_source *s, const charset *set);
struct regex_rules { bool search; regex_class each; void *ctx; bool *supported; };
gx *regex_parse(grammar_source *s, const char *text, size_t n, const struct regex_rules *rules, error *err);
#endif
