// Spectrograms: the tables, the graph, and how it is run. See mel.h.
#include "media/mel.h"
#include "base/attempt.h"
#include "compile/compile.h"
#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;
enum { BLOCK = MEL_HOP / 2, BLOCKS = MEL_WINDOW / BLOCK, MOST_MELS = 512, MOST_FRAMES = 1 << 20 };

// ---------------------------------------------------------------------------------------------------------- the tables

// Rows of cosines, then of sines, each under the Hann window.
void mel_window(float *out) {
  for (int part = 0; part < 2; part++)
    for (int k = 0; k < MEL_BINS; k++)
      for (int i = 0; i < MEL_WINDOW; i++) {
        double hann = 0.5 - 0.5 * cos(2 * PI * i / MEL_WINDOW), at = 2 * PI * (k * i % MEL_WINDOW) / MEL_WINDOW;
        *out++ = (float)(hann * (part ? sin(at) : cos(at)));
      }
}

// Slaney's scale: linear up to 1 kHz, then a factor of 6.4 in 27 steps.
static double mel_of(double hertz) { return hertz < 1000 ? 3 * hertz / 200 : 15 + log(hertz / 1000) * (27 / log(6.4)); }
static double hertz_of(double mel) { return mel < 15 ? 200 * mel / 3 : 1000 * exp(log(6.4) / 27 * (mel - 15)); }

// Triangles between neighbouring points of the scale, of equal area.
void mel_bands(int64_t n_mels, float *out) {
  double top = mel_of(MEL_RATE / 2.0), step = top / (double)(n_mels + 1);
  for (int64_t m = 0; m < n_mels; m++) {
    double low = hertz_of(step * (double)m), mid = hertz_of(step * (double)(m + 1)),
           high = hertz_of(m + 1 == n_mels ? top : step * (double)(m + 2));
    for (int k = 0; k < MEL_BINS; k++) {
      double f = (double)k * MEL_RATE / 2 / (MEL_BINS - 1);
      *out++ = (float)(fmax(0, fmin((f - low) / (mid - low), (high - f) / (high - mid))) * 2 / (high - low));
    }
  }
}

int64_t mel_padded(int64_t n_frames) { return (2 * n_frames + BLOCKS - 1) * BLOCK; }

void mel_pad(const float *samples, int64_t n, int64_t all, int64_t n_frames, float *out) {
  int64_t half = MEL_WINDOW / 2;
  for (int64_t i = 0; i < mel_padded(n_frames); i++) {
    int64_t at = i - half;
    if (at < 0) at = -at;
    bool behind = at >= all + half;
    if (at >= all) at = max_i64(2 * (all - 1) - at, 0);
    out[i] = at < n && !behind ? samples[at] : 0;
  }
}

// ----------------------------------------------------------------------------------------------------------- the graph

// A window is five blocks of half a hop: block b of all windows is every other row from row b on.
static tensor *nth_blocks(graph *g, tensor *rows, int64_t b, int64_t n_frames) {
  tensor *pairs = t_reshape_i(g, t_slice_i(g, rows, 0, b, 2 * n_frames), 3, (int64_t[]){n_frames, 2, BLOCK});
  return t_reshape_i(g, t_slice_i(g, pairs, 1, 0, 1), 2, (int64_t[]){n_frames, BLOCK});
}

static tensor *floor_at(graph *g, tensor *x, tensor *low) { return t_op2(g, OP_MAX, x, low); }

tensor *mel_graph(graph *g, tensor *padded, tensor *window, tensor *bands, int64_t n_mels, int64_t n_frames,
                  uop *frames) {
  tensor *rows = t_reshape_i(g, padded, 2, (int64_t[]){mel_padded(n_frames) / BLOCK, BLOCK}), *both = NULL;
  tensor *w = t_reshape_i(g, window, 2, (int64_t[]){2 * MEL_BINS, MEL_WINDOW});
  for (int64_t b = 0; b < BLOCKS; b++) {
    tensor *part = t_matmul(g, nth_blocks(g, rows, b, n_frames), t_slice_i(g, w, 1, b * BLOCK, BLOCK));
    both = both ? t_add(g, both, part) : part;
  }
  // both halves are read below, and the power by all bands
  both = t_contiguous(g, both);
  tensor *re = t_slice_i(g, both, 1, 0, MEL_BINS), *im = t_slice_i(g, both, 1, MEL_BINS, MEL_BINS);
  tensor *power = t_contiguous(g, t_add(g, t_mul(g, re, re), t_mul(g, im, im)));
  tensor *mel = t_matmul(g, power, t_reshape_i(g, bands, 2, (int64_t[]){n_mels, MEL_BINS}));
  tensor *log10 = t_scale(g, t_op1(g, OP_LOG2, floor_at(g, mel, t_float(g, 1e-10))), log(2) / log(10));
  log10 = t_contiguous(g, log10);                                       // all of it, for its maximum
  tensor *own = t_reduce(g, log10, OP_MAX, 1);
  tensor *at = t_reshape_i(g, t_iota(g, uop_idx(g, n_frames)), 2, (int64_t[]){n_frames, 1});
  own = t_where(g, t_op2(g, OP_CMPLT, at, frames), own, t_float(g, -INFINITY));
  tensor *most = t_reduce(g, own, OP_MAX, 0);
  tensor *above = floor_at(g, log10, t_sub(g, most, t_float(g, 8)));
  return t_swap(g, t_scale(g, t_add(g, above, t_float(g, 4)), 0.25), 0, 1);
}

