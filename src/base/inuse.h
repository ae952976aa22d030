// inuse: which files this process reads at the moment, so that no writer of files writes over them. Files are
// told apart by device and number, so that links and other names are the same file.
#ifndef WEFT_INUSE_H
#define WEFT_INUSE_H
#include "base/base.h"

void inuse_note(const void *owner, int fd);            // an open file is read, until inuse_drop of the same owner
void inuse_drop(const void *owner);                    // of all that this owner noted
void inuse_move(const void *from, const void *to);     // what one owner noted is another one's
// -1, and err says so, if what stands at the path is read.
int inuse_refuse(const char *path, error *err);
// -1, and err says so, if both paths are one file.
int inuse_refuse_one(const char *path, const char *read, error *err);
#endif
