// Files of models in folders: see model_files.h.
#define _GNU_SOURCE
#include "serve/model_files.h"
#include "base/stamp.h"
#include "weft.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int by_string(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

void files_free(file_list *l) {
  for (size_t i = 0; i < l->n; i++) free(l->at[i]);
  vec_free(l);
}

bool files_in(const char *folder, file_list *out) {
  DIR *d = opendir(folder);
  if (!d) return false;
  for (struct dirent *e; (e = readdir(d));) if (*e->d_name != '.') vec_push(out, xstrdup(e->d_name));
  closedir(d);
  if (out->n) qsort(out->at, out->n, sizeof *out->at, by_string);
  return true;
}

char *files_valid_name(const char *text, size_t n) {
  char *copy = xmalloc(n + 1);
  memcpy(copy, text, n);
  copy[n] = 0;
  char *valid = weft_utf8(copy, n, &n);
  free(copy);
  return valid;
}

size_t files_stem(const char *file) {
  static const char end[] = ".gguf";
  size_t n = strlen(file);
  int part, parts, used = 0;
  if (n < sizeof end || strcmp(file + n - (sizeof end - 1), end)) return 0;
  n -= sizeof end - 1;
  if (n <= 15 || sscanf(file + n - 15, "-%5d-of-%5d.%n", &part, &parts, &used) != 2 || used != 16) return n;
  return part == 1 ? n - 15 : 0;
}

char *files_name(const char *path) {
  const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
  size_t n = files_stem(file);
  return files_valid_name(file, n ? n : strlen(file));
}

static uint64_t stamp_file(const char *path, uint64_t before) {
  struct stat st;
  stamp is = {0};
  if (!stat(path, &st)) is = stamp_of(&st);
  return hash_bytes(&is, sizeof is, before);
}

uint64_t files_stamp(const char *path) {
  file_list files = {0};
  if (files_in(path, &files)) {                            // as transformers saves it
    uint64_t of_all = 1;
    for (size_t i = 0; i < files.n; i++) {
      str file = {0};
      str_addf(&file, "%s/%s", path, files.at[i]);
      of_all = stamp_file(file.at, hash_bytes(file.at, file.n, of_all));
      str_free(&file);
    }
    files_free(&files);
    return of_all;
  }
  const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
  size_t n = (size_t)(file - path) + files_stem(file);
  enum { MOST_PARTS = 9999 };          // GGUF's limit
  int parts = 1;
  uint64_t all = 1;
  if (sscanf(path + n, "-00001-of-%5d.gguf", &parts) != 1 || parts > MOST_PARTS) parts = 1;
  for (int i = 1; i <= parts; i++) {
    str part = {0};
    if (i == 1) str_add(&part, path);
    else str_addf(&part, "%.*s-%05d-of-%05d.gguf", (int)n, path, i, parts);
    all = stamp_file(str_c(&part), all);
    str_free(&part);
  }
  return all;
}
