// hello: a model continues a text, with the likeliest tokens.    hello MODEL [PROMPT]
#include <stdio.h>
#include <string.h>
#include <weft.h>

static int fail(const weft_error *err) {
  fprintf(stderr, "hello: %s\n", err->text);
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: hello MODEL [PROMPT]\n"), 2;
  const char *prompt = argc > 2 ? argv[2] : "def hello(name):\n";
  weft_error err;
  weft_model *model;
  if (weft_model_open(argv[1], NULL, &model, &err)) return fail(&err);
  const weft_vocab *vocab = weft_model_vocab(model);

  int32_t *ids;
  size_t n;
  if (weft_tokenize(vocab, prompt, strlen(prompt), WEFT_ADD_SPECIAL, &ids, &n, &err)) return fail(&err);
  const float *logits;
  if (weft_decode(model, ids, n, 0, &logits, &err)) return fail(&err);
  weft_free(ids);

  weft_sampling sampling = weft_sampling_default();
  sampling.temp = 0;                                  // the likeliest token
  weft_sampler *sampler;
  if (weft_sampler_new(weft_model_vocab_size(model), &sampling, &sampler, &err)) return fail(&err);
  weft_stream *stream = weft_stream_new(vocab, false); // tokens can end within a character: it waits for the rest
  fputs(prompt, stdout);
  for (int pos = (int)n, i = 0; i < 32; i++, pos++) {
    int32_t id;
    size_t n_text;
    if (weft_sample(sampler, logits, &id, &err)) return fail(&err);
    if (weft_is_end(vocab, id)) break;
    const char *text = weft_stream_add(stream, id, &n_text);
    fwrite(text, 1, n_text, stdout);
    if (weft_decode(model, &id, 1, pos, &logits, &err)) return fail(&err);
  }
  puts("");
  weft_stream_free(stream);
  weft_sampler_free(sampler);
  weft_model_close(model);
  return 0;
}
