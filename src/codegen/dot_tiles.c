// Converts the dot products of rows with two tokens to tiles of 2 x 2 sums (MMLA): 32 products per instruction instead
// of 16, and the rows' codes are read once for both tokens.
//
// A sum is a REDUCE of DOTs: four rows in lanes, four products each. Two sums over equal row codes, for two tokens,
// become two sums of tiles: rows 0 and 1, rows 2 and 3. An operand of eight products consists of the operands of two
// DOTs: the words of the row codes are permuted, once for all tokens; for each token, 16 neighbouring bytes are two
// register halves. At the end the lanes of a sum alternate between the two tokens and are separated. Integers are
// exact, so no bit changes. Look next: reuse.c, which keeps the row operands for further tokens.
#include "codegen/dot_tiles.h"
#include <string.h>
#include "graph/symbolic.h"

enum { ROWS = 4, PRODUCTS = 4, TERMS = 32, MOST_RANGES = 8, WORD = 4, REGISTER = 16 };

// A step of a sum: a DOT, and the address of its four token bytes within one buffer.
typedef struct term { uop *a, *load, *cond; idx_sum at; } term;

typedef struct sum {
  uop *u, *start;                // start: added to the products; NULL: nothing
  int n;
  term term[TERMS];
  bool taken;
} sum;

// ---- which sums -----------------------------------------------------------------------------------------------------

static bool term_of(uop *dot, term *out) {
  if (dot->op != OP_DOT || dot->dt != DT_I32 || !uop_is_int(uop_unsplat(dot->src[0]), 0)) return false;
  const uop *x = dot->src[2];
  if (x->op != OP_SPLAT || x->src[0]->op != OP_LOAD) return false;
  *out = (term){.a = dot->src[1], .load = x->src[0]};
  const uop *index = out->load->src[0];
  uop *at = index->src[1];
  if (index->lanes != 1 || dtype_size((enum dtype)index->src[0]->dt) != 1 || index->src[0]->b < REGISTER) return false;
  if (at->op == OP_WHERE) { out->cond = at->src[0]; at = at->src[1]; }
  return idx_sum_of(at, &out->at);
}

// Is u a sum of dot products only, apart from its start value?
static bool sum_of_pair(uop *u, sum *out) {
  if (u->op != OP_REDUCE || u->dt != DT_I32 || u->a != OP_ADD || u->lanes != ROWS) return false;
  int first = 0, n = uop_first_range(u);
  *out = (sum){.u = u};
  if (u->src[0]->op != OP_DOT) { out->start = u->src[0]; first = 1; }
  if ((n - first) % 2 || n - first > TERMS || n == first) return false;
  for (int i = first; i < n; i++) if (!term_of(u->src[i], &out->term[out->n++])) return false;
  return true;
}

// Are the bytes of y `by` bytes after those of x?
static bool follows_by(const term *x, const term *y, int64_t by) {
  return x->load->src[0]->src[0] == y->load->src[0]->src[0] && x->cond == y->cond && x->at.n == y->at.n &&
         y->at.constant - x->at.constant == by &&
         !memcmp(x->at.atom, y->at.atom, (size_t)x->at.n * sizeof *x->at.atom) &&
         !memcmp(x->at.coeff, y->at.coeff, (size_t)x->at.n * sizeof *x->at.coeff);
}

static void swap_terms(term *x, term *y) {
  term t = *x;
  *x = *y;
  *y = t;
}

// Sorts terms by the address of their bytes, so that consecutive terms are neighbours in memory. False: some are not.
static bool in_pairs(sum *s) {
  for (int i = 1; i < s->n; i++)
    for (int j = i; j > 0 && s->term[j].at.constant < s->term[j - 1].at.constant; j--)
      swap_terms(&s->term[j], &s->term[j - 1]);
  for (int i = 0; i < s->n; i += 2) if (!follows_by(&s->term[i], &s->term[i + 1], WORD)) return false;
  return true;
}

// Does y have the row codes of x, over equal ranges?
static bool read_same_rows(const sum *x, const sum *y) {
  size_t from = (size_t)uop_first_range(x->u);
  if (x->n != y->n || !x->start != !y->start || x->u->nsrc != y->u->nsrc || from != (size_t)uop_first_range(y->u) ||
      memcmp(x->u->src + from, y->u->src + from, (x->u->nsrc - from) * sizeof *x->u->src))
    return false;
  for (int i = 0; i < x->n; i++) if (x->term[i].a != y->term[i].a) return false;
  return true;
}

// ---- operands -------------------------------------------------------------------------------------------------------

// A shuffle of x and y; lane numbers from x's number of lanes on select from y.
static uop *shuffled(graph *g, uop *x, uop *y, const unsigned char *lane, int n) {
  unsigned char from[2 * REGISTER] = {0};
  for (int i = 0; i < n; i++) from[2 * i] = lane[i];
  return uop_new(g, OP_SHUFFLE, (enum dtype)x->dt, n, (uop *[]){x, y}, 2,
                 (uarg){.s = (const char *)from, .s_len = 2 * (size_t)n});
}

