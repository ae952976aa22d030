// schema_impl: private declarations for JSON schemas. schema.c decides which schemas apply to a value, and makes one
// rule for each such set; schema_object.c has objects and arrays; schema_string.c strings, schema_format.c their
// formats; schema_number.c numbers; schema_not.c `not` and `if`; schema_check.c checks given values (for enum, const,
// and to prove that alternatives of oneOf exclude each other).
#ifndef WEFT_SCHEMA_IMPL_H
#define WEFT_SCHEMA_IMPL_H
#include "base/map.h"
#include "grammar/schema.h"
#include <jansson.h>

#define SCHEMA_DEPTH_MAX 100          // schemas that apply to one value through $ref, allOf and similar keywords
#define SCHEMA_BRANCHES_MAX 2000      // combinations of alternatives for one value
#define SCHEMA_COMPARED_MAX 1500000   // compared pairs of alternatives of oneOf; large ones count more
#define SCHEMA_WORK_MAX (1u << 24)    // steps of about 50 ns
#define SCHEMA_HELD_MAX (64u << 20)   // bytes beside the grammar and the schema: JSON that is made, sets of schemas
#define SCHEMA_MADE 512               // bytes of an object with a member or two, and of a list in it

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

// Schemas that all apply to one value; the nodes are borrowed from the schema.
typedef struct nodes { json_t **at; size_t n, cap; } nodes;

struct job { int32_t rule; nodes set; };
// whether a pattern and a format have a common text
struct fit { const char *pattern, *regex; size_t n; uint64_t hash; bool fits; };
struct compiled { char *pattern; size_t n; uint64_t hash; bool search; grammar *g; };
typedef struct schema {
  grammar_source src;
  json_t *root;
  error *err;
  bool strict;
  // tries_patterns: compiles each pattern alone; one that cannot be intersected is skipped
  bool has_patterns, tries_patterns;
  str *notes;                         // NULL: not requested
  map noted;                          // schema and keyword of each note
  size_t n_notes;
  int32_t any, string;                // rules: any value; any string. -1: not made yet
  gx *space, *quote, *letter, *comma; // white space; '"'; a character of a string; "," and white space
  struct memo { nodes set; int32_t rule; } *memo;
  size_t n_memo, cap_memo;
  VEC(struct job) jobs;               // rules without bodies yet
  bool single;                        // the current set was derived from one schema, its first
  map made_of, made_not, made_if;     // alternatives made for schemas (dependentRequired, not, if);
                                      // made_not, made_if: NULL if not expressible
  VEC(json_t *) made;
  VEC(struct fit) fits;
  VEC(struct compiled) compiled;      // compiled patterns, the most recent ones
  matcher *matcher;                   // of `matches`, one of them; NULL: none
  const grammar *matches;
  smap anchors;                       // schemas by $anchor; NULL if two have the same name
  map elsewhere;                      // schemas whose $ref is relative to an $id other than the root's
  map listings;                       // indexes of enum arrays
  struct listing *listed;             // all of them, the last one first
  uint64_t work, looked;              // steps so far; at the last look at the account
  size_t held;                        // bytes taken by schema_hold
  uint64_t compared;                  // compared pairs of alternatives of oneOf
  // the first schema that accepts no value, and why: no error if other alternatives remain
  const json_t *empty;
  const char *empty_keyword, *empty_what;
} schema;

