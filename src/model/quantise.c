// The table of formats that can be written, and those of 32 values per block: see quantise.h. Blocks have the layout
// that dequant.c reads.
#include "model/quantise_impl.h"

// ---- plain floats ---------------------------------------------------------------------------------------------------

static void to_f32(const float *x, const float *w, int64_t n, unsigned char *out) {
  (void)w;
  memcpy(out, x, (size_t)n * sizeof *x);
}

static void to_f16(const float *x, const float *w, int64_t n, unsigned char *out) {
  (void)w;
  for (int64_t i = 0; i < n; i++) put_half(out + 2 * i, x[i]);
}

static void to_bf16(const float *x, const float *w, int64_t n, unsigned char *out) {
  (void)w;
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    uint16_t high = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);          // to the nearest, ties to even
    memcpy(out + 2 * i, &high, sizeof high);
  }
}

bool floats_from(const struct format *f, const unsigned char *in, int64_t n, float *out) {
  if (f->id == FORMAT_F32) memcpy(out, in, (size_t)n * sizeof *out);
  else if (f->id == FORMAT_F16) for (int64_t i = 0; i < n; i++) out[i] = get_half(in + 2 * i);
  else if (f->id == FORMAT_BF16) for (int64_t i = 0; i < n; i++) {
    uint32_t bits = (uint32_t)in[2 * i] << 16 | (uint32_t)in[2 * i + 1] << 24;
    memcpy(&out[i], &bits, sizeof bits);
  }
  else return false;
  return true;
}

// ---- 32 values a block ----------------------------------------------------------------------------------------------

// 32 codes as nibbles: a byte holds value i and, in its high nibble, value i + 16.
void put_nibbles(unsigned char *out, const uint8_t *codes) {
  for (int i = 0; i < 16; i++) out[i] = (unsigned char)((codes[i] & 15) | codes[i + 16] << 4);
}

// The fifth bits of codes, value i in bit i.
static void put_fifth_bits(unsigned char *out, const uint8_t *codes) {
  uint32_t word = 0;
  for (int i = 0; i < 32; i++) word |= (uint32_t)(codes[i] >> 4 & 1) << i;
  memcpy(out, &word, sizeof word);
}

// The weight of errors in a block: the importance weights, increased for values that are large compared with the row's.
void row_weights(const float *x, const float *weights, int n, float mean_square, float *out) {
  for (int i = 0; i < n; i++) out[i] = weights[i] * sqrtf(mean_square + x[i] * x[i]);
}

const struct affine_search wide_search = {-.9f, .05f, 36, false};

// v without its fraction, from `least` to `most`, both at least -1 where v may have a fraction; `least` for NaN. Blocks
// of values below 2^-127 have an inverse scale that is infinite, and a scale that becomes 0.
static int cut_to(float v, int least, int most) {
  return !(v > (float)least) ? least : v < (float)most ? (int)v : most;
}

// 4 or 5 bits around zero, which is the code 2^(bits - 1): the value of largest magnitude gets the code 0.
static void around_zero(const float *x, const float *weights, int64_t n, int bits, unsigned char *out) {
  int half = 1 << (bits - 1), bytes = bits == 4 ? 18 : 22;
  float mean_square = weights ? sum_of_squares(x, n) / (float)n : 0;
  for (int64_t b = 0; b < n / 32; b++, x += 32, out += bytes) {
    uint8_t codes[32];
    float d;
    if (weights) {
      float w[32];
      row_weights(x, weights + 32 * b, 32, mean_square, w);
      d = fit_symmetric(x, w, 32, half, codes);
    } else {
      float most = 0, far = 0;
      for (int i = 0; i < 32; i++) if (fabsf(x[i]) > most) most = fabsf(far = x[i]);
      d = far / (float)-half;
      float inverse = d != 0 ? 1 / d : 0;
      for (int i = 0; i < 32; i++)
        codes[i] = (uint8_t)cut_to(x[i] * inverse + ((float)half + .5f), 0, 2 * half - 1);
    }
    put_half(out, d);
    if (bits == 5) put_fifth_bits(out + 2, codes);
    put_nibbles(out + bytes - 16, codes);
  }
}

