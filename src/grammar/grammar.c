// Compiles a grammar: see grammar.h for the passes. Here callees are numbered as they are first called, and each is
// built, made deterministic and appended to the machine's table. Then states that cannot be finished are removed,
// callees that match the empty text are found, and bytes are grouped into classes.
#include "grammar/grammar_impl.h"
#include "base/plain.h"
#include <stdlib.h>
#include <string.h>

#define COUNT_MOST (1u << 28)        // letters that are counted; a larger count is unlimited
#define WORK_MAX (1u << 25)          // steps spent on making automata deterministic: about half a second

int grammar_fail(const compiler *c, const char *fmt, ...) {
  char text[600];
  va_list ap;
  va_start(ap, fmt);
  plain_vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  const struct grammar_rule *r = &c->src->rules.at[c->rule];
  if (r->line) return error_set(c->err, "line %u: rule '%.200s' %s", r->line, r->name, text);
  return error_set(c->err, "%.200s: %s", r->name, text);
}

// ---- callees --------------------------------------------------------------------------------------------------------

static uint32_t add_callee(compiler *c, const gx *body, uint32_t rule) {
  vec_push(&c->g->callees, ((struct g_callee){.start = NO_STATE, .loop_state = NO_STATE}));
  vec_push(&c->bodies, ((struct body){body, rule}));
  return (uint32_t)c->g->callees.n - 1;
}

// Bodies of loops by their expression: equal expressions are one callee.
static uint32_t callee_of_body(compiler *c, const gx *body) {
  if (c->n_loops * 2 >= c->cap_loops) {
    struct loop_entry *old = c->loops;
    size_t cap = c->cap_loops;
    c->cap_loops = cap ? cap * 2 : 64;
    c->loops = xcalloc(c->cap_loops, sizeof *c->loops);
    for (size_t i = 0; i < cap; i++) {
      if (!old[i].body) continue;
      size_t at = hash_u64((uintptr_t)old[i].body, 0) & (c->cap_loops - 1);
      while (c->loops[at].body) at = (at + 1) & (c->cap_loops - 1);
      c->loops[at] = old[i];
    }
    free(old);
  }
  size_t at = hash_u64((uintptr_t)body, 0) & (c->cap_loops - 1);
  while (c->loops[at].body && c->loops[at].body != body) at = (at + 1) & (c->cap_loops - 1);
  if (!c->loops[at].body) {
    c->loops[at] = (struct loop_entry){body, add_callee(c, body, c->rule)};
    c->n_loops++;
  }
  return c->loops[at].callee;
}

uint32_t grammar_callee(compiler *c, const gx *body, int32_t rule) {
  if (rule < 0) return callee_of_body(c, body);
  if (c->callee_of_rule[rule] == NO_STATE)
    c->callee_of_rule[rule] = add_callee(c, c->src->rules.at[rule].body, (uint32_t)rule);
  return c->callee_of_rule[rule];
}

uint32_t grammar_loop(compiler *c, const gx *body, uint32_t min, uint32_t max) {
  uint32_t of = body->kind == GX_RULE ? grammar_callee(c, NULL, body->id) : grammar_callee(c, body, -1);
  uint32_t n = (uint32_t)c->g->callees.n;
  for (uint32_t i = n > 32 ? n - 32 : 0; i < n; i++) {   // the same loop again
    const struct g_callee *k = &c->g->callees.at[i];
    if (k->loop && k->body == of && k->min == min && k->max == max) return i;
  }
  uint32_t callee = add_callee(c, NULL, c->rule);
  struct g_callee *k = &c->g->callees.at[callee];
  k->loop = true;
  k->body = of;
  k->min = min;
  k->max = max;
  return callee;
}

// ---- the machine ----------------------------------------------------------------------------------------------------

static void append(automaton *to, const automaton *part) {
  uint32_t base = (uint32_t)to->states.n, edges = (uint32_t)to->edges.n, calls = (uint32_t)to->calls.n,
           tokens = (uint32_t)to->tokens.n;
  for (size_t i = 0; i < part->states.n; i++) {
    struct g_state s = part->states.at[i];
    s.edge0 += edges;
    s.call0 += calls;
    s.token0 += tokens;
    vec_push(&to->states, s);
  }
  for (size_t i = 0; i < part->edges.n; i++) {
    struct g_edge e = part->edges.at[i];
    e.to += base;
    vec_push(&to->edges, e);
  }
  for (size_t i = 0; i < part->calls.n; i++)
    vec_push(&to->calls, ((struct g_call){part->calls.at[i].callee, part->calls.at[i].ret + base}));
  for (size_t i = 0; i < part->tokens.n; i++) {
    struct g_token t = part->tokens.at[i];
    t.to += base;
    vec_push(&to->tokens, t);
  }
}

