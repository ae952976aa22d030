// media_prompt: converts pictures and sounds to ids of a prompt (media_prompt.c).
#ifndef WEFT_MEDIA_PROMPT_H
#define WEFT_MEDIA_PROMPT_H
#include "weft.h"

typedef VEC(int32_t) id_list;
// Adds the ids of its rows and of the text around them. pictures: number of pictures before it in the prompt; a picture
// increments it.
int medium_add_ids(const weft_medium *x, size_t *pictures, const weft_vocab *v, id_list *to, weft_error *err);
#endif
