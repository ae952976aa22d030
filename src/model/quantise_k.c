// K-quants: 256 values in groups of 16 or 32, whose scales (and least values) are small integers times a scale of the
// whole block. A group is first fitted alone; then its scale is rounded, and the codes are chosen again for the rounded
// scale.
#include "model/quantise_impl.h"

enum { GROUPS_MAX = 16 };

// ---- with least values: Q2_K, Q4_K, Q5_K ----------------------------------------------------------------------------

struct affine_format {
  int group, top;                                  // values per group; largest code
  int scale_top;                                   // largest code of a scale
  struct affine_search search;
  float spread;                                    // with weights: how many times the mean square is added
};
// d, dmin: before rounding to f16
struct affine_block { uint8_t codes[SUPER], scales[GROUPS_MAX], mins[GROUPS_MAX]; float d, dmin; };

// Default weights of errors: absolute values in small groups, otherwise these plus the group's root mean square.
static void plain_weights(const struct affine_format *f, const float *x, float *out) {
  float rms = f->group == 32 ? sqrtf(sum_of_squares(x, f->group) / (float)f->group) : 0;
  for (int i = 0; i < f->group; i++) out[i] = rms + fabsf(x[i]);
}

// Scales as codes, the largest one getting the highest. Returns the value of one step.
static float round_scales(const float *scales, int n, int top, uint8_t *codes) {
  float most = 0;
  for (int i = 0; i < n; i++) if (scales[i] > most) most = scales[i];
  float inverse = most > 0 ? (float)top / most : 0;
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)clamp(nearest(inverse * scales[i]), 0, top);
  return most / (float)top;
}

// Chooses the codes of a group again, unless its scale is 0.
static void choose_again(const float *x, int n, float d, float min, int low, int high, uint8_t *codes) {
  if (d == 0) return;
  for (int i = 0; i < n; i++) codes[i] = (uint8_t)(clamp(nearest((x[i] + min) / d), low, high) - low);
}

static void affine_fit(const struct affine_format *f, const float *x, const float *weights, struct affine_block *b) {
  int n = SUPER / f->group;
  float scales[GROUPS_MAX], mins[GROUPS_MAX], w[GROUP_MAX], sums[GROUPS_MAX];
  float mean_square = weights ? f->spread * sum_of_squares(x, SUPER) / SUPER : 0;
  for (int g = 0; g < n; g++) {
    const float *at = x + g * f->group;
    if (weights) row_weights(at, weights + g * f->group, f->group, mean_square, w);
    else plain_weights(f, at, w);
    sums[g] = 0;
    for (int i = 0; i < f->group; i++) sums[g] += w[i];
    scales[g] =
      fit_affine(at, w, f->group, f->top, weights ? &wide_search : &f->search, b->codes + g * f->group, &mins[g]);
  }
  if (weights) {
    b->d = fit_positive(scales, sums, n, f->scale_top, b->scales);
    b->dmin = fit_positive(mins, sums, n, f->scale_top, b->mins);
  } else {
    b->d = round_scales(scales, n, f->scale_top, b->scales);
    b->dmin = round_scales(mins, n, f->scale_top, b->mins);
  }
  float d = half_value(half_bits(b->d)), dmin = half_value(half_bits(b->dmin));
  for (int g = 0; g < n; g++)
    choose_again(x + g * f->group, f->group, d * b->scales[g], dmin * b->mins[g], 0, f->top, b->codes + g * f->group);
}

