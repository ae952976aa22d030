// weft run: continues a text. run() has the steps: prompt, prefill, one token after another, figures. Invariant: stdout
// has only the generated text (or the JSON lines).
#define _GNU_SOURCE
#include "app/app.h"
#include "app/grammar_args.h"
#include "app/sampling_args.h"
#include "app/stats.h"
#include "base/progress.h"
#include "app/json.h"
#include "app/model_args.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct command run_options = {
  "run",
  "Continues a text.  The generated text goes to stdout, everything else to stderr.",
  "FILE (-p TEXT | -f FILE | --ids 1,2,3) [options]",
  "Generation stops at the model's end-of-generation token, after -n tokens, or when the context is full.\n"
  "Ctrl-C stops it after the current token and prints the figures; a second Ctrl-C ends the program.\n"
  "Without a prompt, a pipe is the text to continue; at a terminal, a conversation begins.\n",
  COMMAND_BIT(run),
  COMMAND_BIT(chat)};

// One run, from the command line to the figures.
struct run {
  struct settings o;
  weft_model *model;
  const weft_vocab *vocab;
  weft_sampler *sampler;
  weft_grammar *grammar;     // or NULL
  weft_stream *stream;
  weft_stop *stop;           // NULL: no stop strings
  bool stopped;              // a stop string was found
  char last;                 // last character of the text
  int32_t n_vocab;
  int32_t *prompt;
  size_t n_prompt;
  weft_rows *source;         // for a model with an encoder: its output for the prompt
  int pos;                   // tokens evaluated
  const float *logits;       // for the next token
  weft_model *draft_model;   // NULL: no draft model
  weft_draft *draft;
  weft_speculation *speculation;
  int32_t *past;             // tokens evaluated
  weft_logprob *top;         // o.top_logprobs entries
  struct run_stats stats;
  struct media media;        // pictures and sounds of the prompt
  progress bar;              // the model may draw on it whenever it compiles
  struct out out;
};

// ---- options --------------------------------------------------------------------------------------------------------

