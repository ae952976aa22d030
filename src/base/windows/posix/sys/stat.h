// File states, with the identity of a file and its change time in nanoseconds.
#ifndef WEFT_WINDOWS_STAT_H
#define WEFT_WINDOWS_STAT_H
#include_next <sys/stat.h>
#include <time.h>
#include "base/windows/posix/posix.h"
struct posix_stat {
  uint64_t st_dev, st_ino, st_rdev;
  mode_t st_mode;
  uint32_t st_nlink;
  uid_t st_uid;
  gid_t st_gid;
  int64_t st_size, st_blocks;
  struct timespec st_atim, st_mtim, st_ctim;
};
int posix_stat(const char *path, struct posix_stat *st);
int posix_lstat(const char *path, struct posix_stat *st);
int fstatat(int folder, const char *name, struct posix_stat *st, int flags);
int posix_fstat(int fd, struct posix_stat *st);
int posix_mkdir(const char *path, mode_t mode);
int posix_futimens(int fd, const struct timespec times[2]);
int utimensat(int folder, const char *path, const struct timespec times[2], int flags);
mode_t posix_umask(mode_t mode);
#undef stat
#undef fstat
#undef st_atime
#undef st_mtime
#undef st_ctime
#define stat posix_stat
#define lstat posix_lstat
#define fstat posix_fstat
#define mkdir posix_mkdir
#define futimens posix_futimens
#define umask posix_umask
#define st_atime st_atim.tv_sec
#define st_mtime st_mtim.tv_sec
#define st_ctime st_ctim.tv_sec
#define AT_FDCWD (-100)
#define AT_SYMLINK_NOFOLLOW 0x100
#undef S_ISLNK
#undef S_ISSOCK
#define S_ISLNK(mode) (((mode) & 0xF000) == 0xA000)
#define S_ISSOCK(mode) false
#endif
