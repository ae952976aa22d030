// WebP by libwebp's animation decoder, like Pillow: of an animated file the first frame on its canvas.
#include "media/decode.h"
#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>

#define FUNCTIONS(F) F(WebPAnimDecoderOptionsInitInternal) F(WebPAnimDecoderNewInternal) F(WebPAnimDecoderGetNext) \
  F(WebPAnimDecoderDelete)
static struct {
  __typeof__(WebPGetFeaturesInternal) *WebPGetFeaturesInternal;
#define F(name) __typeof__(name) *name;
  FUNCTIONS(F)
#undef F
} W;
static library webp = {"libwebp.so.7", "libwebp7", NULL}, demux = {"libwebpdemux.so.2", "libwebpdemux2", NULL};

static int load_webp(error *err) {
  static const library_symbol features = {"WebPGetFeaturesInternal", (void **)&W.WebPGetFeaturesInternal};
  static const library_symbol symbols[] = {
#define F(name) {#name, (void **)&W.name},
    FUNCTIONS(F)
#undef F
  };
  return library_open(&webp, &features, 1, err) || library_open(&demux, symbols, COUNT(symbols), err) ? -1 : 0;
}

enum { RIFF_HEADER = 12, CHUNK_HEADER = 8 };

static int webp_orientation(const uint8_t *data, size_t n) {
  for (size_t at = RIFF_HEADER; at + CHUNK_HEADER <= n;) {
    size_t size = read_le32(data + at + 4);
    if (size > n - at - CHUNK_HEADER) return 0;
    if (!memcmp(data + at, "EXIF", 4)) return exif_orientation(data + at + CHUNK_HEADER, size);
    at += CHUNK_HEADER + size + size % 2;
  }
  return 0;
}

// Bytes per pixel that the library allocates: two canvases of four bytes, and a frame of YUV.
enum { CANVASES = 10 };

static int decode_webp_picture(const uint8_t *data, size_t n, const media_limits *limits, raw_picture *out,
                               error *err) {
  WebPBitstreamFeatures f;
  WebPAnimDecoderOptions options;
  const WebPData bytes = {data, n};
  uint8_t *frame = NULL;
  int when = 0;
  VP8StatusCode code = W.WebPGetFeaturesInternal(data, n, &f, WEBP_DECODER_ABI_VERSION);
  if (code == VP8_STATUS_NOT_ENOUGH_DATA) return error_set(err, "the WebP ends early");
  if (code != VP8_STATUS_OK) return error_set(err, "the WebP cannot be decoded: its header is broken");
  out->orientation = webp_orientation(data, n);
  if (picture_take(out, &(picture_size){f.width, f.height, f.has_alpha ? 4 : 3, CANVASES}, limits, err)) return -1;
  if (!W.WebPAnimDecoderOptionsInitInternal(&options, WEBP_DEMUX_ABI_VERSION))
    return error_set(err, "the library %s is of another version", demux.soname);
  options.color_mode = MODE_RGBA;
  options.use_threads = 0;
  WebPAnimDecoder *d = W.WebPAnimDecoderNewInternal(&bytes, &options, WEBP_DEMUX_ABI_VERSION);
  bool good = d && W.WebPAnimDecoderGetNext(d, &frame, &when) && frame;
  for (int64_t i = 0; good && i < out->width * out->height; i++)
    memcpy(out->at + i * out->channels, frame + i * 4, (size_t)out->channels);
  if (d) W.WebPAnimDecoderDelete(d);
  return good ? 0 : error_set(err, "the WebP cannot be decoded: it is broken, or ends early");
}

const decoder decode_webp = {"WebP", load_webp, decode_webp_picture};
