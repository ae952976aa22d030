// The rules of image processors: see preprocess.h. A rule chooses sizes (choose_*), the image is resized, perhaps more
// than once as in the model's own processor, and each tile becomes planes of floats.
#include "media/preprocess.h"
#include <math.h>
#include <string.h>
#include "graph/half.h"

#define HALF {0.5f, 0.5f, 0.5f}
#define CLIP_MEAN {0.48145466f, 0.4578275f, 0.40821073f}
#define CLIP_STD {0.26862954f, 0.26130258f, 0.27577711f}
#define IMAGENET_MEAN {0.485f, 0.456f, 0.406f}
#define IMAGENET_STD {0.229f, 0.224f, 0.225f}

static const int llava_canvases[][2] = {{1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 3}};

static const preprocess_rule rules[] = {
  {.name = "gemma3", SIZE_STRETCH, RESAMPLE_BILINEAR, .side = 896, .patch = 14, .merge = 4, .mean = HALF, .std = HALF},
  {.name = "gemma3n", SIZE_STRETCH, RESAMPLE_BILINEAR, .side = 768, .patch = 48, .merge = 1, .std = {1, 1, 1}},
  {.name = "siglip", SIZE_STRETCH, RESAMPLE_BICUBIC, .side = 384, .patch = 14, .merge = 1, .mean = HALF, .std = HALF},
  {.name = "qwen2vl", SIZE_MULTIPLE, RESAMPLE_BICUBIC, .patch = 14, .merge = 2, .min_pixels = 56 * 56,
   .max_pixels = 28 * 28 * 16384, .mean = CLIP_MEAN, .std = CLIP_STD},
  {.name = "qwen3vl", SIZE_MULTIPLE, RESAMPLE_BICUBIC, .patch = 16, .merge = 2, .min_pixels = 256 * 256,
   .max_pixels = 4096 * 4096, .mean = HALF, .std = HALF},
  // the limits in its processor are for two frames
  {.name = "glm4v", SIZE_MULTIPLE, RESAMPLE_BICUBIC, .patch = 14, .merge = 2, .grow = GROW_CUT,
   .min_pixels = 112 * 112 / 2, .max_pixels = 28 * 28 * 6144, .mean = CLIP_MEAN, .std = CLIP_STD},
  {.name = "paddleocr", SIZE_MULTIPLE, RESAMPLE_BICUBIC, .patch = 14, .merge = 2, .grow = GROW_ROUNDED,
   .min_pixels = 384 * 384, .max_pixels = 1536 * 1536, .mean = CLIP_MEAN, .std = CLIP_STD},
  {.name = "lfm2", SIZE_TILES_IF_LARGE, RESAMPLE_BILINEAR, .side = 512, .patch = 16, .merge = 2, .min_tiles = 2,
   .max_tiles = 10, .min_pixels = 64 * 32 * 32, .max_pixels = 256 * 32 * 32, .mean = HALF, .std = HALF},
  {.name = "gemma4", SIZE_BUDGET, RESAMPLE_BICUBIC, .patch = 16, .merge = 3, .max_pixels = 280 * 48 * 48,
   .std = {1, 1, 1}},
  {.name = "pixtral", SIZE_LONGEST, RESAMPLE_BICUBIC, .side = 1024, .patch = 16, .merge = 1, .mean = CLIP_MEAN,
   .std = CLIP_STD},
  {.name = "mistral3", SIZE_LONGEST, RESAMPLE_BICUBIC, .side = 1540, .patch = 14, .merge = 2, .mean = CLIP_MEAN,
   .std = CLIP_STD},
  {.name = "idefics3", SIZE_TILES_AND_WHOLE, RESAMPLE_LANCZOS, .side = 364, .longest = 1456, .patch = 14, .merge = 2,
   .mean = HALF, .std = HALF},
  {.name = "smolvlm", SIZE_TILES_AND_WHOLE, RESAMPLE_LANCZOS, .side = 512, .longest = 2048, .patch = 16, .merge = 4,
   .mean = HALF, .std = HALF},
  {.name = "internvl", SIZE_TILES_BY_SHAPE, RESAMPLE_BICUBIC, .side = 448, .patch = 14, .merge = 2, .min_tiles = 1,
   .max_tiles = 12, .mean = IMAGENET_MEAN, .std = IMAGENET_STD},
  {.name = "minicpmv", SIZE_SLICES, RESAMPLE_BICUBIC, .side = 448, .patch = 14, .merge = 4, .max_tiles = 9,
   .whole_first = true, .mean = HALF, .std = HALF},
  {.name = "llama4", SIZE_CANVAS, RESAMPLE_BILINEAR, .side = 336, .patch = 14, .merge = 2, .max_tiles = 16,
   .bf16 = true, .mean = HALF, .std = HALF},
  {.name = "kimivl", SIZE_NATIVE, RESAMPLE_BICUBIC, .patch = 14, .merge = 2, .max_pixels = 4096 * 14 * 14, .mean = HALF,
   .std = HALF},
  {.name = "kimik25", SIZE_NATIVE, RESAMPLE_BICUBIC, .patch = 14, .merge = 2, .max_pixels = 16384 * 14 * 14,
   .mean = HALF, .std = HALF},
  {.name = "clip", SIZE_CROP, RESAMPLE_BICUBIC, .side = 224, .patch = 14, .merge = 1, .mean = CLIP_MEAN,
   .std = CLIP_STD},
  {.name = "llava", SIZE_CROP, RESAMPLE_BICUBIC, .side = 336, .patch = 14, .merge = 1, .mean = CLIP_MEAN,
   .std = CLIP_STD},
  {.name = "llava_next", SIZE_LISTED, RESAMPLE_BICUBIC, .side = 336, .patch = 14, .merge = 1, .whole_first = true,
   .canvases = llava_canvases, .n_canvases = COUNT(llava_canvases), .mean = CLIP_MEAN, .std = CLIP_STD},
  {.name = "llava_pad", SIZE_PAD, RESAMPLE_BICUBIC, .side = 336, .patch = 14, .merge = 1, .mean = CLIP_MEAN,
   .std = CLIP_STD},
};
enum {
  MOST_SIDE = 1 << 14,
  MOST_TILES = 1 << 10,
  MOST_TOKENS = 1 << 20,
  LONGEST = 4096,
  MOST_RATIO = 200,
  MOST_BUDGET = 1120 /* tokens */,
  MOST_PATCHES = 512 /* in a line */,
  MOST_PIXELS = 1 << 28
};

