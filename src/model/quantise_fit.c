// Fits scales and codes of small groups: see quantise_fit.h.
#include "model/quantise_fit.h"

static const float TINY = 1e-15f;                  // a group without a larger value is all zeros

uint16_t half_bits(float v) {
  uint32_t bits, sign, mantissa, rest;
  memcpy(&bits, &v, sizeof bits);
  sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (bits >= 0x47800000) return (uint16_t)(sign | 0x7c00);            // 2^16 and more
  int shift = 13, exponent = (int)(bits >> 23) - 112;
  if (exponent < -10) return (uint16_t)sign;
  mantissa = bits & 0x7fffff;
  if (exponent <= 0) {                             // subnormal: fewer bits
    mantissa |= 0x800000;
    shift += 1 - exponent;
    exponent = 0;
  }
  rest = mantissa & ((1u << shift) - 1);
  mantissa = ((uint32_t)exponent << 10) + (mantissa >> shift);
  if (rest > 1u << (shift - 1) || (rest == 1u << (shift - 1) && mantissa & 1)) mantissa++;
  return (uint16_t)(sign | mantissa);
}

float half_value(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff, bits;
  float v;
  if (!exponent) {
    v = (float)mantissa * 0x1p-24f;
    return sign ? -v : v;
  }
  bits = sign | (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | mantissa << 13;
  memcpy(&v, &bits, sizeof v);
  return v;
}

float farthest(const float *x, int n) {
  float best = 0, most = 0;
  for (int i = 0; i < n; i++) if (fabsf(x[i]) > most) most = fabsf(best = x[i]);
  return most < TINY ? 0 : best;
}

float sum_of_squares(const float *x, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sum;
}

// Sums from which a scale follows: w x q and w q q.
struct moments { float xq, qq; };
static void moments_add(struct moments *m, float w, float x, int q) {
  m->xq += w * x * (float)q;
  m->qq += w * (float)q * (float)q;
}

// ---- symmetric ------------------------------------------------------------------------------------------------------

static int signed_code(float x, float inverse, int half) { return clamp(nearest(inverse * x), -half, half - 1); }

static struct moments symmetric_moments(const float *x, const float *weights, int n, int half, float inverse) {
  struct moments m = {0, 0};
  for (int i = 0; i < n; i++)
    moments_add(&m, weights ? weights[i] : x[i] * x[i], x[i], signed_code(x[i], inverse, half));
  return m;
}

float fit_symmetric(const float *x, const float *weights, int n, int half, uint8_t *codes) {
  enum { TRIES = 9 };
  float far = farthest(x, n);
  memset(codes, 0, (unsigned)n);
  if (far == 0) return 0;
  float inverse = (float)-half / far;
  struct moments m = symmetric_moments(x, weights, n, half, inverse);
  float scale = m.qq != 0 ? m.xq / m.qq : 0, best = scale * m.xq;
  for (int i = -TRIES; i <= TRIES; i++) {
    float other = -((float)half + .1f * (float)i) / far;
    if (!i) continue;
    m = symmetric_moments(x, weights, n, half, other);
    if (!(m.qq > 0 && m.xq * m.xq > best * m.qq)) continue;
    inverse = other;
    scale = m.xq / m.qq;
    best = scale * m.xq;
  }
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)(signed_code(x[i], inverse, half) + half);
  return scale;
}

// Changes one code at a time: the best scale without value i gives the best code for it. Returns whether any changed.
static bool step_codes(const float *x, int n, int half, int *q, struct moments *m) {
  bool changed = false;
  for (int i = 0; i < n; i++) {
    float w = x[i] * x[i];
    struct moments rest = {m->xq - w * x[i] * (float)q[i], 0};
    if (!(rest.xq > 0)) continue;
    rest.qq = m->qq - w * (float)q[i] * (float)q[i];
    int code = clamp(nearest(x[i] * rest.qq / rest.xq), -half, half - 1);
    if (code == q[i]) continue;
    moments_add(&rest, w, x[i], code);
    if (!(rest.qq > 0 && rest.xq * rest.xq * m->qq > m->xq * m->xq * rest.qq)) continue;
    q[i] = code;
    *m = rest;
    changed = true;
  }
  return changed;
}

float fit_by_steps(const float *x, int n, int half, uint8_t *codes) {
  enum { ROUNDS = 5 };
  int q[GROUP_MAX];
  struct moments m = {0, 0};
  float far = farthest(x, n);
  memset(codes, 0, (unsigned)n);
  if (far == 0) return 0;
  for (int i = 0; i < n; i++) moments_add(&m, x[i] * x[i], x[i], q[i] = signed_code(x[i], (float)-half / far, half));
  for (int i = 0; i < ROUNDS && step_codes(x, n, half, q, &m); i++) continue;
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)(q[i] + half);
  return m.qq > 0 ? m.xq / m.qq : 0;
}

// ---- from zero up ---------------------------------------------------------------------------------------------------

static int positive_code(float x, float inverse, int top) {
  int q = nearest(inverse * x);
  return q < top ? q : top;
}

