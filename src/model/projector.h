// projector: encoders of images and sound. An mmproj file (general.architecture "clip") holds an encoder, which is a
// transformer over patches or frames, and a projector, which turns the encoder's output into rows of a language model's
// embedding. A type is a row of the table in projectors.c; the description is a `model` (model.h), so that parts,
// tensors and errors are those of language models. Nothing is computed here.
//
// Buffers of the graph. BUF_PATCHES (F32): for images `patches` rows of patch x patch x 3 pixels, channel by channel;
// for sound the spectrogram {mel, frames}, or for chunked sound {frames, mel}, padded with zeros. BUF_PLACES (I32, 3 x
// places): row, column and window of each patch; for sound see projector_lay_sound. BUF_HIDDEN (F32): the resulting
// rows. See projector_lay.
#ifndef WEFT_PROJECTOR_H
#define WEFT_PROJECTOR_H
#include "graph/graph.h"
#include "model/gguf.h"

struct model;
enum medium { MEDIUM_PICTURE, MEDIUM_SOUND, MEDIUM_COUNT };
const char *medium_name(enum medium k);                          // "vision", "audio", as in the keys of files

// How the rows of one image or sound see each other.
enum span {
  SPAN_CAUSAL,               // as tokens do
  SPAN_BOTH_WAYS,            // each sees all others of the image; positions as for tokens
  SPAN_GRID                  // three positions per row (M-RoPE); all rows of an image have the same time
};
// The text around the tiles of an image and around the whole image. NULL: none.
typedef struct projector_tiling {
  const char *first_tile;                // before the first one
  const char *tile, *after_tile;         // tile: %d is the row, the next %d the column, both from 1 on
  const char *next_column, *next_row;    // between tiles of a row, between rows
  const char *last_row;                  // after the last row
  const char *whole, *after_whole;
  bool whole_of_tiles;                   // an image that is not cut has no such text
} projector_tiling;

typedef struct projector_kind {
  const char *name;          // clip.projector_type
  int newest;                // the last clip.minicpmv_version of its files; 0: any, or not in the files
  enum medium medium;
  enum span span;
  const projector_tiling *tiling;        // NULL: no tiles
  const char *before, *after;            // text with control tokens around it; NULL: none
  const char *numbered[2];   // text around its number among the images of a prompt, from 0 on; NULL: no number
  const char *between;       // between the lines of an image, each of which is a span of its own
  bool mirrored;             // a sound is padded with its reflection, not with silence
  int beyond;                // frames of silence after a sound that are convolved with its last ones
  bool gemma_mel;            // the spectrogram is Gemma's, of at most 30 seconds, not Whisper's
  const char *preprocess;    // the preprocessing of images, a row of the table in media/; NULL: a sound
  const struct projector_arch *arch;     // projectors.c
} projector_kind;

enum { PROJECTOR_CANVASES = 64, PROJECTOR_TILES = 64 /* per canvas */ };
// Further facts of the file. Sizes in pixels, 0 if the file does not have them.
typedef struct projector_facts {
  int patch, merge;          // side of a patch; patches per side that are merged into one row
  int queries;               // rows of any image, if they are not its squares; 0: they are
  int inner;                 // this many neighbours precede the next line; 0: a whole line
  int table;                 // places per line of the table of positions
  int size;                  // side of the images that positions were learned for
  int most_patches;          // most places per line; 0: unlimited
  bool fixed;                // only images of size x size
  int window;                // pixels: side of a window of attention; 0: none
  int whole_every;           // every this many layers attention is over all windows
  int merge_after;         // the layer after which squares of patches are merged; -1: none
  // bins of a spectrogram, its frames (at most, if it is chunked), and rows that are merged into one
  int mel, frames, stack;
  int chunk;                 // frames that are convolved together; 0: a sound has `frames`
  int halvings;              // convolutions that halve the number of frames
  int chunk_window;          // rows of an encoder of chunks that see each other
  int preprocess_size, min_pixels, max_pixels, min_tiles, max_tiles;
  // tilings for images, {lines, columns}, whose rows are joined line by line; 0: none
  int n_canvases, canvases[PROJECTOR_CANVASES][2];
  bool padded;               // an image is padded to a square first
  double mean[3], std[3];
} projector_facts;

// The media that the file has an encoder for: bits 1 << enum medium. -1 and an error: not an mmproj file.
int projector_media(const gguf *file, unsigned *media, error *err);
// The media among them whose type is in the table.
unsigned projector_known(const gguf *file);
// Checks type, keys, tensor names, shapes and types, as model_open does; close it with model_close. The file must stay
// open.
int projector_open(const gguf *file, enum medium k, struct model **out, error *err);
const projector_kind *projector_kind_of(const struct model *m);
const projector_facts *projector_facts_of(const struct model *m);
// The row that ends each line of joined tiles, model_n_embd elements in the mapped file; NULL: none.
const float *projector_newline(const struct model *m);
bool projector_has_tensor(const projector_kind *k, const char *name);      // in a file with several encoders
const projector_kind *projector_at(size_t i);                    // the table; NULL past its end

// How an image is fed. An image of width x height pixels (multiples of patch x merge) has columns x lines squares of
// patches, which become `rows` rows: one per square, or projector_facts.queries.
typedef struct projector_grid { int64_t columns, lines, squares, patches, rows; } projector_grid;
// Returns 0, or -1 and an error with the numbers if they are not such multiples, or not the fixed size.
int projector_grid_of(const struct model *m, int width, int height, projector_grid *out, error *err);
// Fills the buffers: the pixels of patches, in the encoder's order (those of one row are contiguous, and those of one
// window), and their places, n_places for each part. order[i], i < squares: the square of the image, counted line by
// line, at place i. pixels: three planes of width x height.
void projector_lay(const struct model *m, const projector_grid *grid, const float *pixels, float *patches,
                   int32_t *places, int64_t n_places, int32_t *order);

// The grid of a chunked sound's spectrogram {mel, frames}, whose squares are chunks: frames one after another, the
// last chunk padded. projector_kind.beyond are among the frames. The places of a row before the encoder: the number of
// its frames that belong to the sound, if chunks are halved once or become one row; 0; its window, -1 after the end of
// the sound.
void projector_grid_of_sound(const struct model *m, int frames, projector_grid *out);
void projector_lay_sound(const struct model *m, const projector_grid *grid, int frames, const float *mel,
                         float *patches, int32_t *places, int64_t n_places);

// Finds F16 tensors whose elements are all exact in BF16, as in models that were published in BF16: graphs made from
// now on multiply them as BF16. For machines with BF16 instructions.
void projector_find_bf16(struct model *m);
int64_t projector_rows(const struct model *m);                   // if the number of rows is fixed; 0: it varies
// squares: of patches, at most; images of other sizes have variable "n" of them, unless the size is fixed.
typedef struct projector_shape { int64_t squares; bool exact; } projector_shape;
int64_t projector_places(const struct model *m, int64_t squares);          // of each part of BUF_PLACES
int64_t projector_input(const struct model *m, int64_t squares);           // elements of BUF_PATCHES
int64_t projector_output(const struct model *m, int64_t squares);          // rows of BUF_HIDDEN
uop *projector_graph(const struct model *m, graph *g, const projector_shape *s);
#endif
