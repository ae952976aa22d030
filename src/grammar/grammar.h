// grammar: which texts may be generated, and which tokens may come next after each token.
//
// A front end (gbnf.h, regex.h, schema.h) writes a grammar as rules whose bodies are expressions (gx) over code points:
// literals, classes, sequences, alternatives, counted repetitions, calls of rules. It is context-free: rules may call
// each other and themselves in any way, including left recursion. Compiling and matching go through these files:
//
//   grammar_build.c    expressions and sets of characters
//   grammar_check.c    which rules exist, end, match the empty text, are recursive; their sizes
//   grammar_nfa.c      expressions -> automata over bytes (UTF-8), one for each rule; small rules are inlined
//   grammar_dfa.c      makes each automaton deterministic and trims it; calls of rules are symbols like bytes;
//                      intersections
//   grammar_count.c    automata whose texts have a number of letters
//   grammar_match.c    all rules' automata together with a stack: the state after some text (grammar_machine.h)
//   grammar_mask.c     a state and the vocabulary's tokens: which are allowed
//
// Guarantees:
//  - After any accepted text there is a continuation that the grammar accepts: states that cannot be finished are
//    removed beforehand, and a grammar that accepts nothing at all is refused.
//  - Time and memory have limits for any grammar: GRAMMAR_* below. Beyond them is an error, at compiling or, for a
//    grammar of unbounded ambiguity, while matching.
//  - Counts are counted, not expanded: "x{1,1000000}" costs no more than "x{1,9}".
#ifndef WEFT_GRAMMAR_H
#define WEFT_GRAMMAR_H
#include "base/arena.h"
#include "base/base.h"
#include "base/str.h"
#include "text/text.h"

#define GRAMMAR_SOURCE_MAX (4u << 20)      // bytes of a grammar, schema or regular expression
#define GRAMMAR_NODES_MAX (1u << 20)       // expressions
#define GRAMMAR_RULES_MAX (1u << 16)
#define GRAMMAR_DEPTH_MAX 200              // of parentheses
#define GRAMMAR_STATES_MAX (1u << 19)      // of all automata, and of each intermediate one
#define GRAMMAR_INF UINT32_MAX             // a repetition without an upper bound

// ---- building -------------------------------------------------------------------------------------------------------

struct gx_range { uint32_t lo, hi; };                       // code points, inclusive
typedef struct charset { struct gx_range *at; size_t n, cap; } charset;   // {0}: empty. For charset_free
void charset_add(charset *s, uint32_t lo, uint32_t hi);
void charset_add_all(charset *s, const charset *from);
void charset_normalise(charset *s);                          // sorted, disjoint, without surrogates
void charset_negate(charset *s);                             // normalises
// Adds the other case of every letter. Returns how many letters were looked up, about 5 ns each.
size_t charset_fold(charset *s);
bool charset_has(const charset *s, uint32_t cp);             // of a normalised set
void charset_free(charset *s);

enum gx_kind {
  GX_EMPTY,      // the empty text
  GX_BYTES,      // these bytes (valid UTF-8)
  GX_CLASS,      // one character of a set; an empty set matches nothing
  GX_SEQ, GX_ALT,
  GX_REPEAT,     // sub[0], min to max times
  GX_RULE,       // a call
  GX_TOKEN,      // one token of the vocabulary, or (negated) any other
  GX_LIST,       // items in order, some optional, with separators: see gx_list
  GX_AND,        // matched by both parts, which are regular (no calls)
  GX_MINUS,      // matched by the first part and not by the second
  GX_COUNT,      // matched by sub[0], which is regular, with min to max letters, each of which sub[1] matches
  GX_MULTIPLE    // an unsigned decimal with at most max digits after the point: a multiple of min / 10^max
};
typedef struct gx gx;
struct gx {
  uint8_t kind;
  bool negated;                  // TOKEN
  uint32_t n;                    // sub, bytes, ranges
  uint32_t min, max;             // REPEAT, COUNT; LIST: entries; MULTIPLE: min
  int32_t id;                    // RULE, TOKEN: which; LIST: items
  // approximate number of states of its automaton, and bytes of its longest text (grammar_check.c)
  uint32_t size, longest;
  uint32_t seen;
  union { gx **sub; const char *text; const struct gx_range *ranges; };
  const bool *required;          // LIST
};
_Static_assert(sizeof(gx) <= 48, "a text has many expressions");

struct grammar_rule { const char *name; uint32_t line; gx *body; };   // line 0: no body
typedef struct grammar_source {
  arena *mem;
  VEC(struct grammar_rule) rules;
  uint32_t nodes;
  bool too_large;                // more than GRAMMAR_NODES_MAX: expressions are no longer valid
  gx spare;
} grammar_source;
void grammar_source_init(grammar_source *s);
void grammar_source_free(grammar_source *s);
// its body is set later; -1: too many
int32_t grammar_rule_new(grammar_source *s, const char *name, size_t n, uint32_t line);

