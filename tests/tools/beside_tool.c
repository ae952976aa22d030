// beside_tool MODEL TOKENS LOADS FOLDER: one thread writes a sequence of TOKENS tokens to memory again and again, while
// another one loads another sequence from files and evaluates a token after it, LOADS times. Both are promised not to
// disturb each other (weft/sequence.h); on a device with memory of its own, both use it. Prints how often the logits
// or the bytes were others than alone, and the numbers of loads and saves; ends with 1 if there was a difference.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "weft.h"

static weft_model *model;
static weft_sequence *kept;
static int32_t *ids, *other;
static long saves, other_bytes;
static atomic_bool stop;

static void check(int status, const weft_error *e) {
  if (!status) return;
  fprintf(stderr, "beside_tool: %s\n", e->text);
  exit(2);
}

static void *write_states(void *first) {
  weft_error e;
  size_t n_first = 0;
  for (void *state = NULL; !stop; saves++) {
    size_t n;
    check(weft_sequence_to_memory(kept, ids, &state, &n, &e), &e);
    if (!saves) { n_first = n; *(void **)first = state; continue; }
    other_bytes += n != n_first || memcmp(state, *(void **)first, n);
    weft_free(state);
  }
  return NULL;
}

static const float *evaluate_more(weft_sequence *q, const int32_t *at, size_t n) {
  weft_error e;
  weft_tokens t = {.sequence = q, .ids = at, .n = n};
  check(weft_step(model, &t, 1, NULL, NULL, &e), &e);
  return t.logits;
}

static weft_sequence *evaluated(const int32_t *of, size_t n) {
  weft_error e;
  weft_sequence *q;
  check(weft_sequence_new(model, &q, &e), &e);
  evaluate_more(q, of, n);
  return q;
}

// How many loads of the sequence, with a token after it, gave other logits than `want`.
static long load_often(weft_store *from, size_t n, long loads, const float *want) {
  weft_error e;
  long wrong = 0;
  for (long i = 0; i < loads; i++) {
    weft_sequence *q;
    check(weft_store_load(from, other, n, &q, &e), &e);
    const size_t have = (size_t)weft_sequence_length(q);
    const float *logits = evaluate_more(q, other + have, n + 1 - have);
    wrong += memcmp(logits, want, (size_t)weft_model_vocab_size(model) * sizeof *want) != 0;
    weft_sequence_free(q);
  }
  return wrong;
}

static void choose_tokens(size_t n) {
  size_t vocab = (size_t)weft_model_vocab_size(model);
  ids = calloc(n + 1, sizeof *ids);
  other = calloc(n + 1, sizeof *other);
  for (size_t i = 0; i <= n; i++) {
    ids[i] = (int32_t)((i * 31 + 5) % vocab);
    other[i] = (int32_t)((i * 17 + 11) % vocab);
  }
}

// Saves the other sequence, and gives the logits after it as it is loaded with nothing beside it.
static float *save_other(weft_store *to, size_t n) {
  weft_error e;
  size_t bytes = (size_t)weft_model_vocab_size(model) * sizeof(float);
  weft_sequence *q = evaluated(other, n);
  check(weft_store_save(to, q, other, &e), &e);
  weft_sequence_free(q);
  check(weft_store_load(to, other, n, &q, &e), &e);
  size_t have = (size_t)weft_sequence_length(q);
  float *want = memcpy(malloc(bytes), evaluate_more(q, other + have, n + 1 - have), bytes);
  weft_sequence_free(q);
  return want;
}

int main(int argc, char **argv) {
  weft_error e;
  weft_options o = {.size = sizeof o, .context = 4096};
  weft_store *store;
  pthread_t writer;
  void *first = NULL;
  if (argc != 5) return 2;
  size_t n = (size_t)atol(argv[2]);
  long loads = atol(argv[3]);
  check(weft_model_open(argv[1], &o, &model, &e), &e);
  check(weft_model_content(model, -1, NULL, &e), &e);
  check(weft_store_open(model, argv[4], 1 << 30, &store, &e), &e);
  choose_tokens(n);
  float *want = save_other(store, n);
  kept = evaluated(ids, n);
  if (pthread_create(&writer, NULL, write_states, &first)) return 2;
  long wrong = load_often(store, n, loads, want);
  stop = true;
  pthread_join(writer, NULL);
  printf("%ld of %ld loads and %ld of %ld saves are wrong\n", wrong, loads, other_bytes, saves);
  weft_store_close(store);
  weft_sequence_free(kept);
  weft_model_close(model);
  weft_free(first);
  free(ids); free(other); free(want);
  return wrong || other_bytes;
}
