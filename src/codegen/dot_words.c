// A DOT multiplies each lane's codes by the same word of a token: a LOAD that is spread over a register. On AArch64
// that load takes no offset and a vector operation besides, but the instructions take one lane of a register as an
// operand (by_lane in descriptor.h). So four words that are neighbours in memory become one load of 16 bytes, and each
// DOT takes a lane of it. The same integers, or halves: no bit changes.
#include "codegen/dot_words.h"
#include <stdlib.h>
#include <string.h>
#include "graph/symbolic.h"

enum { WORD = 4, GROUP = 4, MOST_LANES = 16 };

// `all`: what DOTs read, the spread word. at: of the load, in elements of its buffer; step: elements of a word.
typedef struct word { uop *all, *load, *cond; idx_sum at; int64_t step; bool taken; } word;
typedef VEC(word *) word_list;

static bool takes_lanes(descriptor_set set, const uop *dot) {
  const descriptor *d;
  for (size_t i = 0; (d = descriptor_at(i)); i++)
    if ((set >> i & 1) && d->by_lane && d->acc == (enum dtype)dot->dt && d->n == dot->lanes) return true;
  return false;
}

static bool spread_word(const uop *dot, word *out) {
  uop *x = dot->src[2];
  if (x->op != OP_SPLAT || x->lanes > MOST_LANES || x->src[0]->op != OP_LOAD) return false;
  *out = (word){.all = x, .load = x->src[0]};
  const uop *index = out->load->src[0];
  uop *at = index->src[1];
  int64_t size = dtype_size((enum dtype)index->src[0]->dt);
  if (dtype_size((enum dtype)out->load->dt) != WORD || index->lanes != 1 || size > WORD ||
      index->src[0]->b * size < GROUP * WORD)
    return false;
  out->step = WORD / size;
  if (at->op == OP_WHERE) { out->cond = at->src[0]; at = at->src[1]; }
  return idx_sum_of(at, &out->at);
}

static int by_word_offset(const void *x, const void *y) {
  const word *a = *(word *const *)x, *b = *(word *const *)y;
  return (a->at.constant > b->at.constant) - (a->at.constant < b->at.constant);
}

// Is y `by` elements behind x, and loaded after the same effects?
static bool neighbours_by(const word *x, const word *y, int64_t by) {
  return x->load->src[0]->src[0] == y->load->src[0]->src[0] && x->load->dt == y->load->dt && x->cond == y->cond &&
         x->load->nsrc == y->load->nsrc &&
         !memcmp(x->load->src + 1, y->load->src + 1, (x->load->nsrc - 1) * sizeof *x->load->src) &&
         y->at.constant - x->at.constant == by && x->at.n == y->at.n &&
         !memcmp(x->at.atom, y->at.atom, (size_t)x->at.n * sizeof *x->at.atom) &&
         !memcmp(x->at.coeff, y->at.coeff, (size_t)x->at.n * sizeof *x->at.coeff);
}

// The word at `from` and the three after it in memory. False: they are not all there.
static bool group_at(const word_list *l, size_t from, word *group[GROUP]) {
  int n = 0;
  group[n++] = l->at[from];
  for (size_t i = from + 1; i < l->n && n < GROUP; i++)
    if (!l->at[i]->taken && neighbours_by(group[0], l->at[i], n * group[0]->step)) group[n++] = l->at[i];
  return n == GROUP;
}

static void load_together(graph *g, word *const group[GROUP], map *to) {
  const word *first = group[0];
  uop *at = idx_sum_build(g, &first->at);
  if (first->cond) at = uop_op3(g, OP_WHERE, first->cond, at, uop_idx(g, 0));
  uop *words = uop_load_from(g, first->load, uop_index(g, first->load->src[0]->src[0], at), GROUP);
  for (int i = 0; i < GROUP; i++) {
    unsigned char from[2 * MOST_LANES] = {0};
    int lanes = group[i]->all->lanes;
    for (int j = 0; j < lanes; j++) from[2 * j] = (unsigned char)i;
    group[i]->taken = true;
    map_put(to, group[i]->all, uop_new(g, OP_SHUFFLE, (enum dtype)words->dt, lanes, &words, 1,
                                       (uarg){.s = (const char *)from, .s_len = 2 * (size_t)lanes}));
  }
}

static void find_words(arena *a, uop *ast, descriptor_set set, word_list *out) {
  uop_list l = uop_toposort(a, &ast, 1);
  map seen = {0};
  word w;
  for (size_t i = 0; i < l.n; i++) {
    if (l.at[i]->op != OP_DOT || !takes_lanes(set, l.at[i]) || map_has(&seen, l.at[i]->src[2])) continue;
    map_put(&seen, l.at[i]->src[2], (void *)1);
    if (!spread_word(l.at[i], &w)) continue;
    word *kept = ARENA_NEW(a, word);
    *kept = w;
    vec_push(out, kept);
  }
  map_free(&seen);
}

uop *dot_words(graph *g, uop *ast, const target *t, descriptor_set without) {
  arena *a = arena_new();
  word_list words = {0};
  map to = {0};
  word *group[GROUP];
  find_words(a, ast, t->descriptors & ~without, &words);
  if (words.n) qsort(words.at, words.n, sizeof *words.at, by_word_offset);
  for (size_t i = 0; i < words.n; i++)
    if (!words.at[i]->taken && group_at(&words, i, group)) load_together(g, group, &to);
  if (to.n) ast = uop_substitute(g, ast, &to);
  vec_free(&words);
  map_free(&to);
  arena_free(a);
  return ast;
}
