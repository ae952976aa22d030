// preprocess: turns an image into an encoder's input, by the rules of the models' own image processors (transformers
// with Pillow). A rule is a row of a table: how the size is chosen, the filter, tiles, mean and deviation. A projector
// copies the row that it names and overwrites fields with the values of its file (side, patch, mean, ...). Resized
// bytes are identical to Pillow's; the floats are those of transformers.
#ifndef WEFT_PREPROCESS_H
#define WEFT_PREPROCESS_H
#include "media/media.h"
#include "media/resample.h"

enum size_rule {
  SIZE_STRETCH,              // to side x side, whatever the shape (gemma3, siglip)
  // multiples of patch x merge, min_pixels to max_pixels, aspect ratio nearly kept (qwen2-vl, qwen3-vl)
  SIZE_MULTIPLE,
  SIZE_BUDGET,  // the largest multiples of patch x merge within max_pixels, aspect ratio nearly kept (gemma4)
  SIZE_LONGEST,  // the longest edge is at most side; then rounded up to multiples of patch x merge (pixtral)
  SIZE_CROP,                 // the shortest edge is side; then the square in the centre (clip, llava)
  // padded with the mean to a square of the longest edge, then resized to side x side (llava 1.5)
  SIZE_PAD,
  // the longest edge is `longest`, cut into tiles of side; the whole image last (idefics3, SmolVLM)
  SIZE_TILES_AND_WHOLE,
  // multiples of patch x merge near the shape; of an image of more than twice max_pixels tiles by shape, the whole last
  SIZE_TILES_IF_LARGE,
  SIZE_TILES_BY_SHAPE,       // the grid of tiles nearest to the shape; the whole image last if more than 1 (internvl)
  // multiples of patch x merge near the shape, of about side x side pixels; an image with more pixels also has a grid
  // of slices of that kind (minicpm-v)
  SIZE_SLICES,
  // in the top left corner of a canvas of tiles, enlarged to side at most, black elsewhere; the whole image last, if
  // there is more than 1 tile (llama4)
  SIZE_CANVAS,
  // in the centre of the canvas of tiles that shows most of it, black elsewhere; the whole image first
  SIZE_LISTED,
  SIZE_NATIVE,               // original size, within max_pixels; padded with black to multiples of patch x merge (kimi)
};

typedef struct preprocess_rule {
  const char *name;
  enum size_rule size;
  enum resample_filter filter;
  int64_t side;                        // pixels, of the image or of a tile; SIZE_LONGEST: the limit
  int64_t longest;                     // SIZE_TILES_AND_WHOLE
  int64_t patch, merge;                // pixels of a patch's edge; patches of a token's edge
  int64_t min_pixels, max_pixels;      // SIZE_MULTIPLE, _TILES_IF_LARGE, _BUDGET; max: also _NATIVE
  // SIZE_MULTIPLE: edges shorter than a token first grow to it. CUT: both by the factor of the shorter one, without
  // their fractions. ROUNDED: the height, then the width; the other edge with it, rounded
  enum { GROW_NONE, GROW_CUT, GROW_ROUNDED } grow;
  // SIZE_TILES_BY_SHAPE, _IF_LARGE, not counting the whole image; max: also _SLICES, _CANVAS, _LISTED (0: unlimited)
  int64_t min_tiles, max_tiles;
  int64_t tile_tokens;                 // per image, whatever its size; 0: depends on the size
  bool whole_first;                    // the whole image comes before its tiles
  const int (*canvases)[2];            // SIZE_LISTED: {lines, columns} of tiles
  int n_canvases;
  bool bf16;                           // values are rounded to BF16 at each step
  float mean[3], std[3];               // for values 0 to 1: (value / 255 - mean) / std
} preprocess_rule;

const preprocess_rule *preprocess_rule_by_name(const char *name);  // NULL: unknown
const preprocess_rule *preprocess_rule_at(size_t i);               // NULL past the last
// --image-min-tokens and --image-max-tokens: a token is (patch x merge)^2 pixels. 0: unchanged. Rules with a fixed
// number of tokens are not changed. -1 and err: min is more than max, or too large.
int preprocess_limit_tokens(preprocess_rule *rule, int64_t min_tokens, int64_t max_tokens, error *err);

// One image of an encoder: three planes (red, green, blue) of height x width floats, [3][height][width].
typedef struct pixel_planes { int64_t width, height; float *at; } pixel_planes;
// n images: columns x rows tiles, row by row from the top left, and before or after them the whole image, at[whole];
// or, if columns and rows are 0, the image alone (n is 1). bytes, set by preprocess_sizes: the most memory that
// preprocess_image takes besides the image.
typedef struct prepared_image { pixel_planes *at; int64_t n, columns, rows, whole, bytes; } prepared_image;

// -1 and err: a shape that the model's own processor refuses, or a rule with sizes that are too large.
int preprocess_image(const media_image *image, const preprocess_rule *rule, prepared_image *out, error *err);
// The sizes alone, without pixels: every `at` is NULL.
int preprocess_sizes(int64_t width, int64_t height, const preprocess_rule *rule, prepared_image *out, error *err);
void prepared_image_free(prepared_image *p);     // frees the contents and zeroes the struct
#endif
