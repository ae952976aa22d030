// embed: how alike texts are, as the cosine of their embeddings.    embed MODEL TEXT TEXT...
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

static int fail(const weft_error *err) {
  fprintf(stderr, "embed: %s\n", err->text);
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 4) return fprintf(stderr, "usage: embed MODEL TEXT TEXT...\n"), 2;
  weft_error err;
  weft_model *model;
  if (weft_model_open(argv[1], NULL, &model, &err)) return fail(&err);
  enum weft_pooling pooling;
  if (weft_model_pooling(model, &pooling, &err)) return fail(&err);
  if (pooling == WEFT_POOLING_MODEL || pooling == WEFT_POOLING_NONE) pooling = WEFT_POOLING_MEAN;

  size_t n_texts = (size_t)argc - 2, size = (size_t)weft_model_embedding_size(model);
  float *vectors = malloc(n_texts * size * sizeof *vectors);
  if (!vectors) return 1;
  for (size_t i = 0; i < n_texts; i++) {
    int32_t *ids;
    size_t n;
    if (weft_tokenize(weft_model_vocab(model), argv[i + 2], strlen(argv[i + 2]), WEFT_ADD_SPECIAL, &ids, &n, &err))
      return fail(&err);
    if (weft_embed(model, ids, n, pooling, vectors + i * size, &err)) return fail(&err);
    weft_embedding_normalize(vectors + i * size, size, 2);
    weft_free(ids);
  }
  for (size_t i = 0; i < n_texts; i++)
    for (size_t k = i + 1; k < n_texts; k++) {
      double dot = 0;
      for (size_t j = 0; j < size; j++) dot += (double)vectors[i * size + j] * vectors[k * size + j];
      printf("%.4f  %s | %s\n", dot, argv[i + 2], argv[k + 2]);
    }
  free(vectors);
  weft_model_close(model);
  return 0;
}
