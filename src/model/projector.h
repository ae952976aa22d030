// projector: encoders of pictures and sound. An mmproj file (general.architecture "clip") holds an encoder, a
// transformer over patches or frames, and a projector, which makes rows of a language model's embeddings of what leaves
// it. A type is a row of the table in projectors.c; the description is a `model` (model.h), so that parts, tensors and
// errors are those of language models. Nothing is computed here.
//
// Buffers of the graph: BUF_PATCHES (F32): pictures: `patches` rows of patch x patch x 3 pixels, channel by channel;
// sound: the spectrogram {mel, frames}; in chunks {frames, mel}, filled up with zeros. BUF_PLACES (I32, 3 x places): of
// each patch its row, its column and its window; see projector_lay_sound.
// BUF_HIDDEN (F32): the rows. See projector_lay.
#ifndef WEFT_PROJECTOR_H
#define WEFT_PROJECTOR_H
#include "graph/graph.h"
#include "model/gguf.h"

struct model;
enum medium { MEDIUM_PICTURE, MEDIUM_SOUND, MEDIUM_COUNT };
const char *medium_name(enum medium k);                          // "vision", "audio", as in files' keys

// How a language model sees the rows of one picture or sound.
enum span {
  SPAN_CAUSAL,               // as tokens
  SPAN_BOTH_WAYS,            // each sees all others of the picture; positions as of tokens
  SPAN_GRID                  // positions of three parts (M-RoPE): all rows of a picture have one time
};
// What a prompt has around the tiles of a picture and around the whole picture. NULL: nothing.
typedef struct projector_tiling {
  const char *first_tile;                // before the first one
  const char *tile, *after_tile;         // tile: %d is the row, the next %d the column, both from 1 on
  const char *next_column, *next_row;    // between tiles of a row, between rows
  const char *last_row;                  // behind the last row
  const char *whole, *after_whole;
} projector_tiling;

typedef struct projector_kind {
  const char *name;          // clip.projector_type
  int newest;                // the last clip.minicpmv_version of its files; 0: any, or files say none
  enum medium medium;
  enum span span;
  const projector_tiling *tiling;        // NULL: nothing
  const char *before, *after;            // texts with control tokens around it; NULL: none
  const char *numbered[2];   // texts around its number among the pictures of a prompt, from 0 on; NULL: it has none
  const char *between;       // and between the lines of a picture, each of which is a span of its own
  bool mirrored;             // a sound is followed by its reflection, not by silence
  bool gemma_mel;            // its spectrogram is Gemma's, of 30 seconds at most, not Whisper's
  const char *preprocess;    // how its model's own processor makes pixels, a row of the table in media/; NULL: a sound
  const struct projector_arch *arch;     // projectors.c
} projector_kind;

enum { PROJECTOR_CANVASES = 64, PROJECTOR_TILES = 64 /* of a canvas */ };
// What else the file says. Sizes in pixels, 0 where the file says nothing.
typedef struct projector_facts {
  int patch, merge;          // side of a patch; patches side by side that become one row
  int queries;               // rows of any picture, each of which reads all of its patches; 0: rows are patches
  int inner;                 // of these, so many side by side follow each other before the next ones; 0: it is a line
  int table;                 // places in a line of the table of positions
  int size;                  // side of the pictures that positions were learned for
  int most_patches;          // places in a line that it knows; 0: any number
  bool fixed;                // it takes pictures of size x size alone
  int window;                // pixels: side of a window of attention; 0: none
  int whole_every;           // every so many layers see all windows
  int merges_behind;         // the layer behind which squares of patches become one; -1: none
  // bins of a spectrogram, its frames (at most, if it is chunked), and rows that become one
  int mel, frames, stack;
  int chunk;                 // frames that are convolved by themselves; 0: a sound is as long as `frames`
  int halvings;              // so many times a convolution leaves every other one of them
  int chunk_window;          // rows of an encoder of chunks that see each other
  int preprocess_size, min_pixels, max_pixels, min_tiles, max_tiles;
  // tiles that a picture may be cut into, {lines, columns}, whose rows are joined line by line; 0: none are
  int n_canvases, canvases[PROJECTOR_CANVASES][2];
  bool padded;               // a picture is laid in a square first
  double mean[3], std[3];
} projector_facts;

// What the file has an encoder for: bits 1 << enum medium. -1 and an error: it is no mmproj file.
int projector_media(const gguf *file, unsigned *media, error *err);
// Of those the ones whose type is in the table.
unsigned projector_known(const gguf *file);
// Checks type, keys, tensor names, shapes and types, as model_open does; for model_close. The file must stay open.
int projector_open(const gguf *file, enum medium k, struct model **out, error *err);
const projector_kind *projector_kind_of(const struct model *m);
const projector_facts *projector_facts_of(const struct model *m);
// The row that ends each line of joined tiles, model_n_embd of them in the mapped file; NULL: there is none.
const float *projector_newline(const struct model *m);
bool projector_has_tensor(const projector_kind *k, const char *name);      // of a file with several encoders
const projector_kind *projector_at(size_t i);                    // the table; NULL past its end

// How a picture is fed. A picture of width x height pixels (multiples of patch x merge) is columns x lines squares of
// patches, which become `rows` rows: one for each square, or projector_facts.queries.
typedef struct projector_grid { int64_t columns, lines, squares, patches, rows; } projector_grid;
// 0, or -1 and an error with the numbers: not such multiples, or not of the fixed size.
int projector_grid_of(const struct model *m, int width, int height, projector_grid *out, error *err);
// Fills the buffers: the pixels of patches, in the order in which the encoder takes them (those of one row together,
// and those of one window), and their places, of which there are `places` in each part. order[i], i < squares: which
// square of the picture, line by line, the i-th one is. pixels: three planes of width x height.
void projector_lay(const struct model *m, const projector_grid *grid, const float *pixels, float *patches,
                   int32_t *places, int64_t n_places, int32_t *order);

// A spectrogram {mel, frames} of a chunked sound, whose squares are chunks: frames line by line, the last chunk filled
// up. The places of a row that a chunk becomes before the encoder: where chunks are halved once or become one row, how
// many of its frames are the sound's; 0; its window, -1 behind the end of the sound.
void projector_grid_of_sound(const struct model *m, int frames, projector_grid *out);
void projector_lay_sound(const struct model *m, const projector_grid *grid, int frames, const float *mel,
                         float *patches, int32_t *places, int64_t n_places);

// Finds the tensors of halves (F16) whose elements all are numbers of BF16, as those of models that were published in
// BF16 are: graphs made from now on multiply by them as by BF16. For machines that have instructions for that.
void projector_find_bf16(struct model *m);
int64_t projector_rows(const struct model *m);                   // of what has a fixed size; 0: sizes differ
// squares: of patches, at most; a picture of another size has variable "n" of them, unless the size is fixed.
typedef struct projector_shape { int64_t squares; bool exact; } projector_shape;
int64_t projector_places(const struct model *m, int64_t squares);          // of each part of BUF_PLACES
int64_t projector_input(const struct model *m, int64_t squares);           // elements of BUF_PATCHES
int64_t projector_output(const struct model *m, int64_t squares);          // rows of BUF_HIDDEN
uop *projector_graph(const struct model *m, graph *g, const projector_shape *s);
#endif