// Rows 2 half and 2 half + 1, eight codes each, from two DOTs of four rows.
static uop *two_rows(graph *g, const term *t, int half) {
  unsigned char lane[REGISTER];
  for (int i = 0; i < REGISTER; i++)
    lane[i] = (unsigned char)(i / WORD % 2 * REGISTER + half * REGISTER / 2 + i / (2 * WORD) * WORD + i % WORD);
  return shuffled(g, t[0].a, t[1].a, lane, REGISTER);
}

static uop *load_codes(graph *g, const term *t, enum dtype dt, int lanes) {
  uop *at = idx_sum_build(g, &t->at), *mem = t->load->src[0]->src[0];
  if (t->cond) at = uop_op3(g, OP_WHERE, t->cond, at, uop_idx(g, 0));
  uop *load = uop_load_from(g, t->load, uop_index(g, mem, at), lanes);
  return uop_new(g, OP_LOAD, dt, lanes, load->src, load->nsrc, (uarg){0});
}

// Eight bytes of each token, starting at term i. Sixteen neighbouring bytes are loaded together.
static uop *two_tokens(graph *g, const sum *x, const sum *y, int i) {
  int first = i / 4 * 4, second = i / 2 % 2;
  uop *both;
  if (first + 4 <= x->n && follows_by(&x->term[first], &x->term[first + 2], 2 * WORD) &&
      follows_by(&y->term[first], &y->term[first + 2], 2 * WORD)) {
    const unsigned char halves[] = {(unsigned char)second, (unsigned char)(2 + second)};
    both = shuffled(g, load_codes(g, &x->term[first], DT_U64, 2), load_codes(g, &y->term[first], DT_U64, 2), halves, 2);
  } else {
    uop *each[] = {load_codes(g, &x->term[i], DT_U64, 1), load_codes(g, &y->term[i], DT_U64, 1)};
    both = uop_new(g, OP_STACK, DT_U64, 2, each, 2, (uarg){0});
  }
  return uop_new(g, OP_BITCAST, DT_I8, REGISTER, &both, 1, (uarg){0});
}

// Start values of the sums of rows 2 half and 2 half + 1: for each row, the first token's and then the second's.
static uop *two_starts(graph *g, const sum *x, const sum *y, int half) {
  bool alike = x->start->op == OP_SPLAT && y->start->op == OP_SPLAT;           // both halves are equal
  int row = alike ? 0 : 2 * half;
  const unsigned char lane[] = {(unsigned char)row, (unsigned char)(ROWS + row), (unsigned char)(row + 1),
                                (unsigned char)(ROWS + row + 1)};
  return shuffled(g, x->start, y->start, lane, ROWS);
}

static uop *sum_of_tiles(graph *g, const sum *x, const sum *y, int half) {
  uop *src[1 + TERMS + MOST_RANGES], *zero = uop_splat(g, uop_int(g, DT_I32, 0), ROWS);
  size_t n = 0, from = (size_t)uop_first_range(x->u);
  if (x->start) src[n++] = two_starts(g, x, y, half);
  for (int i = 0; i < x->n; i += 2)
    src[n++] = uop_new(g, OP_MMLA, DT_I32, ROWS,
                       (uop *[]){zero, two_rows(g, &x->term[i], half), two_tokens(g, x, y, i)}, 3, (uarg){0});
  int64_t values = (int64_t)n;
  if (n == 1 && from == x->u->nsrc) return src[0];
  for (size_t i = from; i < x->u->nsrc; i++) src[n++] = x->u->src[i];
  return uop_new(g, OP_REDUCE, DT_I32, ROWS, src, n, (uarg){.a = OP_ADD, .b = values > 1 ? values : 0});
}

static void replace_two(graph *g, const sum *x, const sum *y, map *to) {
  static const unsigned char first[] = {0, 2, 4, 6}, second[] = {1, 3, 5, 7};
  uop *low = sum_of_tiles(g, x, y, 0), *high = sum_of_tiles(g, x, y, 1);
  map_put(to, x->u, shuffled(g, low, high, first, ROWS));
  map_put(to, y->u, shuffled(g, low, high, second, ROWS));
}

bool has_dot_tiles(const target *t, descriptor_set without) {
  return !t->has_local && t->vector_bytes == REGISTER &&
         descriptor_tile(t->descriptors & ~without, DT_U8, 2 * PRODUCTS);
}

uop *dot_tiles(graph *g, uop *ast, const target *t, descriptor_set without) {
  if (!has_dot_tiles(t, without)) return ast;
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  VEC(sum *) sums = {0};
  map to = {0};
  sum s;
  for (size_t i = 0; i < l.n; i++) {
    if (!sum_of_pair(l.at[i], &s) || !in_pairs(&s) || s.u->nsrc - (size_t)uop_first_range(s.u) > MOST_RANGES) continue;
    sum *kept = ARENA_NEW(a, sum);
    *kept = s;
    for (size_t j = 0; j < sums.n && !kept->taken; j++) {
      if (sums.at[j]->taken || !read_same_rows(sums.at[j], kept)) continue;
      replace_two(g, sums.at[j], kept, &to);
      sums.at[j]->taken = kept->taken = true;
    }
    if (!kept->taken) vec_push(&sums, kept);
  }
  if (to.n) ast = simplify(g, uop_substitute(g, ast, &to));
  vec_free(&sums);
  map_free(&to);
  arena_free(a);
  return ast;
}
