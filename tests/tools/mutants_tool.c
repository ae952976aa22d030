// Loads and runs one model file after another that have the same data and other heads, for tests/tools/mutants.py:
//
//     mutants_tool FILE OFFSET SIZE
//
// FILE's data begin at OFFSET. Each head comes on stdin, SIZE bytes: what stands before the data. A line on stdout says
// what became of it: "ok", or why the file was refused. One that runs has a prompt evaluated, and then two sequences at
// once (a model that only embeds: a text). All is done in this process, so that a file that ends it is seen.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "two_sequences.h"
#include "weft.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKENS = 6, CONTEXT = 64 };
static const int32_t ids[TOKENS] = {3, 1, 4, 1, 5, 9};

static int embed(weft_model *m, weft_error *err) {
  float *v = malloc(TOKENS * (size_t)weft_model_embedding_size(m) * sizeof *v);      // one, or one for each token
  if (!v) abort();
  int status = weft_embed(m, ids, TOKENS, WEFT_POOLING_MODEL, v, err);
  free(v);
  return status;
}

static int run(const char *path, weft_error *err) {
  weft_options o = {.threads = 1, .context = CONTEXT};
  const float *logits;
  weft_model *m;
  if (weft_model_open(path, &o, &m, err)) return -1;
  int status = weft_model_only_embeds(m) ? embed(m, err)
               : weft_decode(m, ids, TOKENS, 0, &logits, err) || weft_decode(m, ids, 1, TOKENS, &logits, err)
                 ? -1
                 : two_sequences(m, ids, TOKENS, err);
  weft_model_close(m);
  return status;
}

int main(int argc, char **argv) {
  FILE *f = argc == 4 ? fopen(argv[1], "rb") : NULL;
  struct stat st;
  if (!f || fstat(fileno(f), &st)) { fprintf(stderr, "usage: mutants_tool FILE OFFSET SIZE\n"); return 2; }
  size_t offset = strtoull(argv[2], NULL, 10), size = strtoull(argv[3], NULL, 10), n = (size_t)st.st_size - offset;
  char *data = malloc(n + 1), *head = malloc(size), path[64];
  int fd = memfd_create("mutant", 0);
  if (!data || !head || fd < 0 || fseek(f, (long)offset, SEEK_SET) || fread(data, 1, n, f) != n ||
      pwrite(fd, data, n, (off_t)size) != (ssize_t)n)
    return 2;
  fclose(f);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  while (fread(head, 1, size, stdin) == size) {
    weft_error err = {""};
    if (pwrite(fd, head, size, 0) != (ssize_t)size) return 2;
    printf("%s\n", run(path, &err) ? err.text : "ok");
    fflush(stdout);
  }
  free(data);
  free(head);
  return 0;
}