// 4 or 5 bits from the least value up.
static void from_least(const float *x, const float *weights, int64_t n, int bits, unsigned char *out) {
  int top = (1 << bits) - 1, bytes = bits == 4 ? 20 : 24;
  float mean_square = weights ? sum_of_squares(x, n) / (float)n : 0;
  for (int64_t b = 0; b < n / 32; b++, x += 32, out += bytes) {
    uint8_t codes[32];
    float d, low;
    if (weights) {
      float w[32];
      row_weights(x, weights + 32 * b, 32, mean_square, w);
      d = fit_affine(x, w, 32, top, &wide_search, codes, &low);
      low = -low;
    } else {
      float high = low = x[0];
      for (int i = 1; i < 32; i++) {
        if (x[i] < low) low = x[i];
        if (x[i] > high) high = x[i];
      }
      d = (high - low) / (float)top;
      float inverse = d != 0 ? 1 / d : 0;
      for (int i = 0; i < 32; i++) codes[i] = (uint8_t)cut_to((x[i] - low) * inverse + .5f, 0, top);
    }
    put_half(out, d);
    put_half(out + 2, low);
    if (bits == 5) put_fifth_bits(out + 4, codes);
    put_nibbles(out + bytes - 16, codes);
  }
}

static void write_q4_0(const float *x, const float *w, int64_t n, unsigned char *out) { around_zero(x, w, n, 4, out); }
static void write_q5_0(const float *x, const float *w, int64_t n, unsigned char *out) { around_zero(x, w, n, 5, out); }
static void write_q4_1(const float *x, const float *w, int64_t n, unsigned char *out) { from_least(x, w, n, 4, out); }
static void write_q5_1(const float *x, const float *w, int64_t n, unsigned char *out) { from_least(x, w, n, 5, out); }

static float largest(const float *x, int n) {
  float most = 0;
  for (int i = 0; i < n; i++) if (fabsf(x[i]) > most) most = fabsf(x[i]);
  return most;
}

static void write_q8_0(const float *x, const float *w, int64_t n, unsigned char *out) {
  (void)w;
  for (int64_t b = 0; b < n / 32; b++, x += 32, out += 34) {
    float d = largest(x, 32) / 127, inverse = d != 0 ? 1 / d : 0;
    put_half(out, d);
    for (int i = 0; i < 32; i++) out[2 + i] = (unsigned char)cut_to(roundf(x[i] * inverse), -127, 127);
  }
}

// ---- 4-bit floats ---------------------------------------------------------------------------------------------------