const preprocess_rule *preprocess_rule_at(size_t i) { return i < COUNT(rules) ? rules + i : NULL; }

const preprocess_rule *preprocess_rule_by_name(const char *name) {
  for (size_t i = 0; i < COUNT(rules); i++) if (!strcmp(rules[i].name, name)) return rules + i;
  return NULL;
}

// ---------------------------------------------------------------------------------------------------------- the limits

static int64_t whole_root(int64_t x) {
  int64_t r = (int64_t)sqrt((double)x);
  return r * r > x ? r - 1 : r;
}

// Whether the image is cut into tiles whose number depends on its shape.
static bool is_cut(const preprocess_rule *r) {
  return r->size == SIZE_TILES_BY_SHAPE || r->size == SIZE_SLICES || r->size == SIZE_CANVAS;
}

// Whether the number of pixels is between two limits.
static bool has_range(const preprocess_rule *r) { return r->size == SIZE_MULTIPLE || r->size == SIZE_TILES_IF_LARGE; }

int preprocess_limit_tokens(preprocess_rule *r, int64_t min_tokens, int64_t max_tokens, error *err) {
  int64_t edge = r->patch * r->merge, per_tile = edge > 0 ? (r->side / edge) * (r->side / edge) : 0;
  if (r->tile_tokens) per_tile = r->tile_tokens;
  if (min_tokens < 0 || max_tokens < 0 || min_tokens > MOST_TOKENS || max_tokens > MOST_TOKENS)
    return error_set(err, "image tokens: at least %lld, at most %lld: a number between 0 and %d is wanted",
                     (long long)min_tokens, (long long)max_tokens, MOST_TOKENS);
  if (max_tokens && min_tokens > max_tokens)
    return error_set(err, "image tokens: at least %lld is more than at most %lld", (long long)min_tokens,
                     (long long)max_tokens);
  if (r->size == SIZE_TILES_IF_LARGE && max_tokens && per_tile) {
    int64_t all = max_tokens;                      // the whole first, which stays as large as it may be
    max_tokens = min_i64(max_tokens, r->max_pixels / (edge * edge));
    r->max_tiles = min_i64(r->max_tiles, (all - max_tokens) / per_tile);
  }
  if (has_range(r)) {
    if (min_tokens) r->min_pixels = min_tokens * edge * edge;
    if (max_tokens) r->max_pixels = max_tokens * edge * edge;
    r->min_pixels = max_tokens ? min_i64(r->min_pixels, r->max_pixels) : r->min_pixels;
    r->max_pixels = max_i64(r->min_pixels, r->max_pixels);
  } else if (r->size == SIZE_BUDGET && max_tokens) {
    r->max_pixels = min_i64(MOST_BUDGET, max_tokens) * edge * edge;
  } else if (r->size == SIZE_NATIVE && max_tokens) {
    r->max_pixels = min_i64(r->max_pixels, max_tokens * edge * edge);
  } else if (r->size == SIZE_LONGEST && max_tokens) {
    r->side = min_i64(r->side, whole_root(max_tokens) * edge);
  } else if (r->size == SIZE_TILES_AND_WHOLE && max_tokens && per_tile) {
    int64_t tiles = max_i64(max_tokens / per_tile - 1, 1);
    r->longest = min_i64(r->longest, whole_root(tiles) * r->side);
  } else if (r->size == SIZE_LISTED && max_tokens && per_tile) {
    int64_t fewest = MOST_TILES;
    for (int i = 0; i < r->n_canvases; i++) fewest = min_i64(fewest, r->canvases[i][0] * r->canvases[i][1]);
    r->max_tiles = max_i64(max_tokens / per_tile - 1, fewest);
  } else if (is_cut(r) && max_tokens && per_tile) {
    int64_t tiles = max_i64(max_tokens / per_tile - 1, 1);
    r->max_tiles = min_i64(r->max_tiles, tiles);
    r->min_tiles = min_i64(r->min_tiles, r->max_tiles);
  }
  return 0;
}

