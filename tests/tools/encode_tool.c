// encode_tool MMPROJ vision|audio WIDTH HEIGHT [fast] < planes of F32: the rows that the encoder makes, as F32 on
// stdout; fast: as a user gets them, otherwise with exact products. For tests that have pixels of their own; what is
// said of the file goes to stderr. WEFT_DIE breaks a check of the first one (base/attempt.h).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/attempt.h"
#include "engine/media_encoder.h"

// How far it is: never less than before.
static void on_progress(void *ctx, const char *what, double fraction) {
  double *last = ctx;
  if (strcmp(what, "encoding")) return;
  if (fraction && (fraction < *last || fraction > 1)) abort();
  *last = fraction;
}

int main(int argc, char **argv) {
  error err = {0};
  device *d = NULL;
  media_encoder *e;
  media_rows rows;
  if (argc != 5 && (argc != 6 || strcmp(argv[5], "fast"))) return 2;
  enum medium k = strcmp(argv[2], medium_name(MEDIUM_SOUND)) ? MEDIUM_PICTURE : MEDIUM_SOUND;
  int width = atoi(argv[3]), height = atoi(argv[4]);
  size_t n = (size_t)width * (size_t)height * (k == MEDIUM_SOUND ? 1 : 3);
  float *in = xcalloc(n, sizeof *in);
  if (fread(in, sizeof *in, n, stdin) != n) error_set(&err, "fewer than %zu floats", n);
  else if (!device_open(1, 0, &d, &err) && !media_encoder_open(argv[1], d, argc == 5, 0, &e, &err)) {
    double last = -1;
    media_encoder_watch(e, on_progress, &last);
    die_inject(getenv("WEFT_DIE"));
    // several of them, one after another: as many as stdin has
    do {
      if (media_encoder_run(e, k, in, width, height, &rows, &err)) break;
      fwrite(rows.at, sizeof *rows.at, (size_t)rows.n * (size_t)media_encoder_n_embd(e, k), stdout);
      free(rows.at);
    } while (fread(in, sizeof *in, n, stdin) == n);
    if (!err.text[0] && last < 0) error_set(&err, "it never said how far it is");
    media_encoder_close(e);
  }
  if (d) device_close(d);
  free(in);
  if (err.text[0]) fprintf(stderr, "%s\n", err.text);
  return err.text[0] != 0;
}
