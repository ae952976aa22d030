// Decodes what it is told, for tests/python/test_families.py: `decode_tool MODEL CONTEXT CHUNK` reads lines "POS ID ID
// ..." from stdin and prints, for each, the logits of the last position on one line. A position before the end goes
// back to it.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "weft.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  if (argc != 4) { fprintf(stderr, "usage: decode_tool MODEL CONTEXT CHUNK\n"); return 2; }
  weft_model *m;
  weft_error err;
  weft_options opt = {.context = atoi(argv[2]), .chunk = atoi(argv[3])};
  if (weft_model_open(argv[1], &opt, &m, &err)) { fprintf(stderr, "%s\n", err.text); return 1; }
  static char line[1 << 16];
  int status = 0;
  while (!status && fgets(line, sizeof line, stdin)) {
    int32_t ids[1024];
    size_t n = 0;
    const float *logits;
    char *at, *word = strtok_r(line, " \n", &at);
    int pos = word ? atoi(word) : 0;
    while (n < 1024 && (word = strtok_r(NULL, " \n", &at))) ids[n++] = (int32_t)atoi(word);
    if (weft_decode(m, ids, n, pos, &logits, &err)) { fprintf(stderr, "%s\n", err.text); status = 1; break; }
    for (int32_t i = 0; i < weft_model_vocab_size(m); i++) printf("%s%.9g", i ? " " : "", (double)logits[i]);
    putchar('\n');
  }
  weft_model_close(m);
  return status;
}
