// IQ1, IQ2 and IQ3. In IQ2 and IQ3 four or eight magnitudes form a point of a grid, and only a few hundred points,
// which a book lists, can be stored; signs are stored separately. A digit q of a point stands for the magnitude 2q + 1.
// A group of values is fitted by trying scales: each value is rounded to its nearest digit, and points that are not in
// the book are replaced by the best of their neighbours that are. In IQ1 a digit stands for -1, 0 or 1, all shifted a
// little up or down.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include "model/codebook.h"
#include "model/quantise_impl.h"

enum { WIDTH_MAX = 8, PARTS_MAX = 8 };

// the points that are chosen again for the final scale: all; those not in the book; all if one is not
enum refit { REFIT_ALL, REFIT_OFF_GRID, REFIT_ALL_IF_OFF };

struct grid_format {
  enum codebook book;
  int width, levels, entries;              // digits per point, values per digit, points in the book
  int near;                                // neighbours: those at this many different distances
  int group;                               // values that share a scale
  int tries;                               // scales tried on either side,
  float step;                              // in steps of this fraction of a magnitude
  bool even;  // the number of minus signs is even, so seven bits are enough for eight signs
  // scales are tried around one that fits without the book; otherwise around that of the largest magnitude
  bool from_fit;
  enum refit refit;
  // factor of the mean square in weights; of it without weights; a group below `tiny` is zeros; factor of the block's
  // scale
  float spread, floor, tiny, adjust;
};

// ---- the book -------------------------------------------------------------------------------------------------------

typedef VEC(uint16_t) list;
struct grid {
  const struct grid_format *f;
  pthread_once_t once;
  uint8_t (*digits)[WIDTH_MAX];            // of each point of the book
  // for each possible point, by number: its index, or -1 - the place of its neighbours
  int32_t *place;
  list neighbours;                         // their number, then their indices, nearest first
};

static int grid_number(const struct grid_format *f, const uint8_t *digits) {
  int n = 0;
  for (int i = f->width - 1; i >= 0; i--) n = n * f->levels + digits[i];
  return n;
}

static void add_neighbours(struct grid *g, const uint8_t *digits, uint16_t *distance) {
  const struct grid_format *f = g->f;
  int last = -1;
  size_t head = g->neighbours.n;
  vec_push(&g->neighbours, (uint16_t)0);
  for (int j = 0; j < f->entries; j++) {
    int d = 0;
    for (int k = 0; k < f->width; k++) d += (g->digits[j][k] - digits[k]) * (g->digits[j][k] - digits[k]);
    distance[j] = (uint16_t)d;
  }
  for (int i = 0; i < f->near; i++) {
    int next = UINT16_MAX;
    for (int j = 0; j < f->entries; j++) if (distance[j] > last && distance[j] < next) next = distance[j];
    for (int j = 0; j < f->entries; j++) if (distance[j] == next) vec_push(&g->neighbours, (uint16_t)j);
    last = next;
  }
  g->neighbours.at[head] = (uint16_t)(g->neighbours.n - head - 1);
}

static void fill_grid(struct grid *g) {
  const struct grid_format *f = g->f;
  const int8_t *values = codebook_data(CODEBOOK_IDS + f->book);
  uint8_t digit[256] = {0}, digits[WIDTH_MAX] = {0};       // digit: of value v at v + 128
  uint16_t *distance = xcalloc((size_t)f->entries, sizeof *distance);
  int n = 1, levels = 0;
  for (int i = 0; i < f->width; i++) n *= f->levels;
  g->digits = xcalloc((size_t)f->entries, sizeof *g->digits);
  g->place = xcalloc((size_t)n, sizeof *g->place);
  for (int i = 0; i < f->entries * f->width; i++) digit[values[i] + 128] = 1;        // marks the values that occur
  for (int v = 0; v < 256; v++) if (digit[v]) digit[v] = (uint8_t)levels++;
  if (levels != f->levels) die("code book %d has %d values instead of %d", f->book, levels, f->levels);
  for (int i = 0; i < f->entries; i++) {
    for (int k = 0; k < f->width; k++) g->digits[i][k] = digit[values[i * f->width + k] + 128];
    g->place[grid_number(f, g->digits[i])] = i + 1;
  }
  for (int i = 0; i < n; i++) {
    if (g->place[i]) g->place[i]--;
    else {
      g->place[i] = -1 - (int32_t)g->neighbours.n;
      add_neighbours(g, digits, distance);
    }
    for (int k = 0; k < f->width && ++digits[k] == f->levels; k++) digits[k] = 0;
  }
  free(distance);
}

