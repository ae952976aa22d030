// Converts expressions to nondeterministic automata over bytes: Thompson's construction, with characters as their UTF-8
// bytes.
//
// Repetitions with small counts are expanded; others become loops, which count. If an expression must be regular (a
// part of an intersection), everything is expanded, or the grammar is refused.
#include "base/stack.h"
#include "grammar/grammar_impl.h"
#include <stdlib.h>
#include <string.h>

#define EXPAND_STATES 64             // counted repetitions of at most this many states are expanded

uint32_t nfa_state(nfa *n) {
  vec_push(&n->first, NO_STATE);
  return (uint32_t)n->first.n - 1;
}

void nfa_edge(nfa *n, uint32_t from, struct nfa_edge e) {
  e.next = n->first.at[from];
  n->first.at[from] = (uint32_t)n->edges.n;
  vec_push(&n->edges, e);
}

void nfa_free(nfa *n) {
  vec_free(&n->edges);
  vec_free(&n->first);
}

static void eps(nfa *n, uint32_t from, uint32_t to) { nfa_edge(n, from, (struct nfa_edge){.to = to, .kind = NFA_EPS}); }
static void bytes(nfa *n, uint32_t from, uint32_t to, unsigned lo, unsigned hi) {
  nfa_edge(n, from, (struct nfa_edge){.to = to, .kind = NFA_BYTE, .lo = (uint8_t)lo, .hi = (uint8_t)hi});
}

// ---- characters -----------------------------------------------------------------------------------------------------

// All characters lo..hi of `left` bytes, the first of which begins with the bits of `lead`. While the ends of the range
// agree, so do its bytes; then it is split into a lower part, a middle of whole blocks and an upper part.
static void utf8_range(nfa *n, uint32_t from, uint32_t to, uint32_t lo, uint32_t hi, int left, unsigned lead) {
  uint32_t bits = 6u * (uint32_t)(left - 1), rest = ((uint32_t)1 << bits) - 1;
  if (left == 1) { bytes(n, from, to, lead | lo, lead | hi); return; }
  if (lo >> bits != hi >> bits && (lo & rest)) {
    utf8_range(n, from, to, lo, lo | rest, left, lead);
    lo = (lo | rest) + 1;
  }
  if (lo >> bits != hi >> bits && (hi & rest) != rest) {
    utf8_range(n, from, to, hi & ~rest, hi, left, lead);
    hi = (hi & ~rest) - 1;
  }
  bool same = lo >> bits == hi >> bits;
  uint32_t mid = nfa_state(n);
  bytes(n, from, mid, lead | (lo >> bits), lead | (hi >> bits));
  utf8_range(n, mid, to, same ? lo & rest : 0, same ? hi & rest : rest, left - 1, 0x80);
}

static void characters(nfa *n, uint32_t from, uint32_t to, uint32_t lo, uint32_t hi) {
  static const struct { uint32_t first, last; unsigned lead; } form[] = {
    {0, 0x7F, 0}, {0x80, 0x7FF, 0xC0}, {0x800, 0xFFFF, 0xE0}, {0x10000, 0x10FFFF, 0xF0}};
  for (int i = 0; i < 4; i++) {
    uint32_t a = lo > form[i].first ? lo : form[i].first, b = hi < form[i].last ? hi : form[i].last;
    if (a <= b) utf8_range(n, from, to, a, b, i + 1, form[i].lead);
  }
}

// ---- expressions ----------------------------------------------------------------------------------------------------

static int build(compiler *c, nfa *n, const gx *x, uint32_t from, uint32_t to, bool regular, int depth) {
  return nfa_build(c, n, x, from, to, regular, depth);
}

