// weft perplexity: measures how well a model predicts a text, in llama.cpp's terms. The text is split into chunks of
// the context's size. Each chunk is evaluated alone, with BOS as its first token if the model uses one, and the tokens
// of its second half are scored. Perplexity is e to the mean of -log p. --kl-divergence-base writes the
// log-probabilities of all tokens to a file (llama.cpp's format), and --kl-divergence compares another model with such
// a file: see divergence.c.
#include "app/perplexity.h"
#include "app/model_args.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct command command = {
  "perplexity",
  "Measures how well a model predicts a text.",
  "FILE -f TEXT [options]",
  "The text is cut into chunks of -c tokens. Of each, the second half is predicted token by token; the\n"
  "perplexity is e to the mean of -log(p). Lines and numbers are those of llama.cpp:\n"
  "  [1]8.1,[2]9.3,...   after each chunk, of all tokens up to there\n"
  "  Final estimate: PPL = 9.1 +/- 0.2\n"
  "Two models are compared in two runs: one writes the log-probabilities of all tokens with\n"
  "--kl-divergence-base, the other reads that file as well, with --kl-divergence; it takes text and -c from it.\n",
  COMMAND_BIT(perplexity),
  0};

// ---- one chunk ------------------------------------------------------------------------------------------------------

struct summary log_softmax(const float *logits, int32_t n) {
  struct summary s = {.max = logits[0], .min = logits[0]};
  for (int32_t i = 1; i < n; i++) {
    if (logits[i] > s.max) s.max = logits[i], s.top = i;
    s.min = fminf(s.min, logits[i]);
  }
  double sum = 0;
  for (int32_t i = 0; i < n; i++) sum += expf(logits[i] - s.max);
  s.log_sum = log(sum);
  return s;
}

static bool score_row(void *ctx, size_t i, const float *logits) {
  struct run *r = ctx;
  if (interrupted()) return false;
  r->see(r, i, logits, r->chunk[i + 1]);
  return !r->err.text[0];
}

int each_chunk(struct run *r, int32_t n_chunks, const int32_t *ids, size_t step) {
  weft_error err;
  int status = 0;
  interrupt_catch();
  progress_begin(&r->bar);
  double began = now_s();
  for (int32_t i = 0; i < n_chunks && !status; i++) {
    r->chunk = ids + (size_t)i * step;
    memcpy(r->tokens, r->chunk, (size_t)r->size * sizeof *ids);
    if (r->bos >= 0) r->tokens[0] = r->bos;
    if (weft_decode_rows(r->model, r->tokens, (size_t)r->size - 1, 0, (size_t)r->first, score_row, r, &err))
      status = failed("%s", err.text);
    else if (interrupted()) status = EXIT_INTERRUPTED;
    else if (r->err.text[0]) status = failed("%s", r->err.text);
    if (status) break;
    double took = (now_s() - began) / (i + 1);
    char text[64];
    int left = (int)(took * (n_chunks - i - 1));
    snprintf(text, sizeof text, "chunk %d of %d, %d:%02d left", i + 1, n_chunks, left / 60, left % 60);
    progress_end(&r->bar);
    if (!i) fprintf(stderr, "weft: %.2f seconds per chunk, about %.2f minutes for all\n", took, took * n_chunks / 60);
    r->done(r, i);
    if (!out_terminal(&r->out)) progress_set(&r->bar, text, (i + 1.0) / n_chunks);
    if (!out_flush(&r->out)) break;
  }
  progress_end(&r->bar);
  return status;
}

// ---- perplexity -----------------------------------------------------------------------------------------------------

struct perplexity { struct run r; double nll, nll2; int64_t count, format, step; struct base *base; };

static void note_token(struct run *r, size_t i, const float *logits, int32_t next) {
  struct perplexity *p = r->ctx;
  (void)i;
  struct summary s = log_softmax(logits, r->n_vocab);
  double nll = s.max + s.log_sum - logits[next];
  p->nll += nll;
  p->nll2 += nll * nll;
  p->count++;
  if (p->base) base_add(p->base, logits, &s, &r->err);
}

static void add_chunk(struct run *r, int32_t i) {
  const struct perplexity *p = r->ctx;
  double mean = p->nll / (double)p->count, spread = p->nll2 / (double)p->count - mean * mean;
  if (!p->format) out_addf(&r->out, "[%d]%.4f,", i + 1, exp(mean));
  else
    out_addf(&r->out, "%8lld  %.4f  %4f  %4f\n", (long long)(i * p->step), exp(mean), mean,
             spread > 0 && p->count > 1 ? sqrt(spread / (double)(p->count - 1)) : 0);
}

static int measure_chunks(struct perplexity *p, int32_t n_chunks, const int32_t *ids, const char *base) {
  struct run *r = &p->r;
  error err = {0};
  r->ctx = p;
  r->see = note_token;
  r->done = add_chunk;
  if (base && base_create(base, r->size, r->n_vocab, n_chunks, ids, &p->base, &err)) return failed("%s", err.text);
  int status = each_chunk(r, n_chunks, ids, (size_t)p->step);
  if (p->base && base_finish(p->base, !status, &err) && !status) status = failed("%s", err.text);
  if (status) return status;
  double mean = p->nll / (double)p->count, spread = p->nll2 / (double)p->count - mean * mean;
  out_addf(&r->out, "\nFinal estimate: PPL = %.4f +/- %.5f\n", exp(mean),
           spread > 0 && p->count > 1 ? sqrt(spread / (double)(p->count - 1)) * exp(mean) : 0);
  return 0;
}

