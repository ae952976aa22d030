// A file that is written whole or not at all: under a name of its own beside the wanted one, which it takes when everything is on the disk.
// Until then nobody sees it, and what stood there before stays. (A pipe or a device that stands there already is written to as it is.)
#ifndef WEFT_NEWFILE_H
#define WEFT_NEWFILE_H
#include "base/base.h"

typedef struct newfile newfile;

// 0 and *out, for newfile_commit or newfile_discard; -1 and why not. Errors name the wanted file.
int newfile_open(const char *path, newfile **out, error *err);
int newfile_add(newfile *f, const void *bytes, size_t n, error *err);        // behind what was added before
uint64_t newfile_bytes(const newfile *f);                                    // added so far
// Writes what is left, waits for the disk, and gives the file its name. Frees f, and discards where that fails.
int newfile_commit(newfile *f, error *err);
void newfile_discard(newfile *f);                                            // removes what was written; NULL is fine
#endif
