// grammar_impl: the data between the passes of grammar_compile, and the machine that they make. See grammar.h.
//
// A machine is one table of states. A state has edges on bytes, edges on tokens, and calls of callees, each with the
// caller's state after the call. A callee is a rule, the body of a counted repetition, or such a repetition itself, a
// loop. A loop has no automaton of its own: it enters the one loop state of its body with two counts, of repetitions
// that are still needed and of those that are still possible. So all loops over one body share their states and masks,
// whatever their counts.
#ifndef WEFT_GRAMMAR_IMPL_H
#define WEFT_GRAMMAR_IMPL_H
#include "base/account.h"
#include "grammar/grammar.h"

#define NO_STATE UINT32_MAX
#define INLINE_DEPTH 64                       // nested rules that are inlined

struct g_edge { uint32_t to; uint8_t lo, hi; };
struct g_call { uint32_t callee, ret; };      // callee CALL_NONE: continues at ret
struct g_token { int32_t id; bool negated; uint32_t to; };
#define CALL_NONE UINT32_MAX
struct g_state {
  uint32_t edge0, call0, token0;              // first of its edges, calls, token edges
  uint32_t n_edges, n_calls, n_tokens;
  uint32_t loop;                              // the body's callee, if this is a loop state; else NO_STATE
  uint32_t count;                             // index of the table of a counting callee, + 1; 0: none
  bool whole;                                 // in such a callee: a whole number of letters has been read
  bool accept;                                // the callee may end here
  bool last;                                  // and has no edges or calls
  bool many;                                  // edges overlap
};
typedef VEC(struct g_state) g_states;
typedef VEC(struct g_edge) g_edges;
typedef VEC(struct g_call) g_calls;
typedef VEC(struct g_token) g_tokens;
// state 0 is the first
typedef struct automaton { g_states states; g_edges edges; g_calls calls; g_tokens tokens; } automaton;
void automaton_free(automaton *a);

struct g_callee {
  uint32_t start;                             // NO_STATE: not built yet
  bool loop, nullable;
  bool counts;                                // its places count letters, from min to max
  // a body whose end is unambiguous: it has no calls, and none of its texts is a prefix of another
  bool plain;
  uint32_t body, min, max;                    // of a loop or a counting callee; body is a callee
  uint32_t loop_state;                        // of a body: the state of its loops; NO_STATE: none
};

// A counting callee: its states are first .. first + n_states - 1. Row n of the table has those from which n more
// letters may end its text; settled: all rows after the last one are equal to it.
struct g_count {
  uint32_t first, n_states, n_rows;
  uint64_t *rows;
  uint32_t *least, farthest;                  // fewest letters to an end (GRAMMAR_INF: none), and the maximum of these
  bool settled, full;                         // full: the last row has every state that can reach an end
};

struct grammar {
  automaton a;
  VEC(struct g_callee) callees;
  VEC(struct g_count) counts;
  uint32_t root;                              // a callee
  uint8_t class_of[256];                      // bytes that no edge distinguishes are one class
  uint32_t n_classes;
  uint64_t work;                              // of compiling
  account *of;                                // the account that its bytes are charged to
  size_t bytes;
};

// ---- compiling ------------------------------------------------------------------------------------------------------

// Nondeterministic automata under construction.
enum nfa_kind { NFA_EPS, NFA_BYTE, NFA_CALL, NFA_TOKEN };
struct nfa_edge { uint32_t to, next, arg; uint8_t kind, lo, hi; bool negated; };   // arg: callee or token
// first edge of each state, or NO_STATE
typedef struct nfa { VEC(struct nfa_edge) edges; VEC(uint32_t) first; } nfa;
uint32_t nfa_state(nfa *n);
void nfa_edge(nfa *n, uint32_t from, struct nfa_edge e);
void nfa_free(nfa *n);

// the expression of a callee (NULL: a loop), and the rule that it comes from
struct body { const gx *x; uint32_t rule; };

typedef struct compiler {
  const grammar_source *src;
  grammar *g;
  bool *recursive;                            // [rules]
  uint32_t *callee_of_rule;                   // [rules] or NO_STATE
  VEC(struct body) bodies;                    // [callees]
  struct loop_entry { const gx *body; uint32_t callee; } *loops;   // hash table of bodies
  size_t n_loops, cap_loops;
  uint32_t rule;                              // being built, for messages
  bool too_deep;                              // expressions are nested too deeply for the stack
  // remaining steps for making automata deterministic, for the whole grammar
  uint64_t work;
  error *err;
} compiler;

// Whether a count of letters is expanded, as an intersection, instead of counted.
bool grammar_writes_out(const gx *count);
// The texts of `a` that consist of letters: deterministic, with `whole` of its states set. False: too large.
bool dfa_letters(const automaton *a, const automaton *letters, uint64_t *work, automaton *out);
// The table of an automaton with states 0 .. n - 1; false: too large.
bool count_table(const automaton *a, uint32_t min, uint32_t max, uint64_t *work, struct g_count *out);
// Whether min to max more letters from a state may end the text.
bool count_can_end(const struct g_count *c, uint32_t state, uint32_t min, uint32_t max);
bool count_is_void(const struct g_count *c, uint32_t min, uint32_t max);  // all of its texts have that many letters

#define GRAMMAR_TOO_DEEP "has parts in parts, and the stack has no room for more"
int grammar_check(compiler *c);               // sizes, recursion.  -1: too deep
bool grammar_inlines(const compiler *c, int32_t rule);
uint32_t grammar_callee(compiler *c, const gx *body, int32_t rule);            // of a rule, or (rule -1) of a body
uint32_t grammar_loop(compiler *c, const gx *body, uint32_t min, uint32_t max);
int grammar_fail(const compiler *c, const char *fmt, ...) PRINTF_LIKE(2, 3);   // "line 3: rule 'a': ..."
// Adds paths for an expression from one state to another. regular: everything is inlined, no calls.
int nfa_build(compiler *c, nfa *n, const gx *x, uint32_t from, uint32_t to, bool regular, int depth);
// The parts of a GX_COUNT: its deterministic automaton and the table for that.
int nfa_count(compiler *c, const gx *x, automaton *out, struct g_count *table);
// Deterministic. False: more than `limit` states, or the budget is spent.
bool dfa_make(const nfa *n, uint32_t start, uint32_t end, uint32_t limit, uint64_t *work, automaton *out);
// Keeps the nondeterministic states, beginning with number 0, if a deterministic automaton would be too large.
void nfa_keep(const nfa *n, uint32_t end, automaton *out);
// Adds paths for texts that both automata, or the first and not the second, accept. Both are deterministic. False: too
// large.
bool dfa_product(const automaton *a, const automaton *b, bool minus, uint64_t *work, nfa *out, uint32_t from,
                 uint32_t to);
#endif
