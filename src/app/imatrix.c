// weft imatrix: computes importance weights for weft quantize. The model evaluates a text chunk by chunk, and the sums
// of squares of each matrix's inputs are written to a file.
#include "app/app.h"
#include "app/model_args.h"
#include <stdlib.h>
#include <string.h>

struct collector { const struct settings *o; weft_model *model; progress bar; };

static const struct command command = {
  "imatrix",
  "Measures which inputs of a model's matrices matter, for weft quantize.",
  "-m FILE -f TEXT [-o OUT] [options]",
  "The text is cut into chunks of -c tokens, and each is read alone; a few hundred of 512 are enough.\n"
  "The file is llama.cpp's (GGUF), and weft quantize --imatrix reads it.\n",
  COMMAND_BIT(imatrix),
  0};

static int write_out(const struct collector *c, const weft_imatrix *w) {
  weft_error err;
  const struct settings *o = c->o;
  int status = weft_imatrix_write(w, o->imatrix.out, o->file, (int)o->model.context, &err);
  return status ? failed("%s", err.text) : 0;
}

static int collect_chunks(struct collector *c, const int32_t *ids, int64_t n_chunks) {
  weft_error err;
  const struct settings *o = c->o;
  size_t size = (size_t)o->model.context;
  const weft_vocab *v = weft_model_vocab(c->model);
  int32_t *chunk = xcalloc(size, sizeof *chunk), *first;
  size_t n;
  bool bos = !weft_tokenize(v, "", 0, WEFT_ADD_SPECIAL, &first, &n, &err) && n && first[0] == weft_bos(v);
  weft_imatrix *w = weft_imatrix_new(c->model);
  int status = 0;
  interrupt_catch();
  progress_begin(&c->bar);
  double began = now_s();
  for (int64_t i = 0; i < n_chunks && !status && !interrupted(); i++) {
    char text[96];
    memcpy(chunk, ids + (size_t)(i + o->imatrix.from) * size, size * sizeof *chunk);
    if (bos) chunk[0] = weft_bos(v);
    if (weft_imatrix_add(w, chunk, size, &err)) status = failed("%s", err.text);
    else if (o->imatrix.every && (i + 1) % o->imatrix.every == 0 && i + 1 < n_chunks) status = write_out(c, w);
    int left = (int)((now_s() - began) / (double)(i + 1) * (double)(n_chunks - i - 1));
    snprintf(text, sizeof text, "chunk %lld of %lld, %d:%02d left", (long long)i + 1, (long long)n_chunks, left / 60,
             left % 60);
    progress_set(&c->bar, text, (double)(i + 1) / (double)n_chunks);
  }
  progress_end(&c->bar);
  if (!status && interrupted()) status = EXIT_INTERRUPTED;
  if (!status && !(status = write_out(c, w)))
    say("wrote %s: %lld chunks of %zu tokens, %.1f s", o->imatrix.out, (long long)n_chunks, size,
            now_s() - began);
  weft_imatrix_free(w);
  weft_free(first);
  free(chunk);
  return status;
}

static int read_and_collect(struct collector *c) {
  const struct settings *o = c->o;
  weft_error err;
  error e = {0};
  char *text;
  int32_t *ids;
  size_t len, n;
  if (read_file(o->file, READ_CORPUS, &text, &len, &e)) return failed("%s", e.text);
  if (len && text[len - 1] == '\n') len--;
  int status = weft_tokenize(weft_model_vocab(c->model), text, len,
                             WEFT_ADD_SPECIAL | (o->parse_special ? WEFT_PARSE_SPECIAL : 0), &ids, &n, &err);
  free(text);
  if (status) return failed("%s", err.text);
  int64_t most = (int64_t)(n / (size_t)o->model.context) - o->imatrix.from,
          chunks = o->imatrix.chunks >= 0 && o->imatrix.chunks < most ? o->imatrix.chunks : most;
  if (chunks < 1)
    status = failed("the text is %zu tokens: no chunk of %lld from number %lld on", n, (long long)o->model.context,
                    (long long)o->imatrix.from);
  else status = collect_chunks(c, ids, chunks);
  weft_free(ids);
  return status;
}

static int measure_text(struct settings *o) {
  struct collector c = {.o = o};
  if (!o->model.context) o->model.context = 512;
  if (!o->model.model) return usage_error("no model: give one with -m FILE");
  if (!o->file) return usage_error("no text: give a file with -f FILE");
  if (!o->imatrix.chunks) return usage_error("--chunks 0: there is nothing to read");
  keep_to_evaluating(o, o->imatrix.out);
  int status = model_args_open(&o->model, &c.bar, &c.model);
  if (!status) status = read_and_collect(&c);
  weft_model_close(c.model);
  return status;
}

int imatrix_command(int argc, char **argv) { return settings_run(&command, argc, argv, measure_text); }
