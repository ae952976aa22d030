// Analyses rules before compiling: which ones are recursive, and how large they are. Both decide which rules are
// inlined: small ones that are not recursive, and parts of words (a character of a string, a digit). Larger rules stay
// rules, so that all places that call them share their states, and with them the masks of tokens.
#include "base/stack.h"
#include "grammar/grammar_impl.h"
#include <stdlib.h>
#include <string.h>

#define HUGE_SIZE (1u << 24)
#define SMALL 12                     // states of a rule that is always inlined
#define WRITE_OUT 12                 // letters; smaller counts are expanded
#define WORD_BYTES 12                // a rule with only short texts is a part of a word:
#define WORD_STATES 160              // it may be larger

static uint32_t plus(uint32_t a, uint32_t b) { return a + b < HUGE_SIZE ? a + b : HUGE_SIZE; }
static uint32_t times(uint32_t a, uint32_t b) { return a && b > HUGE_SIZE / a ? HUGE_SIZE : a * b; }

// Calls fn for each rule that x calls. Expressions can be shared: each is visited once per value of `seen`.
static void each_call(compiler *c, gx *x, uint32_t seen, void (*fn)(void *, int32_t), void *ctx) {
  if (x->seen == seen || (c->too_deep = c->too_deep || stack_is_low())) return;
  x->seen = seen;
  if (x->kind == GX_RULE) { fn(ctx, x->id); return; }
  bool has_sub = x->kind == GX_SEQ || x->kind == GX_ALT || x->kind == GX_REPEAT || x->kind == GX_LIST ||
                 x->kind == GX_COUNT || x->kind == GX_AND || x->kind == GX_MINUS;
  for (uint32_t i = 0; has_sub && i < x->n; i++) each_call(c, x->sub[i], seen, fn, ctx);
}

static uint32_t class_size(const gx *x) {
  uint32_t size = 0;
  for (uint32_t i = 0; i < x->n; i++) size += x->ranges[i].hi < 128 ? 0 : 4;
  return size + 1;
}

static uint32_t class_longest(const gx *x) {
  uint32_t hi = x->n ? x->ranges[x->n - 1].hi : 0;
  return hi < 0x80 ? 1 : hi < 0x800 ? 2 : hi < 0x10000 ? 3 : 4;
}

// Sets size and longest of x and its parts. The rules that it calls have been measured, unless they are recursive.
static void measure(compiler *c, gx *x, uint32_t seen) {
  if (x->seen == seen || (c->too_deep = c->too_deep || stack_is_low())) return;
  x->seen = seen;
  uint32_t size = 0, longest = 0;
  switch (x->kind) {
  case GX_EMPTY: break;
  case GX_BYTES: size = longest = x->n; break;
  case GX_CLASS: size = class_size(x); longest = class_longest(x); break;
  case GX_SEQ: case GX_ALT: case GX_LIST:
    for (uint32_t i = 0; i < x->n; i++) {
      measure(c, x->sub[i], seen);
      size = plus(size, x->sub[i]->size);
      if (x->kind != GX_ALT) longest = plus(longest, x->sub[i]->longest);
      else if (x->sub[i]->longest > longest) longest = x->sub[i]->longest;
    }
    if (x->kind == GX_LIST) {
      size = times(size, 2);
      longest = HUGE_SIZE;
    }
    break;
  case GX_REPEAT:
    measure(c, x->sub[0], seen);
    size = plus(x->sub[0]->size, 2);
    longest = times(x->sub[0]->longest, x->max);
    if (x->max != GRAMMAR_INF) size = times(size, x->max);
    break;
  case GX_RULE:
    if (grammar_inlines(c, x->id)) {
      size = c->src->rules.at[x->id].body->size;
      longest = c->src->rules.at[x->id].body->longest;
    } else {
      size = 2;
      longest = HUGE_SIZE;
    }
    break;
  case GX_TOKEN: size = 2; longest = HUGE_SIZE; break;
  case GX_AND: case GX_MINUS:
    for (uint32_t i = 0; i < 2; i++) measure(c, x->sub[i], seen);
    size = times(x->sub[0]->size, x->sub[1]->size);
    longest = x->sub[0]->longest;
    break;
  case GX_COUNT:
    for (uint32_t i = 0; i < 2; i++) measure(c, x->sub[i], seen);
    size = grammar_writes_out(x) ? times(x->sub[0]->size, x->max == GRAMMAR_INF ? x->min : x->max) : 2;
    longest = HUGE_SIZE;
    break;
  case GX_MULTIPLE: size = times(x->min, x->max + 2); longest = HUGE_SIZE; break;
  default: die("grammar: an expression of kind %d", x->kind);
  }
  x->size = plus(size, 1);
  x->longest = longest;
}