// ---- one group ------------------------------------------------------------------------------------------------------

struct group {
  float x[GROUP_MAX], w[GROUP_MAX], root[GROUP_MAX];       // magnitudes, weights, and their square roots
  uint8_t digits[GROUP_MAX], signs[PARTS_MAX / 2];         // signs: one bit per value, eight to a byte
  float scale;
};

// Magnitudes and signs. If the number of minus signs must be even, the least important value gets the wrong sign.
static void take_signs(const struct grid_format *f, const float *x, struct group *p) {
  for (int k = 0; k < f->group; k += 8) {
    int least = 0, flips = 0;
    unsigned s = 0;
    for (int i = 0; i < 8; i++) {
      bool minus = !(x[k + i] >= 0);
      p->x[k + i] = minus ? -x[k + i] : x[k + i];
      flips += minus;
      s |= (unsigned)minus << i;
      if (p->w[k + i] * x[k + i] * x[k + i] < p->w[k + least] * x[k + least] * x[k + least]) least = i;
    }
    if (f->even && flips % 2) {
      p->x[k + least] = -p->x[k + least];
      s ^= 1u << least;
    }
    p->signs[k / 8] = (uint8_t)(f->even ? s & 127 : s);
  }
}

// The point of the book for the values from `at` on at this scale; returns whether the nearest grid point was in the
// book.
static bool to_grid(const struct grid *g, const struct group *p, int at, float inverse, float scale, uint8_t *digits) {
  const struct grid_format *f = g->f;
  const float *x = p->x + at, *w = p->root + at;
  int best = -1;
  float least = INFINITY;
  for (int i = 0; i < f->width; i++) digits[i] = (uint8_t)clamp(nearest(.5f * (inverse * x[i] - 1)), 0, f->levels - 1);
  int32_t place = g->place[grid_number(f, digits)];
  if (place >= 0) return true;
  const uint16_t *near = g->neighbours.at + (-1 - place);
  for (int j = 1; j <= near[0]; j++) {
    float sum = 0;
    for (int i = 0; i < f->width; i++) {
      float miss = scale * (float)(2 * g->digits[near[j]][i] + 1) - x[i];
      sum += w[i] * miss * miss;
    }
    if (sum < least || best < 0) least = sum, best = near[j];
  }
  memcpy(digits, g->digits[best], (size_t)f->width);
  return false;
}

struct moments { float xq, qq; };
static struct moments grid_moments(const struct grid_format *f, const struct group *p, const uint8_t *digits) {
  struct moments m = {0, 0};
  for (int i = 0; i < f->group; i++) {
    float q = (float)(2 * digits[i] + 1);
    m.xq += p->w[i] * p->x[i] * q;
    m.qq += p->w[i] * q * q;
  }
  return m;
}

