// chat: a conversation by the model's own template, or by that of a format.    chat MODEL MESSAGES [FORMAT]
// MESSAGES is JSON: [{"role": "user", "content": "Hello"}].  FORMAT is a name as llama.cpp has it, such as chatml.
#include <stdio.h>
#include <string.h>
#include <weft.h>

static int fail(const weft_error *err) {
  fprintf(stderr, "chat: %s\n", err->text);
  return 1;
}

static void show(const weft_part *parts, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (parts[i].kind == WEFT_CALL && parts[i].name) printf("[%s] ", parts[i].name);
    fwrite(parts[i].text, 1, parts[i].n, parts[i].kind == WEFT_REASONING ? stderr : stdout);
  }
}

static int open_template(const weft_model *model, const char *format, weft_template **out, weft_error *err) {
  if (!format) return weft_template_of_file(weft_model_file(model), false, out, err);
  char *text = weft_template_named(format, NULL);
  if (!text) return snprintf(err->text, sizeof err->text, "no format is named %s", format), -1;
  int r = weft_template_open(text, strlen(text), format, out, err);
  weft_free(text);
  return r;
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: chat MODEL MESSAGES [FORMAT]\n"), 2;
  weft_error err;
  weft_model *model;
  if (weft_model_open(argv[1], NULL, &model, &err)) return fail(&err);
  weft_template *template;
  if (open_template(model, argc > 3 ? argv[3] : NULL, &template, &err)) return fail(&err);
  const weft_vocab *vocab = weft_model_vocab(model);

  // Control tokens come from the template alone: what users write stays text, whatever it spells.
  weft_chat chat = {.messages = argv[2], .n_messages = strlen(argv[2]), .add_bos = true};
  char *prompt;
  int32_t *ids;
  size_t n_prompt, n;
  if (weft_template_encode(template, vocab, &chat, &prompt, &n_prompt, &ids, &n, &err)) return fail(&err);
  weft_answer *answer;
  if (weft_answer_new(template, prompt, n_prompt, NULL, 0, &answer, &err)) return fail(&err);

  weft_sampling sampling = weft_sampling_default();
  sampling.temp = 0;
  weft_sampler *sampler;
  if (weft_sampler_new(weft_model_vocab_size(model), &sampling, &sampler, &err)) return fail(&err);
  weft_stream *stream = weft_stream_new(vocab, true); // an answer is taken apart by its control tokens
  const float *logits;
  if (weft_decode(model, ids, n, 0, &logits, &err)) return fail(&err);
  const weft_part *parts;
  int32_t id = -1;
  for (int pos = (int)n; pos < (int)n + 64 && pos < weft_model_context(model); pos++) {
    if (weft_sample(sampler, logits, &id, &err)) return fail(&err);
    if (weft_is_end(vocab, id)) break;
    size_t n_text;
    const char *text = weft_stream_add(stream, id, &n_text);
    size_t n_parts = weft_answer_add(answer, text, n_text, &parts);
    show(parts, n_parts);
    if (weft_decode(model, &id, 1, pos, &logits, &err)) return fail(&err);
  }
  size_t n_parts = weft_answer_end(answer, !weft_is_end(vocab, id), &parts);
  show(parts, n_parts);
  puts("");
  weft_stream_free(stream);
  weft_sampler_free(sampler);
  weft_answer_free(answer);
  weft_free(ids);
  weft_free(prompt);
  weft_template_close(template);
  weft_model_close(model);
  return 0;
}
