// Runs steps before the first request: see warm_up.h.
#include "serve/warm_up.h"
#include <float.h>
#include <stdlib.h>
#include "base/base.h"

// Makes kernels for prompts, for steps of few sequences beside a prompt, of few and many sequences, and for rows of a
// draft. scales: of adapters.
static int warm_up_steps(weft_model *m, const struct sched_options *o, const float *scales, weft_error *err) {
  enum { N = 16, SOME = 2, MORE = 5, ROWS = 8, ALL = N + 2 + ROWS + ROWS / 2 };
  static const int32_t ids[N];
  weft_tokens parts[MORE] = {{0}};
  int n = o->parallel < MORE ? o->parallel : MORE, chunk = weft_model_chunk(m), status = 0;
  if (weft_model_context(m) < ALL) return 0;
  for (int i = 0; i < n && !status; i++) {
    parts[i] = (weft_tokens){.ids = ids, .n = i ? 1 : N};
    status = weft_sequence_new(m, &parts[i].sequence, err) ||
             weft_sequence_adapt(parts[i].sequence, scales, o->model.n_adapters, err);
  }
  if (!status && n >= SOME) status = weft_step(m, parts, SOME, NULL, NULL, err);
  parts[0].n = 1;
  if (!status && n >= SOME) status = weft_step(m, parts, SOME, NULL, NULL, err);
  if (!status) status = weft_step(m, parts, (size_t)n, NULL, NULL, err);
  for (int rows = ROWS / 2; rows <= ROWS && o->speculating != WEFT_SPECULATE_NEVER && !status; rows += ROWS / 2) {
    parts[0].n = parts[0].rows = (size_t)(chunk < rows ? chunk : rows);
    status = weft_step(m, parts, 1, NULL, NULL, err);
  }
  for (int i = 0; i < n; i++) weft_sequence_free(parts[i].sequence);
  return status;
}

// Requests may use adapters if the defaults use none, and vice versa. The scale is small: an adapter may be meant for
// scales far below 1, and results that are no numbers would refuse the model.
static int warm_up_others(weft_model *m, const struct sched_options *o, weft_error *err) {
  size_t n = o->model.n_adapters;
  bool adapted = false;
  if (!n) return 0;
  float *scales = xcalloc(n, sizeof *scales);
  for (size_t i = 0; i < n; i++) adapted |= o->model.adapters[i].scale != 0;
  for (size_t i = 0; i < n && !adapted; i++) scales[i] = FLT_MIN;
  int status = warm_up_steps(m, o, scales, err);
  free(scales);
  return status;
}

// For a model with an encoder: a source of n tokens, and an answer to it.
static int warm_up_answer(weft_model *m, const int32_t *source, size_t n, weft_error *err) {
  weft_rows *rows;
  int32_t *ids;
  size_t n_ids;
  const float *logits;
  if (!n) return 0;
  if (weft_encode_source(m, source, n, &rows, &ids, &n_ids, err)) return -1;
  int status = weft_decode(m, ids, n_ids, 0, &logits, err);
  weft_free(ids);
  weft_rows_free(rows);
  weft_model_promote_pages(m);
  return status;
}

// Makes the kernels for single tokens and for prompts (for an encoder, short texts) before requests need them.
int warm_up(weft_model *m, const struct sched_options *o, weft_error *err) {
  int32_t ids[2] = {0, 0};
  int n = weft_model_context(m) > 2 ? 2 : 1;
  if (weft_model_only_embeds(m) || weft_model_denoises(m)) {
    float *v = xcalloc((size_t)n * (size_t)weft_model_embedding_size(m), sizeof *v);
    int status = weft_embed(m, ids, (size_t)n, WEFT_POOLING_MODEL, v, err);
    free(v);
    return status;
  }
  if (weft_model_has_source(m)) return warm_up_answer(m, ids, (size_t)n - 1, err);
  if (weft_decode(m, ids, (size_t)n, 0, NULL, err) || weft_decode(m, ids, 1, 0, NULL, err)) return -1;
  if (warm_up_steps(m, o, NULL, err) || warm_up_others(m, o, err)) return -1;
  weft_model_promote_pages(m);
  return 0;
}
