// Private to the projectors' files: a type's own keys, tensors and graph. See projector.h.
#ifndef WEFT_PROJECTOR_IMPL_H
#define WEFT_PROJECTOR_IMPL_H
#include "model/model_impl.h"

typedef struct projector_arch {
  arch layers;               // flags and activation; its name is the prefix of keys
  const arch *bare;          // the same for files whose norms have no bias; NULL: `layers`
  bool exact_gelu;           // clip.use_gelu means GELU by erf; otherwise by tanh
  bool own_act;              // ignores the file's keys for GELU and SiLU
  bool sized_by_tensor;      // feed_forward_length belongs to another part of the model: the size is the tensor's
  const char *last;          // the matrix whose rows are the output length, if projection_dim is another number
  bool turns;  // heads rotate by line and column, with frequencies of `base`; there may be learned positions as well
  double base;
  bool alternate;            // pairs rotate by line and column alternately, not in halves
  bool columns_first;        // the first half of the rotated pairs uses columns, not lines
  bool from_one;             // lines and columns count from 1; rows that are not patches do not rotate
  bool odd_columns;          // lines use the even frequencies, columns the odd ones
  // a class row, which is not a patch, is part of the encoder: its embedding is added to this row of the position table
  enum class_row { CLASS_NONE, CLASS_FIRST, CLASS_LAST } class_row;
  // which images the table of positions is for. SQUARE: of the size with one row per patch. STRETCHED, LINEAR, SMOOTH,
  // CUBIC, NEAREST: of any size; the table is stretched. STRETCHED: two rows in each direction are interpolated, and
  // the table's corners are those of the image. LINEAR: its edges are; SMOOTH: and each row of a larger table counts.
  // CUBIC: four rows; NEAREST: one. AXES: a table for columns followed by one for lines. NONE: no table
  enum positions {
    POSITIONS_SQUARE,
    POSITIONS_STRETCHED,
    POSITIONS_LINEAR,
    POSITIONS_SMOOTH,
    POSITIONS_CUBIC,
    POSITIONS_NEAREST,
    POSITIONS_AXES,
    POSITIONS_NONE
  } positions;
  bool perhaps_placed;       // some files have no table of positions
  bool doubled;              // pixels of 0 to 1 are mapped to -1 to 1
  int pools;                 // this many frames are averaged before the last norm; 0: none
  tensor *(*chunks)(build *b, uop *chunks);      // for a chunked sound: the input of the encoder, {T, n_embd}
  int (*load)(loader *l);    // keys and tensors besides the encoder's layers
  tensor *(*whole)(build *b);  // an encoder that is not a transformer, from pixels to rows: load reads everything
  // for a conformer: what each layer does before its attention
  tensor *(*before)(build *b, const layer *y, tensor *x);
  // applied to each layer's output; may be NULL. It may reduce b->T
  tensor *(*behind)(build *b, const layer *y, tensor *x);
  tensor *(*graph)(build *b, tensor *x);         // from the encoder's output {T, n_embd} to rows {T / merge^2, ..}
} projector_arch;

tensor *place_of(const build *b, int which, uop *n);              // vit.c: {n} of BUF_PLACES
tensor *chunk_frames(build *b, uop *chunks);                      // projector.c: two convolutions of each chunk
tensor *chunk_squares(build *b, uop *chunks);                     // three convolutions, over frames and bins
tensor *chunked_input(const build *b, uop *chunks);               // {chunks, frames per chunk, mel}

tensor *picture_input(const build *b);                            // {patches, channels, lines, columns}, flat

// mobilenet.c
int mobilenet_load(loader *l);
tensor *mobilenet_graph(build *b);

// conformer.c
extern const part part_conformer;
int conformer_load(loader *l);
tensor *conformer_frames(build *b, uop *chunks);
tensor *conformer_before(build *b, const layer *y, tensor *x);
tensor *conformer_behind(build *b, const layer *y, tensor *x);
tensor *conformer_graph(build *b, tensor *x);
#endif
