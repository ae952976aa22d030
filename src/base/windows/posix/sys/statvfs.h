// Free disk space.
#ifndef WEFT_WINDOWS_STATVFS_H
#define WEFT_WINDOWS_STATVFS_H
#include <stdint.h>
struct statvfs { uint64_t f_bavail, f_frsize; };
int fstatvfs(int fd, struct statvfs *out);
int statvfs(const char *path, struct statvfs *out);
#endif
