// prices: what pieces of prompts cost: tiles of tokens, and tokens times the positions that each looks at. Fitted to
// what was measured lately (least squares, older pieces count less).
#ifndef WEFT_SERVE_PRICES_H
#define WEFT_SERVE_PRICES_H
#include <stddef.h>

enum { PRICES_TILE = 8 };              // tokens of which each costs what one does
struct prices { double tiles, both, looks, tiles_s, looks_s; };      // zeros: nothing is known

// Seconds that a piece of n tokens takes behind `past` others; 0: unknown.
double prices_s(const struct prices *p, size_t n, size_t past);
// Such a piece took so long.
void prices_learn(struct prices *p, size_t n, size_t past, double took);
#endif
