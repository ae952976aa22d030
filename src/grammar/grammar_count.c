// Texts of a regular expression with a given number of letters: the expression's automaton, whose places count (see
// grammar_machine.h), instead of a copy of it for every length.
//
// A letter is a match of another expression, and may be several bytes: a character, or an escape. States after a whole
// number of letters are marked, and an edge into one of them is a letter. A table says for each state how many more
// letters lead to an end, so that a place with an impossible count is never entered.
#include "grammar/grammar_machine.h"
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 8192                // of the table
#define BITS_MAX (1u << 25)

static bool row_has(const struct g_count *c, uint32_t row, uint32_t state) {
  uint64_t bit = (uint64_t)row * c->n_states + state;
  return c->rows[bit / 64] >> bit % 64 & 1;
}

static void row_put(struct g_count *c, uint32_t row, uint32_t state) {
  uint64_t bit = (uint64_t)row * c->n_states + state;
  c->rows[bit / 64] |= (uint64_t)1 << bit % 64;
}

// Row n: states from which n more letters may end the text. Letters are finite, so edges within one come to an end.
static void fill_row(const automaton *a, struct g_count *c, uint32_t n) {
  for (bool more = true; more;) {
    more = false;
    for (uint32_t q = c->n_states; q-- > 0;) {
      const struct g_state *s = &a->states.at[q];
      bool yes = !n && s->accept;
      if (row_has(c, n, q)) continue;
      for (uint32_t e = s->edge0; e < s->edge0 + s->n_edges && !yes; e++) {
        uint32_t to = a->edges.at[e].to;
        bool letter = a->states.at[to].whole;
        yes = letter ? n && row_has(c, n - 1, to) : row_has(c, n, to);
      }
      if (!yes) continue;
      row_put(c, n, q);
      more = true;
    }
  }
}

static bool same_rows(const struct g_count *c, uint32_t a, uint32_t b) {
  for (uint32_t q = 0; q < c->n_states; q++) if (row_has(c, a, q) != row_has(c, b, q)) return false;
  return true;
}

bool count_table(const automaton *a, uint32_t min, uint32_t max, uint64_t *work, struct g_count *out) {
  uint32_t n = (uint32_t)a->states.n, bound = max == GRAMMAR_INF ? min : max;
  uint64_t cost = 2 * (uint64_t)a->edges.n + n;
  struct g_count c = {.n_states = n, .least = xcalloc(n, sizeof *c.least)};
  bool fits = true, settled = false;
  for (uint32_t q = 0; q < n; q++) c.least[q] = GRAMMAR_INF;
  // If two consecutive rows are equal, so are all later ones: a row depends only on the one before.
  while (!settled && fits && c.n_rows <= bound) {
    fits = c.n_rows < ROWS_MAX && (uint64_t)(c.n_rows + 1) * n < BITS_MAX && *work > cost;
    if (!fits) break;
    *work -= cost;
    size_t words = ((uint64_t)(c.n_rows + 1) * n + 63) / 64, had = c.n_rows ? ((uint64_t)c.n_rows * n + 63) / 64 : 0;
    c.rows = xrealloc(c.rows, words * sizeof *c.rows);
    memset(c.rows + had, 0, (words - had) * sizeof *c.rows);
    fill_row(a, &c, c.n_rows);
    for (uint32_t q = 0; q < n; q++)
      if (c.least[q] == GRAMMAR_INF && row_has(&c, c.n_rows, q)) c.least[q] = c.n_rows;
    settled = c.n_rows > 1 && same_rows(&c, c.n_rows - 1, c.n_rows);
    c.n_rows++;
  }
  c.full = true;
  for (uint32_t q = 0; q < n; q++) {
    if (c.least[q] != GRAMMAR_INF && c.least[q] > c.farthest) c.farthest = c.least[q];
    c.full = c.full && (c.least[q] == GRAMMAR_INF || (c.n_rows && row_has(&c, c.n_rows - 1, q)));
  }
  c.settled = settled;
  *out = c;
  return fits;
}

bool count_can_end(const struct g_count *c, uint32_t state, uint32_t min, uint32_t max) {
  uint32_t last = c->n_rows - 1;
  if (c->least[state] > max) return false;
  if (c->least[state] >= min) return true;
  if (max == GRAMMAR_INF && min > last) return c->settled && row_has(c, last, state);
  for (uint32_t n = min; n <= max && n < last; n++) if (row_has(c, n, state)) return true;
  return max >= last && (c->settled || (min <= last && last <= max)) && row_has(c, last, state);
}

bool count_is_void(const struct g_count *c, uint32_t min, uint32_t max) {
  bool none = true;
  for (uint32_t n = 0; n < c->n_rows; n++) {
    if (!row_has(c, n, 0)) continue;
    none = false;
    if (n < min || n > max) return false;
  }
  // All lengths are known if none is left at the end, or if the rest is unlimited and may be.
  return !none && ((c->settled && !row_has(c, c->n_rows - 1, 0)) || (max == GRAMMAR_INF && c->settled));
}
