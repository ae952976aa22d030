// encoders: which mmproj file encodes pictures and sounds for a model. A file that was noted when both were fetched
// (store.h) is the one; else names decide, as people give them: a file of the model's folder whose name is the model's
// with "mmproj" and another type in it, or the folder's only one. Whether the two go together is for who opens them.
#ifndef WEFT_APP_ENCODERS_H
#define WEFT_APP_ENCODERS_H
#include "base/str.h"

// ONE: a user named this model, so an encoder beside it is meant for it. MANY: the folder has models of all kinds: an
// encoder that does not say whose it is belongs to the folder's only model, and to none of several.
enum encoder_search { ENCODER_OF_ONE, ENCODER_OF_MANY };
// path: empty if there is none. Returns how many files called *mmproj*.gguf are beside the model.
size_t encoder_find(const char *model, enum encoder_search how, str *path);

// How many bits a weight has, by the last word of a file's name: 4 of Q4_K_M, 16 of BF16; 0: it does not say.
int encoder_bits(const char *path);
#endif
