// store: the folder of models that were fetched, which is llama.cpp's where that is there.  Every name of a file in it
// is made here, of letters that mean nothing to a file system, whatever a server calls it.
#ifndef WEFT_STORE_H
#define WEFT_STORE_H
#include "base/str.h"

struct stored { char *name, *path; uint64_t bytes; int64_t changed; int parts, missing; bool partial; };
// name: of the file, without .gguf; path: of the first part; bytes: of all; changed: seconds since 1970; partial:
// something is still to come
typedef VEC(struct stored) stored_list;

int store_folder(str *out, error *err);              // which need not exist
int store_make(error *err);                          // so that it does
void store_list(stored_list *out);                   // sorted by name; store_free
void store_free(stored_list *l);
// The path for a file that is fetched.  -1: a name that cannot be.
int store_path(const char *name, str *out, error *err);
// The number of a name in the list, with .gguf or without; -1: there is none.
int store_find(const stored_list *l, const char *name);
int store_remove(const struct stored *s, error *err);        // all its parts, and what belongs to them
// "x-00002-of-00005.gguf": true, with 2 and 5, and the length of "x".
bool store_part(const char *name, int *part, int *parts, size_t *stem);
// Whether a file of this name, without its folder, encodes pictures or sound: "mmproj-F16.gguf", "gemma-3-mmproj.gguf".
bool store_is_encoder(const char *name);
// Whether both names of files in the folder of models begin with the same repository, USER_REPO_, as llama.cpp and
// store_path write it.
bool store_shares_repo(const char *model, const char *encoder);
// Notes which file encodes pictures and sounds for a model; NULL: none does.
int store_note_encoder(const char *model, const char *encoder, error *err);
// What was noted for the model with this path: `path` is the encoder's, or empty if the model has none. False: nothing
// was, or the encoder has gone.
bool store_encoder(const char *model, str *path);
bool store_holds(const char *path);                  // whether it is in the folder of models
// Notes where a file of the folder came from: several names may have one file here ("a/b_c" and "a_b/c"). again: it had
// come from elsewhere, and is the same.
int store_note_origin(const char *path, const char *origin, bool again, error *err);
// Whether it came from there, or from below it if `origin` ends with a slash; also true if no note is there, as of
// llama.cpp's. An empty note, as a full disk leaves it, is of no place.
#define STORE_ORIGIN ".from"          // what its note ends with
bool store_came_from(const char *path, const char *origin);
// What is noted beside a file under the ending: at most size - 1 bytes, with a NUL after them. 0: nothing.
size_t store_read_note(const char *path, const char *ending, char *to, size_t size);
#endif
