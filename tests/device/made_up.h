// Files of made-up machines, in a folder of their own.
#ifndef WEFT_TESTS_MADE_UP_H
#define WEFT_TESTS_MADE_UP_H
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// A file below root, whose folders are made if they have to be.
static inline void made_up(const char *root, const char *path, const char *text) {
  char whole[512];
  for (const char *at = path; (at = strchr(at + 1, '/'));) {
    snprintf(whole, sizeof whole, "%s%.*s", root, (int)(at - path), path);
    mkdir(whole, 0700);
  }
  snprintf(whole, sizeof whole, "%s%s", root, path);
  FILE *f = fopen(whole, "we");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}
#endif
