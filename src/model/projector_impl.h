// What the files of projectors share: a type's own keys, tensors and graph. See projector.h.
#ifndef WEFT_PROJECTOR_IMPL_H
#define WEFT_PROJECTOR_IMPL_H
#include "model/model_impl.h"

typedef struct projector_arch {
  arch layers;               // flags and activation; its name is what keys begin with
  const arch *bare;          // the same of files whose norms have no bias; NULL: as `layers`
  bool exact_gelu;           // clip.use_gelu means GELU by erf; otherwise by tanh
  bool own_act;              // whatever the file says of GELU and SiLU
  bool sized_by_tensor;      // feed_forward_length is that of another part of the model: the tensor says its size
  const char *last;          // the matrix that says how long a row is, where projection_dim is another number
  bool turns;                // heads turn by line and column, with frequencies of `base`; positions may be learned too
  double base;
  bool alternate;            // pairs turn by one place and by the other in turn, not in halves
  bool columns_first;        // the first half of what turns does so by columns, not by lines
  bool from_one;             // lines and columns are counted from 1 on; what is no patch does not turn
  bool odd_columns;          // of all frequencies lines have the even ones, and columns the odd ones
  // a row that is no patch takes part in the encoder: its embedding is added to this row of the table of positions
  enum class_row { CLASS_NONE, CLASS_FIRST, CLASS_LAST } class_row;
  // which pictures the table of positions is for. SQUARE: of the size that it has a row for each patch of. STRETCHED,
  // CUBIC, NEAREST: of any size, over which it is stretched, with two rows, four or one of it in each direction.
  // AXES: a table for columns and one for lines, behind it. NONE: there is no table
  enum positions {
    POSITIONS_SQUARE,
    POSITIONS_STRETCHED,
    POSITIONS_CUBIC,
    POSITIONS_NEAREST,
    POSITIONS_AXES,
    POSITIONS_NONE
  } positions;
  bool perhaps_placed;       // some files have no table of positions
  bool doubled;              // it reads pixels of 0 to 1 as -1 to 1
  int pools;                 // so many frames become their mean before the last norm; 0: none
  tensor *(*chunks)(build *b, uop *chunks);      // of a chunked sound: what enters the encoder, {T, n_embd}
  int (*load)(loader *l);    // keys and tensors besides the encoder's layers
  tensor *(*whole)(build *b);          // an encoder that is no transformer, from the pixels to the rows: load has all
  // of a conformer: what each layer does before its attention
  tensor *(*before)(build *b, const layer *y, tensor *x);
  // what goes on from what leaves each layer; may be NULL. b->T may become fewer rows
  tensor *(*behind)(build *b, const layer *y, tensor *x);
  tensor *(*graph)(build *b, tensor *x);         // from what leaves the encoder {T, n_embd} to rows {T / merge^2, ..}
} projector_arch;

tensor *place_of(const build *b, int which, uop *n);              // vit.c: {n} of BUF_PLACES
tensor *chunk_frames(build *b, uop *chunks);                      // projector.c: two convolutions of each chunk
tensor *chunk_squares(build *b, uop *chunks);                     // three, over frames and bins
tensor *chunked_input(const build *b, uop *chunks);               // {chunks, frames of one, mel}

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
