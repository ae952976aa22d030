// Folders, which have descriptors here too.
#ifndef WEFT_WINDOWS_DIRENT_H
#define WEFT_WINDOWS_DIRENT_H
#include "base/windows/posix/posix.h"
enum { DT_UNKNOWN = 0, DT_DIR = 4, DT_REG = 8, DT_LNK = 10 };
struct dirent { unsigned char d_type; char d_name[780]; };
typedef struct posix_folder DIR;
DIR *opendir(const char *path);
DIR *fdopendir(int fd);                // takes ownership of the descriptor
struct dirent *readdir(DIR *d);
int dirfd(DIR *d);
int closedir(DIR *d);
#endif
