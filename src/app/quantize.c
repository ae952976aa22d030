// weft quantize: converts the weights of a model file to other formats. The library does the work; this file parses the
// arguments like llama.cpp's tool of that name (operands in its order, options anywhere), and prints a line for each
// tensor.
#include "app/app.h"
#include <stdlib.h>
#include <string.h>

struct quantizer { struct settings all; struct out out; progress bar; size_t n_kept; };

static const struct command command = {
  "quantize", "Writes a model file with other formats in it.", "IN.gguf [OUT.gguf] TYPE [THREADS] [options]",
  "Without OUT.gguf the file is ggml-model-TYPE.gguf beside the first one. Which tensor gets which format, and\n"
  "every byte, is as llama.cpp's tool of this name has it. The file appears when it is whole; a run that was\n"
  "stopped goes on when the same command is given again.\n", COMMAND_BIT(quantize), 0};

// ---- output ---------------------------------------------------------------------------------------------------------

static double in_mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

static void show_tensor(void *ctx, const weft_quantized *t) {
  struct quantizer *q = ctx;
  char shape[96];
  int n = 0;
  for (uint32_t i = 0; i < t->n_dims; i++)
    n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld", i ? " x " : "", (long long)t->shape[i]);
  progress_end(&q->bar);
  if (t->kept) q->n_kept++;
  else if (q->n_kept) {
    say("goes on from tensor %zu of %zu (%s): what an interrupted run made is sound",
            t->number, t->count, t->name);
    q->n_kept = 0;
  }
  if (t->kept) return;
  out_addf(&q->out, "[%4zu/%4zu] %-36s %-20s %7s", t->number, t->count, t->name, shape, t->from);
  if (strcmp(t->from, t->to))
    out_addf(&q->out, " -> %-7s %9.2f -> %9.2f MiB%s\n", t->to, in_mib(t->bytes_from), in_mib(t->bytes_to),
             t->misfit ? "  (rows are no whole blocks of the wanted format)" : "");
  else out_addf(&q->out, "    %-7s %9s    %9.2f MiB\n", "", "", in_mib(t->bytes_to));
  out_flush(&q->out);
}

static bool show_fraction(void *ctx, double fraction) {
  struct quantizer *q = ctx;
  progress_set(&q->bar, "quantising", fraction);
  return !interrupted() && !q->out.error;
}

static double bits(uint64_t bytes, const weft_quantize_result *r) {
  return r->n_params ? 8 * (double)bytes / (double)r->n_params : 0;
}

static void show_end(struct quantizer *q, const weft_quantize_result *r, double seconds) {
  out_addf(&q->out, "\nmodel size  %10.2f MiB (%.2f bits a weight)\n", in_mib(r->bytes_from), bits(r->bytes_from, r));
  out_addf(&q->out, "quant size  %10.2f MiB (%.2f bits a weight)\n", in_mib(r->bytes_to), bits(r->bytes_to, r));
  if (r->misfits)
    fprintf(stderr,
            "weft: warning: %zu tensors have rows that are no whole blocks of the wanted format, and got another one\n",
            r->misfits);
  if (r->n_missed)
    fprintf(stderr,
            "weft: warning: %zu tensors were quantised without importance weights: the file has none for them\n",
            r->n_missed);
  if (q->all.quantize.dry_run && r->needs_weights && !r->n_weights)
    fprintf(stderr, "weft: warning: this type needs importance weights (--imatrix)\n");
  if (!q->all.quantize.dry_run) fprintf(stderr, "weft: %.1f s\n", seconds);
}

// ---- the command line -----------------------------------------------------------------------------------------------

static bool is_copy(const char *type) { return !strcmp(type, "COPY") || !strcmp(type, "copy"); }
static bool is_type(const char *text) { return is_copy(text) || weft_quantize_find(text); }

// Reads lines "expression=format", separated by white space.
static int read_types(const char *path, struct texts *to, error *err) {
  static const char blank[] = " \t\r\n";
  char *text;
  size_t n;
  if (read_file(path, READ_JSON, &text, &n, err)) return -1;
  for (char *at = text + strspn(text, blank); *at; at += strspn(at, blank)) {
    size_t len = strcspn(at, blank);
    char *end = at + len;
    bool last = !*end;
    *end = 0;
    vec_push(to, xstrdup(at));
    at = last ? end : end + 1;
  }
  free(text);
  return 0;
}

