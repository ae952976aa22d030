// Cuts a sequence of random ids in random ways and compares the logits bit by bit, for try_cuts.py and test_cuts.py:
//
//   cuts_tool MODEL IDS CUTS SEED [CHUNK [LAYERS [CACHE [ADAPTER]]]]
//
// The yardstick is one thread that takes the ids one by one, which gives the logits of each position. Then models
// with 1 to 5 threads and, by turns, different chunks take the same ids all at once and in CUTS random ways each;
// what they say at the end of each piece must be the same bits, so must the logits of all positions at once, and
// what follows a sequence that went through a file. CHUNK: one more model, with this chunk; 0: none. LAYERS: so many
// are on the device that DEV names. CACHE: how keys and values lie (f16). ADAPTER: a file; a sequence for which its
// scale is 0, beside one for which it is 1, must have the bits of a model without it. All of that twice: with
// integer products, and exact. One line for each precision: its name, a hash of all logits, and how many ways were
// tried and how many differed, with the largest difference and where it was first; exit status 1 if any did.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "weft.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_IDS = 4096, MAX_THREADS = 5, WAYS = 3 };

typedef struct trial {
  const char *path, *cache, *adapter;
  int32_t ids[MAX_IDS];
  size_t n, n_vocab;
  int layers;
  float *want;                // {n, n_vocab}: logits after each position
  uint64_t random;
  int ways, wrong;
  double worst;
  char first[256];
} trial;

static uint64_t draw(trial *t, uint64_t below) {
  t->random = t->random * 6364136223846793005u + 1442695040888963407u;
  return (t->random >> 33) % below;
}

// Two sequences need room beside each other, and some models' positions depend on the context.
static int32_t context_of(const trial *t) { return t->adapter ? ((int32_t)t->n + 127) / 128 * 256 : (int32_t)t->n; }

static weft_model *open_model(const trial *t, int threads, int chunk, bool exact) {
  weft_model *m;
  weft_error err;
  weft_options o = {
    .context = context_of(t), .threads = threads, .chunk = chunk, .gpu_layers = t->layers, .exact = exact,
    .key_cache = t->cache, .value_cache = t->cache};
  if (!weft_model_open(t->path, &o, &m, &err)) return m;
  fprintf(stderr, "%s\n", err.text);
  exit(2);
}

static void must(int failed, const weft_error *err) {
  if (!failed) return;
  fprintf(stderr, "%s\n", err->text);
  exit(2);
}

// How many logits differ, and by how much at most.
static size_t compare(const trial *t, const float *got, const float *want, double *most) {
  size_t differ = 0;
  *most = 0;
  for (size_t i = 0; i < t->n_vocab; i++) {
    if (!memcmp(&got[i], &want[i], sizeof *got)) continue;
    differ++;
    *most = fmax(*most, isfinite(got[i] - want[i]) ? fabs((double)got[i] - want[i]) : INFINITY);
  }
  return differ;
}

static bool look(void *ctx, double done) {
  (void)done;
  return --*(int *)ctx > 0;
}

// Sometimes it ends early first.
static const float *decode(trial *t, weft_model *m, size_t from, size_t to) {
  const float *logits;
  weft_error err;
  int looks = 1 + (int)draw(t, 40);
  if (!draw(t, 4)) {
    weft_model_watch(m, look, &looks);
    int ended = weft_decode(m, t->ids + from, to - from, (int32_t)from, NULL, &err);
    weft_model_watch(m, NULL, NULL);
    if (ended < 0) { fprintf(stderr, "%s\n", err.text); exit(2); }
  }
  if (!weft_decode(m, t->ids + from, to - from, (int32_t)from, &logits, &err)) return logits;
  fprintf(stderr, "%s\n", err.text);
  exit(2);
}

