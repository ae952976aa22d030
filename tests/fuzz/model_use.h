// What is done with a changed model file: everything that opening does, and on request a run.  Shared by fuzz_model.c
// and tools/mutate_tool.c.
#ifndef WEFT_FUZZ_MODEL_USE_H
#define WEFT_FUZZ_MODEL_USE_H
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/env.h"
#include "chat/chat.h"
#include "chat/jinja.h"
#include "model/gguf.h"
#include "model/model.h"
#include "model/projector.h"
#include "text/text.h"
#include "weft.h"

// Graphs of a chunk of one sequence, of a token of each of two sequences, of every row, and of a source: of its
// encoder, and of what a decoder keeps of it.
static inline void use_graphs(const model *m) {
  if (model_only_drafts(m)) return;                    // its graphs are those of the model that it is for
  bool encoder = model_is_encoder(m), two = !encoder && !model_is_recurrent(m);
  const model_shape base = {.page = MODEL_PAGE,
                            .tile = 8,
                            .pages = 2,
                            .slots = 2,
                            .ctx = MODEL_PAGE,
                            .n_ctx = MODEL_PAGE,
                            .chunk = 4,
                            .logits = encoder ? LOGITS_HIDDEN : LOGITS_LAST};
  model_shape one = base, apart = base, rows = base, source = base, kept = base;
  bool has_source = model_has_source(m);
  one.chunk = 1;
  apart.apart = true, apart.chunk = 2, apart.logits = LOGITS_ALL;
  rows.logits = LOGITS_ALL, rows.exact = true;
  source.logits = LOGITS_HIDDEN;
  kept.logits = LOGITS_NONE, kept.floats = true;
  const model_shape *const shapes[] = {&base, encoder ? NULL : &one, two ? &apart : NULL, encoder ? NULL : &rows,
                                        has_source ? &source : NULL, has_source ? &kept : NULL};
  for (size_t i = 0; i < COUNT(shapes); i++) {
    if (!shapes[i]) continue;
    graph *g = graph_new(NULL);
    model_graph(m, g, shapes[i]);
    graph_free(g);
  }
}

// Whether an encoder of a picture or of sound could be made of it: for a small number of rows.
static inline bool use_projector(const gguf *file) {
  unsigned media, opened = 0;
  error err = {0};
  if (projector_media(file, &media, &err)) {
    if (!err.text[0]) die("refused without a word");
    return false;
  }
  for (int k = 0; k < MEDIUM_COUNT; k++) {
    model *m;
    err.text[0] = 0;
    if (!(media >> k & 1)) continue;
    if (projector_open(file, (enum medium)k, &m, &err)) {
      if (!err.text[0]) die("refused without a word");
      continue;
    }
    int64_t rows = projector_rows(m);
    for (int exact = 0; exact < 2 && rows < 1 << 16; exact++) {
      graph *g = graph_new(NULL);
      if (!exact) projector_find_bf16(m);
      projector_graph(m, g, &(projector_shape){rows ? rows : 4, exact});
      graph_free(g);
    }
    opened++;
    model_close(m);
  }
  return opened > 0;
}

// Whether a model could be made of it.
static inline bool use_model(const gguf *file) {
  model *m;
  error err = {0};
  gguf_string kind;
  if (!gguf_str(file, "general.architecture", &kind, NULL) && kind.n == 4 && !memcmp(kind.at, "clip", 4))
    return use_projector(file);
  if (model_open(file, (model_kv){0}, &m, &err)) {
    if (!err.text[0]) die("refused without a word");
    return false;
  }
  use_graphs(m);
  model_close(m);
  return true;
}

static inline bool use_tokenizer(const gguf *file) {
  static const char text[] = "def f(x): return x + 1 <s> \xC3\xA9\xF0\x9F\x98\x80 \xFF";
  tokenizer *t;
  error err = {0};
  if (tokenizer_from_gguf(file, &t, &err)) return false;
  int32_t *ids = NULL;
  size_t n;
  str back = {0};
  if (!tokenizer_encode(t, text, sizeof text - 1, true, true, &ids, &n, &err)) {
    tokenizer_decode(t, ids, n, true, &back);
    free(ids);
  }
  str_free(&back);
  tokenizer_free(t);
  return true;
}

static inline void use_template(const gguf *file) {
  text_view source;
  error err = {0};
  jinja *t;
  if (chat_template_from_gguf(file, false, &source, &err) || jinja_parse(source.at, source.n, &t, &err)) return;
  jinja_free(t);
}

// ---- a run on the reference device ----------------------------------------------------------------------------------

static inline void use_step(weft_model *m, weft_sequence **q, const int32_t *ids, size_t n_parts, size_t n) {
  weft_tokens parts[2] = {{.sequence = q[0], .ids = ids, .n = n}, {.sequence = q[1], .ids = ids + 1, .n = n}};
  weft_error err;
  if (weft_step(m, parts, n_parts, NULL, NULL, &err)) {
    if (!err.text[0]) die("a step failed without a word");
    return;
  }
  for (size_t i = 0; i < n_parts; i++)
    for (int32_t v = 0; v < weft_model_vocab_size(m); v++)
      if (isnan(parts[i].logits[v])) die("a step gave logits that are no numbers");
}

// Of a file that can be opened at path: two sequences, a piece of a prompt each and then a token of both in one step,
// or the vector of a text.  false: it is no model that runs.
static inline bool use_run(const char *path) {
  static const weft_options options = {.context = 64, .threads = 1, .chunk = 8};
  static const int32_t ids[] = {1, 2, 3, 0, 4};
  weft_model *m;
  weft_error err = {0};
  env_set(ENV_DEV, "REF"), env_set(ENV_WEFT_CACHE, "off"), env_set(ENV_WEFT_TUNE, "off");
  if (weft_model_open(path, &options, &m, &err)) {
    if (!err.text[0]) die("a model is refused without a word");
    return false;
  }
  weft_sequence *q[2] = {NULL, NULL};
  bool small = weft_model_vocab_size(m) < 8;  // the ids are not there
  if (weft_model_only_embeds(m)) {
    float *v = xcalloc((size_t)weft_model_embedding_size(m), sizeof *v);
    if (!small) weft_embed(m, ids, 3, WEFT_POOLING_MEAN, v, &err);
    free(v);
  } else if (!small && !weft_sequence_new(m, &q[0], &err) && !weft_sequence_new(m, &q[1], &err)) {
    use_step(m, q, ids, 1, 3);
    use_step(m, q, ids, 2, 1);
  }
  for (int i = 0; i < 2; i++) weft_sequence_free(q[i]);
  weft_model_close(m);
  return true;
}
#endif