// Returns whether stdin is a pipe or a non-empty file.
static bool text_is_piped(void) {
  struct stat st;
  return !fstat(STDIN_FILENO, &st) && (S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
}

// Checks what a row of the table cannot express. 0 or the exit status.
static int check_options_of_run(struct settings *o) {
  error err = {0};
  if (!o->model.model) return usage_error("no model: 'weft run FILE -p TEXT', or -m FILE");
  if (o->text && o->prompt) return usage_error("the prompt is given more than once: with -p, and as '%.60s'", o->text);
  if (o->text) o->prompt = o->text;
  int prompts = (o->prompt != NULL) + (o->file != NULL) + (o->ids.n > 0);
  if (o->media.files.n && o->ids.n)
    return usage_error("--image and --audio need a prompt as text, and --ids was given");
  if (prompts > 1) return usage_error("the prompt is given more than once: use one of -p, -f and --ids");
  if (!prompts && o->benchmark < 0 && text_is_piped()) o->file = "-";
  else if (!prompts && o->benchmark < 0) return usage_error("no prompt: give one with -p TEXT, -f FILE or --ids 1,2,3");
  if (o->top_logprobs && !o->json) return usage_error("--top-logprobs needs --json");
  if (o->benchmark >= 0) {
    o->count = o->benchmark;
    o->sampling.ignore_end = true;
    o->sampling.temp = 0;
  }
  if (o->force.n && (o->count < 0 || (uint64_t)o->count > o->force.n)) o->count = (int64_t)o->force.n;
  if (denoise_args_fault(&o->denoise)) return usage_error("%s", denoise_args_fault(&o->denoise));
  if (o->escapes) unescape_texts(&o->stops);
  return grammar_args_check(&o->grammar, o->sampling.ignore_end, &err) || sampling_check(&o->sampling, o->escapes, &err)
           ? usage_error("%s", err.text)
           : 0;
}

// Returns whether there is no text to continue and stdin is a terminal.
static bool is_conversation(const struct settings *o) {
  return o->model.model && !o->prompt && !o->text && !o->file && !o->ids.n && o->benchmark < 0 &&
         isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

// ---- prompt ---------------------------------------------------------------------------------------------------------

static int prompt_text(struct run *r, char **text, size_t *n, error *err) {
  if (r->o.file) {
    if (read_file(r->o.file, READ_PROMPT, text, n, err)) return -1;
  } else {
    *text = xstrdup(r->o.prompt ? r->o.prompt : "");
    *n = strlen(*text);
  }
  if (r->o.escapes) *n = unescape(*text, *n);
  return 0;
}

// Fills r->prompt.  0 or the exit status.
static int fill_prompt(struct run *r, const char *text, size_t n_text) {
  weft_error err;
  if (r->o.ids.n) {
    r->prompt = r->o.ids.at;
    r->n_prompt = r->o.ids.n;
    r->o.ids.at = NULL;
  } else if (!n_text && r->o.benchmark >= 0) {   // any prompt will do
    int32_t bos = weft_bos(r->vocab);
    r->prompt = xmalloc(sizeof *r->prompt);
    r->prompt[0] = bos < 0 ? 0 : bos;
    r->n_prompt = 1;
  } else {
    unsigned flags = (r->o.no_bos ? 0 : WEFT_ADD_SPECIAL) | (r->o.parse_special ? WEFT_PARSE_SPECIAL : 0);
    if (r->media.encoder ? weft_media_tokenize(r->media.encoder, text, n_text, flags, r->media.of.at, r->media.of.n,
                                               &r->prompt, &r->n_prompt, &err)
                         : weft_tokenize(r->vocab, text, n_text, flags, &r->prompt, &r->n_prompt, &err))
      return failed("%s", err.text);
    if (!r->n_prompt) return failed("the prompt is empty, and this model puts no BOS before it: give it some text");
  }
  int n_ctx = weft_model_context(r->model);
  if (r->n_prompt > (size_t)n_ctx)
    return failed("the prompt has %zu tokens and the context holds %d: shorten the prompt, or give more with -c",
                  r->n_prompt, n_ctx);
  for (size_t i = 0; i < r->n_prompt; i++)
    if (r->prompt[i] >= r->n_vocab)
      return failed("--ids: token %d is outside the vocabulary of %d", r->prompt[i], r->n_vocab);
  for (size_t i = 0; i < r->o.force.n; i++)
    if (r->o.force.at[i] >= r->n_vocab)
      return failed("--force: token %d is outside the vocabulary of %d", r->o.force.at[i], r->n_vocab);
  return 0;
}

// For a model with an encoder: encodes the prompt. 0 or the exit status.
static int encode_prompt(struct run *r) {
  weft_error err;
  int32_t *source = r->prompt;
  size_t n = r->n_prompt;
  if (!weft_model_has_source(r->model)) return 0;
  if (weft_encode_source(r->model, source, n, &r->source, &r->prompt, &r->n_prompt, &err))
    return failed("%s", err.text);
  weft_free(source);
  return 0;
}

// ---- evaluation -----------------------------------------------------------------------------------------------------

enum { PIECE = 512 };   // prompt tokens evaluated together

// Checks for Ctrl-C while a piece is evaluated, and moves the bar.
static bool watch_prefill(void *ctx, double done) {
  struct run *r = ctx;
  progress_set(&r->bar, "prompt", ((double)r->pos + done) / (double)r->n_prompt);
  return !interrupted();
}

// Evaluates the prompt, one piece at a time. 0 or the exit status.
static int prefill(struct run *r) {
  weft_error err;
  double compiled = stats_compile_ms(r->model), began = now_s();
  int status = 0;
  if (!r->o.quiet) progress_begin(&r->bar);
  weft_invoke(r->model, r->prompt, r->n_prompt);
  weft_model_watch(r->model, watch_prefill, r);
  while (!status && (size_t)r->pos < r->n_prompt && !interrupted()) {
    size_t left = r->n_prompt - (size_t)r->pos, n = weft_piece_of(r->model, r->prompt + r->pos, left, PIECE);
    progress_set(&r->bar, "prompt", (double)r->pos / (double)r->n_prompt);
    int ended = weft_decode(r->model, r->prompt + r->pos, n, r->pos, n == left ? &r->logits : NULL, &err);
    if (ended > 0) break;
    if (ended) status = EXIT_FAILED;
    for (size_t i = 0; !status && i < n; i++, r->pos++) r->past[r->pos] = r->prompt[r->pos];
  }
  weft_model_watch(r->model, NULL, NULL);
  progress_end(&r->bar);
  r->stats.n_prompt = (size_t)r->pos;
  r->stats.prompt_s = now_s() - began - (stats_compile_ms(r->model) - compiled) / 1000;
  for (size_t i = 0; !status && i < r->n_prompt; i++)
    if (r->prompt[i] >= 0) weft_accept(r->sampler, r->prompt[i], NULL);  // rows of pictures and sounds have no id
  return status ? failed("%s", err.text) : 0;
}

static int decode_step(struct run *r, int32_t id, weft_error *err) {
  // a plan made at its first use compiles here
  double compiled = stats_compile_ms(r->model), began = now_s();
  int status = weft_speculation_decode(r->speculation, r->past, r->pos, id, &r->logits, err);
  progress_end(&r->bar);
  if (status) return -1;
  r->stats.decode_s += now_s() - began - (stats_compile_ms(r->model) - compiled) / 1000;
  r->stats.n_decode++;
  r->past[r->pos++] = id;
  return 0;
}

// ---- output ---------------------------------------------------------------------------------------------------------

static json_t *json_logprob(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static void emit_json(struct run *r, int32_t id, const char *text, size_t n) {
  double logprob = 0;
  int32_t n_top = (int32_t)r->o.top_logprobs;
  weft_logprobs(r->logits, r->n_vocab, id, &logprob, r->top, n_top, NULL);
  json_t *o = json_object(), *top = json_array();
  for (int32_t i = 0; i < n_top; i++) {
    json_t *pair = json_array();
    json_array_append_new(pair, json_integer(r->top[i].id));
    json_array_append_new(pair, json_logprob(r->top[i].logprob));
    json_array_append_new(top, pair);
  }
  json_object_set_new(o, "id", json_integer(id));
  json_object_set_new(o, "text", json_stringn(text, n));
  json_object_set_new(o, "logprob", json_logprob(logprob));
  json_object_set_new(o, "top", top);
  out_json(&r->out, o, JSON_COMPACT | JSON_REAL_PRECISION(9));
}

// The text that a token completes: whole characters, and nothing that may belong to a stop string. last: it is the last
// token.
static void completed_text(struct run *r, int32_t id, bool last, str *text) {
  size_t n;
  const char *piece = weft_stream_add(r->stream, id, &n);
  str_addn(text, piece, n);
  if (last) {
    piece = weft_stream_end(r->stream, &n);
    str_addn(text, piece, n);
  }
  if (!r->stop) return;
  int found;
  piece = weft_stop_add(r->stop, text->at, text->n, &n, &found);
  text->n = 0;
  str_addn(text, piece, n);
  r->stopped = found >= 0;
  if (r->stopped || !last) return;
  piece = weft_stop_end(r->stop, &n);
  str_addn(text, piece, n);
}

// Writes a token. False: stdout is closed.
static bool write_token(struct run *r, int32_t id, bool last) {
  str text = {0};
  completed_text(r, id, last, &text);
  if (r->o.json) emit_json(r, id, str_c(&text), text.n);
  else if (r->o.benchmark < 0) out_add(&r->out, str_c(&text), text.n);
  if (text.n) r->last = text.at[text.n - 1];
  str_free(&text);
  return out_flush(&r->out);
}

// ---- the loop -------------------------------------------------------------------------------------------------------

// Samples a token that the grammar, if any, allows.
static int draw_allowed(struct run *r, int32_t *id, weft_error *err) {
  const uint64_t *mask;
  if (!r->grammar) return weft_sample(r->sampler, r->logits, id, err);
  if (weft_grammar_mask(r->grammar, &mask, err)) return -1;
  weft_sampler_mask(r->sampler, mask);
  if (weft_sample(r->sampler, r->logits, id, err)) return -1;
  return weft_grammar_accept(r->grammar, *id, err);
}

// Generates until a limit or the model ends the text. 0 or the exit status.
static int generate_text(struct run *r) {
  weft_error err;
  for (int64_t made = 0; made != r->o.count;) {
    if (interrupted()) return EXIT_INTERRUPTED;
    int32_t id;
    bool forced = r->o.force.n > 0;
    if (forced) id = r->o.force.at[made];
    else if (draw_allowed(r, &id, &err)) return failed("%s", err.text);
    if (r->stats.first_token_s < 0) r->stats.first_token_s = now_s() - started_at();
    weft_accept(r->sampler, id, NULL);
    made++;
    r->stats.n_written++;
    bool full = r->pos == weft_model_context(r->model),
         end = !forced && !r->o.sampling.ignore_end && weft_is_end(r->vocab, id);
    bool ended = !forced && r->grammar && weft_grammar_ended(r->grammar);
    bool last = end || ended || made == r->o.count || full;
    if (!write_token(r, id, last)) return interrupted() ? EXIT_INTERRUPTED : 0;
    if (full && !end && !ended && !r->stopped && made != r->o.count && !r->o.quiet)
      fprintf(stderr, "weft: the context of %d tokens is full: generation ends here (more with -c)\n", r->pos);
    if (last || r->stopped) return 0;
    if (interrupted()) return EXIT_INTERRUPTED;
    if (decode_step(r, id, &err)) return failed("%s", err.text);
  }
  return interrupted() ? EXIT_INTERRUPTED : 0;
}

// The length of a denoised text: the prompt plus -n tokens, otherwise one chunk.
static size_t denoised_length(const struct run *r) {
  enum { USUAL = 512 };
  int64_t n_ctx = weft_model_context(r->model);
  if (r->o.count >= 0) return r->n_prompt + (size_t)r->o.count;
  if (r->o.model.chunk) return (size_t)r->o.model.chunk;
  return (size_t)(n_ctx < USUAL ? n_ctx : USUAL);
}

// Writes the denoised tokens up to the end of the text. ended: Ctrl-C ended it early; remaining masks are skipped.
static void write_denoised(struct run *r, const struct denoised *d, bool ended) {
  int32_t mask = weft_mask(r->vocab);
  for (size_t i = d->n_prompt; i < d->n && !r->stopped; i++) {
    bool end = !r->o.sampling.ignore_end && weft_is_end(r->vocab, d->ids[i]), last = end || i + 1 == d->n;
    if (ended && d->ids[i] == mask) continue;
    r->stats.n_written++;
    if (d->rows) r->logits = d->rows[i];
    if (!write_token(r, d->ids[i], last) || last) return;
  }
}

// Generates the text after the prompt by denoising. 0 or the exit status.
static int denoise_text(struct run *r) {
  weft_error err;
  if (r->grammar || r->o.force.n)
    return failed("this model denoises texts as a whole: %s does not apply", r->grammar ? "a grammar" : "--force");
  struct denoised d = {.model = r->model,
                       .how = &r->o.denoise,
                       .sampling = &r->o.sampling,
                       .n = denoised_length(r),
                       .n_prompt = r->n_prompt,
                       .bar = r->o.quiet ? NULL : &r->bar};
  r->stats.n_prompt = r->n_prompt;
  if (!r->o.count) return 0;
  if (d.n <= d.n_prompt)
    return failed("the prompt has %zu tokens, and the text with it %zu: give more with -n or -ub", d.n_prompt, d.n);
  d.ids = xcalloc(d.n, sizeof *d.ids);
  memcpy(d.ids, r->prompt, d.n_prompt * sizeof *d.ids);
  if (r->o.json) d.rows = xcalloc(d.n, sizeof *d.rows);
  double compiled = stats_compile_ms(r->model), began = now_s();
  int status = denoise(&d, &err);
  r->stats.decode_s = now_s() - began - (stats_compile_ms(r->model) - compiled) / 1000;
  r->stats.n_decode = d.n - d.n_prompt;
  r->stats.first_token_s = now_s() - started_at();
  if (status >= 0) write_denoised(r, &d, status > 0);
  for (size_t i = 0; d.rows && i < d.n; i++) free(d.rows[i]);
  free(d.rows);
  free(d.ids);
  return status < 0 ? failed("%s", err.text) : status || interrupted() ? EXIT_INTERRUPTED : 0;
}

// Continues the text. 0 or the exit status.
static int continue_text(struct run *r) {
  if (weft_model_denoises(r->model)) return denoise_text(r);
  if (denoise_args_given(&r->o.denoise))
    return failed("options --diffusion-* are of models that denoise, and this model goes on token by token");
  int status = prefill(r);
  return status ? status : generate_text(r);
}

static int open_run_model(struct run *r) {
  weft_error err;
  bool guesses = !r->o.no_speculation && r->o.benchmark < 0;
  r->o.model.mtp = guesses && !r->o.draft.model.model;
  if (model_args_open(&r->o.model, &r->bar, &r->model)) return EXIT_FAILED;
  if (!r->o.quiet) model_args_warn(&r->o.model, r->model);
  r->vocab = weft_model_vocab(r->model);
  r->n_vocab = weft_model_vocab_size(r->model);
  if (r->o.top_logprobs > r->n_vocab) r->o.top_logprobs = r->n_vocab;
  r->top = xcalloc((size_t)r->o.top_logprobs, sizeof *r->top);
  r->stream = weft_stream_new(r->vocab, r->o.special);
  r->speculation = weft_speculation_new(r->model, guesses ? settings_speculating(&r->o) : WEFT_SPECULATE_NEVER);
  if (!r->o.no_speculation && draft_args_open(&r->o.draft, r->model, &r->bar, &r->draft_model, &r->draft))
    return EXIT_FAILED;
  if (r->draft) weft_speculation_draft(r->speculation, r->draft);
  r->past = xcalloc((size_t)weft_model_context(r->model) + 1, sizeof *r->past);
  sampling_resolve(&r->o.sampling, weft_model_file(r->model));
  if (sampling_new(&r->o.sampling, r->vocab, r->n_vocab, &r->sampler, &err)) return failed("%s", err.text);
  if (grammar_args_open(&r->o.grammar, r->vocab, r->n_vocab, &r->grammar, &err)) return failed("%s", err.text);
  if (r->o.stops.n && weft_stop_new(texts_of(&r->o.stops), r->o.stops.n, &r->stop, &err)) return failed("%s", err.text);
  return 0;
}

// Prints the prompt.
static void show_prompt(struct run *r) {
  char *text;
  size_t n;
  if (weft_detokenize(r->vocab, r->prompt, r->n_prompt, r->o.special, &text, &n, NULL)) return;
  out_add(&r->out, text, n);
  weft_free(text);
}

// Returns whether stdout and stderr are one file and the text does not end with a newline: figures would continue its
// last line.
static bool on_the_same_line(const struct run *r) {
  struct stat out, err;
  return !r->o.json && r->o.benchmark < 0 && r->last != '\n' && !fstat(STDOUT_FILENO, &out) &&
         !fstat(STDERR_FILENO, &err) && out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

// Prints the figures on stderr and writes the file of --stats. Returns the exit status.
static int report_figures(struct run *r, int status) {
  weft_model_stats(r->model, &r->stats.model);
  r->stats.speculation = weft_speculation_count(r->speculation);
  if (!r->out.error && !r->o.quiet) {
    fputs(on_the_same_line(r) ? "\n" : "", stderr);
    if (r->o.verbose) stats_print(&r->stats, stderr);
    stats_line(&r->stats, r->o.sampling.temp > 0 && !r->o.force.n ? r->o.sampling.seed : -1, stderr);
  }
  error err = {0};
  if (r->o.stats && stats_write(&r->stats, r->o.stats, &err)) return failed("--stats: %s", err.text);
  return status;
}

static int run(struct run *r) {
  error err = {0};
  r->last = '\n';
  char *text = NULL;
  size_t n_text = 0;
  if (prompt_text(r, &text, &n_text, &err)) return failed("%s", err.text);
  int status = open_run_model(r);
  if (!status) status = media_args_open(&r->o.media, r->model, &r->media);
  if (!status) status = fill_prompt(r, text, n_text);
  free(text);
  if (status) return status;
  if (r->o.verbose_prompt) show_tokens(r->vocab, r->prompt, r->n_prompt);
  if (r->o.display_prompt && !r->o.json && r->o.benchmark < 0) show_prompt(r);
  interrupt_catch();
  status = encode_prompt(r);
  if (!status) status = continue_text(r);
  if (status == EXIT_FAILED) return status;
  return report_figures(r, status);
}

int run_command(int argc, char **argv) {
  struct run r = {.stats.first_token_s = -1};
  int status;
  if (settings_are_for(&chat_options, &run_options, argc, argv)) return chat_command(argc, argv);
  bool parsed = settings_parse(&r.o, &run_options, argc, argv, &status),
       conversation = parsed && is_conversation(&r.o) && !settings_are_for(&run_options, &chat_options, argc, argv);
  if (parsed && !conversation) status = check_options_of_run(&r.o);
  if (!parsed || conversation || status) {
    settings_free(&r.o);
    return conversation ? talk_command(argc, argv) : status;
  }
  status = r.o.media.files.n ? media_args_find(&r.o.media, &r.o.model) : 0;
  if (status) {
    settings_free(&r.o);
    return status;
  }
  keep_to_evaluating(&r.o, NULL);
  status = run(&r);
  status = out_end(&r.out, status);
  weft_speculation_free(r.speculation);
  weft_draft_free(r.draft);
  weft_model_close(r.draft_model);
  free(r.past);
  weft_stream_free(r.stream);
  weft_stop_free(r.stop);
  weft_sampler_free(r.sampler);
  weft_grammar_free(r.grammar);
  status = viz_if_asked(r.model, status);
  media_free(&r.media);
  weft_rows_free(r.source);
  weft_model_close(r.model);
  free(r.top);
  free(r.prompt);
  settings_free(&r.o);
  return status;
}