static int check_rule(const preprocess_rule *r, error *err) {
  if (r->patch < 1 || r->merge < 1 || r->patch > MOST_SIDE || r->merge > MOST_SIDE || r->patch * r->merge > MOST_SIDE)
    return error_set(err, "pictures: a patch of %lld pixels, merged by %lld, is not between 1 and %d",
                     (long long)r->patch, (long long)r->merge, MOST_SIDE);
  bool within = r->size == SIZE_BUDGET || r->size == SIZE_NATIVE;
  if (within && (r->max_pixels < r->patch * r->merge * r->patch * r->merge || r->max_pixels > MOST_PIXELS))
    return error_set(err, "pictures: at most %lld pixels is not between one token and %d", (long long)r->max_pixels,
                     MOST_PIXELS);
  if (r->size != SIZE_MULTIPLE && !within && (r->side < 1 || r->side > MOST_SIDE))
    return error_set(err, "pictures: a side of %lld pixels is not between 1 and %d", (long long)r->side, MOST_SIDE);
  if (has_range(r) && (r->min_pixels < 1 || r->min_pixels > r->max_pixels || r->max_pixels > MOST_PIXELS))
    return error_set(err, "pictures: %lld to %lld pixels is no range between 1 and %d", (long long)r->min_pixels,
                     (long long)r->max_pixels, MOST_PIXELS);
  if (r->size == SIZE_TILES_AND_WHOLE && (r->longest < 1 || r->longest > MOST_SIDE || r->longest / r->side > 32))
    return error_set(err, "pictures: a longest edge of %lld with tiles of %lld pixels is too large or too small",
                     (long long)r->longest, (long long)r->side);
  if (is_cut(r) && (r->max_tiles < 1 || r->max_tiles > MOST_TILES))
    return error_set(err, "pictures: at most %lld tiles is not between 1 and %d", (long long)r->max_tiles, MOST_TILES);
  if (r->size == SIZE_TILES_BY_SHAPE &&
      (r->min_tiles < 1 || r->min_tiles > r->max_tiles || r->max_tiles > MOST_TILES))
    return error_set(err, "pictures: %lld to %lld tiles is no range between 1 and %d", (long long)r->min_tiles,
                     (long long)r->max_tiles, MOST_TILES);
  for (int i = 0; i < 3; i++)
    if (!isfinite(r->mean[i]) || !isfinite(r->std[i]) || r->std[i] == 0)
      return error_set(err, "pictures: mean %g and deviation %g are no numbers to divide by", (double)r->mean[i],
                       (double)r->std[i]);
  return 0;
}

// --------------------------------------------------------------------------------------------------------- the sizes

// Up to three resizes, each of the previous result, and then the cut.
typedef struct image_sizes {
  int64_t w[2], h[2];        // after the first and the second resize
  int64_t columns, rows;     // of tiles; 0: not cut
  int64_t whole_w, whole_h;  // of the whole image, if it is cut
  int64_t canvas_w, canvas_h;          // canvas whose corner it is placed in before the cut; 0: none
  int64_t pad;               // edge of the square that it is padded to first; 0: none
} image_sizes;