static void fit_group(const struct grid *g, struct group *p) {
  const struct grid_format *f = g->f;
  int parts = f->group / f->width, top = 2 * f->levels - 1;
  bool on[PARTS_MAX], tried_on[PARTS_MAX], off = f->refit == REFIT_ALL;
  uint8_t tried[GROUP_MAX];
  float most = p->x[0], best = 0;
  for (int i = 1; i < f->group; i++) if (p->x[i] > most) most = p->x[i];
  memset(p->digits, 0, sizeof p->digits);
  p->scale = 0;
  if (most < f->tiny || most == 0) return;
  p->scale = most / (float)top;
  if (f->from_fit) {
    p->scale = fit_positive(p->x, p->w, f->group, f->levels + 1, tried);
    most = p->scale * (float)f->levels;
    if (most <= 0) { p->scale = 0; return; }
  }
  for (int k = 0; k < parts; k++) on[k] = f->refit != REFIT_ALL_IF_OFF;
  for (int i = -f->tries; i <= f->tries; i++) {
    float inverse = ((float)top + (float)i * f->step) / most;
    for (int k = 0; k < parts; k++)
      tried_on[k] = to_grid(g, p, k * f->width, inverse, 1 / inverse, tried + k * f->width);
    struct moments m = grid_moments(f, p, tried);
    if (!(m.qq > 0 && m.xq * m.xq > best * m.qq)) continue;
    p->scale = m.xq / m.qq;
    best = p->scale * m.xq;
    memcpy(p->digits, tried, (unsigned)f->group);
    memcpy(on, tried_on, sizeof on);
  }
  for (int k = 0; k < parts; k++) off |= !on[k];
  if (!off || !(p->scale > 0)) return;
  for (int k = 0; k < parts; k++)
    if (f->refit != REFIT_OFF_GRID || !on[k])
      to_grid(g, p, k * f->width, 1 / p->scale, p->scale, p->digits + k * f->width);
  struct moments m = grid_moments(f, p, p->digits);
  if (m.qq > 0) p->scale = m.xq / m.qq;
}

// A negative scale, which rounding can produce, inverts all signs.
static void keep_positive(const struct grid_format *f, struct group *p) {
  if (p->scale >= 0) return;
  p->scale = -p->scale;
  for (int k = 0; k < f->group / 8; k++) p->signs[k] = (uint8_t)(~p->signs[k] & (f->even ? 127 : 255));
}

// ---- a block --------------------------------------------------------------------------------------------------------

// per point, per eight values, per group
struct grid_block { uint16_t index[64]; uint8_t signs[32], scales[16]; float d; };

// False: all zeros.
static bool fit_block(const struct grid *g, const float *x, const float *weights, struct grid_block *b) {
  const struct grid_format *f = g->f;
  float scales[16], most = 0, mean_square = f->spread * sum_of_squares(x, SUPER) / SUPER;
  int n = SUPER / f->group;
  memset(b, 0, sizeof *b);
  for (int k = 0; k < n; k++) {
    struct group p;
    const float *at = x + k * f->group;
    if (weights) row_weights(at, weights + k * f->group, f->group, mean_square, p.w);
    else for (int i = 0; i < f->group; i++) p.w[i] = f->floor * mean_square + at[i] * at[i];
    for (int i = 0; i < f->group; i++) p.root[i] = sqrtf(p.w[i]);
    take_signs(f, at, &p);
    fit_group(g, &p);
    keep_positive(f, &p);
    scales[k] = p.scale;
    if (p.scale > most) most = p.scale;
    if (p.scale == 0) continue;
    for (int i = 0; i < f->group / f->width; i++)
      b->index[k * f->group / f->width + i] = (uint16_t)g->place[grid_number(f, p.digits + i * f->width)];
    memcpy(b->signs + k * f->group / 8, p.signs, (unsigned)f->group / 8);
  }
  if (most == 0) return false;
  b->d = most / 31;
  for (int k = 0; k < n; k++) b->scales[k] = (uint8_t)clamp(nearest(.5f * (1 / b->d * scales[k] - 1)), 0, 15);
  b->d *= f->adjust;
  return true;
}

// 28 bits of signs and a scale.
static void put_signs(unsigned char *out, const uint8_t *signs, uint8_t scale) {
  uint32_t word =
    signs[0] | (uint32_t)signs[1] << 7 | (uint32_t)signs[2] << 14 | (uint32_t)signs[3] << 21 | (uint32_t)scale << 28;
  memcpy(out, &word, sizeof word);
}

static void put_scales(unsigned char *out, const uint8_t *scales, int n) {
  for (int i = 0; i < n; i += 2) out[i / 2] = (unsigned char)(scales[i] | scales[i + 1] << 4);
}

typedef void putter(unsigned char *out, const struct grid_block *b);     // after the block's scale

static void put_iq2_xxs(unsigned char *out, const struct grid_block *b) {
  for (int k = 0; k < 8; k++) {
    for (int i = 0; i < 4; i++) out[8 * k + i] = (unsigned char)b->index[4 * k + i];
    put_signs(out + 8 * k + 4, b->signs + 4 * k, b->scales[k]);
  }
}

