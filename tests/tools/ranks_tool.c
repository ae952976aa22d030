// Evaluates ids on several processes, for test_ranks.py:
//
//   mpirun -n N ranks_tool OUT CUT SPLIT SHARES MODEL...
//
// SPLIT: row or layer; SHARES: "3,1", or "-" for equal ones. Of each model 40 ids go through in pieces of CUT (0: all
// at once), the second half of them beside another sequence that is forked from the first in its middle, and once more
// behind a sequence that was saved and restored. The first process writes a line a model to OUT: the hash of the bits
// of all logits that came.
#include "weft.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS = 40, HALF = IDS / 2 };

static int32_t ids[IDS];

static void check(int status, const weft_error *err) {
  if (!status) return;
  fprintf(stderr, "ranks_tool: %s\n", err->text);
  exit(2);
}

static void add(uint64_t *h, const weft_model *m, const float *logits) {
  const unsigned char *p = (const unsigned char *)logits;
  for (size_t i = 0; i < (size_t)weft_model_vocab_size(m) * sizeof *logits; i++) *h = (*h ^ p[i]) * 1099511628211u;
}

static void step(uint64_t *h, weft_model *m, weft_tokens *parts, size_t n) {
  weft_error err;
  check(weft_step(m, parts, n, NULL, NULL, &err), &err);
  for (size_t i = 0; i < n; i++) add(h, m, parts[i].logits);
}

static void pieces(uint64_t *h, weft_model *m, weft_sequence *q, size_t from, size_t to, size_t piece) {
  for (size_t at = from, n; at < to; at += n) {
    n = piece && piece < to - at ? piece : to - at;
    step(h, m, &(weft_tokens){.sequence = q, .ids = ids + at, .n = n, .rows = 1}, 1);
  }
}

static uint64_t try_model(weft_model *m, const char *out, size_t piece) {
  weft_error err;
  weft_sequence *q, *fork, *loaded;
  uint64_t h = 14695981039346656037u;
  char file[4096];
  snprintf(file, sizeof file, "%s.sequence", out);
  for (int i = 0; i < IDS; i++) ids[i] = (int32_t)((unsigned)(i * 7919 + 13) % (unsigned)weft_model_vocab_size(m));
  check(weft_sequence_new(m, &q, &err), &err);
  pieces(&h, m, q, 0, HALF, piece);
  check(weft_sequence_fork(q, HALF, &fork, &err), &err);
  check(weft_sequence_save(q, ids, file, &err), &err);
  step(&h, m, (weft_tokens[]){{.sequence = q, .ids = ids + HALF, .n = 3, .rows = 1},
                              {.sequence = fork, .ids = ids + 1, .n = 2, .rows = 1}}, 2);
  pieces(&h, m, q, HALF + 3, IDS, piece);
  check(weft_sequence_load(m, ids, HALF, file, &loaded, &err), &err);
  pieces(&h, m, loaded, HALF, IDS, piece);
  weft_sequence_free(q);
  weft_sequence_free(fork);
  weft_sequence_free(loaded);
  remove(file);
  return h;
}

static int run(int argc, char **argv) {
  weft_error err;
  double shares[64];
  size_t n = 0;
  enum weft_split split = strcmp(argv[3], "layer") ? WEFT_SPLIT_ROW : WEFT_SPLIT_LAYER;
  for (char *at = strtok(argv[4], ","); at && strcmp(at, "-") && n < 64; at = strtok(NULL, ",")) shares[n++] = atof(at);
  FILE *f = fopen(argv[1], "w");
  if (!f) { perror(argv[1]); return 2; }
  for (int i = 5; i < argc; i++) {
    weft_model *m;
    const weft_options o = {.size = sizeof o, .context = 256, .threads = 1, .split = split, .shares = shares,
                            .n_shares = n};
    check(weft_model_open(argv[i], &o, &m, &err), &err);
    fprintf(f, "%s %016llx\n", argv[i], (unsigned long long)try_model(m, argv[1], strtoul(argv[2], NULL, 10)));
    weft_model_close(m);
  }
  return fclose(f) ? 2 : 0;
}

int main(int argc, char **argv) {
  weft_error err;
  int rank, n;
  if (argc < 6) return 2;
  check(weft_ranks_join(&rank, &n, &err), &err);
  int status = 0;
  if (rank) check(weft_ranks_follow(NULL, NULL, &err), &err);
  else status = run(argc, argv);
  weft_ranks_leave();
  return status;
}
