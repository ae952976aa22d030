// media: images and sounds, from the bytes of a file to the input of an encoder.
//
// Decoding: PNG, JPEG and WebP become RGB bytes; WAV, FLAC, MP3 and OGG become samples. The format is recognised by the
// content, never by a name. The decoding libraries are loaded at run time in a confined child process: it has the
// bytes, returns a size and the samples, and ends. This process never runs a decoder's code, and checks the result
// against the limits again. Then preprocess.h makes an encoder's pixels from an image, and mel.h makes a spectrogram
// from a sound.
#ifndef WEFT_MEDIA_H
#define WEFT_MEDIA_H
#include "base/base.h"

// Rows from the top, three bytes per pixel, rotated according to EXIF, transparency composited over white; width,
// height > 0.
typedef struct media_image { int64_t width, height; uint8_t *rgb; } media_image;
// One channel (the mean of all), usually -1 to 1; rate: samples per second; n > 0.
typedef struct media_sound { int64_t rate, n; float *samples; } media_sound;

// Reasons of a failure. BAD: the file is broken or exceeds a limit. UNABLE: this program cannot decode it at all.
// LATER: not at the moment (no process, no memory).
enum media_failure { MEDIA_BAD = -1, MEDIA_UNABLE = -2, MEDIA_LATER = -3 };

enum media_kind { MEDIA_UNKNOWN, MEDIA_IMAGE, MEDIA_SOUND };

// The limits for a file. Fields that are 0 are those of media_default_limits.
typedef struct media_limits {
  int64_t file_bytes;        // of the file
  int64_t pixels;            // width x height, per image
  int64_t side;              // width, and height
  int64_t sound_s;           // seconds of sound
  int64_t cpu_s;             // seconds of processor time for decoding
} media_limits;
extern const media_limits media_default_limits;

// Recognises a file by its first bytes. *format, if not NULL: a word for messages, such as "PNG" or "GIF", or NULL; a
// known format that is not decoded is MEDIA_UNKNOWN.
enum media_kind media_kind_of(const void *data, size_t n, const char **format);

// name: the file or the request's field, for messages. limits may be NULL. 0: *out belongs to the caller, until
// media_image_free or media_sound_free; otherwise enum media_failure and err: "NAME: what is wrong", with the numbers
// and limits or the missing library. The child's memory (until this returns) and processor time are charged to the
// account of this thread (base/account.h). Any thread; concurrent calls have a child each.
int media_decode_image(const void *data, size_t n, const char *name, const media_limits *limits, media_image *out,
                       error *err);
int media_decode_sound(const void *data, size_t n, const char *name, const media_limits *limits, media_sound *out,
                       error *err);
// Reads a whole file of at most limits->file_bytes. *data is malloc'ed.
int media_read_file(const char *path, const media_limits *limits, uint8_t **data, size_t *n, error *err);

void media_image_free(media_image *image);       // frees the contents and zeroes the struct
void media_sound_free(media_sound *sound);
#endif
