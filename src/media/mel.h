// mel: the log-mel spectrogram of a sound, as transformers' WhisperFeatureExtractor makes it: 16 kHz, windows of 400
// samples every 160, Hann, power, Slaney's mel bands, log10, at least the maximum less 8, (x + 4) / 4. It is a tensor
// graph like a model's: the Fourier transform is a product of matrices, in F32.
#ifndef WEFT_MEL_H
#define WEFT_MEL_H
#include "device/device.h"
#include "media/media.h"

enum { MEL_RATE = 16000, MEL_WINDOW = 400, MEL_HOP = 160, MEL_BINS = MEL_WINDOW / 2 + 1 };

// The samples at 16 kHz; at that rate a copy. As scipy.signal.resample_poly: a Kaiser-windowed sinc. *out is the
// caller's.
int sound_at_mel_rate(const media_sound *sound, media_sound *out, error *err);

// padded: F32 {mel_padded(n_frames)}, as mel_pad fills it; window: F32 {2 * MEL_BINS * MEL_WINDOW}, bands: F32
// {n_mels * MEL_BINS}, as mel_window and mel_bands fill them. Result: F32 {n_mels, n_frames}. The maximum is
// that of the first `frames`.
tensor *mel_graph(graph *g, tensor *padded, tensor *window, tensor *bands, int64_t n_mels, int64_t n_frames,
                  uop *frames);
int64_t mel_padded(int64_t n_frames);
// n samples, then zeros up to `all`, and on both sides half a window of their reflection; then zeros.
void mel_pad(const float *samples, int64_t n, int64_t all, int64_t n_frames, float *out);
void mel_window(float *out);
void mel_bands(int64_t n_mels, float *out);

// What makes spectrograms of n_mels bands and n_frames frames on d, which stays open: its kernels are made once. 0, or
// -1 and err.
typedef struct mel_plan mel_plan;
int mel_open(device *d, int64_t n_mels, int64_t n_frames, mel_plan **out, error *err);
void mel_close(mel_plan *m);                          // NULL is fine
int64_t mel_frames(const mel_plan *m);                // n_frames
size_t mel_frame_bytes(int64_t n_mels);               // of memory that a plan has for each frame, at most, and a result
// The spectrogram of n samples at 16 kHz, filled with zeros up to `all`, n_frames * MEL_HOP at most: n_mels * n_frames
// floats, malloc'ed, [n_mels][n_frames], the first all / MEL_HOP of which mean something. 0, or -1 and err. One thread
// at a time.
int mel_run(mel_plan *m, const float *samples, int64_t n, int64_t all, float **out, error *err);
#endif
