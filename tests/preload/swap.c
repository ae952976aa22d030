// Loaded before weft (LD_PRELOAD): when a file whose path ends with SWAP_AT is opened for the first time, another
// program's work is done: SWAP_FROM is renamed to SWAP_TO, or SWAP_TO is removed if SWAP_FROM is empty.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int opener(const char *path, int how, ...);

static void swap_once(const char *path) {
  const char *at = getenv("SWAP_AT"), *from = getenv("SWAP_FROM"), *to = getenv("SWAP_TO");
  size_t n = strlen(path), m = at ? strlen(at) : 0;
  static int done;
  if (!m || !from || !to || n < m || strcmp(path + n - m, at) || done++) return;
  if (*from ? rename(from, to) : unlink(to)) perror("swap");
}

static int open_as(const char *name, const char *path, int how, mode_t mode) {
  swap_once(path);
  void *found = dlsym(RTLD_NEXT, name);
  opener *next;
  memcpy(&next, &found, sizeof next);
  return next(path, how, mode);
}

static mode_t mode_of(int how, va_list more) { return how & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; }

int open(const char *path, int how, ...) {
  va_list more;
  va_start(more, how);
  mode_t mode = mode_of(how, more);
  va_end(more);
  return open_as("open", path, how, mode);
}

int open64(const char *path, int how, ...) {
  va_list more;
  va_start(more, how);
  mode_t mode = mode_of(how, more);
  va_end(more);
  return open_as("open64", path, how, mode);
}
