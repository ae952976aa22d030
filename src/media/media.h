// media: pictures and sounds, from the bytes of a file to what an encoder takes.
//
// Decoding: PNG, JPEG and WebP become RGB bytes, WAV, FLAC, MP3 and OGG become samples. The format is told by the
// content, never by a name. The libraries that decode are loaded at run time, in a child process that can do nothing
// else: it has the bytes, gives back a size and the samples, and ends. This process never runs a decoder's code.
// What comes back is checked against the limits here as well.
// Then preprocess.h makes an encoder's pixels of a picture, and mel.h a spectrogram of a sound.
#ifndef WEFT_MEDIA_H
#define WEFT_MEDIA_H
#include "base/base.h"

// Rows from the top, three bytes a pixel, turned as EXIF says, transparency laid on white; width, height > 0.
typedef struct media_image { int64_t width, height; uint8_t *rgb; } media_image;
// One channel (the mean of all), -1 to 1 as a rule; rate: samples a second; n > 0.
typedef struct media_sound { int64_t rate, n; float *samples; } media_sound;

// Why something cannot be had: the file is broken or goes beyond a limit; this program cannot, whatever the file; it
// cannot at the moment (no process, no memory).
enum media_failure { MEDIA_BAD = -1, MEDIA_UNABLE = -2, MEDIA_LATER = -3 };

enum media_kind { MEDIA_UNKNOWN, MEDIA_IMAGE, MEDIA_SOUND };

// What a file may ask for. Fields that are 0 are those of media_default_limits.
typedef struct media_limits {
  int64_t file_bytes;        // of the file
  int64_t pixels;            // width x height, of any one picture
  int64_t side;              // width, and height
  int64_t sound_s;           // seconds of sound
  int64_t cpu_s;             // seconds of a processor for decoding
} media_limits;
extern const media_limits media_default_limits;

// By the first bytes of a file. *format, if not NULL: a word for messages, such as "PNG" or "GIF", or NULL; a format
// that is known and not decoded is MEDIA_UNKNOWN.
enum media_kind media_kind_of(const void *data, size_t n, const char **format);

// name: of the file or of the request's field, for messages. limits may be NULL. 0: *out is the caller's, until
// media_image_free and media_sound_free; enum media_failure and err: "NAME: what is wrong", with the numbers and
// limits, or with the library that is missing. What the child takes of memory and of a processor is charged to the
// account of this thread (base/account.h): memory until this returns. Any thread; several at once have a child each.
int media_decode_image(const void *data, size_t n, const char *name, const media_limits *limits, media_image *out,
                       error *err);
int media_decode_sound(const void *data, size_t n, const char *name, const media_limits *limits, media_sound *out,
                       error *err);
// Reads a whole file, of at most limits->file_bytes. *data is malloc'ed.
int media_read_file(const char *path, const media_limits *limits, uint8_t **data, size_t *n, error *err);

void media_image_free(media_image *image);       // what they hold; zeroes them
void media_sound_free(media_sound *sound);
#endif
