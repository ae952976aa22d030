// store: the folder of downloaded models, which is llama.cpp's if that exists. All names of files in it are made here,
// from characters without meaning to a file system, whatever name a server sends.
#ifndef WEFT_STORE_H
#define WEFT_STORE_H
#include "base/str.h"

struct stored { char *name, *path; uint64_t bytes; int64_t changed; int of, parts, missing; bool partial, folder; };
// name: the file's name without .gguf, and without a part's number unless versions in other numbers of parts are there,
// or the folder's; path: of the first part, or of the folder; bytes: of all parts; changed: seconds since 1970; of: the
// number of parts, 1 for one file, 0 for a folder; parts, missing: how many parts are there, and how many are not;
// partial: not completely downloaded; folder: as transformers saves it
typedef VEC(struct stored) stored_list;

int store_folder(str *out, error *err);              // the folder may not exist
int store_make(error *err);                          // creates the folder
void store_list(stored_list *out);                   // sorted by name; store_free
void store_free(stored_list *l);
// The path for a downloaded file. -1: the name is not allowed.
int store_path(const char *name, str *out, error *err);
// The path of a folder for a repository's files; both names are letters, digits, "-", "_" and ".".
int store_folder_path(const char *user, const char *repo, str *out, error *err);
// Creates a folder if it is not there. Until store_end_folder it counts as partial.
int store_begin_folder(const char *path, error *err);
// Creates the subfolder that a path of a file in such a folder may have.
int store_make_folder_of(const char *path, error *err);
// Reads all but name and path. False: no folder of the store.
bool store_read_folder(const char *path, struct stored *row);
int store_remove_folder(const char *path, error *err);
// Removes the folder's files that are not among `paths`, and notes its origin.
int store_end_folder(const char *path, const char *const *paths, size_t n, const char *origin, error *err);
// Keeps other programs from fetching or removing what is at `path` until store_unlock, by a lock on the file
// PATH.from.lock: several repositories may have one path here, and their files must not be mixed. -1: another program
// has it. *fd is -1 if the folder or the file system has no locks.
int store_lock(const char *path, int *fd, error *err);
// Waits while another program has the lock, and says so. -1 also if the user interrupts.
int store_lock_in_time(const char *path, int *fd, error *err);
void store_unlock(const char *path, int fd);
// The index of a name in the list, with or without .gguf; -1: absent.
int store_find(const stored_list *l, const char *name);
// Returns whether a model is here completely: a file, all parts of the one whose first part this is, or a folder.
bool store_is_whole(const char *path);
int store_remove(const struct stored *s, error *err);        // removes all parts, and the notes next to them
// "x-00002-of-00005.gguf": true, with 2 and 5, and the length of "x".
bool store_part(const char *name, int *part, int *parts, size_t *stem);
// Returns whether a file of this name, without its folder, is an encoder of pictures or sound: "mmproj-F16.gguf",
// "gemma-3-mmproj.gguf".
bool store_is_encoder(const char *name);
// Returns whether both file names in the folder begin with one repository, USER_REPO_, as llama.cpp and store_path
// write it.
bool store_shares_repo(const char *model, const char *encoder);
// Notes which file encodes pictures and sounds for a model; NULL: the model has none.
int store_note_encoder(const char *model, const char *encoder, error *err);
// Reads the note of the model with this path: `path` becomes the encoder's, or empty if the model has none. False: no
// note, or the encoder no longer exists, or it is another repository's. repo: as for store_is_encoder_of.
bool store_encoder(const char *model, const char *repo, str *path);
// False: the notes say that an encoder is of another repository than a model: two of them may have one file here. repo:
// the origin, without a file's name, by which the model was asked for, if it was; the file may have several.
bool store_is_encoder_of(const char *encoder, const char *model, const char *repo);
// Reads the first of a file's noted origins. False: none.
bool store_origin(const char *path, str *out);
bool store_holds(const char *path);                  // whether the path is in the folder
// Notes the origin of a file: several names may have one file here ("a/b_c" and "a_b/c"). again: the file had another
// origin and is equal.
int store_note_origin(const char *path, const char *origin, bool again, error *err);
// store_came_from: whether the file has this origin, or one below it if `origin` ends with a slash. Also true without a
// note, as for llama.cpp's files. An empty note, which a full disk leaves, matches no origin.
#define STORE_ORIGIN ".from"          // ending of the note's name
bool store_came_from(const char *path, const char *origin);
// Reads a note next to a file, by its ending: at most size - 1 bytes, and a NUL. 0: no note.
size_t store_read_note(const char *path, const char *ending, char *to, size_t size);
#endif
