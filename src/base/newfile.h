// newfile: a file that is written completely or not at all. It has a temporary name next to the wanted one and is
// renamed when everything is on the disk. Until then it is not visible, and an existing file stays. (An existing pipe
// or device is written to directly.) A file that this process is reading is refused (inuse.h).
//
// A file that takes long to make can be interrupted and resumed, in pieces: NAME.part has the bytes, NAME.part.pieces
// identifies the job and lists the length and hash of each complete piece. Pieces are checked before they are reused;
// from the first damaged one on, all are made again.
#ifndef WEFT_NEWFILE_H
#define WEFT_NEWFILE_H
#include "base/base.h"

typedef struct newfile newfile;
#define NEWFILE_NO_NAME "the file to write has no name"

// Returns 0 and *out, for newfile_commit or newfile_discard; or -1 and the reason. Errors name the wanted file.
int newfile_open(const char *path, newfile **out, error *err);
// newfile_open for a file that a program reads back. An existing pipe or device is refused: opening a pipe waits for
// its reader.
int newfile_open_regular(const char *path, newfile **out, error *err);
// newfile_open_regular for a file to be executed
int newfile_open_program(const char *path, newfile **out, error *err);
int newfile_add(newfile *f, const void *bytes, size_t n, error *err);        // appends
// newfile_open that continues with the pieces of an earlier run. what: 64 characters that identify everything that the
// file depends on; pieces of another job are dropped. Refused while another run has the file.
int newfile_resume(const char *path, const char *what, newfile **out, error *err);
bool newfile_kept(newfile *f, uint64_t n);             // the next piece exists and has n bytes: it counts as added
int newfile_piece(newfile *f, error *err);             // everything added since the last piece becomes a piece
void newfile_leave(newfile *f);                        // closes; complete pieces stay for newfile_resume
const char *newfile_part(const newfile *f);            // the path of the pieces; NULL: none
// Writes the rest, waits for the disk, and renames the file. Frees f; discards the file on failure.
int newfile_commit(newfile *f, error *err);
// Marks an unchanged file as recently used by writing its first byte again. (The sandbox does not allow setting times,
// which could be applied to any readable file.)
void newfile_touch(const char *path);
// 1: a regular file at the path begins with these bytes (at most 16), -1: it begins with others, 0: no such file, or an
// empty one.
int newfile_begins(const char *path, const void *bytes, size_t n);
// newfile_open, newfile_add and newfile_commit in one
int newfile_whole(const char *path, const void *bytes, size_t n, error *err);
// newfile_whole for a small file beside another one, such as MODEL.etag: no option names it, so a link, folder, pipe or
// device in its place is refused. If it had a second name (a hard link), the file of that name stays as it was.
int newfile_note(const char *path, const void *bytes, size_t n, error *err);
// Whether a file or folder is being fetched, or was fetched in part: the note PATH.from beside it is empty
// (app/store.h). Links are followed.
bool newfile_is_partial(const char *path);
// Removes what was written; NULL is fine. Like the functions above, it leaves errno as the failure set it.
void newfile_discard(newfile *f);
#endif