static int64_t up_to(int64_t x, int64_t of) { return (x + of - 1) / of * of; }

// Multiples of a token's edge, at least `least`, with as many pixels as the limits allow.
static void near_shape(double w, double h, const preprocess_rule *r, double least, image_sizes *s) {
  double edge = (double)(r->patch * r->merge);
  double to_w = fmax(rint(w / edge) * edge, least), to_h = fmax(rint(h / edge) * edge, least);     // halves to even
  if (to_w * to_h > (double)r->max_pixels) {
    double by = sqrt(h * w / (double)r->max_pixels);
    to_h = fmax(edge, floor(h / by / edge) * edge);
    to_w = fmax(edge, floor(w / by / edge) * edge);
  } else if (to_w * to_h < (double)r->min_pixels) {
    double by = sqrt((double)r->min_pixels / (h * w));
    to_h = ceil(h * by / edge) * edge;
    to_w = ceil(w * by / edge) * edge;
  }
  s->w[0] = (int64_t)to_w;
  s->h[0] = (int64_t)to_h;
}

// Of an image of width x height pixels that has grown to w x h.
static int check_ratio(double w, double h, int64_t width, int64_t height, error *err) {
  return fmax(w, h) / fmin(w, h) <= MOST_RATIO
           ? 0
           : error_set(err, "a picture of %lld x %lld pixels is too long for this model: one edge is more than %d "
                       "times the other", (long long)width, (long long)height, MOST_RATIO);
}

static int choose_multiple(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s, error *err) {
  double w = (double)width, h = (double)height, edge = (double)(r->patch * r->merge), grow = edge / fmin(w, h);
  if (r->grow == GROW_CUT && grow > 1) {
    w = trunc(w * grow);
    h = trunc(h * grow);
  }
  if (r->grow == GROW_ROUNDED && h < edge) { w = rint(w * edge / h); h = edge; }
  if (r->grow == GROW_ROUNDED && w < edge) { h = rint(h * edge / w); w = edge; }
  if (check_ratio(w, h, width, height, err)) return -1;
  near_shape(w, h, r, 0, s);
  return 0;
}

// Edges round down. An edge that would round to 0 has one token, and the other one as many as fit.
static int choose_budget(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s, error *err) {
  int64_t edge = r->patch * r->merge, most = r->max_pixels / (edge * edge) * edge;
  double by = sqrt((double)r->max_pixels / (double)(height * width));
  int64_t h = (int64_t)floor(by * (double)height / (double)edge) * edge,
          w = (int64_t)floor(by * (double)width / (double)edge) * edge;
  if (!h) w = min_i64(width / height * edge, most);
  else if (!w) h = min_i64(height / width * edge, most);
  s->w[0] = max_i64(w, edge);
  s->h[0] = max_i64(h, edge);
  if (s->w[0] * s->h[0] <= r->max_pixels) return 0;
  return error_set(err, "a picture of %lld x %lld pixels does not fit into %lld pixels", (long long)width,
                   (long long)height, (long long)r->max_pixels);
}

static void choose_longest(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s) {
  double side = (double)r->side, ratio = fmax((double)height / side, (double)width / side);
  if (ratio > 1) {
    height = (int64_t)floor((double)height / ratio);
    width = (int64_t)floor((double)width / ratio);
  }
  // an edge that has shrunk to nothing still has one patch
  s->w[0] = max_i64(up_to(width, r->patch * r->merge), r->patch * r->merge);
  s->h[0] = max_i64(up_to(height, r->patch * r->merge), r->patch * r->merge);
}

static void choose_crop(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s) {
  int64_t shorter = min_i64(width, height), longer = max_i64(width, height);
  int64_t to = (int64_t)((double)(r->side * longer) / (double)shorter);
  s->w[0] = width <= height ? r->side : to;
  s->h[0] = width <= height ? to : r->side;
}