// A grid: the number of passed items, and the number of these (and of the rest) in the text so far.
static int list(compiler *c, nfa *n, const gx *x, uint32_t from, uint32_t to, bool regular, int depth) {
  uint32_t items = (uint32_t)x->id, needed = 0;
  const gx *sep = x->sub[items], *rest = x->n == items + 2 ? x->sub[items + 1] : NULL;
  for (uint32_t i = 0; i < items; i++) needed += x->required[i];
  uint32_t min = x->min <= needed ? 0 : x->min, max = x->max >= items && !rest ? GRAMMAR_INF : x->max;
  uint32_t counts = max != GRAMMAR_INF ? max : min > 1 ? min : 1;
  if ((uint64_t)(items + 1) * (counts + 1) > GRAMMAR_STATES_MAX / 4)
    return grammar_fail(c, "%u entries, up to %u of them present, are too many to count", items, counts);
  uint32_t width = counts + 1, first = (uint32_t)n->first.n;
  for (uint32_t i = 0; i < (items + 1) * width; i++) nfa_state(n);
  eps(n, from, first);
  for (uint32_t i = 0; i <= items; i++)
    for (uint32_t k = 0; k <= counts; k++) {
      uint32_t here = first + i * width + k, more = k < counts ? k + 1 : counts;
      const gx *next = i < items ? x->sub[i] : rest;
      if (i < items && !x->required[i]) eps(n, here, here + width);
      if (i == items && k >= min) eps(n, here, to);
      if (!next || (max != GRAMMAR_INF && k == max)) continue;
      uint32_t begin = here, target = i < items ? first + (i + 1) * width + more : first + i * width + more;
      if (k) {
        begin = nfa_state(n);
        if (build(c, n, sep, here, begin, regular, depth)) return -1;
      }
      if (build(c, n, next, begin, target, regular, depth)) return -1;
    }
  return 0;
}

static int repeat(compiler *c, nfa *n, const gx *x, uint32_t from, uint32_t to, bool regular, int depth) {
  const gx *of = x->sub[0];
  uint32_t min = x->min, max = x->max, written = max == GRAMMAR_INF ? min : max;
  if (!regular && written > 1 && (uint64_t)of->size * written > EXPAND_STATES) {
    nfa_edge(n, from, (struct nfa_edge){.to = to, .kind = NFA_CALL, .arg = grammar_loop(c, of, min, max)});
    return 0;
  }
  if (regular && (uint64_t)of->size * written > GRAMMAR_STATES_MAX / 4)
    return grammar_fail(c, "a repetition of up to %u times in a pattern that is intersected with others is too large",
                        written);
  for (uint32_t i = 0; i < written; i++) {   // if an item may be left out, so may all after it
    uint32_t next = nfa_state(n);
    if (i >= min) eps(n, from, to);
    if (build(c, n, of, from, next, regular, depth)) return -1;
    from = next;
  }
  if (max == GRAMMAR_INF) {
    uint32_t loop = nfa_state(n);
    eps(n, from, loop);
    if (build(c, n, of, loop, loop, regular, depth)) return -1;
    from = loop;
  }
  eps(n, from, to);
  return 0;
}

// An expression, fully inlined and made deterministic. *fits false: too large.
static int regular_dfa(compiler *c, const gx *x, int depth, bool *fits, automaton *out) {
  nfa part = {0};
  uint32_t start = nfa_state(&part), end = nfa_state(&part);
  int status = build(c, &part, x, start, end, true, depth);
  *fits = !status && dfa_make(&part, start, end, GRAMMAR_STATES_MAX / 8, &c->work, out);
  nfa_free(&part);
  return status;
}

static int too_complicated(const compiler *c) {
  return grammar_fail(c, "what several conditions demand of one text is too complicated together");
}

int nfa_count(compiler *c, const gx *x, automaton *out, struct g_count *table) {
  automaton side[2] = {0};
  gx letters = {.kind = GX_REPEAT, .max = GRAMMAR_INF, .n = 1, .sub = &x->sub[1], .size = x->sub[1]->size};
  bool fits[2] = {false, false};
  int status = regular_dfa(c, x->sub[0], 1, &fits[0], &side[0]);
  if (!status) status = regular_dfa(c, &letters, 1, &fits[1], &side[1]);
  if (!status && !(fits[0] && fits[1] && dfa_letters(&side[0], &side[1], &c->work, out))) status = too_complicated(c);
  if (!status && !count_table(out, x->min, x->max, &c->work, table))
    status =
      grammar_fail(c, "%u letters are too many to count in such a text", x->max == GRAMMAR_INF ? x->min : x->max);
  automaton_free(&side[0]);
  automaton_free(&side[1]);
  return status;
}

// Makes both sides deterministic and builds their product.
static int build_product(compiler *c, nfa *n, const gx *x, uint32_t from, uint32_t to, int depth) {
  automaton side[2] = {0};
  int status = 0;
  bool small = true;
  for (int i = 0; i < 2 && !status && small; i++) status = regular_dfa(c, x->sub[i], depth + 1, &small, &side[i]);
  if (!status && small) small = dfa_product(&side[0], &side[1], x->kind == GX_MINUS, &c->work, n, from, to);
  automaton_free(&side[0]);
  automaton_free(&side[1]);
  return !status && !small ? too_complicated(c) : status;
}