// Sets an error with the pointer to a schema and a keyword of it (may be NULL). Returns -1.
int schema_fail(const schema *s, const json_t *at, const char *keyword, const char *fmt, ...) PRINTF_LIKE(4, 5);
// Reports that a keyword cannot be enforced: a note and 0, or in strict mode an error as from schema_fail.
int schema_relax(schema *s, const json_t *at, const char *keyword, const char *fmt, ...) PRINTF_LIKE(4, 5);
// Adds a note in both modes.
void schema_note(schema *s, const json_t *at, const char *keyword, const char *fmt, ...) PRINTF_LIKE(4, 5);
// Call before work of n steps: fails if the schema exceeds its budget.
// Charge whatever grows with what is read (a list, a name, a text), for each time that it is read.
int schema_charge(schema *s, const json_t *at, uint64_t n);
// Call before memory is allocated that lives as long as the schema and is in no arena: fails above SCHEMA_HELD_MAX, or
// if the thread's account has no room.
int schema_hold(schema *s, const json_t *at, size_t bytes);
// Call after n objects of JSON were made, each of SCHEMA_MADE bytes.
int schema_made(schema *s, const json_t *at, size_t n);
bool schema_says(const char *keyword);                        // whether it is known and restricts values
// ---- schema_not.c
// For the owner of `not`, and for `if`: schemas, at least one of which must apply to a value in addition to the others,
// as an array that the schema owns. NULL: not expressible.
json_t *schema_negation(schema *s, json_t *owner);
json_t *schema_condition(schema *s, json_t *owner);
// Returns whether a schema is only a const, an enum or a pattern: `not` of these is subtracted.
bool schema_is_atom(const json_t *node);
bool schema_has_atoms(const nodes *set, unsigned *types);     // removes excluded types from types
bool schema_excluded(schema *s, const nodes *set, const json_t *value);
// Removes from *x, values of this type (content of a string), those that atoms exclude. -1 on error.
int schema_minus(schema *s, const nodes *set, unsigned type, gx **x);

// An expression that matches nothing, for a schema that accepts no value. Texts are borrowed.
gx *schema_empty(schema *s, const json_t *at, const char *keyword, const char *what);
gx *schema_value(schema *s, const nodes *set);                // a value that all of these accept. NULL: an error
gx *schema_any(schema *s);
gx *schema_literal(schema *s, const json_t *value);  // this value, with the optional white space of other values
// The target of $ref; 0 and *target NULL without $ref.
int schema_ref(schema *s, const json_t *node, json_t **target);
int schema_types(schema *s, const json_t *node, unsigned *types); // the types that `type` allows
unsigned schema_type_of(const json_t *value);
// 1: the keyword is present and a count; 0: absent; -1: an error
int schema_count(const schema *s, const json_t *node, const char *keyword, uint32_t *out);

gx *schema_object(schema *s, const nodes *set);
gx *schema_array(schema *s, const nodes *set);
gx *schema_string(schema *s, const nodes *set);               // with quotes
gx *schema_number(schema *s, const nodes *set, bool integer);
// The content of a string, without quotes, if it is constrained; *out NULL if only its length is. -1 on error.
int schema_content(schema *s, const nodes *set, gx **out, uint32_t *min, uint32_t *max);
gx *schema_of_length(schema *s, gx *content, uint32_t min, uint32_t max);   // of min to max characters
gx *schema_letters(schema *s);                                // any characters; only necessary escapes
// *out NULL: the pattern is not supported and is skipped. -1 on error.
int schema_pattern(schema *s, const json_t *node, const char *keyword, const char *text, size_t n, gx **out);
void schema_quoted(str *out, const char *text, size_t n);     // writes a string with its quotes

// 1: valid, 0: not, -1: an error. plain: ignores $ref, allOf, anyOf and oneOf.
int schema_check(schema *s, const json_t *value, json_t *node, bool plain, int depth);
int schema_pattern_matches(schema *s, const json_t *node, const char *keyword, const char *pattern, size_t n_pattern,
                           const char *text, size_t n);
void schema_patterns_free(schema *s);
void schema_fits_free(schema *s);
void schema_listings_free(schema *s);
bool schema_equal(schema *s, const json_t *a, const json_t *b);   // 1 equals 1.0
// 1: no value that a accepts is valid for b; 0: there may be one, or the budget of comparisons is spent; -1: an error.
// within: types that the value may have anyway. around: the only schema besides a that applies to the value; NULL:
// there may be others.
int schema_excludes(schema *s, json_t *a, json_t *b, unsigned within, const json_t *around, int depth);
// The regular expression of a format, NULL if it is unknown. types: the types that it applies to; 0: it restricts
// nothing.
const char *schema_format(const char *name, unsigned *types);
// The format that contentEncoding and contentMediaType of a string imply. NULL: none.
const char *schema_content_format(const json_t *node);
// Returns whether a format is for integers, and their range.
bool schema_integer_format(const char *name, double *lo, double *hi);
#endif
