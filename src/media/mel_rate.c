// Resamples like scipy.signal.resample_poly: inserts zeros between the samples, applies a low-pass filter (a sinc with
// a Kaiser window, ten zero crossings on each side), and keeps every k-th value.
#include "media/mel.h"
#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846, KAISER = 5;
enum { CROSSINGS = 10, MOST_RATIO = 1 << 16 };      // taps are twice as many times as the ratio

// The modified Bessel function of the first kind, of order 0.
static double bessel_i0(double x) {
  double sum = 1, term = 1;
  for (int k = 1; term > sum * 1e-17; k++) {
    term *= x / 2 / k * (x / 2 / k);
    sum += term;
  }
  return sum;
}

// 2 * half + 1 taps with the sum `up`.
static float *low_pass(int64_t half, int64_t rate, int64_t up) {
  double *exact = xmalloc((size_t)(2 * half + 1) * sizeof *exact), sum = 0;
  float *taps = xmalloc((size_t)(2 * half + 1) * sizeof *taps);
  for (int64_t i = 0; i <= 2 * half; i++) {
    double x = (double)(i - half), part = x / (double)half, at = PI * x / (double)rate;
    exact[i] = (x == 0 ? 1 : sin(at) / at) * bessel_i0(KAISER * sqrt(fmax(0, 1 - part * part)));
    sum += exact[i];
  }
  for (int64_t i = 0; i <= 2 * half; i++) taps[i] = (float)(exact[i] / sum * (double)up);
  free(exact);
  return taps;
}

int sound_at_mel_rate(const media_sound *sound, media_sound *out, error *err) {
  *out = (media_sound){0};
  if (sound->rate < 1 || sound->rate > 1 << 20 || sound->n < 1 || sound->n > (int64_t)1 << 40)
    return error_set(err, "a sound of %lld samples a second cannot be brought to %d", (long long)sound->rate, MEL_RATE);
  int64_t same = gcd_i64(sound->rate, MEL_RATE), up = MEL_RATE / same, down = sound->rate / same;
  if (max_i64(up, down) > MOST_RATIO)
    return error_set(err,
                     "a sound of %lld samples a second cannot be brought to %d: the rates have too little in common",
                     (long long)sound->rate, MEL_RATE);
  int64_t rate = max_i64(up, down), half = CROSSINGS * rate, n = (sound->n * up + down - 1) / down;
  *out = (media_sound){MEL_RATE, n, xmalloc((size_t)n * sizeof(float))};
  if (up == down) {
    memcpy(out->samples, sound->samples, (size_t)n * sizeof(float));
    return 0;
  }
  float *taps = low_pass(half, rate, up);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = i * down + half, from = max_i64(0, (at - 2 * half + up - 1) / up), to = min_i64(sound->n - 1, at / up);
    double sum = 0;
    for (int64_t k = from; k <= to; k++) sum += (double)sound->samples[k] * (double)taps[at - k * up];
    out->samples[i] = (float)sum;
  }
  free(taps);
  return 0;
}
