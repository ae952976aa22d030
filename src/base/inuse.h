// inuse: the files that this process is reading, so that it does not overwrite them. Files are identified by device and
// inode, so that links and other names are the same file.
#ifndef WEFT_INUSE_H
#define WEFT_INUSE_H
#include "base/base.h"

void inuse_note(const void *owner, int fd);            // the open file is in use until inuse_drop of the same owner
void inuse_drop(const void *owner);                    // drops all files of this owner
void inuse_move(const void *from, const void *to);     // moves the files of one owner to another
// -1, and err says so, if the file at the path is in use.
int inuse_refuse(const char *path, error *err);
// -1, and err says so, if both paths are the same file.
int inuse_refuse_one(const char *path, const char *read, error *err);
#endif