// Pieces of random lengths: short ones and long ones are as likely. pieces 1: all at once.
static void cut(trial *t, weft_model *m, bool at_once, const char *what) {
  char pieces[128] = "";
  bool wrong = false;
  t->ways++;
  for (size_t at = 0; at < t->n;) {
    size_t left = t->n - at, most = draw(t, 2) ? left : left < 8 ? left : 8, n = at_once ? left : 1 + draw(t, most);
    snprintf(pieces + strlen(pieces), sizeof pieces - strlen(pieces), "%s%zu", at ? "+" : "", n);
    const float *got = decode(t, m, at, at + n), *want = t->want + (at + n - 1) * t->n_vocab;
    at += n;
    double most_of;
    size_t differ = compare(t, got, want, &most_of);
    t->worst = fmax(t->worst, most_of);
    if (differ && !*t->first)
      snprintf(t->first, sizeof t->first, "%s, %s: %zu logits after position %zu differ by up to %.2g", what, pieces,
               differ, at - 1, most_of);
    wrong |= differ;
  }
  t->wrong += wrong;
}

typedef struct rows { trial *t; const char *what; bool wrong; } rows;

static bool compare_row(void *ctx, size_t i, const float *logits) {
  rows *r = ctx;
  double most;
  size_t differ = compare(r->t, logits, r->t->want + i * r->t->n_vocab, &most);
  r->t->worst = fmax(r->t->worst, most);
  if (differ && !*r->t->first)
    snprintf(r->t->first, sizeof r->t->first, "%s, logits of all: %zu after position %zu differ by up to %.2g", r->what,
             differ, i, most);
  r->wrong |= differ;
  return true;
}

// The logits of all positions are asked for at once.
static void all_rows(trial *t, weft_model *m, const char *what) {
  rows r = {t, what, false};
  weft_error err;
  must(weft_decode_rows(m, t->ids, t->n, 0, 0, compare_row, &r, &err), &err);
  t->ways++;
  t->wrong += r.wrong;
}

// What a sequence holds goes to a file, and another one takes it up from there.
static void through_file(trial *t, weft_model *m, const char *what) {
  char path[] = "/tmp/weft-cuts-XXXXXX";
  int fd = mkstemp(path);
  size_t k = 1 + draw(t, t->n - 1);
  weft_sequence *q = NULL, *again = NULL;
  weft_error err = {"no temporary file"};
  weft_tokens all = {.ids = t->ids, .n = k};
  int failed = fd < 0 || weft_sequence_new(m, &q, &err);
  all.sequence = q;
  failed = failed || weft_step(m, &all, 1, NULL, NULL, &err) || weft_sequence_save(q, t->ids, path, &err) ||
           weft_sequence_load(m, t->ids, t->n, path, &again, &err);
  size_t held = failed ? 0 : (size_t)weft_sequence_length(again);
  weft_tokens rest = {.sequence = again, .ids = t->ids + held, .n = t->n - held};
  if (failed || weft_step(m, &rest, 1, NULL, NULL, &err)) {
    fprintf(stderr, "%s\n", err.text);
    exit(2);
  }
  double most;
  size_t differ = compare(t, rest.logits, t->want + (t->n - 1) * t->n_vocab, &most);
  bool wrong = held != k || differ;
  if (wrong && !*t->first)
    snprintf(t->first, sizeof t->first,
             "%s: %zu positions of %zu came back from a file, and %zu logits after the rest differ by up to %.2g", what,
             held, k, differ, most);
  t->ways++;
  t->wrong += wrong;
  weft_sequence_free(q);
  weft_sequence_free(again);
  unlink(path);
  close(fd);
}

static weft_model *open_adapted(const trial *t, bool exact) {
  weft_adapter adapter = {t->adapter, 1};
  weft_options o = {.context = context_of(t), .threads = 2, .exact = exact, .key_cache = t->cache,
                    .value_cache = t->cache, .adapters = &adapter, .n_adapters = 1};
  weft_model *m;
  weft_error err;
  must(weft_model_open(t->path, &o, &m, &err), &err);
  return m;
}

