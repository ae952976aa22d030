// model_files: the names of models by their files, and a stamp that tells when a file changes. Used by shelf.c.
#ifndef WEFT_MODEL_FILES_H
#define WEFT_MODEL_FILES_H
#include "base/str.h"

typedef VEC(char *) file_list;
// Sorted names in a folder, without hidden ones; files_free. False: it is not a readable folder.
bool files_in(const char *folder, file_list *out);
void files_free(file_list *l);
// Text of a file's name as UTF-8, for free(): names may have any bytes.
char *files_valid_name(const char *text, size_t n);
// "x.gguf" and "x-00001-of-00003.gguf": the length of x; 0: not the first part of a model.
size_t files_stem(const char *file);
char *files_name(const char *path);                    // a model's name by its path; for free()
// A hash of the metadata of a model's files, which changes if any is replaced, modified or added. path: of a GGUF file,
// or of a folder as transformers saves it.
uint64_t files_stamp(const char *path);
#endif
