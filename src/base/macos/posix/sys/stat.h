// POSIX's names of file times.
#ifndef WEFT_MACOS_STAT_H
#define WEFT_MACOS_STAT_H
#include_next <sys/stat.h>
#define st_atim st_atimespec
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#endif