static void put_iq2_xs(unsigned char *out, const struct grid_block *b) {
  for (int i = 0; i < 32; i++) {
    uint16_t word = (uint16_t)(b->index[i] | b->signs[i] << 9);
    memcpy(out + 2 * i, &word, sizeof word);
  }
  put_scales(out + 64, b->scales, 16);
}

static void put_iq2_s(unsigned char *out, const struct grid_block *b) {
  for (int i = 0; i < 32; i++) {
    out[i] = (unsigned char)b->index[i];
    out[64 + i / 4] |= (unsigned char)(b->index[i] >> 8 << i % 4 * 2);
  }
  memcpy(out + 32, b->signs, 32);
  put_scales(out + 72, b->scales, 16);
}

static void put_iq3_xxs(unsigned char *out, const struct grid_block *b) {
  for (int i = 0; i < 64; i++) out[i] = (unsigned char)b->index[i];
  for (int k = 0; k < 8; k++) put_signs(out + 64 + 4 * k, b->signs + 4 * k, b->scales[k]);
}

static void put_iq3_s(unsigned char *out, const struct grid_block *b) {
  for (int i = 0; i < 64; i++) {
    out[i] = (unsigned char)b->index[i];
    out[64 + i / 8] |= (unsigned char)(b->index[i] >> 8 << i % 8);
  }
  memcpy(out + 72, b->signs, 32);
  put_scales(out + 104, b->scales, 8);
}

static void quantise(const struct grid *g, putter *put, int bytes, const float *x, const float *weights, int64_t n,
                     unsigned char *out) {
  for (int64_t i = 0; i < n; i += SUPER, out += bytes) {
    struct grid_block b;
    memset(out, 0, (unsigned)bytes);
    if (!fit_block(g, x + i, weights ? weights + i : NULL, &b)) continue;
    put_half(out, b.d);
    put(out + 2, &b);
  }
}