enum { PADDED, WINDOW, BANDS, OUT, BUFFERS };

struct mel_plan {
  device *d;
  int64_t n_mels, n_frames;
  float *at[BUFFERS];
  graph *g;
  schedule s;
  plan *p;
};

static void *mel_buffer(void *ctx, int64_t id) { return ((mel_plan *)ctx)->at[id]; }

typedef struct making { const mel_plan *m; graph *g; schedule s; } making;

static void make_mel(void *ctx) {
  making *w = ctx;
  const mel_plan *m = w->m;
  graph *g = w->g = graph_new(NULL);
  tensor *made = mel_graph(g, t_buffer(g, PADDED, DT_F32, mel_padded(m->n_frames)),
                           t_weight(g, WINDOW, DT_F32, 2 * MEL_BINS * MEL_WINDOW),
                           t_weight(g, BANDS, DT_F32, m->n_mels * MEL_BINS), m->n_mels, m->n_frames,
                           uop_var(g, "frames", 1, m->n_frames));
  tensor *out = t_reshape_i(g, t_buffer(g, OUT, DT_F32, m->n_mels * m->n_frames), 2,
                            (int64_t[]){m->n_mels, m->n_frames});
  tensor *stored = t_assign(g, out, made);
  compile_graph(g, uop_new(g, OP_SINK, DT_VOID, 1, &stored, 1, (uarg){0}), &m->d->target,
                &(compile_choices){.exact = true, .in_place = true}, &w->s);
}

static int plan_mel(mel_plan *m, error *err) {
  making w = {.m = m};
  if (attempt(ATTEMPT_OWNS, make_mel, &w, err)) return -1;
  m->g = w.g;
  m->s = w.s;
  return plan_build(m->d, m->g, &m->s, &(plan_options){.buffer = mel_buffer, .ctx = m}, &m->p, err);
}

int mel_open(device *d, int64_t n_mels, int64_t n_frames, mel_plan **out, error *err) {
  *out = NULL;
  if (n_mels < 1 || n_mels > MOST_MELS || n_frames < 1 || n_frames > MOST_FRAMES)
    return error_set(err, "a spectrogram of %lld bands and %lld frames cannot be made", (long long)n_mels,
                     (long long)n_frames);
  const int64_t sizes[BUFFERS] = {mel_padded(n_frames), 2 * MEL_BINS * MEL_WINDOW, n_mels * MEL_BINS,
                                  n_mels * n_frames};
  mel_plan *m = xcalloc(1, sizeof *m);
  *m = (mel_plan){.d = d, .n_mels = n_mels, .n_frames = n_frames};
  for (int i = 0; i < BUFFERS; i++) m->at[i] = xcalloc((size_t)sizes[i], sizeof(float));
  mel_window(m->at[WINDOW]);
  mel_bands(n_mels, m->at[BANDS]);
  if (plan_mel(m, err)) {
    mel_close(m);
    return -1;
  }
  *out = m;
  return 0;
}

void mel_close(mel_plan *m) {
  if (!m) return;
  plan_free(m->p);
  graph_free(m->g);
  for (int i = 0; i < BUFFERS; i++) free(m->at[i]);
  free(m);
}

int64_t mel_frames(const mel_plan *m) { return m->n_frames; }

// Samples, the transform twice (real and imaginary parts, and what is summed), powers, logarithms, the result.
size_t mel_frame_bytes(int64_t n_mels) {
  return sizeof(float) * (size_t)(MEL_HOP + 5 * MEL_BINS + 3 * n_mels);
}

int mel_run(mel_plan *m, const float *samples, int64_t n, int64_t all, float **out, error *err) {
  const size_t size = (size_t)(m->n_mels * m->n_frames) * sizeof **out;
  *out = NULL;
  if (n < 0 || n > all || all > m->n_frames * MEL_HOP)
    return error_set(err, "a spectrogram of %lld frames has no room for %lld samples", (long long)m->n_frames,
                     (long long)n);
  if (all < MEL_HOP) return error_set(err, "a sound of %lld samples is too short for a spectrogram", (long long)all);
  mel_pad(samples, n, all, m->n_frames, m->at[PADDED]);
  plan_run(m->p, &(plan_var){"frames", all / MEL_HOP}, 1);
  if (device_check(m->d, err)) return -1;
  *out = memcpy(xmalloc(size), m->at[OUT], size);
  return 0;
}
