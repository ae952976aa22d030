// Makes automata deterministic by the subset construction, trims and intersects them.
//
// Calls and tokens are symbols of their own: a state may call several callees, each of them once. So a rule is in a
// single state wherever its calls do not begin alike, and the masks of tokens are computed for few states.
//
// Invariant: in the results every state can be reached from state 0, and state 0 exists.
#include "grammar/grammar_impl.h"
#include "base/map.h"
#include <stdlib.h>
#include <string.h>

void automaton_free(automaton *a) {
  vec_free(&a->states);
  vec_free(&a->edges);
  vec_free(&a->calls);
  vec_free(&a->tokens);
}

typedef VEC(uint32_t) numbers;

static int by_state(const void *pa, const void *pb) {
  uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
  return (a > b) - (a < b);
}

struct set { uint32_t *at; uint32_t n; };

struct maker {
  const nfa *n;
  uint32_t stamp, *stamps;
  uint64_t *work;                   // the remaining budget of edges
  bool *matters;                    // [states] it has edges other than empty ones, or is the end
  arena *mem;
  smap ids;                         // from sets of states to numbers + 1
  uint32_t *alone, *self;  // [states] ids and state for sets of one state; for automata of a single text
  VEC(struct set) sets;
  numbers members;                  // the set that is being collected
  automaton *out;
};

static void spend_work(struct maker *m, uint64_t n) { *m->work -= n < *m->work ? n : *m->work; }

static void collect(struct maker *m, uint32_t state) {
  size_t from = m->members.n;
  if (m->stamps[state] == m->stamp) return;
  m->stamps[state] = m->stamp;
  vec_push(&m->members, state);
  for (size_t i = from; i < m->members.n; i++)
    for (uint32_t e = m->n->first.at[m->members.at[i]]; e != NO_STATE; e = m->n->edges.at[e].next, spend_work(m, 1)) {
      const struct nfa_edge *edge = &m->n->edges.at[e];
      if (edge->kind != NFA_EPS || m->stamps[edge->to] == m->stamp) continue;
      m->stamps[edge->to] = m->stamp;
      vec_push(&m->members, edge->to);
    }
}

static void set_begin(struct maker *m) {
  m->members.n = 0;
  m->stamp++;
}

// The number of the state for the collected set.
static uint32_t set_end(struct maker *m) {
  uint32_t n = 0;
  for (size_t i = 0; i < m->members.n; i++)
    if (m->matters[m->members.at[i]]) m->members.at[n++] = m->members.at[i];
  if (n) qsort(m->members.at, n, sizeof *m->members.at, by_state);
  void *found = NULL;
  const char *key = n ? (const char *)m->members.at : "";
  spend_work(m, n);
  if (n == 1) {
    uint32_t one = m->members.at[0];
    if (m->alone[one]) return m->alone[one] - 1;
    m->self[one] = one;
    vec_push(&m->sets, ((struct set){&m->self[one], 1}));
    m->alone[one] = (uint32_t)m->sets.n;
    return m->alone[one] - 1;
  }
  if (smap_get(&m->ids, key, n * sizeof(uint32_t), &found)) return (uint32_t)((uintptr_t)found - 1);
  uint32_t *at = ARENA_ARRAY(m->mem, uint32_t, n + 1);
  if (n) memcpy(at, m->members.at, n * sizeof *at);
  vec_push(&m->sets, ((struct set){at, n}));
  smap_set(&m->ids, (const char *)at, n * sizeof(uint32_t), (void *)(uintptr_t)m->sets.n);
  return (uint32_t)m->sets.n - 1;
}

static int by_arg(const void *pa, const void *pb) {
  const struct nfa_edge *a = *(const struct nfa_edge *const *)pa, *b = *(const struct nfa_edge *const *)pb;
  if (a->kind != b->kind) return (a->kind > b->kind) - (a->kind < b->kind);
  if (a->arg != b->arg) return (a->arg > b->arg) - (a->arg < b->arg);
  return (int)a->negated - (int)b->negated;
}

static void byte_edges(struct maker *m, struct set s) {
  bool cut[257] = {true};
  for (uint32_t i = 0; i < s.n; i++)
    for (uint32_t e = m->n->first.at[s.at[i]]; e != NO_STATE; e = m->n->edges.at[e].next)
      if (m->n->edges.at[e].kind == NFA_BYTE) cut[m->n->edges.at[e].lo] = cut[m->n->edges.at[e].hi + 1] = true;
  for (unsigned lo = 0, hi; lo < 256; lo = hi + 1) {
    for (hi = lo; !cut[hi + 1] && hi < 255; hi++) { }
    set_begin(m);
    for (uint32_t i = 0; i < s.n; i++)
      for (uint32_t e = m->n->first.at[s.at[i]]; e != NO_STATE; e = m->n->edges.at[e].next, spend_work(m, 1)) {
        const struct nfa_edge *edge = &m->n->edges.at[e];
        if (edge->kind == NFA_BYTE && edge->lo <= lo && lo <= edge->hi) collect(m, edge->to);
      }
    if (!m->members.n) continue;
    struct g_edge *last =
      m->out->edges.n > m->out->states.at[m->out->states.n - 1].edge0 ? &m->out->edges.at[m->out->edges.n - 1] : NULL;
    uint32_t to = set_end(m);
    if (last && last->to == to && last->hi + 1u == lo) last->hi = (uint8_t)hi;
    else vec_push(&m->out->edges, ((struct g_edge){to, (uint8_t)lo, (uint8_t)hi}));
  }
}