// One per format; the book is prepared at the first use.
#define GRID(name, bytes, ...) \
  static const struct grid_format format_##name = {__VA_ARGS__}; \
  static struct grid grid_##name = {.f = &format_##name, .once = PTHREAD_ONCE_INIT}; \
  static void fill_##name(void) { fill_grid(&grid_##name); } \
  void quantise_##name(const float *x, const float *weights, int64_t n, unsigned char *out) { \
    pthread_once(&grid_##name.once, fill_##name); \
    quantise(&grid_##name, put_##name, bytes, x, weights, n, out); \
  }
//                     book          width levels entries near group tries step  even  from_fit refit           spread
//                                   floor tiny   adjust
GRID(iq2_xxs,  66, BOOK_IQ2_XXS, 8, 3, 256,  2, 32, 6,  .1f, true,  true,  REFIT_ALL,        1, 0,    1e-15f, 1)
GRID(iq2_xs,   74, BOOK_IQ2_XS,  8, 3, 512,  2, 16, 9,  .1f, true,  false, REFIT_OFF_GRID,   1, 0,    1e-15f, 1)
GRID(iq2_s,    82, BOOK_IQ2_S,   8, 3, 1024, 1, 16, 9,  .1f, false, false, REFIT_OFF_GRID,   2, .25f, 1e-8f,  .9875f)
GRID(iq3_xxs,  98, BOOK_IQ3_XXS, 4, 8, 256,  2, 32, 15, .2f, true,  false, REFIT_OFF_GRID,   2, 0,    1e-8f,  1.0125f)
GRID(iq3_s,   110, BOOK_IQ3_S,   4, 8, 512,  3, 32, 9,  .2f, false, false, REFIT_ALL_IF_OFF, 2, 0,    0,      1.033f)

// ---- IQ1 ------------------------------------------------------------------------------------------------------------

static const struct grid_format format_iq1 = {BOOK_IQ1, 8, 3, 2048, 3, 32, .spread = 2};
static struct grid grid_iq1 = {.f = &format_iq1, .once = PTHREAD_ONCE_INIT};
static void fill_iq1(void) { fill_grid(&grid_iq1); }

// ascending: values up to `first` are the lowest, those from `second` on the highest; shift: up or down
struct thirds { float scale; int first, second, shift; };

// The indices of n values in ascending order, stable.
static void sort_values(const float *x, int n, uint8_t *order) {
  for (int i = 0; i < n; i++) {
    int k = i;
    for (; k && x[order[k - 1]] > x[i]; k--) order[k] = order[k - 1];
    order[k] = (uint8_t)i;
  }
}

// The values of the three digits.
static void shifted_values(int shift, float *out) {
  for (int i = 0; i < 3; i++) out[i] = (float)(i - 1) + (float)shift * .125f;
}

// Tries all ways to split 32 sorted values in three, shifted up and down, and keeps the one with the least weighted
// error.
static bool best_thirds(const float *x, const float *w, const uint8_t *order, struct thirds *out) {
  float sum_x[33] = {0}, sum_w[33] = {0}, values[2][3], best = -INFINITY;
  shifted_values(1, values[0]);
  shifted_values(-1, values[1]);
  out->shift = 0;
  for (int j = 0; j < 32; j++) {
    sum_x[j + 1] = sum_x[j] + w[order[j]] * x[order[j]];
    sum_w[j + 1] = sum_w[j] + w[order[j]];
  }
  for (int a = 0; a <= 32; a++) for (int b = a; b <= 32; b++) for (int s = 0; s < 2; s++) {
    const float *v = values[s];
    float xq = sum_x[a] * v[0] + (sum_x[b] - sum_x[a]) * v[1] + (sum_x[32] - sum_x[b]) * v[2];
    float qq = sum_w[a] * v[0] * v[0] + (sum_w[b] - sum_w[a]) * v[1] * v[1] + (sum_w[32] - sum_w[b]) * v[2] * v[2];
    if (!(qq > 0 && xq * xq > best * qq)) continue;
    *out = (struct thirds){xq / qq, a, b, s ? -1 : 1};
    best = out->scale * xq;
  }
  return out->shift != 0;
}

// The point of the book that is nearest to eight values at this scale.
static int nearest_point(const struct grid *g, const float *x, const float *w, const uint8_t *digits, float scale,
                         const float *values) {
  int32_t place = g->place[grid_number(g->f, digits)];
  int best = -1;
  float least = INFINITY;
  if (place >= 0) return place;
  const uint16_t *near = g->neighbours.at + (-1 - place);
  for (int j = 1; j <= near[0]; j++) {
    float sum = 0;
    for (int i = 0; i < 8; i++) {
      float miss = scale * values[g->digits[near[j]][i]] - x[i];
      sum += w[i] * miss * miss;
    }
    if (sum < least || best < 0) least = sum, best = near[j];
  }
  return best;
}

// The indices of four points, and the shift; returns the scale, 0 if all values are zero.
static float fit_thirds(const float *x, const float *w, uint16_t *index, int *shift) {
  const struct grid *g = &grid_iq1;
  uint8_t order[32], digits[32];
  struct thirds t;
  float most = 0, values[3];
  bool moved = false;
  for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i]));
  *shift = 1;
  if (most < 1e-12f) return 0;
  sort_values(x, 32, order);
  if (!best_thirds(x, w, order, &t)) return 0;
  for (int j = 0; j < 32; j++) digits[order[j]] = j < t.first ? 0 : j < t.second ? 1 : 2;
  if (t.scale < 0) {
    for (int j = 0; j < 32; j++) digits[j] = (uint8_t)(2 - digits[j]);
    t.scale = -t.scale;
    t.shift = -t.shift;
  }
  shifted_values(t.shift, values);
  for (int k = 0; k < 4; k++) {
    index[k] = (uint16_t)nearest_point(g, x + 8 * k, w + 8 * k, digits + 8 * k, t.scale, values);
    moved |= memcmp(g->digits[index[k]], digits + 8 * k, 8) != 0;
  }
  struct moments m = {0, 0};
  for (int i = 0; moved && i < 32; i++) {
    float q = values[g->digits[index[i / 8]][i % 8]];
    m.xq += w[i] * q * x[i];
    m.qq += w[i] * q * q;
  }
  *shift = t.shift;
  return m.xq > 0 && m.qq > 0 ? m.xq / m.qq : t.scale;
}

