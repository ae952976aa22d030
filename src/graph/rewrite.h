// Rewriting: rules are tables in C that read like mathematics.
//
//   RULES(symbolic, INTS) = {
//     R( ADD(x, K(0)),            x ),
//     R( MUL(MUL(x, c0), c1),     MUL(x, MUL(c0, c1)) ),
//     F( IDIV(x, c0),             divide_sum ),
//   };
//   RULES_END(symbolic)
//   u = graph_rewrite(g, u, PM(symbolic, movement), ctx, "initial symbolic");
//
// The laws
// - A rule keeps dtype, lanes and shape. Rewriting shrinks or canonicalises, so it ends: no rule is the inverse of
//   another, none only swaps operands (ops.h says what commutes; patterns try both orders).
// - A repeated variable means the same node. x y z w match anything, c0 c1 c2 only constants (also a constant in every
//   lane).
// - Tables are for INTS, FLOATS, BOOLS or ANYTHING (by the dtype of the node; for comparisons, of what is compared).
//   Float rules are bit-exact, except in tables marked REASSOCIATING. Rules that expand are in separate tables and
//   passes.
// - The right side of R is built from the variables; constants fold. F calls a function that returns the replacement,
//   or NULL for no match.
// - A rule keeps its own text and line: traces (DEBUG=6) print it as written, and how often it fired.
//
// The macros of the pattern language (ADD(x, y), K(0), ...) are in rules.h; files with tables include it last.
#ifndef WEFT_REWRITE_H
#define WEFT_REWRITE_H
#include "graph/uop.h"

// pattern ops besides enum op: any node, any constant, the constant `k`
enum { PAT_VAR = 200, PAT_CONST, PAT_INT };
enum { MAX_PAT_VARS = 8 };

typedef struct pat {
  uint8_t op;                // enum op, or PAT_*
  uint8_t var;               // 1 + slot of the variable that it binds; 0: none
  uint8_t nsrc;
  int8_t dt;                 // required dtype; 0: any
  int64_t k;                 // PAT_INT: its value
  const struct pat *src[3];
} pat;

typedef uop *rule_fn(graph *g, uop *u, uop *const *v, void *ctx);     // v: the variables x y z w c0 c1 c2 by slot

typedef struct rule {
  const pat *lhs, *rhs;      // rhs, or fn
  rule_fn *fn;
  const char *text;
  int line;
} rule;

enum rule_domain { ANYTHING, INTS, FLOATS, BOOLS };
enum { REASSOCIATING = 16 };                      // or-ed to the domain

typedef struct ruleset {
  const char *name;
  int domain;
  const rule *rules;
  unsigned n;
  unsigned *hits;            // per rule, over the life of the program
  const char *file;          // file of the table
} ruleset;

#define PM(...) (const ruleset *const[]){__VA_ARGS__, NULL}

// Applies the tables, sources first, until nothing matches. ctx is passed to the F functions. `pass` names the pass in
// traces.
uop *graph_rewrite(graph *g, uop *root, const ruleset *const *sets, void *ctx, const char *pass);
// With a memo of results: node -> its fixed point. Only for tables whose F functions read nothing but the node.
uop *graph_rewrite_memo(graph *g, uop *root, const ruleset *const *sets, void *ctx, const char *pass, map *memo);
// The first rule that matches node u itself, applied once; NULL if none does.
uop *rewrite_once(graph *g, uop *u, const ruleset *const *sets, void *ctx, const char *pass);
bool rule_match(const rule *r, int domain, uop *u, uop **v);          // for the tests of tables
uop *rule_apply(graph *g, const rule *r, uop *u, uop *const *v, void *ctx);
// All tables of this folder, for tests; NULL-terminated. Add new tables in rulesets.c.
extern const ruleset *const all_rulesets[];
#endif