// The longest edge is as requested, the other one an even number; at most LONGEST; then both multiples of a tile's
// side.
static void choose_tiles_and_whole(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s) {
  bool wide = width >= height;
  double ratio = (double)width / (double)height;
  int64_t longer = r->longest, shorter = (int64_t)(wide ? (double)longer / ratio : (double)longer * ratio);
  shorter = max_i64(shorter + shorter % 2, 1);
  if (longer > LONGEST) {
    ratio = wide ? (double)longer / (double)shorter : (double)shorter / (double)longer;
    longer = LONGEST;
    shorter = max_i64((int64_t)(wide ? (double)longer / ratio : (double)longer * ratio), 1);
  }
  // the edge that was rounded up to an even number can be the longer one now
  width = wide ? longer : shorter;
  height = wide ? shorter : longer;
  s->w[0] = width;
  s->h[0] = height;
  wide = width >= height;
  ratio = (double)width / (double)height;
  longer = up_to(wide ? width : height, r->side);
  shorter = up_to((int64_t)(wide ? (double)longer / ratio : (double)longer * ratio), r->side);
  s->w[1] = wide ? longer : shorter;
  s->h[1] = wide ? shorter : longer;
  bool cut = s->w[1] > r->side || s->h[1] > r->side;
  s->columns = cut ? s->w[1] / r->side : 0;
  s->rows = cut ? s->h[1] / r->side : 0;
}

// Grids in ascending order of their number of tiles. Of two with equal distance from the shape the one with more tiles,
// if the image has more than half of its pixels.
static void choose_tiles_by_shape(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s) {
  double ratio = (double)width / (double)height, best = INFINITY, area = (double)width * (double)height;
  int64_t columns = 1, rows = 1;
  for (int64_t n = r->min_tiles; n <= r->max_tiles; n++)
    for (int64_t w = 1; w <= n; w++) {
      if (n % w) continue;
      double off = fabs(ratio - (double)w / (double)(n / w));
      if (off > best || (off == best && !(area > 0.5 * (double)(r->side * r->side * n)))) continue;
      best = off;
      columns = w;
      rows = n / w;
    }
  s->w[0] = columns * r->side;
  s->h[0] = rows * r->side;
  s->columns = columns * rows > 1 ? columns : 0;
  s->rows = columns * rows > 1 ? rows : 0;
}

// Its processor has no limit to the ratio, and makes very long images longer than they are.
static int choose_if_large(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s, error *err) {
  double w = (double)width, h = (double)height, edge = (double)(r->patch * r->merge), patch = (double)r->patch;
  if (check_ratio(w, h, width, height, err)) return -1;
  near_shape(w, h, r, edge, s);
  s->whole_w = s->w[0];
  s->whole_h = s->h[0];
  double pixels = fmax(rint(w / edge) * edge, patch) * fmax(rint(h / edge) * edge, patch);
  if (pixels > 2 * (double)r->max_pixels && r->max_tiles >= r->min_tiles) choose_tiles_by_shape(width, height, r, s);
  return 0;
}

// Multiples of a token's edge with an area near side x side pixels. Smaller images keep their size unless they `grow`.
static void near_area(double width, double height, const preprocess_rule *r, bool grow, int64_t out[2]) {
  double edge = (double)(r->patch * r->merge);
  if (grow || height * width > (double)(r->side * r->side)) {
    double ratio = width / height;
    height = trunc((double)r->side / sqrt(ratio));
    width = trunc(height * ratio);
  }
  out[0] = (int64_t)fmax(rint(width / edge) * edge, edge);     // halves round to even numbers
  out[1] = (int64_t)fmax(rint(height / edge) * edge, edge);
}

// Grids with about as many slices as the image has squares of side x side pixels. The one nearest to its shape is
// chosen.
static void choose_slices(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s) {
  double w = (double)width, h = (double)height, ratio = log(w / h), best = INFINITY;
  int64_t about = (int64_t)fmin(ceil(w * h / (double)(r->side * r->side)), (double)r->max_tiles), columns = 1, rows = 1;
  for (int64_t n = about - 1; about > 1 && n <= about + 1; n++)
    for (int64_t down = 1; n > 1 && n <= r->max_tiles && down <= n; down++) {
      if (n % down) continue;
      double off = fabs(ratio - log((double)(n / down) / (double)down));
      if (off > best || (off == best && down <= rows)) continue;
      best = off;
      columns = n / down;
      rows = down;
    }
  int64_t out[2];
  near_area(w, h, r, about <= 1, out);
  s->w[0] = s->whole_w = out[0];
  s->h[0] = s->whole_h = out[1];
  if (about <= 1) return;
  double across = (double)columns, down = (double)rows;
  w = fmax(rint(w / across) * across, across);
  h = fmax(rint(h / down) * down, down);
  near_area(w / across, h / down, r, true, out);
  s->w[0] = out[0] * columns;
  s->h[0] = out[1] * rows;
  s->columns = columns;
  s->rows = rows;
}

