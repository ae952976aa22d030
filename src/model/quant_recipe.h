// quant_recipe: which format each tensor of a file gets when the whole of it is to be "Q4_K_M" or the like.  Tensors
// for which errors cost most get more bits than the others; small ones and those that are no products keep what they
// have. The choices are llama.cpp's.
#ifndef WEFT_MIXTURE_H
#define WEFT_MIXTURE_H
#include "model/gguf.h"

typedef struct quant_recipe {
  uint32_t file_type;                      // its number in files; format_recipe_name has its name
  const struct format *base;               // of most tensors
} quant_recipe;
// "Q4_K_M" in any case, its number, or a short name ("Q4_K").  False: no such mixture that can be written.
bool quant_recipe_find(const char *name, quant_recipe *out);
bool quant_recipe_at(size_t i, quant_recipe *out);   // all of them, in turn; false: no more

typedef struct quant_recipe_wish {
  quant_recipe of;
  bool pure;                               // every tensor that can have the base format gets it
  bool leave_output;                       // output.weight stays as it is
  bool weighted;                           // it is known how much errors matter
  const struct format *output, *embedding; // NULL: as the mixture says
} quant_recipe_wish;

typedef struct quant_recipe_choice {
  const struct format *format;             // the tensor's own: it stays as it is
  bool misfit;                             // its rows are no whole blocks of what was to be
  bool needs_weights;                      // worthless without
} quant_recipe_choice;
// For n tensors of g in this order.  manual[i]: a format that somebody asked for, or NULL.
int quant_recipe_choose(const gguf *g, const quant_recipe_wish *w, const gguf_tensor *const *tensors,
                   const struct format *const *manual, size_t n, quant_recipe_choice *out, error *err);
#endif
