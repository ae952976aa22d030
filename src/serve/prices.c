// Estimates the cost of prompt chunks: see prices.h.
#include "serve/prices.h"

static double tiles_of(size_t n) { return (double)((n + PRICES_TILE - 1) / PRICES_TILE); }
static double looks_of(size_t n, size_t past) { return (double)n * ((double)past + 0.5 * (double)n); }

// A least-squares fit whose ridge term, shows^2, keeps the cost of attention near 0 until it has been measured.
double prices_s(const struct prices *p, size_t n, size_t past) {
  const double shows = 4000, looks = p->looks + shows * shows, det = p->tiles * looks - p->both * p->both;
  double tile = p->tiles > 0 ? p->tiles_s / p->tiles : 0, look = 0;
  if (det > 0) {
    double t = (p->tiles_s * looks - p->looks_s * p->both) / det;
    double l = (p->looks_s * p->tiles - p->tiles_s * p->both) / det;
    if (t > 0 && l > 0) tile = t, look = l;
  }
  return tile * tiles_of(n) + look * looks_of(n, past);
}

void prices_learn(struct prices *p, size_t n, size_t past, double took) {
  enum { TIMES = 3 };  // factor over the expectation at which other programs must have used the processors
  double tiles = tiles_of(n), l = looks_of(n, past) / tiles, expected = prices_s(p, n, past), old = 0.9;
  if (took <= 0) return;
  if (expected > 0 && took > TIMES * expected) took = TIMES * expected;
  took /= tiles;                       // a long chunk has the weight of a short one
  *p = (struct prices){.tiles = old * p->tiles + 1,
                       .both = old * p->both + l,
                       .looks = old * p->looks + l * l,
                       .tiles_s = old * p->tiles_s + took,
                       .looks_s = old * p->looks_s + l * took};
}

double prices_of_rows(const struct row_prices *p, size_t n) {
  size_t below = n < PRICES_ROWS ? n : PRICES_ROWS;
  while (below && p->s[below] <= 0) below--;
  return below ? p->s[below] * (double)n / (double)below : 0;
}

void prices_learn_rows(struct row_prices *p, size_t n, double took) {
  if (n > PRICES_ROWS) return;
  double *at = &p->s[n];
  // the first one makes plans and touches memory
  if (p->met[n]++) *at = *at > 0 && took < 4 * *at ? 0.8 * *at + 0.2 * took : took;
}
