// mixture: which format each tensor of a file gets when the whole of it is to be "Q4_K_M" or the like.  Tensors for
// which errors cost most get more bits than the others; small ones and those that are no products keep what they have.
// The choices are llama.cpp's.
#ifndef WEFT_MIXTURE_H
#define WEFT_MIXTURE_H
#include "model/gguf.h"

typedef struct mixture {
  uint32_t file_type;                      // its number in files; format_mixture_name has its name
  const struct format *base;               // of most tensors
} mixture;
// "Q4_K_M" in any case, its number, or a short name ("Q4_K").  False: no such mixture that can be written.
bool mixture_find(const char *name, mixture *out);
bool mixture_at(size_t i, mixture *out);   // all of them, in turn; false: no more

typedef struct mixture_wish {
  mixture of;
  bool pure;                               // every tensor that can have the base format gets it
  bool leave_output;                       // output.weight stays as it is
  bool weighted;                           // it is known how much errors matter
  const struct format *output, *embedding; // NULL: as the mixture says
} mixture_wish;

typedef struct mixture_choice {
  const struct format *format;             // the tensor's own: it stays as it is
  bool misfit;                             // its rows are no whole blocks of what was to be
  bool needs_weights;                      // worthless without
} mixture_choice;
// For n tensors of g in this order.  manual[i]: a format that somebody asked for, or NULL.
int mixture_choose(const gguf *g, const mixture_wish *w, const gguf_tensor *const *tensors,
                   const struct format *const *manual, size_t n, mixture_choice *out, error *err);
#endif
