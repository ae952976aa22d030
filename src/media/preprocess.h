// preprocess: a picture as an encoder takes it, by the rules of the models' own image processors (transformers' with
// Pillow). A rule is a row of a table: how the size is chosen, the filter, tiles, mean and deviation. A projector
// copies the row that it names and writes over it what its file says (side, patch, mean, ...).
// Resizing is Pillow's, bit for bit in bytes; the floats are those of transformers.
#ifndef WEFT_PREPROCESS_H
#define WEFT_PREPROCESS_H
#include "media/media.h"
#include "media/resample.h"

enum size_rule {
  SIZE_STRETCH,              // to side x side, whatever the shape (gemma3, siglip)
  // multiples of patch x merge, min_pixels to max_pixels, shape kept nearly (qwen2-vl, qwen3-vl)
  SIZE_MULTIPLE,
  SIZE_BUDGET,               // the largest multiples of patch x merge within max_pixels, shape kept nearly (gemma4)
  SIZE_LONGEST,              // the longest edge is at most side; then up to multiples of patch x merge (pixtral)
  SIZE_CROP,                 // the shortest edge is side; then the square in the centre (clip, llava)
  // a square as large as the longest edge, filled with the mean, then side x side (llava 1.5)
  SIZE_PAD,
  // longest edge is longest, cut into tiles of side; the whole picture last (idefics3, SmolVLM)
  SIZE_TILES_AND_WHOLE,
  SIZE_TILES_BY_SHAPE,       // the grid of tiles nearest to the shape; the whole picture last if more than 1 (internvl)
  // multiples of patch x merge near the shape, of about side x side pixels; of a picture that has more pixels also a
  // grid of slices of that kind (minicpm-v)
  SIZE_SLICES,
  // in the top left corner of a canvas of tiles, enlarged to side at most, and black beside; the whole picture last, if
  // there are more tiles than 1 (llama4)
  SIZE_CANVAS,
  // in the centre of that one of some canvases of tiles that shows most of it, black beside; the whole picture first
  SIZE_LISTED,
  SIZE_NATIVE,               // as it is, within max_pixels; black beside up to multiples of patch x merge (kimi)
};

typedef struct preprocess_rule {
  const char *name;
  enum size_rule size;
  enum resample_filter filter;
  int64_t side;                        // pixels, of the picture or of a tile; SIZE_LONGEST: the limit
  int64_t longest;                     // SIZE_TILES_AND_WHOLE
  int64_t patch, merge;                // pixels of a patch's edge; patches of a token's edge
  int64_t min_pixels, max_pixels;      // SIZE_MULTIPLE, SIZE_BUDGET; max: also SIZE_NATIVE
  bool grown;                          // SIZE_MULTIPLE: edges shorter than a token grow to it first, both by the same
  // SIZE_TILES_BY_SHAPE; max: also _SLICES, _CANVAS, _LISTED (0: any number); without the whole picture
  int64_t min_tiles, max_tiles;
  int64_t tile_tokens;                 // of each picture, whatever its size; 0: it follows from the size
  bool whole_first;                    // the whole picture stands before its tiles
  const int (*canvases)[2];            // SIZE_LISTED: {lines, columns} of tiles
  int n_canvases;
  bool bf16;                           // values are rounded to BF16 at each step
  float mean[3], std[3];               // of values 0 to 1: (value / 255 - mean) / std
} preprocess_rule;

const preprocess_rule *preprocess_rule_by_name(const char *name);  // NULL: there is none
const preprocess_rule *preprocess_rule_at(size_t i);               // NULL past the last
// --image-min-tokens and --image-max-tokens: a token is (patch x merge)^2 pixels. 0: as it is. Rules with a fixed
// number of tokens are not changed. -1 and err: min is more than max, or too large.
int preprocess_limit_tokens(preprocess_rule *rule, int64_t min_tokens, int64_t max_tokens, error *err);

// One image of an encoder: three planes (red, green, blue) of height x width floats, [3][height][width].
typedef struct pixel_planes { int64_t width, height; float *at; } pixel_planes;
// n images: columns x rows tiles, row by row from the top left, and behind or before them the whole picture, at[whole];
// or, if columns and rows are 0, the picture alone (n is 1).
// bytes: preprocess_sizes: what preprocess_image takes beside the picture at most.
typedef struct prepared_image { pixel_planes *at; int64_t n, columns, rows, whole, bytes; } prepared_image;

// -1 and err: a shape that the model's own processor refuses, or a rule with sizes that are too large.
int preprocess_image(const media_image *image, const preprocess_rule *rule, prepared_image *out, error *err);
// The sizes alone, without pixels: every `at` is NULL.
int preprocess_sizes(int64_t width, int64_t height, const preprocess_rule *rule, prepared_image *out, error *err);
void prepared_image_free(prepared_image *p);     // what it holds; zeroes it
#endif