// The canvas with the smallest enlargement, or else the smallest reduction, and of those the smallest canvas. Ratios
// are compared as 32-bit floats, as in the model's processor.
static void choose_canvas(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s) {
  float best = 0;
  for (int64_t n = r->max_tiles; n >= 1; n--)
    for (int64_t down = 1; down <= n; down++) {
      if (n % down) continue;
      int64_t w = n / down * r->side, h = down * r->side;
      float by = fminf((float)w / (float)width, (float)h / (float)height);
      bool same = by == best && w * h < s->canvas_w * s->canvas_h;
      if (!same && !(best >= 1 ? by >= 1 && by < best : by > best)) continue;
      best = by;
      s->canvas_w = w;
      s->canvas_h = h;
    }
  double w = (double)min_i64(max_i64(width, r->side), s->canvas_w),
         h = (double)min_i64(max_i64(height, r->side), s->canvas_h), across = w / (double)width,
         down = h / (double)height;
  s->w[0] = max_i64((int64_t)(across < down ? w : fmin(floor((double)width * down), w)), 1);
  s->h[0] = max_i64((int64_t)(across < down ? fmin(floor((double)height * across), h) : h), 1);
  s->columns = s->canvas_w / r->side;
  s->rows = s->canvas_h / r->side;
  if (s->columns * s->rows == 1) s->columns = s->rows = 0;
}

// The most pixels of the image itself, then the fewest around it; the first of equal ones.
static void choose_listed(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s) {
  int64_t most = -1, least = 0;
  for (int i = 0; i < r->n_canvases; i++) {
    int64_t h = r->canvases[i][0] * r->side, w = r->canvases[i][1] * r->side;
    if (r->max_tiles && r->canvases[i][0] * r->canvases[i][1] > r->max_tiles) continue;
    double by = fmin((double)w / (double)width, (double)h / (double)height);
    int64_t shown = min_i64((int64_t)((double)width * by) * (int64_t)((double)height * by), width * height);
    if (shown < most || (shown == most && w * h - shown >= least)) continue;
    most = shown;
    least = w * h - shown;
    s->canvas_w = w;
    s->canvas_h = h;
  }
  double w = (double)s->canvas_w, h = (double)s->canvas_h, across = w / (double)width, down = h / (double)height;
  s->w[0] = (int64_t)(across < down ? w : fmin(ceil((double)width * down), w));
  s->h[0] = (int64_t)(across < down ? fmin(ceil((double)height * across), h) : h);
  s->columns = s->canvas_w / r->side;
  s->rows = s->canvas_h / r->side;
}

static void choose_native(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s) {
  int64_t most = MOST_PATCHES * r->patch, edge = r->patch * r->merge,
          patches = max_i64(width / r->patch, 1) * max_i64(height / r->patch, 1);
  double by = sqrt((double)(r->max_pixels / (r->patch * r->patch)) / (double)patches);
  by = fmin(fmin(by, 1), fmin((double)most / (double)height, (double)most / (double)width));
  s->w[0] = min_i64(max_i64((int64_t)((double)width * by), 1), most);
  s->h[0] = min_i64(max_i64((int64_t)((double)height * by), 1), most);
  s->canvas_w = up_to(s->w[0], edge);
  s->canvas_h = up_to(s->h[0], edge);
}

static int choose_image_sizes(int64_t width, int64_t height, const preprocess_rule *r, image_sizes *s, error *err) {
  *s = (image_sizes){0};
  if (check_rule(r, err)) return -1;
  if (width < 1 || height < 1 || width > 1 << 20 || height > 1 << 20)
    return error_set(err, "a picture of %lld x %lld pixels", (long long)width, (long long)height);
  s->w[0] = s->h[0] = s->whole_w = s->whole_h = r->side;
  if (r->size == SIZE_MULTIPLE && choose_multiple(width, height, r, s, err)) return -1;
  if (r->size == SIZE_BUDGET && choose_budget(width, height, r, s, err)) return -1;
  if (r->size == SIZE_LONGEST) choose_longest(width, height, r, s);
  if (r->size == SIZE_CROP) choose_crop(width, height, r, s);
  if (r->size == SIZE_TILES_AND_WHOLE) choose_tiles_and_whole(width, height, r, s);
  if (r->size == SIZE_TILES_BY_SHAPE) choose_tiles_by_shape(width, height, r, s);
  if (r->size == SIZE_TILES_IF_LARGE && choose_if_large(width, height, r, s, err)) return -1;
  if (r->size == SIZE_SLICES) choose_slices(width, height, r, s);
  if (r->size == SIZE_CANVAS) choose_canvas(width, height, r, s);
  if (r->size == SIZE_NATIVE) choose_native(width, height, r, s);
  if (r->size == SIZE_LISTED) choose_listed(width, height, r, s);
  if (r->size == SIZE_PAD && width != height) s->pad = max_i64(width, height);
  const int64_t made[][2] = {
    {s->w[0], s->h[0]}, {s->w[1], s->h[1]}, {s->canvas_w, s->canvas_h}, {s->columns ? s->whole_w : 0, s->whole_h}};
  for (size_t i = 0; i < COUNT(made); i++)
    if (made[i][0] * made[i][1] > MOST_PIXELS)
      return error_set(err, "a picture of %lld x %lld pixels becomes one of %lld x %lld: %d pixels are the most",
                       (long long)width, (long long)height, (long long)made[i][0], (long long)made[i][1], MOST_PIXELS);
  return 0;
}

