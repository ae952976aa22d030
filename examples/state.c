/* state: evaluates a prompt once, keeps what the caches hold as bytes, and lets two texts go on from there.
 *
 *   state MODEL PROMPT FIRST SECOND
 */
#include <stdio.h>
#include <string.h>
#include <weft.h>

static int fail(const weft_error *err) { return fprintf(stderr, "state: %s\n", err->text), 1; }

/* Evaluates text behind what q holds, and prints the likeliest tokens that follow. */
static int go_on(weft_model *m, weft_sequence *q, const char *text, unsigned flags, int n_tokens, weft_error *err) {
  const weft_vocab *vocab = weft_model_vocab(m);
  weft_sampling greedy = weft_sampling_default();
  weft_sampler *sampler;
  int32_t *ids, id;
  size_t n, n_text;
  greedy.temp = 0;
  if (weft_tokenize(vocab, text, strlen(text), flags, &ids, &n, err)) return -1;
  if (weft_sampler_new(weft_model_vocab_size(m), &greedy, &sampler, err)) return -1;
  weft_tokens step = {.sequence = q, .ids = ids, .n = n};
  int status = weft_step(m, &step, 1, NULL, NULL, err);
  for (int i = 0; i < n_tokens && !status; i++) {
    status = weft_sample(sampler, step.logits, &id, err);
    if (status || weft_is_end(vocab, id)) break;
    char *piece = weft_piece(vocab, id, false, &n_text);
    fwrite(piece, 1, n_text, stdout);
    weft_free(piece);
    step = (weft_tokens){.sequence = q, .ids = &id, .n = 1};
    status = weft_step(m, &step, 1, NULL, NULL, err);
  }
  weft_free(ids);
  weft_sampler_free(sampler);
  return status;
}

int main(int argc, char **argv) {
  if (argc != 5) return fprintf(stderr, "usage: state MODEL PROMPT FIRST SECOND\n"), 2;
  weft_error err;
  weft_model *model;
  weft_sequence *q;
  weft_options options = {.size = sizeof options, .context = 1024};
  if (weft_model_open(argv[1], &options, &model, &err)) return fail(&err);

  int32_t *ids;
  size_t n, n_state;
  void *state;
  if (weft_tokenize(weft_model_vocab(model), argv[2], strlen(argv[2]), WEFT_ADD_SPECIAL, &ids, &n, &err))
    return fail(&err);
  weft_tokens prompt = {.ids = ids, .n = n, .unseen = true};
  if (weft_sequence_new(model, &prompt.sequence, &err) || weft_step(model, &prompt, 1, NULL, NULL, &err))
    return fail(&err);
  if (weft_sequence_to_memory(prompt.sequence, ids, &state, &n_state, &err)) return fail(&err);
  weft_sequence_free(prompt.sequence);
  weft_free(ids);
  fprintf(stderr, "%zu tokens are %zu bytes\n", n, n_state);

  for (int i = 3; i < 5; i++) {
    if (weft_sequence_from_memory(model, state, n_state, &q, NULL, NULL, &err)) return fail(&err);
    printf("%s%s", argv[2], argv[i]);
    if (go_on(model, q, argv[i], 0, 16, &err)) return fail(&err);
    printf("\n---\n");
    weft_sequence_free(q);
  }
  weft_free(state);
  weft_model_close(model);
  return 0;
}
