// Rows of floats as blocks of a format: quantise_tool TYPE COLUMNS [weights] < floats > blocks.  With "weights" the
// first row of the input is the weights of all others.  quantise_tool formats: the names of all formats that can be
// written.
#include "model/quantise.h"
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  for (uint32_t id = 0; argc == 2 && !strcmp(argv[1], "formats") && id < FORMAT_IDS; id++)
    if (format_by_id(id) && quantise_can(format_by_id(id)))
      printf("%s%s\n", format_by_id(id)->name, quantise_needs_weights(format_by_id(id)) ? " weights" : "");
  if (argc < 3) return argc != 2;
  const struct format *f = format_by_name(argv[1]);
  long n = atol(argv[2]);
  uint64_t bytes;
  if (!f || n < 1 || n > 1 << 24 || !format_row_bytes(f, (uint64_t)n, &bytes)) return 1;
  float *x = xcalloc((size_t)n, sizeof *x), *w = argc > 3 ? xcalloc((size_t)n, sizeof *w) : NULL;
  unsigned char *out = xcalloc(1, bytes);
  if (w && fread(w, sizeof *w, (size_t)n, stdin) != (size_t)n) return 1;
  while (fread(x, sizeof *x, (size_t)n, stdin) == (size_t)n) {
    if (!quantise_row(f, x, w, n, out)) fprintf(stderr, "a scale is too large\n");
    fwrite(out, 1, bytes, stdout);
  }
  free(x); free(w); free(out);
  return 0;
}
