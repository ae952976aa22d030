// histogram: counts values below each of a series of bounds, as in Prometheus.
#ifndef WEFT_SERVE_HISTOGRAM_H
#define WEFT_SERVE_HISTOGRAM_H
#include "base/base.h"

enum { HISTOGRAM_BOUNDS = 19 };
// bounds for times in seconds, and for numbers of tokens
extern const double histogram_seconds[HISTOGRAM_BOUNDS], histogram_tokens[HISTOGRAM_BOUNDS];
// below[i]: number of values above bound i - 1 and at most bound i; the last counts values above all bounds. All zeros:
// empty.
struct histogram { double sum; uint64_t n, below[HISTOGRAM_BOUNDS + 1]; };

static inline void histogram_add(struct histogram *h, const double *bounds, double value, uint64_t times) {
  int i = 0;
  while (i < HISTOGRAM_BOUNDS && value > bounds[i]) i++;
  h->below[i] += times;
  h->n += times;
  h->sum += value * (double)times;
}

static inline void histogram_join(struct histogram *to, const struct histogram *h) {
  to->sum += h->sum;
  to->n += h->n;
  for (int i = 0; i <= HISTOGRAM_BOUNDS; i++) to->below[i] += h->below[i];
}
#endif