// The two-bit codes of 128 values in 32 bytes, then those of the other 128.
static void put_two_bits(unsigned char *out, const uint8_t *codes) {
  for (int i = 0; i < 64; i++) {
    const uint8_t *c = codes + i / 32 * 128 + i % 32;
    out[i] = (unsigned char)((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
  }
}

void quantise_q2_k(const float *x, const float *weights, int64_t n, unsigned char *out) {
  static const struct affine_format f = {16, 3, 15, {-.5f, .1f, 15, true}, 1};
  for (int64_t i = 0; i < n; i += SUPER, out += 84) {
    struct affine_block b;
    affine_fit(&f, x + i, weights ? weights + i : NULL, &b);
    for (int g = 0; g < 16; g++) out[g] = (unsigned char)(b.scales[g] | b.mins[g] << 4);
    put_two_bits(out + 16, b.codes);
    put_half(out + 80, b.d);
    put_half(out + 82, b.dmin);
  }
}

// d, dmin, and eight scales and least values of 6 bits in 12 bytes: the two high bits of the last four are stored in
// the unused bits of the first four.
static void put_affine_head(unsigned char *out, const struct affine_block *b) {
  unsigned char *s = out + 4;
  put_half(out, b->d);
  put_half(out + 2, b->dmin);
  for (int g = 0; g < 4; g++) {
    uint8_t late = b->scales[g + 4], late_min = b->mins[g + 4];
    s[g] = (unsigned char)(b->scales[g] | late >> 4 << 6);
    s[g + 4] = (unsigned char)(b->mins[g] | late_min >> 4 << 6);
    s[g + 8] = (unsigned char)((late & 15) | (late_min & 15) << 4);
  }
}

// Nibbles of 64 values in 32 bytes, four times.
static void put_many_nibbles(unsigned char *out, const uint8_t *codes) {
  for (int i = 0; i < 128; i++) {
    const uint8_t *c = codes + i / 32 * 64 + i % 32;
    out[i] = (unsigned char)((c[0] & 15) | (c[32] & 15) << 4);
  }
}

void quantise_q4_k(const float *x, const float *weights, int64_t n, unsigned char *out) {
  static const struct affine_format f = {32, 15, 63, {-1, .1f, 20, false}, 2};
  for (int64_t i = 0; i < n; i += SUPER, out += 144) {
    struct affine_block b;
    affine_fit(&f, x + i, weights ? weights + i : NULL, &b);
    put_affine_head(out, &b);
    put_many_nibbles(out + 16, b.codes);
  }
}

void quantise_q5_k(const float *x, const float *weights, int64_t n, unsigned char *out) {
  static const struct affine_format f = {32, 31, 63, {-.5f, .1f, 15, false}, 2};
  for (int64_t i = 0; i < n; i += SUPER, out += 176) {
    struct affine_block b;
    affine_fit(&f, x + i, weights ? weights + i : NULL, &b);
    put_affine_head(out, &b);
    memset(out + 16, 0, 32);
    for (int k = 0; k < SUPER; k++) out[16 + k % 32] |= (unsigned char)(b.codes[k] >> 4 << k / 32);
    put_many_nibbles(out + 48, b.codes);
  }
}

// ---- around zero: Q3_K, Q6_K ----------------------------------------------------------------------------------------

// 16 scales of 6 bits, where 32 means 0: low nibbles in 8 bytes, two high bits in 4.
static void put_six_bit_scales(unsigned char *out, const uint8_t *scales) {
  for (int g = 0; g < 8; g++) out[g] = (unsigned char)((scales[g] & 15) | (scales[g + 8] & 15) << 4);
  for (int g = 0; g < 4; g++)
    out[8 + g] =
      (unsigned char)(scales[g] >> 4 | scales[g + 4] >> 4 << 2 | scales[g + 8] >> 4 << 4 | scales[g + 12] >> 4 << 6);
}

// The scale of the block, from those of its groups; the one of largest magnitude gets the code 0.
static float round_signed_scales(const float *scales, uint8_t *codes) {
  float far = 0, most = 0;
  memset(codes, 0, 16);
  for (int g = 0; g < 16; g++) if (fabsf(scales[g]) > most) most = fabsf(far = scales[g]);
  if (far == 0) return 0;
  float inverse = -32 / far;
  for (int g = 0; g < 16; g++) codes[g] = (uint8_t)(clamp(nearest(inverse * scales[g]), -32, 31) + 32);
  return 1 / inverse;
}

void quantise_q3_k(const float *x, const float *weights, int64_t n, unsigned char *out) {
  for (int64_t i = 0; i < n; i += SUPER, x += SUPER, out += 110) {
    uint8_t codes[SUPER], rounded[16];
    float scales[16], w[16], sums[16], mean_square = weights ? 2 * sum_of_squares(x, SUPER) / SUPER : 0, d;
    for (int g = 0; g < 16; g++) {
      if (weights) row_weights(x + 16 * g, weights + i + 16 * g, 16, mean_square, w);
      scales[g] =
        weights ? fit_symmetric(x + 16 * g, w, 16, 4, codes + 16 * g) : fit_by_steps(x + 16 * g, 16, 4, codes + 16 * g);
      sums[g] = 0;
      for (int k = 0; weights && k < 16; k++) sums[g] += w[k];
    }
    d = weights ? fit_symmetric(scales, sums, 16, 32, rounded) : round_signed_scales(scales, rounded);
    put_half(out + 108, d);
    d = get_half(out + 108);
    for (int g = 0; g < 16; g++) choose_again(x + 16 * g, 16, d * (float)(rounded[g] - 32), 0, -4, 3, codes + 16 * g);
    memset(out, 0, 32);
    for (int k = 0; k < SUPER; k++) out[k % 32] |= (unsigned char)(codes[k] >> 2 << k / 32);
    put_two_bits(out + 32, codes);
    put_six_bit_scales(out + 96, rounded);
  }
}

void quantise_q6_k(const float *x, const float *weights, int64_t n, unsigned char *out) {
  for (int64_t i = 0; i < n; i += SUPER, x += SUPER, out += 210) {
    uint8_t codes[SUPER];
    float scales[16];
    for (int g = 0; g < 16; g++)
      scales[g] = fit_symmetric(x + 16 * g, weights ? weights + i + 16 * g : NULL, 16, 32, codes + 16 * g);
    float far = farthest(scales, 16), inverse = far != 0 ? -128 / far : 0, d;
    if (far == 0) {
      memset(out, 0, 210);
      continue;
    }
    put_half(out + 208, 1 / inverse);
    d = get_half(out + 208);
    for (int g = 0; g < 16; g++) {
      int s = nearest(inverse * scales[g]);
      if (s > 127) s = 127;
      out[192 + g] = (unsigned char)s;
      choose_again(x + 16 * g, 16, d * (float)(int8_t)s, 0, -32, 31, codes + 16 * g);
    }
    // low nibbles: 64 values, with the next 64 in the high nibbles
    for (int k = 0; k < 128; k++) {
      const uint8_t *c = codes + k / 64 * 128 + k % 64;
      out[k] = (unsigned char)((c[0] & 15) | (c[64] & 15) << 4);
    }
    for (int k = 0; k < 64; k++) {
      const uint8_t *c = codes + k / 32 * 128 + k % 32;
      out[128 + k] = (unsigned char)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
    }
  }
}