bool grammar_writes_out(const gx *count) {
  uint32_t most = count->max == GRAMMAR_INF ? count->min : count->max;
  return most <= WRITE_OUT || (uint64_t)count->sub[0]->size * most <= 64;
}

bool grammar_inlines(const compiler *c, int32_t rule) {
  const gx *body = c->src->rules.at[rule].body;
  return !c->recursive[rule] && (body->size <= SMALL || (body->longest <= WORD_BYTES && body->size <= WORD_STATES));
}

// ---- recursion: Tarjan's strongly connected components, iteratively ----

struct calls { VEC(int32_t) to; };
static void add_call(void *ctx, int32_t rule) {
  struct calls *calls = ctx;
  vec_push(&calls->to, rule);
}

int grammar_check(compiler *c) {
  uint32_t n = (uint32_t)c->src->rules.n, next = 1, *first = xcalloc((size_t)n + 1, sizeof *first);
  uint32_t *index = xcalloc(n, sizeof *index), *low = xcalloc(n, sizeof *low), *at = xcalloc(n, sizeof *at), seen = 0;
  bool *open = xcalloc(n, 1);
  struct calls calls = {0};
  VEC(int32_t) stack = {0}, path = {0};
  for (uint32_t r = 0; r < n; r++) {
    if (!c->src->rules.at[r].body) die("grammar: rule %s has no body", c->src->rules.at[r].name);
    first[r] = (uint32_t)calls.to.n;
    each_call(c, c->src->rules.at[r].body, ++seen, add_call, &calls);
  }
  first[n] = (uint32_t)calls.to.n;
  for (uint32_t r = 0; r < n; r++) {   // `seen` starts anew: each expression is counted once
    if (index[r]) continue;
    vec_push(&path, (int32_t)r);
    while (path.n) {
      int32_t v = path.at[path.n - 1];
      if (!index[v]) {
        index[v] = low[v] = next++;
        at[v] = first[v];
        open[v] = true;
        vec_push(&stack, v);
      }
      bool deeper = false;
      while (at[v] < first[v + 1]) {
        int32_t w = calls.to.at[at[v]];
        if (!index[w]) { vec_push(&path, w); deeper = true; break; }
        if (open[w] && low[w] < low[v]) low[v] = low[w];
        at[v]++;
      }
      if (deeper) continue;
      path.n--;
      if (path.n && low[v] < low[path.at[path.n - 1]]) low[path.at[path.n - 1]] = low[v];
      if (low[v] != index[v]) continue;
      size_t from = stack.n;
      while (stack.at[--from] != v) { }
      bool cycle = stack.n - from > 1;
      for (uint32_t i = first[v]; i < first[v + 1] && !cycle; i++) cycle = calls.to.at[i] == v;
      for (size_t i = from; i < stack.n; i++) { open[stack.at[i]] = false; c->recursive[stack.at[i]] = cycle; }
      for (size_t i = from; i < stack.n; i++) measure(c, c->src->rules.at[stack.at[i]].body, n + 1);
      stack.n = from;
    }
  }
  vec_free(&calls.to);
  vec_free(&stack);
  vec_free(&path);
  free(first); free(index); free(low); free(at); free(open);
  return c->too_deep ? grammar_fail(c, "%s", GRAMMAR_TOO_DEEP) : 0;
}
