/* sampler: a sampler of the program's own between Weft's: no token may contain a certain letter.
 *
 *   sampler MODEL PROMPT LETTER
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weft.h>

struct lipogram {
  const weft_vocab *vocab;
  char letter;
};

/* Called once a draw with the candidates that are left: those with the letter are dropped. */
static size_t without_letter(void *ctx, weft_candidate *c, size_t n) {
  const struct lipogram *l = ctx;
  for (size_t i = 0; i < n; i++) {
    size_t n_text;
    char *text = weft_piece(l->vocab, c[i].id, true, &n_text);
    if (memchr(text, l->letter, n_text)) c[i].logit = -INFINITY;
    weft_free(text);
  }
  return n;
}

static int fail(const weft_error *err) { return fprintf(stderr, "sampler: %s\n", err->text), 1; }

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: sampler MODEL PROMPT LETTER\n"), 2;
  weft_error err;
  weft_model *model;
  weft_sampler *sampler;
  weft_options options = {.size = sizeof options, .context = 512};
  if (weft_model_open(argv[1], &options, &model, &err)) return fail(&err);
  const weft_vocab *vocab = weft_model_vocab(model);

  struct lipogram rule = {vocab, argv[3][0]};
  weft_sampling sampling = weft_sampling_default();
  sampling.own = without_letter;
  sampling.own_ctx = &rule;
  sampling.samplers = "own;top_k;top_p;temperature"; /* before the others: it sees every token */
  if (weft_sampler_new(weft_model_vocab_size(model), &sampling, &sampler, &err)) return fail(&err);

  int32_t *ids;
  size_t n, n_text;
  const float *logits;
  if (weft_tokenize(vocab, argv[2], strlen(argv[2]), WEFT_ADD_SPECIAL, &ids, &n, &err)) return fail(&err);
  if (weft_decode(model, ids, n, 0, &logits, &err)) return fail(&err);
  for (int pos = (int)n; pos < (int)n + 40; pos++) {
    int32_t id;
    if (weft_sample(sampler, logits, &id, &err)) return fail(&err);
    if (weft_is_end(vocab, id)) break;
    char *text = weft_piece(vocab, id, false, &n_text);
    fwrite(text, 1, n_text, stdout);
    weft_free(text);
    if (weft_decode(model, &id, 1, pos, &logits, &err)) return fail(&err);
  }
  printf("\n");
  weft_free(ids);
  weft_sampler_free(sampler);
  weft_model_close(model);
  return 0;
}