// The code of the nearest value, the first one of several. Codes 8 to 15 are the negatives of 0 to 7.
static uint8_t nearest_tiny_float(float x, float d) {
  static const float values[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  uint8_t best = 0;
  float least = fabsf(x);
  for (int i = 1; i < 16; i++) {
    float miss = fabsf((i < 8 ? values[i] : -values[i - 8]) * d - x);
    if (miss < least) least = miss, best = (uint8_t)i;
  }
  return best;
}

static void write_mxfp4(const float *x, const float *w, int64_t n, unsigned char *out) {
  (void)w;
  for (int64_t b = 0; b < n / 32; b++, x += 32, out += 17) {
    uint8_t codes[32];
    float most = largest(x, 32);
    int e = most > 0 ? clamp((int)floorf(log2f(most)) - 2 + 127, 0, 254) : 0;
    float d = ldexpf(1, e - 128);                  // half of 2^(e - 127): the values above are doubled
    for (int i = 0; i < 32; i++) codes[i] = nearest_tiny_float(x[i], d);
    out[0] = (unsigned char)e;
    put_nibbles(out + 1, codes);
  }
}

// The positive float of four bits of exponent and three of mantissa that is nearest to v, the larger one of two; 0x7f
// (NaN) if that is too large.
static unsigned char tiny_scale(float v) {
  int e;
  float m = frexpf(v, &e);                         // v = m 2^e, m from 1/2
  // A mantissa that rounds up to 2 is the first one of the next exponent.
  if (v > 0 && e > -6) return (unsigned char)clamp((e + 6) * 8 + (int)(m * 16 - 8 + .5f), 0, 0x7f);
  return (unsigned char)clamp((int)(v * 512 + .5f), 0, 7);       // subnormal ones
}

static float tiny_scale_value(unsigned char code) {
  return code < 8 ? (float)code / 512 : ldexpf((float)(8 + code % 8), code / 8 - 10);
}

static void write_nvfp4(const float *x, const float *w, int64_t n, unsigned char *out) {
  (void)w;
  for (int64_t b = 0; b < n / 64; b++, out += 36) for (int g = 0; g < 4; g++, x += 16) {
    out[g] = tiny_scale(largest(x, 16) / 6);
    float d = tiny_scale_value(out[g]) / 2;        // the values are doubled
    for (int i = 0; i < 8; i++)
      out[4 + 8 * g + i] = (unsigned char)(nearest_tiny_float(x[i], d) | nearest_tiny_float(x[i + 8], d) << 4);
  }
}

// ---- three values ---------------------------------------------------------------------------------------------------

static int ternary(float x, float inverse) { return cut_to(roundf(x * inverse), -1, 1) + 1; }

// `count` values, `stride` apart, as digits of a fraction in base 3, the first one highest: 256 / 243 of the number
// that five digits form.
static unsigned char trits(const float *x, int count, int stride, float inverse) {
  int q = 0;
  for (int i = 0; i < 5; i++) q = 3 * q + (i < count ? ternary(x[i * stride], inverse) : 0);
  return (unsigned char)((q * 256 + 242) / 243);
}

static void write_tq1_0(const float *x, const float *w, int64_t n, unsigned char *out) {
  (void)w;
  for (int64_t b = 0; b < n / SUPER; b++, x += SUPER, out += 54) {
    float d = largest(x, SUPER), inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++) out[i] = trits(x + i, 5, 32, inverse);
    for (int i = 0; i < 16; i++) out[32 + i] = trits(x + 160 + i, 5, 16, inverse);
    for (int i = 0; i < 4; i++) out[48 + i] = trits(x + 240 + i, 4, 4, inverse);
    put_half(out + 52, d);
  }
}

static void write_tq2_0(const float *x, const float *w, int64_t n, unsigned char *out) {
  (void)w;
  for (int64_t b = 0; b < n / SUPER; b++, x += SUPER, out += 66) {
    float d = largest(x, SUPER), inverse = d != 0 ? 1 / d : 0;
    memset(out, 0, 64);
    for (int i = 0; i < SUPER; i++)
      out[i / 128 * 32 + i % 32] |= (unsigned char)(ternary(x[i], inverse) << (i % 128 / 32 * 2));
    put_half(out + 64, d);
  }
}

// ---- one and two bits -----------------------------------------------------------------------------------------------

static void write_q1_0(const float *x, const float *w, int64_t n, unsigned char *out) {
  (void)w;
  for (int64_t b = 0; b < n / 128; b++, x += 128, out += 18) {
    float sum = 0;
    memset(out + 2, 0, 16);
    for (int i = 0; i < 128; i++) sum += fabsf(x[i]);
    put_half(out, sum / 128);
    for (int i = 0; i < 128; i++) out[2 + i / 8] |= (unsigned char)((x[i] >= 0) << i % 8);
  }
}

static void write_q2_0(const float *x, const float *w, int64_t n, unsigned char *out) {
  (void)w;
  for (int64_t b = 0; b < n / 64; b++, x += 64, out += 18) {
    float d = largest(x, 64), inverse = d > 0 ? 1 / d : 0;
    memset(out + 2, 0, 16);
    put_half(out, d);
    for (int i = 0; i < 64; i++)
      out[2 + i / 4] |= (unsigned char)(cut_to(roundf(x[i] * inverse) + 1, 0, 3) << i % 4 * 2);
  }
}

// ---- scales that overflow their format ----

typedef bool overflow(const unsigned char *block);
// The f16 of IQ1_M is spread over four places.
static bool too_large_iq1_m(const unsigned char *b) { return (b[55] & 0x70) == 0x70 && (b[53] & 0xc0) == 0xc0; }
static bool too_large_nvfp4(const unsigned char *b) { return memchr(b, 0x7f, 4) != NULL; }

