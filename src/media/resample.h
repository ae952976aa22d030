// resample: resizing a picture of bytes with antialiasing, to the same bytes as Pillow's Image.resize.
#ifndef WEFT_RESAMPLE_H
#define WEFT_RESAMPLE_H
#include "media/media.h"

enum resample_filter { RESAMPLE_BILINEAR, RESAMPLE_BICUBIC, RESAMPLE_LANCZOS };

// from: width, height > 0. The result is the caller's, until media_image_free. -1 and err: a size that is not > 0, or
// too large.
int resample(const media_image *from, int64_t width, int64_t height, enum resample_filter filter, media_image *out,
             error *err);
#endif