// The size of the intermediate image of a resize, which has one edge of the old size and one of the new size.
static int64_t halfway(int64_t width, int64_t height, int64_t to_w, int64_t to_h) {
  return max_i64(width * to_h, to_w * height);
}

// The most memory that preprocess_image takes besides the image, for this many pixels of planes: first for intermediate
// images of 3 bytes per pixel, at the end for the last of these and the planes.
static int64_t bytes_needed(int64_t width, int64_t height, const image_sizes *s, int64_t planes) {
  int64_t canvas = s->canvas_w * s->canvas_h, square = s->pad * s->pad, first = s->w[0] * s->h[0],
          second = s->w[1] * s->h[1], whole = s->columns ? s->whole_w * s->whole_h : 0;
  int64_t between = square + first + second + canvas + whole +
                    halfway(s->pad ? s->pad : width, s->pad ? s->pad : height, s->w[0], s->h[0]);
  int64_t last = square + (canvas ? canvas : second ? second : first) + whole;
  return max_i64(3 * between, 3 * last + 3 * (int64_t)sizeof(float) * planes);
}

// -------------------------------------------------------------------------------------------------------- the pixels

// A part of the image as planes; without an image only its size.
static void add_planes(const media_image *image, int64_t x0, int64_t y0, int64_t width, int64_t height,
                       const float (*values)[256], prepared_image *out) {
  pixel_planes *p = &out->at[out->n++];
  *p = (pixel_planes){width, height, NULL};
  if (!image) return;
  float *at = p->at = xmalloc((size_t)(width * height * 3) * sizeof *at);
  for (int c = 0; c < 3; c++)
    for (int64_t y = 0; y < height; y++) {
      const uint8_t *from = image->rgb + ((y0 + y) * image->width + x0) * 3 + c;
      for (int64_t x = 0; x < width; x++) *at++ = values[c][from[x * 3]];
    }
}

// A square with the image in its centre and the mean around it.
static void pad_to_square(const media_image *image, int64_t edge, const float *mean, media_image *out) {
  int64_t left = (edge - image->width) / 2, top = (edge - image->height) / 2;
  *out = (media_image){edge, edge, xmalloc((size_t)(edge * edge * 3))};
  for (int64_t i = 0; i < edge * edge * 3; i++) {
    float fill = mean[i % 3] * 255;
    out->rgb[i] = (uint8_t)(fill < 0 ? 0 : fill > 255 ? 255 : fill);
  }
  for (int64_t y = 0; y < image->height; y++)
    memcpy(out->rgb + ((top + y) * edge + left) * 3, image->rgb + y * image->width * 3, (size_t)image->width * 3);
}

// Replaces the image by a black canvas with the image in its corner or in its centre.
static void lay_on_canvas(media_image *at, const media_image *callers, const image_sizes *s, bool centred) {
  int64_t width = s->canvas_w, height = s->canvas_h;
  int64_t left = centred ? (width - at->width) / 2 : 0, top = centred ? (height - at->height) / 2 : 0;
  media_image canvas = {width, height, xcalloc((size_t)(width * height), 3)};
  for (int64_t y = 0; y < at->height; y++)
    memcpy(canvas.rgb + ((top + y) * width + left) * 3, at->rgb + y * at->width * 3, (size_t)at->width * 3);
  if (at->rgb != callers->rgb) media_image_free(at);
  *at = canvas;
}

// Resizes *at, which is the caller's image or an intermediate one.
static int resize_to(media_image *at, const media_image *callers, int64_t width, int64_t height,
                     enum resample_filter filter, error *err) {
  media_image next;
  if (resample(at, width, height, filter, &next, err)) return -1;
  if (at->rgb != callers->rgb) media_image_free(at);
  *at = next;
  return 0;
}

