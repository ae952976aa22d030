// The block that predicts a further token, for tests/python/test_mtp.py.
//
//   mtp_tool MODEL hidden ID,ID,...     what the head would read of each token, a line each
//   mtp_tool MODEL logits ID,ID,...     of each token from the second on, what the block says comes behind it; then of
//                                       the first one as if it came behind the last one, by the block alone
//   mtp_tool MODEL ahead ID,ID,... N    goes on for N tokens, with its guesses and without
//
// -md: the same with a draft file, of whose block all rows are printed
//
// logits: what lies before a token was evaluated one by one, and once more with all before the last one as one chunk,
// and on two sequences at once; it must be the same bits. ahead: logits must be those of the model without the block,
// to the bit, also where a text goes back and on otherwise, and of two sequences by turns. Prints how many tokens it
// guessed and how many were right: of the likeliest tokens; of two sequences, one with these and one with others among
// them.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "weft.h"
#include "base/base.h"
#include "engine/engine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024, CONTEXT = 128 };

static const char *draft_file;             // NULL: the block is the model's own

static weft_model *opened(const char *path, bool mtp, int threads) {
  weft_model *m;
  weft_error err;
  weft_options o = {
    .context = CONTEXT, .threads = threads, .mtp = mtp && !draft_file, .draft_file = mtp ? draft_file : NULL};
  if (!weft_model_open(path, &o, &m, &err)) return m;
  fprintf(stderr, "%s\n", err.text);
  exit(1);
}

