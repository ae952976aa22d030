// mel: the log-mel spectrogram of a sound at 16 kHz, as in transformers' feature extractors. Whisper: windows of 400
// samples every 160, Hann, power, Slaney's mel bands, log10, at least the maximum less 8, (x + 4) / 4. Gemma: windows
// of 320 samples every 160, Hann, a transform of 512, magnitude, HTK's mel bands, ln(x + 0.001). It is a tensor graph
// like a model's: the Fourier transform is a matrix product in F32.
#ifndef WEFT_MEL_H
#define WEFT_MEL_H
#include "device/device.h"
#include "media/media.h"

enum { MEL_RATE = 16000, MEL_HOP = 160 };
enum mel_kind { MEL_WHISPER, MEL_GEMMA };

// Resamples to 16 kHz, like scipy.signal.resample_poly with a Kaiser-windowed sinc; a copy if the rate is equal. *out
// belongs to the caller.
int sound_at_mel_rate(const media_sound *sound, media_sound *out, error *err);

// A plan makes spectrograms of n_mels bands and n_frames frames on d, which stays open: its kernels are made once. 0,
// or -1 and err.
typedef struct mel_plan mel_plan;
int mel_open(device *d, enum mel_kind kind, int64_t n_mels, int64_t n_frames, mel_plan **out, error *err);
void mel_close(mel_plan *m);                          // NULL is fine
int64_t mel_frames(const mel_plan *m);                // n_frames
size_t mel_frame_bytes(int64_t n_mels);               // the most memory of a plan per frame, including the result
// The spectrogram of n samples at 16 kHz, padded with zeros to `all`, at most n_frames * MEL_HOP: n_mels * n_frames
// floats, malloc'ed, [n_mels][n_frames], of which the first all / MEL_HOP frames are valid. 0, or -1 and err. One
// thread at a time.
int mel_run(mel_plan *m, const float *samples, int64_t n, int64_t all, float **out, error *err);
#endif
