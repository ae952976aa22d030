// batch: several prompts at once.  Each step reads the weights once for all of them, and each text is what it would be
// alone.    batch MODEL PROMPT...
#include <stdio.h>
#include <string.h>
#include <weft.h>

enum { MOST = 16, LENGTH = 16 };

static int fail(const weft_error *err) {
  fprintf(stderr, "batch: %s\n", err->text);
  return 1;
}

int main(int argc, char **argv) {
  size_t n = argc > 2 ? (size_t)argc - 2 : 0;
  if (!n || n > MOST) return fprintf(stderr, "usage: batch MODEL PROMPT... (at most %d)\n", MOST), 2;
  weft_error err;
  weft_model *model;
  if (weft_model_open(argv[1], NULL, &model, &err)) return fail(&err);
  const weft_vocab *vocab = weft_model_vocab(model);
  weft_sampling sampling = weft_sampling_default();
  sampling.temp = 0;
  weft_sampler *sampler;                               // greedy: one serves all
  if (weft_sampler_new(weft_model_vocab_size(model), &sampling, &sampler, &err)) return fail(&err);

  weft_tokens parts[MOST] = {0};
  int32_t *prompts[MOST], next[MOST], texts[MOST][LENGTH];
  for (size_t i = 0; i < n; i++) {
    const char *prompt = argv[i + 2];
    if (weft_sequence_new(model, &parts[i].sequence, &err)) return fail(&err);
    if (weft_tokenize(vocab, prompt, strlen(prompt), WEFT_ADD_SPECIAL, &prompts[i], &parts[i].n, &err)) return fail(&err);
    parts[i].ids = prompts[i];
  }
  for (int k = 0; k < LENGTH; k++) {
    if (weft_step(model, parts, n, NULL, NULL, &err)) return fail(&err);
    for (size_t i = 0; i < n; i++) {
      if (weft_sample(sampler, parts[i].logits, &next[i], &err)) return fail(&err);
      texts[i][k] = next[i];
      parts[i].ids = &next[i];
      parts[i].n = 1;
    }
  }
  for (size_t i = 0; i < n; i++) {
    char *text;
    size_t n_text;
    if (weft_detokenize(vocab, texts[i], LENGTH, false, &text, &n_text, &err)) return fail(&err);
    printf("--- %s%s\n", argv[i + 2], text);
    weft_free(text);
    weft_free(prompts[i]);
    weft_sequence_free(parts[i].sequence);
  }
  weft_sampler_free(sampler);
  weft_model_close(model);
  return 0;
}