static void check(int failed, const char *what) {
  if (!failed) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void print(const float *x, int n) {
  for (int i = 0; i < n; i++) printf("%s%.9g", i ? " " : "", (double)x[i]);
  putchar('\n');
}

static bool print_row(void *ctx, size_t i, const float *row) {
  (void)i;
  print(row, *(int *)ctx);
  return true;
}

static void hidden(const char *path, const int32_t *ids, size_t n) {
  error e = {0};
  weft_model *m = opened(path, false, 1);
  int size = weft_model_embedding_size(m);
  engine_part p = {.ids = ids, .n = n, .want = WANT_HIDDEN, .row = print_row, .ctx = &size};
  check(engine_run(weft_model_engine(m), &(engine_batch){.parts = &p, .n = 1}, &e), e.text);
  weft_model_close(m);
}

static int32_t likeliest(const float *logits, int n_vocab) {
  int32_t best = 0;
  for (int32_t i = 1; i < n_vocab; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

// All rows of a block in which each likeliest token changes the logits after it
static const float *rows_after(weft_model *m, struct sequence *q, int32_t id) {
  static float *all;
  error e = {0};
  size_t n = (size_t)weft_model_vocab_size(m);
  int rows = engine_draft_rows(weft_model_peek(m));
  all = xrealloc(all, (size_t)rows * n * sizeof *all);
  for (int i = 0; i < rows; i++) {
    engine_part p = {.q = q, .ids = &id, .n = 1, .pos = i, .want = WANT_DRAFT};
    check(engine_run(weft_model_beside(m), &(engine_batch){.parts = &p, .n = 1}, &e), e.text);
    memcpy(all + (size_t)i * n, p.logits, n * sizeof *all);
    id = likeliest(p.logits, (int)n);
  }
  return all;
}

static const float *predicted(weft_model *m, struct sequence *q, int32_t id, int pos) {
  error e = {0};
  engine_part p = {.q = q, .ids = &id, .n = 1, .pos = pos, .want = WANT_MTP};
  check(engine_run(weft_model_beside(m), &(engine_batch){.parts = &p, .n = 1}, &e), e.text);
  return engine_draft_follows(weft_model_peek(m)) ? rows_after(m, q, id) : p.logits;
}

static void step(weft_model *m, weft_sequence **q, int n_parts, const int32_t *ids, size_t n) {
  weft_error err;
  weft_tokens t[2] = {{.sequence = q[0], .ids = ids, .n = n}, {.sequence = q[1], .ids = ids, .n = n}};
  check(weft_step(m, t, (size_t)n_parts, NULL, NULL, &err), err.text);
}

static void logits(const char *path, const int32_t *ids, size_t n) {
  weft_error err;
  weft_model *m = opened(path, true, 2);
  weft_sequence *q[2], *forked;
  int n_vocab = weft_model_vocab_size(m), rows = engine_draft_rows(weft_model_peek(m));
  size_t size = (size_t)n_vocab * (size_t)rows * sizeof(float);
  float *want = xmalloc(size);
  for (size_t i = 1; i < n; i++) {
    check(weft_decode(m, ids + i - 1, 1, (int)i - 1, NULL, &err), err.text);
    predicted(m, NULL, (ids[i] + 1) % n_vocab, (int)i);          // of another token first: it leaves nothing behind
    print(predicted(m, NULL, ids[i], (int)i), n_vocab * rows);
  }
  memcpy(want, predicted(m, NULL, ids[n - 1], (int)n - 1), size);
  if (rows == 1) print(predicted(m, NULL, ids[0], (int)n), n_vocab);
  check(weft_decode(m, ids, n - 1, 0, NULL, &err), err.text);
  check(memcmp(want, predicted(m, NULL, ids[n - 1], (int)n - 1), size), "other logits behind a chunk");
  for (int i = 0; i < 2; i++) check(weft_sequence_new(m, &q[i], &err), err.text);
  for (size_t i = 0; i + 1 < n; i++) step(m, q, 2, ids + i, 1);
  for (int i = 0; i < 2; i++)
    check(memcmp(want, predicted(m, weft_sequence_of(q[i]), ids[n - 1], (int)n - 1), size), "other logits of two");
  // one that goes on from there, and one that was cut and comes back
  check(weft_sequence_fork(q[0], (int)n - 1, &forked, &err), err.text);
  step(m, &q[0], 1, ids, 1);
  check(memcmp(want, predicted(m, weft_sequence_of(forked), ids[n - 1], (int)n - 1), size), "other logits of a fork");
  weft_sequence_cut(q[1], (int)n / 2);
  step(m, &q[1], 1, ids, 1);
  weft_sequence_cut(q[1], (int)n / 2);
  step(m, &q[1], 1, ids + n / 2, n - 1 - n / 2);
  check(memcmp(want, predicted(m, weft_sequence_of(q[1]), ids[n - 1], (int)n - 1), size), "other logits after a cut");
  weft_sequence_free(forked);
  for (int i = 0; i < 2; i++) weft_sequence_free(q[i]);
  free(want);
  weft_model_close(m);
}

// A text, and what the model without the block says behind each token
typedef struct text { int32_t ids[CONTEXT]; uint64_t hash[CONTEXT]; int n, n_vocab; } text;

static uint64_t hash_of(const text *t, const float *logits) {
  return hash_bytes(logits, (size_t)t->n_vocab * sizeof *logits, 1);
}

// From `at` on: of every `odd` tokens one is not the likeliest; 0: all are.
static void go_on(weft_model *m, text *t, int at, int odd) {
  weft_error err;
  const float *logits;
  for (; at < t->n; at++) {
    check(weft_decode(m, t->ids + at, 1, at, &logits, &err), err.text);
    t->hash[at] = hash_of(t, logits);
    if (at + 1 == t->n) break;
    t->ids[at + 1] = odd && at % odd == 0 ? (t->ids[at] * 7 + 1) % t->n_vocab : likeliest(logits, t->n_vocab);
  }
}

static void follow(weft_speculation *a, const text *t, int from, int to) {
  weft_error err;
  const float *logits;
  for (int i = from; i < to; i++) {
    check(weft_speculation_decode(a, t->ids, i, t->ids[i], &logits, &err), err.text);
    if (hash_of(t, logits) == t->hash[i]) continue;
    fprintf(stderr, "other logits behind position %d\n", i);
    exit(1);
  }
}

static void speculation(const char *path, const int32_t *ids, size_t n, int more) {
  static text straight, crooked;
  weft_error err;
  weft_model *m = opened(path, false, 2);
  straight.n = (int)n + more;
  straight.n_vocab = weft_model_vocab_size(m);
  memcpy(straight.ids, ids, n * sizeof *ids);
  check(weft_decode(m, ids, n - 1, 0, NULL, &err), err.text);
  go_on(m, &straight, (int)n - 1, 0);
  crooked = straight;
  go_on(m, &crooked, (int)n - 1, 3);
  weft_model_close(m);
  m = opened(path, true, 2);
  weft_draft *d;
  check(weft_draft_own(m, NULL, &d, &err) || !d || weft_draft_prepare(d, &err), "no block");
  weft_speculation *a = weft_speculation_new(m, WEFT_SPECULATE_ALWAYS);
  weft_speculation_draft(a, d);
  check(weft_decode(m, ids, n - 1, 0, NULL, &err), err.text);
  follow(a, &straight, (int)n - 1, straight.n);
  weft_speculation_counts c = weft_speculation_count(a);
  printf("%llu %llu\n", (unsigned long long)c.drafted, (unsigned long long)c.drafted_accepted);
  // back, along the other text, and back to the first one
  for (int from = (int)n - 1; from < straight.n - 8; from += 7) {
    const text *t = from % 2 ? &straight : &crooked;
    check(weft_decode(m, t->ids, (size_t)from, 0, NULL, &err), err.text);
    follow(a, t, from, from + 8);
  }
  weft_speculation_free(a);
  // two sequences by turns, each with its own text
  weft_sequence *q[2];
  weft_speculation *of[2];
  for (int i = 0; i < 2; i++) {
    check(weft_sequence_new(m, &q[i], &err), err.text);
    of[i] = weft_speculation_of_sequence(m, q[i], WEFT_SPECULATE_ALWAYS);
    weft_speculation_draft(of[i], d);
    step(m, &q[i], 1, ids, n - 1);
  }
  for (int at = (int)n - 1; at < straight.n; at++) {
    follow(of[0], &straight, at, at + 1);
    follow(of[1], &crooked, at, at + 1);
  }
  for (int i = 0; i < 2; i++) {
    c = weft_speculation_count(of[i]);
    printf("%llu %llu\n", (unsigned long long)c.drafted, (unsigned long long)c.drafted_accepted);
    weft_speculation_free(of[i]);
    weft_sequence_free(q[i]);
  }
  weft_draft_free(d);
  weft_model_close(m);
}

int main(int argc, char **argv) {
  int32_t ids[MOST];
  size_t n = 0;
  if (argc > 2 && !strcmp(argv[1], "-md")) {
    draft_file = argv[2];
    argc -= 2;
    argv += 2;
  }
  if (argc < 4) { fprintf(stderr, "usage: mtp_tool [-md DRAFT] MODEL hidden|logits|ahead ID,ID,... [N]\n"); return 2; }
  for (char *at = argv[3]; *at && n < MOST; at += strcspn(at, ","), at += *at == ',') ids[n++] = (int32_t)atoi(at);
  if (!strcmp(argv[2], "hidden")) hidden(argv[1], ids, n);
  else if (strcmp(argv[2], "ahead")) logits(argv[1], ids, n);
  else if (argc == 5 && n > 1 && n + (size_t)atoi(argv[4]) <= CONTEXT) speculation(argv[1], ids, n, atoi(argv[4]));
  else return 2;
  return 0;
}
