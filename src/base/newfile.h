// A file that is written whole or not at all: under a name of its own beside the wanted one, which it takes when
// everything is on the disk. Until then nobody sees it, and what stood there before stays. (A pipe or a device that
// stands there already is written to as it is.) A file that this process reads is refused (inuse.h).
//
// A file that takes long to make may be left, in pieces, and taken up again: NAME.part has the bytes, NAME.part.pieces
// says for whom, and of each whole piece its length and hash. Pieces are checked before they count; all behind the
// first that is not as it was is made again.
#ifndef WEFT_NEWFILE_H
#define WEFT_NEWFILE_H
#include "base/base.h"

typedef struct newfile newfile;
#define NEWFILE_NO_NAME "the file to write has no name"

// 0 and *out, for newfile_commit or newfile_discard; -1 and why not. Errors name the wanted file.
int newfile_open(const char *path, newfile **out, error *err);
// newfile_open for a file that a program reads back. A pipe or a device of that name is refused: opening a pipe waits
// for its reader.
int newfile_open_regular(const char *path, newfile **out, error *err);
// newfile_open_regular for a file to be executed
int newfile_open_program(const char *path, newfile **out, error *err);
int newfile_add(newfile *f, const void *bytes, size_t n, error *err);        // behind what was added before
// As newfile_open, but begins with the pieces that an earlier run left. what: 64 characters that stand for all that the
// file depends on; pieces of anything else are dropped. Refused while another run has the file.
int newfile_resume(const char *path, const char *what, newfile **out, error *err);
bool newfile_kept(newfile *f, uint64_t n);             // the next piece is there, of n bytes: it counts as added
int newfile_piece(newfile *f, error *err);             // what was added since the last one is a piece
void newfile_leave(newfile *f);                        // ends; whole pieces stay for newfile_resume
const char *newfile_part(const newfile *f);            // where they are; NULL: nowhere
uint64_t newfile_bytes(const newfile *f);                                    // added so far
// Writes what is left, waits for the disk, and gives the file its name. Frees f, and discards where that fails.
int newfile_commit(newfile *f, error *err);
// A file that stays as it is was written now: its first byte is, again. (The sandbox lets no times be set: they could
// be those of any file that can be read.)
void newfile_touch(const char *path);
// 1: a regular file stands at the path and begins with these bytes (at most 16), -1: one that begins otherwise, 0: none
// does, or an empty one.
int newfile_begins(const char *path, const void *bytes, size_t n);
int newfile_whole(const char *path, const void *bytes, size_t n, error *err);           // all of that in one
void newfile_discard(newfile *f);                                            // removes what was written; NULL is fine
#endif
