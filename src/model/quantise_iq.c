// IQ4: codes for 16 values that are denser near zero.
#include "model/quantise_impl.h"

static const float TINY = 1e-15f;
static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// The code whose value is nearest to v, the upper one of two.
static uint8_t value_code(float v) {
  int low = 0, high = 15;
  if (v <= values[0]) return 0;
  if (v >= values[15]) return 15;
  while (high - low > 1) {
    int mid = (low + high) / 2;
    if (v < values[mid]) high = mid;
    else low = mid;
  }
  return (uint8_t)(v - values[low] < values[high] - v ? low : high);
}

struct moments { float xq, qq; };
static struct moments value_moments(const float *x, const float *w, float inverse) {
  struct moments m = {0, 0};
  for (int i = 0; i < 32; i++) {
    float q = values[value_code(inverse * x[i])];
    m.xq += w[i] * q * x[i];
    m.qq += w[i] * q * q;
  }
  return m;
}

// The scale of 32 values.
static float value_scale(const float *x, const float *w) {
  enum { TRIES = 7 };
  float most = 0, far = 0;
  for (int i = 0; i < 32; i++) if (fabsf(x[i]) > most) most = fabsf(far = x[i]);
  if (most < TINY) return 0;
  struct moments m = value_moments(x, w, 1 / (-far / values[0]));
  float d = m.qq > 0 ? m.xq / m.qq : 0, best = d * m.xq;
  for (int i = -TRIES; i <= TRIES; i++) {
    m = value_moments(x, w, (float)(i + values[0]) / far);
    if (!(m.qq > 0 && m.xq * m.xq > best * m.qq)) continue;
    d = m.xq / m.qq;
    best = d * m.xq;
  }
  return d;
}

static void value_weights(const float *x, const float *weights, float mean_square, float *out) {
  if (weights) row_weights(x, weights, 32, mean_square, out);
  else for (int i = 0; i < 32; i++) out[i] = x[i] * x[i];
}

static void put_values(const float *x, float d, unsigned char *out) {
  float inverse = d != 0 ? 1 / d : 0;
  uint8_t codes[32];
  for (int i = 0; i < 32; i++) codes[i] = value_code(inverse * x[i]);
  put_nibbles(out, codes);
}

void quantise_iq4_nl(const float *x, const float *weights, int64_t n, unsigned char *out) {
  for (int64_t i = 0; i < n; i += 32, x += 32, out += 18) {
    float w[32], d;
    value_weights(x, weights ? weights + i : NULL, sum_of_squares(x, 32) * (2.f / 32), w);
    d = value_scale(x, w);
    put_half(out, d);
    put_values(x, d, out + 2);
  }
}

void quantise_iq4_xs(const float *x, const float *weights, int64_t n, unsigned char *out) {
  for (int64_t i = 0; i < n; i += SUPER, x += SUPER, out += 136) {
    float scales[8], w[32], far = 0, most = 0, mean_square = sum_of_squares(x, SUPER) * (2.f / SUPER);
    uint16_t high = 0;
    for (int g = 0; g < 8; g++) {
      value_weights(x + 32 * g, weights ? weights + i + 32 * g : NULL, mean_square, w);
      scales[g] = value_scale(x + 32 * g, w);
      if (fabsf(scales[g]) > most) most = fabsf(far = scales[g]);
    }
    float d = -far / 32, inverse = d != 0 ? 1 / d : 0;
    put_half(out, d);
    memset(out + 4, 0, 4);
    for (int g = 0; g < 8; g++) {
      int s = clamp(nearest(inverse * scales[g]), -32, 31);
      put_values(x + 32 * g, d * (float)s, out + 8 + 16 * g);
      out[4 + g / 2] |= (unsigned char)(((s + 32) & 15) << g % 2 * 4);
      high |= (uint16_t)((s + 32) >> 4 << 2 * g);
    }
    memcpy(out + 2, &high, sizeof high);
  }
}
