// A file in memory that can be mapped: what an input begins with, and behind it numbers that are small as floats of any
// width, as much as any head asks for.
#ifndef WEFT_FUZZ_MEMORY_FILE_H
#define WEFT_FUZZ_MEMORY_FILE_H
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/base.h"

typedef struct memory_file {
  unsigned char *at;
  size_t n;
  char path[64];           // for what opens it by a name
} memory_file;

static inline void memory_file_fill(const memory_file *f, size_t from, size_t to) {
  for (size_t i = from; i < to; i++)
    f->at[i] = i % 2 ? (unsigned char)(0x30 + i / 2 % 11) : (unsigned char)(i * 37 + i / 4096);
}

static inline void memory_file_make(memory_file *f, size_t n) {
  int fd = memfd_create("file", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)n)) die("no memory for a file");
  void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) die("the file cannot be mapped");
  f->at = at;
  f->n = n;
  memory_file_fill(f, 0, n);
  snprintf(f->path, sizeof f->path, "/proc/self/fd/%d", fd);
}

// The first bytes; memory_file_fill(f, 0, n) takes them away again.
static inline void memory_file_begin(const memory_file *f, const void *head, size_t n) {
  if (n) memcpy(f->at, head, n);
}
#endif