void quantise_iq1_s(const float *x, const float *weights, int64_t n, unsigned char *out) {
  pthread_once(&grid_iq1.once, fill_iq1);
  for (int64_t i = 0; i < n; i += SUPER, x += SUPER, out += 50) {
    float w[32], scales[8], most = 0, mean_square = 2 * sum_of_squares(x, SUPER) / SUPER;
    int shifts[8];
    memset(out, 0, 50);
    for (int k = 0; k < 8; k++) {
      uint16_t index[4] = {0}, high = 0;
      if (weights) row_weights(x + 32 * k, weights + i + 32 * k, 32, mean_square, w);
      else for (int j = 0; j < 32; j++) w[j] = x[32 * k + j] * x[32 * k + j];
      scales[k] = fit_thirds(x + 32 * k, w, index, &shifts[k]);
      if (scales[k] > most) most = scales[k];
      for (int j = 0; j < 4; j++) {
        out[2 + 4 * k + j] = (unsigned char)index[j];
        high |= (uint16_t)(index[j] >> 8 << 3 * j);
      }
      memcpy(out + 34 + 2 * k, &high, sizeof high);
    }
    if (most == 0) continue;
    float d = most / 15;
    put_half(out, d * 1.125f);
    for (int k = 0; k < 8; k++)
      out[35 + 2 * k] |=
        (unsigned char)((clamp(nearest(.5f * (1 / d * scales[k] - 1)), 0, 7) | (shifts[k] < 0 ? 8 : 0)) << 4);
  }
}

// ---- IQ1_M ----------------------------------------------------------------------------------------------------------

// 16 values share a scale, and each half of them is shifted up or down: bit 1 of `moves` is set if the first half is
// shifted down, bit 0 for the second.
enum { HALVES = 16, MOVES = 4 };

static int move_of(int moves, int half) { return moves >> (1 - half) & 1 ? -1 : 1; }

// Tries all ways to split 16 sorted values in three, and all moves, and keeps those with the least weighted error, as
// digits. Returns the scale. If alternatives differ only by rounding, the first is taken, so that groups of equal
// values get similar scales.
static float best_moved(const float *x, const float *w, uint8_t *digits, int *moves) {
  static const float TIE = 1e-6f;
  uint8_t order[HALVES];
  float sum_x[2][HALVES + 1] = {{0}}, sum_w[2][HALVES + 1] = {{0}}, best = -INFINITY, scale = 0;       // per half
  int first = 0, second = 0;
  sort_values(x, HALVES, order);
  *moves = 0;
  for (int j = 0; j < HALVES; j++) for (int h = 0; h < 2; h++) {
    bool in = order[j] / 8 == h;
    sum_x[h][j + 1] = sum_x[h][j] + (in ? w[order[j]] * x[order[j]] : 0);
    sum_w[h][j + 1] = sum_w[h][j] + (in ? w[order[j]] : 0);
  }
  for (int a = 0; a <= HALVES; a++) for (int b = a; b <= HALVES; b++) {
    struct moments m[2][2];                          // per half, shifted up and down
    for (int h = 0; h < 2; h++) for (int down = 0; down < 2; down++) {
      const float *sx = sum_x[h], *sw = sum_w[h];
      float v[3];
      shifted_values(down ? -1 : 1, v);
      m[h][down].xq = sx[a] * v[0] + (sx[b] - sx[a]) * v[1] + (sx[HALVES] - sx[b]) * v[2];
      m[h][down].qq = sw[a] * v[0] * v[0] + (sw[b] - sw[a]) * v[1] * v[1] + (sw[HALVES] - sw[b]) * v[2] * v[2];
    }
    for (int k = 0; k < MOVES; k++) {
      float xq = m[0][k >> 1].xq + m[1][k & 1].xq, qq = m[0][k >> 1].qq + m[1][k & 1].qq;
      if (!(qq > 0 && xq * xq > best * qq * (1 + TIE))) continue;
      scale = xq / qq;
      best = scale * xq;
      first = a, second = b, *moves = k;
    }
  }
  for (int j = 0; j < HALVES; j++) digits[order[j]] = j < first ? 0 : j < second ? 1 : 2;
  if (scale >= 0) return scale;
  for (int j = 0; j < HALVES; j++) digits[j] = (uint8_t)(2 - digits[j]);
  *moves = MOVES - 1 - *moves;
  return -scale;
}