static void other_edges(struct maker *m, struct set s) {
  VEC(const struct nfa_edge *) found = {0};
  for (uint32_t i = 0; i < s.n; i++)
    for (uint32_t e = m->n->first.at[s.at[i]]; e != NO_STATE; e = m->n->edges.at[e].next)
      if (m->n->edges.at[e].kind > NFA_BYTE) vec_push(&found, &m->n->edges.at[e]);
  if (found.n) qsort(found.at, found.n, sizeof *found.at, by_arg);
  for (size_t i = 0, j; i < found.n; i = j) {
    set_begin(m);
    for (j = i; j < found.n && !by_arg(&found.at[i], &found.at[j]); j++) collect(m, found.at[j]->to);
    uint32_t to = set_end(m);
    if (found.at[i]->kind == NFA_CALL) vec_push(&m->out->calls, ((struct g_call){found.at[i]->arg, to}));
    else vec_push(&m->out->tokens, ((struct g_token){(int32_t)found.at[i]->arg, found.at[i]->negated, to}));
  }
  vec_free(&found);
}

static void state_begin(automaton *a) {
  vec_push(&a->states, ((struct g_state){.edge0 = (uint32_t)a->edges.n,
                                         .call0 = (uint32_t)a->calls.n,
                                         .token0 = (uint32_t)a->tokens.n,
                                         .loop = NO_STATE}));
}
static void state_end(automaton *a) {
  struct g_state *s = &a->states.at[a->states.n - 1];
  s->n_edges = (uint32_t)a->edges.n - s->edge0;
  s->n_calls = (uint32_t)a->calls.n - s->call0;
  s->n_tokens = (uint32_t)a->tokens.n - s->token0;
}

static bool *what_matters(const nfa *n, uint32_t end) {
  bool *matters = xcalloc(n->first.n, 1);
  for (uint32_t i = 0; i < n->first.n; i++) {
    matters[i] = i == end;
    for (uint32_t e = n->first.at[i]; e != NO_STATE && !matters[i]; e = n->edges.at[e].next)
      matters[i] = n->edges.at[e].kind != NFA_EPS;
  }
  return matters;
}

bool dfa_make(const nfa *n, uint32_t start, uint32_t end, uint32_t limit, uint64_t *work, automaton *out) {
  struct maker m = {
    .n = n, .work = work, .out = out, .mem = arena_new(), .stamps = xcalloc(n->first.n, sizeof *m.stamps)};
  m.alone = xcalloc(n->first.n, sizeof *m.alone);
  m.self = xcalloc(n->first.n, sizeof *m.self);
  m.matters = what_matters(n, end);
  *out = (automaton){0};
  set_begin(&m);
  collect(&m, start);
  set_end(&m);
  bool fits = true;
  for (size_t i = 0; i < m.sets.n && fits; i++) {
    struct set s = m.sets.at[i];
    state_begin(out);
    out->states.at[i].accept = s.n && bsearch(&end, s.at, s.n, sizeof *s.at, by_state);
    byte_edges(&m, s);
    other_edges(&m, s);
    state_end(out);
    fits = m.sets.n <= limit && *work && account_left(account_here());
  }
  vec_free(&m.sets);
  vec_free(&m.members);
  smap_free(&m.ids);
  arena_free(m.mem);
  free(m.stamps);
  free(m.alone);
  free(m.self);
  free(m.matters);
  if (!fits) {
    automaton_free(out);
    *out = (automaton){0};
  }
  return fits;
}

void nfa_keep(const nfa *n, uint32_t end, automaton *out) {
  *out = (automaton){0};
  for (uint32_t i = 0; i < n->first.n; i++) {
    state_begin(out);
    struct g_state *s = &out->states.at[i];
    s->accept = i == end;
    s->many = true;
    for (uint32_t e = n->first.at[i]; e != NO_STATE; e = n->edges.at[e].next) {
      const struct nfa_edge *edge = &n->edges.at[e];
      if (edge->kind == NFA_BYTE) vec_push(&out->edges, ((struct g_edge){edge->to, edge->lo, edge->hi}));
      else if (edge->kind == NFA_TOKEN)
        vec_push(&out->tokens, ((struct g_token){(int32_t)edge->arg, edge->negated, edge->to}));
      else vec_push(&out->calls, ((struct g_call){edge->kind == NFA_CALL ? edge->arg : CALL_NONE, edge->to}));
    }
    state_end(out);
  }
}

