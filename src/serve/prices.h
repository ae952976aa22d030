// prices: the cost of prompt chunks: per tile of tokens, and per token times the positions that it attends to. Fitted
// to recent measurements by least squares; older chunks count less. And that of steps without a chunk, by their rows.
#ifndef WEFT_SERVE_PRICES_H
#define WEFT_SERVE_PRICES_H
#include <stddef.h>

enum { PRICES_TILE = 8 };              // tokens; a tile costs as much as a single token
struct prices { double tiles, both, looks, tiles_s, looks_s; };      // zeros: nothing is known

// Seconds that a chunk of n tokens takes after `past` others; 0: unknown.
double prices_s(const struct prices *p, size_t n, size_t past);
// Adds a measurement of such a chunk.
void prices_learn(struct prices *p, size_t n, size_t past, double took);

enum { PRICES_ROWS = 64 };             // maximum rows of a step, including draft tokens
// of a step of this many rows: recent seconds, 0: unknown; number of steps
struct row_prices { double s[PRICES_ROWS + 1]; int met[PRICES_ROWS + 1]; };
// Seconds of a step of n rows; if unmeasured, extrapolated linearly from fewer rows.
double prices_of_rows(const struct row_prices *p, size_t n);
void prices_learn_rows(struct row_prices *p, size_t n, double took);
#endif
