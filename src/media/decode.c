// Shared by all decoders: libraries, limits, EXIF orientation, transparency. See decode.h.
#include "media/decode.h"
#include <dlfcn.h>
#include <string.h>

int library_open(library *l, const library_symbol *symbols, size_t n, error *err) {
  if (l->handle) return 0;
  void *handle = dlopen(l->soname, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    error_set(err, "this format needs the library %s, which is not here (Debian's package %s)", l->soname, l->package);
    return MEDIA_UNABLE;
  }
  for (size_t i = 0; i < n; i++) {
    *symbols[i].at = dlsym(handle, symbols[i].name);
    if (*symbols[i].at) continue;
    dlclose(handle);
    error_set(err, "the library %s (Debian's package %s) has no function %s", l->soname, l->package, symbols[i].name);
    return MEDIA_UNABLE;
  }
  l->handle = handle;
  return 0;
}

uint32_t read_be32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

uint32_t read_le32(const uint8_t *p) {
  return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

bool (*decode_ask)(int64_t bytes);

int picture_take(raw_picture *out, const picture_size *s, const media_limits *limits, error *err) {
  enum { TURNED = 3 };
  const long long w = s->width, h = s->height;
  int64_t pixels, bytes;
  if (w < 1 || h < 1) return error_set(err, "the picture has %lld x %lld pixels", w, h);
  if (w > limits->side || h > limits->side)
    return error_set(err, "the picture has %lld x %lld pixels; an edge may have %lld", w, h, (long long)limits->side);
  if (!mul_i64(s->width, s->height, &pixels) || pixels > limits->pixels)
    return error_set(err, "the picture has %lld x %lld = %lld pixels; %lld are allowed", w, h, w * h,
                     (long long)limits->pixels);
  bool turns = out->orientation >= 2;
  uint8_t *at = NULL;
  if (mul_i64(pixels, s->channels + s->beside + (turns ? TURNED : 0), &bytes) && (!decode_ask || decode_ask(bytes)))
    at = malloc((size_t)pixels * (size_t)s->channels);
  if (!at) return error_set(err, "there is no memory for %lld x %lld pixels", w, h);
  *out = (raw_picture){s->width, s->height, s->channels, out->orientation, at};
  return 0;
}

// ----------------------------------------------------------------------------------------------------------- the turn

static uint32_t exif_number(const uint8_t *p, int bytes, bool big) {
  uint32_t v = 0;
  for (int i = 0; i < bytes; i++) v = v << 8 | p[big ? i : bytes - 1 - i];
  return v;
}

int exif_orientation(const uint8_t *p, size_t n) {
  enum { ORIENTATION = 0x112, SHORT = 3, ENTRY = 12 };
  if (n >= 6 && !memcmp(p, "Exif\0\0", 6)) { p += 6; n -= 6; }
  if (n < 8 || (memcmp(p, "II*\0", 4) && memcmp(p, "MM\0*", 4))) return 0;
  bool big = *p == 'M';
  size_t at = exif_number(p + 4, 4, big);
  if (at > n - 2) return 0;
  for (uint32_t left = exif_number(p + at, 2, big); left && at + 2 + ENTRY <= n; left--, at += ENTRY) {
    const uint8_t *e = p + at + 2;
    if (exif_number(e, 2, big) != ORIENTATION) continue;
    uint32_t value = exif_number(e + 8, 2, big);
    return exif_number(e + 2, 2, big) == SHORT && value >= 1 && value <= 8 ? (int)value : 0;
  }
  return 0;
}

// Where pixel (x, y) of the result comes from: 2 and above mirror and rotate the image; 5 to 8 swap its edges.
static media_image turn(const media_image *from, int orientation) {
  bool swap = orientation >= 5;
  media_image to = {swap ? from->height : from->width, swap ? from->width : from->height, NULL};
  to.rgb = xmalloc((size_t)(to.width * to.height * 3));
  bool flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  bool flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  for (int64_t y = 0; y < to.height; y++)
    for (int64_t x = 0; x < to.width; x++) {
      int64_t fx = swap ? y : x, fy = swap ? x : y;
      if (flip_x) fx = from->width - 1 - fx;
      if (flip_y) fy = from->height - 1 - fy;
      memcpy(to.rgb + (y * to.width + x) * 3, from->rgb + (fy * from->width + fx) * 3, 3);
    }
  return to;
}

// ----------------------------------------------------------------------------------------------------- transparency

// Composites over white with Pillow's rounding (alpha_composite), in place.
static void lay_on_white(uint8_t *at, int64_t pixels) {
  const uint8_t *from = at;
  for (int64_t i = 0; i < pixels; i++, from += 4)
    for (int c = 0; c < 3; c++) {
      uint32_t a = from[3], sum = (from[c] * a + 255 * (255 - a) + 128) << 7;
      *at++ = (uint8_t)(((sum >> 8) + sum) >> 15);
    }
}

static void finish_picture(raw_picture *p, media_image *out) {
  if (p->channels == 4) lay_on_white(p->at, p->width * p->height);
  *out = (media_image){p->width, p->height, p->at};
  if (p->orientation < 2) return;
  media_image turned = turn(out, p->orientation);
  free(p->at);
  *out = turned;
}

// ------------------------------------------------------------------------------------------------------- the formats

static const decoder *find_decoder(const uint8_t *data, size_t n, error *err) {
  static const decoder *const all[] = {&decode_jpeg, &decode_png, &decode_webp};
  const char *format;
  enum media_kind kind = media_kind_of(data, n, &format);
  if (kind == MEDIA_SOUND) return &decode_sndfile;
  for (size_t i = 0; kind == MEDIA_IMAGE && i < COUNT(all); i++) if (!strcmp(all[i]->format, format)) return all[i];
  if (format) error_set(err, "the content is %s, which is not read here", format);
  else error_set(err, "the content is neither a picture (PNG, JPEG, WebP) nor a sound (WAV, FLAC, MP3, OGG)");
  return NULL;
}

int decode_load(const uint8_t *data, size_t n, error *err) {
  const decoder *d = find_decoder(data, n, err);
  return d ? d->load(err) : -1;
}

int decode_picture(const uint8_t *data, size_t n, const media_limits *limits, media_image *out, error *err) {
  const decoder *d = find_decoder(data, n, err);
  raw_picture p = {0};
  *out = (media_image){0};
  if (!d) return -1;
  if (!d->decode) return error_set(err, "the content is a sound, and a picture is wanted");
  if (d->load(err)) return -1;
  if (d->decode(data, n, limits, &p, err)) {
    free(p.at);
    return -1;
  }
  finish_picture(&p, out);
  return 0;
}