static int machine_fits(const compiler *c) {
  if (c->g->a.states.n <= GRAMMAR_STATES_MAX && c->g->a.edges.n <= 4 * GRAMMAR_STATES_MAX) return 0;
  return grammar_fail(c, "and those before it need more than %u states", GRAMMAR_STATES_MAX);
}

// A callee that counts letters, if necessary.
static int build_counting(compiler *c, uint32_t callee) {
  const gx *x = c->bodies.at[callee].x;
  automaton part = {0};
  struct g_count table = {0};
  int status = nfa_count(c, x, &part, &table);
  if (!status) {
    struct g_callee *k = &c->g->callees.at[callee];
    uint32_t most = x->max > COUNT_MOST ? GRAMMAR_INF : x->max;
    bool never = !count_can_end(&table, 0, x->min, most);
    k->start = table.first = (uint32_t)c->g->a.states.n;
    k->counts = !never && !count_is_void(&table, x->min, most);
    k->min = table.least[0] >= x->min ? 0 : x->min;
    k->max = most;
    for (size_t i = 0; i < part.states.n; i++) {
      if (k->counts) part.states.at[i].count = (uint32_t)c->g->counts.n + 1;
      if (never) { part.states.at[i].accept = false; part.states.at[i].n_edges = 0; }
    }
    append(&c->g->a, &part);
    if (k->counts) vec_push(&c->g->counts, table);
  }
  if (status || !c->g->callees.at[callee].counts) { free(table.rows); free(table.least); }
  automaton_free(&part);
  return status;
}

// Bytes of an automaton, and of the construction's data per state.
static size_t nfa_bytes(const nfa *n) {
  return n->edges.cap * sizeof *n->edges.at + n->first.cap * 5 * sizeof *n->first.at;
}

static int build_callee(compiler *c, uint32_t callee) {
  if (c->bodies.at[callee].x->kind == GX_COUNT && !grammar_writes_out(c->bodies.at[callee].x)) {
    int failed = build_counting(c, callee);
    return failed ? failed : machine_fits(c);
  }
  nfa n = {0};
  automaton part = {0};
  uint32_t start = nfa_state(&n), end = nfa_state(&n);
  account *of = account_here();
  int status = nfa_build(c, &n, c->bodies.at[callee].x, start, end, false, 0);
  size_t bytes = nfa_bytes(&n);
  account_add(of, bytes);
  if (!status && !account_left(of)) status = account_check(c->err);
  if (!status) {
    uint32_t limit = n.first.n < 1000 ? 8000 : (uint32_t)(8 * n.first.n);
    if (!dfa_make(&n, start, end, limit, &c->work, &part)) nfa_keep(&n, end, &part);
    c->g->callees.at[callee].start = (uint32_t)c->g->a.states.n;
    append(&c->g->a, &part);
    status = machine_fits(c);
  }
  nfa_free(&n);
  account_give(of, bytes);
  automaton_free(&part);
  return status;
}

static int build_all(compiler *c) {
  for (uint32_t i = 0; i < c->g->callees.n; i++) {
    if (!c->bodies.at[i].x) continue;
    c->rule = c->bodies.at[i].rule;
    if (build_callee(c, i)) return -1;
  }
  for (uint32_t i = 0; i < c->g->callees.n; i++) {   // the loop states
    struct g_callee *k = &c->g->callees.at[i];
    if (!k->loop) continue;
    struct g_callee *body = &c->g->callees.at[k->body];
    if (body->loop_state == NO_STATE) {
      body->loop_state = (uint32_t)c->g->a.states.n;
      vec_push(&c->g->a.states, ((struct g_state){.loop = k->body}));
    }
    k->start = body->loop_state;
  }
  return 0;
}

struct link { uint32_t key, from; };