// States for the remainder of the digits so far: before the point, after it, and after each digit there.
static void multiple(nfa *n, const gx *x, uint32_t from, uint32_t to) {
  uint32_t of = x->min, first = (uint32_t)n->first.n, phases = x->max ? x->max + 2 : 1;
  for (uint32_t i = 0; i < of * phases; i++) nfa_state(n);
  for (uint32_t phase = 0; phase < phases; phase++) {
    uint64_t scale = 1;                       // the place value of the digits that are not written
    for (uint32_t i = phase < 2 ? 0 : phase - 1; i < x->max; i++) scale = scale * 10 % of;
    for (uint32_t r = 0; r < of; r++) {
      uint32_t here = first + phase * of + r, next = phase ? first + (phase + 1) * of : first;
      if (phase != 1 && r * scale % of == 0) eps(n, here, to);
      if (!phase && phases > 1) bytes(n, here, first + of + r, '.', '.');
      for (uint32_t d = 0; d < 10 && (!phase || phase + 1 < phases); d++) {
        uint32_t target = next + (uint32_t)((r * (uint64_t)10 + d) % of);
        bytes(n, here, target, '0' + d, '0' + d);
        if (!phase && !r) bytes(n, from, target, '0' + d, '0' + d);
      }
    }
  }
}

int nfa_build(compiler *c, nfa *n, const gx *x, uint32_t from, uint32_t to, bool regular, int depth) {
  if (stack_is_low()) return grammar_fail(c, "%s", GRAMMAR_TOO_DEEP);
  if (n->first.n > GRAMMAR_STATES_MAX || n->edges.n > 4 * GRAMMAR_STATES_MAX)
    return grammar_fail(c, "needs more than %u states", GRAMMAR_STATES_MAX);
  switch (x->kind) {
  case GX_EMPTY: eps(n, from, to); return 0;
  case GX_BYTES:
    if (x->n > GRAMMAR_STATES_MAX) return grammar_fail(c, "needs more than %u states", GRAMMAR_STATES_MAX);
    for (uint32_t i = 0; i < x->n; i++) {
      uint32_t next = i + 1 < x->n ? nfa_state(n) : to;
      bytes(n, from, next, (unsigned char)x->text[i], (unsigned char)x->text[i]);
      from = next;
    }
    return 0;
  case GX_CLASS:
    for (uint32_t i = 0; i < x->n; i++) characters(n, from, to, x->ranges[i].lo, x->ranges[i].hi);
    return 0;
  case GX_SEQ:
    for (uint32_t i = 0; i < x->n; i++) {
      uint32_t next = i + 1 < x->n ? nfa_state(n) : to;
      if (build(c, n, x->sub[i], from, next, regular, depth)) return -1;
      from = next;
    }
    return 0;
  case GX_ALT:
    for (uint32_t i = 0; i < x->n; i++)
      if (build(c, n, x->sub[i], from, to, regular, depth)) return -1;
    return 0;
  case GX_REPEAT: return repeat(c, n, x, from, to, regular, depth);
  case GX_LIST: return list(c, n, x, from, to, regular, depth);
  case GX_RULE:
    if (depth < INLINE_DEPTH && grammar_inlines(c, x->id))
      return build(c, n, c->src->rules.at[x->id].body, from, to, regular, depth + 1);
    if (regular) return grammar_fail(c, "a rule in a pattern that is intersected with others");
    nfa_edge(n, from, (struct nfa_edge){.to = to, .kind = NFA_CALL, .arg = grammar_callee(c, NULL, x->id)});
    return 0;
  case GX_TOKEN:
    if (regular) return grammar_fail(c, "a token in a pattern that is intersected with others");
    nfa_edge(n, from, (struct nfa_edge){.to = to, .kind = NFA_TOKEN, .arg = (uint32_t)x->id, .negated = x->negated});
    return 0;
  case GX_AND: case GX_MINUS: return build_product(c, n, x, from, to, depth);
  case GX_COUNT: {
    if (!regular && !grammar_writes_out(x)) {
      nfa_edge(n, from, (struct nfa_edge){.to = to, .kind = NFA_CALL, .arg = grammar_callee(c, x, -1)});
      return 0;
    }
    gx letters = {.kind = GX_REPEAT, .min = x->min, .max = x->max, .n = 1, .sub = &x->sub[1], .size = x->sub[1]->size};
    gx *sub[2] = {x->sub[0], &letters};
    return build_product(c, n, &(gx){.kind = GX_AND, .n = 2, .sub = sub}, from, to, depth);
  }
  case GX_MULTIPLE: multiple(n, x, from, to); return 0;
  default: die("grammar: an expression of kind %d", x->kind);
  }
}
