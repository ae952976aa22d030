// quant_recipe: the format of each tensor when a whole file is quantised to "Q4_K_M" or similar. Tensors whose errors
// cost most get more bits than the others; small ones and those that are not multiplied keep their format. The choices
// are llama.cpp's.
#ifndef WEFT_MIXTURE_H
#define WEFT_MIXTURE_H
#include "model/gguf.h"

typedef struct quant_recipe {
  uint32_t file_type;                      // its number in files; format_recipe_name has its name
  const struct format *base;               // of most tensors
} quant_recipe;
// "Q4_K_M" in any case, its number, or a short name ("Q4_K"). False: not a mixture that can be written.
bool quant_recipe_find(const char *name, quant_recipe *out);
bool quant_recipe_at(size_t i, quant_recipe *out);   // all of them, in turn; false: no more

typedef struct quant_recipe_wish {
  quant_recipe of;
  bool pure;                               // every tensor that can have the base format gets it
  bool leave_output;                       // output.weight stays as it is
  bool weighted;                           // importance weights are available
  const struct format *output, *embedding; // NULL: as the mixture says
} quant_recipe_wish;

typedef struct quant_recipe_choice {
  const struct format *format;             // the tensor's own format: it stays as it is
  bool misfit;                             // its rows are not whole blocks of the intended format
  bool needs_weights;                      // unusable without importance weights
} quant_recipe_choice;
// For n tensors of g in this order. manual[i]: a requested format, or NULL.
int quant_recipe_choose(const gguf *g, const quant_recipe_wish *w, const gguf_tensor *const *tensors,
                   const struct format *const *manual, size_t n, quant_recipe_choice *out, error *err);
#endif
