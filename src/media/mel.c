// Makes spectrograms: the tables, the graph, and its execution. See mel.h.
#include "media/mel.h"
#include "base/attempt.h"
#include "compile/compile.h"
#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;
enum { BLOCK = MEL_HOP / 2, MOST_MELS = 512, MOST_FRAMES = 1 << 20 };

// Samples of a window, samples before its time, and the length of its zero-padded Fourier transform.
static const struct form { int window, before, transform; } forms[] = {
  [MEL_WHISPER] = {400, 200, 400},
  [MEL_GEMMA] = {320, 160, 512},
};
static int64_t bins_of(enum mel_kind kind) { return forms[kind].transform / 2 + 1; }
static int64_t window_blocks(enum mel_kind kind) { return forms[kind].window / BLOCK; }
static int64_t window_size(enum mel_kind kind) { return 2 * bins_of(kind) * forms[kind].window; }

enum { PADDED, WINDOW, BANDS, OUT, BUFFERS };

struct mel_plan {
  device *d;
  enum mel_kind kind;
  int64_t n_mels, n_frames;
  float *at[BUFFERS];
  graph *g;
  schedule s;
  plan *p;
};

// ---------------------------------------------------------------------------------------------------------- the tables

// Rows of cosines, then of sines, each times the Hann window.
static void fill_window(enum mel_kind kind, float *out) {
  int n = forms[kind].window, all = forms[kind].transform;
  for (int part = 0; part < 2; part++)
    for (int k = 0; k < bins_of(kind); k++)
      for (int i = 0; i < n; i++) {
        double hann = 0.5 - 0.5 * cos(2 * PI * i / n), at = 2 * PI * (k * i % all) / all;
        *out++ = (float)(hann * (part ? sin(at) : cos(at)));
      }
}

// Slaney's mel scale: linear up to 1 kHz, then a factor of 6.4 in 27 steps.
static double mel_of(double hertz) { return hertz < 1000 ? 3 * hertz / 200 : 15 + log(hertz / 1000) * (27 / log(6.4)); }
static double hertz_of(double mel) { return mel < 15 ? 200 * mel / 3 : 1000 * exp(log(6.4) / 27 * (mel - 15)); }

// HTK's mel scale, for Gemma's bands.
static double htk_mel(double hertz) { return 2595 * log10(1 + hertz / 700); }
static double htk_hertz(double mel) { return 700 * (pow(10, mel / 2595) - 1); }

// Triangles between neighbouring points of the scale: of equal area (Whisper), or of equal height.
static void fill_bands(enum mel_kind kind, int64_t n_mels, float *out) {
  bool gemma = kind == MEL_GEMMA;
  double (*hertz)(double) = gemma ? htk_hertz : hertz_of;
  double top = (gemma ? htk_mel : mel_of)(MEL_RATE / 2.0), step = top / (double)(n_mels + 1);
  for (int64_t m = 0; m < n_mels; m++) {
    double low = hertz(step * (double)m), mid = hertz(step * (double)(m + 1)),
           high = hertz(m + 1 == n_mels ? top : step * (double)(m + 2));
    for (int k = 0; k < bins_of(kind); k++) {
      double f = (double)k * MEL_RATE / 2 / (double)(bins_of(kind) - 1),
             at = fmax(0, fmin((f - low) / (mid - low), (high - f) / (high - mid)));
      *out++ = (float)(gemma ? at : at * 2 / (high - low));
    }
  }
}

static int64_t padded_size(enum mel_kind kind, int64_t n_frames) {
  return (2 * n_frames + window_blocks(kind) - 1) * BLOCK;
}

