// Resizes bytes like Pillow: a pass along the rows and one along the columns, each rounded to bytes. Each pixel is a
// weighted sum of its neighbours in the input; the filter is wider in proportion to the reduction. Weights are
// fixed-point numbers with 22 fractional bits, so that equal input gives equal bytes on every machine.
#include "media/resample.h"
#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;
enum { FRACTION = 22, MOST = 1 << 20 };          // bits; pixels of a requested edge

// The weights for one axis: output pixel i uses input pixels from[i] .. from[i] + n[i] - 1.
typedef struct axis_weights { int32_t *from, *n, *at; int64_t cap; } axis_weights;

static double sinc(double x) { return x == 0 ? 1 : sin(x * PI) / (x * PI); }

static double filter_at(enum resample_filter filter, double x) {
  if (filter == RESAMPLE_LANCZOS) return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
  x = fabs(x);
  if (filter == RESAMPLE_BILINEAR) return x < 1 ? 1 - x : 0;
  const double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static axis_weights axis_weights_new(int64_t in, int64_t out, enum resample_filter filter) {
  static const double reach[] = {[RESAMPLE_BILINEAR] = 1, [RESAMPLE_BICUBIC] = 2, [RESAMPLE_LANCZOS] = 3};
  double scale = (double)in / (double)out, wide = scale < 1 ? 1 : scale, support = reach[filter] * wide;
  int64_t cap = (int64_t)ceil(support) * 2 + 1;
  axis_weights w = {xcalloc((size_t)out, sizeof *w.from), xcalloc((size_t)out, sizeof *w.n),
                    xcalloc((size_t)(out * cap), sizeof *w.at), cap};
  double *exact = xcalloc((size_t)cap, sizeof *exact);
  for (int64_t i = 0; i < out; i++) {
    double centre = ((double)i + 0.5) * scale, sum = 0;
    int64_t from = max_i64((int64_t)(centre - support + 0.5), 0), to = min_i64((int64_t)(centre + support + 0.5), in);
    for (int64_t x = from; x < to; x++)
      sum += exact[x - from] = filter_at(filter, ((double)x - centre + 0.5) * (1.0 / wide));
    for (int64_t x = from; x < to; x++) {
      double k = sum != 0 ? exact[x - from] / sum : exact[x - from];
      w.at[i * cap + x - from] = (int32_t)((k < 0 ? -0.5 : 0.5) + k * (1 << FRACTION));
    }
    w.from[i] = (int32_t)from;
    w.n[i] = (int32_t)(to - from);
  }
  free(exact);
  return w;
}

static void axis_weights_free(axis_weights *w) {
  free(w->from); free(w->n); free(w->at);
}

static uint8_t to_byte(int32_t sum) {
  sum >>= FRACTION;
  return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void resample_row(const uint8_t *in, uint8_t *out, int64_t width, const axis_weights *w) {
  for (int64_t x = 0; x < width; x++) {
    const int32_t *k = w->at + x * w->cap;
    const uint8_t *p = in + (int64_t)w->from[x] * 3;
    int32_t r = 1 << (FRACTION - 1), g = r, b = r;
    for (int32_t i = 0; i < w->n[x]; i++, p += 3) {
      r += p[0] * k[i];
      g += p[1] * k[i];
      b += p[2] * k[i];
    }
    out[x * 3] = to_byte(r);
    out[x * 3 + 1] = to_byte(g);
    out[x * 3 + 2] = to_byte(b);
  }
}

// Row y of the output, of n bytes; reads whole rows of the input, in the order of memory.
static void resample_columns(const uint8_t *in, uint8_t *out, int32_t *sums, int64_t n, const axis_weights *w,
                             int64_t y) {
  for (int64_t x = 0; x < n; x++) sums[x] = 1 << (FRACTION - 1);
  for (int32_t i = 0; i < w->n[y]; i++) {
    const uint8_t *p = in + (w->from[y] + i) * n;
    int32_t k = w->at[y * w->cap + i];
    for (int64_t x = 0; x < n; x++) sums[x] += p[x] * k;
  }
  for (int64_t x = 0; x < n; x++) out[x] = to_byte(sums[x]);
}

static media_image image_new(int64_t width, int64_t height) {
  return (media_image){width, height, xmalloc((size_t)(width * height * 3))};
}

static media_image along_rows(const media_image *from, int64_t width, enum resample_filter filter) {
  media_image to = image_new(width, from->height);
  axis_weights w = axis_weights_new(from->width, width, filter);
  for (int64_t y = 0; y < from->height; y++)
    resample_row(from->rgb + y * from->width * 3, to.rgb + y * width * 3, width, &w);
  axis_weights_free(&w);
  return to;
}

static media_image along_columns(const media_image *from, int64_t height, enum resample_filter filter) {
  media_image to = image_new(from->width, height);
  axis_weights w = axis_weights_new(from->height, height, filter);
  int64_t n = from->width * 3;
  int32_t *sums = xcalloc((size_t)n, sizeof *sums);
  for (int64_t y = 0; y < height; y++) resample_columns(from->rgb, to.rgb + y * n, sums, n, &w, y);
  free(sums);
  axis_weights_free(&w);
  return to;
}

// Pillow's order since version 13, which affects rounding: columns first if they shrink by more than twice the pixels
// that the rows shrink by. Earlier versions always begin with the rows.
static bool columns_first(const media_image *from, int64_t width, int64_t height) {
  return from->height - height > 2 * max_i64(from->width - width, 0);
}

int resample(const media_image *from, int64_t width, int64_t height, enum resample_filter filter, media_image *out,
             error *err) {
  *out = (media_image){0};
  if (width < 1 || height < 1 || width > MOST || height > MOST || width * height > INT32_MAX / 3 ||
      width * from->height > INT32_MAX / 3 || from->width * height > INT32_MAX / 3)
    return error_set(err, "a picture of %lld x %lld pixels cannot be resized to %lld x %lld: that is too large",
                     (long long)from->width, (long long)from->height, (long long)width, (long long)height);
  media_image half = *from;
  bool first = columns_first(from, width, height);
  for (int pass = 0; pass < 2; pass++) {
    bool columns = first == (pass == 0);
    if (columns ? height == half.height : width == half.width) continue;
    media_image next = columns ? along_columns(&half, height, filter) : along_rows(&half, width, filter);
    if (half.rgb != from->rgb) free(half.rgb);
    half = next;
  }
  if (half.rgb == from->rgb) {
    half = image_new(width, height);
    memcpy(half.rgb, from->rgb, (size_t)(width * height * 3));
  }
  *out = half;
  return 0;
}
