// Tokenising as a filter, for tests/python/test_tokenizers.py: many texts through one tokenizer without starting a
// program for each.
//
//     tokenize_tool MODEL [parse] < texts > lines      texts: a 32-bit length (as this machine writes it) and that many
//     bytes, each
//
// One line a text: its ids with spaces between, or '!' and the message.  `parse` lets special tokens in the texts be
// those tokens. What decoding gives for the ids follows the ids as hexadecimal bytes, after a tab.
#define _GNU_SOURCE
#include "model/gguf.h"
#include "text/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void line(const tokenizer *t, const char *text, size_t n, bool parse) {
  error err = {0};
  int32_t *ids = NULL;
  size_t n_ids = 0;
  if (tokenizer_encode(t, text, n, false, parse, &ids, &n_ids, &err)) { printf("!%s\n", err.text); return; }
  for (size_t i = 0; i < n_ids; i++) printf(i ? " %d" : "%d", ids[i]);
  str back = {0};
  tokenizer_decode(t, ids, n_ids, true, &back);
  putchar('\t');
  for (size_t i = 0; i < back.n; i++) printf("%02x", (unsigned)(unsigned char)back.at[i]);
  putchar('\n');
  str_free(&back);
  free(ids);
}

int main(int argc, char **argv) {
  gguf *g = NULL;
  tokenizer *t = NULL;
  error err = {0};
  if (argc < 2 || gguf_open(argv[1], &g, &err) || tokenizer_from_gguf(g, &t, &err)) {
    fprintf(stderr, "tokenize_tool: %s\n", argc < 2 ? "no model" : err.text);
    gguf_close(g);
    return 1;
  }
  uint32_t n;
  char *text = NULL;
  bool parse = argc > 2 && !strcmp(argv[2], "parse"), whole = true;
  while (whole && fread(&n, sizeof n, 1, stdin) == 1) {
    text = xrealloc(text, (size_t)n + 1);
    whole = fread(text, 1, n, stdin) == n;
    if (whole) line(t, text, n, parse);
  }
  free(text);
  tokenizer_free(t);
  gguf_close(g);
  return whole ? 0 : 1;
}