// Computes a property of states: it holds if the state accepts, or after one of its edges it holds, or after a call of
// a callee of which it holds too. With edges on bytes it means "a text can be finished from here", without them "the
// empty text is enough". It is propagated backwards from accepting states.
static bool *holds(const grammar *g, bool with_edges, bool *callee_holds) {
  uint32_t n = (uint32_t)g->a.states.n, nc = (uint32_t)g->callees.n;
  bool *yes = xcalloc(n, 1), changed = true;
  uint32_t *first = xcalloc((size_t)n + 1, sizeof *first), *who = NULL,
           *of_callee = xcalloc((size_t)nc + 1, sizeof *of_callee), *callers = NULL;
  VEC(struct link) links = {0};   // by state: its predecessors; by callee: its callers
  for (int pass = 0; pass < 2; pass++) {
    links.n = 0;
    for (uint32_t s = 0; s < n; s++) {
      const struct g_state *st = &g->a.states.at[s];
      for (uint32_t i = 0; with_edges && !pass && i < st->n_edges; i++)
        vec_push(&links, ((struct link){g->a.edges.at[st->edge0 + i].to, s}));
      for (uint32_t i = 0; with_edges && !pass && i < st->n_tokens; i++)
        vec_push(&links, ((struct link){g->a.tokens.at[st->token0 + i].to, s}));
      for (uint32_t i = 0; i < st->n_calls; i++) {
        struct g_call call = g->a.calls.at[st->call0 + i];
        if (!pass) vec_push(&links, ((struct link){call.ret, s}));
        else if (call.callee != CALL_NONE) vec_push(&links, ((struct link){call.callee, s}));
      }
    }
    uint32_t *start = pass ? of_callee : first, *list = xcalloc(links.n + 1, sizeof *list), size = pass ? nc : n;
    for (size_t i = 0; i < links.n; i++) start[links.at[i].key + 1]++;
    for (uint32_t i = 0; i < size; i++) start[i + 1] += start[i];
    uint32_t *at = xcalloc((size_t)size + 1, sizeof *at);
    memcpy(at, start, ((size_t)size + 1) * sizeof *at);
    for (size_t i = 0; i < links.n; i++) list[at[links.at[i].key]++] = links.at[i].from;
    free(at);
    if (pass) callers = list;
    else who = list;
  }
  vec_free(&links);
  VEC(uint32_t) todo = {0};
  for (uint32_t s = 0; s < n; s++)
    if (g->a.states.at[s].accept) { yes[s] = true; vec_push(&todo, s); }
  while (changed) {
    while (todo.n) {
      uint32_t s = todo.at[--todo.n];
      for (uint32_t i = first[s]; i < first[s + 1]; i++) {
        uint32_t from = who[i];
        if (yes[from]) continue;
        const struct g_state *st = &g->a.states.at[from];
        bool is = false;
        for (uint32_t k = 0; with_edges && k < st->n_edges && !is; k++) is = yes[g->a.edges.at[st->edge0 + k].to];
        for (uint32_t k = 0; with_edges && k < st->n_tokens && !is; k++) is = yes[g->a.tokens.at[st->token0 + k].to];
        for (uint32_t k = 0; k < st->n_calls && !is; k++) {
          struct g_call call = g->a.calls.at[st->call0 + k];
          is = (call.callee == CALL_NONE || callee_holds[call.callee]) && yes[call.ret];
        }
        if (is) { yes[from] = true; vec_push(&todo, from); }
      }
    }
    changed = false;
    for (uint32_t k = 0; k < nc; k++) {
      const struct g_callee *callee = &g->callees.at[k];
      if (callee_holds[k]) continue;
      callee_holds[k] = callee->loop ? !callee->min || callee_holds[callee->body] : yes[callee->start];
      if (!callee_holds[k]) continue;
      changed = true;
      for (uint32_t i = of_callee[k]; i < of_callee[k + 1]; i++) {   // its callers may have the property now
        uint32_t from = callers[i];
        const struct g_state *st = &g->a.states.at[from];
        for (uint32_t j = 0; j < st->n_calls && !yes[from]; j++)
          if (g->a.calls.at[st->call0 + j].callee == k && yes[g->a.calls.at[st->call0 + j].ret]) {
            yes[from] = true;
            vec_push(&todo, from);
          }
      }
    }
  }
  vec_free(&todo);
  free(first); free(who); free(of_callee); free(callers);
  return yes;
}

// Removes states that cannot be finished.
static void trim(grammar *g) {
  bool *callee_lives = xcalloc(g->callees.n, 1), *lives = holds(g, true, callee_lives);
  for (uint32_t s = 0; s < g->a.states.n; s++) {
    struct g_state *st = &g->a.states.at[s];
    uint32_t n = 0;
    for (uint32_t i = 0; i < st->n_edges; i++) {
      struct g_edge e = g->a.edges.at[st->edge0 + i];
      if (lives[e.to]) g->a.edges.at[st->edge0 + n++] = e;
    }
    st->n_edges = n;
    n = 0;
    for (uint32_t i = 0; i < st->n_calls; i++) {
      struct g_call call = g->a.calls.at[st->call0 + i];
      if (lives[call.ret] && (call.callee == CALL_NONE || callee_lives[call.callee]))
        g->a.calls.at[st->call0 + n++] = call;
    }
    st->n_calls = n;
    n = 0;
    for (uint32_t i = 0; i < st->n_tokens; i++) {
      struct g_token t = g->a.tokens.at[st->token0 + i];
      if (lives[t.to]) g->a.tokens.at[st->token0 + n++] = t;
    }
    st->n_tokens = n;
    st->last = st->accept && !st->n_edges && !st->n_calls && !st->n_tokens;
  }
  for (uint32_t k = 0; k < g->callees.n; k++) {   // a loop over a body that never ends: only zero repetitions remain
    struct g_callee *c = &g->callees.at[k];
    if (c->loop && !callee_lives[c->body]) c->max = 0;
  }
  if (!callee_lives[g->root]) g->root = NO_STATE;
  free(callee_lives);
  free(lives);
}

