// media_file: whether a GGUF file is an encoder of pictures or sound, which is used beside a model.
#ifndef WEFT_MEDIA_FILE_H
#define WEFT_MEDIA_FILE_H
#include "model/gguf.h"

struct model;

bool media_file_is_mmproj(const gguf *g);
// 0: it is not one. -1 and an error that says how it is used.
int media_file_is_model(const gguf *g, error *err);
// Whether rows of one of its encoders are as wide as those of a language model, n_embd. -1 and an error with the key.
int media_file_fits(const gguf *file, const struct model *encoder, int n_embd, error *err);
#endif
