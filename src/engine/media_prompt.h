// media_prompt: pictures and sounds as ids of a prompt (media_prompt.c), for those who make prompts.
#ifndef WEFT_MEDIA_PROMPT_H
#define WEFT_MEDIA_PROMPT_H
#include "weft.h"

typedef VEC(int32_t) id_list;
// Adds the ids of its rows and of what its model has around them. pictures: of the prompt before it; a picture counts
// itself.
int medium_add_ids(const weft_medium *x, size_t *pictures, const weft_vocab *v, id_list *to, weft_error *err);
#endif