// first: codes are limited to a byte, whatever top is.
static float positive_error(const float *x, const float *weights, int n, int top, float inverse, bool first) {
  float scale = 1 / inverse, sum = 0;
  for (int i = 0; i < n; i++) {
    int code = first ? (uint8_t)nearest(inverse * x[i]) : positive_code(x[i], inverse, top);
    float miss = x[i] - scale * (float)code;
    sum += weights[i] * miss * miss;
  }
  return sum;
}

static bool step_positive(const float *x, const float *weights, int n, int top, uint8_t *q, struct moments *m) {
  bool changed = false;
  for (int i = 0; i < n; i++) {
    float w = weights[i];
    struct moments rest = {m->xq - w * x[i] * (float)q[i], m->qq - w * (float)q[i] * (float)q[i]};
    if (!(rest.xq > 0 && rest.qq > 0)) continue;
    int code = nearest(x[i] * rest.qq / rest.xq);
    if (code > top) code = top;
    if (code == q[i]) continue;
    moments_add(&rest, w, x[i], code);
    if (!(rest.xq * rest.xq * m->qq > m->xq * m->xq * rest.qq)) continue;
    q[i] = (uint8_t)code;
    *m = rest;
    changed = true;
  }
  return changed;
}

float fit_positive(const float *x, const float *weights, int n, int top, uint8_t *codes) {
  enum { TRIES = 4, ROUNDS = 5 };
  float most = 0;
  struct moments m = {0, 0};
  for (int i = 0; i < n; i++) if (x[i] > most) most = x[i];
  memset(codes, 0, (unsigned)n);
  if (most < TINY) return 0;
  float inverse = (float)top / most, best = positive_error(x, weights, n, top, inverse, true);
  for (int i = -TRIES; i <= TRIES; i++) {
    float other = (.1f * (float)i + (float)top) / most;
    float e = i ? positive_error(x, weights, n, top, other, false) : best;
    if (e < best) best = e, inverse = other;
  }
  for (int i = 0; i < n; i++) {
    int code = positive_code(x[i], inverse, top);
    codes[i] = (uint8_t)code;
    moments_add(&m, weights[i], x[i], code);
  }
  for (int i = 0; i < ROUNDS && step_positive(x, weights, n, top, codes, &m); i++) continue;
  return m.qq > 0 ? m.xq / m.qq : 0;
}

// ---- with a least value ---------------------------------------------------------------------------------------------

struct line { float scale, low; };                 // x = scale * code + low

static float line_error(const float *x, const float *weights, int n, const uint8_t *codes, struct line l,
                        bool absolute) {
  float sum = 0;
  for (int i = 0; i < n; i++) {
    float miss = l.scale * (float)codes[i] + l.low - x[i];
    sum += weights[i] * (absolute ? fabsf(miss) : miss * miss);
  }
  return sum;
}

static void line_codes(const float *x, int n, int top, float inverse, float low, uint8_t *codes) {
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)clamp(nearest(inverse * (x[i] - low)), 0, top);
}

// The best line for these codes, by least squares; false if they are all equal.
static bool best_line(const float *x, const float *weights, int n, const uint8_t *codes, float sum_w, float sum_x,
                      struct line *out) {
  float q = 0, qq = 0, xq = 0;
  for (int i = 0; i < n; i++) {
    float w = weights[i], c = (float)codes[i];
    q += w * c;
    qq += w * c * c;
    xq += w * c * x[i];
  }
  float det = sum_w * qq - q * q;
  if (!(det > 0)) return false;
  *out = (struct line){(sum_w * xq - sum_x * q) / det, (qq * sum_x - q * xq) / det};
  if (out->low > 0) *out = (struct line){xq / qq, 0};
  return true;
}

float fit_affine(const float *x, const float *weights, int n, int top, const struct affine_search *s, uint8_t *codes,
                 float *min) {
  float low = x[0], high = x[0], sum_w = weights[0], sum_x = sum_w * x[0];
  uint8_t tried[GROUP_MAX];
  for (int i = 1; i < n; i++) {
    if (x[i] < low) low = x[i];
    if (x[i] > high) high = x[i];
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (low > 0) low = 0;
  *min = -low;
  memset(codes, 0, (unsigned)n);
  if (high <= low) return 0;
  float inverse = (float)top / (high - low);
  struct line best = {1 / inverse, low}, l;
  line_codes(x, n, top, inverse, low, codes);
  float least = line_error(x, weights, n, codes, best, s->absolute);
  for (int i = 0; i <= s->steps; i++) {
    // relative to the best line so far
    line_codes(x, n, top, (s->first + s->step * (float)i + (float)top) / (high - best.low), best.low, tried);
    if (!best_line(x, weights, n, tried, sum_w, sum_x, &l)) continue;
    float e = line_error(x, weights, n, tried, l, s->absolute);
    if (!(e < least)) continue;
    memcpy(codes, tried, (unsigned)n);
    least = e;
    best = l;
  }
  *min = -best.low;
  return best.scale;
}
