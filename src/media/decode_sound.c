// Sounds by libsndfile: WAV, FLAC, MP3, OGG and AIFF. All channels are averaged into one.
#include "media/decode.h"
#include <math.h>
#include <string.h>
#include <sndfile.h>

#define FUNCTIONS(F) F(sf_open_virtual) F(sf_readf_float) F(sf_error) F(sf_strerror) F(sf_close)
static struct {
#define F(name) __typeof__(name) *name;
  FUNCTIONS(F)
#undef F
} S;
static library sndfile = {"libsndfile.so.1", "libsndfile1", NULL};

static int load_sndfile(error *err) {
  static const library_symbol symbols[] = {
#define F(name) {#name, (void **)&S.name},
    FUNCTIONS(F)
#undef F
  };
  return library_open(&sndfile, symbols, COUNT(symbols), err);
}

enum { FRAMES = 4096, MOST_CHANNELS = 32, LEAST_RATE = 1000, MOST_RATE = 192000 };

// The file as libsndfile sees it.
typedef struct sound_bytes { const uint8_t *at; sf_count_t n, pos; } sound_bytes;

static sf_count_t bytes_length(void *ctx) { return ((sound_bytes *)ctx)->n; }
static sf_count_t bytes_tell(void *ctx) { return ((sound_bytes *)ctx)->pos; }
static sf_count_t no_write(const void *p, sf_count_t n, void *ctx) { (void)p; (void)n; (void)ctx; return 0; }
static sf_count_t bytes_seek(sf_count_t offset, int whence, void *ctx) {
  sound_bytes *b = ctx;
  sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? b->pos : b->n, to;
  if (__builtin_add_overflow(from, offset, &to) || to < 0) return -1;
  return b->pos = to < b->n ? to : b->n;
}
static sf_count_t bytes_read(void *to, sf_count_t n, void *ctx) {
  sound_bytes *b = ctx;
  if (n > b->n - b->pos) n = b->n - b->pos;
  if (n <= 0) return 0;
  memcpy(to, b->at + b->pos, (size_t)n);
  b->pos += n;
  return n;
}

static int check_sound(const SF_INFO *info, error *err) {
  if (info->channels < 1 || info->channels > MOST_CHANNELS)
    return error_set(err, "the sound has %d channels; 1 to %d are read", info->channels, MOST_CHANNELS);
  if (info->samplerate < LEAST_RATE || info->samplerate > MOST_RATE)
    return error_set(err, "the sound has %d samples a second; %d to %d are read", info->samplerate, LEAST_RATE,
                     MOST_RATE);
  return 0;
}

static int sound_too_long(const SF_INFO *info, const media_limits *limits, error *err) {
  return error_set(err, "the sound is longer than %lld s (%d samples a second)", (long long)limits->sound_s,
                   info->samplerate);
}

// Appends the mean of n frames' channels. -1: one of them is not a number.
static int add_frames(const float *frames, int64_t n, int channels, float *to) {
  for (int64_t i = 0; i < n; i++) {
    float sum = 0;
    for (int c = 0; c < channels; c++) sum += frames[i * channels + c];
    to[i] = sum / (float)channels;
    if (!isfinite(to[i])) return -1;
  }
  return 0;
}

// Grows the buffer from `from` to `to` samples.
static int grow_samples(media_sound *out, int64_t from, int64_t to, error *err) {
  const int64_t each = sizeof *out->samples;
  if (decode_ask && !decode_ask((to - from) * each))
    return error_set(err, "there is no memory for %lld samples", (long long)to);
  out->samples = xrealloc(out->samples, (size_t)(to * each));
  return 0;
}

static int read_frames(SNDFILE *f, const SF_INFO *info, const media_limits *limits, media_sound *out, error *err) {
  int64_t most = limits->sound_s * info->samplerate, cap = 0, n;
  float *frames = xcalloc((size_t)(FRAMES * info->channels), sizeof *frames);
  int failed = 0;
  while (!failed && (n = S.sf_readf_float(f, frames, FRAMES)) > 0) {
    if (n > FRAMES || n > most - out->n) failed = sound_too_long(info, limits, err);
    else if (out->n + n > cap) {
      // the number in the file, if it is possible
      int64_t next = out->n || info->frames < n || info->frames > most ? out->n * 2 + FRAMES : info->frames;
      failed = grow_samples(out, cap, next, err);
      cap = next;
    }
    if (!failed) {
      if (add_frames(frames, n, info->channels, out->samples + out->n))
        failed = error_set(err, "the sound has a sample that is not a number, after %lld", (long long)out->n);
      out->n += n;
    }
  }
  free(frames);
  if (!failed && S.sf_error(f)) failed = error_set(err, "the sound cannot be decoded: %s", S.sf_strerror(f));
  if (!failed && !out->n) failed = error_set(err, "the sound has no samples");
  return failed;
}

int decode_sound(const uint8_t *data, size_t n, const media_limits *limits, media_sound *out, error *err) {
  SF_VIRTUAL_IO io = {bytes_length, bytes_seek, bytes_read, no_write, bytes_tell};
  sound_bytes bytes = {data, (sf_count_t)n, 0};
  SF_INFO info = {0};
  const char *format;
  *out = (media_sound){0};
  enum media_kind kind = media_kind_of(data, n, &format);
  if (kind == MEDIA_IMAGE) return error_set(err, "the content is a picture (%s), and a sound is wanted", format);
  if (kind != MEDIA_SOUND) return decode_load(data, n, err);
  if (load_sndfile(err)) return -1;
  SNDFILE *f = S.sf_open_virtual(&io, SFM_READ, &info, &bytes);
  if (!f) return error_set(err, "the %s cannot be decoded: %s", format, S.sf_strerror(NULL));
  out->rate = info.samplerate;
  int failed = check_sound(&info, err) || read_frames(f, &info, limits, out, err) ? -1 : 0;
  S.sf_close(f);
  if (failed) media_sound_free(out);
  return failed;
}

const decoder decode_sndfile = {"sound", load_sndfile, NULL};