static void find_empty(grammar *g) {
  bool *callee_empty = xcalloc(g->callees.n, 1), *empty = holds(g, false, callee_empty);
  for (uint32_t k = 0; k < g->callees.n; k++)
    g->callees.at[k].nullable = callee_empty[k] && !(g->callees.at[k].counts && g->callees.at[k].min);
  // repetitions of a body that may be empty may be empty: then none is needed
  for (uint32_t k = 0; k < g->callees.n; k++)
    if (g->callees.at[k].loop && callee_empty[g->callees.at[k].body]) g->callees.at[k].min = 0;
  free(callee_empty);
  free(empty);
}

// Finds the bodies of loops that are plain.
static void find_plain(grammar *g) {
  bool *seen = xcalloc(g->a.states.n + 1, 1);
  VEC(uint32_t) todo = {0};
  for (uint32_t k = 0; k < g->callees.n; k++) {
    struct g_callee *c = &g->callees.at[k];
    if (c->loop_state == NO_STATE || c->nullable) continue;
    c->plain = true;
    vec_push(&todo, c->start);
    while (todo.n) {
      uint32_t q = todo.at[--todo.n];
      const struct g_state *st = &g->a.states.at[q];
      c->plain &= !st->n_calls && !st->n_tokens && !st->many && (!st->accept || st->last);
      if (seen[q]) continue;
      seen[q] = true;
      for (uint32_t i = 0; i < st->n_edges; i++) vec_push(&todo, g->a.edges.at[st->edge0 + i].to);
    }
  }
  vec_free(&todo);
  free(seen);
}

static void classify(grammar *g) {
  bool cut[257] = {true};
  for (size_t i = 0; i < g->a.edges.n; i++) cut[g->a.edges.at[i].lo] = cut[g->a.edges.at[i].hi + 1] = true;
  for (unsigned b = 0, class = 0; b < 256; b++) {
    if (b && cut[b]) class++;
    g->class_of[b] = (uint8_t)class;
    g->n_classes = class + 1;
  }
}

// The memory exists already, so this does not fail: the next allocation checks the limit.
static void charge_grammar(grammar *g) {
  const automaton *a = &g->a;
  g->of = account_here();
  g->bytes = a->states.cap * sizeof *a->states.at + a->edges.cap * sizeof *a->edges.at +
             a->calls.cap * sizeof *a->calls.at + a->tokens.cap * sizeof *a->tokens.at +
             g->callees.cap * sizeof *g->callees.at;
  for (size_t i = 0; i < g->counts.n; i++)
    g->bytes += (uint64_t)g->counts.at[i].n_rows * g->counts.at[i].n_states / 8;
  account_add(g->of, g->bytes);
}

int grammar_compile(const grammar_source *s, int32_t root, grammar **out, error *err) {
  if (account_check(err)) return -1;
  if (s->too_large) return error_set(err, "the grammar has more than %u parts", GRAMMAR_NODES_MAX);
  compiler c = {.src = s,
                .g = xcalloc(1, sizeof *c.g),
                .recursive = xcalloc(s->rules.n, 1),
                .callee_of_rule = xcalloc(s->rules.n, sizeof *c.callee_of_rule),
                .rule = (uint32_t)root,
                .work = WORK_MAX,
                .err = err};
  memset(c.callee_of_rule, 0xFF, s->rules.n * sizeof *c.callee_of_rule);
  int status = grammar_check(&c);
  c.g->root = grammar_callee(&c, NULL, root);
  if (!status) status = build_all(&c);
  if (!status) {
    trim(c.g);
    find_empty(c.g);
    if (c.g->root != NO_STATE) find_plain(c.g);
    classify(c.g);
    c.rule = (uint32_t)root;
    if (c.g->root == NO_STATE)
      status = grammar_fail(&c, "matches nothing: no text that begins so can ever be finished");
  }
  vec_free(&c.bodies);
  free(c.loops);
  free(c.recursive);
  free(c.callee_of_rule);
  c.g->work = WORK_MAX - c.work;
  charge_grammar(c.g);
  if (status) grammar_free(c.g);
  else *out = c.g;
  return status;
}

void grammar_free(grammar *g) {
  if (!g) return;
  account_give(g->of, g->bytes);
  automaton_free(&g->a);
  for (size_t i = 0; i < g->counts.n; i++) { free(g->counts.at[i].rows); free(g->counts.at[i].least); }
  vec_free(&g->counts);
  vec_free(&g->callees);
  free(g);
}

uint32_t grammar_n_states(const grammar *g) { return (uint32_t)g->a.states.n; }
uint64_t grammar_work(const grammar *g) { return g->work; }