// n samples, then zeros up to `all`. Whisper: both ends are extended by half a window of their reflection, then zeros.
static void fill_padded(const mel_plan *m, const float *samples, int64_t n, int64_t all) {
  int64_t half = forms[m->kind].before;
  float *out = m->at[PADDED];
  for (int64_t i = 0; i < padded_size(m->kind, m->n_frames); i++) {
    if (m->kind == MEL_GEMMA) {
      out[i] = i >= half && i - half < n ? samples[i - half] : 0;
      continue;
    }
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

// {n_frames, bins}: the sum of the squares of the real and imaginary parts of the windows' transforms.
static tensor *powers(const mel_plan *m, graph *g) {
  int64_t bins = bins_of(m->kind), n_frames = m->n_frames, size = padded_size(m->kind, n_frames);
  tensor *rows = t_reshape_i(g, t_buffer(g, PADDED, DT_F32, size), 2, (int64_t[]){size / BLOCK, BLOCK}), *both = NULL,
         *w = t_reshape_i(g, t_weight(g, WINDOW, DT_F32, window_size(m->kind)), 2,
                          (int64_t[]){2 * bins, forms[m->kind].window});
  for (int64_t b = 0; b < window_blocks(m->kind); b++) {
    tensor *part = t_matmul(g, nth_blocks(g, rows, b, n_frames), t_slice_i(g, w, 1, b * BLOCK, BLOCK));
    both = both ? t_add(g, both, part) : part;
  }
  // both halves are read below, and the power by all bands
  both = t_contiguous(g, both);
  tensor *re = t_slice_i(g, both, 1, 0, bins), *im = t_slice_i(g, both, 1, bins, bins);
  return t_add(g, t_mul(g, re, re), t_mul(g, im, im));
}

static tensor *mel_graph(const mel_plan *m, graph *g) {
  int64_t n_mels = m->n_mels, n_frames = m->n_frames, bins = bins_of(m->kind);
  bool gemma = m->kind == MEL_GEMMA;
  uop *frames = uop_var(g, "frames", 1, n_frames);
  tensor *power = powers(m, g);
  power = t_contiguous(g, gemma ? t_op1(g, OP_SQRT, power) : power);
  tensor *bands = t_reshape_i(g, t_weight(g, BANDS, DT_F32, n_mels * bins), 2, (int64_t[]){n_mels, bins});
  tensor *mel = t_matmul(g, power, bands);
  if (gemma) return t_swap(g, t_scale(g, t_op1(g, OP_LOG2, t_add(g, mel, t_float(g, 1e-3))), log(2)), 0, 1);
  tensor *log10 = t_scale(g, t_op1(g, OP_LOG2, floor_at(g, mel, t_float(g, 1e-10))), log(2) / log(10));
  log10 = t_contiguous(g, log10);                                       // needed as a whole for its maximum
  tensor *own = t_reduce(g, log10, OP_MAX, 1);
  tensor *at = t_reshape_i(g, t_iota(g, uop_idx(g, n_frames)), 2, (int64_t[]){n_frames, 1});
  own = t_where(g, t_op2(g, OP_CMPLT, at, frames), own, t_float(g, -INFINITY));
  tensor *most = t_reduce(g, own, OP_MAX, 0);
  tensor *above = floor_at(g, log10, t_sub(g, most, t_float(g, 8)));
  return t_swap(g, t_scale(g, t_add(g, above, t_float(g, 4)), 0.25), 0, 1);
}

static void *mel_buffer(void *ctx, int64_t id) { return ((mel_plan *)ctx)->at[id]; }

typedef struct making { const mel_plan *m; graph *g; schedule s; } making;

static void make_mel(void *ctx) {
  making *w = ctx;
  const mel_plan *m = w->m;
  graph *g = w->g = graph_new(NULL);
  tensor *made = mel_graph(m, g);
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

int mel_open(device *d, enum mel_kind kind, int64_t n_mels, int64_t n_frames, mel_plan **out, error *err) {
  *out = NULL;
  if (n_mels < 1 || n_mels > MOST_MELS || n_frames < 1 || n_frames > MOST_FRAMES)
    return error_set(err, "a spectrogram of %lld bands and %lld frames cannot be made", (long long)n_mels,
                     (long long)n_frames);
  const int64_t sizes[BUFFERS] = {padded_size(kind, n_frames), window_size(kind), n_mels * bins_of(kind),
                                  n_mels * n_frames};
  mel_plan *m = xcalloc(1, sizeof *m);
  *m = (mel_plan){.d = d, .kind = kind, .n_mels = n_mels, .n_frames = n_frames};
  for (int i = 0; i < BUFFERS; i++) m->at[i] = xcalloc((size_t)sizes[i], sizeof(float));
  fill_window(kind, m->at[WINDOW]);
  fill_bands(kind, n_mels, m->at[BANDS]);
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

// Samples, the transform twice (real and imaginary parts, and the summed values), powers, logarithms, the result.
size_t mel_frame_bytes(int64_t n_mels) {
  return sizeof(float) * (size_t)(MEL_HOP + 5 * bins_of(MEL_GEMMA) + 3 * n_mels);
}

int mel_run(mel_plan *m, const float *samples, int64_t n, int64_t all, float **out, error *err) {
  const size_t size = (size_t)(m->n_mels * m->n_frames) * sizeof **out;
  *out = NULL;
  if (n < 0 || n > all || all > m->n_frames * MEL_HOP)
    return error_set(err, "a spectrogram of %lld frames has no room for %lld samples", (long long)m->n_frames,
                     (long long)n);
  if (all < MEL_HOP) return error_set(err, "a sound of %lld samples is too short for a spectrogram", (long long)all);
  fill_padded(m, samples, n, all);
  plan_run(m->p, &(plan_var){"frames", all / MEL_HOP}, m->kind == MEL_WHISPER);
  if (device_check(m->d, err)) return -1;
  *out = memcpy(xmalloc(size), m->at[OUT], size);
  return 0;
}