// Adds the sums over 16 values, approximated by two points, `times` as large.
static void add_points(struct moments *m, const float *x, const float *w, const uint16_t *index, int moves, int times) {
  float values[3];
  for (int i = 0; i < HALVES; i++) {
    shifted_values(move_of(moves, i / 8), values);
    float q = values[grid_iq1.digits[index[i / 8]][i % 8]] * (float)times;
    m->xq += w[i] * q * x[i];
    m->qq += w[i] * q * q;
  }
}

// The indices of two points, and the moves; returns the scale, 0 if all values are zero, with the points nearest at
// that scale.
static float fit_moved(const float *x, const float *w, uint16_t *index, int *moves) {
  uint8_t digits[HALVES];
  float most = 0, scale = 0, values[3];
  bool moved = false;
  for (int i = 0; i < HALVES; i++) most = fmaxf(most, fabsf(x[i]));
  memset(digits, 1, sizeof digits);
  *moves = 0;
  if (most >= 1e-7f) scale = best_moved(x, w, digits, moves);
  for (int k = 0; k < 2; k++) {
    shifted_values(move_of(*moves, k), values);
    index[k] = (uint16_t)nearest_point(&grid_iq1, x + 8 * k, w + 8 * k, digits + 8 * k, scale, values);
    moved |= memcmp(grid_iq1.digits[index[k]], digits + 8 * k, 8) != 0;
  }
  struct moments m = {0, 0};
  if (moved) add_points(&m, x, w, index, *moves, 1);
  return m.xq > 0 && m.qq > 0 ? m.xq / m.qq : scale;
}

void quantise_iq1_m(const float *x, const float *weights, int64_t n, unsigned char *out) {
  enum { GROUPS = SUPER / HALVES };
  pthread_once(&grid_iq1.once, fill_iq1);
  for (int64_t i = 0; i < n; i += SUPER, x += SUPER, out += 56) {
    float w[SUPER], scales[GROUPS], most = 0, mean_square = 2 * sum_of_squares(x, SUPER) / SUPER;
    uint16_t index[GROUPS][2], words[4] = {0};       // words: four scales, and a quarter of the bits of d
    int moves[GROUPS];
    struct moments all = {0, 0};
    memset(out, 0, 56);
    if (weights) row_weights(x, weights + i, SUPER, mean_square, w);
    else for (int j = 0; j < SUPER; j++) w[j] = x[j] * x[j];
    for (int k = 0; k < GROUPS; k++) {
      scales[k] = fit_moved(x + HALVES * k, w + HALVES * k, index[k], &moves[k]);
      if (scales[k] > most) most = scales[k];
    }
    if (most == 0) continue;
    float d = most / 15, inverse = 1 / d;
    for (int k = 0; k < GROUPS; k++) {
      int scale = clamp(nearest(.5f * (inverse * scales[k] - 1)), 0, 7);
      words[k / 4] |= (uint16_t)(scale << 3 * (k % 4));
      for (int h = 0; h < 2; h++) {
        out[2 * k + h] = (unsigned char)index[k][h];
        out[32 + k] |= (unsigned char)((index[k][h] >> 8 | (move_of(moves[k], h) < 0 ? 8 : 0)) << 4 * h);
      }
      add_points(&all, x + HALVES * k, w + HALVES * k, index[k], moves[k], 2 * scale + 1);
    }
    uint16_t half = half_bits((all.qq > 0 ? all.xq / all.qq : d) * 1.1125f);
    for (int k = 0; k < 4; k++) words[k] |= (uint16_t)((half >> 4 * k & 15) << 12);
    memcpy(out + 48, words, sizeof words);
  }
}
