// decode: the decoders, which run in the process that calls them. Only the child of media.c and the fuzzer call these;
// other code uses media.h. Errors have no file name in front.
#ifndef WEFT_MEDIA_DECODE_H
#define WEFT_MEDIA_DECODE_H
#include "media/media.h"

// An image before transparency and orientation: width x height x channels bytes; 3: RGB, 4: RGB and alpha.
typedef struct raw_picture {
  int64_t width, height;
  int channels;
  int orientation;           // EXIF's, 1 to 8; 0: unknown
  uint8_t *at;
} raw_picture;

int decode_picture(const uint8_t *data, size_t n, const media_limits *limits, media_image *out, error *err);
int decode_sound(const uint8_t *data, size_t n, const media_limits *limits, media_sound *out, error *err);

// Loads the libraries for these bytes, before the confinement, after which no file can be opened. enum media_failure.
int decode_load(const uint8_t *data, size_t n, error *err);

// ---- a format each --------------------------------------------------------------------------------------------------
typedef struct decoder {
  const char *format;
  int (*load)(error *err);                       // repeated calls do nothing
  // NULL: a sound format. out->at is malloc'ed, also on failure: the caller frees it.
  int (*decode)(const uint8_t *data, size_t n, const media_limits *limits, raw_picture *out, error *err);
} decoder;
extern const decoder decode_jpeg, decode_png, decode_webp, decode_sndfile;

// Called before this many more bytes are allocated; false: not allowed. NULL: no limit.
extern bool (*decode_ask)(int64_t bytes);
// 0, or -1 and err: the numbers and the limit. Sets the size of *out and allocates its memory. beside: bytes per pixel
// that the library allocates itself.
typedef struct picture_size { int64_t width, height; int channels, beside; } picture_size;
int picture_take(raw_picture *out, const picture_size *s, const media_limits *limits, error *err);
int exif_orientation(const uint8_t *tiff, size_t n);     // 1 to 8; 0: none
uint32_t read_be32(const uint8_t *p);
uint32_t read_le32(const uint8_t *p);

// ---- libraries that are opened at run time --------------------------------------------------------------------------
typedef struct library_symbol { const char *name; void **at; } library_symbol;
typedef struct library { const char *soname, *package; void *handle; } library;
// 0, or MEDIA_UNABLE and err, which names the Debian package.
int library_open(library *l, const library_symbol *symbols, size_t n, error *err);
#endif
