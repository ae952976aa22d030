// A program that embeds Weft: it knows include/weft.h and libweft.a, and nothing else of the tree.  Loads a model,
// tokenizes, decodes, samples and frees.  Usage: embed MODEL PROMPT N; the text of N greedy tokens goes to stdout.
#include "weft.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int complain(const weft_error *err) {
  fprintf(stderr, "embed: %s\n", err->text);
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  weft_error err;
  weft_model *model;
  if (weft_model_open(argv[1], NULL, &model, &err)) return complain(&err);
  const weft_vocab *vocab = weft_model_vocab(model);
  int32_t *ids, next;
  size_t n;
  if (weft_tokenize(vocab, argv[2], strlen(argv[2]), WEFT_ADD_SPECIAL, &ids, &n, &err)) return complain(&err);
  const float *logits;
  if (weft_decode(model, ids, n, 0, &logits, &err)) return complain(&err);
  weft_sampling greedy = weft_sampling_default();
  greedy.temp = 0;
  weft_sampler *sampler;
  if (weft_sampler_new(weft_model_vocab_size(model), &greedy, &sampler, &err)) return complain(&err);
  weft_stream *stream = weft_stream_new(vocab, false);
  for (int i = 0, pos = (int)n; i < atoi(argv[3]); i++, pos++) {
    if (weft_sample(sampler, logits, &next, &err)) return complain(&err);
    size_t n_text;
    const char *text = weft_stream_add(stream, next, &n_text);
    fwrite(text, 1, n_text, stdout);
    if (weft_is_end(vocab, next) || weft_decode(model, &next, 1, pos, &logits, &err)) break;
  }
  size_t n_text;
  const char *text = weft_stream_end(stream, &n_text);
  fwrite(text, 1, n_text, stdout);
  weft_stream_free(stream);
  weft_sampler_free(sampler);
  weft_free(ids);
  weft_model_close(model);
  return 0;
}
