// Loaded before weft (LD_PRELOAD): /proc/meminfo is what MEMINFO says, where it says something.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef FILE *opener(const char *path, const char *how);

static FILE *open_as(const char *name, const char *path, const char *how) {
  char *text = getenv("MEMINFO");
  if (text && *text && !strcmp(path, "/proc/meminfo")) return fmemopen(text, strlen(text), "r");
  void *found = dlsym(RTLD_NEXT, name);
  opener *next;
  memcpy(&next, &found, sizeof next);
  return next(path, how);
}

FILE *fopen(const char *path, const char *how) { return open_as("fopen", path, how); }
FILE *fopen64(const char *path, const char *how) { return open_as("fopen64", path, how); }
