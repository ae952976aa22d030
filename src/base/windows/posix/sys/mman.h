// Memory and memory-mapped files.
#ifndef WEFT_WINDOWS_MMAN_H
#define WEFT_WINDOWS_MMAN_H
#include "base/windows/posix/posix.h"
enum { PROT_NONE = 0, PROT_READ = 1, PROT_WRITE = 2, PROT_EXEC = 4 };
enum { MAP_PRIVATE = 2, MAP_ANONYMOUS = 32, MAP_NORESERVE = 64 };
enum { MADV_WILLNEED = 3, MADV_DONTNEED = 4 };
#define MAP_FAILED ((void *)-1)
void *mmap(void *at, size_t n, int rights, int how, int fd, off_t from);
int munmap(void *at, size_t n);                        // whole mappings only
int mprotect(void *at, size_t n, int rights);
int madvise(void *at, size_t n, int what);             // does nothing and returns 0
#endif
