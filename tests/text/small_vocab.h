// Small vocabularies for tests that need no files: tokens are added one by one, then small_make gives a tokenizer.
#ifndef WEFT_TESTS_SMALL_VOCAB_H
#define WEFT_TESTS_SMALL_VOCAB_H
#include "base/arena.h"
#include "base/base.h"
#include "text/bpe.h"
#include "text/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct small {
  VEC(text_view) tokens;
  VEC(text_view) merges;
  VEC(int32_t) types;
  VEC(float) scores;
  arena *mem;
  vocab_desc d;
} small;

static inline text_view small_copy(small *s, const char *text, size_t n) {
  return (text_view){arena_strndup(s->mem, text, n), n};
}
static inline text_view small_token(const void *ctx, uint64_t i) { return ((const small *)ctx)->tokens.at[i]; }
static inline text_view small_merge(const void *ctx, uint64_t i) { return ((const small *)ctx)->merges.at[i]; }

static inline void small_init(small *s, const char *model, const char *pre) {
  memset(s, 0, sizeof *s);
  s->mem = arena_new();
  vocab_desc_init(&s->d);
  s->d.source = "small.gguf";
  if (model) s->d.model = (text_view){model, strlen(model)};
  if (pre) s->d.pre = (text_view){pre, strlen(pre)};
}

static inline int32_t small_addn(small *s, const char *text, size_t n, enum token_type type, float score) {
  vec_push(&s->tokens, small_copy(s, text, n));
  vec_push(&s->types, (int32_t)type);
  vec_push(&s->scores, score);
  return (int32_t)s->tokens.n - 1;
}
static inline int32_t small_add(small *s, const char *text, enum token_type type, float score) {
  return small_addn(s, text, strlen(text), type, score);
}
static inline int32_t small_next_id(const small *s) { return (int32_t)s->tokens.n; }

// All 256 bytes of a byte-level BPE: byte b is token b.
static inline void small_bytes_bpe(small *s) {
  for (int b = 0; b < 256; b++) {
    char text[4];
    small_addn(s, text, (size_t)bpe_byte_char((unsigned char)b, text), TOKEN_NORMAL, 0);
  }
}
// A merge and its result as the next token; returns the result's id.
static inline int32_t small_merges(small *s, const char *left, const char *right) {
  str both = {0};
  str_addf(&both, "%s %s", left, right);
  vec_push(&s->merges, small_copy(s, both.at, both.n));
  both.n = 0;
  str_addf(&both, "%s%s", left, right);
  int32_t id = small_addn(s, both.at, both.n, TOKEN_NORMAL, 0);
  str_free(&both);
  return id;
}
static inline void small_only_merge(small *s, const char *text) {
  vec_push(&s->merges, small_copy(s, text, strlen(text)));
}

// <unk>, <s>, </s> and the 256 bytes: byte b is token 3 + b.
static inline void small_bytes_spm(small *s) {
  small_add(s, "<unk>", TOKEN_UNKNOWN, 0);
  small_add(s, "<s>", TOKEN_CONTROL, 0);
  small_add(s, "</s>", TOKEN_CONTROL, 0);
  for (int b = 0; b < 256; b++) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
    small_add(s, name, TOKEN_BYTE, 0);
  }
}

// The description as it stands, for tests that spoil it before tokenizer_new.
static inline vocab_desc *small_desc(small *s) {
  s->d.ctx = s;
  s->d.token = small_token;
  s->d.n_tokens = s->tokens.n;
  s->d.merge = small_merge;
  s->d.n_merges = s->merges.n;
  s->d.types = s->types.at, s->d.n_types = s->types.n;
  s->d.scores = s->scores.at, s->d.n_scores = s->scores.n;
  return &s->d;
}

static inline tokenizer *small_make(small *s) {
  tokenizer *t = NULL;
  error err = {0};
  if (tokenizer_new(small_desc(s), &t, &err)) die("small vocabulary: %s", err.text);
  return t;
}

// Processor time of this thread: what else the machine does must not fail a test.
static inline double small_cpu_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
// Seconds of processor time; for ever where the vocabulary lacks a letter.
static inline double small_encoding_s(const tokenizer *t, const char *text, size_t n) {
  int32_t *ids;
  size_t n_ids;
  error err = {0};
  double start = small_cpu_s();
  if (tokenizer_encode(t, text, n, false, false, &ids, &n_ids, &err)) return HUGE_VAL;
  free(ids);
  return small_cpu_s() - start;
}
// Encodes four megabytes of one character, and two.  The larger text may take 2.6 times the time of the smaller, for
// which times that are too short to tell count as equal, and ten megabytes two seconds on a usual machine: this one may
// be as slow as two of its kind and a half, since how fast machines are differs, and a busy one slows even processor
// time down (24 s under the sanitizers).  Three tries.
static inline void small_one_character(const tokenizer *t, const char *what, const char *unit) {
  size_t n = 4000000, len = strlen(unit);
  char *text = xmalloc(n);
  for (size_t i = 0; i < n; i++) text[i] = unit[i % len];
  double half = 0, took = 0, most = getenv("WEFT_SANITIZED") ? 24 : 2;
  bool good = false;
  for (int tries = 0; tries < 3 && !good; tries++) {
    half = small_encoding_s(t, text, n / 2 / len * len);
    took = small_encoding_s(t, text, n);
    if (took == HUGE_VAL) die("%s: no tokens for '%s'", what, unit);
    good = took <= most && took <= 2.6 * half + 0.1;
  }
  if (!good) die("%s: 4 MB of '%s' took %.2f s, 2 MB %.2f s", what, unit, took, half);
  free(text);
}

static inline void small_free(small *s, tokenizer *t) {
  tokenizer_free(t);
  vec_free(&s->tokens);
  vec_free(&s->merges);
  vec_free(&s->types);
  vec_free(&s->scores);
  arena_free(s->mem);
}
#endif
