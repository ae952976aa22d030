// Fuzzes the decoders of pictures and sounds and what is made of them, in this process: any bytes must give an error,
// or samples within the limits and images of the sizes that were foretold. The length chooses the rule. Checksums of
// PNG chunks are set right first, so that changes get past them.
#include <math.h>
#include <string.h>
#include "media/decode.h"
#include "media/mel.h"
#include "media/preprocess.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const media_limits limits = {.file_bytes = 1 << 20, .pixels = 1 << 16, .side = 1 << 12, .sound_s = 4,
                                    .cpu_s = 10};

static uint32_t checksum(const uint8_t *p, size_t n) {
  uint32_t c = ~0u;
  for (size_t i = 0; i < n; i++) {
    c ^= p[i];
    for (int b = 0; b < 8; b++) c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
  }
  return ~c;
}

static void mend_png(uint8_t *p, size_t n) {
  for (size_t at = 8, size; at + 12 <= n && (size = read_be32(p + at)) <= n - at - 12; at += size + 12) {
    uint32_t c = checksum(p + at + 4, size + 4);
    for (int i = 0; i < 4; i++) p[at + 8 + size + (size_t)i] = (uint8_t)(c >> (24 - 8 * i));
  }
}

static void check_images(const media_image *image, const preprocess_rule *r) {
  prepared_image p, sizes;
  error err = {0}, other = {0};
  if (preprocess_image(image, r, &p, &err)) {
    if (!err.text[0]) die("an error without text");
    return;
  }
  if (preprocess_sizes(image->width, image->height, r, &sizes, &other)) die("sizes: %s", other.text);
  if (sizes.n != p.n) die("%d images, and %d were foretold", (int)p.n, (int)sizes.n);
  for (int64_t i = 0; i < p.n; i++) {
    if (sizes.at[i].width != p.at[i].width || sizes.at[i].height != p.at[i].height) die("another size");
    for (int64_t k = 0; k < p.at[i].width * p.at[i].height * 3; k++)
      if (!isfinite(p.at[i].at[k])) die("a pixel that is no number");
  }
  prepared_image_free(&p);
  prepared_image_free(&sizes);
}

static void use_image(const media_image *image, size_t n) {
  size_t rules = 0;
  while (preprocess_rule_at(rules)) rules++;
  preprocess_rule r = *preprocess_rule_at(n % rules);
  if (image->width < 1 || image->height < 1 || image->width * image->height > limits.pixels) die("beyond the limits");
  r.side = min_i64(r.side, 64);                        // small, so that there are many runs
  r.longest = min_i64(r.longest, 128);
  r.max_pixels = r.size == SIZE_MULTIPLE || r.size == SIZE_BUDGET ? 1 << 17 : 0;
  check_images(image, &r);
}

static void use_sound(const media_sound *sound) {
  media_sound other;
  error err = {0};
  if (sound->n < 1 || sound->rate < 1 || sound->n > limits.sound_s * sound->rate) die("beyond the limits");
  for (int64_t i = 0; i < sound->n; i++) if (!isfinite(sound->samples[i])) die("no number");
  if (!sound_at_mel_rate(sound, &other, &err)) media_sound_free(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  media_image image;
  media_sound sound;
  error err = {0};
  const char *format;
  uint8_t *copy = xmalloc(n + !n);                     // of exactly the size
  if (n) memcpy(copy, data, n);
  enum media_kind kind = media_kind_of(copy, n, &format);
  if (format && !strcmp(format, "PNG")) mend_png(copy, n);
  bool failed =
    kind == MEDIA_SOUND ? decode_sound(copy, n, &limits, &sound, &err) : decode_picture(copy, n, &limits, &image, &err);
  if (failed && !err.text[0]) die("an error without text");
  if (!failed && kind == MEDIA_SOUND) {
    use_sound(&sound);
    media_sound_free(&sound);
  } else if (!failed) {
    use_image(&image, n);
    media_image_free(&image);
  }
  free(copy);
  return 0;
}
