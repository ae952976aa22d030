// perplexity: declarations for perplexity.c (one model and a text) and divergence.c (two models).
#ifndef WEFT_APP_PERPLEXITY_H
#define WEFT_APP_PERPLEXITY_H
#include "app/app.h"

// A pass over a text in chunks.
struct run {
  weft_model *model;
  int32_t n_vocab, bos;      // bos: replaces the first token of a chunk; -1: none
  int size, first;           // size: tokens of a chunk; first: index of the first token whose successor is scored
  int32_t *tokens;           // the chunk as it is evaluated
  const int32_t *chunk;      // the chunk as in the text
  struct out out;
  progress bar;
  error err;                 // set by `see` on an error
  // called with the logits of token i, which `next` follows
  void (*see)(struct run *r, size_t i, const float *logits, int32_t next);
  void (*done)(struct run *r, int32_t chunk);
  void *ctx;                 // context of see and others
};
// Chunk i begins at ids[i * step]. 0, or the exit status after a message.
int each_chunk(struct run *r, int32_t n_chunks, const int32_t *ids, size_t step);

// log_sum: of e^(logit - max); top: the first token with max
struct summary { float max, min; int32_t top; double log_sum; };
struct summary log_softmax(const float *logits, int32_t n);

// divergence.c: a file of log-probabilities. base_finish frees b, and keeps the file only if `good`.
struct base;
int base_create(const char *path, int size, int32_t n_vocab, int32_t n_chunks, const int32_t *ids, struct base **out,
                error *err);
void base_add(struct base *b, const float *logits, const struct summary *s, error *err);
int base_finish(struct base *b, bool good, error *err);
int base_context(const char *path, int64_t *size, error *err);     // tokens of a chunk in that file
// Compares a model with the file and prints the results. 0, or the exit status after a message.
int compare_with(const char *path, struct run *r);
#endif