// ---- the text -------------------------------------------------------------------------------------------------------

// The BOS token if the model adds one, otherwise -1. Models that end texts with EOS are not supported.
static int find_bos(const weft_vocab *v, int32_t *bos) {
  weft_error err;
  int32_t *ids;
  size_t n;
  if (weft_tokenize(v, "", 0, WEFT_ADD_SPECIAL, &ids, &n, &err)) return failed("%s", err.text);
  *bos = n && ids[0] == weft_bos(v) ? ids[0] : -1;
  bool ends = n > (*bos >= 0) && ids[n - 1] == weft_eos(v);
  weft_free(ids);
  return ends ? failed("this model ends every text with EOS: it predicts no texts") : 0;
}

static int read_text(const struct settings *o, const weft_vocab *v, int32_t **ids, size_t *n) {
  weft_error err;
  error e = {0};
  char *text = NULL;
  size_t len = o->prompt ? strlen(o->prompt) : 0;
  if (o->file && read_file(o->file, READ_CORPUS, &text, &len, &e)) return failed("%s", e.text);
  if (text && len && text[len - 1] == '\n') len--;             // as llama.cpp reads files
  int status =
    weft_tokenize(v, text ? text : o->prompt, len, WEFT_ADD_SPECIAL, ids, n, &err) ? failed("%s", err.text) : 0;
  free(text);
  return status;
}

// The number of chunks in a text; 0 after a message.
static int32_t count_chunks(const struct settings *o, size_t n, size_t size) {
  size_t most = o->perplexity.stride
                  ? (n > size ? (n - size + (size_t)o->perplexity.stride - 1) / (size_t)o->perplexity.stride : 0)
                  : n / size;
  if (n < 2 * (size_t)o->model.context || !most) {
    failed("the text is %zu tokens; with a context of %lld it must be %lld at least", n, (long long)o->model.context,
           2 * (long long)o->model.context);
    return 0;
  }
  return (int32_t)(o->perplexity.chunks >= 0 && (size_t)o->perplexity.chunks < most ? (size_t)o->perplexity.chunks
                                                                                    : most);
}

static int run_perplexity(const struct settings *o, struct perplexity *p) {
  struct run *r = &p->r;
  const weft_vocab *v = weft_model_vocab(r->model);
  int32_t *ids = NULL;
  size_t n = 0;
  r->n_vocab = weft_model_vocab_size(r->model);
  int status = find_bos(v, &r->bos);
  if (status) return status;
  if (o->perplexity.compare) return compare_with(o->perplexity.base, r);
  r->size = (int)(o->model.context + o->perplexity.stride / 2);
  r->first = o->perplexity.stride ? r->size - (int)o->perplexity.stride - 1 : r->size / 2;
  p->format = o->perplexity.format;
  p->step = o->perplexity.stride ? o->perplexity.stride : r->size;
  // no BOS, as in llama.cpp: windows overlap
  if (o->perplexity.stride) r->bos = -1;
  r->tokens = xcalloc((size_t)r->size, sizeof *r->tokens);
  status = read_text(o, v, &ids, &n);
  int32_t n_chunks = status ? 0 : count_chunks(o, n, (size_t)r->size);
  if (!status && !n_chunks) status = EXIT_FAILED;
  if (!status) {
    fprintf(stderr, "weft: perplexity over %d chunks of %d tokens\n", n_chunks, r->size);
    status = measure_chunks(p, n_chunks, ids, o->perplexity.base);
  }
  weft_free(ids);
  return status;
}

static int check_settings(const struct settings *o) {
  if (!o->model.model) return usage_error("no model: give one with -m FILE");
  if (o->perplexity.compare && !o->perplexity.base)
    return usage_error("--kl-divergence needs the file to compare with: --kl-divergence-base FILE");
  if (o->perplexity.compare && o->perplexity.stride)
    return usage_error("--kl-divergence and --ppl-stride: the file was made without strides");
  if (o->perplexity.base && o->perplexity.stride)
    return usage_error("--kl-divergence-base and --ppl-stride: the file has no place for strides");
  if (!o->perplexity.compare && !o->file == !o->prompt)
    return usage_error(o->file ? "a text with -f and another one with -p: give one of them"
                               : "no text: give a file with -f FILE");
  if (o->perplexity.stride && o->perplexity.stride + 1 > o->model.context + o->perplexity.stride / 2)
    return usage_error("--ppl-stride %lld is more than a context of %lld can score", (long long)o->perplexity.stride,
                       (long long)o->model.context);
  if (!o->perplexity.chunks) return usage_error("--chunks 0: there is nothing to measure");
  return 0;
}

static int measure_it(struct settings *o) {
  struct perplexity p = {.nll = 0};
  error err = {0};
  if (!o->model.context) o->model.context = 512;
  int status = check_settings(o);
  if (status) return status;
  keep_to_evaluating(o, o->perplexity.compare ? NULL : o->perplexity.base);
  int64_t context = o->model.context;
  if (o->perplexity.compare && base_context(o->perplexity.base, &o->model.context, &err)) return failed("%s", err.text);
  o->model.context += o->perplexity.stride / 2;
  status = model_args_open(&o->model, &p.r.bar, &p.r.model);
  o->model.context = context;
  if (!status) status = run_perplexity(o, &p);
  status = out_end(&p.r.out, status);
  weft_model_close(p.r.model);
  free(p.r.tokens);
  return status;
}

int perplexity_command(int argc, char **argv) { return settings_run(&command, argc, argv, measure_it); }
