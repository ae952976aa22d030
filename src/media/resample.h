// resample: resizes an image of bytes with antialiasing, with the same result as Pillow's Image.resize.
#ifndef WEFT_RESAMPLE_H
#define WEFT_RESAMPLE_H
#include "media/media.h"

enum resample_filter { RESAMPLE_BILINEAR, RESAMPLE_BICUBIC, RESAMPLE_LANCZOS };

// from: width, height > 0. The result belongs to the caller, until media_image_free. -1 and err: a size that is not >
// 0, or too large.
int resample(const media_image *from, int64_t width, int64_t height, enum resample_filter filter, media_image *out,
             error *err);
#endif
