// stream: a prompt from standard input, a text that is drawn at random and ends at a stop string.
//   stream MODEL SEED STOP < prompt
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

static int fail(const weft_error *err) {
  fprintf(stderr, "stream: %s\n", err->text);
  return 1;
}

// Shown while the model loads and while kernels are compiled, which a later run need not.
static void progress(void *ctx, const char *what, double fraction) {
  (void)ctx;
  fprintf(stderr, "\r%s %3.0f %%", what, 100 * fraction);
}

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: stream MODEL SEED STOP\n"), 2;
  char prompt[4096];
  size_t n_prompt = fread(prompt, 1, sizeof prompt, stdin);
  weft_error err;
  weft_model *model;
  weft_options options = {.size = sizeof options, .context = 1024, .progress = progress};
  if (weft_model_open(argv[1], &options, &model, &err)) return fail(&err);
  fputs("\n", stderr);
  const weft_vocab *vocab = weft_model_vocab(model);
  int32_t *ids;
  size_t n;
  if (weft_tokenize(vocab, prompt, n_prompt, WEFT_ADD_SPECIAL, &ids, &n, &err)) return fail(&err);

  weft_sampling sampling = weft_sampling_default();
  sampling.seed = strtoull(argv[2], NULL, 10);        // the same seed gives the same text
  sampling.repeat_penalty = 1.1;
  weft_sampler *sampler;
  if (weft_sampler_new(weft_model_vocab_size(model), &sampling, &sampler, &err)) return fail(&err);
  for (size_t i = 0; i < n; i++) weft_accept(sampler, ids[i], NULL);   // penalties count the prompt, too
  weft_stop *stop;
  if (weft_stop_new((const char *const[]){argv[3]}, 1, &stop, &err)) return fail(&err);
  weft_stream *stream = weft_stream_new(vocab, false);

  const float *logits;
  if (weft_decode(model, ids, n, 0, &logits, &err)) return fail(&err);
  int found = -1;
  for (int pos = (int)n; pos < weft_model_context(model) && pos < (int)n + 200; pos++) {
    int32_t id;
    size_t n_text, n_shown;
    if (weft_sample(sampler, logits, &id, &err) || weft_accept(sampler, id, &err)) return fail(&err);
    if (weft_is_end(vocab, id)) break;
    const char *text = weft_stream_add(stream, id, &n_text);
    const char *shown = weft_stop_add(stop, text, n_text, &n_shown, &found);
    fwrite(shown, 1, n_shown, stdout);
    fflush(stdout);
    if (found >= 0) break;
    if (weft_decode(model, &id, 1, pos, &logits, &err)) return fail(&err);
  }
  size_t n_rest;
  const char *rest = weft_stop_end(stop, &n_rest);   // what may have been the beginning of a stop string
  if (found < 0) fwrite(rest, 1, n_rest, stdout);
  puts("");
  weft_stream_free(stream);
  weft_stop_free(stop);
  weft_sampler_free(sampler);
  weft_free(ids);
  weft_model_close(model);
  return 0;
}
