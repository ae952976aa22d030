// schema_impl: what the files of JSON schema share.  schema.c holds the whole: which schemas apply to a value, and one
// rule for each such set; schema_object.c objects and arrays; schema_string.c strings, schema_format.c
// their formats; schema_number.c numbers; schema_not.c what `not` and `if` come to; schema_check.c whether a given
// value is valid (for enum and const, and for telling the alternatives of oneOf apart).
#ifndef WEFT_SCHEMA_IMPL_H
#define WEFT_SCHEMA_IMPL_H
#include "base/map.h"
#include "grammar/schema.h"
#include <jansson.h>

#define SCHEMA_DEPTH_MAX 100          // of schemas that apply to one value by way of $ref, allOf and their like
#define SCHEMA_BRANCHES_MAX 2000      // combinations of alternatives for one value
#define SCHEMA_COMPARED_MAX 1500000   // pairs of alternatives of oneOf, in all; large ones count more
#define SCHEMA_WORK_MAX (1u << 24)    // steps in all, each of them 50 ns or so

enum {
  T_NULL = 1,
  T_BOOL = 2,
  T_INTEGER = 4,
  T_FRACTION = 8,
  T_STRING = 16,
  T_ARRAY = 32,
  T_OBJECT = 64,
  T_NUMBER = T_INTEGER | T_FRACTION,
  T_ALL = 127
};

// Schemas that all apply to one value.  Nodes borrow from the schema.
typedef struct nodes { json_t **at; size_t n, cap; } nodes;

struct job { int32_t rule; nodes set; };
struct fit { const char *pattern, *regex; size_t n; bool fits; };      // of a pattern and a format
struct compiled { char *pattern; size_t n; bool search; grammar *g; };
typedef struct schema {
  grammar_source src;
  json_t *root;
  error *err;
  bool strict;
  bool has_patterns, tries_patterns;  // each pattern is compiled alone: one that cannot be intersected is left out
  str *notes;                         // NULL: not wanted
  map noted;                          // schema and keyword of each note
  size_t n_notes;
  int32_t any, string;                // rules: any value; any string.  -1: not made yet
  gx *space, *quote, *letter, *comma; // white space; '"'; a character of a string; "," and white space
  struct memo { nodes set; int32_t rule; } *memo;
  size_t n_memo, cap_memo;
  VEC(struct job) jobs;               // rules whose bodies are still to be made
  bool single;                        // the set being made has come from one schema, its first
  map made_of, made_not, made_if;     // from schemas to alternatives that were written for them (dependentRequired,
                                      // not, if); of the latter two NULL: none can be
  VEC(json_t *) made;
  VEC(struct fit) fits;
  VEC(struct compiled) compiled;      // patterns that texts have been held against, the last few of them
  smap anchors;                       // schemas by $anchor; NULL where two have the same
  map elsewhere;                      // schemas whose $ref starts from another $id than the root's
  map listings;                       // of the arrays of enum: for looking values up
  struct listing *listed;             // all of them, the last one first
  uint64_t work;                      // steps that were taken
  uint64_t compared;                  // pairs of alternatives of oneOf
  // the first schema under which no value is valid, and why: not an error if other alternatives remain
  const json_t *empty;
  const char *empty_keyword, *empty_what;
} schema;

