// Encodes the source text of models with an encoder and a decoder. Part of the public API (include/weft/media.h).
// Input: a text; output: the ids of the decoder's prompt: rows of floats (float_rows.h), and the first token of the
// answer.
#include <stdlib.h>
#include <string.h>
#include "weft.h"
#include "engine/engine.h"
#include "engine/fail.h"

bool weft_model_has_source(const weft_model *m) { return engine_has_source(weft_model_peek(m)); }

int weft_encode_source(weft_model *m, const int32_t *ids, size_t n, weft_rows **rows, int32_t **prompt,
                       size_t *n_prompt, weft_error *err) {
  const engine *e = weft_model_peek(m);
  size_t n_ctx = (size_t)engine_n_ctx(e);
  if (!engine_has_source(e)) FAIL(err, "%s: this model has no encoder", gguf_path(engine_gguf(e)));
  if (!n) FAIL(err, "a source without tokens");
  if (n >= n_ctx) FAIL(err, "a source of %zu tokens leaves no room for an answer in a context of %zu", n, n_ctx);
  float *floats = xcalloc(n * (size_t)engine_n_embd(e), sizeof *floats);
  weft_rows_spec spec = {.size = sizeof spec, .floats = floats, .n = n};
  int failed = weft_embed(m, ids, n, WEFT_POOLING_NONE, floats, err) || weft_rows_new(m, &spec, rows, err);
  free(floats);
  if (failed) return -1;
  *n_prompt = n + 1;
  *prompt = xmalloc(*n_prompt * sizeof **prompt);
  memcpy(*prompt, weft_rows_ids(*rows, &n), n * sizeof **prompt);
  (*prompt)[n] = engine_starts(e);
  return 0;
}