static int resize_and_cut(const media_image *image, const preprocess_rule *r, const image_sizes *s,
                          const float (*values)[256], prepared_image *out, error *err) {
  media_image now = *image, whole = {0};
  int failed = 0;
  if (s->pad && s->pad * s->pad > INT32_MAX / 3)
    return error_set(err, "a square around a picture of %lld x %lld pixels is too large", (long long)image->width,
                     (long long)image->height);
  if (s->pad) pad_to_square(image, s->pad, r->mean, &now);
  const media_image start = now;
  failed = resize_to(&now, &start, s->w[0], s->h[0], r->filter, err);
  if (!failed && s->w[1]) failed = resize_to(&now, &start, s->w[1], s->h[1], r->filter, err);
  if (!failed && s->canvas_w) lay_on_canvas(&now, &start, s, r->size == SIZE_LISTED);
  if (!failed && s->columns) {
    const media_image *of = r->size == SIZE_TILES_AND_WHOLE ? &now : image;
    failed = resample(of, s->whole_w, s->whole_h, r->filter, &whole, err);
  }
  if (!failed && r->size == SIZE_CROP)
    add_planes(&now, (now.width - r->side) / 2, (now.height - r->side) / 2, r->side, r->side, values, out);
  else if (!failed && s->columns) {
    int64_t w = now.width / s->columns, h = now.height / s->rows;
    if (r->whole_first) add_planes(&whole, 0, 0, whole.width, whole.height, values, out);
    for (int64_t i = 0; i < s->columns * s->rows; i++)
      add_planes(&now, i % s->columns * w, i / s->columns * h, w, h, values, out);
    if (!r->whole_first) add_planes(&whole, 0, 0, whole.width, whole.height, values, out);
  } else if (!failed) add_planes(&now, 0, 0, now.width, now.height, values, out);
  if (now.rgb != start.rgb) media_image_free(&now);
  if (s->pad) free(start.rgb);
  media_image_free(&whole);
  return failed;
}

static void prepare_tiles(const image_sizes *s, const preprocess_rule *r, prepared_image *out) {
  *out = (prepared_image){.columns = s->columns, .rows = s->rows, .whole = r->whole_first ? 0 : s->columns * s->rows};
  out->at = xcalloc((size_t)(s->columns * s->rows + 1), sizeof *out->at);
}

int preprocess_sizes(int64_t width, int64_t height, const preprocess_rule *r, prepared_image *out, error *err) {
  image_sizes s;
  *out = (prepared_image){0};
  if (choose_image_sizes(width, height, r, &s, err)) return -1;
  prepare_tiles(&s, r, out);
  int64_t w = r->size == SIZE_CROP ? r->side : s.canvas_w ? s.canvas_w : s.w[s.w[1] != 0],
          h = r->size == SIZE_CROP ? r->side : s.canvas_h ? s.canvas_h : s.h[s.w[1] != 0];
  int64_t planes = 0;
  for (int64_t i = 0; i <= s.columns * s.rows; i++) {
    bool whole = s.columns && i == out->whole;
    add_planes(NULL, 0, 0, whole ? s.whole_w : s.columns ? w / s.columns : w,
               whole ? s.whole_h : s.columns ? h / s.rows : h, NULL, out);
    planes += out->at[i].width * out->at[i].height;
  }
  out->bytes = bytes_needed(width, height, &s, planes);
  return 0;
}

static float as_bf16(float x) { return (float)bf16_to_double(bf16_from_double((double)x)); }

static float normalised_byte(const preprocess_rule *r, int channel, int byte) {
  float mean = r->mean[channel], std = r->std[channel];
  if (!r->bf16) return ((float)((double)byte * (1 / 255.0)) - mean) / std;
  return as_bf16(as_bf16(as_bf16((float)byte * (float)(1 / 255.0)) - as_bf16(mean)) / as_bf16(std));
}

int preprocess_image(const media_image *image, const preprocess_rule *r, prepared_image *out, error *err) {
  image_sizes s;
  *out = (prepared_image){0};
  if (choose_image_sizes(image->width, image->height, r, &s, err)) return -1;
  float values[3][256];
  for (int c = 0; c < 3; c++)
    for (int v = 0; v < 256; v++) values[c][v] = normalised_byte(r, c, v);
  prepare_tiles(&s, r, out);
  int failed = resize_and_cut(image, r, &s, values, out, err);
  if (failed) prepared_image_free(out);
  return failed;
}

void prepared_image_free(prepared_image *p) {
  for (int64_t i = 0; i < p->n; i++) free(p->at[i].at);
  free(p->at);
  *p = (prepared_image){0};
}
