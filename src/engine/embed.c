// Embeddings: the hidden states before the head, pooled over a text. Part of the public API (include/weft.h).
#include "weft.h"
#include "base/base.h"
#include "engine/engine.h"
#include "engine/fail.h"
#include "model/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)WEFT_POOLING_MODEL == POOLING_UNSAID && (int)WEFT_POOLING_NONE == POOLING_NONE &&
                 (int)WEFT_POOLING_MEAN == POOLING_MEAN && (int)WEFT_POOLING_CLS == POOLING_CLS &&
                 (int)WEFT_POOLING_LAST == POOLING_LAST && (int)WEFT_POOLING_RANK == POOLING_RANK,
               "weft.h numbers them as files do");

bool weft_model_only_embeds(const weft_model *m) {
  const engine *e = weft_model_peek(m);
  return engine_is_encoder(e) && !engine_denoises(e);
}
int32_t weft_model_embedding_size(const weft_model *m) { return engine_n_embd(weft_model_peek(m)); }

int weft_model_pooling(const weft_model *m, enum weft_pooling *pooling, weft_error *err) {
  (void)err;
  *pooling = (enum weft_pooling)engine_pooling(weft_model_peek(m));
  return 0;
}

struct pool { const char *path; enum weft_pooling how; size_t size, n; float *out; double *sum; error e; };

static bool add_row(void *ctx, size_t i, const float *row) {
  struct pool *p = ctx;
  for (size_t k = 0; k < p->size; k++)
    if (!isfinite(row[k])) {
      error_set(&p->e, "%s: element %zu of the vector of token %zu is no number: the weights are damaged", p->path, k,
                i);
      return false;
    }
  if (p->how == WEFT_POOLING_NONE) memcpy(p->out + i * p->size, row, p->size * sizeof *row);
  else if (p->how == WEFT_POOLING_MEAN) for (size_t k = 0; k < p->size; k++) p->sum[k] += row[k];
  else if (i == (p->how == WEFT_POOLING_CLS ? 0 : p->n - 1)) memcpy(p->out, row, p->size * sizeof *row);
  return true;
}

int weft_embed(weft_model *m, const int32_t *ids, size_t n, enum weft_pooling pooling, float *out, weft_error *err) {
  engine *e = weft_model_engine(m);
  int n_ctx = engine_n_ctx(e), n_vocab = engine_n_vocab(e);
  if (pooling == WEFT_POOLING_MODEL && weft_model_pooling(m, &pooling, err)) return -1;
  if (pooling == WEFT_POOLING_MODEL) pooling = WEFT_POOLING_NONE;
  bool ranks = engine_pooling(e) == POOLING_RANK;
  if (ranks != (pooling == WEFT_POOLING_RANK))
    FAIL(err, "%s: this model %s", gguf_path(engine_gguf(e)),
         ranks ? "ranks texts, and makes no vectors of them" : "makes embeddings, and does not rank texts");
  if (ranks) pooling = engine_is_encoder(e) ? WEFT_POOLING_CLS : WEFT_POOLING_LAST;
  if (pooling < 0 || pooling > WEFT_POOLING_RANK) FAIL(err, "pooling %d is not known", (int)pooling);
  if (!n) FAIL(err, "there are no tokens to make a vector of");
  if (n > (size_t)n_ctx) FAIL(err, "a text of %zu tokens does not fit the context of %d", n, n_ctx);
  for (size_t i = 0; i < n; i++)
    // other negative ids are rows of floats, which engine_run checks
    if (ids[i] >= -1 && (ids[i] < 0 || ids[i] >= n_vocab))
      FAIL(err, "token id %d (number %zu of %zu) is outside the vocabulary: ids go from 0 to %d", ids[i], i + 1, n,
           n_vocab - 1);
  struct pool p = {
    .path = gguf_path(engine_gguf(e)), .how = pooling, .size = (size_t)engine_n_embd(e), .n = n, .out = out};
  p.sum = xcalloc(p.size, sizeof *p.sum);
  engine_part part = {.ids = ids, .n = n, .want = WANT_HIDDEN, .row = add_row, .ctx = &p};
  int failed = engine_run(e, &(engine_batch){.parts = &part, .n = 1}, &p.e);
  if (pooling == WEFT_POOLING_MEAN) for (size_t k = 0; k < p.size; k++) out[k] = (float)(p.sum[k] / (double)n);
  free(p.sum);
  return failed || p.e.text[0] ? fail(err, &p.e) : 0;
}

void weft_embedding_normalize(float *v, size_t n, int p) {
  double length = 0;
  if (p < 0) return;
  for (size_t i = 0; i < n; i++) {
    double x = fabs((double)v[i]);
    if (!p) length = fmax(length, x / 32760);
    else length += p == 1 ? x : p == 2 ? x * x : pow(x, p);
  }
  if (p == 2) length = sqrt(length);
  else if (p > 2) length = pow(length, 1.0 / p);
  for (size_t i = 0; i < n; i++) v[i] = length > 0 ? (float)(v[i] / length) : 0;
}
