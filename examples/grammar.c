// grammar: an answer that is valid under a JSON schema, whatever the model would rather write.
//   grammar MODEL PROMPT SCHEMA
#include <stdio.h>
#include <string.h>
#include <weft.h>

static int fail(const weft_error *err) {
  fprintf(stderr, "grammar: %s\n", err->text);
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: grammar MODEL PROMPT SCHEMA\n"), 2;
  weft_error err;
  weft_model *model;
  if (weft_model_open(argv[1], NULL, &model, &err)) return fail(&err);
  const weft_vocab *vocab = weft_model_vocab(model);
  weft_grammar *grammar;
  if (weft_grammar_open_json_schema(vocab, argv[3], strlen(argv[3]), &grammar, &err)) return fail(&err);
  if (*weft_grammar_notes(grammar)) fprintf(stderr, "not enforced: %s\n", weft_grammar_notes(grammar));

  int32_t *ids;
  size_t n, n_text;
  if (weft_tokenize(vocab, argv[2], strlen(argv[2]), WEFT_ADD_SPECIAL, &ids, &n, &err)) return fail(&err);
  weft_sampling sampling = weft_sampling_default();
  sampling.temp = 0;
  weft_sampler *sampler;
  if (weft_sampler_new(weft_model_vocab_size(model), &sampling, &sampler, &err)) return fail(&err);
  weft_stream *stream = weft_stream_new(vocab, false);
  const float *logits;
  if (weft_decode(model, ids, n, 0, &logits, &err)) return fail(&err);
  for (int pos = (int)n; pos < weft_model_context(model) && !weft_grammar_ended(grammar); pos++) {
    const uint64_t *allowed;
    int32_t id;
    if (weft_grammar_mask(grammar, &allowed, &err)) return fail(&err);
    weft_sampler_mask(sampler, allowed);
    if (weft_sample(sampler, logits, &id, &err)) return fail(&err);
    if (weft_is_end(vocab, id)) break;
    if (weft_grammar_accept(grammar, id, &err)) return fail(&err);
    const char *text = weft_stream_add(stream, id, &n_text);
    fwrite(text, 1, n_text, stdout);
    if (weft_decode(model, &id, 1, pos, &logits, &err)) return fail(&err);
  }
  puts("");
  weft_stream_free(stream);
  weft_sampler_free(sampler);
  weft_grammar_free(grammar);
  weft_free(ids);
  weft_model_close(model);
  return 0;
}