gx *gx_empty(grammar_source *s);
gx *gx_never(grammar_source *s);                                        // matches nothing
gx *gx_bytes(grammar_source *s, const char *text, size_t n);            // copied
gx *gx_text(grammar_source *s, const char *text);
gx *gx_class(grammar_source *s, const charset *set);                    // normalised; copied
gx *gx_range(grammar_source *s, uint32_t lo, uint32_t hi);
gx *gx_seq(grammar_source *s, gx *const *sub, size_t n);                // arrays are copied
gx *gx_alt(grammar_source *s, gx *const *sub, size_t n);                // of none: never
gx *gx_repeat(grammar_source *s, gx *x, uint32_t min, uint32_t max);
gx *gx_rule(grammar_source *s, int32_t rule);
gx *gx_token(grammar_source *s, int32_t id, bool negated);
gx *gx_and(grammar_source *s, gx *a, gx *b);
gx *gx_minus(grammar_source *s, gx *a, gx *b);
// x with min to max letters. A letter is finite, not empty, and not a prefix of another letter.
gx *gx_count(grammar_source *s, gx *x, gx *letter, uint32_t min, uint32_t max);
gx *gx_multiple(grammar_source *s, uint32_t of, uint32_t digits);   // of / 10^digits
// Items in this order, with sep between them; those that are not required may be left out. rest (may be NULL) may
// follow any number of times. At least min and at most max of all of them (GRAMMAR_INF: unlimited).
gx *gx_list(grammar_source *s, gx *const *items, const bool *required, size_t n, gx *sep, gx *rest, uint32_t min,
            uint32_t max);
#define GX_SEQ_OF(s, ...) gx_seq(s, (gx *[]){__VA_ARGS__}, sizeof((gx *[]){__VA_ARGS__}) / sizeof(gx *))
#define GX_ALT_OF(s, ...) gx_alt(s, (gx *[]){__VA_ARGS__}, sizeof((gx *[]){__VA_ARGS__}) / sizeof(gx *))

// ---- compiling ------------------------------------------------------------------------------------------------------

typedef struct grammar grammar;            // immutable; any number of threads may use one
// Compiles rules; the root rule is `root`. -1 and a message that names rule and line. The source may be freed
// afterwards.
int grammar_compile(const grammar_source *s, int32_t root, grammar **out, error *err);
void grammar_free(grammar *g);             // NULL is fine
uint32_t grammar_n_states(const grammar *g);
uint64_t grammar_work(const grammar *g);   // steps that compiling took, about 15 ns each

// ---- matching -------------------------------------------------------------------------------------------------------

// The tokens of a vocabulary, prepared for masks.
typedef struct grammar_vocab grammar_vocab;
int grammar_vocab_new(const tokenizer *t, grammar_vocab **out, error *err);    // t must live as long
void grammar_vocab_free(grammar_vocab *v); // NULL is fine
const char *grammar_vocab_bytes(const grammar_vocab *v, int32_t id, size_t *n);   // n 0: not a text token
bool grammar_vocab_ends(const grammar_vocab *v, int32_t id);
int32_t grammar_vocab_size(const grammar_vocab *v);
size_t grammar_vocab_longest(const grammar_vocab *v);

// A matcher: a position in a text of the grammar. Copies are cheap and share computed results. A matcher and its copies
// are used by one thread at a time.
typedef struct matcher matcher;
// v may be NULL: then there are no masks, and only matcher_bytes advances. g and v must live as long. -1: too
// ambiguous.
int matcher_new(const grammar *g, const grammar_vocab *v, matcher **out, error *err);
matcher *matcher_clone(const matcher *m);
void matcher_free(matcher *m);             // NULL is fine
void matcher_reset(matcher *m);
// Advances over bytes. *ok: whether the grammar allows them here; if not, nothing has changed. -1: too ambiguous.
int matcher_bytes(matcher *m, const char *text, size_t n, bool *ok, error *err);
// Places examined since it was made, by it and all its copies: 25 to 100 ns each.
uint64_t matcher_work(const matcher *m);
bool matcher_complete(const matcher *m);   // the text may end here
bool matcher_can_go_on(const matcher *m);  // more text may follow
// The tokens that may come next: bit id % 64 of word id / 64, (n + 63) / 64 words for n tokens. Valid until the next
// call. Includes the tokens that end a generation if the text may end. -1: too ambiguous.
int matcher_mask(matcher *m, const uint64_t **mask, error *err);
// Advances over a token. -1 and an error if the mask lacks it, or the grammar is too ambiguous.
int matcher_accept(matcher *m, int32_t id, error *err);
#endif
