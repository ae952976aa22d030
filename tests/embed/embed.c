// A program that embeds Weft, as a user of the library would write it: weft.h is all it knows.  It continues a text greedily
// and prints the tokens and the text; tests/python/test_install.py builds it against an installed Weft and compares it with
// the weft command.
#include "weft.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_error err;

static void check(int result) {
  if (result == 0) return;
  fprintf(stderr, "embed: %s\n", err.text);
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: embed MODEL PROMPT COUNT\n");
    return 2;
  }
  if (strncmp(weft_version(), "0.1.", 4) != 0) fprintf(stderr, "embed: written for 0.1, this is %s\n", weft_version());
  weft_model *model;
  check(weft_model_open(argv[1], NULL, &model, &err));
  const weft_vocab *vocab = weft_model_vocab(model);
  int32_t *ids;
  size_t n;
  check(weft_tokenize(vocab, argv[2], strlen(argv[2]), WEFT_ADD_SPECIAL, &ids, &n, &err));

  weft_sampling greedy = weft_sampling_default();
  greedy.temp = 0;
  weft_sampler *sampler;
  check(weft_sampler_new(weft_model_vocab_size(model), &greedy, &sampler, &err));
  weft_stream *stream = weft_stream_new(vocab, false);

  const float *logits;
  check(weft_decode(model, ids, n, 0, &logits, &err));
  int pos = (int)n;
  for (int left = atoi(argv[3]); left > 0; left--) {
    int32_t next;
    check(weft_sample(sampler, logits, &next, &err));
    if (weft_is_end(vocab, next)) break;
    check(weft_accept(sampler, next, &err));
    size_t length;
    const char *text = weft_stream_add(stream, next, &length);
    fwrite(text, 1, length, stdout);
    if (left > 1) check(weft_decode(model, &next, 1, pos++, &logits, &err));
  }
  weft_stream_free(stream);
  weft_sampler_free(sampler);
  weft_free(ids);
  weft_model_close(model);
  return 0;
}