// The default output path, next to the original.
static char *beside(const struct quantize_args *o) {
  const char *slash = strrchr(o->in, '/'), *name = weft_quantize_find(o->type);
  str s = {0};
  str_addn(&s, o->in, slash ? (size_t)(slash + 1 - o->in) : 0);
  str_addf(&s, "ggml-model-%s%s", name ? name : "COPY", o->keep_split ? "" : ".gguf");
  return s.at;
}

static int quantize_usage(struct settings *all) {
  struct quantize_args *o = &all->quantize;
  if (!o->in) return usage_error("no model: give the file to quantise, and a type");
  if (!o->out) return usage_error("no type: such as Q4_K_M or Q8_0; 'weft quantize --help' lists them");
  if (is_type(o->out)) {                           // IN TYPE [THREADS]
    if (o->number) return usage_error("unexpected argument '%s'", o->number);
    o->number = o->type;
    o->type = o->out;
    o->out = NULL;
  }
  if (!o->type) return usage_error("'%s' is not a type, and none follows; 'weft quantize --help' lists them", o->out);
  if (!is_type(o->type))
    return usage_error("'%s' is not a type that can be written; 'weft quantize --help' lists them", o->type);
  if (o->include.n && o->exclude.n) return usage_error("--include-weights and --exclude-weights: use one of them");
  if ((o->include.n || o->exclude.n) && !o->imatrix)
    return usage_error("there are no weights to choose from: give them with --imatrix");
  if (!o->number) return 0;
  char *end;
  long n = strtol(o->number, &end, 10);
  if (end == o->number || *end || n < 0 || n > 1024)
    return usage_error("'%s' is not a number of threads from 0 to 1024", o->number);
  all->model.threads = n;
  return 0;
}

static int run_quantizer(struct quantizer *q) {
  const struct quantize_args *o = &q->all.quantize;
  weft_error err;
  weft_quantize_result r;
  char *own = o->out ? NULL : beside(o);
  const char *out = own ? own : o->out;
  weft_quantize_options w = {
    .type = is_copy(o->type) ? NULL : o->type,
    .threads = (int)q->all.model.threads,
    .allow_requantize = o->requantize,
    .leave_output = o->leave_output,
    .pure = o->pure,
    .keep_split = o->keep_split,
    .dry_run = o->dry_run,
    .output_type = o->output_type,
    .embedding_type = o->embedding_type,
    .tensor_types = texts_of(&o->types),
    .n_tensor_types = o->types.n,
    .overrides = texts_of(&o->overrides),
    .n_overrides = o->overrides.n,
    .imatrix = o->imatrix,
    .include = texts_of(&o->include),
    .n_include = o->include.n,
    .exclude = texts_of(&o->exclude),
    .n_exclude = o->exclude.n,
    .progress = show_fraction,
    .tensor = show_tensor,
    .ctx = q,
  };
  keep_to_evaluating(&q->all, o->dry_run ? NULL : out);
  interrupt_catch();
  progress_begin(&q->bar);
  double began = now_s();
  int status = weft_quantize(o->in, out, &w, &r, &err) ? -1 : 0;
  bool unfinished = status || r.stopped;
  progress_end(&q->bar);
  if (status) status = failed("%s", err.text);
  else if (r.stopped) status = q->out.error ? 0 : EXIT_INTERRUPTED;
  else {
    show_end(q, &r, now_s() - began);
    if (own && !o->dry_run) say("wrote %s", own);
  }
  if (unfinished && r.n_done)
    say("%zu tensors are whole and kept beside %s, in .part: the same command goes on from there",
            r.n_done, out);
  free(own);
  return status;
}

// The last paragraphs of the help, with all types.
static char *notes(void) {
  str s = {0};
  const char *name;
  str_addf(&s, "%sTypes:", command.notes);
  for (size_t i = 0; (name = weft_quantize_type(i)); i++) str_addf(&s, "%s%s", i % 12 ? " " : "\n  ", name);
  str_add(&s, " COPY\n");
  return s.at;
}

int quantize_command(int argc, char **argv) {
  struct quantizer q = {.bar = {0}};
  struct quantize_args *o = &q.all.quantize;
  struct command with_types = command;
  error err = {0};
  int status;
  char *text = notes();
  with_types.notes = text;
  bool parsed = settings_parse(&q.all, &with_types, argc, argv, &status);
  if (parsed) status = quantize_usage(&q.all);
  if (parsed && !status && o->types_file && read_types(o->types_file, &o->types, &err)) status = failed("%s", err.text);
  if (parsed && !status) status = out_end(&q.out, run_quantizer(&q));
  settings_free(&q.all);
  free(text);
  return status;
}