// ---- the table ------------------------------------------------------------------------------------------------------

static const struct writer {
  quantiser *row;
  bool needs_weights;
  int halves, half[2];                             // f16 numbers in a block, and where they are
  overflow *too_large;                             // for other scales; NULL: none
} writers[] = {
  [FORMAT_F32] = {to_f32, .halves = 0},
  [FORMAT_F16] = {to_f16, .halves = 1, .half = {0}},
  [FORMAT_BF16] = {to_bf16, .halves = 0},
  [FORMAT_Q4_0] = {write_q4_0, .halves = 1, .half = {0}},
  [FORMAT_Q4_1] = {write_q4_1, .halves = 2, .half = {0, 2}},
  [FORMAT_Q5_0] = {write_q5_0, .halves = 1, .half = {0}},
  [FORMAT_Q5_1] = {write_q5_1, .halves = 2, .half = {0, 2}},
  [FORMAT_Q8_0] = {write_q8_0, .halves = 1, .half = {0}},
  [FORMAT_Q2_K] = {quantise_q2_k, .halves = 2, .half = {80, 82}},
  [FORMAT_Q3_K] = {quantise_q3_k, .halves = 1, .half = {108}},
  [FORMAT_Q4_K] = {quantise_q4_k, .halves = 2, .half = {0, 2}},
  [FORMAT_Q5_K] = {quantise_q5_k, .halves = 2, .half = {0, 2}},
  [FORMAT_Q6_K] = {quantise_q6_k, .halves = 1, .half = {208}},
  [FORMAT_MXFP4] = {write_mxfp4, .halves = 0},
  [FORMAT_NVFP4] = {write_nvfp4, .too_large = too_large_nvfp4},
  [FORMAT_TQ1_0] = {write_tq1_0, .halves = 1, .half = {52}},
  [FORMAT_TQ2_0] = {write_tq2_0, .halves = 1, .half = {64}},
  [FORMAT_Q1_0] = {write_q1_0, .halves = 1, .half = {0}},
  [FORMAT_Q2_0] = {write_q2_0, .halves = 1, .half = {0}},
  [FORMAT_IQ2_XXS] = {quantise_iq2_xxs, true, .halves = 1, .half = {0}},
  [FORMAT_IQ2_XS] = {quantise_iq2_xs, true, .halves = 1, .half = {0}},
  [FORMAT_IQ2_S] = {quantise_iq2_s, true, .halves = 1, .half = {0}},
  [FORMAT_IQ3_XXS] = {quantise_iq3_xxs, true, .halves = 1, .half = {0}},
  [FORMAT_IQ3_S] = {quantise_iq3_s, .halves = 1, .half = {0}},
  [FORMAT_IQ1_S] = {quantise_iq1_s, true, .halves = 1, .half = {0}},
  [FORMAT_IQ1_M] = {quantise_iq1_m, true, .too_large = too_large_iq1_m},
  [FORMAT_IQ4_NL] = {quantise_iq4_nl, .halves = 1, .half = {0}},
  [FORMAT_IQ4_XS] = {quantise_iq4_xs, .halves = 1, .half = {0}},
};

bool quantise_can(const struct format *f) { return f->id < COUNT(writers) && writers[f->id].row; }
bool quantise_needs_weights(const struct format *f) { return f->id < COUNT(writers) && writers[f->id].needs_weights; }

bool quantise_row(const struct format *f, const float *x, const float *weights, int64_t n, unsigned char *out) {
  const struct writer *w = &writers[f->id];
  die_if(!quantise_can(f) || n % f->block, "%s cannot be written, or not a row of %lld", f->name, (long long)n);
  w->row(x, weights, n, out);
  for (int64_t b = 0; b < n / f->block; b++, out += f->bytes) {
    for (int i = 0; i < w->halves; i++) if ((out[w->half[i] + 1] & 0x7c) == 0x7c) return false;
    if (w->too_large && w->too_large(out)) return false;
  }
  return true;
}
