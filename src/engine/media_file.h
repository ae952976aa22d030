// media_file: is a GGUF file an encoder of pictures or sound, to be used with a model?
#ifndef WEFT_MEDIA_FILE_H
#define WEFT_MEDIA_FILE_H
#include "model/gguf.h"

struct model;

bool media_file_is_mmproj(const gguf *g);
// Returns 0 if it is not; -1 and an error that says how to use it.
int media_file_is_model(const gguf *g, error *err);
// Do the rows of its encoders have the language model's width, n_embd? Returns -1 and an error with the key.
int media_file_fits(const gguf *file, const struct model *encoder, int n_embd, error *err);
#endif
