// mel: the log-mel spectrogram of a sound at 16 kHz, as transformers' feature extractors make it. Whisper's: windows of
// 400 samples every 160, Hann, power, Slaney's mel bands, log10, at least the maximum less 8, (x + 4) / 4. Gemma's:
// windows of 320 samples every 160, Hann, a transform of 512, magnitude, HTK's mel bands, ln(x + 0.001). It is a tensor
// graph like a model's: the Fourier transform is a product of matrices, in F32.
#ifndef WEFT_MEL_H
#define WEFT_MEL_H
#include "device/device.h"
#include "media/media.h"

enum { MEL_RATE = 16000, MEL_HOP = 160 };
enum mel_kind { MEL_WHISPER, MEL_GEMMA };

// The samples at 16 kHz; at that rate a copy. As scipy.signal.resample_poly: a Kaiser-windowed sinc. *out is the
// caller's.
int sound_at_mel_rate(const media_sound *sound, media_sound *out, error *err);

// What makes spectrograms of n_mels bands and n_frames frames on d, which stays open: its kernels are made once. 0, or
// -1 and err.
typedef struct mel_plan mel_plan;
int mel_open(device *d, enum mel_kind kind, int64_t n_mels, int64_t n_frames, mel_plan **out, error *err);
void mel_close(mel_plan *m);                          // NULL is fine
int64_t mel_frames(const mel_plan *m);                // n_frames
size_t mel_frame_bytes(int64_t n_mels);               // of memory that a plan has for each frame, at most, and a result
// The spectrogram of n samples at 16 kHz, filled with zeros up to `all`, n_frames * MEL_HOP at most: n_mels * n_frames
// floats, malloc'ed, [n_mels][n_frames], the first all / MEL_HOP of which mean something. 0, or -1 and err. One thread
// at a time.
int mel_run(mel_plan *m, const float *samples, int64_t n, int64_t all, float **out, error *err);
#endif