// Fails with the pointer to a schema and a keyword of it (may be NULL).  -1.
int schema_fail(const schema *s, const json_t *at, const char *keyword, const char *fmt, ...) PRINTF_LIKE(4, 5);
// The keyword cannot be enforced: 0 and a note that it is not, or in strict mode fails as schema_fail does.
int schema_relax(schema *s, const json_t *at, const char *keyword, const char *fmt, ...) PRINTF_LIKE(4, 5);
// A note in both modes.
void schema_note(schema *s, const json_t *at, const char *keyword, const char *fmt, ...) PRINTF_LIKE(4, 5);
// Before work of n steps: fails where the whole schema takes more than it may.
int schema_charge(schema *s, const json_t *at, uint64_t n);
bool schema_says(const char *keyword);                        // it is known, and says something about validity
// ---- schema_not.c
// For the owner of `not`, and for `if`: schemas of which one must apply to a value in addition to the others, as an
// array that the schema owns. NULL: not expressible.
json_t *schema_negation(schema *s, json_t *owner);
json_t *schema_condition(schema *s, json_t *owner);
// Whether a schema is a const, an enum or a pattern alone: of those, `not` is subtracted.
bool schema_is_atom(const json_t *node);
bool schema_has_atoms(const nodes *set, unsigned *types);     // takes from types those that they exclude
bool schema_excluded(schema *s, const nodes *set, const json_t *value);
// *x, values of this type (of a string the content), without what atoms exclude.  -1.
int schema_minus(schema *s, const nodes *set, unsigned type, gx **x);

// An expression that matches nothing, for a schema that no value is valid under.  Texts are borrowed.
gx *schema_empty(schema *s, const json_t *at, const char *keyword, const char *what);
gx *schema_value(schema *s, const nodes *set);                // a value that all of these accept.  NULL: an error
gx *schema_any(schema *s);
gx *schema_literal(schema *s, const json_t *value);           // this value, with white space where others have it
// the target of $ref; 0 and *target NULL without $ref
int schema_ref(schema *s, const json_t *node, json_t **target);
int schema_types(const schema *s, const json_t *node, unsigned *types); // what its `type` allows
unsigned schema_type_of(const json_t *value);
// 1: it has that keyword, a count; 0: not; -1
int schema_count(const schema *s, const json_t *node, const char *keyword, uint32_t *out);

gx *schema_object(schema *s, const nodes *set);
gx *schema_array(schema *s, const nodes *set);
gx *schema_string(schema *s, const nodes *set);               // with quotes
gx *schema_number(schema *s, const nodes *set, bool integer);
// The content of a string, without quotes, where something is demanded of it; *out NULL where nothing is but a length.
// -1.
int schema_content(schema *s, const nodes *set, gx **out, uint32_t *min, uint32_t *max);
gx *schema_of_length(schema *s, gx *content, uint32_t min, uint32_t max);   // of min to max characters
gx *schema_letters(schema *s);                                // any characters; only what has to be escaped is
// *out NULL: it is not supported, and left out.  -1.
int schema_pattern(schema *s, const json_t *node, const char *keyword, const char *text, size_t n, gx **out);
void schema_quoted(str *out, const char *text, size_t n);     // a string as it is written, with its quotes

// 1: valid, 0: not, -1: an error. plain: ignores $ref, allOf, anyOf and oneOf.
int schema_check(schema *s, const json_t *value, json_t *node, bool plain, int depth);
int schema_pattern_matches(schema *s, const json_t *node, const char *keyword, const char *pattern, size_t n_pattern,
                           const char *text, size_t n);
void schema_patterns_free(schema *s);
void schema_fits_free(schema *s);
void schema_listings_free(schema *s);
bool schema_equal(schema *s, const json_t *a, const json_t *b);   // 1 equals 1.0
// 1: no value that `a` describes is valid under `b`, 0: there may be one, or too many have been compared, -1.  within:
// the types that the value may have anyhow.  around: the one schema that applies to the value beside `a`; NULL: there
// may be others.
int schema_excludes(schema *s, json_t *a, json_t *b, unsigned within, const json_t *around, int depth);
// The regular expression of a format, NULL if it is unknown. types: the types that it applies to; 0: it restricts
// nothing.
const char *schema_format(const char *name, unsigned *types);
// What contentEncoding and contentMediaType of a string come to, as a format.  NULL: nothing.
const char *schema_content_format(const json_t *node);
// whether it is one of integers, and what it allows
bool schema_integer_format(const char *name, double *lo, double *hi);
#endif
