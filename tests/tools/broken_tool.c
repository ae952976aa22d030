// Breaks one invariant after another while a model is loaded and evaluated, for tests/python/test_broken.py:
//
//     broken_tool MODEL FIRST EVERY
//
// First all goes well, and every check that is passed is counted (die_inject). Then, for every EVERY-th place from
// number FIRST on, the first check there fails, and the last one: opening the model or evaluating it is then an error
// that says so (but where a cache is read: what is in it is made again), the program goes on, and another model that is
// open meanwhile answers as before. All of it twice, since the first time things are made that stay (kernels in the
// process that compiles); the second time no memory is lost and no descriptor. A line for each place; exit status 1 and
// a line where something is wrong.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/attempt.h"
#include "two_sequences.h"
#include "weft.h"
#include "../live_blocks.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 6, CONTEXT = 64, MOST_PLACES_SEEN = 512 };
static const int32_t ids[TOKENS] = {3, 1, 4, 1, 5, 9};
static struct place { char at[96]; int64_t times; } places[MOST_PLACES_SEEN];
static size_t n_places, n_made_again;

static void see(void *ctx, const char *file, int line, int64_t times) {
  const char *slash = strrchr(file, '/');
  (void)ctx;
  if (n_places == MOST_PLACES_SEEN) abort();
  snprintf(places[n_places].at, sizeof places->at, "%s:%d", slash ? slash + 1 : file, line);
  places[n_places++].times = times;
}

static int evaluate(weft_model *m, const float *expected, weft_error *err) {
  const float *logits;
  if (weft_decode(m, ids, TOKENS, 0, &logits, err)) return -1;
  if (expected && memcmp(logits, expected, (size_t)weft_model_vocab_size(m) * sizeof *logits)) abort();
  if (weft_decode(m, ids, 1, TOKENS, &logits, err)) return -1;
  return two_sequences(m, ids, TOKENS, err);
}

static int open_and_evaluate(const char *path, const float *expected, weft_error *err) {
  weft_options o = {.threads = 2, .context = CONTEXT};
  weft_model *m;
  if (weft_model_open(path, &o, &m, err)) return -1;
  int status = evaluate(m, expected, err);
  weft_model_close(m);
  return status;
}

static int n_descriptors(void) {
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  while (d && readdir(d)) n++;
  if (d) closedir(d);
  return n;
}

static int fail(const char *place, const char *what, const char *text) {
  printf("%s: %s: %s\n", place, what, text);
  return 1;
}

static int break_at(const char *path, const char *place, weft_model *other, const float *expected) {
  weft_error err = {""};
  const float *logits;
  die_inject(place);
  int status = open_and_evaluate(path, expected, &err);
  die_inject(NULL);
  if (!status) {                             // what was to be read from a cache was made again
    n_made_again++;
    return 0;
  }
  // those are the caller's mistakes, or the device's
  bool named = strstr(err.text, path) || !strncmp(place, "engine.c", 8) || !strncmp(place, "descriptor.c", 12);
  if (!strstr(err.text, "internal error at") || !named) return fail(place, "another error", err.text);
  if (weft_decode(other, ids, TOKENS, 0, &logits, &err)) return fail(place, "the other model", err.text);
  if (memcmp(logits, expected, (size_t)weft_model_vocab_size(other) * sizeof *logits))
    return fail(place, "the other model", "answers otherwise");
  return 0;
}

static int walk(const char *path, size_t first, size_t every, weft_model *other, const float *expected) {
  int wrong = 0;
  long before = live_blocks;
  for (size_t i = first; i < n_places; i += every) {
    char last[128];
    snprintf(last, sizeof last, "%s:%lld", places[i].at, (long long)places[i].times);
    wrong |= break_at(path, places[i].at, other, expected);
    if (places[i].times > 1) wrong |= break_at(path, last, other, expected);
    if (live_blocks > before) printf("after %s: %ld blocks more\n", places[i].at, live_blocks - before);
    before = live_blocks;
  }
  return wrong;
}

int main(int argc, char **argv) {
  weft_error err = {""};
  weft_options o = {.threads = 2, .context = CONTEXT};
  weft_model *other;
  const float *logits;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc != 4) { fprintf(stderr, "usage: broken_tool MODEL FIRST EVERY\n"); return 2; }
  if (weft_model_open(argv[1], &o, &other, &err) || weft_decode(other, ids, TOKENS, 0, &logits, &err))
    return fail(argv[1], "the other model", err.text);
  size_t bytes = (size_t)weft_model_vocab_size(other) * sizeof *logits;
  float *expected = memcpy(malloc(bytes), logits, bytes);
  die_inject("count");
  if (open_and_evaluate(argv[1], expected, &err)) return fail(argv[1], "unbroken", err.text);
  die_places(see, NULL);
  die_inject(NULL);
  size_t first = strtoull(argv[2], NULL, 10), every = strtoull(argv[3], NULL, 10);
  int wrong = walk(argv[1], first, every, other, expected);
  long bytes_before = live_bytes, blocks_before = live_blocks;
  int descriptors = n_descriptors();
  wrong |= walk(argv[1], first, every, other, expected);
  printf("%zu places, %zu times made again; the second time %ld blocks, %ld bytes and %d descriptors more\n", n_places,
         n_made_again, live_blocks - blocks_before, live_bytes - bytes_before, n_descriptors() - descriptors);
  if (open_and_evaluate(argv[1], expected, &err)) wrong |= fail(argv[1], "at the end", err.text);
  for (size_t i = 0; i < n_places; i++) printf("%s %lld\n", places[i].at, (long long)places[i].times);
  weft_model_close(other);
  free(expected);
  return wrong;
}