// In each step one sequence with the adapter and one without it take the next ids.
static void beside_adapted(trial *t, bool exact) {
  weft_model *m = open_adapted(t, exact);
  weft_tokens both[2] = {0};
  weft_error err;
  bool wrong = false;
  for (int i = 0; i < 2; i++) must(weft_sequence_new(m, &both[i].sequence, &err), &err);
  must(weft_sequence_adapt(both[1].sequence, &(float){0}, 1, &err), &err);
  for (size_t at = 0, n; at < t->n; at += n) {
    n = 1 + draw(t, at ? t->n - at < 3 ? t->n - at : 3 : t->n);
    for (int i = 0; i < 2; i++) both[i].ids = t->ids + at, both[i].n = n;
    must(weft_step(m, both, 2, NULL, NULL, &err), &err);
    double most;
    size_t differ = compare(t, both[1].logits, t->want + (at + n - 1) * t->n_vocab, &most);
    t->worst = fmax(t->worst, most);
    if (differ && !*t->first)
      snprintf(t->first, sizeof t->first, "beside an adapter: %zu logits after position %zu differ by up to %.2g",
               differ, at + n - 1, most);
    wrong |= differ;
  }
  t->ways++;
  t->wrong += wrong;
  for (int i = 0; i < 2; i++) weft_sequence_free(both[i].sequence);
  weft_model_close(m);
}

static void go_through(trial *t, int threads, int chunk, int cuts, bool exact) {
  char what[64];
  snprintf(what, sizeof what, "%d threads, chunk %d", threads, chunk);
  weft_model *m = open_model(t, threads, chunk, exact);
  for (int i = 0; i <= cuts; i++) cut(t, m, !i, what);
  if (threads == 1) all_rows(t, m, what);
  if (t->n > 1) through_file(t, m, what);
  weft_model_close(m);
}

static int try_all(trial *t, int cuts, int more, bool exact) {
  weft_model *m = open_model(t, 1, 0, exact);
  t->n_vocab = (size_t)weft_model_vocab_size(m);
  t->want = calloc(t->n * t->n_vocab, sizeof *t->want);
  for (size_t i = 0; i < t->n; i++) t->ids[i] = (int32_t)draw(t, t->n_vocab);
  for (size_t i = 0; i < t->n; i++)
    memcpy(t->want + i * t->n_vocab, decode(t, m, i, i + 1), t->n_vocab * sizeof *t->want);
  weft_model_close(m);
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < t->n * t->n_vocab * sizeof *t->want; i++)
    hash = (hash ^ ((unsigned char *)t->want)[i]) * 1099511628211u;
  bool varies = false, finite = true;
  for (size_t i = 0; i < t->n * t->n_vocab; i++) {
    varies |= t->want[i] != t->want[0];
    finite &= isfinite(t->want[i]) != 0;
  }
  if (!varies || !finite) {
    fprintf(stderr, "%s: logits that %s\n", t->path, varies ? "are no numbers" : "are all the same");
    exit(2);
  }
  for (int threads = 1; threads <= MAX_THREADS; threads++)
    go_through(t, threads, (int[WAYS]){0, 1 + (int)draw(t, 7), 8 + (int)draw(t, 32)}[threads % WAYS], cuts, exact);
  if (more) go_through(t, 2, more, cuts, exact);
  if (t->adapter) beside_adapted(t, exact);
  printf("%s %016llx %d %d %.3g %s\n", exact ? "exact" : "fast", (unsigned long long)hash, t->ways, t->wrong, t->worst,
         t->first);
  free(t->want);
  return t->wrong;
}

int main(int argc, char **argv) {
  if (argc < 5 || argc > 9 || atoi(argv[2]) < 1 || atoi(argv[2]) > MAX_IDS) {
    fprintf(stderr, "usage: cuts_tool MODEL IDS CUTS SEED [CHUNK [LAYERS [CACHE [ADAPTER]]]]\n");
    return 2;
  }
  int wrong = 0;
  for (int exact = 0; exact < 2; exact++) {
    static trial t;
    t = (trial){.path = argv[1],
                .cache = argc > 7 ? argv[7] : NULL,
                .adapter = argc > 8 ? argv[8] : NULL,
                .n = (size_t)atoi(argv[2]),
                .layers = argc > 6 ? atoi(argv[6]) : 0,
                .random = strtoull(argv[4], NULL, 10)};
    if (t.adapter) weft_model_close(open_adapted(&t, exact));            // does it fit the model?
    wrong += try_all(&t, atoi(argv[3]), argc > 5 ? atoi(argv[5]) : 0, exact);
  }
  return wrong != 0;
}