// ---- products -------------------------------------------------------------------------------------------------------

// The state of `a` after byte, or NO_STATE.
static uint32_t after(const automaton *a, uint32_t state, unsigned byte) {
  if (state == NO_STATE) return NO_STATE;
  const struct g_state *s = &a->states.at[state];
  for (uint32_t i = s->edge0; i < s->edge0 + s->n_edges; i++)
    if (a->edges.at[i].lo <= byte && byte <= a->edges.at[i].hi) return a->edges.at[i].to;
  return NO_STATE;
}

struct pair { uint32_t a, b, state; };

bool dfa_product(const automaton *a, const automaton *b, bool minus, uint64_t *work, nfa *out, uint32_t from,
                 uint32_t to) {
  map ids = {0};
  VEC(struct pair) pairs = {0};
  bool fits = true;
  vec_push(&pairs, ((struct pair){0, 0, from}));          // not in ids: no edge leads back to the caller's state
  for (size_t i = 0; i < pairs.n && fits; i++) {
    struct pair p = pairs.at[i];
    bool accepts_b = p.b != NO_STATE && b->states.at[p.b].accept;
    if (a->states.at[p.a].accept && accepts_b != minus)
      nfa_edge(out, p.state, (struct nfa_edge){.to = to, .kind = NFA_EPS});
    const struct g_state *s = &a->states.at[p.a];
    for (uint32_t e = s->edge0; e < s->edge0 + s->n_edges; e++)
      for (unsigned lo = a->edges.at[e].lo, hi; lo <= a->edges.at[e].hi; lo = hi + 1) {
        uint32_t nb = after(b, p.b, lo), na = a->edges.at[e].to;
        for (hi = lo; hi < a->edges.at[e].hi && after(b, p.b, hi + 1) == nb; hi++) { }
        if (nb == NO_STATE && !minus) continue;
        void *found = NULL;
        uint64_t key = (uint64_t)na << 32 | (uint32_t)(nb + 1);
        if (!map_get(&ids, key, &found)) {
          vec_push(&pairs, ((struct pair){na, nb, nfa_state(out)}));
          found = (void *)(uintptr_t)pairs.n;
          map_set(&ids, key, found);
        }
        uint32_t target = pairs.at[(uintptr_t)found - 1].state;
        nfa_edge(out, p.state, (struct nfa_edge){.to = target, .kind = NFA_BYTE, .lo = (uint8_t)lo, .hi = (uint8_t)hi});
      }
    uint64_t cost = 16 + 4 * (uint64_t)s->n_edges;
    fits = pairs.n <= GRAMMAR_STATES_MAX / 4 && *work > cost;
    *work -= fits ? cost : 0;
  }
  map_free(&ids);
  vec_free(&pairs);
  return fits;
}

bool dfa_letters(const automaton *a, const automaton *letters, uint64_t *work, automaton *out) {
  map ids = {0};
  VEC(struct pair) pairs = {0};
  bool fits = true;
  *out = (automaton){0};
  vec_push(&pairs, ((struct pair){0, 0, 0}));
  map_set(&ids, 0, (void *)1);
  for (size_t i = 0; i < pairs.n && fits; i++) {
    struct pair p = pairs.at[i];
    const struct g_state *s = &a->states.at[p.a];
    state_begin(out);
    out->states.at[i].whole = letters->states.at[p.b].accept;
    out->states.at[i].accept = s->accept && letters->states.at[p.b].accept;
    for (uint32_t e = s->edge0; e < s->edge0 + s->n_edges; e++)
      for (unsigned lo = a->edges.at[e].lo, hi; lo <= a->edges.at[e].hi; lo = hi + 1) {
        uint32_t nb = after(letters, p.b, lo), na = a->edges.at[e].to;
        for (hi = lo; hi < a->edges.at[e].hi && after(letters, p.b, hi + 1) == nb; hi++) { }
        if (nb == NO_STATE) continue;
        void *found = NULL;
        uint64_t key = (uint64_t)na << 32 | nb;
        if (!map_get(&ids, key, &found)) {
          vec_push(&pairs, ((struct pair){na, nb, 0}));
          found = (void *)(uintptr_t)pairs.n;
          map_set(&ids, key, found);
        }
        vec_push(&out->edges, ((struct g_edge){(uint32_t)(uintptr_t)found - 1, (uint8_t)lo, (uint8_t)hi}));
      }
    state_end(out);
    uint64_t cost = 16 + 4 * (uint64_t)s->n_edges;
    fits = pairs.n <= GRAMMAR_STATES_MAX / 8 && *work > cost;
    *work -= fits ? cost : 0;
  }
  map_free(&ids);
  vec_free(&pairs);
  if (!fits) {
    automaton_free(out);
    *out = (automaton){0};
  }
  return fits;
}
