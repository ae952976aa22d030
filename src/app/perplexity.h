// perplexity: what perplexity.c (one model and a text) and divergence.c (two models) share.
#ifndef WEFT_APP_PERPLEXITY_H
#define WEFT_APP_PERPLEXITY_H
#include "app/app.h"

// A pass over a text in chunks.
struct run {
  weft_model *model;
  int32_t n_vocab, bos;      // bos: takes the place of a chunk's first token; -1: none does
  int size, first;           // tokens of a chunk; the first one whose successor is scored
  int32_t *tokens;           // of the chunk as it is evaluated
  const int32_t *chunk;      // and as it stands in the text
  struct out out;
  progress bar;
  error err;                 // what `see` found wrong
  void (*see)(struct run *r, size_t i, const float *logits, int32_t next);   // token i of a chunk is followed by `next`
  void (*done)(struct run *r, int32_t chunk);
  void *ctx;                 // theirs
};
// Chunk i begins at ids[i * step]. 0, or the exit status after a message.
int each_chunk(struct run *r, int32_t n_chunks, const int32_t *ids, size_t step);

// log_sum: of e^(logit - max); top: the first one that is max
struct summary { float max, min; int32_t top; double log_sum; };
struct summary log_softmax(const float *logits, int32_t n);

// divergence.c: a file of log-probabilities. base_finish frees b, and keeps the file only if `good`.
struct base;
int base_create(const char *path, int size, int32_t n_vocab, int32_t n_chunks, const int32_t *ids, struct base **out,
                error *err);
void base_add(struct base *b, const float *logits, const struct summary *s, error *err);
int base_finish(struct base *b, bool good, error *err);
int base_context(const char *path, int64_t *size, error *err);     // tokens of a chunk in that file
// Compares a model with the file and prints. 0, or the exit status after a message.
int compare_with(const char *path, struct run *r);
#endif
